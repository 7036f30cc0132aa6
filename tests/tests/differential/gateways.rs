//! FastCGI, SCGI, uwsgi and memcached servers that answer what they should and what they should not: nginx's
//! status, body and line of the log.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use clearway_testkit::{Binary, Case, Setup, recorded};

use crate::dishonest::{ask, lines_about, show};
use crate::origin::Origin;

/// Types of FastCGI records.
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const END: u8 = 3;

/// What stands around the number of a case in what servers are asked.
const MARK: &str = "case";

const HEAD: &[u8] = b"X-A: b\r\n\r\n";

/// How a server is asked, what its answer is, and what it does behind that.
struct Play {
    title: &'static str,
    path: &'static str,
    bytes: Vec<u8>,
    behind: Behind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Closes,
    /// Until its client leaves.
    Waits,
}

fn config(port: &str) -> String {
    format!(
        "
    upstream kept {{ server 127.0.0.1:{port} max_fails=0; keepalive 4; }}
    fastcgi_read_timeout 1s; scgi_read_timeout 1s; uwsgi_read_timeout 1s; memcached_read_timeout 1s;
    server {{ listen %%PORT%%;
        location /fastcgi/ {{ fastcgi_pass 127.0.0.1:{port}; fastcgi_param U $uri; fastcgi_buffer_size 1k;
                              fastcgi_buffers 8 4k; fastcgi_catch_stderr Fatal; }}
        location /kept/ {{ fastcgi_pass kept; fastcgi_keep_conn on; fastcgi_param U $uri; }}
        location /plain/ {{ fastcgi_pass 127.0.0.1:{port}; fastcgi_param U $uri; fastcgi_buffering off; }}
        location /scgi/ {{ scgi_pass 127.0.0.1:{port}; scgi_param U $uri; }}
        location /uwsgi/ {{ uwsgi_pass 127.0.0.1:{port}; uwsgi_param U $uri; }}
        location /memcached/ {{ set $memcached_key $uri; memcached_pass 127.0.0.1:{port};
                                memcached_gzip_flag 2; default_type text/x-m; memcached_buffer_size 1k; }}
    }}"
    )
}

/// A record with this content.
fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = (content.len() as u16).to_be_bytes();
    [&[1, kind, 0, 1, high, low, 0, 0], content].concat()
}

/// One with zeros behind its content.
fn padded(kind: u8, content: &[u8], padding: u8) -> Vec<u8> {
    let mut record = record(kind, content);
    record[6] = padding;
    record.resize(record.len() + usize::from(padding), 0);
    record
}

/// A whole response of these records.
fn whole(records: &[Vec<u8>]) -> Vec<u8> {
    [records.concat(), record(STDOUT, b""), record(END, &[0; 8])].concat()
}

fn out(content: &[u8]) -> Vec<u8> {
    record(STDOUT, content)
}

fn fastcgi_plays() -> Vec<(&'static str, Vec<u8>)> {
    let head = || out(HEAD);
    let long = [b"X-A: ".as_slice(), &[b'a'; 2000], b"\r\n\r\n"].concat();
    let with_header = |bytes: [u8; 8]| bytes.to_vec();
    vec![
        ("a response", whole(&[head(), out(b"hello")])),
        ("padding", whole(&[padded(STDOUT, HEAD, 255), padded(STDOUT, b"hello", 7)])),
        ("a head in three records", whole(&[out(b"X-A"), out(b": b\r"), out(b"\n\r\nhello")])),
        ("a status", whole(&[out(b"Status: 404 Away\r\n\r\nhello")])),
        ("a status without text", whole(&[out(b"Status: 404\r\n\r\nhello")])),
        ("an unknown status", whole(&[out(b"Status: 799\r\n\r\nhello")])),
        ("a status of letters", whole(&[out(b"Status: abc\r\n\r\nhello")])),
        ("a location", whole(&[out(b"Location: http://a.test/\r\n\r\nhello")])),
        ("a local location", whole(&[out(b"Location: /a\r\n\r\nhello")])),
        ("a status line", whole(&[out(b"HTTP/1.1 200 OK\r\n\r\nhello")])),
        ("lines that end with LF", whole(&[out(b"X-A: b\n\nhello")])),
        ("a length", whole(&[out(b"Content-Length: 5\r\n\r\nhello")])),
        ("a length that is too short", whole(&[out(b"Content-Length: 3\r\n\r\nhello")])),
        ("a length that is too long", whole(&[out(b"Content-Length: 9\r\n\r\nhello")])),
        ("a body that is none", whole(&[out(b"Status: 204\r\n\r\nhello")])),
        ("complaints before", whole(&[record(STDERR, b"one. \r\n"), head(), out(b"hello")])),
        ("complaints between", whole(&[out(b"X-A: b\r\n"), record(STDERR, b"two"), out(b"\r\nhello")])),
        ("complaints behind", whole(&[head(), out(b"hel"), record(STDERR, b"three"), out(b"lo")])),
        ("empty complaints", whole(&[record(STDERR, b""), head(), out(b"hello")])),
        ("fatal complaints", whole(&[record(STDERR, b"PHP Fatal error"), head()])),
        ("fatal complaints behind the head", whole(&[out(b"X-A: b\r\n\r\nhello"), record(STDERR, b"Fatal")])),
        ("no output", whole(&[])),
        ("complaints alone", whole(&[record(STDERR, b"four")])),
        ("an end alone", record(END, &[0; 8])),
        ("a head that does not end", whole(&[out(b"X-A: b\r\n")])),
        ("a head that is too long", whole(&[out(&long)])),
        ("a line without a name", whole(&[out(b": b\r\n\r\n")])),
        ("NUL in a value", whole(&[out(b"X-A: b\0c\r\n\r\n")])),
        ("another version", with_header([2, STDOUT, 0, 1, 0, 0, 0, 0])),
        ("an unknown type", with_header([1, 9, 0, 1, 0, 0, 0, 0])),
        ("another number", with_header([1, STDOUT, 0, 2, 0, 0, 0, 0])),
        ("a large number", with_header([1, STDOUT, 1, 1, 0, 0, 0, 0])),
        ("another protocol", b"HTTP/1.1 200 OK\r\n\r\nhello".to_vec()),
        ("nothing", Vec::new()),
        ("half a header", vec![1, STDOUT, 0]),
        ("half a head", out(b"X-A: b\r\n")),
        ("half a record", out(HEAD)[..12].to_vec()),
    ]
}

fn cgi_plays() -> Vec<(&'static str, Vec<u8>)> {
    let plays: [(&'static str, &[u8]); 18] = [
        ("a response", b"X-A: b\r\n\r\nhello"),
        ("a status", b"Status: 404 Away\r\n\r\nhello"),
        ("a status without text", b"Status: 404\r\n\r\nhello"),
        ("a short status", b"Status: 20\r\n\r\nhello"),
        ("a location", b"Location: http://a.test/\r\n\r\nhello"),
        ("a status line", b"HTTP/1.1 201 Made\r\nX-A: b\r\n\r\nhello"),
        ("a status line and a status", b"HTTP/1.1 201 Made\r\nStatus: 404\r\n\r\nhello"),
        ("a length", b"Content-Length: 5\r\n\r\nhello"),
        ("a length that is too short", b"Content-Length: 3\r\n\r\nhello"),
        ("a length that is too long", b"Content-Length: 9\r\n\r\nhello"),
        ("chunks, which are none", b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"),
        ("lines that end with LF", b"X-A: b\n\nhello"),
        ("a line without a name", b": b\r\n\r\n"),
        ("NUL in a value", b"X-A: b\0c\r\n\r\n"),
        ("a body that is none", b"Status: 304\r\n\r\nhello"),
        ("nothing", b""),
        ("half a head", b"X-A: b\r\n"),
        ("half a status line", b"HTTP/1.1 2"),
    ];
    plays.into_iter().map(|(title, bytes)| (title, bytes.to_vec())).collect()
}

/// `KEY` stands for the key.
fn memcached_plays() -> Vec<(&'static str, Vec<u8>)> {
    let plays: [(&'static str, &[u8]); 19] = [
        ("a value", b"VALUE KEY 0 5\r\nhello\r\nEND\r\n"),
        ("no value", b"VALUE KEY 0 0\r\n\r\nEND\r\n"),
        ("a compressed value", b"VALUE KEY 2 5\r\nhello\r\nEND\r\n"),
        ("other flags", b"VALUE KEY 5 5\r\nhello\r\nEND\r\n"),
        ("no such key", b"END\r\n"),
        ("another key", b"VALUE /other 0 5\r\nhello\r\nEND\r\n"),
        ("a longer key", b"VALUE KEYx 0 5\r\nhello\r\nEND\r\n"),
        ("flags of letters", b"VALUE KEY x 5\r\nhello\r\nEND\r\n"),
        ("a length of letters", b"VALUE KEY 0 x\r\nhello\r\nEND\r\n"),
        ("a length and more", b"VALUE KEY 0 5 6\r\nhello\r\nEND\r\n"),
        ("no length", b"VALUE KEY 0\r\nhello\r\nEND\r\n"),
        ("an error", b"SERVER_ERROR out of memory\r\n"),
        ("a line that ends with LF", b"END\n"),
        ("an empty line", b"\r\n"),
        ("a length that is too short", b"VALUE KEY 0 3\r\nhello\r\nEND\r\n"),
        ("a length that is too long", b"VALUE KEY 0 99\r\nhello\r\nEND\r\n"),
        ("no trailer", b"VALUE KEY 0 5\r\nhello"),
        ("more than a trailer", b"VALUE KEY 0 5\r\nhello\r\nEND\r\nEND\r\n"),
        ("nothing", b""),
    ];
    let mut plays: Vec<_> = plays.into_iter().map(|(title, bytes)| (title, bytes.to_vec())).collect();
    plays.push(("a line that does not end", vec![b'x'; 3000]));
    plays
}

fn plays() -> Vec<Play> {
    let mut all = Vec::new();
    let mut add = |path: &'static str, plays: Vec<(&'static str, Vec<u8>)>| {
        all.extend(plays.into_iter().map(|(title, bytes)| Play {
            title,
            path,
            bytes,
            behind: Behind::Closes,
        }));
    };
    add("/fastcgi/", fastcgi_plays());
    add("/kept/", fastcgi_plays());
    add("/plain/", fastcgi_plays());
    add("/scgi/", cgi_plays());
    add("/uwsgi/", cgi_plays());
    add("/memcached/", memcached_plays());
    for path in ["/fastcgi/", "/kept/", "/plain/"] {
        all.push(Play { title: "silence", path, bytes: Vec::new(), behind: Behind::Waits });
        let bytes = out(b"X-A: b\r\nContent-Length: 9\r\n\r\nhello");
        all.push(Play { title: "silence in the body", path, bytes, behind: Behind::Waits });
    }
    // nginx sees the end of a small response only with that of its connection, unless it is to stay.
    for path in ["/kept/", "/plain/"] {
        let bytes = whole(&[out(b"X-A: b\r\n\r\nhello")]);
        all.push(Play { title: "a response, and patience", path, bytes, behind: Behind::Waits });
    }
    for path in ["/scgi/", "/uwsgi/", "/memcached/"] {
        all.push(Play { title: "silence", path, bytes: Vec::new(), behind: Behind::Waits });
    }
    all
}

/// Reads a request, as far as its number is in it and its end has come; plays.
fn serve(mut stream: TcpStream, plays: &[Play]) {
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&input).into_owned();
        let number = text.split(MARK).nth(1).and_then(|number| number.parse::<usize>().ok());
        if let Some(play) = number.and_then(|number| plays.get(number)).filter(|_| is_whole(&input)) {
            let key = format!("{}{MARK}{}{MARK}", play.path, number.unwrap_or_default());
            let bytes = match play.path {
                "/memcached/" => String::from_utf8_lossy(&play.bytes).replace("KEY", &key).into_bytes(),
                _ => play.bytes.clone(),
            };
            if stream.write_all(&bytes).is_err() {
                return;
            }
            if play.behind == Behind::Waits {
                while stream.read(&mut piece).is_ok_and(|len| len > 0) {}
            }
            return;
        }
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return,
        }
    }
}

/// Whether all of a request without a body is there.
fn is_whole(input: &[u8]) -> bool {
    match input {
        [1, 1, ..] => input.ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]),
        [b'0'..=b'9', ..] => input.ends_with(b","),
        [b'g', ..] => input.ends_with(b"\r\n"),
        [_, low, high, _, rest @ ..] => rest.len() >= usize::from(u16::from_le_bytes([*low, *high])),
        _ => false,
    }
}

fn play(binary: &Binary) -> String {
    let all = Arc::new(plays());
    let mine = Arc::clone(&all);
    let origin = Origin::start(move |stream| serve(stream, &mine));
    let mut server = Setup::http(binary.clone(), &config(&origin.port().to_string())).start();
    let answers: Vec<Vec<u8>> = all
        .iter()
        .enumerate()
        .map(|(number, Play { path, .. })| ask(&server, "GET", &format!("{path}{MARK}{number}{MARK}")))
        .collect();
    let log = server.last_error_log();
    let mut said = String::new();
    for (number, (Play { title, path, .. }, answer)) in all.iter().zip(&answers).enumerate() {
        writeln!(said, "{path} {title}: {}", show("GET", answer)).expect("memory");
        let about = lines_about(&log, &format!("request: \"GET {path}{MARK}{number}{MARK} "));
        // A kept connection that the server closes is met by the next request, or is not.
        let is_luck = |line: &&str| path.starts_with("/kept/") && line.contains("recv() failed (104");
        for line in about.lines().filter(|line| !is_luck(line)) {
            writeln!(said, "{path} {title}: {}", line.trim_start()).expect("memory");
        }
    }
    said
}

#[test]
fn servers_of_all_kinds_and_their_mistakes() {
    let mut question = format!("gateways and their mistakes\n{}\n", config("ORIGIN"));
    for Play { title, path, bytes, behind } in plays() {
        let behind = if behind == Behind::Waits { "waits" } else { "closes" };
        writeln!(question, "{path} {behind} {title} | {}", bytes.escape_ascii()).expect("memory");
    }
    recorded::compare(&question, play);
}

#[test]
fn servers_that_are_not_there() {
    let case = Case::http(
        "server { listen %%PORT%%;
            location /f { fastcgi_pass 127.0.0.1:1; }
            location /s { scgi_pass 127.0.0.1:1; }
            location /u { uwsgi_pass 127.0.0.1:1; }
            location /m { set $memcached_key a; memcached_pass 127.0.0.1:1; }
            location /k { set $memcached_key ''; memcached_pass 127.0.0.1:1; }
            location /fv { fastcgi_pass 127.0.0.1:$arg_p; }
            location /uv { uwsgi_pass $arg_s://127.0.0.1:1; }
            location /slash/ { fastcgi_pass 127.0.0.1:1; }
            location /slash/v/ { scgi_pass 127.0.0.1:$arg_p; }
            location /page { fastcgi_pass 127.0.0.1:1; error_page 502 =200 /fallback; }
            location = /fallback { return 200 'fallback $upstream_status $upstream_addr'; } }",
    );
    let paths = [
        "/f",
        "/s",
        "/u",
        "/m",
        "/k",
        "/fv",
        "/fv?p=1",
        "/fv?p=x",
        "/uv?s=uwsgi",
        "/uv?s=x",
        "/slash",
        "/slash/v",
        "/page",
    ];
    let case = paths.into_iter().fold(case, Case::get);
    case.ask("POST /m HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\na").run();
}

#[test]
fn paths_are_parted_into_scripts_and_the_rest() {
    let case = Case::http(
        "server { listen %%PORT%%;
            location / { return 200 '$fastcgi_script_name|$fastcgi_path_info'; }
            location /i { fastcgi_index index.php; return 200 '$fastcgi_script_name|$fastcgi_path_info'; }
            location /s { fastcgi_split_path_info ^(.+\\.php)(.*)$; fastcgi_index index.php;
                          return 200 '$fastcgi_script_name|$fastcgi_path_info'; }
            location /e { fastcgi_split_path_info ^(x?)(/.*)$; fastcgi_index index.php;
                          return 200 '$fastcgi_script_name|$fastcgi_path_info'; }
            location ~ ^/c(.)(.) { fastcgi_split_path_info ^(.)(.*)$;
                          return 200 '$1|$fastcgi_script_name|$fastcgi_path_info|$2'; }
            location /r { rewrite ^/r(.*) /s$1 last; } }",
    );
    let paths = [
        "/",
        "/a/",
        "/a%20b",
        "/i/",
        "/i",
        "/s/a.php",
        "/s/a.php/b/c",
        "/s/a.php/",
        "/s/b/",
        "/e/x/",
        "/cab/x",
        "/r/a.php/b",
    ];
    paths.into_iter().fold(case, Case::get).run();
}

/// What is announced, and what comes of it, also in answer to HEAD. `NN` is how often it was asked for.
const KEPT: [(&str, &str); 12] = [
    ("matching", "X-A: b\r\nContent-Length: 2\r\n\r\nNN"),
    ("extra", "X-A: b\r\nContent-Length: 2\r\n\r\nNN and more"),
    ("short", "X-A: b\r\nContent-Length: 9\r\n\r\nNN"),
    ("unsized", "X-A: b\r\n\r\nNN"),
    ("none", "Status: 204\r\nX-A: b\r\n\r\n"),
    ("nowhere", "Status: 404\r\nX-A: b\r\n\r\nNN"),
    ("never", "X-Accel-Expires: 0\r\nX-A: b\r\n\r\nNN"),
    ("private", "Cache-Control: private\r\nX-A: b\r\n\r\nNN"),
    ("cookie", "Set-Cookie: a=b\r\nX-A: b\r\n\r\nNN"),
    ("lasting", "Cache-Control: max-age=60\r\nX-A: b\r\nContent-Length: 2\r\n\r\nNN"),
    ("anything", "Vary: *\r\nX-A: b\r\n\r\nNN"),
    ("redirect", "Location: http://a/b\r\nX-A: b\r\n\r\nNN"),
];

fn keeping_config(port: &str) -> String {
    let of = |family: &str| {
        format!(
            "{family}_cache_path %%PREFIX%%/{family} keys_zone={family}:1m; {family}_cache_key $uri;
             {family}_cache_valid any 1m; {family}_cache_methods GET HEAD; {family}_param U $uri;"
        )
    };
    let location = |family: &str| {
        format!("location /{family}/ {{ {family}_pass 127.0.0.1:{port}; {family}_cache {family}; }}")
    };
    let families = ["fastcgi", "scgi", "uwsgi"];
    let (caches, locations) = (families.map(of).join("\n"), families.map(location).join("\n"));
    format!("{caches}\nserver {{ listen %%PORT%%;\n{locations} }}")
}

/// Answers what [`KEPT`] has, and counts how often.
fn serve_kept(mut stream: TcpStream, counts: &[AtomicUsize]) {
    let (mut input, mut piece) = (Vec::new(), [0; 4096]);
    while !is_whole(&input) {
        match stream.read(&mut piece) {
            Ok(len @ 1..) => input.extend_from_slice(&piece[..len]),
            _ => return,
        }
    }
    let text = String::from_utf8_lossy(&input).into_owned();
    let families = ["/fastcgi/", "/scgi/", "/uwsgi/"].iter().enumerate();
    let Some((family, path)) = families.into_iter().find(|(_, path)| text.contains(**path)) else { return };
    let found = KEPT.iter().position(|(name, _)| text.contains(&format!("{path}{name}")));
    let Some(number) = found else { return };
    let count = counts[family * KEPT.len() + number].fetch_add(1, Ordering::SeqCst) + 1;
    let answer = KEPT[number].1.replace("NN", &format!("{count:02}"));
    let bytes = if family == 0 { whole(&[out(answer.as_bytes())]) } else { answer.into_bytes() };
    let _ = stream.write_all(&bytes);
}

/// Each is asked for with HEAD and then with GET, twice: whether what came behind the head was kept.
fn play_kept(binary: &Binary) -> String {
    let counts: Vec<_> = (0..3 * KEPT.len()).map(|_| AtomicUsize::new(0)).collect();
    let origin = Origin::start(move |stream| serve_kept(stream, &counts));
    let server = Setup::http(binary.clone(), &keeping_config(&origin.port().to_string())).start();
    let mut said = String::new();
    for path in ["/fastcgi/", "/scgi/", "/uwsgi/"] {
        for (name, _) in KEPT {
            for method in ["HEAD", "GET", "GET"] {
                let answer = ask(&server, method, &format!("{path}{name}"));
                writeln!(said, "{method} {path}{name}: {}", show(method, &answer)).expect("memory");
            }
        }
    }
    said
}

#[test]
fn what_comes_behind_the_head_that_was_asked_for_is_kept_if_it_is_whole() {
    let bodies: String =
        KEPT.iter().map(|(name, text)| format!("{name} {}\n", text.escape_debug())).collect();
    let question = format!("answers to HEAD in caches\n{}\n{bodies}", keeping_config("ORIGIN"));
    recorded::compare(&question, play_kept);
}
