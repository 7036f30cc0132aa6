//! Reloads as a listener and its connections see them: real loops, real sockets.
#![expect(clippy::disallowed_methods, reason = "a test's own thread may block")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use std::time::Duration;

use clearway_os::process;
use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Connection, End, wait_until};
use support::{Site, gate, logged};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
/// A head and the first half of the body.
const HALF: &str = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab";

/// A server that says this.
fn says(text: &str) -> String {
    format!("server {{ listen 127.0.0.1:PORT; location / {{ say \"{text}\"; }} }}")
}

fn ask(client: &mut Connection) -> String {
    client.ask(GET).text()
}

/// Waits until the connection has ended with nothing more sent.
fn expect_closed(mut client: Connection) {
    let (rest, end) = client.read_to_end(PATIENCE);
    assert!(rest.is_empty() && end != End::Open, "{end:?} after {:?}", String::from_utf8_lossy(&rest));
}

#[test]
fn an_idle_connection_takes_what_is_published_and_lets_go_of_what_was() {
    let mut site = Site::start(&says("one"));
    let mut client = site.connect();
    let silent = site.connect();
    assert_eq!(ask(&mut client), "one");
    site.publish(&says("two"));
    site.wait_ended(1);
    assert_eq!(ask(&mut client), "two");
    site.publish(&says("three"));
    site.wait_ended(2);
    assert_eq!(ask(&mut client), "three");
    let mut silent = silent;
    assert_eq!(ask(&mut silent), "three");
    assert_eq!(ask(&mut site.connect()), "three");
}

#[test]
fn a_request_under_way_keeps_its_generation_to_its_end() {
    let mut site = Site::start(&says("one"));
    let (mut busy, mut begun) = (site.connect(), site.connect());
    busy.send(HALF.as_bytes());
    begun.send(&GET.as_bytes()[..9]);
    site.wait_connections(2);
    site.wait_read();
    site.publish(&says("two"));
    assert_eq!(ask(&mut site.connect()), "two");
    assert!(site.is_alive(1));
    busy.send(b"cd");
    assert_eq!(busy.response().text(), "one");
    begun.send(&GET.as_bytes()[9..]);
    assert_eq!(begun.response().text(), "one");
    site.wait_ended(1);
    assert_eq!(ask(&mut busy), "two");
    assert_eq!(ask(&mut begun), "two");
}

/// What was received behind a body goes along, and what was received behind a head.
#[test]
fn pipelined_requests_take_what_is_published_between_them() {
    let waits = "server { listen 127.0.0.1:PORT; location / { say one; } \
                 location /gate { say gate; gate pipeline; } }";
    let mut site = Site::start(waits);
    let (mut behind_body, mut behind_head) = (site.connect(), site.connect());
    behind_body.send(HALF.as_bytes());
    let first = GET.replace("GET / ", "GET /gate ");
    behind_head.send(format!("{first}{GET}{GET}GET / HTTP/1.1\r\n").as_bytes());
    gate("pipeline").wait_reached();
    site.wait_read();
    site.publish(&says("two"));
    assert!(site.is_alive(1));
    gate("pipeline").open();
    assert_eq!(behind_head.response().text(), "gate");
    assert_eq!(behind_head.response().text(), "two");
    behind_body.send(format!("cd{GET}{GET}").as_bytes());
    assert_eq!(behind_body.response().text(), "one");
    assert_eq!(behind_head.response().text(), "two");
    behind_head.send(b"Host: a\r\n\r\n");
    assert_eq!(behind_head.response().text(), "two");
    assert_eq!(behind_body.response().text(), "two");
    assert_eq!(behind_body.response().text(), "two");
    site.wait_ended(1);
}

#[test]
fn connections_of_a_removed_listener_end_gracefully() {
    let site = Site::start(&says("one"));
    let (mut idle, silent, mut busy) = (site.connect(), site.connect(), site.connect());
    assert_eq!(ask(&mut idle), "one");
    assert_eq!(ask(&mut busy), "one");
    busy.send(HALF.as_bytes());
    site.wait_connections(3);
    site.wait_read();
    site.remove();
    expect_closed(idle);
    expect_closed(silent);
    busy.send(b"cd");
    let answer = busy.response();
    assert_eq!((answer.text().as_str(), answer.keeps_alive()), ("one", false));
    expect_closed(busy);
    assert!(wait_until(PATIENCE, || site.places() == 0));
    assert!(Connection::open(&site.address()).is_err(), "nobody listens");
}

#[test]
fn keepalive_min_timeout_holds_on_a_removed_listener() {
    let site = Site::start(&format!("keepalive_min_timeout 30s; {}", says("one")));
    let mut client = site.connect();
    assert_eq!(ask(&mut client), "one");
    site.remove();
    assert_eq!(client.next_event(Duration::from_millis(50)), End::Open);
    let answer = client.ask(GET);
    assert_eq!((answer.text().as_str(), answer.keeps_alive()), ("one", false));
    expect_closed(client);
}

#[test]
fn what_is_left_of_an_older_generation_can_be_closed() {
    let old = "server { listen 127.0.0.1:PORT; location / { say one; } location /cut { say cut; } }";
    let mut site = Site::start(old);
    let connect_and_ask = || {
        let mut client = site.connect();
        assert_eq!(ask(&mut client), "one");
        client
    };
    let (idle, mut goes_on, mut cut, mut headless) =
        (connect_and_ask(), connect_and_ask(), connect_and_ask(), connect_and_ask());
    let silent = site.connect();
    cut.send(HALF.replace("POST / ", "POST /cut ").as_bytes());
    headless.send(&GET.as_bytes()[..9]);
    site.wait_connections(5);
    site.wait_read();
    site.publish(&says("two"));
    let new = site.connect();
    site.wait_connections(6);
    assert_eq!(ask(&mut goes_on), "two");
    site.listener.close_older(2);
    site.wake_all();
    for client in [idle, silent, cut, headless] {
        expect_closed(client);
    }
    site.wait_ended(1);
    assert_eq!(logged("/cut"), 1, "a request that is cut short is logged");
    let mut new = new;
    assert_eq!(ask(&mut goes_on), "two");
    assert_eq!(ask(&mut new), "two");
    new.send(HALF.as_bytes());
    site.wait_read();
    site.listener.close_all();
    site.wake_all();
    expect_closed(goes_on);
    expect_closed(new);
}

#[test]
fn a_thousand_idle_connections_hold_nothing_of_fifty_generations() {
    process::raise_descriptors(4096);
    let mut site = Site::start(&says("1"));
    let mut clients: Vec<_> = (0..1000).map(|_| site.connect()).collect();
    for client in &mut clients[..500] {
        assert_eq!(ask(client), "1");
    }
    site.wait_connections(1000);
    for number in 2..=50 {
        site.publish(&says(&number.to_string()));
    }
    for number in 1..50 {
        site.wait_ended(number);
    }
    assert!(site.is_alive(50));
    for client in &mut clients {
        assert_eq!(ask(client), "50");
    }
}

#[test]
fn the_address_is_found_again_where_a_listener_has_several() {
    let mut site = Site::start(&says("only"));
    let mut client = site.connect();
    assert_eq!(ask(&mut client), "only");
    let two = format!("server {{ listen PORT; location / {{ say any; }} }} {}", says("this"));
    site.publish(&two);
    assert_eq!(ask(&mut client), "this");
    site.publish("server { listen PORT; location / { say any; } }");
    assert_eq!(ask(&mut client), "any");
}

#[test]
fn each_generation_has_its_identities() {
    let mut site = Site::start(&says("$pid"));
    let mut client = site.connect();
    let first = ask(&mut client);
    assert_eq!(ask(&mut client), first);
    site.publish(&says("$pid"));
    let second = ask(&mut client);
    assert_ne!(second, first);
    let exists = |id: &str| std::path::Path::new(&format!("/proc/self/task/{id}")).exists();
    assert!(exists(&second));
    site.wait_ended(1);
    assert!(wait_until(PATIENCE, || !exists(&first)), "its thread has ended");
    drop(client);
    let line = site.wait_line("client 127.0.0.1 closed keepalive connection");
    assert_eq!(line.0.to_string(), second);
}

#[test]
fn lines_about_accepting_have_the_identity_and_the_log_of_the_generation() {
    let site = Site::start_alone(&says("$pid"), 1);
    // The listening socket has the only place.
    expect_closed(site.connect());
    let (id, _) = site.wait_line("[alert] 1 worker_connections are not enough");
    assert!(std::path::Path::new(&format!("/proc/self/task/{id}")).exists(), "{id}");
}

/// A connection that has been answered, a millisecond later than the one before.
fn idle_client(site: &Site) -> Connection {
    let mut client = site.connect();
    assert_eq!(ask(&mut client), "one");
    std::thread::sleep(Duration::from_millis(2));
    client
}

/// One place is the listening socket's.
#[test]
fn the_longest_idle_connections_make_room_for_others() {
    let site = Site::start_alone(&says("one"), 12);
    let mut busy = site.connect();
    busy.send(HALF.as_bytes());
    site.wait_read();
    let mut idle: Vec<_> = (0..10).map(|_| idle_client(&site)).collect();
    site.wait_connections(11);
    let mut more: Vec<_> = (0..5).map(|_| idle_client(&site)).collect();
    for client in idle.drain(..5) {
        expect_closed(client);
    }
    for client in idle.iter_mut().chain(&mut more) {
        assert_eq!(ask(client), "one");
    }
    busy.send(b"cd");
    assert_eq!(busy.response().text(), "one");
    site.wait_line("[warn] 12 worker_connections are not enough, reusing connections");
}

#[test]
fn keepalive_min_timeout_holds_where_there_is_no_room() {
    let site = Site::start_alone(&format!("keepalive_min_timeout 60s; {}", says("one")), 4);
    let mut idle: Vec<_> = (0..3).map(|_| idle_client(&site)).collect();
    expect_closed(site.connect());
    for client in &mut idle {
        assert_eq!(ask(client), "one");
    }
    site.wait_line("[alert] 4 worker_connections are not enough");
}
