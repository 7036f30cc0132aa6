//! Application servers and memcached as distributions have them: what they are asked and what they answer
//! arrives. Debian's packages are php8.2-fpm, uwsgi-core with uwsgi-plugin-python3, memcached; tests of what
//! is not installed are counted as ignored.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod health_checks;
mod installed;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clearway_testkit::{Binary, Connection, Server, Setup};

use crate::installed::Application;

/// What is uploaded at most, bytes.
const UPLOAD_BYTES: usize = 64 * 1024 * 1024;

/// What is downloaded, bytes.
const DOWNLOAD_BYTES: usize = 10 * 1024 * 1024;

/// For what takes its time on a loaded machine.
const LONG: Duration = Duration::from_secs(120);

fn start(http: &str) -> Server {
    let config = format!(
        "daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n\
         events {{ }}\nhttp {{\n%%TEMP%%\nclient_max_body_size 0;\n{http}\n}}\n"
    );
    Setup::new(Binary::under_test(), &config).file("html/inside.txt", "a file").start()
}

/// The body of a response, and its head.
fn split(answer: &[u8]) -> (String, &[u8]) {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("a head");
    (String::from_utf8_lossy(&answer[..end]).into_owned(), &answer[end + 4..])
}

/// Sends a body of this length, in chunks or not; what the application says of it.
fn upload(server: &Server, path: &str, len: usize, framing: Framing) -> String {
    let mut connection = Connection::open(&server.address()).expect("it listens");
    let length = match framing {
        Framing::Counted => format!("Content-Length: {len}"),
        Framing::Chunked => "Transfer-Encoding: chunked".to_owned(),
    };
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{length}\r\n\r\n");
    connection.send(head.as_bytes());
    let piece: Vec<u8> = (0..1 << 16).map(|at: usize| (at % 251) as u8).collect();
    let mut left = len;
    while left > 0 {
        let part = &piece[..left.min(piece.len())];
        left -= part.len();
        match framing {
            Framing::Counted => connection.send(part),
            Framing::Chunked => {
                connection.send(&[format!("{:x}\r\n", part.len()).as_bytes(), part, b"\r\n"].concat());
            }
        }
    }
    if framing == Framing::Chunked {
        connection.send(b"0\r\n\r\n");
    }
    let (answer, _) = connection.read_to_end(LONG);
    let (head, body) = split(&answer);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let body = match head.contains("Transfer-Encoding: chunked") {
        true => String::from_utf8_lossy(body).lines().nth(1).unwrap_or_default().to_owned(),
        false => String::from_utf8_lossy(body).into_owned(),
    };
    body.trim_end().to_owned()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Counted,
    Chunked,
}

/// The sum of the bytes that `upload` sends.
fn sum(len: usize) -> u64 {
    let of_piece = |len: usize| (0..len).map(|at| (at % 251) as u64).sum::<u64>();
    (len >> 16) as u64 * of_piece(1 << 16) + of_piece(len & 0xffff)
}

/// What all applications do alike, at these paths.
fn expect_application(server: &Server, prefix: &str, framings: &[Framing]) {
    for (path, expected) in [("/front/a/b?c=d", "GET|/front/a/b|c=d"), ("/front/%41%20b", "GET|/front/A b|")]
    {
        assert_eq!(server.get(&format!("{prefix}{path}")).text().trim_end(), expected);
    }
    let missing = server.get(&format!("{prefix}/missing"));
    assert_eq!((missing.status, missing.text().trim_end()), (404, "nothing here"));
    let large = server.get(&format!("{prefix}/large"));
    assert_eq!((large.status, large.body.len()), (200, DOWNLOAD_BYTES));
    assert!(large.body.iter().enumerate().all(|(at, &byte)| byte == b'a' + (at / 1024 % 26) as u8));
    assert_eq!(server.get(&format!("{prefix}/accel")).text(), "a file");
    assert_eq!(server.get(&format!("{prefix}/slow")).text().trim_end(), "slowly");
    for &framing in framings {
        for len in [0, 1, 70_000, UPLOAD_BYTES] {
            let said = upload(server, &format!("{prefix}/upload"), len, framing);
            assert_eq!(said, format!("{len} {}", sum(len)));
        }
    }
}

/// Both ways to pass a body on, in locations that begin with `/` and `/stream/`, with and without buffers for
/// responses.
fn locations(family: &str, server: &str, params: &str) -> String {
    let location = |path: &str, more: &str| {
        format!(
            "location {path} {{ rewrite ^/(?:stream|kept)(/.*) $1 break; {params} {more}
                                {family}_pass {server}; }}"
        )
    };
    let off = format!("{family}_request_buffering off; {family}_buffering off;");
    let kept = if family == "fastcgi" { "fastcgi_keep_conn on;" } else { "" };
    format!(
        "server {{ listen 127.0.0.1:%%PORT%%;
            {} {} {}
            location /inside/ {{ internal; alias html/; }} }}",
        location("/", ""),
        location("/stream/", &off),
        location("/kept/", kept),
    )
}

#[test]
#[cfg_attr(no_php_fpm, ignore = "php-fpm8.2 is not installed")]
fn php_is_served() {
    let php = Application::php();
    let params = format!(
        "fastcgi_param SCRIPT_FILENAME {}; fastcgi_param PATH_INFO $uri;
         fastcgi_param REQUEST_METHOD $request_method; fastcgi_param QUERY_STRING $query_string;
         fastcgi_param CONTENT_LENGTH $content_length; fastcgi_param CONTENT_TYPE $content_type;",
        php.script().display()
    );
    let upstream = format!("upstream php {{ server unix:{}; keepalive 4; }}", php.socket().display());
    let server = start(&format!("{upstream} {}", locations("fastcgi", "php", &params)));
    expect_application(&server, "", &[Framing::Counted, Framing::Chunked]);
    expect_application(&server, "/stream", &[Framing::Counted]);
    expect_application(&server, "/kept", &[Framing::Counted]);
    assert_eq!(server.get("/complains").text(), "behind a complaint");
    server.wait_log("logs/error.log", "FastCGI sent in stderr: \"PHP message: a complaint");
}

/// As the handbook of any PHP application has it: files that are there, one script for the rest, and paths
/// behind the script's name.
#[test]
#[cfg_attr(no_php_fpm, ignore = "php-fpm8.2 is not installed")]
fn php_is_served_by_a_front_controller() {
    let php = Application::php();
    let root = php.script().parent().expect("it lies in a directory").display().to_string();
    std::fs::write(format!("{root}/style.css"), "a { }").expect("it is ours");
    let server = start(&format!(
        "server {{ listen 127.0.0.1:%%PORT%%; root {root}; index index.php;
            location / {{ try_files $uri $uri/ /index.php$uri?$args; }}
            location ~ [^/]\\.php(/|$) {{
                fastcgi_split_path_info ^(.+?\\.php)(/.*)$;
                if (!-f $document_root$fastcgi_script_name) {{ return 404; }}
                include fastcgi_params;
                fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
                fastcgi_param PATH_INFO $fastcgi_path_info;
                fastcgi_pass unix:{}; }}
            location /inside/ {{ internal; alias html/; }} }}",
        php.socket().display()
    ));
    for (path, expected) in [
        ("/a/b?c=d", "GET|/a/b|c=d"),
        ("/index.php/x%20y?z", "GET|/x y|z"),
        ("/index.php?q=1", "GET||q=1"),
        ("/?q=1", "GET||q=1"),
        ("/style.css", "a { }"),
        ("/accel", "a file"),
    ] {
        assert_eq!(server.get(path).text().trim_end(), expected, "{path}: {}", server.error_log());
    }
    assert_eq!(server.get("/missing").status, 404);
    assert_eq!(server.get("/none.php/x").status, 404);
    let said = upload(&server, "/upload", UPLOAD_BYTES, Framing::Counted);
    assert_eq!(said, format!("{UPLOAD_BYTES} {}", sum(UPLOAD_BYTES)));
}

#[test]
#[cfg_attr(no_uwsgi, ignore = "uwsgi with its plugin for Python is not installed")]
fn python_is_served() {
    let python = Application::python();
    let params = "uwsgi_param PATH_INFO $uri; uwsgi_param REQUEST_METHOD $request_method;
         uwsgi_param QUERY_STRING $query_string; uwsgi_param CONTENT_LENGTH $content_length;
         uwsgi_param REQUEST_URI $request_uri; uwsgi_param SERVER_PROTOCOL $server_protocol;
         uwsgi_param SERVER_NAME $server_name; uwsgi_param SERVER_PORT $server_port;";
    let address = format!("unix:{}", python.socket().display());
    let server = start(&locations("uwsgi", &address, params));
    expect_application(&server, "", &[Framing::Counted, Framing::Chunked]);
    expect_application(&server, "/stream", &[Framing::Counted]);
}

#[test]
#[cfg_attr(no_memcached, ignore = "memcached is not installed")]
fn memcached_is_asked() {
    let memcached = Application::memcached();
    let mut stream = UnixStream::connect(memcached.socket()).expect("it listens");
    let large = "0123456789".repeat(50_000);
    for (key, value) in
        [("/a", "a value"), ("/empty", ""), ("/a%20b", "of a key with a space"), ("/l", &large)]
    {
        write!(stream, "set {key} 0 0 {}\r\n{value}\r\n", value.len()).expect("it takes it");
        let mut said = [0; 8];
        stream.read_exact(&mut said).expect("it answers");
        assert_eq!(&said, b"STORED\r\n");
    }
    let server = start(&format!(
        "upstream keys {{ server unix:{}; keepalive 4; }}
         server {{ listen 127.0.0.1:%%PORT%%; default_type text/x-kept;
            location / {{ set $memcached_key $uri; memcached_pass keys; error_page 404 = @none; }}
            location @none {{ return 200 none; }} }}",
        memcached.socket().display()
    ));
    for _ in 0..3 {
        let text = |path: &str| server.get(path).text();
        assert_eq!(text("/a"), "a value");
        assert_eq!(text("/a%20b"), "of a key with a space");
        assert_eq!((text("/empty"), text("/none")), (String::new(), "none".to_owned()));
        assert_eq!(text("/l"), large);
    }
    let connection_count = {
        stream.write_all(b"stats\r\n").expect("it takes it");
        let mut said = Vec::new();
        let mut piece = [0; 4096];
        while !said.ends_with(b"END\r\n") {
            let len = stream.read(&mut piece).expect("it answers");
            said.extend_from_slice(&piece[..len]);
        }
        let said = String::from_utf8_lossy(&said).into_owned();
        let line = said.lines().find_map(|line| line.strip_prefix("STAT total_connections "));
        line.and_then(|count| count.trim().parse::<u32>().ok()).expect("a count")
    };
    assert!(connection_count <= 5, "connections are used again: {connection_count}");
}

/// An SCGI server that does what the applications do.
fn scgi() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let answer = answer_scgi(&mut stream);
                let _ = stream.write_all(&answer.unwrap_or_else(|| b"Status: 400\r\n\r\n".to_vec()));
            });
        }
    });
    port
}

fn answer_scgi(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = Vec::new();
    while length.last() != Some(&b':') {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        length.extend_from_slice(&byte);
    }
    let length: usize = std::str::from_utf8(&length[..length.len() - 1]).ok()?.parse().ok()?;
    let mut netstring = vec![0; length + 1];
    stream.read_exact(&mut netstring).ok()?;
    let texts: Vec<_> = netstring.split(|&byte| byte == 0).map(String::from_utf8_lossy).collect();
    let find = |name: &str| texts.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].clone());
    let (path, body_len) = (find("PATH_INFO")?, find("CONTENT_LENGTH")?.parse::<usize>().ok()?);
    assert_eq!(texts[0], "CONTENT_LENGTH", "it comes first");
    let plain = |text: String| format!("Content-Type: text/plain\r\n\r\n{text}").into_bytes();
    Some(match &path[..] {
        "/upload" => {
            let mut body = vec![0; body_len];
            stream.read_exact(&mut body).ok()?;
            let sum: u64 = body.iter().map(|&byte| u64::from(byte)).sum();
            plain(format!("{body_len} {sum}"))
        }
        "/large" => {
            let mut answer = plain(String::new());
            answer.extend((0..DOWNLOAD_BYTES).map(|at| b'a' + (at / 1024 % 26) as u8));
            answer
        }
        "/accel" => b"X-Accel-Redirect: /inside/inside.txt\r\n\r\n".to_vec(),
        "/missing" => b"Status: 404 Not Found\r\n\r\nnothing here".to_vec(),
        "/slow" => plain("slowly".to_owned()),
        _ => plain(format!("{}|{path}|{}", find("REQUEST_METHOD")?, find("QUERY_STRING")?)),
    })
}

#[test]
fn scgi_is_spoken() {
    let params = "scgi_param PATH_INFO $uri; scgi_param REQUEST_METHOD $request_method;
         scgi_param QUERY_STRING $query_string;";
    let server = start(&locations("scgi", &format!("127.0.0.1:{}", scgi()), params));
    expect_application(&server, "", &[Framing::Counted, Framing::Chunked]);
    expect_application(&server, "/stream", &[Framing::Counted]);
}
