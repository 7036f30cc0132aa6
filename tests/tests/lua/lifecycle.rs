//! `init_by_lua` at a start and at a reload: with which rights it runs, and what becomes of a configuration
//! whose code fails or crashes.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::server::is_root;
use clearway_testkit::{Binary, Server, Setup, wait_until};
use rustix::process::Signal;

fn config(main: &str, http: &str, body: &str) -> String {
    format!(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\n{main}\n\
         error_log logs/error.log info;\n\
         events {{ worker_connections 512; }}\n\
         http {{ access_log off; keepalive_requests 1000000;\n{http}\nserver {{ listen 127.0.0.1:%%PORT%%;\n\
         location = / {{ content_by_lua_block {{ ngx.print('{body}', ' ', greeting) }} }} }} }}\n"
    )
}

fn user() -> &'static str {
    if is_root() { "user nobody nogroup;" } else { "" }
}

fn start(http: &str, body: &str) -> Server {
    Setup::new(Binary::under_test(), &config(user(), http, body)).start()
}

fn reload(server: &mut Server, http: &str, body: &str) {
    server.configure(&config(user(), http, body));
    server.signal(Signal::HUP);
}

fn answers(server: &Server, body: &str) {
    assert!(wait_until(PATIENCE, || server.get("/").text() == body), "{}", server.error_log());
}

const GOOD: &str = "init_by_lua_block { greeting = 'hi' }";

/// What fails at a reload says so with its place, and the old configuration goes on, in the same worker.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_that_fails_at_a_reload_leaves_the_old_configuration() {
    let mut server = start(GOOD, "old");
    answers(&server, "old hi");
    let worker = server.worker();
    let fails: &[(&str, &str)] = &[
        ("init_by_lua_block { error('on purpose') }", "init_by_lua error: init_by_lua(nginx.conf:"),
        ("init_by_lua_block { local = 1 }", "init_by_lua error: init_by_lua(nginx.conf:"),
        ("init_by_lua_file missing.lua;", "cannot open "),
        ("init_by_lua_block { local function f() return 1 + f() end f() }", "stack overflow"),
        (
            "lua_max_memory 8m; init_by_lua_block { t = {} for i = 1, 1e9 do t[i] = i .. 'x' end }",
            "not enough memory",
        ),
        (
            "init_by_lua_block { require('ffi').cast('int *', 8)[0] = 1 }",
            "the process that tried init_by_lua* died of signal 11",
        ),
        ("init_by_lua_block { os.exit(7) }", "the process that tried init_by_lua* exited with code 7"),
        (
            "lua_max_run_time 200ms; init_by_lua_block { while true do end }",
            "has run for too long (lua_max_run_time)",
        ),
    ];
    for (count, (http, said)) in fails.iter().enumerate() {
        reload(&mut server, http, "new");
        server.wait_lines("logs/error.log", "reconfiguring", count + 1);
        server.wait_log("logs/error.log", said);
        assert_eq!(server.get("/").text(), "old hi", "{http}");
    }
    // One that does not end is given up when the next one comes.
    reload(&mut server, "init_by_lua_block { while true do end }", "new");
    server.wait_lines("logs/error.log", "reconfiguring", fails.len() + 1);
    assert_eq!(server.get("/").text(), "old hi");
    assert_eq!(server.workers().first(), Some(&worker), "the same worker");
    reload(&mut server, GOOD, "new");
    answers(&server, "new hi");
    assert_eq!(server.worker(), worker);
}

/// A start that fails says why, and leaves nothing behind.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_that_fails_at_a_start_ends_it() {
    for (http, said) in [
        ("init_by_lua_block { error('on purpose') }", "on purpose"),
        ("init_by_lua_block { require('ffi').cast('int *', 8)[0] = 1 }", "exited on signal 11"),
    ] {
        let setup = Setup::new(Binary::under_test(), &config(user(), http, "x"));
        let (code, text) = setup.refused();
        assert_eq!(code, Some(1), "{text}");
        assert!(text.contains(said), "{text}");
    }
}

/// Wherever the server was started. Code of workers has `ngx.ctx`, and its timers have what `http` says.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn files_of_code_are_found_from_the_prefix() {
    let files = [
        ("code/init.lua", "greeting = 'hi'"),
        (
            "code/worker.lua",
            "ngx.ctx.name = ' you'
             greeting = greeting .. ngx.ctx.name
             local function warn(...) ngx.log(ngx.WARN, ...) end
             warn('worker has begun, timer ', ngx.timer.at(0, function()
                 warn('timer says ', select(2, ngx.socket.tcp():connect('unix:/nowhere')))
             end))",
        ),
        ("code/exit.lua", "ngx.log(ngx.NOTICE, 'worker has ended', ngx.ctx.name)"),
        ("code/wrong.lua", "local a\nlocal = 1"),
    ];
    let http = "lua_socket_log_errors off; init_by_lua_file code/init.lua;
                init_worker_by_lua_file code/worker.lua; exit_worker_by_lua_file code/exit.lua;";
    let setup = Setup::new(Binary::under_test(), &config(user(), http, "old")).through(&["env", "-C", "/"]);
    let mut server = files.iter().fold(setup, |setup, (name, text)| setup.file(name, *text)).start();
    answers(&server, "old hi you");
    server.wait_log("logs/error.log", "worker.lua:3: warn(): worker has begun, timer 1, context: ");
    let log = server.wait_log("logs/error.log", "timer says ");
    assert!(!log.contains("connect()"), "{log}");
    reload(&mut server, "init_worker_by_lua_file code/wrong.lua;", "new");
    answers(&server, "new nil");
    server.wait_log("logs/error.log", "init_worker_by_lua_file error: ");
    server.wait_log("logs/error.log", "/code/wrong.lua:2: ");
    server.wait_log("logs/error.log", "exit.lua:1: worker has endednil");
    reload(&mut server, "init_by_lua_file code/wrong.lua;", "third");
    let said = format!("init_by_lua_file error: {}/code/wrong.lua:2: ", server.prefix().display());
    server.wait_log("logs/error.log", &said);
    assert_eq!(server.get("/").text(), "new nil");
}

/// As the user of the worker, or with the rights of the master where that is said.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn code_runs_with_the_rights_that_are_said() {
    if !is_root() {
        return;
    }
    let read = "init_by_lua_block {
        local file, err = io.open('/etc/shadow')
        greeting = file and 'read' or 'refused'
    }";
    let mut server = start(read, "old");
    answers(&server, "old refused");
    let worker = server.worker();
    // VMs that are made later run it as the user.
    let privileged = "lua_init_privileged on; lua_reserve_vms 0;";
    reload(&mut server, &format!("{privileged} {read}"), "new");
    answers(&server, "new read");
    assert!(wait_until(PATIENCE, || server.workers().len() == 1 && server.worker() != worker));
    // A file that the user may not read says so, with what helps.
    let secret = server.prefix().join("secret.lua");
    write_secret(&secret);
    reload(&mut server, "init_by_lua_file secret.lua;", "third");
    server.wait_log(
        "logs/error.log",
        "Permission denied (code runs as the user of the worker; \"lua_init_privileged on\"",
    );
    assert_eq!(server.get("/").text(), "new read");
    reload(&mut server, &format!("{privileged} init_by_lua_file secret.lua;"), "third");
    answers(&server, "third secret");
}

fn write_secret(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, "greeting = 'secret'").expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its owner's");
}

/// Reloads while requests of Lua come: none fails, and the dictionary keeps what it has.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn reloads_lose_no_request_of_lua() {
    let http =
        "lua_shared_dict counts 1m; init_by_lua_block { greeting = 'hi' ngx.shared.counts:add('n', 0) }";
    let mut server = start(http, "x");
    answers(&server, "x hi");
    let address = server.address();
    let ends = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&ends);
    let load = std::thread::spawn(move || {
        let mut asked = 0;
        let mut connection = clearway_testkit::Connection::open(&address).expect("it listens");
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            let response = connection.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!((response.status, response.text()), (200, "x hi".to_owned()));
            asked += 1;
        }
        asked
    });
    let began = Instant::now();
    for count in 1..=10 {
        reload(&mut server, http, "x");
        server.wait_lines("logs/error.log", "start worker processes", count + 1);
    }
    ends.store(true, std::sync::atomic::Ordering::Relaxed);
    let asked = load.join().expect("no request failed");
    assert!(asked > 10, "{asked} in {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(120));
}

/// What is under way when a worker may not wait any longer is logged by Lua as well.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn requests_that_are_cut_are_logged_by_lua() {
    let config = "daemon off;\nworker_processes 1;\nworker_shutdown_timeout 200ms;\npid nginx.pid;\n\
         error_log logs/error.log info;\nevents { worker_connections 512; }\n\
         http { access_log logs/access.log; server { listen 127.0.0.1:%%PORT%%;\n\
         location / { content_by_lua_block { ngx.log(ngx.WARN, 'it has begun') ngx.sleep(3600) }\n\
             log_by_lua_block { ngx.log(ngx.WARN, 'it is over: ', ngx.var.uri) } } } }\n";
    let server = Setup::new(Binary::under_test(), config).start();
    let mut connection = clearway_testkit::Connection::open(&server.address()).expect("it listens");
    connection.send(b"GET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_log("logs/error.log", "it has begun");
    server.signal(Signal::HUP);
    server.wait_log("logs/error.log", "it is over: /cut");
    server.wait_log("logs/access.log", "GET /cut HTTP/1.1");
}

/// Connections that code has put aside stay where configurations change, and end when the server stops.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no Lua")]
fn connections_that_are_put_aside_hold_nothing() {
    let other = TcpListener::bind("127.0.0.1:0").expect("an address");
    let port = other.local_addr().expect("bound").port();
    let text = |body: &str| {
        let keep = "location = /keep { content_by_lua_block {
                        local socket = ngx.socket.tcp()
                        assert(socket:connect('127.0.0.1', PORT))
                        assert(socket:send('hi'))
                        ngx.print(socket:setkeepalive(0))
                    } }
                    location = / {"
            .replace("PORT", &port.to_string());
        config(user(), "lua_reserve_vms 0;", body).replace("location = / {", &keep)
    };
    let mut server = Setup::new(Binary::under_test(), &text("old")).start();
    let kept = |server: &Server| {
        assert_eq!(server.get("/keep").text(), "1");
        let (stream, _) = other.accept().expect("it has connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    };
    let mut first = kept(&server);
    server.configure(&text("new"));
    server.signal(Signal::HUP);
    answers(&server, "new nil");
    first.set_nonblocking(true).expect("a socket");
    let mut greeting = [0; 2];
    first.read_exact(&mut greeting).expect("it was greeted");
    let waits = first.read(&mut greeting).map_err(|error| error.kind());
    assert_eq!(waits, Err(ErrorKind::WouldBlock), "it is there");
    first.set_nonblocking(false).expect("a socket");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).is_some_and(|status| status.success()));
    assert_eq!(first.read(&mut greeting).ok(), Some(0), "it ends");
}
