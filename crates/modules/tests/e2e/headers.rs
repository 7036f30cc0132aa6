//! What is added to heads and behind bodies, to the byte.

use clearway_base::date::parse_http_date;
use clearway_http::{Chunk, Cost, Exchange, HeaderName, Mark, Module, Phase, PhaseHandler, Step};
use clearway_message::{Header, Known, Span, name_hash};
use clearway_modules::filters::headers::HEADERS;

use crate::support::Site;

/// Answers with a head as it comes from another server, of which one line is hidden.
static PASSING: Module = Module {
    name: "test_passing",
    phases: &[PhaseHandler { phase: Phase::Content, cost: Cost::Cheap, enabled: |_| true, handler: pass }],
    ..Module::EMPTY
};

/// What another server has sent, one line of it not as it is sent on.
const PASSED: &str =
    "X-A: a\r\nX-Powered-By: u\r\nSet-Cookie: a=1\r\nX-Wide:  w\r\nset-cookie: b=2\r\nX-B: b\r\n";

fn pass<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let mut start = 0;
    let lines = PASSED.split_inclusive('\n').map(|line| {
        let name = line.find(':').expect("a colon");
        let value = line[name + 1..].find(|char| char != ' ').expect("a value") + name + 1;
        let header = Header {
            name: Span::new(start, start + name),
            value: Span::new(start + value, start + line.trim_end().len()),
            hash: name_hash(&line.as_bytes()[..name]),
            known: Known::find(&line.as_bytes()[..name]),
        };
        start += line.len();
        header
    });
    let head = exchange.output.head();
    head.status = 200;
    head.content_length = Some(4);
    head.headers.pass(PASSED.as_bytes().to_vec(), lines);
    assert!(head.headers.remove(HeaderName::new(b"x-powered-by")));
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(b"body"), Mark::Last);
    Step::Done
}

#[test]
fn a_head_that_is_passed_is_edited_and_seen_like_any_other() {
    let site = Site::start_with(
        "server { listen PORT; location / { add_header X-Seen '$sent_http_x_b $sent_http_set_cookie';
             add_header X-Hidden $sent_http_x_powered_by; add_header X-A more; expires 1h; } }",
        &[&HEADERS, &PASSING],
    );
    let response = site.get("/");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head and a body");
    let passed = "X-A: a\r\nSet-Cookie: a=1\r\nX-Wide: w\r\nset-cookie: b=2\r\nX-B: b\r\n";
    let (before, behind) = head.split_once(passed).expect(head);
    assert!(before.contains("Content-Length: 4\r\n") && !head.contains("X-Powered-By"), "{head}");
    assert!(behind.contains("Cache-Control: max-age=3600"), "{head}");
    assert!(behind.ends_with("X-Seen: b a=1, b=2\r\nX-A: more"), "{head}");
    assert_eq!(body, "body");
}

fn site(http: &str) -> Site {
    Site::start_with(http, &[&HEADERS])
}

fn header<'a>(response: &'a str, name: &str) -> Option<&'a str> {
    let head = response.split("\r\n\r\n").next()?;
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn trailers_are_worked_out_at_the_end_and_sent_in_chunks() {
    let site = site(
        "log_format sizes '$uri $sent_trailer_x_body $sent_trailer_x_twice'; access_log ROOT/log sizes;
         add_trailer X-Http http;
         server { listen PORT; default_type text/plain;
             location /own { add_trailer X-Body $body_bytes_sent; add_trailer X-Empty '';
                 add_trailer X-Twice a;
                 add_trailer X-Twice $status; return 200 body; }
             location /seen { add_trailer X-First $status; add_trailer X-Seen <$sent_trailer_x_first>;
                 return 200 body; }
             location /merged { add_trailer_inherit merge; add_trailer X-Own own; return 200 body; }
             location /inherited { return 200 body; }
             location /off { add_trailer_inherit off; return 200 body; }
             location /error { add_trailer X-Safe s; add_trailer X-Always a always; return 404 gone; }
         }",
    );
    let body = |target: &str| {
        let response = site.get(target);
        response.split_once("\r\n\r\n").expect("a head and a body").1.to_owned()
    };
    assert_eq!(body("/own"), "4\r\nbody\r\n0\r\nX-Body: 0\r\nX-Twice: a\r\nX-Twice: 200\r\n\r\n");
    assert_eq!(body("/seen"), "4\r\nbody\r\n0\r\nX-First: 200\r\nX-Seen: <200>\r\n\r\n");
    assert_eq!(body("/merged"), "4\r\nbody\r\n0\r\nX-Own: own\r\nX-Http: http\r\n\r\n");
    assert_eq!(body("/inherited"), "4\r\nbody\r\n0\r\nX-Http: http\r\n\r\n");
    assert_eq!(body("/off"), "body");
    assert_eq!(body("/error"), "4\r\ngone\r\n0\r\nX-Always: a\r\n\r\n");
    let log = site.wait_lines("log", 6);
    assert!(log.lines().any(|line| line == "/own 0 a, 200"), "{log}");
}

#[test]
fn headers_of_the_level_and_of_those_around_it() {
    let site = site(
        "add_header X-Http http; server { listen PORT; add_header_inherit merge; add_header X-Server server;
             location /in { add_header X-In in; return 200; location /in/off { add_header_inherit off;
                 return 200; }
                 location /in/on { add_header_inherit on; add_header X-On on; return 200; } }
         }",
    );
    let added = |target: &str| {
        let response = site.get(target);
        let lines = response.lines().filter(|line| line.starts_with("X-"));
        lines.map(str::to_owned).collect::<Vec<_>>().join("; ")
    };
    assert_eq!(added("/in"), "X-In: in; X-Server: server; X-Http: http");
    assert_eq!(added("/in/off"), "");
    assert_eq!(added("/in/on"), "X-On: on");
}

#[test]
fn expiry_is_counted_from_now_or_from_the_date_of_the_file() {
    let site = site(
        "server { listen PORT; root ROOT;
             location /later { expires 2048; } location /earlier { expires -1h; } location /now { expires 0; }
             location /modified { expires modified 3000d; } location /daily { expires @12h30m; }
             location /var { expires $arg_e; } location /varmod { expires modified $arg_e; } }",
    );
    for name in ["later", "earlier", "now", "modified", "daily", "var", "varmod"] {
        site.file(name, b"x");
    }
    let times = |target: &str| {
        let response = site.get(target);
        let date =
            |name: &str| header(&response, name).map(|value| parse_http_date(value.as_bytes()).unwrap());
        let (now, expires, modified) =
            (date("Date").unwrap(), date("Expires").unwrap(), date("Last-Modified"));
        let cache = header(&response, "Cache-Control").unwrap().to_owned();
        (expires - now, expires - modified.unwrap(), cache)
    };
    let (later, _, cache) = times("/later");
    assert_eq!((later, &*cache), (2048, "max-age=2048"));
    let (earlier, _, cache) = times("/earlier");
    assert_eq!((earlier, &*cache), (-3600, "no-cache"));
    assert_eq!((times("/now").0, &*times("/now").2), (0, "max-age=0"));
    let (later, after, cache) = times("/modified");
    assert_eq!((after, cache), (3000 * 86_400, format!("max-age={later}")));
    let (later, _, cache) = times("/daily");
    assert!((1..=86_400).contains(&later) && cache == format!("max-age={later}"), "{later} {cache}");
    let (later, _, cache) = times("/var?e=90s");
    assert_eq!((later, &*cache), (90, "max-age=90"));
    assert_eq!(times("/var?e=-90").2, "no-cache");
    assert_eq!(times("/varmod?e=1h").1, 3600);
    assert_eq!(header(&site.get("/var?e=never"), "Expires"), None);
}
