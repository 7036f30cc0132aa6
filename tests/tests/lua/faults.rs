//! What sockets of Lua meet: servers that end and come back, names that nobody answers, pools that are full,
//! clients that leave. Nothing of it stays, and nothing else fails.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Server, wait_until};

use super::{ask, check, server};

/// Answers each line with `+OK`, until it is told to end.
struct Lines {
    port: u16,
    is_over: Arc<AtomicBool>,
}

impl Lines {
    fn at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let over = Arc::clone(&over);
                std::thread::spawn(move || answer(&stream, &over));
            }
        });
        Self { port, is_over }
    }

    /// Closes all connections and listens no more.
    fn end(self) {
        self.is_over.store(true, Ordering::SeqCst);
        // It is waiting for a connection.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
        assert!(wait_until(PATIENCE, || TcpStream::connect(("127.0.0.1", self.port)).is_err()));
    }
}

fn answer(stream: &TcpStream, over: &AtomicBool) {
    const LOOK: Duration = Duration::from_millis(10);
    stream.set_read_timeout(Some(LOOK)).expect("a time");
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while !over.load(Ordering::SeqCst) {
        match reader.read_line(&mut line) {
            Ok(0) => return,
            Ok(_) => {
                line.clear();
                let mut writer = stream;
                if writer.write_all(b"+OK\r\n").is_err() {
                    return;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

/// Descriptors of sockets that the server has.
fn sockets(server: &Server) -> usize {
    let dir = format!("/proc/{}/fd", server.pid());
    let links = std::fs::read_dir(dir).expect("it runs").map_while(Result::ok);
    links
        .filter(|one| {
            std::fs::read_link(one.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .count()
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn a_server_that_ends_and_comes_back_is_found_again() {
    let lines = Lines::at(0);
    let port = lines.port;
    let server = server(
        "lua_socket_log_errors off;",
        &format!(
            "location = /line {{
                 content_by_lua_block {{
                     local s = ngx.socket.tcp()
                     s:settimeout(20000)
                     local ok, err = s:connect('127.0.0.1', {port})
                     if not ok then return ngx.print('connect: ', err) end
                     if not s:send('PING\\n') then return ngx.print('send') end
                     local line = s:receive()
                     if not line then return ngx.print('receive') end
                     ngx.print(line)
                     s:setkeepalive(600000, 100)
                 }}
             }}"
        ),
    );
    for _ in 0..20 {
        assert_eq!(ask(&server, "/line"), (200, "+OK".to_owned()));
    }
    lines.end();
    let says = |text: &str| wait_until(PATIENCE, || ask(&server, "/line") == (200, text.to_owned()));
    assert!(says("connect: connection refused"));
    let _lines = Lines::at(port);
    assert!(says("+OK"));
    for _ in 0..20 {
        assert_eq!(ask(&server, "/line"), (200, "+OK".to_owned()));
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn names_that_nobody_answers_hold_nobody() {
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    let server = server(
        "lua_socket_log_errors off;",
        &format!(
            "location = /name {{
                 resolver 127.0.0.1:{port} ipv6=off; resolver_timeout 200ms;
                 content_by_lua_block {{
                     local s = ngx.socket.tcp()
                     ngx.print(select(2, s:connect('dead.example', 80)):match('could not be resolved'))
                 }}
             }}"
        ),
    );
    check(
        &server,
        &[
            ("/name", 200, "could not be resolved"),
            ("/cheap", 200, "cheap"),
            ("/name", 200, "could not be resolved"),
        ],
    );
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn full_pools_refuse_and_serve_again() {
    let lines = Lines::at(0);
    let server = server(
        "lua_reserve_vms 0; lua_socket_log_errors off;",
        &format!(
            "location = /full {{
                 content_by_lua_block {{
                     local options = {{ pool_size = 1, backlog = 1 }}
                     local function open()
                         local s = ngx.socket.tcp()
                         s:settimeout(20000)
                         return s, s:connect('127.0.0.1', {port}, options)
                     end
                     local one, ok = open()
                     assert(ok)
                     local waits = ngx.thread.spawn(function()
                         local s, ok, err = open()
                         if ok then s:setkeepalive() end
                         return ok, err
                     end)
                     local _, refused, why = open()
                     one:setkeepalive()
                     local _, served = ngx.thread.wait(waits)
                     ngx.print(refused, ' ', why, ' ', served)
                 }}
             }}",
            port = lines.port
        ),
    );
    let expected = "nil too many waiting connect operations 1";
    check(&server, &[("/full", 200, expected), ("/full", 200, expected)]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn clients_that_leave_take_their_sockets_with_them() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = silent.local_addr().expect("an address").port();
    // Connections are taken by the kernel; what they send is read by nobody.
    let code = format!(
        "local s = ngx.socket.tcp()
         s:settimeout(600000)
         assert(s:connect('127.0.0.1', {port}))
         ngx.thread.spawn(function() ngx.sleep(600) end)
         s:receive()"
    );
    let phases = ["rewrite", "access", "precontent", "content"];
    let locations: String = phases
        .iter()
        .map(|phase| {
            format!(
                "location = /{phase} {{
                     lua_check_client_abort on; {phase}_by_lua_block {{ {code} }}
                     {}
                 }}",
                if *phase == "content" { "" } else { "echo never;" }
            )
        })
        .collect();
    let server = server("lua_socket_log_errors off;", &locations);
    check(&server, &[("/cheap", 200, "cheap")]);
    let before = sockets(&server);
    for phase in &phases {
        let mut clients: Vec<TcpStream> = (0..5)
            .map(|_| {
                let mut client = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
                client
                    .write_all(format!("GET /{phase} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
                    .expect("it reads");
                client
            })
            .collect();
        assert!(wait_until(PATIENCE, || sockets(&server) + 2 >= before + 2 * clients.len()), "{phase}");
        clients.iter_mut().for_each(|client| client.shutdown(std::net::Shutdown::Both).expect("it is open"));
        drop(clients);
        assert!(wait_until(PATIENCE, || sockets(&server) <= before), "{phase}: {} before", before);
        let mut taken = silent.accept().expect("it came").0;
        let mut rest = Vec::new();
        // It has ended, in order or not.
        let _ = taken.read_to_end(&mut rest);
        (1..5).for_each(|_| drop(silent.accept()));
    }
    check(&server, &[("/cheap", 200, "cheap")]);
}
