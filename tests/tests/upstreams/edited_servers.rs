//! Servers that are added, changed and removed while serving (`status write=on`), and the file that keeps
//! them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::server::send_signal;
use clearway_testkit::{Binary, Connection, Response, Server, Setup, wait_until};
use rustix::process::Signal;

use crate::config;
use crate::origins::{Origin, nobody};

/// A server whose group `u` is so, and can be changed at a unix socket.
fn setup(number: u32, group: &str) -> Setup {
    Setup::new(Binary::under_test(), &text(number, group)).ready_at("unix:%%PREFIX%%/admin.sock")
}

fn text(number: u32, group: &str) -> String {
    config(
        "events { }",
        &format!(
            "upstream u {{ zone u 64k; {group} }}
             upstream fixed {{ server 127.0.0.1:{}; }}
             server {{ listen 127.0.0.1:%%PORT%%; listen unix:%%PREFIX%%/admin.sock;
                 location /status/ {{ status write=on; }}
                 location = /metrics {{ status prometheus; }}
                 location = /number {{ return 200 {number}; }}
                 location / {{ proxy_pass http://u; proxy_next_upstream off; }} }}",
            nobody()
        ),
    )
}

/// Asks at the unix socket.
fn ask(server: &Server, method: &str, path: &str, body: &str) -> Response {
    let mut connection =
        Connection::open(&server.address_of("unix:%%PREFIX%%/admin.sock")).expect("it listens");
    connection.ask(&request(method, path, body))
}

fn request(method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} /status/{path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

const SERVERS: &str = "upstreams/u/servers/";

fn answers(server: &Server, requests: usize) -> String {
    (0..requests).map(|_| server.get("/").text()).collect()
}

fn new_server(origin: &Origin) -> String {
    format!("{{\"server\":\"127.0.0.1:{}\"}}", origin.port)
}

fn reload(server: &mut Server, number: u32, group: &str) {
    server.configure(&text(number, group));
    server.signal(Signal::HUP);
    assert!(wait_until(PATIENCE, || server.get("/number").text() == number.to_string()));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such API")]
fn servers_come_change_and_go() {
    let [a, b] = ["a", "b"].map(Origin::named);
    let server = setup(1, &format!("server 127.0.0.1:{};", a.port)).start();
    assert_eq!(answers(&server, 3), "aaa");
    let added = ask(&server, "POST", SERVERS, &new_server(&b));
    let shown = format!(
        "{{\"id\":1,\"server\":\"127.0.0.1:{}\",\"weight\":1,\"max_conns\":0,\"max_fails\":1,\
         \"fail_timeout\":\"10s\",\"slow_start\":\"0s\",\"route\":\"\",\"backup\":false,\"down\":false}}\n",
        b.port
    );
    assert_eq!((added.status, added.text()), (201, shown.clone()));
    assert_eq!(ask(&server, "GET", "upstreams/u/servers/1", "").text(), shown);
    assert_eq!(answers(&server, 4).matches('b').count(), 2);
    let changed = ask(&server, "PATCH", "upstreams/u/servers/1", "{\"weight\":3}");
    assert!(changed.status == 200 && changed.text().contains("\"weight\":3,"));
    assert_eq!(answers(&server, 8).matches('b').count(), 6);
    let metrics = server.get("/metrics").text();
    let labels = format!("{{upstream=\"u\",server=\"127.0.0.1:{}\"", b.port);
    assert!(metrics.contains(&format!("clearway_upstream_weight{labels}}} 3\n")), "{metrics}");
    assert_eq!(ask(&server, "PATCH", "upstreams/u/servers/1", "{\"drain\":true}").status, 200);
    assert_eq!(answers(&server, 4), "aaaa");
    let group = ask(&server, "GET", "upstreams/u", "").text();
    assert!(group.contains("\"state\":\"draining\"") && group.contains("\"zone\":\"u\""), "{group}");
    let metrics = server.get("/metrics").text();
    assert!(metrics.contains(&format!("clearway_upstream_state{labels},state=\"draining\"}} 1\n")));
    assert_eq!(ask(&server, "PATCH", "upstreams/u/servers/1", "{\"drain\":false}").status, 200);
    assert_eq!(ask(&server, "PATCH", "upstreams/u/servers/0", "{\"down\":true}").status, 200);
    assert_eq!(answers(&server, 4), "bbbb");
    let left = ask(&server, "DELETE", "upstreams/u/servers/0", "");
    assert!(
        left.status == 200 && left.text().starts_with("[{\"id\":1,") && !left.text().contains("\"id\":0")
    );
    assert_eq!(ask(&server, "DELETE", "upstreams/u/servers/1", "").text(), "[]\n");
    assert_eq!(server.get("/").status, 502);
    server.wait_log("logs/error.log", "no live upstreams");
    assert_eq!(ask(&server, "POST", SERVERS, &new_server(&a)).status, 201);
    assert_eq!(answers(&server, 2), "aa");
    assert!(server.get("/metrics").text().contains("clearway_upstream_edits_total 8\n"));
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such API")]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let a = Origin::named("a");
    let server = setup(1, &format!("server 127.0.0.1:{};", a.port)).start();
    let same = format!("{{\"server\":\"127.0.0.1:{}\"}}", a.port);
    let long = format!("{{\"server\":\"{}\"}}", "a".repeat(20_000));
    for (method, path, body, status, code) in [
        ("GET", "upstreams/none", "", 404, "UpstreamNotFound"),
        ("GET", "upstreams/u/peers", "", 404, "PathNotFound"),
        ("GET", "upstreams/u/servers/7", "", 404, "UpstreamServerNotFound"),
        ("PUT", SERVERS, "", 405, "MethodDisabled"),
        ("POST", "upstreams/u", "{}", 405, "MethodDisabled"),
        ("POST", "upstreams/none/servers", "{}", 404, "UpstreamNotFound"),
        ("POST", "upstreams/fixed/servers", &same, 400, "UpstreamStatic"),
        ("POST", SERVERS, "", 415, "JsonError"),
        ("POST", SERVERS, "{}", 400, "UpstreamConfFormatError"),
        ("POST", SERVERS, "{\"server\":\"a.example\"}", 400, "UpstreamBadAddress"),
        ("POST", SERVERS, &same, 409, "EntryExists"),
        ("POST", SERVERS, &long, 413, "BodyTooLarge"),
        ("PATCH", "upstreams/u/servers/7", "{}", 404, "UpstreamServerNotFound"),
        ("PATCH", "upstreams/u/servers/x", "{}", 404, "UpstreamServerNotFound"),
        ("PATCH", "upstreams/u/servers/0", "{\"weight\":0}", 400, "UpstreamConfFormatError"),
        ("PATCH", "upstreams/u/servers/0", "{\"backup\":true}", 400, "UpstreamConfFormatError"),
        ("DELETE", "upstreams/u/servers/7", "", 404, "UpstreamServerNotFound"),
    ] {
        let answer = ask(&server, method, path, body);
        let page = answer.text();
        assert_eq!(answer.status, status, "{method} {path} {body}: {page}");
        assert!(
            page.contains(&format!("\"status\":{status}")) && page.contains(code),
            "{method} {path}: {page}"
        );
    }
    // From elsewhere one may look.
    let mut connection = server.connect();
    assert_eq!(connection.ask(&request("DELETE", "upstreams/u/servers/0", "")).status, 403);
    assert_eq!(server.get("/status/upstreams/u/servers/0").status, 200);
    assert_eq!(server.get("/api/upstreams").status, 200, "it is the origin's");
    assert_eq!(answers(&server, 3), "aaa");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such API")]
fn changes_outlive_reloads_and_workers_that_are_killed() {
    let [a, b] = ["a", "b"].map(Origin::named);
    let group = format!("server 127.0.0.1:{};", a.port);
    let mut server = setup(1, &group).start();
    assert_eq!(ask(&server, "POST", SERVERS, &new_server(&b)).status, 201);
    assert_eq!(ask(&server, "DELETE", "upstreams/u/servers/0", "").status, 200);
    assert_eq!(answers(&server, 2), "bb");
    reload(&mut server, 2, &group);
    assert_eq!(answers(&server, 2), "bb");
    let worker = server.worker();
    send_signal(worker, Signal::KILL);
    server.worker_after(worker);
    assert_eq!(server.get("/number").text(), "2");
    assert_eq!(answers(&server, 2), "bb");
    // Other servers in the configuration are what an operator wants.
    reload(&mut server, 3, &format!("server 127.0.0.1:{} weight=2;", a.port));
    assert_eq!(answers(&server, 2), "aa");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no such API")]
fn a_state_file_keeps_servers_for_the_next_start() {
    let [a, b] = ["a", "b"].map(Origin::named);
    let group = "state state/u.conf;";
    let prepare = |prefix: &std::path::Path| {
        fs::create_dir(prefix.join("state")).expect("it is ours");
        fs::set_permissions(prefix.join("state"), fs::Permissions::from_mode(0o777)).expect("it is ours");
    };
    let mut server = setup(1, group).prepared(prepare).start();
    assert_eq!(server.get("/").status, 502);
    assert_eq!(ask(&server, "POST", SERVERS, &new_server(&a)).status, 201);
    assert_eq!(ask(&server, "POST", SERVERS, &new_server(&b)).status, 201);
    assert_eq!(ask(&server, "PATCH", "upstreams/u/servers/1", "{\"weight\":2}").status, 200);
    let lines = format!("server 127.0.0.1:{};\nserver 127.0.0.1:{} weight=2;\n", a.port, b.port);
    assert_eq!(server.read("state/u.conf"), lines);
    reload(&mut server, 2, group);
    assert_eq!(answers(&server, 6).matches('b').count(), 4);
    assert_eq!(ask(&server, "DELETE", "upstreams/u/servers/0", "").status, 200);
    let worker = server.worker();
    send_signal(worker, Signal::KILL);
    server.worker_after(worker);
    assert_eq!(server.get("/number").text(), "2");
    assert_eq!(answers(&server, 3), "bbb", "the master's copy of the file is older than the zone");
    // By hand, and another start.
    fs::write(server.prefix().join("state/u.conf"), format!("server 127.0.0.1:{};\n", a.port)).expect("ours");
    reload(&mut server, 3, group);
    assert_eq!(answers(&server, 3), "aaa");
    assert_eq!(ask(&server, "POST", SERVERS, &new_server(&b)).status, 201);
    assert_eq!(server.read("state/u.conf").lines().count(), 2);
    // One that cannot be written is told of, and the change holds.
    fs::remove_dir_all(server.prefix().join("state")).expect("it is ours");
    let unkept = ask(&server, "PATCH", "upstreams/u/servers/0", "{\"down\":true}");
    assert!(unkept.status == 500 && unkept.text().contains("UpstreamNotPersisted"), "{}", unkept.text());
    server.wait_log("logs/error.log", "cannot be written (2: No such file or directory)");
    assert_eq!(answers(&server, 3), "bbb");
}
