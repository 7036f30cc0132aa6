//! lua-resty-core from the path: a version that was verified is taken, and what it calls in the executable is
//! there. `CLEARWAY_LUA_RESTY_CORE` names the directory `lib` of its sources for the test that runs it.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Server, Setup, wait_until};

use super::{ask, config};

/// The functions that the executable exports, one in a line.
const EXPORTS: &str = include_str!("../../../crates/luajit/exports.list");

/// What its name says in the place of lua-resty-core's: Lua's own functions, and the server's.
const COROUTINE: &str = "local raw = {}
    for _, name in ipairs { 'create', 'resume', 'status', 'wrap', 'yield' } do
        raw[name] = assert(coroutine['_' .. name])
        assert(coroutine['__' .. name])
    end
    return { from = 'path', raw = raw }
";

/// A module in the place of lua-resty-core's, of this version.
fn with_core(version: &str, http: &str, locations: &str) -> Server {
    let base = format!(
        "local _M = {{ from = 'path' }}\n_M.version = \"{version}\"\n\
         _M.get_request = require 'thread.exdata'\nreturn _M\n"
    );
    let core = "local base = require 'resty.core.base' require 'resty.core.var'\n\
                return { version = base.version, from = base.from }\n";
    let path = "lua_package_path '$prefix/lib/?.lua;;';";
    Setup::new(Binary::under_test(), &config(&format!("{path} {http}"), locations))
        .file("lib/resty/core/base.lua", base)
        .file("lib/resty/core.lua", core)
        .file("lib/resty/core/var.lua", "return { from = 'path' }\n")
        .file("lib/ngx/ssl.lua", "return { from = 'path' }\n")
        .file("lib/resty/core/coroutine.lua", COROUTINE)
        .start()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_verified_version_of_the_path_wins() {
    let code = "location = / { content_by_lua_block {
         local var = require 'resty.core.var'
         ngx.print(require('resty.core').from, var.from, require('resty.core.base').from,
             require('ngx.ssl').from, require('resty.core.coroutine').from, ngx.ctx == ngx.ctx)
     } }";
    let server = with_core("0.1.33", "", code);
    assert_eq!(ask(&server, "/"), (200, "pathpathpathpathpathtrue".to_owned()));

    let server = with_core("9.9.9", "", code);
    for _ in 0..3 {
        assert_eq!(ask(&server, "/"), (200, "nilnilnilnilniltrue".to_owned()));
    }
    let said = "lua-resty-core 9.9.9 of the path was not verified here";
    assert!(wait_until(PATIENCE, || server.error_log().contains(said)));
    assert_eq!(server.error_log().matches(said).count(), 1);
}

/// What the module of coroutines finds is Lua's own; to the server yields what finds its name later.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_module_of_coroutines_finds_luas_own_functions() {
    let code = "location = / { content_by_lua_block {
         local raw = require('resty.core.coroutine').raw
         local thread = raw.create(function (...) return 'end', raw.yield(...) end)
         local _, first, second = raw.resume(thread, 1, 2)
         local none = select('#', raw.resume(raw.create(function () raw.yield() end)))
         local wrapped = raw.wrap(function () raw.yield('wrapped') end)()
         ngx.print(first, second, raw.status(thread), none, wrapped, raw.yield == coroutine.yield,
             raw.yield == coroutine._yield)
     } }";
    let server = with_core("0.1.33", "", code);
    assert_eq!(ask(&server, "/"), (200, "12suspended1wrappedtruefalse".to_owned()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn every_function_of_the_list_is_exported() {
    let names: Vec<&str> = EXPORTS
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("ngx_") && !name.ends_with('*'))
        .collect();
    assert!(names.len() > 90);
    let code = format!(
        "location = / {{ content_by_lua_block {{
             local ffi = require 'ffi'
             local number, missing = 0, {{}}
             for name in ('{}'):gmatch('%S+') do
                 number = number + 1
                 local alias = 'clearway_test_' .. number
                 ffi.cdef('void ' .. alias .. '(void) __asm__(\"' .. name .. '\");')
                 if not pcall(function() return ffi.C[alias] end) then
                     missing[#missing + 1] = name
                 end
             end
             ngx.print(table.concat(missing, ' '))
         }} }}",
        names.join(" ")
    );
    // Each VM knows a declaration once.
    let server = with_core("0.1.33", "lua_reserve_vms 0;", &code);
    assert_eq!(ask(&server, "/"), (200, String::new()));
}

/// Calls functions as lua-resty-core declares them.
const CALLS: &str = r##"location = / { set $known "a b"; content_by_lua_block {
     local ffi = require "ffi"
     ffi.cdef[[
         typedef struct { int len; const unsigned char *data; } one_text;
         int ngx_http_lua_ffi_var_get(void *r, const char *name, size_t len, char *low, int group,
             const char **value, size_t *value_len, const char **err);
         int ngx_http_lua_ffi_var_set(void *r, const char *name, size_t len, char *low, const char *value,
             size_t value_len, char *err, size_t *err_len);
         void *ngx_http_lua_ffi_compile_regex(const char *pat, size_t len, int flags, int opts, char *err,
             size_t err_len);
         int ngx_http_lua_ffi_exec_regex(void *re, int flags, const char *s, size_t len, int pos);
         void ngx_http_lua_ffi_destroy_regex(void *re);
         int ngx_http_lua_ffi_get_resp_header(void *r, const char *key, size_t len, char *room, one_text *to,
             int max, const char **err);
         int ngx_http_lua_ffi_set_resp_header(void *r, const char *key, size_t len, int is_nil,
             const char *value, size_t value_len, one_text *all, size_t count, int over, const char **err);
         int ngx_http_lua_ffi_get_phase(void *r, const char **err);
         int ngx_http_lua_ffi_decode_base64(const char *from, size_t len, char *to, size_t *to_len);
         int ngx_http_lua_ffi_shdict_store(void *zone, int op, const char *key, size_t len, int kind,
             const char *text, size_t text_len, double number, long ttl, int flags, const char **err,
             int *forcible);
         int ngx_http_lua_ffi_shdict_incr(void *zone, const char *key, size_t len, double *value,
             const char **err, int has_init, double init, long ttl, int *forcible);
         void *ngx_http_lua_ffi_shdict_udata_to_zone(void *udata);
     ]]
     local C, r = ffi.C, require("thread.exdata")()
     local text, len = ffi.new("const char *[1]"), ffi.new("size_t[1]")
     local err, room = ffi.new("const char *[1]"), ffi.new("char[?]", 256)
     local seen = {}
     local function see(...)
         for i = 1, select("#", ...) do seen[#seen + 1] = tostring((select(i, ...))) end
     end
     local function var(name)
         local code = C.ngx_http_lua_ffi_var_get(r, name, #name, room, 0, text, len, err)
         return code == 0 and ffi.string(text[0], len[0]) or code
     end
     see(var("KNOWN"), var("none_of_this_name"))
     len[0] = 256
     see(C.ngx_http_lua_ffi_var_set(r, "known", 5, room, "c", 1, room, len), var("known"))
     len[0] = 256
     see(C.ngx_http_lua_ffi_var_set(r, "uri", 3, room, "c", 1, room, len), ffi.string(room, len[0]))
     local re = C.ngx_http_lua_ffi_compile_regex("b(.)", 4, 0, 0, room, 256)
     see(C.ngx_http_lua_ffi_exec_regex(re, 0, "abc", 3, 0), C.ngx_http_lua_ffi_exec_regex(re, 0, "abc", 3, 2))
     C.ngx_http_lua_ffi_destroy_regex(re)
     re = C.ngx_http_lua_ffi_compile_regex("(", 1, 0, 0, room, 256)
     see(re == nil, ffi.string(room):match("failed") )
     local all = ffi.new("one_text[2]", { { 1, "x" }, { 1, "y" } })
     see(C.ngx_http_lua_ffi_set_resp_header(r, "X-A", 3, 0, nil, 0, all, 2, 1, err))
     local count = C.ngx_http_lua_ffi_get_resp_header(r, "x-a", 3, room, all, 2, err)
     see(count, ffi.string(all[1].data, all[1].len), C.ngx_http_lua_ffi_get_phase(r, err))
     see(C.ngx_http_lua_ffi_decode_base64("YWI=", 4, room, len), ffi.string(room, len[0]))
     see(C.ngx_http_lua_ffi_decode_base64("?", 1, room, len))
     local zone = C.ngx_http_lua_ffi_shdict_udata_to_zone(ngx.shared.dogs[1])
     local number, forcible = ffi.new("double[1]", 2), ffi.new("int[1]")
     see(C.ngx_http_lua_ffi_shdict_store(zone, 1, "k", 1, 3, nil, 0, 40, 0, 0, err, forcible))
     see(C.ngx_http_lua_ffi_shdict_store(zone, 1, "k", 1, 3, nil, 0, 40, 0, 0, err, forcible))
     see(ffi.string(err[0]), C.ngx_http_lua_ffi_shdict_incr(zone, "k", 1, number, err, 0, 0, 0, forcible))
     see(number[0], ngx.shared.dogs:get("k"))
     ngx.print(table.concat(seen, " "))
 } }"##;

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn functions_do_what_upstreams_do() {
    let server = with_core("0.1.33", "lua_reserve_vms 0; lua_shared_dict dogs 1m;", CALLS);
    let expected = "a b -5 0 c -1 variable \"uri\" not changeable 2 -1 true failed 0 2 y 8 1 ab 0 0 \
                    -5 exists 0 42 42";
    assert_eq!(ask(&server, "/"), (200, expected.to_owned()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn sockets_have_options_and_env_is_seen() {
    let setup = "init_by_lua_block { seen_early = os.getenv('CLEARWAY_SAID') early = os.getenv }
         init_worker_by_lua_block {
             local ok, err = pcall(require('ngx.req').add_header, 'a', 'b')
             ngx.log(ngx.WARN, 'added: ', ok, ' ', err)
         }";
    let code = "location = /options { content_by_lua_block {
         local s = ngx.socket.tcp()
         local early = pcall(s.getoption, s, 'keepalive')
         assert(s:connect('127.0.0.1', %%PORT%%))
         assert(s:setoption('keepalive', true)) assert(s:setoption('keepcnt', 3))
         assert(s:setoption('rcvbuf', 8192))
         ngx.print(early, s:getoption('keepalive'), s:getoption('keepcnt'), s:getoption('rcvbuf') >= 8192,
             ' ', select(2, s:setoption('none', 1)), ' ', select(2, s:getoption()))
     } }
     location = /env { content_by_lua_block {
         ngx.print(seen_early, os.getenv('CLEARWAY_SAID'), os.getenv('CLEARWAY_UNSAID'))
     } }
     location = /setenv { content_by_lua_block {
         local ffi = require 'ffi'
         ffi.cdef[[
             int setenv(const char *name, const char *value, int replaces);
             int unsetenv(const char *name);
         ]]
         local out = { os.getenv('CLEARWAY_SAID'), tostring(os.getenv ~= early) }
         ffi.C.setenv('CLEARWAY_SAID', 'later', 1)
         out[3], out[4] = os.getenv('CLEARWAY_SAID'), early('CLEARWAY_SAID')
         ffi.C.setenv('CLEARWAY_NEW', 'new', 1)
         out[5] = os.getenv('CLEARWAY_NEW')
         ffi.C.unsetenv('CLEARWAY_NEW')
         out[6] = tostring(os.getenv('CLEARWAY_NEW'))
         ngx.print(table.concat(out, ' '))
     } }";
    let text = format!("env CLEARWAY_SAID=yes;\n{}", config(setup, code));
    let server = Setup::new(Binary::under_test(), &text).start();
    let options = "false13true unsupported option none missing the \"option\" argument";
    assert_eq!(ask(&server, "/options"), (200, options.to_owned()));
    assert_eq!(ask(&server, "/env"), (200, "yesyesnil".to_owned()));
    assert_eq!(ask(&server, "/setenv"), (200, "yes true later later new nil".to_owned()));
    server.wait_log("logs/error.log", "added: false API disabled in the current context");
}

/// Asks for all that lua-resty-core puts in the place of the server's own functions.
const QUESTIONS: &str = r##"
     set $foo bar;
     location = /sub { content_by_lua_block { ngx.status = 201 ngx.say(ngx.is_subrequest, ngx.ctx.x) } }
     location = / {
         set_by_lua_block $made { return tostring(ngx.arg[1]) }
         header_filter_by_lua_block { ngx.header["X-A"] = { "1", "2" } ngx.header.foo_bar = "x" }
         body_filter_by_lua_block { if ngx.arg[2] then ngx.arg[1] = (ngx.arg[1] or "") .. "end" end }
         content_by_lua_block {
             if ngx.var.arg_core then require "resty.core" end
             local out = {}
             local function try(f)
                 local got = { pcall(f) }
                 for i = 1, table.maxn(got) do got[i] = tostring(got[i]) end
                 out[#out + 1] = table.concat(got, " ")
             end
             try(function() ngx.var.foo = "baz" return ngx.var.foo, ngx.var.nope or 0, ngx.var.arg_a end)
             try(function()
                 return (select(2, pcall(function() ngx.var.uri = 1 end))):match("not changeable")
             end)
             try(function() local h = ngx.req.get_headers() return h.host ~= nil, h["x-none"] or 0 end)
             try(function() local a = ngx.req.get_uri_args() return a.a, a.b, a.c[2] end)
             try(function() ngx.req.set_method(ngx.HTTP_PUT) return ngx.req.get_method() end)
             try(function()
                 ngx.req.set_header("X-Y", { "a", "b" })
                 local v = ngx.req.get_headers()["x-y"]
                 ngx.req.clear_header("X-Y")
                 return v[1], v[2], ngx.req.get_headers()["x-y"] or 0
             end)
             try(function()
                 return #ngx.today(), ngx.http_time(0), ngx.cookie_time(0), ngx.parse_http_time("x") or 0
             end)
             try(function()
                 return ngx.md5("a"), #ngx.md5_bin("a"), #ngx.sha1_bin("b"), ngx.crc32_long("hello")
             end)
             try(function()
                 return ngx.encode_base64("abcd"), ngx.encode_base64("abcd", true),
                     ngx.decode_base64("YWI=")
             end)
             try(function() return ngx.escape_uri("a b&"), ngx.unescape_uri("a%20b+") end)
             try(function() return ngx.worker.id(), ngx.worker.count(), ngx.worker.exiting() end)
             try(function()
                 ngx.ctx.x = 5 local r = ngx.location.capture("/sub", { ctx = ngx.ctx })
                 return r.status, r.body
             end)
             try(function()
                 local d = ngx.shared.dogs
                 return tostring(d:set("a", "x", 0, 7)), d:get("a"), (d:incr("n", 1, 5)),
                     tostring(d:add("a", 1))
             end)
             try(function()
                 local d = ngx.shared.dogs d:set("l", ("x"):rep(9000))
                 return #d:get("l"), d:ttl("a"), d:capacity()
             end)
             try(function() return select(2, ngx.shared.dogs:incr("a", 1)) end)
             try(function() return ndk.set_var.set_escape_uri(" a") end)
             try(function() ngx.header["X-B"] = "1" return ngx.header["X-B"], ngx.header.nope or 0 end)
             try(function()
                 ngx.status = 202
                 return ngx.status, ngx.headers_sent, ngx.is_subrequest, ngx.get_phase()
             end)
             try(function()
                 return ngx.re.match("abc", "b(?<n>.)", "jo").n, ngx.re.find("abc", "c"),
                     ngx.re.gsub("aXbX", "X", "<$0>")
             end)
             try(function() return ngx.re.sub("abc", "(b)", function(m) return m[1] .. m[1] end, "o") end)
             try(function()
                 local t = {} for m in ngx.re.gmatch("a1b2", "[0-9]") do t[#t + 1] = m[0] end
                 return table.concat(t)
             end)
             try(function() return table.concat(require("ngx.re").split("a,b,c", ","), "|") end)
             try(function()
                 return require("ngx.process").type(), require("ngx.base64").encode_base64url("a?>")
             end)
             ngx.print(table.concat(out, "\n"))
             local co = coroutine.create(function() ngx.sleep(0.001) ngx.exit(200) end)
             coroutine.resume(co)
             ngx.say("not here")
         }
     }"##;

/// The server says the same with it and without it.
#[test]
#[ignore = "needs the sources of lua-resty-core and lua-resty-lrucache"]
fn lua_resty_core_runs_unmodified() {
    let lib = std::env::var("CLEARWAY_LUA_RESTY_CORE").expect("CLEARWAY_LUA_RESTY_CORE names a directory");
    let http = format!("lua_package_path '{lib}/?.lua;;'; lua_reserve_vms 0; lua_shared_dict dogs 1m;");
    let own = {
        let server = Setup::new(Binary::under_test(), &config(&http, QUESTIONS)).start();
        ask(&server, "/?a=1&b&c=1&c=2")
    };
    let server = Setup::new(Binary::under_test(), &config(&http, QUESTIONS)).start();
    let with_core = ask(&server, "/?a=1&b&c=1&c=2&core=1");
    assert_eq!(own, with_core);
    assert!(own.1.ends_with("end"), "{}", own.1);
}
