//! Whole sites as people run them, as `sites.rs` says: those that tell their visitors apart, by user, address
//! and rate.

use crate::sites::site;

#[test]
fn headers_for_security_and_files_that_are_nobodys_business() {
    let http = "
        map $sent_http_content_type $csp { default ''; ~*^text/html \"default-src 'self'\"; }
        map $sent_http_content_type $robots { ~*pdf noindex; }
        server { listen %%PORT%%; root %%PREFIX%%/www; index index.html;
            add_header X-Content-Type-Options nosniff always;
            add_header Content-Security-Policy $csp always;
            add_header X-Robots-Tag $robots;
            add_header Strict-Transport-Security 'max-age=31536000' always;
            if ($request_method !~ ^(GET|HEAD|POST)$) { return 405; }
            location ~ /\\.(?!well-known/) { deny all; access_log off; log_not_found off; }
            location ~* (?:\\.(?:bak|conf|sql|sw[op])|~)$ { return 404; }
            location = /favicon.ico { log_not_found off; access_log off; return 204; }
            location /private/ { internal; }
            location /own/ { add_header X-Own 1; }
            location /fail/ { return 500; }
            location /.well-known/ { default_type text/plain; }
        }";
    let files = [
        ("www/index.html", "<p>home\n"),
        ("www/paper.pdf", "%PDF\n"),
        ("www/.git/config", "secret\n"),
        ("www/.well-known/security.txt", "Contact: x\n"),
        ("www/dump.sql", "secret\n"),
        ("www/page.html~", "secret\n"),
        ("www/private/x.txt", "secret\n"),
        ("www/own/x.txt", "own\n"),
        ("www/own/x.html", "own\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "/paper.pdf",
            "/.git/config",
            "/.git/",
            "/.well-known/security.txt",
            "/dump.sql",
            "/page.html~",
            "/private/x.txt",
            "/own/x.txt",
            "/own/x.html",
            "/own/none",
            "/fail/",
            "/favicon.ico",
            "DELETE / localhost",
            "TRACE / localhost",
            "/none",
            "/..%2f..%2fetc/passwd",
            "/%2e%2e/%2e%2e/x",
        ],
    )
    .run();
}

#[test]
fn pictures_only_for_friends() {
    let http = "
        server { listen %%PORT%%; server_name shop.test *.shop.test; root %%PREFIX%%/h;
            location ~* \\.(png|jpg)$ { valid_referers none blocked server_names ~\\.friend\\. *.search.test
                    partner.test/pictures;
                if ($invalid_referer) { return 403; } }
            location /soft/ { valid_referers server_names;
                if ($invalid_referer) { rewrite ^ /placeholder.svg last; } }
            location = /placeholder.svg { expires epoch; }
        }";
    let files = [("h/a.png", "PNG\n"), ("h/soft/b.txt", "b\n"), ("h/placeholder.svg", "<svg/>\n")];
    site(
        http,
        &files,
        &[
            "/a.png shop.test",
            "GET /a.png shop.test | Referer: http://shop.test/page",
            "GET /a.png shop.test | Referer: https://www.SHOP.test:8443/",
            "GET /a.png shop.test | Referer: http://thief.test/",
            "GET /a.png shop.test | Referer: hidden",
            "GET /a.png shop.test | Referer: http://my.friend.test/x",
            "GET /a.png shop.test | Referer: http://images.search.test/",
            "GET /a.png shop.test | Referer: http://partner.test/pictures/1",
            "GET /a.png shop.test | Referer: http://partner.test/other",
            "/soft/b.txt shop.test",
            "GET /soft/b.txt shop.test | Referer: http://shop.test/",
            "GET /soft/b.txt shop.test | Referer: http://thief.test/",
        ],
    )
    .run();
}

#[test]
fn passwords() {
    // The passwords are `open` (SHA) and `sesame` (plain).
    let users = "# people\nann:{SHA}X8fji//gDKRq3YkUVGSi6vdZ1cI=\nbob:{PLAIN}sesame\n";
    let http = "
        server { listen %%PORT%%; root %%PREFIX%%/p; auth_basic 'Staff only';
            auth_basic_user_file %%PREFIX%%/users;
            location = /health { auth_basic off; default_type text/plain; return 200 'ok\\n'; }
            location / { }
            location /either/ { satisfy any; allow 127.0.0.1; deny all; }
            location /both/ { satisfy all; deny 127.0.0.1; allow all; }
            location /per/ { auth_basic $arg_realm; }
            location /who { return 200 '$remote_user\\n'; }
            error_page 401 /401.html;
            location = /401.html { auth_basic off; internal; }
        }";
    let files = [
        ("users", users),
        ("p/index.html", "home\n"),
        ("p/either/index.html", "either\n"),
        ("p/per/index.html", "per\n"),
        ("p/401.html", "who are you?\n"),
    ];
    site(
        http,
        &files,
        &[
            "/",
            "GET / localhost | Authorization: Basic Ym9iOnNlc2FtZQ==",
            "GET / localhost | Authorization: Basic Ym9iOndyb25n",
            "GET / localhost | Authorization: Basic YW5uOm9wZW4=",
            "GET / localhost | Authorization: basic Ym9iOnNlc2FtZQ==",
            "GET / localhost | Authorization: Bearer x",
            "GET / localhost | Authorization: Basic !!!",
            "GET / localhost | Authorization: Basic bm9ib2R5Ong=",
            "/health",
            "/either/",
            "GET /both/ localhost | Authorization: Basic Ym9iOnNlc2FtZQ==",
            "/per/?realm=a",
            "/per/?realm=off",
            "GET /who localhost | Authorization: Basic Ym9iOnNlc2FtZQ==",
            "/401.html",
        ],
    )
    .run();
}

#[test]
fn limits_for_those_who_ask_too_often() {
    let http = "
        map $http_x_token $key { default $arg_k; secret ''; }
        limit_req_zone $key zone=page:1m rate=1r/m;
        limit_req_zone $server_name zone=whole:1m rate=1000r/s;
        limit_conn_zone $binary_remote_addr zone=address:1m;
        limit_req_status 429; limit_conn_status 429; limit_req_log_level info;
        server { listen %%PORT%%; root %%PREFIX%%/l; limit_conn address 10;
            error_page 429 = @slow;
            location /page/ { limit_req zone=page burst=1 nodelay; limit_req zone=whole burst=100; }
            location /hard/ { limit_req zone=page; error_page 429 /429.html; }
            location @slow { default_type application/json; add_header Retry-After 60 always;
                return 429 '{\"error\":\"slow down\"}'; }
            location = /429.html { internal; }
        }";
    let files = [("l/page/x.txt", "x\n"), ("l/hard/x.txt", "x\n"), ("l/429.html", "too fast\n")];
    site(
        http,
        &files,
        &[
            "/page/x.txt?k=a",
            "/page/x.txt?k=a",
            "/page/x.txt?k=a",
            "/page/x.txt?k=b",
            "GET /page/x.txt?k=a localhost | X-Token: secret",
            "/page/x.txt",
            "/hard/x.txt?k=c",
            "/hard/x.txt?k=c",
            "/hard/none?k=d",
            "/hard/none?k=d",
        ],
    )
    .run();
}

#[test]
fn a_log_in_json() {
    let http = r#"
        map $http_user_agent $is_robot { default 0; ~*(bot|crawl|spider) 1; }
        map $request_uri $clean { default $request_uri; ~^(?<before>[^?]*)\?.*token= $before; }
        log_format json escape=json '{"method":"$request_method","uri":"$clean","status":$status,'
            '"args":"$args","agent":"$http_user_agent","robot":$is_robot,"host":"$host",'
            '"proto":"$server_protocol","length":"$request_length","cookie":"$cookie_id",'
            '"tls":"$https","referer":"$http_referer","user":"$remote_user"}';
        server { listen %%PORT%%; root %%PREFIX%%/j; access_log logs/access.log json;
            location = /quiet { access_log off; return 204; }
            location / { return 200 'x'; }
            location /login { return 302 /?next=$arg_next; }
        }"#;
    site(
        http,
        &[],
        &[
            "/",
            "/?a=1&b=%20%22",
            "/?token=secret",
            "/quiet",
            "GET / localhost | User-Agent: Some\"Bot\\1.0\t(x)",
            "GET / localhost | Cookie: id=5; id2=6",
            "GET / localhost | Referer: http://caf\u{e9}.test/",
            "GET / localhost | User-Agent: \u{1}\u{1f}\u{7f}",
            "/login?next=/me",
            "HEAD /x Example.TEST.",
        ],
    )
    .with_access_log()
    .run();
}

#[test]
fn behind_somebody_who_knows_the_client() {
    let http = "
        set_real_ip_from 127.0.0.0/8; set_real_ip_from 10.0.0.0/8; set_real_ip_from 2001:db8::/32;
        real_ip_header X-Forwarded-For; real_ip_recursive on;
        geo $country { default ZZ; 192.0.2.0/24 DE; 198.51.100.0/24 FR; 2001:db9::/32 AT; }
        map $http_x_forwarded_proto $proto { default $scheme; https https; }
        server { listen %%PORT%%;
            if ($http_x_forwarded_proto = http) { return 301 https://$host$request_uri; }
            location / { return 200 '$remote_addr $realip_remote_addr $country $proto\\n'; }
            location /only/ { allow 192.0.2.0/24; deny all; return 200 never; }
            location /files/ { allow 192.0.2.0/24; deny all; root %%PREFIX%%; }
        }";
    site(
        http,
        &[("files/x.txt", "x\n")],
        &[
            "/",
            "GET / localhost | X-Forwarded-For: 192.0.2.1",
            "GET / localhost | X-Forwarded-For: 203.0.113.9, 198.51.100.7, 10.1.2.3",
            "GET / localhost | X-Forwarded-For: nonsense",
            "GET / localhost | X-Forwarded-For: 192.0.2.1:5555",
            "GET / localhost | X-Forwarded-For: [2001:db9::1]:443",
            "GET / localhost | X-Forwarded-For: 192.0.2.1 | X-Forwarded-For: 10.0.0.1",
            "GET /files/x.txt localhost | X-Forwarded-For: 192.0.2.1",
            "GET /files/x.txt localhost | X-Forwarded-For: 192.0.3.1",
            "/files/x.txt",
            "GET /only/ localhost | X-Forwarded-For: 192.0.3.1",
            "GET /a?b localhost | X-Forwarded-Proto: http",
            "GET / localhost | X-Forwarded-Proto: https",
        ],
    )
    .run();
}

#[test]
fn a_directory_for_each_tenant() {
    let http = "
        map $tenant $theme { default plain; ann dark; }
        server { listen %%PORT%% default_server; server_name _; return 404 'nobody: $host\\n'; }
        server { listen %%PORT%%; server_name ~^(?<tenant>[a-z0-9-]+)\\.pages\\.test$;
            root %%PREFIX%%/tenants/$tenant; index index.html; disable_symlinks off;
            error_page 404 /404.html;
            location = /404.html { internal; root %%PREFIX%%/tenants; }
            location /theme { return 200 '$tenant: $theme\\n'; }
            location /shared/ { alias %%PREFIX%%/tenants/shared/; }
            location / { try_files $uri $uri/ =404; }
        }
        server { listen %%PORT%%; server_name admin.pages.test; return 200 'admin\\n'; }
        server { listen %%PORT%%; server_name *.old.test; return 301 http://pages.test$uri; }";
    let files = [
        ("tenants/ann/index.html", "ann\n"),
        ("tenants/bob-2/blog/index.html", "bob\n"),
        ("tenants/404.html", "not here\n"),
        ("tenants/shared/logo.svg", "<svg/>\n"),
    ];
    site(
        http,
        &files,
        &[
            "/ ann.pages.test",
            "/ bob-2.pages.test",
            "/blog bob-2.pages.test",
            "/blog/ bob-2.pages.test",
            "/ nobody.pages.test",
            "/ admin.pages.test",
            "/theme ann.pages.test",
            "/theme bob-2.pages.test",
            "/shared/logo.svg ann.pages.test",
            "/x a.b.pages.test",
            "/x?y a.old.test",
            "/ ANN.Pages.Test",
            "/ pages.test",
            "/ 127.0.0.1",
        ],
    )
    .run();
}

#[test]
fn other_origins() {
    let http = "
        map $http_origin $origin { default ''; ~^https?://(?:[^/]+\\.)?app\\.test(?::\\d+)?$ $http_origin; }
        map $request_method $preflight { default ''; OPTIONS 1; }
        server { listen %%PORT%%; root %%PREFIX%%/o;
            location /api/ {
                add_header Access-Control-Allow-Origin $origin always; add_header Vary Origin always;
                if ($preflight) { add_header Access-Control-Allow-Origin $origin;
                    add_header Access-Control-Allow-Methods 'GET, POST';
                    add_header Access-Control-Max-Age 600;
                    return 204; }
                default_type application/json; try_files $uri.json =404; }
            location /fonts/ { add_header Access-Control-Allow-Origin *; }
            location /limited/ { limit_except GET { deny all; } add_header Allow GET always; }
        }";
    let files = [("o/api/users.json", "[]\n"), ("o/fonts/a.woff2", "font\n"), ("o/limited/x.txt", "x\n")];
    site(
        http,
        &files,
        &[
            "/api/users",
            "GET /api/users localhost | Origin: https://www.app.test",
            "GET /api/users localhost | Origin: https://evil.test",
            "GET /api/users localhost | Origin: https://app.test.evil.test",
            "OPTIONS /api/users localhost | Origin: http://app.test:3000",
            "OPTIONS /api/users localhost",
            "GET /api/none localhost | Origin: https://app.test",
            "GET /fonts/a.woff2 localhost | Origin: https://evil.test",
            "/limited/x.txt",
            "POST /limited/x.txt localhost | Content-Length: 0",
            "HEAD /limited/x.txt localhost",
        ],
    )
    .run();
}
