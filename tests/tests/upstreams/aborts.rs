//! Clients that leave while their request is under way at another server.

use std::io::{Read, Write};
use std::sync::mpsc;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;

use crate::origins::{Dns, FullQueue, Origin, Zone, answer, read_head};
use crate::start;

/// Asks, waits until the request is where it is to be, and leaves.
fn leave(server: &clearway_testkit::Server, path: &str, is_there: impl Fn() -> bool) {
    let mut client = server.connect();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
    assert!(clearway_testkit::wait_until(PATIENCE, is_there), "{path} does not get there");
}

#[test]
fn one_that_leaves_while_a_name_is_looked_up_is_forgotten() {
    let dns = Dns::start(Zone { is_dead: true, ..Zone::default() });
    let locations = format!(
        "resolver 127.0.0.1:{} ipv6=off; resolver_timeout 60s;
         location / {{ set $name a.example; proxy_pass http://$name:1; }}",
        dns.port
    );
    let server = start("", &locations);
    leave(&server, "/lookup", || dns.asked() > 0);
    let log = server.wait_log("logs/access.log", "/lookup 499 ");
    assert!(!log.contains(" 502"), "{log}");
    let log = server.wait_log("logs/error.log", "client prematurely closed connection");
    assert!(!log.contains("could not be resolved"), "{log}");
    assert!(!log.contains("so upstream connection is closed too"), "{log}");
}

/// A look-up that others wait for goes on.
#[test]
fn a_look_up_goes_on_for_those_that_stay() {
    let origin = Origin::named("here");
    let dns = Dns::start(Zone { is_dead: true, addresses: vec![("a.example", 1)], ..Zone::default() });
    let locations = format!(
        "resolver 127.0.0.1:{} ipv6=off; resolver_timeout 60s;
         location / {{ set $name a.example; proxy_pass http://$name:{}; }}",
        dns.port, origin.port
    );
    let server = start("", &locations);
    let mut stays = server.connect();
    stays.send(b"GET /stays HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(clearway_testkit::wait_until(PATIENCE, || dns.asked() > 0));
    leave(&server, "/leaves", || true);
    server.wait_log("logs/access.log", "/leaves 499 ");
    // It is asked again five seconds after the first question.
    dns.change(|zone| zone.is_dead = false);
    assert_eq!(stays.response().text(), "here");
}

#[test]
fn one_that_leaves_while_a_server_is_connected_to_is_forgotten() {
    let full = FullQueue::start();
    let server = start(
        "",
        &format!("location / {{ proxy_connect_timeout 50s; proxy_pass http://127.0.0.1:{}; }}", full.port),
    );
    leave(&server, "/connect", || {
        std::thread::sleep(Duration::from_millis(100));
        true
    });
    server.wait_log("logs/access.log", &format!("/connect 499 127.0.0.1:{}", full.port));
}

#[test]
fn one_that_leaves_before_the_head_has_its_connection_closed() {
    let (sender, receiver) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        read_head(&mut stream);
        sender.send("asked").expect("it is waited for");
        assert_eq!(stream.read(&mut [0; 1]).expect("it ends"), 0);
        sender.send("closed").expect("it is waited for");
    });
    let server = start("", &format!("location / {{ proxy_pass http://127.0.0.1:{}; }}", origin.port));
    leave(&server, "/head", || receiver.recv_timeout(PATIENCE) == Ok("asked"));
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("closed"));
    server.wait_log("logs/access.log", "/head 499 ");
    let said = "client prematurely closed connection, so upstream connection is closed too";
    server.wait_log("logs/error.log", said);
}

#[test]
fn one_that_leaves_behind_the_head_has_its_connection_closed() {
    let (sender, receiver) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        read_head(&mut stream);
        // So much that it cannot all be on its way.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\nbegin");
        let more = [b'x'; 65536];
        while stream.write_all(&more).is_ok() {}
        sender.send("closed").expect("it is waited for");
    });
    let pass = format!("proxy_max_temp_file_size 0; proxy_pass http://127.0.0.1:{};", origin.port);
    let server = start("", &format!("location / {{ {pass} }}"));
    let mut client = server.connect();
    client.send(b"GET /body HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.next_event(PATIENCE), clearway_testkit::End::Data);
    drop(client);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("closed"));
    server.wait_log("logs/access.log", "/body ");
}

#[test]
fn a_request_goes_on_without_its_client_where_that_is_said() {
    let (go, wait) = mpsc::channel::<()>();
    let (wait, (sender, receiver)) = (std::sync::Arc::new(std::sync::Mutex::new(wait)), mpsc::channel());
    let origin = Origin::start(move |stream| {
        let mut begun = stream.try_clone().expect("a descriptor");
        read_head(&mut begun);
        sender.send("asked").expect("it is waited for");
        let _ = wait.lock().expect("nobody panics").recv_timeout(PATIENCE);
        let _ = begun.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        answer(stream, "again");
    });
    let pass = format!("proxy_ignore_client_abort on; proxy_pass http://127.0.0.1:{};", origin.port);
    let server = start("", &format!("location / {{ {pass} }}"));
    leave(&server, "/ignored", || receiver.recv_timeout(PATIENCE) == Ok("asked"));
    std::thread::sleep(Duration::from_millis(100));
    go.send(()).expect("it is waited for");
    server.wait_log("logs/access.log", &format!("/ignored 200 127.0.0.1:{} 200", origin.port));
}
