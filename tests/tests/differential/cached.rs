//! `proxy_cache`: which responses are kept, under what, and what is answered from them. The origin is a
//! server of the same process that says which request it was asked by (`X-N`), so an answer shows whether it
//! came from the cache. Times are kept out: what is to be old was so when it was stored
//! (`X-Accel-Expires: @1`).

use clearway_testkit::Case;

const CACHES: &str = "proxy_cache_path %%PREFIX%%/one keys_zone=one:1m levels=1:2;
    proxy_cache_path %%PREFIX%%/two keys_zone=two:1m use_temp_path=off inactive=1d max_size=1g min_free=1k
                     loader_files=10 loader_sleep=50ms loader_threshold=1s
                     manager_files=10 manager_sleep=50ms manager_threshold=1s;";

const ORIGIN: &str = "server { listen %%PORT2%%; default_type text/plain; root %%PREFIX%%/origin;
    add_header X-Accel-Expires $arg_xa always; add_header Cache-Control $arg_cc always;
    add_header Set-Cookie $arg_sc always; add_header Vary $arg_vary always;
    add_header X-Origin $http_x_n always;
    location / { return 200 '$request_method $request_uri $http_x_n'; }
    location /status/ { if ($uri ~ /(\\d+)$) { set $code $1; }
        if ($code = 201) { return 201 a$http_x_n; } if ($code = 204) { return 204; }
        if ($code = 206) { return 206 a$http_x_n; } if ($code = 301) { return 301 /x$http_x_n; }
        if ($code = 302) { return 302 /x$http_x_n; } if ($code = 304) { return 304; }
        if ($code = 307) { return 307 /x$http_x_n; } if ($code = 403) { return 403 a$http_x_n; }
        if ($code = 404) { return 404 a$http_x_n; } if ($code = 416) { return 416 a$http_x_n; }
        if ($code = 500) { return 500 a$http_x_n; } if ($code = 503) { return 503 a$http_x_n; } }
    location /unsteady/ { if ($http_x_status = 404) { return 404 missing; }
        if ($http_x_status = 403) { return 403 denied; } if ($http_x_status = 429) { return 429 slow; }
        if ($http_x_status = 500) { return 500 broken; } if ($http_x_status = 503) { return 503 away; }
        return 200 'steady $http_x_n'; }
    location /expires/ { add_header Expires $arg_exp; return 200 $http_x_n; }
    location /accel/ { add_header X-Accel-Redirect /inside/$http_x_n; return 200; }
    location /cookie/ { add_header Set-Cookie 'a=$http_x_n; path=/b/'; add_header X-Hidden $http_x_n;
                        return 200 $http_x_n; }
    location /asked/ { return 200 '$http_range|$http_if_range|$http_if_modified_since|$http_if_none_match';}
    location /files/ { alias %%PREFIX%%/origin/; }
    location /ssi/ { return 200 '<!--#echo var=\"arg_n\" --> $http_x_n'; } }";

/// The cases below have `locations`, behind which all is kept for a minute unless they say something else.
fn case(locations: &str) -> Case {
    Case::http(&format!(
        "{CACHES} {ORIGIN} server {{ listen %%PORT%%; proxy_cache one; \
         add_header X-Cache $upstream_cache_status;
        {locations} }}"
    ))
    .file("origin/digits", "0123456789".repeat(10))
    .file("origin/large", "0123456789abcdef".repeat(20_000))
    .file("origin/page.html", "a page".repeat(100))
}

/// Asks what stands between semicolons, each time with another number: `GET PATH`, or with lines behind bars.
fn ask(case: Case, requests: &str) -> Case {
    requests.split(';').enumerate().fold(case, |case, (number, request)| {
        let mut parts = request.trim().split('|');
        let line = parts.next().unwrap_or_default();
        let lines = parts.fold(String::new(), |all, line| format!("{all}{line}\r\n"));
        case.ask(format!("{line} HTTP/1.1\r\nHost: a\r\nX-N: {}\r\n{lines}\r\n", number + 1))
    })
}

const PASS: &str = "proxy_pass http://127.0.0.1:%%PORT2%%;";

#[test]
fn responses_are_found_by_their_keys() {
    let case = case(&format!(
        "proxy_cache_valid 1m;
        location / {{ {PASS} }}
        location /a/ {{ proxy_pass http://127.0.0.1:%%PORT2%%/b/; }}
        location /key/ {{ proxy_cache_key $arg_k; {PASS} }}
        location /same/ {{ proxy_cache_key same; {PASS} }}
        location /empty/ {{ proxy_cache_key ''; {PASS} }}
        location /named/ {{ proxy_cache $arg_zone; {PASS} }}
        location /two/ {{ proxy_cache two; proxy_cache_key same; {PASS} }}
        location /off/ {{ proxy_cache off; {PASS} }}
        location /long/ {{ proxy_buffer_size 1k; proxy_buffers 4 1k; proxy_busy_buffers_size 2k; {PASS} }}
        location /if/ {{ if ($arg_x) {{ {PASS} }} return 403; }}
        location /rewritten/ {{ rewrite ^/rewritten/(.*) /$1 break; {PASS} }}"
    ));
    let long = format!("GET /long/{}", "x".repeat(900));
    ask(
        case,
        &format!(
            "GET /x; GET /x; GET /x?; GET /x?a; GET /x?a; GET /%78; GET //x; HEAD /x; HEAD /y; GET /y; \
         GET /a/x; GET /b/x; GET /a/x; GET /key/1?k=1; GET /key/2?k=1; GET /key/2?k=2; GET /key/3; \
         GET /key/4; GET /same/1; GET /same/2; GET /two/1; GET /two/2; GET /empty/1; GET /empty/2; \
         GET /named/1?zone=one; GET /named/1?zone=one; GET /named/1?zone=two; GET /named/1?zone=two; \
         GET /named/1?zone=off; GET /named/1?zone=; GET /named/1; GET /named/1?zone=three; \
         GET /off/1; GET /off/1; {long}; {long}; GET /if/1?x=1; GET /if/1?x=1; GET /if/1; \
         GET /rewritten/q; GET /rewritten/q; GET /q"
        ),
    )
    .run();
}

#[test]
fn what_is_kept_is_up_to_the_response_and_the_location() {
    let case = case(&format!(
        "location / {{ {PASS} }}
        location /valid/ {{ proxy_cache_valid 1m; proxy_pass http://127.0.0.1:%%PORT2%%/; }}
        location /zero/ {{ proxy_cache_valid 0; proxy_pass http://127.0.0.1:%%PORT2%%/; }}
        location /some/ {{ proxy_cache_valid 404 500 1m; proxy_cache_valid 200 0;
                           proxy_pass http://127.0.0.1:%%PORT2%%/; }}
        location /any/ {{ proxy_cache_valid 404 0; proxy_cache_valid any 1m;
                          proxy_pass http://127.0.0.1:%%PORT2%%/; }}
        location /ignoring/ {{ proxy_cache_valid 1m; proxy_ignore_headers X-Accel-Expires \
         Cache-Control Expires
                               Set-Cookie Vary; proxy_pass http://127.0.0.1:%%PORT2%%/; }}
        location /unbuffered/ {{ proxy_buffering off; proxy_cache_valid 1m;
                                 proxy_pass http://127.0.0.1:%%PORT2%%/; }}"
    ));
    let args = "cc=max-age=60 cc=max-age=0 cc=max-age=x cc=s-maxage=60 cc=s-maxage=0,max-age=60 cc=no-cache \
        cc=no-store cc=private cc=public cc=max-age=60,private cc=stale-while-revalidate=60 \
        cc=stale-if-error=60 cc=max-age=60,stale-if-error=9 xa=60 xa=0 xa=@1 xa=@9999999999 xa=off \
        xa=-1 xa=60&cc=no-cache xa=0&cc=max-age=60 sc=a=b sc=a=b&xa=60 vary=* vary=*&xa=60 \
        xa=60&vary=X-V a=b";
    let mut requests = Vec::new();
    for prefix in ["", "/valid", "/ignoring"] {
        for args in args.split(' ') {
            requests.extend([format!("GET {prefix}/x?{args}"), format!("GET {prefix}/x?{args}")]);
        }
    }
    for prefix in ["/valid", "/some", "/any"] {
        for code in [200, 201, 204, 206, 301, 302, 304, 307, 403, 404, 416, 500, 503] {
            requests.extend([format!("GET {prefix}/status/{code}"), format!("GET {prefix}/status/{code}")]);
        }
    }
    for code in [200, 404, 503] {
        let path = format!("GET /status/{code}?cc=max-age=60");
        requests.extend([path.clone(), path]);
    }
    for date in ["Thu,%2001%20Jan%201970%2000:00:01%20GMT", "0", "max"] {
        let path = format!("GET /expires/x?exp={date}");
        requests.extend([path.clone(), path]);
    }
    for path in ["GET /zero/x", "GET /unbuffered/x"] {
        requests.extend([path.to_owned(), path.to_owned()]);
    }
    ask(case, &requests.join(";")).run();
}

#[test]
fn requests_may_pass_the_cache_by() {
    let case = case(&format!(
        "proxy_cache_valid 1m;
        location / {{ proxy_cache_bypass $arg_bypass $http_x_bypass; proxy_no_cache $arg_not $http_x_not;
                      {PASS} }}
        location /key/ {{ proxy_cache_key same; proxy_cache_bypass $arg_bypass; \
         proxy_no_cache $upstream_http_vary;
                          {PASS} }}
        location /posts/ {{ proxy_cache_methods POST; {PASS} }}
        location /gets/ {{ proxy_cache_methods GET; {PASS} }}
        location /twice/ {{ proxy_cache_min_uses 2; {PASS} }}
        location /thrice/ {{ proxy_cache_min_uses 3; {PASS} }}
        location /limited/ {{ proxy_cache_key $uri; proxy_cache_max_range_offset 10; {PASS} }}
        location /never/ {{ proxy_cache_key $uri; proxy_cache_max_range_offset 0; {PASS} }}"
    ));
    ask(
        case,
        "GET /x; GET /x; GET /x|X-Bypass: 1; GET /x; GET /x|X-Bypass: 0; GET /x|X-Bypass:; \
         GET /x|X-Bypass: 1|X-Not: 1; GET /x; GET /y|X-Not: 1; GET /y; GET /y|X-Not: 1; GET /key/1; \
         GET /key/2?bypass=1; GET /key/1; GET /key/1?bypass=1&vary=X; GET /key/1; \
         POST /posts/x|Content-Length: 0; POST /posts/x|Content-Length: 0; GET /posts/x; \
         HEAD /posts/x; PUT /posts/x|Content-Length: 0; POST /gets/x|Content-Length: 0; GET /gets/x; \
         GET /gets/x; POST /gets/x|Content-Length: 0; GET /twice/x; GET /twice/x; GET /twice/x; \
         GET /thrice/x; GET /thrice/x; GET /thrice/x; GET /thrice/x; \
         GET /limited/digits|Range: bytes=5-6; GET /limited/digits|Range: bytes=20-25; \
         GET /limited/digits|Range: bytes=-5; GET /limited/digits; \
         GET /limited/more|Range: bytes=10-; GET /limited/more|Range: bytes=9-; GET /limited/more; \
         GET /never/x|Range: bytes=0-1; GET /never/x; GET /never/x; GET /never/x|Range: bytes=0-1",
    )
    .run();
}

#[test]
fn variants_are_kept_apart() {
    let case = case(&format!("proxy_cache_valid 1m; location / {{ {PASS} }}"));
    ask(
        case,
        "GET /x?vary=X-V|X-V: a; GET /x?vary=X-V|X-V: a; GET /x?vary=X-V|X-V: b; \
         GET /x?vary=X-V|X-V: b; GET /x?vary=X-V|X-V: a; GET /x?vary=X-V; GET /x?vary=X-V; \
         GET /x?vary=X-V|X-V:; GET /x?vary=X-V|X-V: A; GET /x?vary=X-V|X-V: a|X-V: b; \
         GET /x?vary=X-V|X-V: a, b; GET /y?vary=X-V,x-w|X-V: a|X-W: b; \
         GET /y?vary=X-V,x-w|X-W: b|X-V: a; GET /y?vary=X-V,x-w|X-V: a|X-W: c; \
         GET /z?vary=Accept-Encoding|Accept-Encoding: gzip, br; \
         GET /z?vary=Accept-Encoding|Accept-Encoding: gzip,br; \
         GET /z?vary=Accept-Encoding|Accept-Encoding: br; GET /z?vary=X-V,*; GET /z?vary=X-V,*; \
         GET /z?vary=,|X-V: a; GET /z?vary=,; HEAD /x?vary=X-V|X-V: b",
    )
    .run();
}

#[test]
fn old_responses_are_validated_or_stand_in() {
    let case = case(&format!(
        "proxy_cache_key $uri; proxy_cache_valid 1m;
        add_header X-Cache $upstream_cache_status always; add_header X-Up $upstream_status always;
        location / {{ {PASS} }}
        location /files/ {{ proxy_cache_revalidate on; {PASS} }}
        location /plain/ {{ proxy_pass http://127.0.0.1:%%PORT2%%/files/; }}
        location /asked/ {{ proxy_cache_revalidate on; {PASS} }}
        location /unsteady/some/ {{ proxy_cache_use_stale http_404 http_503; {PASS} }}
        location /unsteady/most/ {{ proxy_cache_use_stale error timeout invalid_header \
         http_500 http_502 http_503
                                    http_504 http_403 http_404 http_429 updating; {PASS} }}
        location /unsteady/none/ {{ proxy_cache_use_stale off; {PASS} }}
        location /unsteady/page/ {{ proxy_intercept_errors on; error_page 404 =200 /asked/page; {PASS} }}
        location /unsteady/dead/ {{ set $port %%PORT2%%; if ($http_x_dead) {{ set $port 1; }}
                                    proxy_cache_use_stale error; proxy_pass http://127.0.0.1:$port; }}
        location /unsteady/ended/ {{ set $port %%PORT2%%; if ($http_x_dead) {{ set $port 1; }}
                                     proxy_cache_use_stale timeout; proxy_pass http://127.0.0.1:$port; }}"
    ));
    let mut requests: Vec<String> =
        ["GET /x?xa=@1", "GET /x?xa=@1", "GET /x", "GET /x"].map(str::to_owned).into();
    for path in ["/files/digits", "/plain/digits", "/asked/x"] {
        requests.extend((0..3).map(|_| format!("GET {path}?xa=@1")));
        requests.extend((0..2).map(|_| format!("GET {path}")));
    }
    requests.push("GET /files/page.html?xa=@1|If-None-Match: *".to_owned());
    requests.push("GET /files/page.html?xa=@1|If-None-Match: *".to_owned());
    for place in ["some", "most", "none"] {
        for status in [404, 403, 429, 500, 503] {
            let path = format!("GET /unsteady/{place}/{status}");
            requests.push(format!("{path}?xa=@1"));
            requests.push(format!("{path}?xa=@1|X-Status: {status}"));
            requests.push(format!("{path}?xa=@1|X-Status: {status}"));
            requests.push(path);
        }
    }
    for said in ["stale-if-error=60", "max-age=1,stale-if-error=60", "stale-while-revalidate=60"] {
        let path = format!("GET /unsteady/none/{said}?cc={said}&xa=@1");
        requests.extend([path.clone(), format!("{path}|X-Status: 503"), path]);
    }
    for place in ["dead", "ended"] {
        let path = format!("GET /unsteady/{place}/x?xa=@1");
        requests.extend([path.clone(), format!("{path}|X-Dead: 1"), path]);
    }
    requests.extend(["GET /unsteady/page/x|X-Status: 404", "GET /unsteady/page/x"].map(str::to_owned));
    ask(case, &requests.join(";")).run();
}

#[test]
fn heads_may_be_fetched_as_wholes() {
    let case = case(&format!(
        "proxy_cache_valid 1m;
        location / {{ {PASS} }}
        location /apart/ {{ proxy_cache_convert_head off; proxy_cache_key $request_method$uri; {PASS} }}
        location /mixed/ {{ proxy_cache_convert_head off; {PASS} }}
        location /method/ {{ proxy_method POST; {PASS} }}"
    ));
    ask(
        case,
        "HEAD /x; GET /x; HEAD /x; HEAD /apart/x; HEAD /apart/x; GET /apart/x; GET /apart/x; \
         HEAD /apart/x; HEAD /mixed/x; HEAD /mixed/x;  HEAD /method/x; GET /method/x; \
         HEAD /files/digits; GET /files/digits|Range: bytes=-3; HEAD /files/none; HEAD /status/301; \
         GET /status/301",
    )
    .run();
}

#[test]
fn parts_and_conditions_are_judged_by_the_cache() {
    let case = case(&format!(
        "proxy_cache_valid 1m; proxy_cache_key $uri;
        location / {{ {PASS} }}
        location /forced/ {{ proxy_force_ranges on; {PASS} }}
        location /hidden/ {{ proxy_hide_header ETag; proxy_hide_header Last-Modified;
                             proxy_pass http://127.0.0.1:%%PORT2%%/files/; }}
        location /some/ {{ max_ranges 1; proxy_pass http://127.0.0.1:%%PORT2%%/files/; }}"
    ));
    let tag = "\"65937d25-64\"";
    let time = "Tue, 02 Jan 2024 03:04:05 GMT";
    let lines = [
        "Range: bytes=5-9".to_owned(),
        "Range: bytes=0-0,-1".to_owned(),
        "Range: bytes=99-".to_owned(),
        "Range: bytes=100-".to_owned(),
        "Range: bytes=x".to_owned(),
        format!("Range: bytes=5-9|If-Range: {tag}"),
        "Range: bytes=5-9|If-Range: \"x\"".to_owned(),
        format!("Range: bytes=5-9|If-Range: {time}"),
        format!("If-None-Match: {tag}"),
        format!("If-None-Match: W/{tag}"),
        "If-None-Match: \"x\"".to_owned(),
        format!("If-Match: {tag}"),
        "If-Match: \"x\"".to_owned(),
        format!("If-Modified-Since: {time}"),
        "If-Modified-Since: Tue, 02 Jan 2024 03:04:04 GMT".to_owned(),
        format!("If-Unmodified-Since: {time}"),
        "If-Unmodified-Since: Tue, 02 Jan 2024 03:04:04 GMT".to_owned(),
    ];
    let mut requests = Vec::new();
    for path in ["/files/digits", "/forced/x", "/hidden/digits", "/some/digits"] {
        // The first of them is fetched, the others are there.
        requests.extend(lines.iter().map(|line| format!("GET {path}|{line}")));
        requests.push(format!("HEAD {path}|Range: bytes=5-9"));
        requests.push(format!("GET {path}"));
    }
    for (number, line) in lines.iter().enumerate() {
        // Each is fetched anew.
        requests.push(format!("GET /files/./digits?{number}|{line}"));
        requests.push(format!("GET /asked/{number}|{line}"));
    }
    requests.push("GET /files/large".to_owned());
    for range in ["0-9", "319990-", "-10", "65530-65545", "0-0,65536-65537,-1"] {
        requests.push(format!("GET /files/large|Range: bytes={range}"));
    }
    ask(case, &requests.join(";")).run();
}

#[test]
fn slices_are_kept_one_by_one() {
    let case = case(
        "slice 10; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range; \
         proxy_cache_valid 1m;
        proxy_http_version 1.1;
        location / { proxy_pass http://127.0.0.1:%%PORT2%%/files/; }
        location /large/ { slice 64k; proxy_pass http://127.0.0.1:%%PORT2%%/files/; }
        location /whole/ { proxy_pass http://127.0.0.1:%%PORT2%%/asked/; }
        location /missing/ { proxy_pass http://127.0.0.1:%%PORT2%%/status/404; }",
    );
    ask(
        case,
        "GET /digits; GET /digits; GET /digits|Range: bytes=25-31; HEAD /digits; \
         GET /digits|Range: bytes=-5; GET /digits|Range: bytes=95-; GET /digits|Range: bytes=100-; \
         GET /digits|Range: bytes=1-2,50-52; GET /page.html|Range: bytes=595-; \
         GET /page.html|Range: bytes=30-49; GET /page.html|Range: bytes=30-49; \
         GET /digits|If-None-Match: \"65937d25-64\"; GET /digits|Range: bytes=5-9|If-Range: \"x\"; \
         GET /large/large; GET /large/large; GET /large/large|Range: bytes=65530-65545; GET /whole/x; \
         GET /missing/x; GET /none",
    )
    .run();
}

#[test]
fn what_is_kept_passes_the_same_hands() {
    let case = case(&format!(
        "proxy_cache_valid any 1m; proxy_cache_key $uri; log_not_found off;
        add_header X-Seen $upstream_cache_status|$upstream_status|$upstream_http_x_origin always;
        add_header X-Kept $upstream_cache_last_modified|$upstream_cache_etag|$upstream_response_length always;
        location / {{ {PASS} }}
        location /accel/ {{ {PASS} }}
        location /inside/ {{ internal; return 200 'inside $uri'; }}
        location /accel/ignored/ {{ proxy_ignore_headers X-Accel-Redirect; {PASS} }}
        location /cookie/ {{ proxy_ignore_headers Set-Cookie; proxy_cookie_path /b/ /c/;
                             proxy_hide_header X-Hidden; {PASS} }}
        location /cookie/shown/ {{ proxy_ignore_headers Set-Cookie; proxy_hide_header Set-Cookie; {PASS} }}
        location /status/ {{ proxy_intercept_errors on; error_page 404 503 /page; {PASS} }}
        location /status/named/ {{ proxy_redirect /x /y; {PASS} }}
        location = /page {{ return 200 'page $upstream_status $upstream_cache_status'; }}
        location /zipped/ {{ gzip on; gzip_types *; gzip_min_length 1; {PASS} }}
        location /ssi/ {{ ssi on; ssi_types *; {PASS} }}
        location /sub/ {{ sub_filter '$http_x_n' x; sub_filter GET PUT; sub_filter_types *; {PASS} }}
        location /again/ {{ auth_request /asking; {PASS} }}
        location /asking {{ internal; proxy_pass http://127.0.0.1:%%PORT2%%/status/204; }}
        location /pages/ {{ ssi on; ssi_types *; return 200 '<!--#include virtual=\"/one\" --><!--#include
                            virtual=\"/one\" -->'; }}"
    ));
    let paths = "/x /files/digits /files/page.html /accel/x /accel/ignored/x /cookie/x /cookie/shown/x \
        /status/404 /status/503 /status/named/301 /status/200 /ssi/x?n=1 /sub/x /again/x /pages/x \
        /none/x";
    let mut requests: Vec<String> =
        paths.split(' ').flat_map(|path| (0..2).map(move |_| format!("GET {path}"))).collect();
    requests.extend((0..2).map(|_| "GET /zipped/x|Accept-Encoding: gzip".to_owned()));
    requests.push("GET /zipped/x".to_owned());
    requests.push("GET /ssi/x?n=2".to_owned());
    ask(case, &requests.join(";")).run();
}

#[test]
fn a_lock_that_nobody_holds_changes_nothing() {
    let case = case(&format!(
        "proxy_cache_lock on; proxy_cache_valid 1m; location / {{ {PASS} }}
        location /now/ {{ proxy_cache_lock_timeout 0; proxy_cache_lock_age 0; {PASS} }}
        location /used/ {{ proxy_cache_min_uses 2; {PASS} }}
        location /not/ {{ proxy_no_cache 1; {PASS} }}"
    ));
    let paths = "/x /now/x /used/x /not/x";
    let requests: Vec<String> =
        paths.split(' ').flat_map(|path| (0..3).map(move |_| format!("GET {path}"))).collect();
    ask(case, &requests.join(";")).run();
}
