//! `rewrite`, `set`, `if` and `break`.

use clearway_testkit::{Case, Exchange};

const SHOW: &str = "return 200 \"uri=$uri args=$args 1=$1 2=$2\";";

fn show(content: &str) -> String {
    content.replace("SHOW", SHOW)
}

fn gets(case: Case, targets: &[&str]) -> Case {
    targets.iter().fold(case, |case, target| case.get(target))
}

const REPLACED: &str = "default_type text/plain; server { listen %%PORT%%;
        location /next { rewrite ^/next/(.*)$ /other/$1; SHOW }
        location /next2 { rewrite ^/next2/(.*)$ /a/$1; rewrite ^/a/(.*)$ /b/$1?x=$1; SHOW }
        location /last { rewrite ^/last/(.*)$ /other/$1 last; return 200 unreached; }
        location /break { rewrite ^/break/(.*)$ /other/$1 break; return 200 unreached; }
        location /stay { rewrite ^/stay/(.*)$ /files/$1; break; return 200 unreached; }
        location /search { rewrite ^/search/(.*)$ /other/$1; set $x y; }
        location /none { rewrite nothing /other; SHOW }
        location ~ ^/forgotten/(.*) { rewrite nothing /other; SHOW }
        location ~ ^/kept/(.*) { SHOW }
        location /groups { rewrite ^/(groups)/(x)?(y)?$ /g; return 200 \"$uri|$1|$2|$3|$4\"; }
        location /named { rewrite ^/named/(?<who>\\w+) /n; return 200 \"$who $1 $uri\"; }
        location /loop { rewrite ^ /loop/x; }
        location /args { rewrite ^ /other?a=b; SHOW }
        location /noargs { rewrite ^ /other?a=b?; SHOW }
        location /drop { rewrite ^ /other?; SHOW }
        location /qfirst { rewrite ^ /other?$arg_x&y=$arg_y?; SHOW }
        location /two { rewrite ^ /other?a?b; SHOW }
        location /empty { rewrite ^/empty(.*)$ $1; SHOW }
        location /rel { rewrite ^ relative; SHOW }
        location /variable { rewrite ^ $request_uri; SHOW }
        location /braces { rewrite \"^/braces/(a{2})$\" /found/$1x; SHOW }
        location /setargs { set $args new=1; rewrite ^ /other; SHOW }
        location /setafter { rewrite ^ /other?q=1; set $args $args&z; SHOW }
        location /other { return 200 \"other $uri $args\"; }
        location /files { }
        location /private { internal; return 200 private; }
        location /public { rewrite ^ /private last; }
        } server { listen %%PORT2%%; rewrite ^/s/(.*)$ /t/$1; rewrite ^/l/(.*)$ /u/$1 last;
        rewrite ^/b/(.*)$ /v/$1 break; set $seen server; return 202 \"here $uri\"; }";

#[test]
fn replacements_and_what_follows_them() {
    let config = show(REPLACED);
    let case =
        Case::http(&config).file("html/files/f.txt", "the file").file("html/other/f.txt", "other file");
    let targets = [
        "/next/a",
        "/next/a?b=c",
        "/next2/a?b=c",
        "/last/f.txt",
        "/break/f.txt",
        "/stay/f.txt",
        "/stay/none",
        "/search/f.txt",
        "/none",
        "/forgotten/x",
        "/kept/x",
        "/kept/%78%2B",
        "/groups/y",
        "/groups/x",
        "/named/ann",
        "/loop",
        "/args",
        "/args?c=d",
        "/noargs?c=d",
        "/drop?c=d",
        "/qfirst?x=1&y=2",
        "/two?q",
        "/empty",
        "/empty/x",
        "/rel",
        "/variable?a",
        "/variable/%20",
        "/braces/aa",
        "/braces/a",
        "/setargs?old",
        "/setafter?old",
        "/private",
        "/public",
        "/next/%25?x",
        "/next2/%25+?x",
        "/next2/a+b",
        "/next2/a%2Fb",
    ];
    let mut case = gets(case, &targets);
    for target in ["/s/x", "/l/x", "/b/x", "/other?a"] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        case = case.exchange(Exchange::new(request).to("127.0.0.1:%%PORT2%%"));
    }
    case.run();
}

#[test]
fn redirects_and_their_escapes() {
    let config = "server { listen %%PORT%%;
        location /plain { rewrite ^ http://example.test/ redirect; }
        location /implied { rewrite ^ https://example.test$uri; }
        location /scheme { rewrite ^ $scheme://example.test/ last; }
        location /permanent { rewrite ^ http://example.test/x permanent; }
        location /path { rewrite ^/path(.*) /to$1 redirect; }
        location /ppath { rewrite ^/ppath(.*) /to$1 permanent; }
        location /add { rewrite ^ http://example.test/?c=d redirect; }
        location /no { rewrite ^ http://example.test/?c=d? redirect; }
        location /arg { rewrite ^ $arg_r? redirect; }
        location /group { rewrite ^/group/(.*) http://example.test/$1?g=$1 redirect; }
        location /request { rewrite ^ http://example.test$request_uri? redirect; }
        location /uri { rewrite ^ http://example.test$uri redirect; }
        location /text { rewrite ^ http://example.test/a%20%3Fb%2Fc redirect; }
        location /rel { rewrite ^ somewhere redirect; }
        location /page { error_page 302 =200 /shown; rewrite ^ /away redirect; }
        location /shown { return 200 shown; }
        }";
    let targets = [
        "/plain",
        "/plain?a=b",
        "/implied",
        "/implied?a",
        "/scheme",
        "/permanent",
        "/path/x?y",
        "/path/a%20b",
        "/ppath",
        "/add",
        "/add?a=b",
        "/no?a=b",
        "/arg?r=/x%3Fy%3Dz",
        "/arg?r=%0D%0Ax",
        "/arg?r=/%zz%4",
        "/arg?r=/%41%7e%7f%ff",
        "/arg",
        "/group/a%20b",
        "/group/a+b",
        "/group/a%2Bb&c",
        "/group/a%C3%A9",
        "/group/x?q",
        "/request/a%20%3Fb?c",
        "/uri/a%20%3Fb?c",
        "/text",
        "/text?x",
        "/rel",
        "/page",
    ];
    gets(Case::http(config), &targets).run();
}

#[test]
fn conditions() {
    let config = "default_type text/plain; server { listen %%PORT%%;
        location /true { if ($arg_c) { return 200 yes; } return 200 no; }
        location /spaces { if ( $arg_c ) { return 200 yes; } return 200 no; }
        location /eq { if ($arg_c = 1) { return 200 yes; } return 200 no; }
        location /eqv { if ($arg_c = $arg_d) { return 200 yes; } return 200 no; }
        location /eqt { if ($arg_c = x$arg_d) { return 200 yes; } return 200 no; }
        location /ne { if ($arg_c != 1) { return 200 yes; } return 200 no; }
        location /re { if ($arg_c ~ ^f(o+)$) { return 200 \"yes $1\"; } return 200 \"no $1\"; }
        location /rei { if ($arg_c ~* ^f(o+)$) { return 200 \"yes $1\"; } return 200 no; }
        location /nre { if ($arg_c !~ ^f(o+)$) { return 200 \"yes $1\"; } return 200 \"no $1\"; }
        location /nrei { if ($arg_c !~* ^f(o+)$) { return 200 \"yes $1\"; } return 200 no; }
        location /f { if (-f %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /nf { if (!-f %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /d { if (-d %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /nd { if (!-d %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /e { if (-e %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /ne2 { if (!-e %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /x { if (-x %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /nx { if (!-x %%PREFIX%%/html$arg_p) { return 200 yes; } return 200 no; }
        location /several { set $r r; if (-f %%PREFIX%%/html/a.txt) { set $r ${r}f; }
            if (-d %%PREFIX%%/html/d) { set $r ${r}d; } if (-f none) { set $r ${r}n; }
            if ($arg_c ~ (.)b) { set $r $r$1; } return 200 $r; }
        location /request { if (-f $request_filename) { return 200 there; } return 404 gone; }
        location /body { if (-f %%PREFIX%%/html/a.txt) { return 200 yes; } }
        }";
    let mut case = Case::http(config).file("html/a.txt", "a").file("html/d/b.txt", "b");
    for path in ["/true", "/spaces", "/eq", "/ne", "/re", "/rei", "/nre", "/nrei"] {
        for value in ["", "?c", "?c=", "?c=0", "?c=00", "?c=1", "?c=2", "?c=foo", "?c=FOO", "?c=bar", "?d=1"]
        {
            case = case.get(&format!("{path}{value}"));
        }
    }
    for path in ["/f", "/nf", "/d", "/nd", "/e", "/ne2", "/x", "/nx"] {
        for file in ["/a.txt", "/d", "/d/", "/d/b.txt", "/none", "/a.txt/x", "", "/"] {
            case = case.get(&format!("{path}?p={file}"));
        }
    }
    let targets = [
        "/eqv",
        "/eqv?c=1&d=1",
        "/eqv?c=1&d=2",
        "/eqt?c=x1&d=1",
        "/several?c=ab",
        "/several?c=x",
        "/request/../a.txt",
        "/request/x",
    ];
    gets(case, &targets).ask("POST /body HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").run();
}

#[test]
fn an_if_is_a_location_of_its_own() {
    let config = "default_type text/plain; error_page 404 /missing; server { listen %%PORT%%;
        location /place { root %%PREFIX%%/one; if ($arg_c) { root %%PREFIX%%/two; } }
        location /inherits { root %%PREFIX%%/one; if ($arg_c) { set $x y; } }
        location /page { error_page 404 /first; if ($arg_c) { error_page 404 /second; } }
        location /pages { error_page 404 /first; if ($arg_c) { set $x y; } }
        location /last { if ($arg_a) { error_page 404 /first; } if ($arg_b) { error_page 404 /second; } }
        location /tries { try_files /a.txt =404; if ($arg_c) { set $x y; } }
        location /code { if ($arg_a) { set $x a; } if ($arg_b) { set $x ${x}b; } return 200 $x; }
        location /ends { if ($arg_a) { break; } return 200 behind; }
        location /ends2 { if ($arg_a) { rewrite ^ /tries last; } return 200 behind; }
        location /ends3 { if ($arg_a) { rewrite ^ /gone; } return 200 \"behind $uri\"; }
        location ~ ^/regex/(.*)$ { if ($arg_a) { return 200 \"$1\"; } return 200 \"no $1\"; }
        location ~ ^/regex2/(.*)$ { if ($arg_a ~ x(.)) { return 200 \"$1\"; } return 200 \"no $1\"; }
        location @named { if ($arg_c) { return 200 named; } return 200 unnamed; }
        location /named { try_files /nothing @named; }
        location /first { return 200 first; } location /second { return 200 second; }
        location /missing { return 200 missing; }
        location /alias { alias %%PREFIX%%/one/place; if ($arg_c) { set $x y; } }
        location /gone { alias %%PREFIX%%/one/; rewrite ^ /gone/b break; }
        } server { listen %%PORT2%%; if ($arg_a) { set $v a; } if ($arg_b) { return 403; }
        if ($http_x ~* ^(.)) { rewrite ^ /$1; } location / { return 200 \"$v $uri\"; } }";
    let mut case = Case::http(config)
        .file("one/place/f", "one")
        .file("two/place/f", "two")
        .file("one/inherits/f", "one")
        .file("html/a.txt", "a");
    for path in ["/place/f", "/inherits/f", "/page", "/pages", "/tries", "/named", "/alias/f"] {
        case = case.get(path).get(&format!("{path}?c=1"));
    }
    let targets = [
        "/last",
        "/last?a=1",
        "/last?b=1",
        "/last?a=1&b=1",
        "/code",
        "/code?a=1",
        "/code?a=1&b=1",
        "/ends",
        "/ends?a=1",
        "/ends2?a=1",
        "/ends3?a=1",
        "/regex/x",
        "/regex/x?a=1",
        "/regex2/x?a=1",
        "/regex2/x?a=xy",
        "/gone/a",
    ];
    case = gets(case, &targets);
    for (target, header) in
        [("/", ""), ("/?a=1", ""), ("/?b=1", ""), ("/x", "X: yz\r\n"), ("/?a=1", "x: Q\r\n")]
    {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{header}\r\n");
        case = case.exchange(Exchange::new(request).to("127.0.0.1:%%PORT2%%"));
    }
    case.run();
}

#[test]
fn variables_that_are_set() {
    let config = "default_type text/plain; server { listen %%PORT%%;
        set $server s; set $overridden 1;
        location /plain { set $a x; return 200 \"$a$server\"; }
        location /twice { set $a x; set $a ${a}y$a; return 200 $a; }
        location /unset { return 200 \"[$a]\"; }
        location /empty { set $a ''; return 200 \"[$a]\"; }
        location /case { set $Mixed x; return 200 \"$mixed$MIXED${mIxEd}\"; }
        location /override { set $overridden 2; return 200 $overridden; }
        location /header { set $http_foo set; return 200 \"$http_foo $http_bar\"; }
        location /argument { set $arg_x set; return 200 \"$arg_x $args\"; }
        location /other { return 200 \"$http_foo\"; }
        location /args { set $args a=9; return 200 \"$args $arg_a $is_args $query_string $request_uri\"; }
        location /group { set $a $1; rewrite ^/(.*) /$1; set $b $1; return 200 \"$a|$b\"; }
        location ~ ^/enc/(.*) { set $a $1; rewrite ^/(e) /e; set $b $1; return 200 \"$a|$b|$1\"; }
        location ~ ^/enc2/(.*) { set $a $1; if ($uri ~ ^(.*)$) { set $b $1; } return 200 \"$a|$b\"; }
        location ~ ^/name/(?<who>[^/]*) { set $who \"<$who>\"; return 200 $who; }
        location /redirect { set $a kept; error_page 404 /shown; return 404; }
        location /shown { return 200 \"$a $server\"; }
        }";
    let targets = [
        "/plain",
        "/twice",
        "/unset",
        "/empty",
        "/case",
        "/override",
        "/other",
        "/argument?x=1",
        "/args?a=1",
        "/group/x",
        "/group/%41",
        "/enc/a%20b",
        "/enc/ab",
        "/enc/a+b",
        "/enc2/a%20b",
        "/name/ann",
        "/redirect",
    ];
    gets(Case::http(config), &targets)
        .ask("GET /header HTTP/1.1\r\nHost: a\r\nFoo: f\r\nBar: b\r\n\r\n")
        .ask("GET /other HTTP/1.1\r\nHost: a\r\nFoo: f\r\nBar: b\r\n\r\n")
        .run();
}
