//! Heads that a filter holds until a gate is open, which is the path's own, and what happens meanwhile.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use clearway_conf::{Args, Spec};
use clearway_http::{
    BodyFilter, Chunk, ConfKey, FilterSpec, Filtering, Hold, Level, Mark, Module, Next, Own, context,
    settings,
};
use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;

use crate::handlers::DIGITS;
use crate::site::{Site, read_to, wait_logged};
use crate::{body, get};

/// Holds heads, and does to them then what its directive says.
pub(crate) static HOLD: Module = Module {
    name: "hold",
    directives: &[Spec {
        name: "hold",
        contexts: context::LOCATION,
        args: Args::TAKE1,
        syntax: "hold WHAT",
        default: "",
        doc: "",
        example: "",
        see: &[],
        handler: |scope, directive| {
            *scope.conf.location(&HOLDING).then = Some(match &*directive.args[0] {
                b"mark" => Then::Mark,
                b"twice" => Then::Again,
                b"refuse" => Then::Refuse,
                b"refuse_all" => Then::RefuseAll,
                b"upper" => Then::Upper,
                b"204" => Then::Say(204),
                b"304" => Then::Say(304),
                other => panic!("{other:?}"),
            });
            Ok(())
        },
    }],
    confs: &[&HOLDING],
    filters: &[FilterSpec {
        enabled: |enabling| enabling.confs.of(&HOLDING).then.is_some(),
        filter: |filtering| {
            let gate = gate(std::str::from_utf8(filtering.request.path()).unwrap());
            gate.heads.fetch_add(1, Ordering::SeqCst);
            filtering.hold(Holding { gate, then: filtering.request.conf(&HOLDING).then.unwrap() });
            None
        },
    }],
    ..Module::EMPTY
};

static HOLDING: ConfKey<HoldingConf> = ConfKey::new(Level::Location);

settings! {
    struct HoldingConf {
        then: Own<Option<Then>>,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    Mark,
    Again,
    Refuse,
    RefuseAll,
    Upper,
    Say(u16),
}

#[derive(Default)]
struct Gate {
    open: AtomicBool,
    heads: AtomicUsize,
    looks: AtomicUsize,
    waiting: Mutex<Option<Waker>>,
}

fn gate(path: &str) -> Arc<Gate> {
    static GATES: Mutex<BTreeMap<String, Arc<Gate>>> = Mutex::new(BTreeMap::new());
    Arc::clone(GATES.lock().unwrap().entry(path.to_owned()).or_default())
}

/// Once a head waits at the gate of a path.
fn wait_held(path: &str) -> Arc<Gate> {
    let gate = gate(path);
    assert!(wait_until(PATIENCE, || gate.looks() > 0), "no head of {path} is held");
    gate
}

impl Gate {
    fn looks(&self) -> usize {
        self.looks.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waiting.lock().unwrap().take() {
            waker.wake();
        }
    }
}

struct Holding {
    gate: Arc<Gate>,
    then: Then,
}

impl<'c> Hold<'c> for Holding {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        filtering: &mut Filtering<'_, 'c>,
    ) -> Poll<Option<Box<dyn BodyFilter + 'c>>> {
        *self.gate.waiting.lock().unwrap() = Some(cx.waker().clone());
        self.gate.looks.fetch_add(1, Ordering::SeqCst);
        if !self.gate.open.load(Ordering::SeqCst) {
            return Poll::Pending;
        }
        match self.then {
            Then::Mark => filtering.head().headers.add(b"X-Held", b"yes"),
            Then::Again => {
                let gate = gate("/again");
                filtering.hold(Self { gate, then: Then::Mark });
            }
            Then::Refuse if filtering.head().status == 200 => filtering.refuse(403),
            Then::Refuse => {}
            Then::RefuseAll => filtering.refuse(403),
            Then::Upper => {
                filtering.head().content_length = None;
                return Poll::Ready(Some(Box::new(Upper)));
            }
            Then::Say(status) => filtering.head().status = status,
        }
        Poll::Ready(None)
    }
}

struct Upper;

impl BodyFilter for Upper {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        next.push(Chunk::Owned(chunk.bytes().to_ascii_uppercase()), mark);
    }
}

/// Fails if anything was sent.
fn expect_nothing(client: &mut TcpStream) {
    client.set_nonblocking(true).unwrap();
    let read = client.read(&mut [0; 9]);
    assert!(read.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "{read:?}");
    client.set_nonblocking(false).unwrap();
}

fn read_all(mut client: TcpStream) -> String {
    let mut all = String::new();
    client.read_to_string(&mut all).unwrap();
    all
}

fn start(locations: &str) -> Site {
    Site::start(&format!(
        "server {{ listen 127.0.0.1:PORT; addition_types *;
        location /other/ {{ act words; }} {locations} }}"
    ))
}

#[test]
fn a_response_waits_behind_its_head_and_comes_whole() {
    let site =
        start("location /whole/ { act words; hold mark; } location /large/ { act digits; hold mark; }");
    let mut client = site.send(&get("/whole/a"));
    let gate = wait_held("/whole/a");
    for _ in 0..20 {
        assert!(read_all(site.send(&get("/other/"))).ends_with("0\r\n\r\n"), "others are answered");
    }
    expect_nothing(&mut client);
    assert!(gate.looks() <= 3, "{} looks: it spins", gate.looks());
    gate.open();
    let all = read_all(client);
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.contains("\r\nX-Held: yes\r\n"), "{all}");
    assert_eq!(body(&all), "4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n");
    assert_eq!(gate.heads.load(Ordering::SeqCst), 1, "a head is looked at once");

    // The body's producer stops when there is as much as it wants to hold.
    let mut client = site.send("GET /large/a HTTP/1.0\r\n\r\n");
    let gate = wait_held("/large/a");
    expect_nothing(&mut client);
    gate.open();
    let all = read_all(client);
    assert!(body(&all).len() == DIGITS && body(&all).as_bytes().chunks(10).all(|ten| ten == b"0123456789"));
}

#[test]
fn a_head_may_be_held_again_and_a_filter_added_then() {
    let site =
        start("location /twice/ { act words; hold twice; } location /upper/ { act page; hold upper; }");
    let mut client = site.send(&get("/twice/a"));
    wait_held("/twice/a").open();
    let again = wait_held("/again");
    expect_nothing(&mut client);
    again.open();
    assert!(read_all(client).contains("\r\nX-Held: yes\r\n"));

    let site = Site::start("server { listen 127.0.0.1:PORT; location /upper/ { act hints; hold upper; } }");
    let mut client = site.send("GET /upper/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    // What comes before a head is not held with it.
    assert!(read_to(&mut client, "\r\n\r\n").starts_with("HTTP/1.1 103 Early Hints\r\n"));
    wait_held("/upper/a").open();
    assert_eq!(body(&read_all(client)), "5\r\nFINAL\r\n0\r\n\r\n");
}

#[test]
fn responses_without_a_body_end_with_the_head_that_was_held() {
    let site = start(
        "location /head/ { act words; hold mark; } location /none/ { act words; hold 204; }
         location /same/ { act words; hold 304; }",
    );
    for (path, method, status) in [
        ("/head/a", "HEAD", "200 OK"),
        ("/none/a", "GET", "204 No Content"),
        ("/same/a", "GET", "304 Not Modified"),
    ] {
        let mut client = site.send(&format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        wait_held(path).open();
        let head = read_to(&mut client, "\r\n\r\n");
        assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
        // The next response stands right behind.
        client.write_all(get("/other/").as_bytes()).unwrap();
        let rest = read_all(client);
        assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.contains("three"), "{rest}");
        assert_eq!(wait_logged(path), format!("{} 0", &status[..3]));
    }
}

#[test]
fn who_leaves_while_a_head_is_held_is_noticed() {
    let site = start(
        "location /left/ { act words; hold mark; }
         location /around/ { act words; add_after_body /left/sub; }",
    );
    drop(site.send(&get("/left/a")));
    assert_eq!(wait_logged("/left/a"), "499 0");
    let client = site.send(&get("/around/a"));
    let gate = wait_held("/left/sub");
    drop(client);
    assert_eq!(wait_logged("/around/a"), "499 0", "what was made is little, and waits for more");
    gate.open();
}

#[test]
fn another_answer_takes_the_place_of_a_head_that_is_held() {
    let site = start(
        "location /fails/ { act fails; hold mark; error_page 502 /page/; } location /page/ { act words; }
         location /refused/ { act words; hold refuse; } location /never/ { act words; hold refuse_all; }
         location /elsewhere/ { act words; hold refuse; error_page 403 =200 /page/; }",
    );
    let all = read_all(site.send(&get("/fails/a")));
    assert!(all.starts_with("HTTP/1.1 502 Bad Gateway\r\n") && !all.contains("half"), "{all}");
    assert!(all.contains("three") && !all.contains("X-Held"), "{all}");

    let mut client = site.send("GET /refused/a HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_held("/refused/a").open();
    let all = read_to(&mut client, "</html>\r\n");
    assert!(all.starts_with("HTTP/1.1 403 Forbidden\r\n") && !all.contains("three"), "{all}");
    client.write_all(get("/other/").as_bytes()).unwrap();
    assert!(read_all(client).contains("three"), "the connection goes on");

    let client = site.send(&get("/elsewhere/a"));
    wait_held("/elsewhere/a").open();
    let all = read_all(client);
    assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.contains("three"), "{all}");

    // One that refuses whatever takes its place ends the connection.
    let client = site.send(&get("/never/a"));
    let gate = wait_held("/never/a");
    gate.open();
    assert_eq!(read_all(client), "");
    assert!((2..=6).contains(&gate.heads.load(Ordering::SeqCst)), "a few times, and not for ever");
}

#[test]
fn heads_of_subrequests_are_held_in_their_place() {
    let site = start(
        "location /page/ { act words; add_before_body /sub/before; add_after_body /sub/after; }
         location /both/ { act words; hold mark; add_after_body /sub/inner; }
         location /sub/ { act words; hold mark; }",
    );
    let mut client = site.send("GET /page/a HTTP/1.0\r\n\r\n");
    let before = wait_held("/sub/before");
    // They run ahead of their turn.
    wait_held("/sub/after").open();
    assert_eq!(before.heads.load(Ordering::SeqCst), 1);
    let rest = {
        before.open();
        let mut rest = String::new();
        client.read_to_string(&mut rest).unwrap();
        rest
    };
    assert_eq!(body(&rest), "one two three".repeat(3));

    let client = site.send("GET /both/a HTTP/1.0\r\n\r\n");
    wait_held("/both/a").open();
    wait_held("/sub/inner").open();
    let all = read_all(client);
    assert!(all.contains("\r\nX-Held: yes\r\n") && body(&all) == "one two three".repeat(2), "{all}");
}

#[test]
fn what_a_client_waits_for_is_not_held_with_the_head() {
    let site =
        start("location /expects/ { act pieces; hold mark; } location /tunnel/ { act echo; hold mark; }");
    let head = "POST /expects/a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
    let mut client = site.send(head);
    assert_eq!(read_to(&mut client, "\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    let gate = wait_held("/expects/a");
    client.write_all(b"ab").unwrap();
    gate.open();
    let rest = read_to(&mut client, "0\r\n\r\n");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n") && rest.contains(" ab"), "{rest}");

    let mut client = site.send("GET /tunnel/a HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\n\r\nearly");
    let gate = wait_held("/tunnel/a");
    expect_nothing(&mut client);
    gate.open();
    assert!(read_to(&mut client, "early").starts_with("HTTP/1.1 101 "));
    client.write_all(b"more").unwrap();
    assert_eq!(read_to(&mut client, "more"), "more");
}
