//! What the server is told while threads, sockets and timers of Lua are under way: another configuration, new
//! logs, the end.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clearway_h2::settings::Settings;
use clearway_testkit::client::PATIENCE;
use clearway_testkit::http2::Http2;
use clearway_testkit::{Binary, Connection, Server, Setup, wait_until};
use rustix::process::Signal;

use super::{ask, config, server};

/// Answers each line with `+OK`, once it may.
#[derive(Default)]
struct AnswererState {
    may_answer: AtomicBool,
    connections: AtomicUsize,
    lines: AtomicUsize,
}

struct Slow(u16, Arc<AnswererState>);

impl Slow {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::new(AnswererState::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let state = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let mut writer = stream.try_clone().expect("another one");
                    for _ in BufReader::new(stream).lines().map_while(Result::ok) {
                        state.lines.fetch_add(1, Ordering::SeqCst);
                        while !state.may_answer.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        if writer.write_all(b"+OK\r\n").is_err() {
                            return;
                        }
                    }
                });
            }
        });
        Self(port, state)
    }

    fn go(&self) {
        self.1.may_answer.store(true, Ordering::SeqCst);
    }

    fn has(&self, lines: usize) {
        assert!(wait_until(PATIENCE, || self.1.lines.load(Ordering::SeqCst) >= lines), "{lines} lines");
    }
}

/// `/which` says which configuration it is, `/log` writes to the log; `/line` asks the other server once,
/// `/both` with two threads, `/later` in a timer.
fn locations(name: &str, port: u16) -> String {
    let ask = format!(
        "local function ask()
             local s = ngx.socket.tcp()
             s:settimeout(60000)
             assert(s:connect('127.0.0.1', {port}))
             assert(s:send('PING\\n'))
             local line = assert(s:receive())
             local used = s:getreusedtimes()
             s:setkeepalive(600000, 10)
             return line, used
         end"
    );
    format!(
        "location = /which {{ return 200 {name}; }}
         location = /log {{ content_by_lua_block {{ ngx.log(ngx.WARN, 'a line') }} }}
         location = /line {{ content_by_lua_block {{ {ask} ngx.print('{name} ', ask()) }} }}
         location = /both {{ content_by_lua_block {{
             {ask}
             local one, two = ngx.thread.spawn(ask), ngx.thread.spawn(ask)
             local _, first = ngx.thread.wait(one)
             local _, second = ngx.thread.wait(two)
             ngx.print('{name}', first, second)
         }} }}
         location = /later {{ content_by_lua_block {{
             {ask}
             ngx.timer.at(0, function()
                 ngx.log(ngx.WARN, 'timer of {name} was told ', (ask()))
             end)
             ngx.timer.at(3600, function(premature)
                 ngx.log(ngx.WARN, 'premature of {name}: ', premature)
             end)
             ngx.print('begun')
         }} }}"
    )
}

fn start(port: u16) -> Server {
    server("", &locations("old", port))
}

fn reload(server: &mut Server, port: u16) {
    server.configure(&config("", &locations("new", port)));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || ask(server, "/which").1 == "new"), "{}", server.error_log());
}

/// A server with two threads of a request, on this connection, and a timer that wait for answers.
fn busy() -> (Slow, Server, Connection) {
    let slow = Slow::start();
    let server = start(slow.0);
    let mut waiting = server.connect();
    waiting.send(b"GET /both HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(ask(&server, "/later").1, "begun");
    slow.has(3);
    (slow, server, waiting)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn connections_that_are_kept_outlive_a_reload() {
    let slow = Slow::start();
    slow.go();
    let mut server = start(slow.0);
    assert_eq!(ask(&server, "/line").1, "old +OK0");
    assert_eq!(ask(&server, "/line").1, "old +OK1");
    reload(&mut server, slow.0);
    assert_eq!(ask(&server, "/line").1, "new +OK2");
    assert_eq!(slow.1.connections.load(Ordering::SeqCst), 1);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn threads_and_timers_go_on_while_the_configuration_is_another_one() {
    let (slow, mut server, mut waiting) = busy();
    reload(&mut server, slow.0);
    // What has not begun is told so; what has goes on.
    server.wait_log("logs/error.log", "premature of old: true");
    slow.go();
    let response = waiting.response();
    assert_eq!(String::from_utf8_lossy(&response.body), "old+OK+OK");
    server.wait_log("logs/error.log", "timer of old was told +OK");
    assert_eq!(ask(&server, "/line").1.split(' ').next(), Some("new"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn logs_that_are_opened_anew_get_what_is_under_way() {
    let slow = Slow::start();
    let server = start(slow.0);
    assert_eq!(ask(&server, "/later").1, "begun");
    slow.has(1);
    let log = server.prefix().join("logs/error.log");
    std::fs::rename(&log, server.prefix().join("logs/error.log.1")).expect("it is there");
    server.signal(Signal::USR1);
    // The new one is there before lines go to it.
    let is_new = || {
        assert_eq!(ask(&server, "/log").0, 200);
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("a line"))
    };
    assert!(wait_until(PATIENCE, is_new), "no new log");
    slow.go();
    server.wait_log("logs/error.log", "timer of old was told +OK");
    assert_eq!(ask(&server, "/line").0, 200);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn the_end_waits_for_what_is_under_way() {
    let (slow, mut server, mut waiting) = busy();
    server.signal(Signal::QUIT);
    server.wait_log("logs/error.log", "premature of old: true");
    slow.go();
    let response = waiting.response();
    assert_eq!(String::from_utf8_lossy(&response.body), "old+OK+OK");
    assert!(server.wait_exit(PATIENCE).is_some_and(|status| status.success()), "{}", server.error_log());
    assert!(server.error_log().contains("timer of old was told +OK"), "{}", server.error_log());
}

/// A request over HTTP/2 whose client leaves: what it does goes on, and its line and its log phase come, also
/// where the server is told to end meanwhile.
fn abandoned(main: &str) -> Server {
    let locations = "location = /slow {
             content_by_lua_block {
                 ngx.log(ngx.WARN, 'has begun')
                 while not io.open(ngx.config.prefix() .. 'go') do
                     ngx.sleep(0.01)
                     ngx.log(ngx.WARN, 'still waits')
                 end
                 ngx.print('late')
             }
             access_log logs/access.log;
             log_by_lua_block { ngx.log(ngx.WARN, 'is logged') }
         }";
    let text = config("http2 on;", locations).replace("events {", &format!("{main} events {{"));
    let server = Setup::new(Binary::under_test(), &text).start();
    let mut client = Http2::open(&server.address(), Settings::default());
    // What comes is read: otherwise the connection would be reset.
    client.get(1, "/slow");
    client.wait(|frames| frames.settings.is_some());
    server.wait_log("logs/error.log", "has begun");
    drop(client);
    server.wait_log("logs/error.log", "client prematurely closed connection");
    server.signal(Signal::QUIT);
    server.wait_log("logs/error.log", "gracefully shutting down");
    server
}

/// How often the request has looked.
fn looks(server: &Server) -> usize {
    server.error_log().matches("still waits").count()
}

fn ends_with_a_line(mut server: Server) {
    assert!(server.wait_exit(PATIENCE).is_some_and(|status| status.success()), "{}", server.error_log());
    assert!(server.error_log().contains("is logged"), "{}", server.error_log());
    assert!(server.read("logs/access.log").contains("GET /slow HTTP/2.0"), "{}", server.error_log());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn the_end_waits_for_requests_whose_client_has_left() {
    let server = abandoned("");
    // A server that has nothing to wait for is gone after two or three looks.
    let before = looks(&server);
    assert!(wait_until(PATIENCE, || looks(&server) > before + 30), "{}", server.error_log());
    std::fs::write(server.prefix().join("go"), "").expect("its directory is there");
    ends_with_a_line(server);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn they_are_logged_also_where_their_time_is_over() {
    ends_with_a_line(abandoned("worker_shutdown_timeout 100ms;"));
}
