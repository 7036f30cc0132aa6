//! `post_action`: what is done behind a response, as the access log and another server see it.

use clearway_testkit::Case;

/// Another server, whose line is in the log as well.
const NOTED: &str =
    "server { listen %%PORT2%%; location / { return 204; } location /refused { return 403 no; } }";

fn case(locations: &str) -> Case {
    Case::http(&format!(
        "log_format w '$server_port $request_uri -> $uri?$args $status $body_bytes_sent $request_completion \
                       $upstream_status $sent_http_x_a $request_method $content_length';
        access_log logs/access.log w; {NOTED}
        server {{ listen %%PORT%%; root %%PREFIX%%/html; {locations} }}"
    ))
    .with_access_log()
    .file("html/a.txt", "a text\n")
    .file("html/post.txt", "what nobody sees\n")
}

fn ask_all(case: Case, requests: &[&str]) -> Case {
    requests.iter().fold(case, |case, lines| {
        let (first, rest) = lines.split_once('\n').unwrap_or((lines, ""));
        case.ask(format!("{first} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{rest}\r\n"))
    })
}

#[test]
fn requests_go_on_behind_their_responses() {
    let case = case(
        "location / { add_header X-A a; post_action /post.txt; }
        location = /post.txt { add_header X-A b; }
        location /named/ { alias %%PREFIX%%/html/; post_action @done; }
        location @done { proxy_pass http://127.0.0.1:%%PORT2%%/done?$body_bytes_sent-$request_completion; }
        location /refused/ { alias %%PREFIX%%/html/; post_action /tell/refused; }
        location /tell/ { internal; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /status { return 202 accepted; post_action @done; }
        location /page { error_page 404 /post.txt; return 404; post_action /tell/page; }
        location /missing/ { post_action /nowhere; return 404 none; }
        location /unknown { post_action @unknown; return 200 x; }
        location /closed { post_action @done; return 444; }
        location /passed { post_action @done; proxy_pass http://127.0.0.1:%%PORT2%%/refused; }
        location /if { if ($arg_a) { post_action /tell/if; } return 200 if; }
        location /returned { post_action /again; return 200 x; }
        location /again { return 301 /elsewhere; }
        location /inherits { post_action /inherits/inner; return 200 x;
                             location /inherits/inner { return 200 y; } }",
    );
    ask_all(
        case,
        &[
            "GET /a.txt",
            "HEAD /a.txt",
            "GET /named/a.txt?x=y",
            "GET /refused/a.txt",
            "GET /status",
            "GET /page",
            "GET /missing/x",
            "GET /unknown",
            "GET /closed",
            "GET /passed",
            "GET /if",
            "GET /if?a=1",
            "GET /returned",
            "GET /inherits",
        ],
    )
    .run();
}

#[test]
fn connections_go_on_behind_them() {
    let case = case(
        "location / { post_action /done; }
        location /body { post_action /done; client_max_body_size 10; error_page 413 /large;
                         proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /large { post_action /done; return 200 large; }
        location /returned { post_action /done; return 200 x; }
        location /done { internal; proxy_pass http://127.0.0.1:%%PORT2%%/done; }",
    );
    let get = "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
    let post = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}", "x".repeat(length))
    };
    case.get("/a.txt")
        .exchange(clearway_testkit::Exchange::new(get.repeat(3)).answers(3))
        .exchange(clearway_testkit::Exchange::new(post("/body", 3) + get).answers(2))
        .exchange(clearway_testkit::Exchange::new(post("/returned", 3) + get).answers(2))
        .exchange(clearway_testkit::Exchange::new(post("/body", 30)))
        .run();
}
