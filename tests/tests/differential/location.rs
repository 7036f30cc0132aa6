//! Which `location` is taken: exact, prefix, `^~`, regexes, nesting, named, `internal`; and what the
//! request's path becomes before that.

use clearway_testkit::Case;

const LOCATIONS: &str = "
    server { listen %%PORT%%;
        location = / { return 200 \"= root\"; }
        location / { return 200 \"root\"; }
        location = /exact { return 200 \"exact\"; }
        location /exact { return 200 \"exact as prefix\"; }
        location /pre { return 200 \"pre\"; }
        location /prefix/ { return 200 \"prefix/\"; }
        location ^~ /static/ { return 200 \"static\"; }
        location /static/deep/ { return 200 \"deep\"; }
        location ~ \\.(gif|png)$ { return 200 \"regex $1\"; }
        location ~* \\.(JPG|css)$ { return 200 \"caseless $1\"; }
        location ~ ^/re/(?<name>[^/]+)/(\\d+) { return 200 \"$name $2 $1\"; }
        location ~ ^/re/ { return 200 \"second regex\"; }
        location /outer/ {
            location /outer/inner/ { return 200 \"inner\"; }
            location = /outer/exact { return 200 \"inner exact\"; }
            location ~ \\.in$ { return 200 \"inner regex\"; }
            return 200 \"outer\";
        }
        location \"/with space/\" { return 200 \"space\"; }
        location /Case/ { return 200 \"upper\"; }
        location /case/ { return 200 \"lower\"; }
        location ~ ^/a%b { return 200 percent; }
        location /ä/ { return 200 umlaut; }
        location ^~ /outer2/ {
            location ~ \\.x$ { return 200 \"x in outer2\"; }
            return 200 outer2;
        }
    }
";

fn play(config: &str, targets: &[&str]) {
    targets.iter().fold(Case::http(config), |case, target| case.get(target)).run();
}

#[test]
fn which_location_is_taken() {
    play(
        LOCATIONS,
        &[
            "/",
            "/x",
            "/exact",
            "/exact/",
            "/exactly",
            "/pre",
            "/prefix",
            "/prefix/",
            "/prefix/a.gif",
            "/static/a.gif",
            "/static/deep/a.gif",
            "/a.png",
            "/a.PNG",
            "/a.jpg",
            "/a.CSS",
            "/a.gif/",
            "/re/joe/42/x",
            "/re/joe/x",
            "/Case/a",
            "/case/a",
            "/CASE/a",
        ],
    );
}

#[test]
fn nested_locations() {
    play(
        LOCATIONS,
        &[
            "/outer/",
            "/outer/x",
            "/outer/inner/x",
            "/outer/inner/x.in",
            "/outer/inner/x.gif",
            "/outer/exact",
            "/outer/x.in",
            "/outer/x.gif",
            "/outer2/a.x",
            "/outer2/a.gif",
        ],
    );
}

#[test]
fn the_path_is_decoded_before_it_is_compared() {
    play(
        LOCATIONS,
        &[
            "/with%20space/x",
            "/%65xact",
            "/exact?x=/y",
            "/exact#fragment",
            "/exact%3fx",
            "/a%25b",
            "/%c3%a4/",
            "/./exact",
            "/x/../exact",
            "/x/%2e%2e/exact",
            "/x%2f..%2fexact",
            "//exact",
            "/x//../exact",
            "/static//deep//a.gif",
            "/static/../a.gif",
            "/exact/.",
            "/exact/..",
            "/exact/./",
            "/.../x",
            "/..x/",
            "/x/..",
            "/%00",
            "/a%",
            "/a%4",
            "/a%zz",
            "/%2",
            "/..",
            "/../",
            "/../../etc/passwd",
            "/x/../../y",
            "/%2e%2e/x",
            "/%2E%2E%2Fx",
            "/.%2e/x",
            "/x/..%2f..%2f..%2fetc/passwd",
            "/..%5c..%5cx",
            "/%252e%252e/x",
            "/%c0%ae%c0%ae/x",
        ],
    );
}

#[test]
fn variables_of_the_path() {
    let config = "server { listen %%PORT%%;
        location / {
            return 200 \"$uri|$document_uri|$request_uri|$args|$query_string|$is_args|$arg_a|$request\";
        } }";
    play(
        config,
        &[
            "/a",
            "/a?b",
            "/a?a=1&b=2",
            "/a?",
            "/%61?a=%31",
            "/a//b/../c?x=/../y",
            "/a?A=1",
            "/a?xa=1&a=2&a=3",
            "/a?a",
        ],
    );
}

#[test]
fn internal_and_named() {
    let config = "server { listen %%PORT%%;
        location /hidden/ { internal; return 200 hidden; }
        location = /page { error_page 404 /hidden/x; return 404; }
        location = /named { error_page 404 @name; return 404; }
        location = /given { error_page 404 = @name; return 404; }
        location = /changed { error_page 404 =201 @name; return 404; }
        location @name { return 200 \"named $uri\"; }
        location = /try { try_files /nothing @name; }
    }";
    play(config, &["/hidden/x", "/hidden/", "/page", "/named", "/given", "/changed", "/@name", "/try"]);
}
