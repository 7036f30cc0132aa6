//! `stub_status`: the form of the page, and what each state of a connection counts as: the same steps are
//! taken with both servers, and each has to come to the same numbers.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::differential::both_refuse;
use clearway_testkit::{Binary, Case, Connection, Server, Setup, wait_until};

const SITE: &str = "
    server { listen 127.0.0.1:%%PORT%%; root %%PREFIX%%/site; lingering_close always;
        location = /stub { stub_status; }
        location = /old { stub_status on; }
        location = /ok { return 200 ok; }
        location = /slow { limit_rate 10; }
        location = /bye { keepalive_timeout 0; return 200 bye; }
        location = /var { return 200 '$connections_active $connections_reading $connections_writing'; }
    }
";

/// What a page says: active, reading, writing, waiting; accepts less handled; requests.
#[derive(Debug, PartialEq, Eq)]
struct Page {
    states: [u64; 4],
    lost: u64,
    requests: u64,
}

/// The numbers of a page, which has to have nginx's form.
fn parse(text: &str) -> Page {
    let form: String = text.chars().filter(|character| !character.is_ascii_digit()).collect();
    let wanted = "Active connections:  \nserver accepts handled requests\n    \n\
                  Reading:  Writing:  Waiting:  \n";
    assert_eq!(form, wanted);
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [active, accepts, handled, requests, reading, writing, waiting] = numbers[..] else {
        panic!("{text}")
    };
    Page { states: [active, reading, writing, waiting], lost: accepts - handled, requests }
}

/// Looks at the page, over and over, until the states are these.
fn until(page: &mut Connection, looks: &mut u64, states: [u64; 4], what: &str) -> Page {
    let mut last = None;
    let reached = wait_until(PATIENCE, || {
        let response = page.ask("GET /stub HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(response.header("Content-Type"), Some("text/plain"));
        *looks += 1;
        last.insert(parse(&response.text())).states == states
    });
    assert!(reached, "{what}: {last:?}, not {states:?}");
    last.expect("there was a look")
}

/// Takes connections through all states. Every number is compared, so both servers have gone through the same
/// states.
fn play(server: &Server) {
    let (mut page, mut looks) = (server.connect(), 0);
    // Those that have found out whether the server is there may not be closed yet.
    let first = until(&mut page, &mut looks, [1, 0, 1, 0], "the page alone");
    let before = first.requests - looks;
    let mut other = server.connect();
    until(&mut page, &mut looks, [2, 0, 1, 1], "another connection");
    other.send(b"GET /o");
    until(&mut page, &mut looks, [2, 1, 1, 0], "it begins a request");
    other.send(b"k HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.response().text(), "ok");
    until(&mut page, &mut looks, [2, 0, 1, 1], "it waits for another one");
    other.send(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    until(&mut page, &mut looks, [2, 0, 2, 0], "it is sent slowly");
    drop(other);
    until(&mut page, &mut looks, [1, 0, 1, 0], "it has left");
    let mut leaving = server.connect();
    leaving.send(b"GET /bye HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(leaving.response().text(), "bye");
    until(&mut page, &mut looks, [2, 0, 2, 1], "it lingers");
    drop(leaving);
    let last = until(&mut page, &mut looks, [1, 0, 1, 0], "all have left");
    assert_eq!((last.requests, last.lost), (before + looks + 3, 0));
    assert_eq!(page.ask("GET /var HTTP/1.1\r\nHost: a\r\n\r\n").text(), "1 0 1");
}

#[test]
fn states_of_connections() {
    for binary in Binary::expected_alike() {
        play(&Setup::http(binary, SITE).file("site/slow", vec![b'x'; 10_000]).start());
    }
}

#[test]
fn what_is_not_asked_with_get() {
    Case::http(SITE)
        .ask("POST /stub HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        .ask("PUT /old HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
        .ask("DELETE /stub HTTP/1.0\r\n\r\n")
        .run();
}

#[test]
fn refused_in_a_configuration() {
    both_refuse("error_log stderr; events {} http { stub_status; }");
    both_refuse("error_log stderr; events {} http { server { location / { stub_status a b; } } }");
    both_refuse(
        "error_log stderr; events {} http { server { location / { if ($arg_a) { stub_status; } } } }",
    );
}
