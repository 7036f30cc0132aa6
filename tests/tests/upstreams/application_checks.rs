//! Applications and memcached that are asked whether they are well (`health_check`), and tests that look at
//! variables (`require`).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Server, wait_until};

use crate::origins::{Origin, read_request};
use crate::start;

/// A family of directives, and what its servers are told and say.
struct Family {
    name: &'static str,
    /// What the location says beside the group.
    location: &'static str,
    is_complete: fn(&[u8]) -> bool,
    well: fn() -> Vec<u8>,
    ill: fn() -> Vec<u8>,
    /// How the log says that.
    fault: &'static str,
}

const PARAMS: &str = "set $mark marked; FAMILY_param SCRIPT /srv$uri; FAMILY_param QUERY $args;
     FAMILY_param MARK $mark; FAMILY_param NAME $server_name; FAMILY_param METHOD $request_method;";

const FAMILIES: [Family; 4] = [
    Family {
        name: "fastcgi",
        location: PARAMS,
        is_complete: |input| input.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]),
        well: || records("Status: 200 OK\r\n\r\nI am well"),
        ill: || records("Status: 503 Ill\r\n\r\n"),
        fault: "unexpected status 503",
    },
    Family {
        name: "scgi",
        location: PARAMS,
        is_complete: |input| {
            let colon = input.iter().position(|&byte| byte == b':');
            let len = colon.and_then(|at| std::str::from_utf8(&input[..at]).ok()?.parse::<usize>().ok());
            colon.zip(len).is_some_and(|(at, len)| input.len() >= at + len + 2)
        },
        well: || b"Status: 200 OK\r\n\r\nI am well".to_vec(),
        ill: || b"Status: 503 Ill\r\n\r\n".to_vec(),
        fault: "unexpected status 503",
    },
    Family {
        name: "uwsgi",
        location: PARAMS,
        is_complete: |input| {
            let len = input.get(1..3).map(|len| usize::from(u16::from_le_bytes([len[0], len[1]])));
            len.is_some_and(|len| input.len() >= len + 4)
        },
        well: || b"HTTP/1.1 200 OK\r\n\r\nI am well".to_vec(),
        ill: || b"HTTP/1.1 200 OK\r\n\r\nI was better".to_vec(),
        fault: "unexpected body of response",
    },
    Family {
        name: "memcached",
        location: "set $memcached_key /srv$uri:$args:marked:$server_name:$request_method;",
        is_complete: |input| input.ends_with(b"\r\n"),
        well: || b"VALUE /srv/ping:full=1:marked:site:GET 0 9\r\nI am well\r\nEND\r\n".to_vec(),
        ill: || b"END\r\n".to_vec(),
        fault: "unexpected status 404",
    },
];

/// A response of FastCGI with this in its output.
fn records(output: &str) -> Vec<u8> {
    let record = |kind: u8, content: &[u8]| {
        let [high, low] = (content.len() as u16).to_be_bytes();
        [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
    };
    [record(6, output.as_bytes()), record(6, b""), record(3, &[0; 8])].concat()
}

/// A server of a family that can be ill.
struct Application {
    origin: Origin,
    is_ill: Arc<AtomicBool>,
    /// The last request.
    asked: Arc<Mutex<Vec<u8>>>,
}

impl Application {
    fn start(family: &'static Family) -> Self {
        let (is_ill, asked) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (ill, last) = (Arc::clone(&is_ill), Arc::clone(&asked));
        let origin = Origin::start(move |mut stream: TcpStream| {
            let (mut input, mut piece) = (Vec::new(), [0; 4096]);
            while !(family.is_complete)(&input) {
                match stream.read(&mut piece) {
                    Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
                    _ => return,
                }
            }
            *last.lock().expect("nobody panics") = input;
            let answer = if ill.load(Ordering::SeqCst) { (family.ill)() } else { (family.well)() };
            let _ = stream.write_all(&answer);
        });
        Self { origin, is_ill, asked }
    }

    fn last_request(&self) -> String {
        String::from_utf8_lossy(&self.asked.lock().expect("nobody panics")).into_owned()
    }
}

fn begin(family: &Family, application: &Application) -> Server {
    let (name, port) = (family.name, application.origin.port);
    let http = format!(
        "match well {{ status 200; body ~ ^I.am.well; }}
         upstream u {{ zone u 64k; server 127.0.0.1:{port} max_fails=0; }}"
    );
    let location = family.location.replace("FAMILY", name);
    let locations = format!(
        "server_name site; set $site_wide 1;
         location /app/ {{ {location} {name}_pass u;
             health_check interval=100ms uri=/ping?full=1 match=well; }}"
    );
    start(&http, &locations)
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn applications_are_asked_in_their_protocol() {
    for family in &FAMILIES {
        let application = Application::start(family);
        let server = begin(family, &application);
        let name = family.name;
        let about = format!("health check \"well\" of peer 127.0.0.1:{} in", application.origin.port);
        assert!(wait_until(PATIENCE, || application.origin.accepted() >= 2), "{name} is asked");
        let asked = application.last_request();
        for part in ["/srv/ping", "full=1", "marked", "site", "GET"] {
            assert!(asked.contains(part), "{name}: {part}: {asked}");
        }
        assert!(!server.error_log().contains("peer is"), "{name}: {}", server.error_log());
        application.is_ill.store(true, Ordering::SeqCst);
        server.wait_log("logs/error.log", &format!("peer is unhealthy, {about}"));
        let log = server.error_log();
        assert!(log.contains(&format!("{}, {about}", family.fault)), "{name}: {log}");
        assert_eq!(server.get("/app/x").status, 502, "{name}");
        server.wait_log("logs/error.log", "no live upstreams");
        application.is_ill.store(false, Ordering::SeqCst);
        server.wait_log("logs/error.log", &format!("peer is healthy, {about}"));
        let asked = server.get("/app/x?y").status;
        assert!(asked == 200 || name == "memcached", "{name}: {asked}, {}", server.error_log());
        let access = server.read("logs/access.log");
        assert!(access.contains("/app/x") && !access.contains("/ping"), "{name}: {access}");
    }
}

/// What a location says with variables is evaluated, also for HTTP.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn variables_have_values_in_checks() {
    let asked = Arc::<Mutex<String>>::default();
    let last = Arc::clone(&asked);
    let origin = Origin::start(move |mut stream| {
        while let Some(head) = read_request(&mut stream) {
            *last.lock().expect("nobody panics") = head;
            let _ = stream.write_all(b"HTTP/1.1 204 None\r\n\r\n");
        }
    });
    let http = format!("upstream u {{ zone u 64k; server 127.0.0.1:{}; }}", origin.port);
    let location = "server_name site; set $outer o;
         location /a/ { set $inner i; if ($inner) { set $both $outer$inner; } proxy_pass http://u/base/;
             proxy_set_header Host $host; proxy_set_header X-Set $both; proxy_set_header X-Uri $uri;
             rewrite ^/never /seen break; health_check interval=100ms uri=/ping?a=b; }";
    let server = start(&http, location);
    assert!(wait_until(PATIENCE, || !asked.lock().expect("nobody panics").is_empty()));
    let asked = asked.lock().expect("nobody panics").clone();
    let expected = "GET /ping?a=b HTTP/1.1\r\nHost: site\r\nX-Set: oi\r\nX-Uri: /ping\r\n\r\n";
    assert_eq!(asked, expected, "{}", server.error_log());
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has no health checks")]
fn variables_can_be_required() {
    let load = Arc::<Mutex<&str>>::default();
    let present = Arc::clone(&load);
    let origin = Origin::start(move |mut stream| {
        while read_request(&mut stream).is_some() {
            let load = *present.lock().expect("nobody panics");
            let head = format!("HTTP/1.1 200 OK\r\nX-Load: {load}\r\nContent-Length: 0\r\n\r\n");
            let _ = stream.write_all(head.as_bytes());
        }
    });
    let http = format!(
        "map $upstream_http_x_load $light {{ default 1; high \"\"; higher 0; }}
         match light {{ status 200; require $upstream_status $light; }}
         upstream u {{ zone u 64k; server 127.0.0.1:{} max_fails=0; }}",
        origin.port
    );
    let server = start(
        &http,
        "location / { proxy_pass http://u; proxy_next_upstream off;
             health_check interval=50ms match=light; }",
    );
    let about = format!("health check \"light\" of peer 127.0.0.1:{} in", origin.port);
    for (at, heavy) in ["high", "higher"].into_iter().enumerate() {
        *load.lock().expect("nobody panics") = heavy;
        let count = |text: &str| server.error_log().matches(text).count();
        assert!(wait_until(PATIENCE, || count(&format!("peer is unhealthy, {about}")) > at), "{heavy}");
        assert!(count(&format!("required \"$light\" is empty or 0, {about}")) > at);
        *load.lock().expect("nobody panics") = "low";
        assert!(wait_until(PATIENCE, || count(&format!("peer is healthy, {about}")) > at), "{heavy}");
    }
    assert_eq!(server.get("/").status, 200);
}
