//! `return` in all its forms.

use clearway_testkit::{Case, Exchange};

const RETURNS: &str = "
    default_type text/plain;
    server { listen %%PORT%%; server_name main.test;
        location /text { return 200 \"some text\\n\"; }
        location /empty { return 200 \"\"; }
        location /bare { return 200; }
        location /nobody { return 204; }
        location /nobody-text { return 204 \"text\"; }
        location /reset { return 205; }
        location /notmodified { return 304; }
        location /moved { return 301 /new/place; }
        location /found { return 302 http://other.test/x?y=z; }
        location /url { return http://url.test/; }
        location /httpsurl { return https://url.test$request_uri; }
        location /scheme { return $scheme://url.test/; }
        location /see { return 303 see; }
        location /temp { return 307 /t; }
        location /perm { return 308 /p; }
        location /bad { return 400; }
        location /auth { return 401; }
        location /forbid { return 403 \"go away\"; }
        location /missing { return 404; }
        location /teapot { return 418; }
        location /teapot-text { return 418 \"short and stout\"; }
        location /odd { return 599 odd; }
        location /close { return 444; }
        location /error { return 500; }
        location /gone { return 410; }
        location /vars { return 200 \"$request_method $uri $scheme $server_port $server_protocol\"; }
        location /typed { default_type application/json; return 200 \"{}\"; }
        location /nolocation { return 301; }
        location /refused { return 405 not; }
        location /long { return 414; }
        location /many { return 429; }
        location /unavailable { return 503; }
        location ~ ^/cap/(.*)$ { return 301 /to/$1; }
    }
    server { listen %%PORT2%%; return 404; location / { return 200 never; } }
";

#[test]
fn every_form() {
    let paths = [
        "text",
        "empty",
        "bare",
        "nobody",
        "nobody-text",
        "reset",
        "notmodified",
        "moved",
        "found",
        "url",
        "httpsurl?q",
        "scheme",
        "see",
        "temp",
        "perm",
        "bad",
        "auth",
        "forbid",
        "missing",
        "teapot",
        "teapot-text",
        "odd",
        "error",
        "gone",
        "vars",
        "typed",
        "nolocation",
        "refused",
        "long",
        "many",
        "unavailable",
        "cap/a%20b",
        "cap/x?y",
    ];
    paths
        .iter()
        .fold(Case::http(RETURNS), |case, path| case.get(&format!("/{path}")))
        .with_access_log()
        .run();
}

#[test]
fn methods_and_versions() {
    let mut case = Case::http(RETURNS);
    for path in ["text", "empty", "nobody", "moved", "missing", "forbid", "notmodified"] {
        for method in ["HEAD", "POST", "OPTIONS", "DELETE", "PURGE"] {
            case = case.ask(format!("{method} /{path} HTTP/1.1\r\nHost: main.test\r\n\r\n"));
        }
        case = case.ask(format!("GET /{path} HTTP/1.0\r\n\r\n"));
        case = case.ask(format!("GET /{path} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }
    case.run();
}

#[test]
fn a_444_closes_without_an_answer() {
    Case::http(RETURNS)
        .exchange(Exchange::new("GET /close HTTP/1.1\r\nHost: a\r\n\r\n").answers(0))
        .with_access_log()
        .run();
}

#[test]
fn of_the_whole_server() {
    Case::http(RETURNS)
        .exchange(Exchange::new("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").to("127.0.0.1:%%PORT2%%"))
        .run();
}

#[test]
fn relative_locations_are_made_absolute_as_in_the_request() {
    Case::http(RETURNS)
        .get_host("/moved", "named.test")
        .get_host("/moved", "named.test:8080")
        .ask("GET /moved HTTP/1.0\r\n\r\n")
        .ask("GET http://abs.test/moved HTTP/1.1\r\nHost: other.test\r\n\r\n")
        .ask("GET /moved HTTP/1.1\r\nHost: [::1]:81\r\n\r\n")
        .run();
}

/// Codes below 100, and codes that stand for a response that was sent already.
#[test]
fn codes_that_are_none() {
    let config = "server { listen %%PORT%%; root %%PREFIX%%/site;
        location /zero { return 0; }
        location /zero-text { return 0 \"$status\"; }
        location /seven { return 7 text; }
        location /page { error_page 404 =0 /f; return 404; }
        location /page5 { error_page 404 =5 /f; return 404; }
        location /asked { auth_request /try200; }
        location /try0 { error_page 404 /f; try_files /none =0; }
        location /try00 { try_files /none =00; }
        location /try1 { try_files /none =1; }
        location /try200 { try_files /none =200; }
        location /try201 { try_files /none =201; }
        location /try204 { try_files /none =204; }
        location /try299 { error_page 404 /f; try_files /none =299; }
        location /try304 { try_files /none =304; }
        location /try600 { try_files /none =600; }
        }";
    let get = |path: &str, version: &str| format!("GET {path} HTTP/{version}\r\nHost: a\r\n\r\n");
    let mut case = Case::http(config).file("site/f", "a file").file("site/asked/f", "asked");
    for path in ["/zero", "/zero-text", "/seven", "/page", "/page5", "/try0", "/try00", "/try201", "/try204"]
    {
        case = case.get(path).ask(get(path, "1.0"));
    }
    for path in ["/try304", "/try600", "/asked/f"] {
        case = case.get(path);
    }
    case = case.ask("HEAD /seven HTTP/1.1\r\nHost: a\r\n\r\n");
    for path in ["/try1", "/try200", "/try299"] {
        // The only answer is that of the next request.
        case = case.ask(get(path, "1.1") + &get("/f", "1.1"));
        case = case.exchange(Exchange::new(get(path, "1.0")).answers(0));
        let head = format!("HEAD {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        case = case.exchange(Exchange::new(head).answers(0));
    }
    case.with_access_log().run();
}
