//! Locations that pass requests on, together with what other modules do: subrequests that somebody waits for
//! or nobody, pages in place of others, filters; and which other servers are asked when one fails.

use clearway_testkit::{Case, Exchange};

/// Two servers; the second one has an answer for everything.
const ORIGINS: &str = "
    map $uri $said { default ''; ~/s503 503; ~/s500 500; ~/s404 404; ~/s403 403; ~/s429 429; ~/s502
        502; ~/s504 504; }
    upstream both { server 127.0.0.1:%%PORT2%% max_fails=0; server 127.0.0.1:%%PORT3%% max_fails=0; }
    upstream spare { server 127.0.0.1:%%PORT2%% max_fails=0; server 127.0.0.1:%%PORT3%% backup; }
    upstream dead { server 127.0.0.1:1 max_fails=0; server 127.0.0.1:2 max_fails=0; }
    server { listen %%PORT2%%; root %%PREFIX%%/origin; add_header X-From first always;
        location / { if ($said = 503) { return 503 first; } if ($said = 500) { return 500 first; }
                     if ($said = 404) { return 404 first; } if ($said = 403) { return 403 first; }
                     if ($said = 429) { return 429 first; } if ($said = 502) { return 502 first; }
                     if ($said = 504) { return 504 first; } }
        location /say { return 200 '$request_method $request_uri $http_range $http_x_user $content_length|'; }
        location /who { return 200 '$remote_addr'; }
        location /auth/ { add_header X-User u-$arg_u always; add_header Set-Cookie a=b always; }
        location /auth/yes { add_header X-User u-$arg_u always; return 204; }
        location /auth/no { add_header WWW-Authenticate 'Basic realm=r' always; return 401 no; }
        location /auth/never { return 403 never; } location /auth/odd { return 500 odd; }
        location /page { default_type text/html; ssi on; return 200 '<b><!--# echo var=\"uri\" --></b>'; }
        location /html { default_type text/html; return 200 'a <b>text</b> to look at, long enough to pack'; }
        location /away { add_header X-Accel-Redirect /further/say?x always; return 200; }
    }
    server { listen %%PORT3%%; add_header X-From second always; return 200 'second $request_method'; }";

fn case(locations: &str) -> Case {
    Case::http(&format!("{ORIGINS} server {{ listen %%PORT%%; root %%PREFIX%%/html; {locations} }}"))
        .file("origin/a.txt", "0123456789abcdefghijklmnopqrstuvwxyz")
        .file("origin/empty.txt", "")
        .file("html/t.txt", "a file\n")
        .file(
            "html/ssi.html",
            "<!--# include virtual=\"/p/say?1\" -->-<!--# include virtual=\"/p/s404\" -->-\
             <!--# include virtual=\"/dead/\" stub=\"none\" -->\
              <!--# block name=\"none\" -->stub<!--# endblock -->\
             <!--# include virtual=\"/p/say\" set=\"kept\" -->-<!--# echo var=\"kept\" -->-\
             <!--# include virtual=\"/p/page\" wait=\"yes\" -->",
        )
}

fn ask(case: Case, requests: &[&str]) -> Case {
    requests.iter().fold(case, |case, lines| {
        let (first, rest) = lines.split_once('\n').unwrap_or((lines, ""));
        let (rest, body) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let rest =
            if rest.is_empty() { String::new() } else { format!("{}\r\n", rest.replace('\n', "\r\n")) };
        case.ask(format!("{first} HTTP/1.1\r\nHost: a\r\n{rest}\r\n{body}"))
    })
}

#[test]
fn other_servers_are_asked_as_it_is_said() {
    let asked = "add_header X-Asked '$upstream_addr $upstream_status' always;";
    let case = case(&format!(
        "{asked}
        location / {{ proxy_pass http://spare; }}
        location /all/ {{ proxy_pass http://spare/; proxy_next_upstream error timeout invalid_header http_500
                          http_502 http_503 http_504 http_403 http_404 http_429; }}
        location /any/ {{ proxy_pass http://spare/; proxy_next_upstream http_503 non_idempotent; }}
        location /some/ {{ proxy_pass http://spare/; proxy_next_upstream http_503 http_404; }}
        location /off/ {{ proxy_pass http://spare/; proxy_next_upstream off; }}
        location /once/ {{ proxy_pass http://spare/; proxy_next_upstream http_503;
            proxy_next_upstream_tries 1; }}
        location /twice/ {{ proxy_pass http://spare/; proxy_next_upstream http_503;
            proxy_next_upstream_tries 2;
                            proxy_next_upstream_timeout 10s; }}
        location /caught/ {{ proxy_pass http://spare/; proxy_intercept_errors on;
            error_page 503 404 = /p/say; }}
        location /dead/ {{ proxy_pass http://dead; proxy_connect_timeout 1s; }}
        location /dead/once/ {{ proxy_pass http://dead; proxy_next_upstream_tries 1; }}
        location /dead/off/ {{ proxy_pass http://dead; proxy_next_upstream off; }}
        location /p/ {{ proxy_pass http://spare/; }}"
    ));
    let mut requests = Vec::new();
    for status in [503, 500, 404, 403, 429, 502, 504] {
        for prefix in ["/", "/all/", "/some/"] {
            requests.push(format!("GET {prefix}s{status}"));
        }
    }
    for prefix in ["/off/", "/once/", "/twice/", "/any/", "/some/", "/caught/"] {
        requests.push(format!("GET {prefix}s503"));
        requests.push(format!("POST {prefix}s503\nContent-Length: 2\n\nab"));
    }
    requests.extend(["/dead/", "/dead/once/", "/dead/off/"].map(|path| format!("GET {path}")));
    let requests: Vec<_> = requests.iter().map(String::as_str).collect();
    ask(case, &requests).run();
}

#[test]
fn who_may_is_asked_elsewhere() {
    let case = case(
        "location /in/ { auth_request /ask/$arg_ask; auth_request_set $user $upstream_http_x_user;
                         auth_request_set $code $upstream_status;
                         auth_request_set $biscuit $upstream_cookie_a;
                         proxy_set_header X-User '$user,$code,$biscuit'; proxy_pass http://both/; }
        location /file { auth_request /auth; auth_request_set $user $upstream_http_x_user; alias html/t.txt;
                         add_header X-User '$user' always; error_page 401 = @login; }
        location = /auth { internal; proxy_pass http://127.0.0.1:%%PORT2%%/auth/$arg_ask?u=$arg_u;
                           proxy_pass_request_body off; proxy_set_header Content-Length ''; }
        location /ask/ { internal; proxy_pass http://127.0.0.1:%%PORT2%%/auth/; }
        location /yes/ { auth_request /ask/yes; auth_request_set $user $upstream_http_x_user;
                         proxy_set_header X-User $user; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /no/ { auth_request /ask/no; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /never/ { auth_request /ask/never; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /odd/ { auth_request /ask/odd; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /down/ { auth_request /dead; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location = /dead { proxy_pass http://dead; }
        location @login { return 302 /login?then=$request_uri; }",
    );
    ask(
        case,
        &[
            "GET /yes/say",
            "POST /yes/say\nContent-Length: 3\n\nabc",
            "GET /yes/s404",
            "GET /no/say",
            "POST /no/say\nContent-Length: 3\n\nabc",
            "GET /never/say",
            "GET /odd/say",
            "GET /down/say",
            "GET /file?ask=yes&u=me",
            "GET /file?ask=no&u=me",
            "GET /file?ask=never",
            "HEAD /file?ask=yes&u=you",
        ],
    )
    .run();
}

#[test]
fn requests_are_mirrored_to_other_servers() {
    let case = Case::http(
        "log_format w '$server_port $request_method $uri $content_length $http_x_a';
            access_log logs/access.log w;
        server { listen %%PORT2%%; location / { return 200 main; } }
        server { listen %%PORT3%%; location / { return 500 mirror; } }
        server { listen %%PORT%%;
            location / { mirror /m; proxy_pass http://127.0.0.1:%%PORT2%%; }
            location /two/ { mirror /m; mirror /n; proxy_pass http://127.0.0.1:%%PORT2%%; }
            location /bare/ { mirror /n; mirror_request_body off; proxy_pass http://127.0.0.1:%%PORT2%%; }
            location = /m { internal; proxy_pass http://127.0.0.1:%%PORT3%%$request_uri; }
            location = /n { internal; proxy_pass http://127.0.0.1:%%PORT3%%/n; proxy_pass_request_body off;
                            proxy_set_header Content-Length ''; proxy_set_header X-A n; } }",
    )
    .with_access_log();
    ask(
        case,
        &[
            "GET /a?b",
            "POST /a\nContent-Length: 3\n\nabc",
            "GET /two/x",
            "POST /two/x\nContent-Length: 3\n\nabc",
            "POST /bare/x\nContent-Length: 3\n\nabc",
        ],
    )
    .run();
}

#[test]
fn responses_stand_in_others_and_in_their_place() {
    let case = case(
        "ssi off;
        location /p/ { proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /dead/ { proxy_pass http://dead; }
        location = /ssi.html { ssi on; }
        location /around/ { add_before_body /p/say?before; add_after_body /p/say?after; addition_types *;
                            proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /sub/ { sub_filter <b> <i>; sub_filter_types *; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /ssi/ { ssi on; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /expires/ { expires 1h; add_header X-Up $upstream_http_x_from;
                             proxy_pass http://127.0.0.1:%%PORT2%%/; proxy_hide_header X-From; }
        location /try/ { try_files $uri /t.txt$arg_no @try; }
        location @try { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /instead/ { error_page 404 = @try; alias html/none/; }
        location /chain/ { proxy_intercept_errors on; error_page 404 = @second;
                           proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location @second { proxy_intercept_errors on; recursive_error_pages on; error_page 503 = @third;
                           proxy_pass http://127.0.0.1:%%PORT2%%/s503$arg_x; }
        location @third { return 200 '$upstream_status $upstream_addr'; }
        location /kept/ { proxy_intercept_errors on; error_page 404 /p/say; error_page 503 =418 /p/say;
                          proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /further/ { internal; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /limited/ { limit_except GET { proxy_pass http://127.0.0.1:%%PORT2%%; } return 200 got; }
        location /ranged/ { proxy_force_ranges on; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /rewritten { rewrite ^ /p/say?new last; }",
    );
    ask(
        case,
        &[
            "GET /ssi.html",
            "GET /around/say",
            "GET /around/s404",
            "HEAD /around/say",
            "GET /sub/html",
            "GET /sub/a.txt",
            "GET /ssi/page",
            "GET /expires/say",
            "GET /try/t.txt",
            "GET /try/say",
            "GET /try/say?no=x",
            "GET /instead/say?a=b",
            "GET /chain/s404",
            "GET /chain/s404?x=y",
            "GET /chain/say",
            "GET /kept/s404",
            "GET /kept/s503",
            "POST /kept/s404\nContent-Length: 3\n\nabc",
            "GET /p/away",
            "HEAD /p/away",
            "GET /limited/say",
            "DELETE /limited/say",
            "GET /p/a.txt\nRange: bytes=2-5",
            "GET /ranged/a.txt\nRange: bytes=2-5",
            "GET /ranged/say\nRange: bytes=2-5",
            "GET /p/a.txt\nIf-Modified-Since: Tue, 02 Jan 2024 03:04:05 GMT",
            "GET /p/a.txt\nIf-None-Match: \"65937d25-24\"",
            "GET /p/empty.txt",
            "GET /rewritten",
        ],
    )
    .run();
}

#[test]
fn files_are_fetched_in_slices() {
    let mut case = case(
        "location / { slice 10; proxy_set_header Range $slice_range; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /whole/ { slice 100; proxy_set_header Range $slice_range;
            proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /named { slice 7; try_files /none @named; }
        location @named { slice 7; proxy_set_header Range $slice_range;
                          proxy_pass http://127.0.0.1:%%PORT2%%/a.txt$arg_no; }
        location /none/ { slice 10; proxy_pass http://127.0.0.1:%%PORT2%%/; }",
    );
    for path in ["/a.txt", "/whole/a.txt", "/named", "/none/a.txt"] {
        for range in ["", "Range: bytes=3-4", "Range: bytes=5-25", "Range: bytes=-3", "Range: bytes=35-"] {
            case = ask(case, &[format!("GET {path}\n{range}").trim_end()]);
        }
    }
    ask(case, &["HEAD /a.txt", "GET /s404", "GET /empty.txt", "GET /say"]).run();
}

#[test]
fn connections_are_made_as_it_is_said() {
    let case = case(
        "location / { proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /bound/ { proxy_bind 127.0.0.3; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /asked/ { proxy_bind $arg_from; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /unbound/ { proxy_bind off; proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /tuned/ { proxy_socket_keepalive on; proxy_socket_rcvbuf 32k; proxy_socket_sndbuf 32k;
                           proxy_send_lowat 0; proxy_send_timeout 5s; proxy_read_timeout 5s;
                           proxy_connect_timeout 5s; proxy_ignore_client_abort on; proxy_limit_rate 1m;
                           proxy_busy_buffers_size 16k; proxy_buffers 8 8k; proxy_temp_file_write_size 16k;
                           proxy_headers_hash_max_size 512; proxy_headers_hash_bucket_size 64;
                           proxy_no_cache $arg_a; proxy_cache_bypass $arg_a;
                           proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /bodiless/ { proxy_pass_request_body off; proxy_set_header Content-Length '';
                              proxy_pass http://127.0.0.1:%%PORT2%%/; }
        location /shown
            { return 200 '$upstream_cache_status|$upstream_cache_etag|$upstream_cache_last_modified|'; }
        location /shown/ { add_header X-Cache '[$upstream_cache_status$upstream_cache_etag]';
                           proxy_pass http://127.0.0.1:%%PORT2%%/; }",
    );
    ask(
        case,
        &[
            "GET /who",
            "GET /bound/who",
            "GET /asked/who?from=127.0.0.4",
            "GET /asked/who?from=x",
            "GET /asked/who",
            "GET /unbound/who",
            "GET /tuned/who",
            "POST /tuned/say\nContent-Length: 4\n\nabcd",
            "POST /bodiless/say\nContent-Length: 4\n\nabcd",
            "GET /shown",
            "GET /shown/say",
        ],
    )
    .run();
}

#[test]
fn bodies_are_passed_on_as_they_come() {
    let case = case(
        "proxy_request_buffering off;
        location / { add_header X-Body '[$request_body]'; proxy_pass http://127.0.0.1:%%PORT2%%; }
        location /page/ { proxy_pass http://127.0.0.1:%%PORT2%%/; proxy_intercept_errors on;
                          error_page 404 = /echo; }
        location = /echo { return 200 '[$request_body]'; }",
    );
    let request = |path: &str, lines: &str, body: &str| {
        format!("POST {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{body}")
    };
    let counted =
        |path: &str, length: usize| request(path, &format!("Content-Length: {length}"), &"x".repeat(length));
    case.ask(counted("/say", 5))
        .ask(counted("/say", 1300))
        .ask(counted("/page/s404", 7))
        .ask(request("/say", "Transfer-Encoding: chunked", "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"))
        .exchange(Exchange::new(counted("/say", 9) + &counted("/page/s404", 8)).answers(2))
        .run();
}

#[test]
fn what_takes_the_place_of_a_response_has_its_type_and_charset() {
    let mut case = Case::http(
        "server { listen %%PORT2%%; default_type $arg_t; add_header X-Accel-Redirect /inside/$arg_f;
             location / { return 200; } }
         server { listen %%PORT%%; root %%PREFIX%%/html; gzip on; gzip_vary on; gzip_min_length 100;
             gzip_types text/css; location / { proxy_pass http://127.0.0.1:%%PORT2%%; }
             location /inside/ { alias %%PREFIX%%/html/; } }",
    )
    .file("html/a.css", "a { color: red }\n".repeat(20));
    for kind in
        ["text/html;%20charset=utf-8", "text/css;charset=x", "text/plain;%20charset=utf-8", "text/css"]
    {
        case = case.get(&format!("/x?f=a.css&t={kind}")).get(&format!("/x?f=none&t={kind}"));
    }
    case.run();
}
