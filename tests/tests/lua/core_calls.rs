//! Functions that lua-resty-core calls in the executable: which there are to be, and that those work which
//! let a thread wait or hand out objects. They are called as lua-resty-core declares them.

use std::collections::BTreeSet;

use super::network::DATA;
use super::{ask, server};

/// The functions that the executable exports, one in a line.
const EXPORTS: &str = include_str!("../../../crates/luajit/exports.list");
/// The functions that lua-resty-core 0.1.33 declares for `http`, one in a line.
const WANTED: &str = include_str!("core_functions.txt");

#[test]
fn every_function_that_is_wanted_is_in_the_list() {
    let exported: BTreeSet<&str> = EXPORTS.lines().filter_map(|line| line.trim().strip_suffix(';')).collect();
    let missing: Vec<&str> = WANTED.lines().filter(|name| !exported.contains(name)).collect();
    assert!(WANTED.lines().count() > 170, "the list is whole");
    assert!(missing.is_empty(), "{missing:?}");
}

const DECLARED: &str = r#"init_by_lua_block {
    ffi = require "ffi"
    ffi.cdef[[
        int ngx_http_lua_ffi_sema_new(void **sem, int n, const char **err);
        int ngx_http_lua_ffi_sema_post(void *sem, int n);
        int ngx_http_lua_ffi_sema_count(void *sem);
        int ngx_http_lua_ffi_sema_wait(void *r, void *sem, int ms, char *err, size_t *len);
        void ngx_http_lua_ffi_sema_gc(void *sem);

        typedef struct { int pid; uintptr_t write, out, err, wait; void *pipe; } one_program;
        int ngx_http_lua_ffi_pipe_spawn(void *r, one_program *p, const char *file, const char **argv,
            int merge, size_t buffer, const char **env, char *err, size_t *len);
        int ngx_http_lua_ffi_pipe_proc_read(void *r, one_program *p, int stderr, int kind, size_t count,
            char **data, size_t *size, char *err, size_t *len);
        int ngx_http_lua_ffi_pipe_get_read_result(void *r, one_program *p, int stderr, char **data,
            size_t *size, char *err, size_t *len);
        ssize_t ngx_http_lua_ffi_pipe_proc_write(void *r, one_program *p, const char *data, size_t size,
            char *err, size_t *len);
        ssize_t ngx_http_lua_ffi_pipe_get_write_result(void *r, one_program *p, char *err, size_t *len);
        int ngx_http_lua_ffi_pipe_proc_shutdown_stdin(one_program *p, char *err, size_t *len);
        int ngx_http_lua_ffi_pipe_proc_shutdown_stderr(one_program *p, char *err, size_t *len);
        int ngx_http_lua_ffi_pipe_proc_wait(void *r, one_program *p, const char **why, int *status,
            char *err, size_t *len);
        int ngx_http_lua_ffi_pipe_proc_kill(one_program *p, int signal, char *err, size_t *len);
        void ngx_http_lua_ffi_pipe_proc_destroy(one_program *p);

        typedef struct { size_t len; const char *data; } one_name;
        void *ngx_http_lua_ffi_parse_pem_cert(const char *pem, size_t len, const char **err);
        void *ngx_http_lua_ffi_parse_pem_priv_key(const char *pem, size_t len, const char **err);
        int ngx_http_lua_ffi_cert_pem_to_der(const char *pem, size_t len, char *der, const char **err);
        int ngx_http_lua_ffi_ssl_clear_certs(void *r, const char **err);
        int ngx_http_lua_ffi_set_cert(void *r, void *cert, const char **err);
        int ngx_http_lua_ffi_set_priv_key(void *r, void *key, const char **err);
        void ngx_http_lua_ffi_free_cert(void *cert);
        void ngx_http_lua_ffi_free_priv_key(void *key);
        int ngx_http_lua_ffi_ssl_server_name(void *r, const char **name, size_t *len, const char **err);
        int ngx_http_lua_ffi_ssl_get_tls1_version(void *r, const char **err);
        int ngx_http_lua_ffi_socket_tcp_sslhandshake(void *r, void *u, void *session, int reuse,
            one_name *name, int verify, int staple, void *chain, void *key, const char **err);
        int ngx_http_lua_ffi_socket_tcp_get_sslhandshake_result(void *r, void *u, void **session,
            const char **err, int *code);
        void ngx_http_lua_ffi_ssl_free_session(void *session);
        int ngx_http_lua_ffi_socket_tcp_getfd(void *r, void *u, const char **err);
        int ngx_http_lua_ffi_socket_tcp_getoption(void *u, int opt, int *value, char *err, size_t *len);

        int ngx_http_lua_ffi_errlog_set_filter_level(int level, char *err, size_t *len);
        int ngx_http_lua_ffi_errlog_get_msg(char **text, int *level, char *err, size_t *len, double *time);
    ]]
    C, yield = ffi.C, coroutine._yield
    err, room, size = ffi.new("const char *[1]"), ffi.new("char[?]", 256), ffi.new("size_t[1]")
    function said() return ffi.string(room, size[0]) end
    function file(name)
        local f = assert(io.open('%%DATA%%/' .. name))
        local text = f:read('*a')
        f:close()
        return text
    end
}"#;

fn asked(http: &str, locations: &str) -> (u16, String) {
    let http = format!("lua_reserve_vms 0; {} {http}", DECLARED.replace("%%DATA%%", DATA));
    ask(&server(&http, locations), "/")
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn threads_wait_at_semaphores_of_the_core() {
    let answer = asked(
        "",
        r#"location = / { content_by_lua_block {
             local made = ffi.new("void *[1]")
             assert(C.ngx_http_lua_ffi_sema_new(made, 1, err) == 0)
             local sem = ffi.gc(made[0], C.ngx_http_lua_ffi_sema_gc)
             local out = {}
             local function wait(ms)
                 size[0] = 256
                 local rc = C.ngx_http_lua_ffi_sema_wait(nil, sem, ms, room, size)
                 if rc ~= -2 then return rc end
                 local ok, why = yield()
                 return ok or why
             end
             out[1] = wait(0)
             out[2] = wait(0)
             out[3] = wait(10)
             local function waiter() return wait(60000) end
             local one, two = ngx.thread.spawn(waiter), ngx.thread.spawn(waiter)
             local killed = ngx.thread.spawn(waiter)
             out[4] = C.ngx_http_lua_ffi_sema_count(sem)
             ngx.thread.kill(killed)
             C.ngx_http_lua_ffi_sema_post(sem, 3)
             out[5] = select(2, ngx.thread.wait(one))
             out[6] = select(2, ngx.thread.wait(two))
             out[7] = C.ngx_http_lua_ffi_sema_count(sem)
             for i = 1, #out do out[i] = tostring(out[i]) end
             ngx.print(table.concat(out, " "))
         } }"#,
    );
    assert_eq!(answer, (200, "0 -5 timeout -3 true true 1".to_owned()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn programs_are_spoken_with_through_the_core() {
    let answer = asked(
        "",
        r#"location = / { content_by_lua_block {
             local function start(code)
                 local argv = ffi.new("const char *[4]", { "/bin/sh", "-c", code })
                 local p = ffi.new("one_program", { 0, 60000, 60000, 60000, 60000 })
                 size[0] = 256
                 assert(C.ngx_http_lua_ffi_pipe_spawn(nil, p, "/bin/sh", argv, 0, 4096, nil, room, size) == 0)
                 return ffi.gc(p, C.ngx_http_lua_ffi_pipe_proc_destroy)
             end
             local data, count, own = ffi.new("char *[1]"), ffi.new("size_t[1]"), ffi.new("char[4]")
             local function read(p, kind, wanted)
                 data[0], count[0], size[0] = own, 4, 256
                 local rc = C.ngx_http_lua_ffi_pipe_proc_read(nil, p, 0, kind, wanted, data, count,
                     room, size)
                 if rc == -2 then
                     yield()
                     data[0], count[0], size[0] = own, 4, 256
                     rc = C.ngx_http_lua_ffi_pipe_get_read_result(nil, p, 0, data, count, room, size)
                 end
                 local why = rc ~= 0 and said() or ""
                 if data[0] ~= own then
                     local large = ffi.new("char[?]", count[0])
                     data[0] = large
                     rc = C.ngx_http_lua_ffi_pipe_get_read_result(nil, p, 0, data, count, room, size)
                     return rc .. why .. ffi.string(large, count[0])
                 end
                 return rc .. why .. (rc == -1 and "" or ffi.string(own, count[0]))
             end
             local out, status = {}, ffi.new("int[1]")
             local p = start("read a; echo got $a; exit 3")
             size[0] = 256
             out[1] = tonumber(C.ngx_http_lua_ffi_pipe_proc_write(nil, p, "line\n", 5, room, size))
             out[2] = read(p, 2, 0)
             out[3] = read(p, 0, 0)
             out[4] = read(p, 1, 1)
             local rc = C.ngx_http_lua_ffi_pipe_proc_wait(nil, p, err, status, room, size)
             if rc == -2 then
                 local ok, why, code = yield()
                 out[5] = tostring(ok) .. why .. code
             else
                 out[5] = (rc == -5 and "false" or rc) .. ffi.string(err[0]) .. status[0]
             end
             size[0] = 256
             out[6] = C.ngx_http_lua_ffi_pipe_proc_kill(p, 9, room, size) .. said()
             local missing = start("exec /no/such/program 2>/dev/null")
             out[7] = read(missing, 0, 0)
             size[0] = 256
             out[8] = C.ngx_http_lua_ffi_pipe_proc_shutdown_stdin(p, room, size) .. said()
             ngx.print(table.concat(out, " "))
         } }"#,
    );
    assert_eq!(answer, (200, "5 0got line 0 -5closed falseexit3 -1exited 0 -1closed".to_owned()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn handshakes_are_made_through_the_core() {
    let http = format!(
        "lua_socket_log_errors off; lua_ssl_protocols TLSv1.2;
         server {{
             listen 127.0.0.1:%%PORT2%% ssl;
             ssl_certificate {DATA}/ecdsa.pem; ssl_certificate_key {DATA}/ecdsa.key;
             ssl_certificate_by_lua_block {{
                 local name, len = ffi.new('const char *[1]'), ffi.new('size_t[1]')
                 assert(C.ngx_http_lua_ffi_ssl_server_name(nil, name, len, err) == 0)
                 assert(ffi.string(name[0], len[0]) == 'b.test')
                 assert(C.ngx_http_lua_ffi_ssl_clear_certs(nil, err) == 0)
                 local pem, key = file('rsa.pem'), file('rsa.key')
                 local cert = ffi.gc(C.ngx_http_lua_ffi_parse_pem_cert(pem, #pem, err),
                     C.ngx_http_lua_ffi_free_cert)
                 local private = ffi.gc(C.ngx_http_lua_ffi_parse_pem_priv_key(key, #key, err),
                     C.ngx_http_lua_ffi_free_priv_key)
                 assert(C.ngx_http_lua_ffi_set_cert(nil, private, err) == -1)
                 assert(ffi.string(err[0]) == 'invalid certificate chain')
                 assert(C.ngx_http_lua_ffi_set_cert(nil, cert, err) == 0)
                 assert(C.ngx_http_lua_ffi_set_priv_key(nil, private, err) == 0)
             }}
             location / {{ return 200 \"$ssl_protocol $ssl_session_reused\"; }}
         }}"
    );
    let answer = asked(
        &http,
        r#"location = / { content_by_lua_block {
             local session, code, value = ffi.new("void *[1]"), ffi.new("int[1]"), ffi.new("int[1]")
             local name = ffi.new("one_name", { 6, "b.test" })
             local function shake(known)
                 local s = ngx.socket.tcp()
                 assert(s:connect('127.0.0.1', %%PORT2%%))
                 size[0] = 256
                 assert(C.ngx_http_lua_ffi_socket_tcp_getoption(s[1], 3, value, room, size) == 0)
                 assert(C.ngx_http_lua_ffi_socket_tcp_getfd(nil, s[1], err) > 2)
                 local rc = C.ngx_http_lua_ffi_socket_tcp_sslhandshake(nil, s[1], known, 1, name, 0, 0,
                     nil, nil, err)
                 assert(rc == -2)
                 yield()
                 rc = C.ngx_http_lua_ffi_socket_tcp_get_sslhandshake_result(nil, s[1], session, err, code)
                 assert(rc == 0)
                 local first = session[0]
                 rc = C.ngx_http_lua_ffi_socket_tcp_get_sslhandshake_result(nil, s[1], session, err, code)
                 assert(rc == 0 and session[0] == first)
                 assert(s:send('GET / HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n'))
                 local text = assert(s:receive('*a')):match('\r\n\r\n(.*)')
                 return text, first ~= nil and ffi.gc(first, C.ngx_http_lua_ffi_ssl_free_session) or nil
             end
             local before, kept = shake(nil)
             local again = shake(kept)
             local begin, over = "-----BEGIN CERTIFICATE-----\n", "-----END CERTIFICATE-----\n"
             local broken = file("rsa.pem") .. begin .. "AAAA\n" .. over
             assert(C.ngx_http_lua_ffi_parse_pem_cert(broken, #broken, err) == nil)
             assert(ffi.string(err[0]) == "PEM_read_bio_X509() failed", ffi.string(err[0]))
             local pem = "no certificate"
             ngx.print(before, " ", kept ~= nil, " ", again, " ",
                 C.ngx_http_lua_ffi_parse_pem_cert(pem, #pem, err) == nil, " ", ffi.string(err[0]), " ",
                 C.ngx_http_lua_ffi_ssl_get_tls1_version(nil, err), " ", ffi.string(err[0]))
         } }"#,
    );
    let expected = "TLSv1.2 . true TLSv1.2 r true PEM_read_bio_X509_AUX() failed -1 bad request";
    assert_eq!(answer, (200, expected.to_owned()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn kept_lines_are_taken_through_the_core() {
    let answer = asked(
        "lua_capture_error_log 64k;",
        r#"location = / { content_by_lua_block {
             size[0] = 256
             local bad = C.ngx_http_lua_ffi_errlog_set_filter_level(99, room, size) .. said()
             local ok = C.ngx_http_lua_ffi_errlog_set_filter_level(ngx.ERR, room, size)
             ngx.log(ngx.ERR, "kept")
             ngx.log(ngx.WARN, "not kept")
             local text, level, time = ffi.new("char *[1]"), ffi.new("int[1]"), ffi.new("double[1]")
             local found
             repeat
                 local len = C.ngx_http_lua_ffi_errlog_get_msg(text, level, room, size, time)
                 if len > 0 and level[0] == ngx.ERR then
                     found = ffi.string(text[0], len):match("kept") or found
                 end
             until len <= 0
             local last = C.ngx_http_lua_ffi_errlog_get_msg(text, level, room, size, time)
             ngx.print(bad, " ", ok, " ", found, " ", last, " ", time[0] > 1e9)
         } }"#,
    );
    assert_eq!(answer, (200, "-1bad log level: 99 0 kept -4 true".to_owned()));
}
