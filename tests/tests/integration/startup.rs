//! What a server says when it cannot start.

use std::process::Command;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Binary, Setup, wait_until};

use crate::deployed;

#[test]
fn a_missing_configuration() {
    let output = Command::new(Binary::under_test().path)
        .args(["-p", "/tmp", "-c", "/tmp/no/such/nginx.conf"])
        .output()
        .expect("the server runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    let wanted = "open() \"/tmp/no/such/nginx.conf\" failed (2: No such file or directory)";
    assert!(said.contains(wanted), "{said}");
}

#[test]
fn an_address_in_use() {
    let taken = deployed("events { }", "server { listen 127.0.0.1:%%PORT%%; }").start();
    let config = format!(
        "daemon off;\nerror_log logs/error.log;\nevents {{ }}\n\
         http {{ %%TEMP%% server {{ listen 127.0.0.1:{}; }} }}\n",
        taken.port()
    );
    let (code, said) = Setup::new(Binary::under_test(), &config).refused();
    assert_eq!(code, Some(1));
    let wanted = format!("bind() to 127.0.0.1:{} failed (98: Address already in use)", taken.port());
    assert!(said.contains(&wanted), "{said}");
    assert!(said.contains("still could not bind()"), "{said}");
}

#[test]
fn paths_are_relative_to_the_prefix() {
    let config = "daemon off;\nmaster_process off;\npid run.pid;\nerror_log logs/own.log notice;\n\
        events { }\n\
        http { %%TEMP%% include conf.d/*.conf; }\n";
    let server = Setup::new(Binary::under_test(), &format!("{config}# %%PORT%%\n"))
        .file("conf.d/a.conf", "server { listen 127.0.0.1:%%PORT%%; root site; access_log logs/a.log; }\n")
        .file("conf.d/b.conf.off", "nonsense;\n")
        .file("site/index.html", "relative\n")
        .start();
    assert_eq!(server.get("/").text(), "relative\n");
    for file in ["run.pid", "logs/own.log"] {
        assert!(wait_until(PATIENCE, || server.prefix().join(file).exists()), "{file}");
    }
    assert!(server.wait_log("logs/a.log", "GET / HTTP/1.1").contains("200 9"));
}

#[test]
fn several_loops_share_a_listener() {
    let config = "daemon off;\nuser root;\nworker_processes 3;\npid nginx.pid;\nerror_log logs/error.log;\n\
        events { use epoll; multi_accept on; accept_mutex off; worker_connections 256; }\n\
        http { %%TEMP%% access_log off;\n\
        server { listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:%%PORT2%% reuseport;\n\
        location / { return 200 ok; } } }\n";
    let server = Setup::new(Binary::under_test(), config).start();
    for key in ["PORT", "PORT2"] {
        let address = server.address_of(&format!("127.0.0.1:%%{key}%%"));
        let mut open: Vec<_> =
            (0..60).map(|_| clearway_testkit::Connection::open(&address).expect("it listens")).collect();
        for connection in &mut open {
            assert_eq!(connection.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").text(), "ok");
        }
    }
    assert!(!server.prefix().join("logs/access.log").exists());
}

/// nginx refuses to start; here that takes an access_log that somebody asked for.
#[test]
#[cfg_attr(any(nginx_under_test, not_root), ignore = "nginx refuses to start, and root can be another user")]
fn a_default_log_that_cannot_be_opened_stops_nobody() {
    let config = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log logs/error.log;\nevents { }\n\
        http { server { listen 127.0.0.1:%%PORT%%; location / { return 200 ok; } } }\n";
    let server = Setup::new(Binary::under_test(), config).as_nobody().start();
    assert_eq!(server.get("/").text(), "ok");
    let said = server.wait_log("logs/error.log", "are not logged");
    assert!(said.contains("open() \"/var/log/nginx/access.log\" failed ("), "{said}");

    let asked = config.replace("http {", "http { access_log /var/log/nginx/access.log;");
    let (code, said) = Setup::new(Binary::under_test(), &asked).as_nobody().refused();
    assert_eq!(code, Some(1));
    assert!(said.contains("open() \"/var/log/nginx/access.log\" failed ("), "{said}");
}

/// Contents of a server, and what nginx says of them, byte for byte.
const NOT_UTF8: [(&[u8], &[u8]); 9] = [
    (b"location /\xff\xe9 { } location /\xff\xe9 { }", b"duplicate location \"/\xff\xe9\" in "),
    (b"location \xff /x { }", b"invalid location modifier \"\xff\" in "),
    (b"location /a\xff { location /b { } }", b"location \"/b\" is outside location \"/a\xff\" in "),
    (b"server_name \xff/; x;", b"server name \"\xff/\" has suspicious symbols in "),
    (b"try_files x =\xff;", b"invalid code \"=\xff\" in "),
    (b"disable_symlinks \xff;", b"invalid parameter \"\xff\" in "),
    (b"listen 127.0.0.1:\xff;", b"invalid port in \"127.0.0.1:\xff\" of the \"listen\" directive in "),
    (b"listen 1 backlog=\xff;", b"invalid backlog \"backlog=\xff\" in "),
    (b"listen 1 so_keepalive=\xff:1;", b"invalid so_keepalive value: \"\xff:1\" in "),
];

#[test]
fn names_in_messages_are_the_bytes_of_the_configuration() {
    let mut server = deployed("events { }", "server { listen 127.0.0.1:%%PORT%%; }").start();
    server
        .configure("error_log logs/error.log; pid test.pid; events { } http { %%TEMP%% include bad.conf; }");
    for (content, said) in NOT_UTF8 {
        let text = [b"server { listen 127.0.0.1:1; ", content, b" }"].concat();
        std::fs::write(server.prefix().join("bad.conf"), text).expect("it is ours");
        let output = server.run(&["-t"]);
        let has = output.stderr.windows(said.len()).any(|part| part == said);
        let (got, wanted) = (output.stderr.escape_ascii(), said.escape_ascii());
        assert!(has && output.status.code() == Some(1), "{got}\nwithout {wanted}");
    }
}
