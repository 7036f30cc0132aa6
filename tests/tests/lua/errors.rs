//! Errors and ends: of light threads, of clients while code reads their bodies, of content that says no.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixDatagram;

use clearway_testkit::client::PATIENCE;

use super::{check, server};

/// `ngx.thread.wait` answers the error that was raised: a text as `error` was given it, then with its place,
/// and an object as it is.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn threads_end_with_what_they_raise() {
    let server = server(
        "",
        "location = /text { content_by_lua_block {
             local ok, given, placed = ngx.thread.wait(ngx.thread.spawn(function() error('bad') end))
             ngx.print(ok, ' ', given, ' ', (placed:gsub(':%d+', ':N')))
         } }
         location = /later { content_by_lua_block {
             local function f() ngx.sleep(0.001) error({ code = 7 }) end
             local ok, object, more = ngx.thread.wait(ngx.thread.spawn(f))
             ngx.print(ok, ' ', object.code, ' ', more)
         } }
         location = /nil { content_by_lua_block {
             local ok, text, more = ngx.thread.wait(ngx.thread.spawn(function() return nil + 1 end))
             ngx.print(ok, ' ', text:match('attempt to perform arithmetic'), ' ', more)
         } }",
    );
    check(
        &server,
        &[
            ("/text", 200, "false bad content_by_lua(nginx.conf:N):N: bad"),
            ("/later", 200, "false 7 nil"),
            ("/nil", 200, "false attempt to perform arithmetic nil"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn content_that_declines_gives_no_answer_and_a_head_may_be_444() {
    let server = server(
        "",
        "location = /declined { content_by_lua_block { ngx.exit(ngx.DECLINED) } }
         location = /head {
             content_by_lua_block { ngx.say('hello') }
             header_filter_by_lua_block { return ngx.exit(444) }
         }
         location = /old { content_by_lua_block { ngx.say('status = ', ngx.status) } }",
    );
    check(&server, &[("/head", 444, "")]);
    let mut connection = server.connect();
    connection.send(b"GET /declined HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.read_to_end(PATIENCE).0, b"");
    let mut connection = server.connect();
    connection.send(b"GET /old\r\n");
    assert_eq!(connection.read_to_end(PATIENCE).0, b"status = 9\n");
}

/// A client that waits for `100 Continue` is told to go on before code answers it.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn bodies_are_asked_for_before_an_answer_begins() {
    let server = server(
        "",
        "location = /t { content_by_lua_block {
             local socket = assert(ngx.req.socket())
             ngx.say('begun')
             ngx.flush(true)
             ngx.print(socket:receive(4), ' ', socket:getfd() > 2, ' ')
             ngx.print(socket:setoption('keepalive', true), ' ', socket:getoption('keepalive'))
         } }",
    );
    let mut connection = server.connect();
    connection.send(
        b"POST /t HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\
          Connection: close\r\n\r\n",
    );
    assert_eq!(connection.response().status, 100);
    connection.send(b"body");
    let answer = connection.response();
    assert_eq!((answer.status, answer.text().as_str()), (200, "begun\nbody true true 1"));
}

/// Code that reads a body hears that the client has left, also where the server looks for that.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn readers_of_bodies_hear_of_clients_that_leave() {
    let server = server(
        "",
        "location = /t {
             lua_check_client_abort on;
             content_by_lua_block {
                 local data, err, partial = ngx.req.socket():receive('*a')
                 ngx.log(ngx.NOTICE, 'heard: ', data, ' ', err, ' ', partial)
             }
         }",
    );
    let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    client.write_all(b"POST /t HTTP/1.1\r\nHost: a\r\nContent-Length: 99\r\n\r\nhello").expect("it reads");
    client.shutdown(Shutdown::Both).expect("it is open");
    server.wait_log("logs/error.log", "heard: nil client aborted hello");
}

/// A server of datagrams that is a unix socket has where to answer.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn unix_datagrams_are_answered() {
    let server = server(
        "",
        "location = /t { content_by_lua_block {
             local socket = ngx.socket.udp()
             socket:settimeout(20000)
             assert(socket:setpeername('unix:' .. ngx.config.prefix() .. '/peer.sock'))
             assert(socket:send('ping'))
             ngx.print(socket:receive())
         } }
         location = /host { content_by_lua_block { ngx.print(select(2, ngx.socket.connect('', 80))) } }",
    );
    let peer = UnixDatagram::bind(server.prefix().join("peer.sock")).expect("the directory is ours");
    peer.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut connection = server.connect();
    connection.send(b"GET /t HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut data = [0; 64];
    let (len, from) = peer.recv_from(&mut data).expect("it sends");
    assert_eq!(&data[..len], b"ping");
    peer.send_to_addr(b"pong", &from).expect("it has an address");
    assert_eq!(connection.response().text(), "pong");
    check(&server, &[("/host", 200, "failed to parse host name \"\": no host")]);
}

/// Names that upstream has from the start.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_finds_names_that_upstream_has_from_the_start() {
    let server = server(
        "",
        "location = /core { content_by_lua_block {
             ngx.print(package.loaded['resty.core'] == require 'resty.core', ' ', package.loaded.nothing)
         } }
         location = /words { content_by_lua_block {
             local ffi = require 'ffi'
             ffi.cdef[[char **ngx_argv;]]
             local words, at = {}, 0
             while ffi.C.ngx_argv[at] ~= nil do
                 at = at + 1
                 words[at] = ffi.string(ffi.C.ngx_argv[at - 1])
             end
             ngx.print(io.open(words[1]) ~= nil, ' ', table.concat(words, ' ', 2), ' ',
                 type(require('jit.bcsave').start))
         } }
         location = /nul { content_by_lua_block { ngx.log(ngx.WARN, 'before\\0behind') ngx.print('ok') } }",
    );
    let prefix = server.prefix().display();
    let words = format!("true -p {prefix} -c {prefix}/nginx.conf -e stderr function");
    check(&server, &[("/core", 200, "true nil"), ("/words", 200, &words), ("/nul", 200, "ok")]);
    server.wait_log("logs/error.log", "before\\x00behind");
}
