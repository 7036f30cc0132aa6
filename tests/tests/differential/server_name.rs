//! `server_name`: exact names, both wildcards, regexes with captures, their order, and where the name
//! of a request comes from.

use clearway_testkit::Case;

const NAMES: &str = "
    server { listen %%PORT%%; server_name first.test; location / { return 200 default; } }
    server { listen %%PORT%%; server_name Exact.Test two.exact.test; location / { return 200 exact; } }
    server { listen %%PORT%%; server_name *.wild.test; location / { return 200 front; } }
    server { listen %%PORT%%; server_name *.deep.wild.test; location / { return 200 deep; } }
    server { listen %%PORT%%; server_name www.back.*; location / { return 200 back; } }
    server { listen %%PORT%%; server_name www.back.long.*; location / { return 200 long; } }
    server { listen %%PORT%%; server_name .dot.test; location / { return 200 dot; } }
    server { listen %%PORT%%; server_name ~^(?<user>[a-z]+)\\.(?<zone>re)\\.test$;
             location / { return 200 \"$user in $zone, $1\"; } }
    server { listen %%PORT%%; server_name ~^x(\\d+)y ~late$; location / { return 200 \"<$1>\"; } }
    server { listen %%PORT%%; server_name \"\"; location / { return 200 none; } }
";

#[test]
fn which_server_answers() {
    let hosts = [
        "first.test",
        "exact.test",
        "EXACT.TEST",
        "exact.test.",
        "exact.test:8080",
        "two.exact.test",
        "a.wild.test",
        "a.b.wild.test",
        "wild.test",
        ".wild.test",
        "a.deep.wild.test",
        "www.back.org",
        "www.back.long.org",
        "www.back.",
        "dot.test",
        "a.dot.test",
        "adot.test",
        "joe.re.test",
        "JOE.re.test",
        "joe1.re.test",
        "x12y",
        "too.late",
        "unknown.test",
        "127.0.0.1",
        "[::1]",
        "[::1]:80",
        "a_b.wild.test",
    ];
    let case = hosts.iter().fold(Case::http(NAMES), |case, host| case.get_host("/", host));
    case.ask("GET / HTTP/1.0\r\n\r\n").ask("GET / HTTP/1.0\r\nHost:\r\n\r\n").run();
}

#[test]
fn hosts_that_are_refused() {
    let hosts = [
        "a/b", "a b", "a\tb", "..", "a..b", ".", "[]", "a%20b", "a\\b", "a@b", "a:b:c", "[::1", "é", "a?b",
        "a#b",
    ];
    hosts.iter().fold(Case::http(NAMES), |case, host| case.get_host("/", host)).run();
}

#[test]
fn the_absolute_form_names_the_host() {
    Case::http(NAMES)
        .ask("GET http://exact.test/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http://exact.test:81/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http://exact.test HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET HTTP://exact.test/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http://joe.re.test/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http://exact.test/ HTTP/1.0\r\n\r\n")
        .ask("GET http://[::1]/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http:///x HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET https://exact.test/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET foo://exact.test/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http://exact.test?a=b HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .ask("GET http:/exact.test/ HTTP/1.1\r\nHost: dot.test\r\n\r\n")
        .run();
}

#[test]
fn host_variables() {
    Case::http(
        "server { listen %%PORT%%; server_name main.test other.test *.wild.test;
                  location / { return 200 \"$host|$server_name|$http_host\"; } }
         server { listen %%PORT2%%;
                  location / { return 200 \"$host|$server_name|$http_host\"; } }",
    )
    .get_host("/", "Other.Test:99")
    .get_host("/", "other.test.")
    .get_host("/", "a.wild.test")
    .ask("GET / HTTP/1.0\r\n\r\n")
    .run();
}
