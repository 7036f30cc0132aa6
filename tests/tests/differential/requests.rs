//! What is taken of a request's head, the pages for errors on the way to pages for errors, browsers of the
//! past, and variables of the connection.

use clearway_testkit::{Case, Exchange};

#[test]
fn slashes_in_a_row() {
    let paths =
        ["/a//b", "/a///b//", "//a", "/a//../b", "/a///../b", "/a/.//b", "/%2f/a%2F%2fb", "/a//b?c=//d"];
    for merge in ["on", "off"] {
        let case = Case::http(&format!(
            "merge_slashes {merge};
             server {{ listen %%PORT%%; location / {{ return 200 '$uri|$request_uri|$args'; }} }}"
        ));
        paths.iter().fold(case, |case, path| case.get(path)).run();
    }
}

#[test]
fn names_of_headers() {
    let lines = ["X_Own: 1", "X-Own: 2", "X!Own: 3", "X.Own: 4", "X Own: 5", " X-Own: 6", ": 7", "X_: 8"];
    for directives in [
        "",
        "underscores_in_headers on;",
        "ignore_invalid_headers off;",
        "ignore_invalid_headers off; underscores_in_headers on;",
    ] {
        let case = Case::http(&format!(
            "{directives} server {{ listen %%PORT%%; location / {{ return 200 '$http_x_own|$http_x_'; }} }}"
        ));
        let ask = |line: &&str| format!("GET / HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n");
        lines.iter().map(ask).fold(case, Case::ask).run();
    }
}

#[test]
fn pages_on_the_way_to_pages() {
    for recursive in ["on", "off"] {
        Case::http(&format!(
            "recursive_error_pages {recursive};
             server {{
                listen %%PORT%%;
                error_page 404 /second;
                error_page 403 =200 /third;
                location /first {{ return 404; }}
                location /second {{ return 403; }}
                location /third {{ return 200 third; }}
                location /named {{ error_page 404 @a; return 404; }}
                location @a {{ error_page 500 = @b; return 500; }}
                location @b {{ return 201 b; }}
                location /turning {{ error_page 405 /turning; return 405; }}
                location /off {{ recursive_error_pages off; return 404; }}
             }}"
        ))
        .get("/first")
        .get("/second")
        .get("/none")
        .get("/named")
        .get("/turning")
        .get("/off")
        .run();
    }
}

#[test]
fn browsers_of_the_past() {
    let agents = [
        "MSIE foo",
        "Mozilla/4.0 (compatible; MSIE 6.0; Windows NT 5.1)",
        "Mozilla/4.0 (compatible; MSIE 6.0) Opera 9",
        "Mozilla/5.0 AppleWebKit/537.36 Chrome/120 Safari/537.36",
        "Mozilla/5.0 Gecko/20100101 Chrome/1",
        "curl/8",
    ];
    let mut case = Case::http(
        "server {
            listen %%PORT%%;
            msie_refresh on;
            location /moved { return 301 '/a b?<\"~'; }
            location /found { return 302 http://other.test/; }
            location /see { return 303 /x; }
            location /page { error_page 404 =303 http://other.test/x; return 404; }
            location /error { return 404; }
            location /short { msie_padding off; return 404; }
            location /off { msie_refresh off; return 301 /x; }
         }",
    );
    for agent in agents {
        for path in ["/moved", "/found", "/see", "/page", "/error", "/short", "/off"] {
            case = case.ask(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\r\n"));
        }
    }
    case.exchange(Exchange::new("HEAD /moved HTTP/1.1\r\nHost: localhost\r\nUser-Agent: MSIE foo\r\n\r\n"))
        .run();
}

#[test]
fn what_the_kernel_knows_of_a_connection() {
    Case::http(
        "map $tcpinfo_rtt $rtt { ~^[0-9]+$ some; default none; }
         map $tcpinfo_rttvar $rttvar { ~^[0-9]+$ some; default none; }
         map $tcpinfo_snd_cwnd $cwnd { ~^[0-9]+$ some; default none; }
         map $tcpinfo_rcv_space $space { ~^[0-9]+$ some; default none; }
         server {
            listen %%PORT%%; listen unix:%%PREFIX%%/a.sock;
            location / { return 200 '$rtt $rttvar $cwnd $space'; }
         }",
    )
    .get("/")
    .exchange(Exchange::new("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").to("unix:%%PREFIX%%/a.sock"))
    .run();
}

#[test]
fn sizes_that_only_nginx_needs() {
    Case::http(
        "connection_pool_size 256; request_pool_size 8k; server_names_hash_max_size 1024;
         server_names_hash_bucket_size 128; variables_hash_max_size 2048; variables_hash_bucket_size 128;
         server { listen %%PORT%%; connection_pool_size 1k; location / { return 204; } }",
    )
    .get("/")
    .run();
}
