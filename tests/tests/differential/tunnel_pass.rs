//! Tunnels (`tunnel_pass`, CONNECT): which are refused and how, what is in them, the clients that may open
//! one, and what the logs say of it.

use clearway_testkit::client::PATIENCE;
use clearway_testkit::recorded::compare;
use clearway_testkit::{Answer, Case, Exchange, Server, Setup, wait_until};

use crate::dishonest::lines_about;

/// What tunnels lead to, which answers in a form that has no head.
const INNER: &str = "upstream inner { server 127.0.0.1:%%PORT2%%; } server { listen %%PORT2%%; \
    location / { return 200 'inner $request_uri'; } }";

fn case(server: &str) -> Case {
    Case::http(&format!("{INNER} server {{ listen %%PORT%%; root %%PREFIX%%/html; {server} }}"))
        .file("html/50x.html", "a page\n")
        .file("htpasswd", "plain:{PLAIN}secret\n")
}

/// A request with these lines behind its own, and what follows it in the tunnel.
fn connect(to: &str, lines: &str, inside: &str) -> Exchange {
    let lines = if lines.is_empty() { String::new() } else { format!("{lines}\r\n") };
    Exchange::new(format!("CONNECT {to} HTTP/1.1\r\nHost: a\r\n{lines}\r\n{inside}")).until_end()
}

const INSIDE: &str = "GET /in\r\n";

#[test]
fn tunnels_are_asked_for_in_one_form() {
    let case = case("tunnel_pass 127.0.0.1:%%PORT2%%; location /file { }");
    let case = [("", ""), ("Content-Length: 0", ""), ("Content-Length: 1", "x"), ("Content-Length: x", "")]
        .into_iter()
        .chain([("Transfer-Encoding: chunked", "0\r\n\r\n"), ("Connection: keep-alive", "")])
        .fold(case, |case, (lines, body)| case.exchange(connect("a:80", lines, &format!("{body}{INSIDE}"))));
    let targets = [
        "a",
        "a:",
        ":80",
        ":",
        "a:0",
        "a:65535",
        "a:65536",
        "a:x",
        "a:80/",
        "a:80?",
        "a:80#",
        "/",
        "*",
        "u:p@a:80",
        "http://a:80",
        "[::1]:80",
        "[::1]",
        "[::1]:",
        "1.2.3.4:5",
        "A:80",
        "a_b:80",
        "-:80",
    ];
    let case = targets.into_iter().fold(case, |case, to| case.exchange(connect(to, "", INSIDE)));
    case.get("/")
        .get("/file")
        .ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
        .exchange(Exchange::new("CONNECT a:80 HTTP/1.0\r\nHost: a\r\n\r\nGET /in\r\n").until_end())
        .exchange(Exchange::new("CONNECT a:80\r\n").until_end())
        .exchange(Exchange::new("CONNECT a:80 HTTP/1.1\r\n\r\nGET /in\r\n").until_end())
        .exchange(Exchange::new("CONNECT a:80 HTTP/1.2\r\nHost: a\r\n\r\nGET /in\r\n").until_end())
        .with_access_log()
        .run();
}

#[test]
fn tunnels_lead_where_it_is_said() {
    let case = case(
        "server_name a; add_header X-Asked '$request_uri $uri $host $request_port';
         location / { if ($http_x_to = none) { return 403; }
                      if ($http_x_to = page) { tunnel_pass 127.0.0.1:1; error_page 502 /50x.html; }
                      if ($http_x_to) { tunnel_pass $http_x_to; }
                      if ($request_method = CONNECT) { rewrite ^ /c last; } }
         location /c { tunnel_pass inner; add_header X-Uri $request_uri; }
         location = /50x.html { }",
    );
    let lines =
        ["", "X-To: none", "X-To: page", "X-To: 127.0.0.1:%%PORT2%%", "X-To: 127.0.0.1", "X-To: a b:1"];
    let more = ["X-To: 127.0.0.1:1", "X-To: unix:/none", "X-To: b.test:1", "X-To: inner"];
    let case = lines.into_iter().chain(more).fold(case, |case, lines| {
        let request = format!("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{INSIDE}");
        case.exchange(Exchange::new(request.replace("\r\n\r\n\r\n", "\r\n\r\n")).until_end())
    });
    case.with_access_log().run();
}

#[test]
fn passwords_are_those_for_the_proxy() {
    let case = case(
        "auth_basic proxy; auth_basic_user_file %%PREFIX%%/htpasswd; add_header X-User $remote_user always;
         location / { tunnel_pass 127.0.0.1:%%PORT2%%; }",
    );
    let lines = [
        "",
        "Authorization: Basic cGxhaW46c2VjcmV0",
        "Proxy-Authorization: Basic cGxhaW46c2VjcmV0",
        "Proxy-Authorization: Basic cGxhaW46d3Jvbmc=",
        "Proxy-Authorization: Digest x",
    ];
    let case = lines.into_iter().fold(case, |case, lines| case.exchange(connect("a:80", lines, INSIDE)));
    case.ask("GET / HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic cGxhaW46c2VjcmV0\r\n\r\n")
        .ask("GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic cGxhaW46c2VjcmV0\r\n\r\n")
        .with_access_log()
        .run();
}

#[test]
fn one_of_two_rules_is_enough() {
    let satisfied = |rule: &str| {
        case(&format!(
            "satisfy any; {rule} auth_basic proxy; auth_basic_user_file %%PREFIX%%/htpasswd;
             tunnel_pass 127.0.0.1:%%PORT2%%;"
        ))
        .exchange(connect("a:80", "", INSIDE))
        .exchange(connect("a:80", "Proxy-Authorization: Basic cGxhaW46c2VjcmV0", INSIDE))
        .run();
    };
    satisfied("allow all;");
    satisfied("deny all;");
}

const LOGGED: &str = "error_log logs/error.log info;
    server { listen %%PORT%%; location / { tunnel_pass $http_x_to; } }
    server { listen %%PORT%%; server_name none; }";

/// Requests after each of which a line about it is in the log.
const WRONG: [&str; 8] = [
    "CONNECT none:80 HTTP/1.1\r\nHost: none\r\n\r\n",
    "CONNECT a:80 HTTP/1.0\r\nHost: a\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nX-To: 127.0.0.1:1\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nX-To: 127.0.0.1\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nX-To: 127.0.0.1:1/x\r\n\r\n",
    "CONNECT a:80 HTTP/1.1\r\nHost: a\r\nX-To: b.test:1\r\n\r\n",
    "CONNECT last:80 HTTP/1.1\r\nHost: a\r\nX-To: 127.0.0.1:x\r\n\r\n",
];

fn messages(server: &Server) -> String {
    wait_until(PATIENCE, || server.error_log().contains("CONNECT last"));
    let log = server.error_log();
    let ends = log.lines().filter_map(|line| Some(format!("{}\n", line.split_once(", request: ")?.1)));
    lines_about(&log, "request: \"CONNECT ") + &ends.collect::<String>()
}

#[test]
fn what_is_wrong_is_logged() {
    compare(
        &format!("{}\n{LOGGED}", WRONG.map(|request| request.escape_debug().to_string()).join("\n")),
        |binary| {
            let server = Setup::http(binary.clone(), LOGGED).start();
            for request in WRONG {
                let mut connection = server.connect();
                connection.send(request.as_bytes());
                let _ = connection.try_response(Answer::Whole);
            }
            messages(&server)
        },
    );
}
