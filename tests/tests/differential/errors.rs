//! `error_page` and the pages that are built in.

use clearway_testkit::{Case, Exchange};

const PAGES: &str = "
    error_page 410 /http.html;
    server { listen %%PORT%%; root %%PREFIX%%/site;
        error_page 404 /404.html;
        error_page 500 502 503 504 /50x.html;
        location = /own { error_page 404 /own.html; return 404; }
        location = /code { error_page 404 =200 /404.html; return 404; }
        location = /given { error_page 404 = /given.html; return 404; }
        location = /given.html { return 202 given; }
        location = /redirect { error_page 404 http://other.test/x; return 404; }
        location = /redirect301 { error_page 404 =301 http://other.test/x; return 404; }
        location = /redirectvar { error_page 403 https://other.test$request_uri; return 403; }
        location = /missingpage { error_page 404 /not/there.html; return 404; }
        location = /again { error_page 404 /again2; return 404; }
        location = /again2 { error_page 403 /403.html; return 403; }
        location = /var { error_page 404 /$arg_p; return 404; }
        location = /inherit410 { return 410; }
        location = /inherit500 { return 500; }
        location = /text { error_page 404 /404.html; return 404 \"a text\"; }
        location = /redirected { error_page 301 /404.html; return 301 /x; }
        location = /args { error_page 404 /show?b=2; return 404; }
        location = /show { return 200 \"$uri $args $request_uri\"; }
        location = /post { error_page 405 =200 /404.html; return 405; }
        location = /named { error_page 404 @n; return 404; }
        location = /named405 { error_page 405 = @n; return 405; }
        location @n { return 200 \"$request_method $uri\"; }
        location = /c494 { error_page 400 /404.html; return 400; }
        location = /http.html { internal; return 200 http; }
    }
";

fn pages() -> Case {
    Case::http(PAGES)
        .file("site/404.html", "own 404\n")
        .file("site/50x.html", "own 50x\n")
        .file("site/own.html", "own page\n")
        .file("site/403.html", "own 403\n")
}

#[test]
fn error_pages() {
    let targets = [
        "/nothing",
        "/own",
        "/code",
        "/given",
        "/redirect",
        "/redirect301",
        "/redirectvar?q=1",
        "/missingpage",
        "/again",
        "/var?p=own.html",
        "/inherit410",
        "/inherit500",
        "/text",
        "/redirected",
        "/args?a=1",
        "/named",
        "/c494",
        "/404.html",
    ];
    let case = targets.iter().fold(pages(), |case, target| case.get(target));
    ["/nothing", "/post", "/named", "/named405", "/given"]
        .iter()
        .flat_map(|path| ["HEAD", "POST"].map(|method| (method, path)))
        .fold(case, |case, (method, path)| {
            case.ask(format!("{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"))
        })
        .with_access_log()
        .run();
}

#[test]
fn a_malformed_request_gets_the_page_of_its_server() {
    Case::http(
        "server { listen %%PORT%%; error_page 400 /400.html; error_page 405 /405.html;
                  location / { return 200 \"page for $uri\"; } }",
    )
    .ask("GET / HTTP/1.1\r\n\r\n")
    .ask("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n")
    .ask("TRACE / HTTP/1.1\r\nHost: a\r\n\r\n")
    .run();
}

#[test]
fn built_in_pages_for_browsers() {
    let agents =
        ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0 Safari/537.36", "curl/8.0"];
    let msie = "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)";
    let mut case =
        Case::http("server { listen %%PORT%%; root %%PREFIX%%/none; location /m { return 301 /x; } }");
    for agent in agents.iter().chain([&msie]) {
        for path in ["/", "/m"] {
            case = case.ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\nUser-Agent: {agent}\r\n\r\n"));
        }
    }
    case.with_access_log().run();
}

#[test]
fn what_comes_behind_an_error() {
    let config = "
        server { listen %%PORT%%; root %%PREFIX%%/site; error_page 404 /404.html;
            location /closed { try_files $uri =444; }
            location /named { error_page 404 = @named; }
            location @named { return 200 named; }
            location /teapot { error_page 404 =418 @named; }
            location /other { error_page 404 =200 /404.html; }
            location /dropped { return 200 dropped; } }";
    let post = |path: &str| {
        let head = "HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";
        Exchange::new(format!("POST {path} {head}body"))
    };
    let get = |path: &str, line: &str| {
        Exchange::new(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{line}\r\nConnection: close\r\n\r\n"))
    };
    Case::http(config)
        .file("site/404.html", "own 404\n")
        .exchange(get("/closed", "X: y").answers(0))
        // A client that gets an error is not told to send its body.
        .exchange(post("/nothing"))
        .exchange(post("/teapot"))
        .exchange(post("/named").answers(2))
        .exchange(post("/other").answers(2))
        .exchange(post("/dropped").answers(2))
        // The log has what is said here, whatever is sent.
        .exchange(get("/other", "Range: bytes=2-3"))
        .exchange(get("/other", "If-None-Match: *"))
        .exchange(get("/404.html", "If-None-Match: *"))
        .with_access_log()
        .run();
}
