//! Access control: `allow` and `deny`, `satisfy`, `limit_except`, `auth_basic`.

use clearway_testkit::{Case, Exchange};

/// A file for each path, so that the content phase has something to say.
fn with_files(mut case: Case, names: &[&str]) -> Case {
    for name in names {
        case = case.file(&format!("html/{name}"), format!("the file {name}"));
    }
    case
}

fn ask(method: &str, target: &str, headers: &str) -> String {
    format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n")
}

const RULES: &str = "server { listen %%PORT%%; listen unix:%%PREFIX%%/sock;
        location /none { }
        location /allow { allow 127.0.0.1; deny all; }
        location /deny { deny 127.0.0.1; allow all; }
        location /net { allow 127.0.0.0/8; deny all; }
        location /other { allow 10.0.0.0/8; deny all; }
        location /six { deny ::1; deny 2001:db8::/32; allow unix:; deny unix:; }
        location /unix { allow unix:; deny all; }
        location /nounix { deny unix:; }
        location /all { deny all; }
        location /first { allow all; deny all; }
        location /page { deny all; error_page 403 /none; }
        location /keeps { deny all; error_page 403 =200 /none; }
        location /returns { deny all; return 200 earlier; }
        location /in { deny all; location /in/ner { allow all; } location /in/herits { } }
        location /if { if ($arg_x) { root %%PREFIX%%/html; } deny all; }
        }";

#[test]
fn addresses() {
    let names = ["none", "allow", "deny", "net", "other", "six", "unix", "nounix", "all", "first", "page"];
    let more = ["keeps", "returns", "if", "in/ner", "in/herits", "in/x"];
    let targets: Vec<&str> = names.into_iter().chain(more).collect();
    let mut case = with_files(Case::http(RULES), &targets).ready_at("unix:%%PREFIX%%/sock");
    for target in targets {
        case = case.get(&format!("/{target}"));
        let request = Exchange::new(ask("GET", &format!("/{target}"), ""));
        case = case.exchange(request.to("unix:%%PREFIX%%/sock"));
    }
    case.get("/if?x=1").ask(ask("POST", "/all", "Content-Length: 3\r\n") + "abc").run();
}

/// The users and passwords that are tried on the file of users.
const PAIRS: [&str; 34] = [
    "bob:secret",
    "no:secret",
    "#no:secret",
    "apr1:password",
    "apr1:passwor",
    "sha:password",
    "sha:x",
    "ssha:password",
    "ssha:x",
    "bcrypt:a",
    "bcrypt:b",
    "yescrypt:a",
    "yescrypt:b",
    "des:rasmuslerdorf",
    "des:rasmusle",
    "des:x",
    "broken:x",
    "broken:",
    "star:*0",
    "star:*1",
    "none:",
    "none:x",
    "twice:one",
    "twice:two",
    "last:secret",
    "last:secre",
    "an:secret",
    "ann",
    ":secret",
    "",
    "ann:secret:x",
    "ann:",
    "Ann:secret",
    "nobody:x",
];

/// `ann` and `bob` have the password `secret`; the others are named for their scheme.
const USERS: &str = "# who may\n\
    ann:{PLAIN}secret:comment\n\
    bob:{PLAIN}secret\r\n\
    #no:{PLAIN}secret\n\
    apr1:$apr1$salt$Xxd1irWT9ycqoYxGFn4cb.\n\
    sha:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\n\
    ssha:{SSHA}yI6cZwQadOA1e+/f+T+H3eCQQhRzYWx0\n\
    bcrypt:$2b$05$abcdefghijklmnopqrstuu8.veTXNDPV2eEsdpKNczMw2otgh5LnK\n\
    yescrypt:$y$j75$salt$ZO75/uAba3Bvdq4yJZ3qPpy6aPr5yvQO8HREtqZ2Pz/\n\
    des:rl.3StKT.4T8M\n\
    broken:x\n\
    star:*0\n\
    none:\n\
    twice:{PLAIN}one\n\
    twice:{PLAIN}two\n\
    last:{PLAIN}secret";

const GUARDED: &str = "server { listen %%PORT%%;
        auth_basic closed; auth_basic_user_file users;
        location /a { }
        location /open { auth_basic off; }
        location /variable { auth_basic \"for $host\"; auth_basic_user_file %%PREFIX%%/$arg_file; }
        location /whole { auth_basic $arg_realm; auth_basic_user_file $arg_file; }
        location /nofile { auth_basic_user_file absent; }
        location /directory { auth_basic_user_file html; }
        location /page { error_page 401 /open; }
        location /user { auth_basic off; try_files /absent @user; }
        location @user { return 200 \"$remote_user\"; }
        location /any { satisfy any; deny all; }
        location /allowed { satisfy any; allow 127.0.0.1; deny all; }
        location /allall { satisfy all; allow 127.0.0.1; deny all; }
        location /denied { deny all; }
        location /anyfile { satisfy any; deny all; auth_basic_user_file absent; }
        location /anyopen { satisfy any; deny all; auth_basic off; }
        location /anynone { satisfy any; auth_basic off; }
        location /anyallow { satisfy any; allow 10.0.0.1; }
        location /limited { auth_basic off; limit_except GET POST { auth_basic limited; deny all; } }
        }";

fn basic(pair: &str) -> String {
    let encoded = clearway_base::base64::encode(pair.as_bytes());
    format!("Authorization: Basic {}\r\n", String::from_utf8_lossy(&encoded))
}

#[test]
fn passwords() {
    let names = [
        "a",
        "open",
        "variable",
        "whole",
        "nofile",
        "page",
        "any",
        "allowed",
        "allall",
        "denied",
        "anyfile",
        "anyopen",
        "anynone",
        "anyallow",
        "limited",
        "directory",
    ];
    let mut case = with_files(Case::http(GUARDED), &names).file("users", USERS);
    for name in names {
        let target = format!("/{name}");
        for headers in [String::new(), basic("ann:secret"), basic("ann:wrong")] {
            case = case.ask(ask("GET", &target, &headers));
        }
    }
    case.run();
}

#[test]
fn schemes_and_headers() {
    let mut case =
        with_files(Case::http(GUARDED), &["a", "limited", "variable", "whole"]).file("users", USERS);
    for pair in PAIRS {
        case = case.ask(ask("GET", "/a", &basic(pair)));
    }
    for value in [
        "Basic",
        "Basic ",
        "basic YW5uOnNlY3JldA==",
        "Basic   YW5uOnNlY3JldA",
        "Basic !",
        "Digest x",
        "Basic YW5uOnNlY3JldA== x",
        "YW5uOnNlY3JldA==",
        "Basic YW5uOnNlY3JldAB4",
        "Basic YW5uOnNlY3JldABx",
    ] {
        case = case.ask(ask("GET", "/a", &format!("Authorization: {value}\r\n")));
    }
    for target in [
        "/variable?file=users",
        "/variable?file=none",
        "/whole?realm=off&file=users",
        "/whole?realm=r&file=users",
        "/whole?realm=r",
        "/whole?file=users",
        "/user",
    ] {
        case = case.ask(ask("GET", target, "")).ask(ask("GET", target, &basic("ann:secret")));
    }
    for method in ["HEAD", "POST", "PUT", "DELETE", "BREW", "OPTIONS"] {
        let headers = "Content-Length: 0\r\n";
        case = case.ask(ask(method, "/limited", headers));
        case = case.ask(ask(method, "/limited", &(basic("ann:secret") + headers)));
        case = case.ask(ask(method, "/a", headers));
    }
    case.run();
}

const LIMITED: &str = "server { listen %%PORT%%;
        location /get { limit_except GET { deny all; } }
        location /head { limit_except HEAD { deny all; } }
        location /several { limit_except get Put DELETE { deny all; } }
        location /allow { limit_except GET { allow 127.0.0.1; deny all; } }
        location /returns { return 200 returned; limit_except GET { deny all; } }
        location /rewrites { rewrite ^ /get; limit_except GET { deny all; } }
        location /gif { empty_gif; limit_except GET { deny 10.0.0.1; } }
        location /inherits { deny all; limit_except GET { } }
        location /error { error_page 403 = /page; limit_except GET { deny all; } }
        location /page { }
        location /named { error_page 403 = @named; limit_except GET { deny all; } }
        location @named { return 200 named; }
        location /if { if ($arg_x) { root %%PREFIX%%/html; } limit_except GET { deny all; } }
        location /outer { limit_except GET { deny all; } location /outer/inner { } }
        location /alias { alias %%PREFIX%%/html/get; limit_except GET { deny 10.0.0.1; } }
        }";

#[test]
fn methods() {
    let names = ["get", "head", "several", "allow", "returns", "rewrites", "inherits", "error", "page"];
    let more = ["named", "if", "outer/x", "outer/inner", "alias", "gif"];
    let names: Vec<&str> = names.into_iter().chain(more).collect();
    let mut case = with_files(Case::http(LIMITED), &names);
    for name in names {
        for method in ["GET", "HEAD", "POST", "DELETE", "BREW"] {
            case = case.ask(ask(method, &format!("/{name}"), "Content-Length: 0\r\n"));
        }
    }
    case.ask(ask("POST", "/if?x=1", "Content-Length: 0\r\n")).run();
}
