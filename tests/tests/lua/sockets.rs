//! What sockets of Lua do without waiting, and connections that are put aside.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::Server;

use super::{check, server};

/// Answers each line with itself and another one, over any number of connections.
fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut writer = stream.try_clone().expect("a second descriptor");
                for line in BufReader::new(stream).lines() {
                    let Ok(line) = line else { return };
                    if writer.write_all(format!("{line}\nmore\n").as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

/// The locations have a function that connects.
fn with_echo(locations: &str) -> Server {
    let functions = format!(
        "init_by_lua_block {{
             function connect()
                 local s = ngx.socket.tcp()
                 s:settimeout(20000)
                 assert(s:connect('127.0.0.1', {}))
                 return s
             end
         }}",
        echo()
    );
    server(&functions, locations)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn what_need_not_wait_does_not_yield() {
    let server = with_echo(
        "location = /at_once {
             content_by_lua_block {
                 local s, said = connect(), {}
                 local function note(text) said[#said + 1] = text end
                 local child = ngx.thread.spawn(function() note('sent ' .. s:send('a\\n')) end)
                 note('parent')
                 ngx.thread.wait(child)
                 note(s:receive())
                 child = ngx.thread.spawn(function() note('read ' .. s:receive(2)) end)
                 note('parent')
                 ngx.thread.wait(child)
                 ngx.print(table.concat(said, ', '))
             }
         }
         location = /closed {
             content_by_lua_block {
                 local s = connect()
                 s:close()
                 ngx.print(select(2, s:send('a')), ' ', select(2, s:receive()))
             }
         }
         location = /turns {
             content_by_lua_block {
                 local s, said = connect(), {}
                 local child = ngx.thread.spawn(function()
                     for i = 1, 100 do s:send('a') end
                     said[#said + 1] = 'child'
                 end)
                 said[#said + 1] = 'parent'
                 ngx.thread.wait(child)
                 s:send('\\n')
                 ngx.print(said[1], ' ', said[2], ' ', #s:receive())
             }
         }",
    );
    check(
        &server,
        &[
            ("/at_once", 200, "sent 2, parent, a, read mo, parent"),
            ("/closed", 200, "closed closed"),
            // What could go on at once for long lets others have their turn.
            ("/turns", 200, "parent child 100"),
        ],
    );
}

/// Requests of one connection to the server, each of which uses a connection that was put aside.
const REUSES: u64 = 200;

#[test]
#[cfg_attr(any(nginx_under_test, chaos_lend), ignore = "counts polls, which are others where they are lent")]
fn to_put_a_connection_aside_and_take_it_polls_nothing() {
    let server = with_echo(
        "location = /used {
             content_by_lua_block {
                 local s = connect()
                 assert(s:send('a\\n'))
                 ngx.print(s:receive(), s:receive(), ' ', s:getreusedtimes() > 0)
                 assert(s:setkeepalive(60000))
             }
         }
         location = /status { status prometheus; }",
    );
    check(&server, &[("/used", 200, "amore false"), ("/used", 200, "amore true")]);
    let mut connection = server.connect();
    let mut polls = || {
        let response = connection.ask("GET /status HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = String::from_utf8(response.body).unwrap();
        let line = text.lines().find(|line| line.starts_with("clearway_loop_polls_total")).unwrap();
        line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = polls();
    let mut client = server.connect();
    for _ in 0..REUSES {
        let response = client.ask("GET /used HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(response.body, b"amore true");
    }
    let used = polls() - before;
    // One for the request, and one for its answer; a few are others'.
    assert!(used < REUSES * 5 / 2, "{used} polls for {REUSES} requests");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn connections_that_are_put_aside_end_in_their_time() {
    let server = with_echo(
        "location = /timeout {
             content_by_lua_block {
                 local s = connect()
                 assert(s:setkeepalive(60000))
                 s = connect()
                 local used = s:getreusedtimes()
                 assert(s:setkeepalive(50))
                 ngx.sleep(0.3)
                 ngx.print(used, ' ', connect():getreusedtimes())
             }
         }
         location = /oldest {
             content_by_lua_block {
                 local a, b = connect(), connect()
                 assert(a:send('a\\n')) a:receive() a:receive()
                 assert(a:setkeepalive(60000, 1))
                 assert(b:setkeepalive(60000, 1))
                 a, b = connect(), connect()
                 ngx.print(a:getreusedtimes(), ' ', b:getreusedtimes())
             }
         }",
    );
    check(&server, &[("/timeout", 200, "1 0"), ("/oldest", 200, "1 0")]);
}

/// What waits has the timeouts of the moment it began, whatever other threads have said meanwhile.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn operations_keep_the_timeouts_that_they_began_with() {
    // Takes connections, in the kernel, and reads nothing.
    let deaf = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = deaf.local_addr().expect("it is bound").port();
    let waits = |operation: &str| {
        format!(
            "content_by_lua_block {{
                 local s = ngx.socket.tcp()
                 assert(s:connect('127.0.0.1', {port}))
                 s:settimeouts(20000, 100, 100)
                 local child = ngx.thread.spawn(function() return select(2, s:{operation}) end)
                 s:settimeouts(20000, 20000, 20000)
                 ngx.print(select(2, ngx.thread.wait(child)))
             }}"
        )
    };
    let server = server(
        "lua_socket_log_errors off;",
        &format!(
            "location = /send {{ {} }} location = /receive {{ {} }}",
            waits("send(string.rep('a', 64 * 1024 * 1024))"),
            waits("receive()")
        ),
    );
    let began = Instant::now();
    check(&server, &[("/send", 200, "timeout"), ("/receive", 200, "timeout")]);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}
