//! `ngx.ctx` where lua-resty-core of the path keeps its tables: what stands for its `resty.core.ctx` here
//! numbers them as that one does, and asks the executable which number a request has.

use clearway_testkit::{Binary, Server, Setup};

use super::network::DATA;
use super::{ask, config};

/// Numbers tables by the rules of `luaL_ref`; `kept` says how many places there are, and how many are in use.
const CONTEXT: &str = r#"
local ffi = require "ffi"
ffi.cdef[[
    int ngx_http_lua_ffi_get_ctx_ref(void *r, int *is_handshake, int *fallback);
    int ngx_http_lua_ffi_set_ctx_ref(void *r, int number);
]]
local C, shelf, request = ffi.C, {}, require "thread.exdata"
debug.getregistry().ngx_lua_ctx_tables = shelf
local is_handshake, fallback = ffi.new("int[1]"), ffi.new("int[1]")

local function put(value)
    local number = shelf[0]
    if number and number ~= 0 then
        shelf[0] = shelf[number]
    else
        number = #shelf + 1
    end
    shelf[number] = value
    assert(C.ngx_http_lua_ffi_set_ctx_ref(request(), number) == 0)
    return value
end

local function get()
    local number = C.ngx_http_lua_ffi_get_ctx_ref(request(), is_handshake, fallback)
    if number ~= -2 then
        assert(number > 0, number)
        return shelf[number]
    end
    local made = {}
    if is_handshake[0] ~= 0 then
        made.__index = made
    elseif fallback[0] > 0 then
        setmetatable(made, shelf[fallback[0]])
    end
    return put(made)
end

local function set(value)
    local number = C.ngx_http_lua_ffi_get_ctx_ref(request(), nil, nil)
    if number > 0 then
        shelf[number] = value
    else
        put(value)
    end
end

local meta = getmetatable(ngx)
local any, set_any = meta.__index, meta.__newindex
function meta.__index(of, name)
    if name == "ctx" then return get() end
    return any(of, name)
end
function meta.__newindex(of, name, value)
    if name == "ctx" then return set(value) end
    return set_any(of, name, value)
end
local function kept()
    local used = 0
    for i = 1, #shelf do used = used + (type(shelf[i]) == "table" and 1 or 0) end
    return #shelf, used
end
return { from = "path", kept = kept }
"#;

fn with_context(http: &str, locations: &str) -> Server {
    let base = "local _M = { from = 'path' }\n_M.version = \"0.1.33\"\nreturn _M\n";
    let http = format!("lua_package_path '$prefix/lib/?.lua;;'; lua_reserve_vms 0; {http}");
    Setup::new(Binary::under_test(), &config(&http, locations))
        .file("lib/resty/core/base.lua", base)
        .file("lib/resty/core.lua", "require 'resty.core.base' return { ctx = require 'resty.core.ctx' }\n")
        .file("lib/resty/core/ctx.lua", CONTEXT)
        .start()
}

/// Tables that were there before the module of the path was go over to its shelf.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn tables_go_over_to_the_shelf_of_the_path() {
    let server = with_context(
        "",
        "location = /waits { content_by_lua_block {
             ngx.ctx.mine = 'of one' ngx.log(ngx.WARN, 'it waits')
             while not package.loaded['resty.core.ctx'] do ngx.sleep(0.002) end
             ngx.sleep(0.002)
             ngx.ctx.more = 1
             ngx.print(ngx.ctx.mine, ' ', ngx.ctx.more, ' ', (require('resty.core.ctx').from))
         } }
         location = / { content_by_lua_block {
             ngx.ctx.mine = 'of another'
             local before = ngx.ctx
             require 'resty.core'
             ngx.print(ngx.ctx.mine, ' ', ngx.ctx == before, ' ', (require('resty.core.ctx').from))
         } }",
    );
    let mut waiting = server.connect();
    waiting.send(b"GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_log("logs/error.log", "it waits");
    assert_eq!(ask(&server, "/"), (200, "of another true path".to_owned()));
    assert_eq!(waiting.response().text(), "of one 1 path");
}

/// A request has one in all of its phases, a subrequest its own, and so has what a request is redirected to;
/// each is given back in the end.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn requests_have_tables_by_their_numbers_and_give_them_back() {
    let server = with_context(
        "init_by_lua_block { require 'resty.core' }",
        "location = / {
             rewrite_by_lua_block { ngx.ctx.n = 1 }
             header_filter_by_lua_block { ngx.ctx.n = ngx.ctx.n + 10 }
             body_filter_by_lua_block { if ngx.arg[2] then ngx.arg[1] = ' ' .. ngx.ctx.n end }
             content_by_lua_block {
                 ngx.ctx = { n = ngx.ctx.n + 1 }
                 local own = ngx.location.capture('/sub').body
                 local shared = ngx.location.capture('/sub', { ctx = ngx.ctx }).body
                 ngx.timer.at(0, function() ngx.ctx.n = 5 ngx.log(ngx.WARN, 'timer: ', ngx.ctx.n) end)
                 ngx.print(own, ' ', shared, ' ', ngx.ctx.seen)
             }
         }
         location = /sub { content_by_lua_block { ngx.ctx.seen = 'seen' ngx.print(tostring(ngx.ctx.n)) } }
         location = /exec { content_by_lua_block { ngx.ctx.n = 1 ngx.exec('/sub') } }
         location = /kept { content_by_lua_block {
             ngx.print(table.concat({ require('resty.core.ctx').kept() }, ' '))
         } }",
    );
    for _ in 0..40 {
        assert_eq!(ask(&server, "/"), (200, "nil 2 seen 12".to_owned()));
        assert_eq!(ask(&server, "/exec"), (200, "nil".to_owned()));
    }
    server.wait_log("logs/error.log", "timer: 5");
    let (_, kept) = ask(&server, "/kept");
    let (places, used) = kept.split_once(' ').expect("two numbers");
    let number = |text: &str| text.parse::<u32>().expect("a number");
    assert!(number(places) < 12 && number(used) < 6, "{kept}");
}

/// The table of a handshake's code is what those of its connection's requests fall back on.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn requests_fall_back_on_the_table_of_their_handshake() {
    let server = with_context(
        &format!(
            "init_by_lua_block {{ require 'resty.core' }}
             server {{
                 listen 127.0.0.1:%%PORT2%% ssl;
                 ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
                 ssl_client_hello_by_lua_block {{ ngx.ctx.said = 'hello' ngx.ctx.shared = {{ n = 0 }} }}
                 ssl_certificate_by_lua_block {{ ngx.ctx.said = ngx.ctx.said .. '+certificate' }}
                 location / {{ content_by_lua_block {{
                     local shared = ngx.ctx.shared
                     shared.n = shared.n + 1
                     ngx.ctx.own = (ngx.ctx.own or 0) + 1
                     ngx.print(ngx.ctx.said, ' ', shared.n, ' ', ngx.ctx.own, ' ', rawget(ngx.ctx, 'said'))
                 }} }}
             }}"
        ),
        "location = / { content_by_lua_block {
             local s = ngx.socket.tcp()
             assert(s:connect('127.0.0.1', %%PORT2%%))
             assert(s:sslhandshake())
             for i = 1, 2 do
                 assert(s:send('GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n'))
                 assert(s:receiveuntil('\\r\\n\\r\\n')())
                 local size = tonumber(s:receive('*l'), 16)
                 ngx.print(s:receive(size), '. ')
                 s:receive(2) s:receive('*l') s:receive('*l')
             end
         } }",
    );
    let expected = "hello+certificate 1 1 nil. hello+certificate 2 1 nil. ";
    assert_eq!(ask(&server, "/"), (200, expected.to_owned()));
}
