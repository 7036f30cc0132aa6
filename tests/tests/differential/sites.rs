//! Whole sites as people run them: an application of one page, a generated site, redirects of a moved one,
//! pictures in two formats, maintenance, tenants and so on. Each is put together of what such
//! configurations have in common, and asked the way browsers, robots and the curious do.

use clearway_testkit::Case;

/// What most of them begin with.
const TYPES: &str = "
    types { text/html html; text/css css; application/javascript js; application/json json map;
        image/png png; image/jpeg jpg jpeg; image/webp webp; image/svg+xml svg; text/plain txt;
        application/pdf pdf; font/woff2 woff2; text/xml xml; }
    default_type application/octet-stream;
    sendfile on; tcp_nopush on; keepalive_timeout 65;
";

/// With these contents of `http`, files, and requests: `TARGET`, or `METHOD TARGET HOST` and header lines,
/// between bars.
pub(crate) fn site(http: &str, files: &[(&str, &str)], requests: &[&str]) -> Case {
    let case = Case::http(&format!("{TYPES}{http}"));
    let case = files.iter().fold(case, |case, (path, text)| case.file(path, *text));
    requests.iter().fold(case, |case, request| case.ask(written_out(request)))
}

fn written_out(request: &str) -> String {
    let mut parts = request.split('|').map(str::trim);
    let first: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
    let (method, target, host) = match first[..] {
        [target] => ("GET", target, "localhost"),
        [target, host] => ("GET", target, host),
        [method, target, host] => (method, target, host),
        _ => panic!("no request: {request}"),
    };
    let headers: String = parts.map(|line| format!("{line}\r\n")).collect();
    format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n")
}

#[test]
fn an_application_of_one_page() {
    let http = "
        gzip on; gzip_min_length 20; gzip_comp_level 6; gzip_vary on; gzip_proxied any;
        gzip_types text/css application/javascript application/json image/svg+xml;
        server { listen %%PORT%%; root %%PREFIX%%/dist; index index.html;
            location / { try_files $uri $uri/ /index.html; }
            location = /index.html { add_header Cache-Control 'no-store, must-revalidate'; expires epoch; }
            location /assets/ { expires max; add_header Cache-Control public; access_log off;
                try_files $uri =404; }
            location = /env.json { default_type application/json; return 200 '{\"api\":\"/v1\"}'; }
            location ~* \\.map$ { deny all; }
            location /api/ { return 404 '{}'; }
        }";
    let page = "<!doctype html><title>App</title><div id=app></div>\n";
    let files = [
        ("dist/index.html", page),
        ("dist/assets/app.1f3a.js", "function app() { return 'a long enough script'; }\n"),
        ("dist/assets/app.1f3a.js.map", "{}"),
        ("dist/assets/app.css", "body { margin: 0; padding: 0; color: black }\n"),
        ("dist/robots.txt", "User-agent: *\n"),
        ("dist/help/index.html", "help\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "/users/17/edit?tab=2",
            "/index.html",
            "/assets/app.1f3a.js",
            "GET /assets/app.1f3a.js localhost | Accept-Encoding: gzip",
            "/assets/app.1f3a.js.map",
            "/assets/none.js",
            "HEAD /assets/app.css localhost | Accept-Encoding: gzip, br",
            "/env.json",
            "/help",
            "/help/",
            "POST /users localhost | Content-Length: 0",
            "/api/users",
            "GET /robots.txt localhost | Range: bytes=0-3",
        ],
    )
    .run();
}

#[test]
fn a_generated_site_with_clean_addresses() {
    let http = "
        server { listen %%PORT%%; server_name localhost; root %%PREFIX%%/public; index index.html;
            charset utf-8; error_page 404 /404.html; absolute_redirect off;
            if ($request_uri ~ ^/([^?]*)\\.html(\\?|$)) { return 301 /$1; }
            rewrite ^/(.+)/index$ /$1/ permanent;
            location / { try_files $uri $uri.html $uri/index.html =404; }
            location = /404.html { internal; }
            location ~* \\.(?:css|js|png|svg|woff2)$ { expires modified +30d; access_log off; }
            location ^~ /tags/ { autoindex off; try_files $uri/index.html =404; }
            location = /feed { return 308 /index.xml; }
        }";
    let files = [
        ("public/index.html", "<h1>home</h1>\n"),
        ("public/404.html", "<h1>lost</h1>\n"),
        ("public/about.html", "<h1>about</h1>\n"),
        ("public/posts/first/index.html", "<h1>first</h1>\n"),
        ("public/tags/a/index.html", "<h1>a</h1>\n"),
        ("public/index.xml", "<rss/>\n"),
        ("public/css/main.css", "p{}\n"),
        ("public/caf\u{e9}.html", "<h1>caf\u{e9}</h1>\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "/about",
            "/about.html",
            "/about.html?x=1",
            "/posts/first",
            "/posts/first/",
            "/posts/first/index.html",
            "/posts/first/index",
            "/posts/second",
            "/404.html",
            "/tags/a",
            "/tags/b",
            "/css/main.css",
            "/css/none.css",
            "/caf%C3%A9",
            "/feed",
            "/index.xml",
            "HEAD /nowhere localhost",
        ],
    )
    .run();
}

#[test]
fn redirects_of_a_site_that_moved() {
    let http = "
        map $uri $moved {
            /old.php /new; /old/path /new/path?from=old;
            '~^/blog/(?<year>\\d{4})/(?<slug>[a-z-]+)$' /$year-$slug;
            ~*^/Shop(?<rest>/.*)?$ https://shop.example.org$rest; /gone ''; default '';
        }
        map $host $name { hostnames; default www.example.org; .example.net www.example.net;
            old.example.* archive.example.org; }
        server { listen %%PORT%% default_server; server_name _; return 301 http://$name$request_uri; }
        server { listen %%PORT%%; server_name example.org; return 301 $scheme://www.example.org$request_uri; }
        server { listen %%PORT%%; server_name www.example.org; root %%PREFIX%%/html;
            if ($moved) { return 301 $moved; }
            location = /gone { return 410; }
            location = /old-form { rewrite ^ /form? redirect; }
            location ~ ^/user/(\\d+)$ { return 302 /people?id=$1&$args; }
            location /dir { rewrite ^/dir/(.*)\\.asp$ /pages/$1 permanent; rewrite ^/dir/(.*)$ /x/$1 last; }
            location /x/ { return 200 'x: $uri $args'; }
            location /pages/ { return 200 'pages'; }
        }";
    site(
        http,
        &[("html/new/index.html", "new\n")],
        &[
            "/a?b=c",
            "/ old.example.com",
            "/ sub.example.net",
            "/x%20y?z example.org",
            "/old.php www.example.org",
            "/old/path www.example.org",
            "/blog/2019/hello-world www.example.org",
            "/blog/19/x www.example.org",
            "/SHOP/cart www.example.org",
            "/shop www.example.org",
            "/gone www.example.org",
            "/old-form?a=1 www.example.org",
            "/user/42?x=y www.example.org",
            "/dir/a/b.asp?q www.example.org",
            "/dir/other?q=1 www.example.org",
            "/new www.example.org",
            "POST /old.php www.example.org | Content-Length: 0",
        ],
    )
    .run();
}

#[test]
fn pictures_in_the_format_that_the_browser_takes() {
    let http = "
        map $http_accept $suffix { default ''; '~*image/webp' '.webp'; }
        map $http_save_data $small { default ''; on -small; }
        server { listen %%PORT%%; root %%PREFIX%%/img;
            location ~* ^(?<path>.+)\\.(?<ext>png|jpe?g)$ {
                add_header Vary Accept; add_header X-Chosen $suffix$small;
                try_files $path$small.$ext$suffix $uri$suffix $uri =404; expires max; }
        }";
    let files = [
        ("img/a.png", "PNG a\n"),
        ("img/a.png.webp", "WEBP a\n"),
        ("img/b.jpg", "JPG b\n"),
        ("img/c-small.jpeg.webp", "WEBP small c\n"),
        ("img/c.jpeg", "JPEG c\n"),
        ("img/d.svg", "<svg/>\n"),
    ];
    site(
        http,
        &files,
        &[
            "/a.png",
            "GET /a.png localhost | Accept: image/avif,image/webp,*/*",
            "GET /a.png localhost | Accept: IMAGE/WEBP",
            "GET /b.jpg localhost | Accept: image/webp",
            "GET /c.jpeg localhost | Accept: image/webp | Save-Data: on",
            "GET /c.jpeg localhost | Save-Data: on",
            "GET /d.svg localhost | Accept: image/webp",
            "GET /none.png localhost | Accept: image/webp",
            "GET /A.PNG localhost",
            "GET /a.png localhost | Accept: image/webp | If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
            "GET /a.png localhost | Accept: image/webp | Range: bytes=-3",
        ],
    )
    .run();
}

#[test]
fn caching_by_the_type_of_what_is_sent() {
    let http = "
        map $sent_http_content_type $expires { default off; text/html epoch; text/css max;
            application/javascript max; ~image/ 'modified 30d'; ~^font/ max; application/json epoch; }
        map $uri $cache_control { default ''; '~*\\.[0-9a-f]{8}\\.(css|js)$' immutable; }
        server { listen %%PORT%%; root %%PREFIX%%/c; expires $expires; etag on;
            add_header Cache-Control $cache_control;
            location ~* (.+)\\.(?:\\d+)\\.(js|css|png)$ { try_files $uri $1.$2; }
            location /data/ { expires modified +1h; add_header Pragma public; }
            location /off/ { expires off; etag off; if_modified_since off; }
        }";
    let files = [
        ("c/a.html", "a\n"),
        ("c/a.css", "a\n"),
        ("c/a.0123abcd.js", "a\n"),
        ("c/a.png", "a\n"),
        ("c/f.woff2", "f\n"),
        ("c/x.json", "{}\n"),
        ("c/x.txt", "x\n"),
        ("c/data/x.txt", "x\n"),
        ("c/off/x.txt", "x\n"),
    ];
    site(
        http,
        &files,
        &[
            "/a.html",
            "/a.css",
            "/a.0123abcd.js",
            "/a.1234.css",
            "/a.png",
            "/f.woff2",
            "/x.json",
            "/x.txt",
            "/data/x.txt",
            "/off/x.txt",
            "GET /a.css localhost | If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
            "GET /off/x.txt localhost | If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
            "GET /a.css localhost | If-None-Match: *",
            "/none.css",
        ],
    )
    .run();
}

#[test]
fn proof_of_a_name_and_the_rest_elsewhere() {
    let http = "
        map $status $loggable { ~^[23] 0; default 1; }
        server { listen %%PORT%% default_server; server_name a.test *.a.test; server_name_in_redirect off;
            access_log logs/access.log combined if=$loggable;
            location ^~ /.well-known/acme-challenge/ { root %%PREFIX%%/acme; default_type text/plain;
                try_files $uri =404; auth_basic off; allow all; }
            location = /.well-known/acme-challenge/ { return 404; }
            location / { return 301 https://$host$request_uri; }
        }
        server { listen %%PORT%%; server_name ''; server_name other.test; return 444; }";
    let files = [("acme/.well-known/acme-challenge/tok_en-1", "tok_en-1.key")];
    site(
        http,
        &files,
        &[
            "/.well-known/acme-challenge/tok_en-1 a.test",
            "/.well-known/acme-challenge/none a.test",
            "/.well-known/acme-challenge/ a.test",
            "/.well-known/acme-challenge a.test",
            "/.well-known/other a.test",
            "/ www.a.test",
            "/path?query=1 A.TEST:8080",
            "//double//slash a.test",
            "POST /form a.test | Content-Length: 0",
            "HEAD / a.test",
            "/ other.test",
        ],
    )
    .with_access_log()
    .run();
}

#[test]
fn maintenance() {
    let http = "
        geo $remote_addr $is_office { default 0; 192.0.2.0/24 1; }
        geo $arg_from $from_office { default 0; 192.0.2.0/24 1; }
        server { listen %%PORT%%; root %%PREFIX%%/m; error_page 503 @maintenance;
            set $closed 0;
            if (-f $document_root/maintenance.on) { set $closed 1; }
            if ($from_office) { set $closed 0; }
            if ($uri ~ ^/(css|img)/) { set $closed 0; }
            if ($closed) { return 503; }
            location @maintenance { add_header Retry-After 3600 always; rewrite ^ /maintenance.html break; }
            location /open/ { return 200 'open\\n'; }
        }
        server { listen %%PORT%%; server_name soft; root %%PREFIX%%/m; error_page 503 =200 /maintenance.html;
            location / { return 503; }
            location = /maintenance.html { internal; }
            location /api/ { error_page 503 /api.json; return 503; }
            location = /api.json { internal; default_type application/json; return 503 '{\"down\":true}'; }
        }";
    let files = [
        ("m/maintenance.on", ""),
        ("m/maintenance.html", "<h1>back soon</h1>\n"),
        ("m/index.html", "home\n"),
        ("m/css/a.css", "a{}\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "/open/",
            "/?from=192.0.2.7",
            "/open/?from=192.0.2.255",
            "/?from=198.51.100.1",
            "/css/a.css",
            "/css/none.css",
            "HEAD / localhost",
            "/ soft",
            "/maintenance.html soft",
            "/api/x soft",
            "POST /api/x soft | Content-Length: 0",
        ],
    )
    .run();
}

#[test]
fn languages_and_trials() {
    let http = "
        map $http_accept_language $wished { default en; ~*^de de; ~*^fr fr; ~,\\s*de de; }
        map $cookie_lang $lang { default $wished; de de; en en; fr fr; }
        split_clients $arg_u $variant { 30% a; 30% b; * c; }
        server { listen %%PORT%%; root %%PREFIX%%/i; absolute_redirect off;
            location = / { return 302 /$lang/; }
            location ~ ^/(?<l>de|en|fr)(?<rest>/.*)$ { add_header Content-Language $l;
                try_files /$l$rest /$l${rest}index.html /en$rest /en${rest}index.html =404; }
            location = /trial { return 200 '$variant\\n'; }
            location = /trial-page { try_files /trial-$variant.html =404; add_header X-Variant $variant; }
        }";
    let files = [
        ("i/de/index.html", "hallo\n"),
        ("i/en/index.html", "hello\n"),
        ("i/en/only.txt", "only here\n"),
        ("i/trial-a.html", "a\n"),
        ("i/trial-c.html", "c\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "GET / localhost | Accept-Language: de-AT,de;q=0.9",
            "GET / localhost | Accept-Language: it, de;q=0.5",
            "GET / localhost | Accept-Language: fr | Cookie: x=y; lang=de",
            "GET / localhost | Cookie: lang=xx",
            "/de/",
            "/fr/",
            "/fr/only.txt",
            "/es/",
            "/trial?u=1",
            "/trial?u=2",
            "/trial?u=someone",
            "/trial-page?u=1",
            "/trial-page?u=7",
        ],
    )
    .run();
}

#[test]
fn downloads() {
    let http = "
        server { listen %%PORT%%; root %%PREFIX%%/d; types { } default_type application/octet-stream;
            location / { add_header Content-Disposition attachment; max_ranges 2; }
            location /list/ { autoindex on; autoindex_format json; }
            location /html/ { autoindex on; autoindex_exact_size off; autoindex_localtime off; }
            location /inline/ { alias %%PREFIX%%/d/list/; types { text/plain txt; }
                add_header Accept-Ranges none; max_ranges 0; }
            location ~ ^/get/(?<file>[\\w.-]+)$ { alias %%PREFIX%%/d/list/$file;
                add_header Content-Disposition 'attachment; filename=\"$file\"'; }
            location /slow/ { alias %%PREFIX%%/d/list/; limit_rate 100k; limit_rate_after 1m; }
        }";
    let long = "0123456789".repeat(50);
    let files = [
        ("d/setup.bin", long.as_str()),
        ("d/list/a.txt", "a\n"),
        ("d/list/b c.txt", "b c\n"),
        ("d/html/<x>&.txt", "x\n"),
        ("d/empty.bin", ""),
    ];
    site(
        http,
        &files,
        &[
            "/setup.bin",
            "GET /setup.bin localhost | Range: bytes=10-19",
            "GET /setup.bin localhost | Range: bytes=0-4,100-104",
            "GET /setup.bin localhost | Range: bytes=0-4,10-14,20-24",
            "GET /setup.bin localhost | Range: bytes=500-",
            "GET /setup.bin localhost | Range: bytes=490- | If-Range: \"other\"",
            "GET /empty.bin localhost | Range: bytes=0-",
            "/get/a.txt",
            "/get/none.txt",
            "/get/..",
            "/inline/a.txt",
            "GET /inline/a.txt localhost | Range: bytes=0-0",
            "/slow/b%20c.txt",
            "/list",
            "/html/%3Cx%3E&.txt",
            "HEAD /setup.bin localhost",
        ],
    )
    .run();
}

#[test]
fn manuals_of_several_versions() {
    let http = "
        map $uri $version { ~^/docs/(?<v>v[0-9.]+)/ $v; default v2; }
        server { listen %%PORT%%; root %%PREFIX%%/man; port_in_redirect off; index index.html;
            rewrite_log off;
            location = /docs { return 302 /docs/latest/; }
            location /docs/latest/ { rewrite ^/docs/latest/(.*)$ /docs/v2/$1 last; }
            location /docs/ {
                location ~ ^/docs/v1/ { add_header X-Outdated yes; error_page 404 = @newer; }
                location ~ \\.txt$ { default_type text/plain; charset utf-8; charset_types text/plain; }
                location = /docs/v2/exact { return 200 '$version exact\\n'; }
                try_files $uri $uri/index.html =404; }
            location @newer { rewrite ^/docs/v1/(.*)$ /docs/v2/$1 redirect; }
            location /api { alias %%PREFIX%%/man/reference; }
            location /api/ { alias %%PREFIX%%/man/reference/; }
        }";
    let files = [
        ("man/docs/v1/index.html", "one\n"),
        ("man/docs/v2/index.html", "two\n"),
        ("man/docs/v2/guide/index.html", "guide\n"),
        ("man/docs/v2/notes.txt", "notes\n"),
        ("man/reference/index.html", "reference\n"),
    ];
    site(
        http,
        &files,
        &[
            "/docs",
            "/docs/",
            "/docs/latest/",
            "/docs/latest/guide?x=1",
            "/docs/v1/",
            "/docs/v1/guide",
            "/docs/v2/guide",
            "/docs/v2/notes.txt",
            "/docs/v2/exact",
            "/docs/v3/",
            "/api",
            "/api/",
            "/api/none",
            "/apix",
        ],
    )
    .run();
}

#[test]
fn pages_put_together_by_the_server() {
    let http = "
        server { listen %%PORT%%; root %%PREFIX%%/s; index index.html;
            location / { ssi on; ssi_silent_errors off; sub_filter_once off;
                sub_filter '(year)' '2024'; sub_filter 'http://old.test' 'https://new.test'; }
            location /parts/ { internal; ssi on; }
            location /plain/ { sub_filter 'a' 'b'; sub_filter_types text/plain; sub_filter_last_modified on; }
            location /added/ { add_before_body /parts/head.html; add_after_body /parts/foot.html; }
        }";
    let files = [
        (
            "s/index.html",
            "<!--# include file=\"parts/head.html\" -->body (year) <a href='http://old.test/x'>\n\
             <!--# if expr=\"$arg_a = 1\" -->one<!--# else -->other<!--# endif -->\n",
        ),
        (
            "s/vars.html",
            "<!--# set var=\"x\" value=\"1\" --><!--# echo var=\"x\" --><!--# echo var=\"y\" -->\n",
        ),
        ("s/lost.html", "<!--# include virtual=\"/none\" -->rest\n"),
        ("s/parts/head.html", "[head]\n"),
        ("s/parts/foot.html", "[foot]\n"),
        ("s/plain/x.txt", "abababa\n"),
        ("s/added/x.html", "middle\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "/?a=1",
            "/vars.html",
            "/parts/head.html",
            "/plain/x.txt",
            "/added/x.html",
            "HEAD / localhost",
            "GET / localhost | Range: bytes=0-3",
            "GET /plain/x.txt localhost | If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT",
        ],
    )
    .run();
}
