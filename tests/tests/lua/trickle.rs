//! Bytes that come and go one at a time (`MOCKEAGAIN`, a build with the `testing` feature): nothing is lost,
//! and a write without room ends when its time is up.

use clearway_testkit::{Binary, Server, Setup};

use crate::{check, config};

fn start(variables: &[&str], locations: &str) -> Server {
    let wrapper: Vec<_> = ["env"].iter().chain(variables).copied().collect();
    Setup::new(Binary::under_test(), &config("", locations)).through(&wrapper).start()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn nothing_is_lost_of_what_trickles() {
    let server = start(
        &["MOCKEAGAIN=rw"],
        "location = /echo {
             content_by_lua_block {
                 ngx.req.read_body()
                 ngx.print(ngx.req.get_body_data() or 'none', ':') ngx.flush(true) ngx.print(ngx.var.arg_a)
             }
         }
         location = /proxied { proxy_pass http://127.0.0.1:%%PORT%%/echo; proxy_http_version 1.1; }
         location = /socket {
             content_by_lua_block {
                 local sock = assert(ngx.socket.tcp())
                 assert(sock:connect('127.0.0.1', %%PORT%%))
                 assert(sock:send('POST /proxied?a=b HTTP/1.0\\r\\nContent-Length: 5\\r\\n\\r\\nhello'))
                 local first = sock:receiveany(1024)
                 local rest = sock:receive('*a')
                 ngx.print(#first, ' ', string.match(first .. rest, '\\r\\n\\r\\n(.*)$'))
             }
         }",
    );
    let mut connection = server.connect();
    for size in [1, 200] {
        let body = "x".repeat(size);
        let head = format!("POST /proxied?a=7 HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
        assert_eq!(connection.ask(&(head + &body)).text(), format!("{body}:7"));
    }
    check(&server, &[("/socket", 200, "1 hello:b"), ("/proxied?a=8", 200, "none:8")]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_write_that_finds_no_room_times_out() {
    let server = start(
        &["MOCKEAGAIN=w", "MOCKEAGAIN_WRITE_TIMEOUT_PATTERN=stop"],
        "location = /takes { content_by_lua_block { ngx.sleep(60) } }
         location = /sends {
             content_by_lua_block {
                 local sock = assert(ngx.socket.tcp())
                 sock:settimeouts(60000, 50, 60000)
                 assert(sock:connect('127.0.0.1', %%PORT%%))
                 local sent = sock:send('GET /takes HTTP/1.1\\r\\nHost: a\\r\\n')
                 ngx.print(sent, ' ', select(2, sock:send('X-A: stop it\\r\\n\\r\\n')))
             }
         }
         location = /answers {
             send_timeout 50ms;
             content_by_lua_block {
                 ngx.say('stop it')
                 ngx.log(ngx.WARN, 'flush: ', select(2, ngx.flush(true)))
             }
         }",
    );
    check(&server, &[("/sends", 200, "30 timeout")]);
    let mut connection = server.connect();
    connection.send(b"GET /answers HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_log("logs/error.log", "client timed out (110: Connection timed out)");
    server.wait_log("logs/error.log", "flush: timeout");
}
