//! Requests that two servers could read in two ways, behind the proxy: what arrives at the origin is one
//! request with one framing, always, and what nginx lets arrive is what Clearway lets arrive.

use std::fmt::Write;

use clearway_testkit::{Binary, Connection, Setup, recorded};

use crate::origin::{Arrivals, Origin, cases};

const CASES: &str = include_str!("smuggling.cases");

/// So many are played at a time, each to a server and an origin of its own.
const LANES: usize = 16;

/// How long a connection may take to end by itself.
const END_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// What ends of itself does so soon; what stays open after a request is closed by the server.
const COMMON: &str = "client_header_timeout 1s; client_body_timeout 1s; keepalive_timeout 1s;
    lingering_time 1s; lingering_timeout 1s; client_max_body_size 1m;";

fn config(ports: &[String]) -> String {
    let mut text = COMMON.to_owned();
    for (lane, port) in ports.iter().enumerate() {
        write!(
            text,
            "
    upstream origin{lane} {{ server 127.0.0.1:{port}; keepalive 4; }}
    server {{ listen %%PORT{}%%;
        location / {{ proxy_pass http://origin{lane}; }}
        location /stream {{ proxy_request_buffering off; proxy_pass http://origin{lane}; }}
        location /uri/ {{ proxy_pass http://origin{lane}/moved/; }}
        location /old {{ proxy_http_version 1.0; proxy_pass http://origin{lane}; }}
        location /decoded/ {{ proxy_pass http://origin{lane}$uri; }}
    }}",
            lane + 1
        )
        .expect("memory");
    }
    text
}

/// What comes of the cases: for each the statuses that the client got, and what arrived.
fn play(binary: &Binary, cases: &[(&str, Vec<u8>)]) -> String {
    let arrivals: Vec<Arrivals> = (0..LANES).map(|_| Arrivals::default()).collect();
    let origins: Vec<Origin> = arrivals
        .iter()
        .map(|arrivals| {
            let arrivals = arrivals.clone();
            Origin::start(move |stream| arrivals.serve(stream))
        })
        .collect();
    let ports: Vec<String> = origins.iter().map(|origin| origin.port().to_string()).collect();
    let server = Setup::http(binary.clone(), &config(&ports)).start();
    let mut texts = vec![String::new(); cases.len()];
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES)
            .map(|lane| {
                let (server, arrivals) = (&server, &arrivals[lane]);
                scope.spawn(move || {
                    let mine = cases.iter().enumerate().skip(lane).step_by(LANES);
                    mine.map(|(number, case)| (number, play_one(server, lane, arrivals, case)))
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        for (number, text) in lanes.into_iter().flat_map(|lane| lane.join().expect("it ends")) {
            texts[number] = text;
        }
    });
    texts.concat()
}

fn play_one(
    server: &clearway_testkit::Server,
    lane: usize,
    arrivals: &Arrivals,
    (title, request): &(&str, Vec<u8>),
) -> String {
    let address = server.address_of(&format!("127.0.0.1:%%PORT{}%%", lane + 1));
    let mut connection = Connection::open(&address).expect("it listens");
    connection.send(request);
    let (answer, _) = connection.read_to_end(END_LIMIT);
    let mut text = format!("{title}: {}\n", statuses(&answer));
    for arrived in arrivals.take() {
        let arrived = arrived.replace(&format!("origin{lane}"), "origin");
        assert!(!arrived.starts_with("FAULT"), "{title}: {arrived}");
        writeln!(text, "    {arrived}").expect("memory");
    }
    text
}

fn statuses(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let found: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect();
    match (found.is_empty(), answer.is_empty()) {
        (true, true) => "nothing".to_owned(),
        (true, false) => "no head".to_owned(),
        _ => found.join(" "),
    }
}

#[test]
fn what_arrives_is_one_request_with_one_framing() {
    let cases = cases(CASES);
    assert!(cases.len() >= 150, "{} cases", cases.len());
    let ports: Vec<String> = (0..LANES).map(|lane| format!("ORIGIN{lane}")).collect();
    let question = format!("requests with two readings\n{}\n{CASES}", config(&ports));
    recorded::compare(&question, |binary| play(binary, &cases));
}

/// nginx writes a decoded name as it is where a variable has it, line ends included.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx writes line ends as they are")]
fn a_decoded_name_ends_no_line() {
    let binary = Binary::under_test();
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let cases = [
        ("line ends", request("/decoded/a%0d%0aX:%20y%0d%0a%0d%0aGET%20/smuggled%20HTTP/1.1").into_bytes()),
        ("a space", request("/decoded/a%20HTTP/1.1").into_bytes()),
        ("nothing odd", request("/decoded/a").into_bytes()),
    ];
    let arrived = play(&binary, &cases);
    let first_lines: Vec<&str> =
        arrived.lines().filter_map(|line| line.trim().strip_prefix("GET ")?.split(r"\r\n").next()).collect();
    assert_eq!(
        first_lines,
        [
            "/decoded/a%0D%0AX:%20y%0D%0A%0D%0AGET%20/smuggled%20HTTP/1.1 HTTP/1.1",
            "/decoded/a%20HTTP/1.1 HTTP/1.1",
            "/decoded/a HTTP/1.1"
        ],
        "{arrived}"
    );
}
