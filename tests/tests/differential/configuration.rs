//! Configurations that are refused, in nginx's words.

use clearway_testkit::Case;
use clearway_testkit::differential::both_refuse;

/// A configuration that is fine but for `content` at the place of a server's contents.
fn server(content: &str) -> String {
    format!(
        "daemon off;\nmaster_process off;\nevents {{ }}\nhttp {{\n%%TEMP%%\n\
         server {{\nlisten 127.0.0.1:%%PORT%%;\n{content}\n}}\n}}\n"
    )
}

#[test]
fn words_that_are_not_directives() {
    both_refuse(&server("nonsense on;"));
    both_refuse(&server("location / { nonsense; }"));
    both_refuse("nonsense;\nevents { }\n");
    both_refuse("events { nonsense 1; }\n");
    both_refuse("http { }\n");
}

#[test]
fn directives_in_the_wrong_place() {
    both_refuse(&server("worker_processes 2;"));
    both_refuse(&server("location / { server_name x; }"));
    both_refuse(&server("location / { listen 80; }"));
    both_refuse(&server("server { }"));
    both_refuse("root x;\nevents { }\n");
    both_refuse("events { }\nhttp { location / { } }\n");
    both_refuse("events { }\nhttp { internal; }\n");
}

#[test]
fn numbers_of_arguments() {
    both_refuse(&server("root;"));
    both_refuse(&server("root a b;"));
    both_refuse(&server("listen;"));
    both_refuse(&server("return;"));
    both_refuse(&server("location { }"));
    both_refuse(&server("location ~ a b { }"));
    both_refuse(&server("error_page 404;"));
    both_refuse(&server("try_files a;"));
    both_refuse(&server("internal on;"));
    both_refuse("worker_processes;\nevents { }\n");
    both_refuse("events { worker_connections 1 2; }\n");
}

#[test]
fn values_out_of_range() {
    both_refuse(&server("keepalive_timeout forever;"));
    both_refuse(&server("keepalive_timeout 1 x;"));
    both_refuse(&server("client_header_timeout 1x;"));
    both_refuse(&server("client_header_buffer_size 1x;"));
    both_refuse(&server("large_client_header_buffers 4 x;"));
    both_refuse(&server("large_client_header_buffers 0 1k;"));
    both_refuse(&server("keepalive_requests x;"));
    both_refuse(&server("listen 127.0.0.1:99999;"));
    both_refuse(&server("listen 127.0.0.1:0;"));
    both_refuse(&server("listen 127.0.0.1:8080 nonsense;"));
    both_refuse(&server("listen 127.0.0.1:8080 backlog=x;"));
    both_refuse(&server("listen [::1:8080;"));
    both_refuse(&server("listen no.such.host.invalid:8080;"));
    both_refuse(&server("listen unix:;"));
    both_refuse("worker_processes x;\nevents { }\n");
    both_refuse("daemon maybe;\nevents { }\n");
    both_refuse("events { worker_connections x; }\n");
    both_refuse("events { use nonsense; }\n");
    both_refuse("error_log logs/e.log nonsense;\nevents { }\n");
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
fn users_that_are_not_there() {
    both_refuse("user no-such-user-here;\nevents { }\n");
}

#[test]
fn values_of_the_modules() {
    both_refuse(&server("return 1000;"));
    both_refuse(&server("return x;"));
    both_refuse(&server("error_page 200 /x;"));
    both_refuse(&server("error_page 600 /x;"));
    both_refuse(&server("error_page 404 =x /y;"));
    both_refuse(&server("error_page x /y;"));
    both_refuse(&server("try_files a =1000;"));
    both_refuse(&server("alias x;"));
    both_refuse(&server("location / { alias a; alias b; }"));
    both_refuse(&server("location / { alias a; root b; }"));
    both_refuse(&server("location / { root a; alias b; }"));
    both_refuse(&server("root a; root b;"));
    both_refuse(&server("keepalive_timeout 1; keepalive_timeout 2;"));
    both_refuse(&server("index $nothing_like_it;"));
    both_refuse(&server("return 200 $nothing_like_it;"));
    both_refuse(&server("return 200 ${uri;"));
    both_refuse(&server("server_name ~(;"));
    both_refuse(&server("slice x;"));
    both_refuse(&server("slice 1g;"));
    both_refuse(&server("slice -1;"));
    both_refuse(&server("slice 1; slice 2;"));
    both_refuse(&server("set $slice_range 1;"));
    both_refuse(&server("location / { if ($uri) { slice 1; } }"));
    both_refuse(&server("location / { limit_except GET { slice 1; } }"));
}

#[test]
fn name_servers() {
    both_refuse(&server("resolver;"));
    both_refuse(&server("resolver valid=1s;"));
    both_refuse(&server("resolver 127.0.0.1; resolver 127.0.0.2;"));
    both_refuse(&server("resolver 127.0.0.1 valid=;"));
    both_refuse(&server("resolver 127.0.0.1 valid=1x;"));
    both_refuse(&server("resolver 127.0.0.1 valid=1ms;"));
    both_refuse(&server("resolver 127.0.0.1 ipv6=maybe;"));
    both_refuse(&server("resolver 127.0.0.1:0;"));
    both_refuse(&server("resolver 127.0.0.1:53-54;"));
    both_refuse(&server("resolver [::1]:53-54;"));
    both_refuse(&server("resolver [::1;"));
    both_refuse(&server("resolver [::1]x;"));
    both_refuse(&server("resolver []:53;"));
    both_refuse(&server("resolver *;"));
    both_refuse(&server("resolver *:x;"));
    both_refuse(&server("resolver \"\";"));
    both_refuse(&server("resolver :53;"));
    both_refuse(&server("resolver dns/x;"));
    both_refuse(&server("resolver unix:;"));
    both_refuse(&server("resolver no.such.host.invalid;"));
    both_refuse(&server("resolver no.such.host.invalid:x;"));
    both_refuse(&server("resolver_timeout 1x;"));
    both_refuse(&server("resolver_timeout 1s; resolver_timeout 1s;"));
    both_refuse(&server("location / { if ($uri) { resolver 127.0.0.1; } }"));
    Case::http(
        "resolver 127.0.0.1 [::1]:53 valid=10s ipv6=off; resolver_timeout 1m;
        server { listen %%PORT%%; resolver localhost 53 1.2.3.4:5; resolver_timeout 100ms;
        location / { resolver unix:/dns ipv6=on; resolver_timeout 1s; return 200 ok; } }",
    )
    .get("/")
    .run();
}

#[test]
fn locations() {
    both_refuse(&server("location / { }\nlocation / { }"));
    both_refuse(&server("location = / { }\nlocation = / { }"));
    both_refuse(&server("location ~ ( { }"));
    both_refuse(&server("location ~~ a { }"));
    both_refuse(&server("location /a/ { location /b/ { } }"));
    both_refuse(&server("location = /a { location /a/b { } }"));
    both_refuse(&server("location @n { location /x { } }"));
    both_refuse(&server("location / { location @n { } }"));
    both_refuse(&server("location / { location = /x { } location = /x { } }"));
}

#[test]
fn servers() {
    both_refuse(&server("listen 127.0.0.1:%%PORT%%;"));
    let two = |a: &str, b: &str| {
        format!(
            "events {{ }}\nhttp {{\n%%TEMP%%\nserver {{ listen 127.0.0.1:%%PORT%% {a}; }}\n\
             server {{ listen 127.0.0.1:%%PORT%% {b}; }}\n}}\n"
        )
    };
    both_refuse(&two("default_server", "default_server"));
    both_refuse(&two("backlog=1", "backlog=2"));
}

#[test]
fn the_text_itself() {
    both_refuse("events {\n");
    both_refuse("events { }\n}\n");
    both_refuse("events { }\nhttp {\n");
    both_refuse("events { };\n");
    both_refuse(&server("root \"a;"));
    both_refuse(&server("root 'a;"));
    both_refuse(&server("root \"a\"b;"));
    both_refuse(&server("root a"));
    both_refuse(&server("location / "));
    both_refuse(&server("root a { }"));
    both_refuse(&server("location /;"));
    both_refuse(&server("{ }"));
    both_refuse(&server(";"));
    both_refuse(&server("include %%PREFIX%%/none.conf;"));
    both_refuse("\u{feff}\u{feff}events { }\n");
    both_refuse("");
}
