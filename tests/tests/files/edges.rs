//! Files that are not what they seem, or do not stay what they were: nginx and the server under test see the
//! same, answer the same and say the same in their error logs, except for how far a file was sent.

use std::fmt::Write;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::recorded::{abbreviated, compare};
use clearway_testkit::server::is_root;
use clearway_testkit::{Answer, Binary, End, Server, Setup};

/// More than the buffers of a connection can hold, bytes.
const LARGE_BYTES: usize = 32 << 20;

fn config(user: &str) -> String {
    format!(
        "daemon off;\n{user}\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n%%TEMP%%\naccess_log off; default_type text/plain; root %%PREFIX%%/site; sendfile on;\n\
         charset_map windows-1251 koi8-r {{ 80 E1; }}\n\
         server {{ listen 127.0.0.1:%%PORT%%; server_name localhost;\n\
         location /read/ {{ alias %%PREFIX%%/site/; sendfile off; }}\n\
         location /bytes/ {{ alias %%PREFIX%%/site/; charset koi8-r; source_charset windows-1251; }}\n\
         location /list/ {{ alias %%PREFIX%%/site/; autoindex on; }}\n\
         location /try/ {{ alias %%PREFIX%%/site/; try_files $uri /try/file =404; }}\n\
         location /kept/ {{ alias %%PREFIX%%/site/; open_file_cache max=100; open_file_cache_errors on; }}\n\
         location /nolinks/ {{ alias %%PREFIX%%/site/; disable_symlinks on; }}\n\
         }} }}\n"
    )
}

fn start(binary: Binary, prepare: fn(&Path)) -> Server {
    let user = if is_root() { "user nobody nogroup;" } else { "" };
    let setup = Setup::new(binary, &config(user)).file("site/file", "a file\n").prepared(prepare);
    setup.ready_at("127.0.0.1:%%PORT%%").start()
}

/// What the error log says: level and message, up to what is different with each server. Numbers stand
/// for how far something went.
fn said(server: &Server, requests: usize) -> Vec<String> {
    server.get("/the-last-one");
    let log = server.wait_log("logs/error.log", "/the-last-one\" failed");
    // A slow machine holds loops; that is told, and no matter here.
    let is_meant = |line: &&str| {
        line.contains("request: ") && !line.contains("the-last-one") && !line.contains(" stall ")
    };
    let lines = log.lines().filter(is_meant);
    let lines: Vec<String> = lines.map(|line| neutral(&server.with_keys(line))).collect();
    assert!(lines.len() <= 2 * requests, "{lines:#?}");
    lines
}

/// `TIME [level] PID#TID: *N message, client: …` without times and ids; of other numbers only those in
/// parentheses, which are errors, stay.
fn neutral(line: &str) -> String {
    let (_, rest) = line.split_once('[').unwrap_or(("", line));
    let (level, rest) = rest.split_once(']').unwrap_or(("", rest));
    let message = rest.split_once('*').and_then(|(_, rest)| rest.split_once(' ')).map_or(rest, |(_, m)| m);
    let numbers = ["truncated at ", "read only "].iter().any(|words| message.contains(words));
    let message: String = match numbers {
        true => message
            .split(' ')
            .map(|word| word.replace(|c: char| c.is_ascii_digit(), ""))
            .fold(String::new(), |text, word| text + " " + &word),
        false => message.to_owned(),
    };
    format!("[{level}] {message}")
}

/// Both servers are asked for these: statuses, bodies and lines of the error log are compared.
#[track_caller]
fn both_say(prepare: fn(&Path), targets: &[String]) {
    compare(&format!("{}\n{}", targets.join("\n"), config("")), |binary| {
        let server = start(binary.clone(), prepare);
        let mut out = String::new();
        for target in targets {
            let answer = server.get(target);
            let body = (answer.status == 200).then(|| answer.text());
            writeln!(out, "{target} {} {}", answer.status, body.unwrap_or_default().escape_debug())
                .expect("memory");
        }
        out + &said(&server, targets.len()).join("\n")
    });
}

fn in_each(ways: &[&str], names: &[&str]) -> Vec<String> {
    ways.iter().flat_map(|way| names.iter().map(move |name| format!("{way}{name}"))).collect()
}

fn make(path: &Path, mode: u32) {
    if let Some(name) = path.to_str().filter(|name| name.ends_with('/')) {
        fs::create_dir_all(name).expect("the prefix is ours");
    } else {
        fs::write(path, "contents\n").expect("the prefix is ours");
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn what_may_not_be_read() {
    let prepare = |prefix: &Path| {
        let site = prefix.join("site");
        make(&site.join("closed"), 0o000);
        for (name, mode) in [("shut/", 0o755), ("blind/", 0o755), ("open/", 0o755)] {
            make(&site.join(name), mode);
            make(&site.join(name).join("in"), 0o644);
        }
        make(&site.join("open/closed"), 0o000);
        make(&site.join("open/index.html"), 0o000);
        fs::set_permissions(site.join("shut"), Permissions::from_mode(0o000)).expect("it is ours");
        fs::set_permissions(site.join("blind"), Permissions::from_mode(0o311)).expect("it is ours");
    };
    let names = [
        "closed",
        "shut",
        "shut/",
        "shut/in",
        "shut/none",
        "blind",
        "blind/",
        "blind/in",
        "blind/none",
        "open/",
        "open/closed",
        "open/in",
    ];
    // With a cache nginx opens an index to see whether it is there, and says so in other words.
    let targets = in_each(&["/", "/list/", "/try/", "/kept/", "/nolinks/"], &names);
    let targets: Vec<String> = targets.into_iter().filter(|target| target != "/kept/open/").collect();
    both_say(prepare, &targets);
}

#[test]
fn what_is_no_file() {
    let prepare = |prefix: &Path| {
        let site = prefix.join("site");
        for (to, name) in [("loop", "loop"), ("nothing", "dangling"), ("file", "link"), (".", "here")] {
            symlink(to, site.join(name)).expect("the prefix is ours");
        }
        let fifo = std::process::Command::new("mkfifo").arg("-m666").arg(site.join("fifo")).status();
        assert!(fifo.expect("there is mkfifo").success());
        drop(std::os::unix::net::UnixListener::bind(site.join("socket")).expect("the prefix is ours"));
    };
    let long = "n".repeat(300);
    let names = [
        "loop",
        "loop/x",
        "dangling",
        "link",
        "link/",
        "link/x",
        "here/here/file",
        "fifo",
        "fifo/",
        "socket",
        "file/",
        "file/x",
        &long,
        "none/none",
    ];
    both_say(prepare, &in_each(&["/", "/list/", "/try/", "/kept/", "/kept/", "/nolinks/"], &names));
}

/// Control bytes stand in nginx's log as they came, and escaped in this one (`integration/error_log.rs`); `/`
/// separates names, and `%` and `.` are other tests'.
#[test]
fn missing_names_of_every_byte() {
    let targets: Vec<String> = (b' '..=b'~').map(|byte| format!("/none-%{byte:02x}-x")).collect();
    both_say(|_| {}, &targets);
}

fn large(prefix: &Path) {
    let line = "a line of a large file\n";
    let text = line.repeat(LARGE_BYTES / line.len() + 1);
    fs::write(prefix.join("site/large"), &text[..LARGE_BYTES]).expect("the prefix is ours");
}

/// Begins to read, has something happen to the file, reads on: how many bytes there are of it.
fn while_sending(binary: Binary, way: &str, happens: fn(&Path)) -> (Server, usize) {
    let server = start(binary, large);
    let mut client = server.connect();
    client.send(format!("GET {way}large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes());
    assert_eq!(client.next_event(PATIENCE), End::Data);
    happens(&server.prefix().join("site/large"));
    let (bytes, end) = client.read_to_end(PATIENCE);
    assert_ne!(end, End::Open, "{way}");
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{way}");
    (server, bytes.len() - head)
}

#[test]
fn a_file_that_is_cut_while_it_is_sent() {
    let cut = |path: &Path| {
        let file = File::options().write(true).open(path).expect("the file is ours");
        file.set_len(LARGE_BYTES as u64 / 2).expect("the file is ours");
    };
    for way in ["/", "/read/", "/bytes/"] {
        compare(&format!("cut {way}\n{}", config("")), |binary| {
            let (server, bytes) = while_sending(binary.clone(), way, cut);
            assert!(bytes < LARGE_BYTES, "{way}: {bytes} bytes");
            let lines = said(&server, 1);
            assert_eq!(server.get("/file").text(), "a file\n");
            assert_eq!(lines.len(), 1, "{way}: {lines:?}");
            lines.concat()
        });
    }
}

#[test]
fn a_file_that_goes_while_it_is_sent() {
    let ways: [fn(&Path); 2] = [
        |path| fs::remove_file(path).expect("the file is ours"),
        |path| fs::set_permissions(path, Permissions::from_mode(0o000)).expect("the file is ours"),
    ];
    for (way, happens) in ["/", "/read/", "/bytes/"].iter().flat_map(|way| ways.map(|h| (way, h))) {
        for binary in Binary::expected_alike() {
            let (server, bytes) = while_sending(binary, way, happens);
            assert_eq!(bytes, LARGE_BYTES, "{way}");
            assert_eq!(said(&server, 1), [""; 0], "{way}");
        }
    }
}

/// Beyond what 32 bits can say; nobody writes what is not there.
#[test]
fn a_sparse_file_of_five_gigabytes() {
    const BYTES: u64 = 5 << 30;
    let prepare = |prefix: &Path| {
        use std::os::unix::fs::FileExt;
        let file = File::create(prefix.join("site/sparse")).expect("the prefix is ours");
        file.set_len(BYTES).expect("the file system has sparse files");
        file.write_all_at(b"0123456789", (4 << 30) - 5).expect("the file is ours");
        file.write_all_at(b"the end", BYTES - 7).expect("the file is ours");
    };
    let ranges = [
        "0-9",
        "4294967291-4294967300",
        "4294967296-4294967296",
        "-7",
        "5368709110-",
        "5368709120-",
        "4294967290-4294967300,-3",
        "0-0,5368709119-5368709119",
        "4294967200-4295032832",
        "18446744073709551615-",
    ];
    compare(&format!("a sparse file: {ranges:?}\n{}", config("")), |binary| {
        let server = start(binary.clone(), prepare);
        let mut all = String::new();
        for way in ["/", "/read/", "/kept/", "/bytes/"] {
            let mut connection = server.connect();
            connection.send(format!("HEAD {way}sparse HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            let head = connection.try_response(Answer::HeadOnly).expect("an answer");
            let length = head.header("content-length").unwrap_or("no");
            assert_eq!(head.status, 200, "{way}");
            writeln!(all, "{way} HEAD {length} bytes").expect("memory");
            for range in ranges.iter().filter(|_| way != "/bytes/") {
                let request = format!("GET {way}sparse HTTP/1.1\r\nHost: a\r\nRange: bytes={range}\r\n\r\n");
                let answer = connection.ask(&request);
                let boundary = answer.header("content-type").unwrap_or_default().rsplit_once('=');
                let boundary = boundary.map_or("(none)", |(_, boundary)| boundary).to_owned();
                let shown = match answer.status {
                    206 => answer.text().replace(&boundary, "(boundary)"),
                    _ => answer.header("content-range").unwrap_or_default().to_owned(),
                };
                let shown = abbreviated(shown.escape_debug().to_string().replace("\\r\\n", "\n    "));
                writeln!(all, "{way} {range} {} {shown}", answer.status).expect("memory");
            }
        }
        all
    });
}
