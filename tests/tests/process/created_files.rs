//! Mode and owner of everything that a daemon creates, as nginx's: it has no umask that would take rights
//! away from users that should have none.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::server::is_root;
use clearway_testkit::{Binary, Server, Setup, wait_until};
use rustix::process::Signal;

use crate::is_clearway;

const HTTP: &str = "client_body_temp_path body 1; \
    access_log logs/access.log; root site; \
    server { listen 127.0.0.1:%%PORT%%; listen unix:%%PREFIX%%/sock; \
    location / { access_log logs/$http_x.log; } \
    location = /no/body { return 204; } \
    location /keep/ { client_body_in_file_only on; mirror /no/body; } \
    location /plain/ { dav_methods PUT MKCOL; create_full_put_path on; } \
    location /all/ { dav_methods PUT MKCOL; create_full_put_path on; \
    dav_access user:rw group:rw all:r; } }";

/// What nginx 1.31.5 creates, with `user nobody`.
const CREATED: &[&str] = &[
    "d 0700 nobody body",
    "d 0700 nobody body/N",
    "- 0600 nobody body/N/N",
    "- 0644 root logs/access.log",
    "- 0644 root logs/error.log",
    "- 0644 nobody logs/named.log",
    "- 0644 root nginx.pid",
    "d 0775 nobody site/all",
    "d 0775 nobody site/all/dir",
    "- 0664 nobody site/all/dir/f",
    "d 0775 nobody site/all/made",
    "d 0700 nobody site/plain",
    "d 0700 nobody site/plain/dir",
    "- 0600 nobody site/plain/dir/f",
    "d 0700 nobody site/plain/made",
    "s 0666 root sock",
];

/// What is there besides when the logs were moved and opened anew, and a reload has moved the pid file.
const RENEWED: &[&str] = &[
    "- 0644 nobody logs/access.log",
    "- 0644 root logs/access.old",
    "- 0644 nobody logs/error.log",
    "- 0644 root logs/error.old",
    "- 0644 nobody logs/named.old",
    "- 0644 root other.pid",
];

fn configuration(pid: &str) -> String {
    let user = if is_root() { "user nobody nogroup;" } else { "" };
    // Clearway has no such directives.
    let temp = match is_clearway() {
        true => "",
        false => {
            "proxy_temp_path temp/proxy; fastcgi_temp_path temp/fastcgi; uwsgi_temp_path temp/uwsgi; \
             scgi_temp_path temp/scgi;"
        }
    };
    format!(
        "daemon on;\nworker_processes 1;\npid {pid};\nerror_log logs/error.log notice;\n{user}\n\
         events {{ worker_connections 512; }}\nhttp {{ {temp} {HTTP} }}\n"
    )
}

/// Everything below the prefix that the test has not made itself, as `TYPE MODE OWNER PATH`, in order of
/// paths.
fn created(server: &Server, made: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    list(server.prefix(), server.prefix(), &mut found);
    found.retain(|(path, _)| !made.contains(path) && !path.starts_with("temp/"));
    found.iter_mut().for_each(|(path, _)| *path = without_numbers(path));
    found.sort();
    found.dedup();
    found.into_iter().map(|(path, rest)| format!("{rest} {path}")).collect()
}

/// Temporary files are numbered, and so are the directories that they are spread over.
fn without_numbers(path: &str) -> String {
    let part = |part: &str| if part.parse::<u32>().is_ok() { "N".to_owned() } else { part.to_owned() };
    path.split('/').map(part).collect::<Vec<_>>().join("/")
}

fn list(prefix: &Path, directory: &Path, found: &mut Vec<(String, String)>) {
    for entry in fs::read_dir(directory).expect("a directory of the test") {
        let path = entry.expect("it can be read").path();
        let metadata = path.symlink_metadata().expect("nobody removes it now");
        let kind = match metadata.file_type() {
            kind if kind.is_dir() => 'd',
            kind if kind.is_socket() => 's',
            _ => '-',
        };
        // A test that runs without rights runs a server that is nobody else.
        let owner = match metadata.uid() {
            0 => "root",
            65534 => "nobody",
            _ => "me",
        };
        let mode = metadata.permissions().mode() & 0o7777;
        let name = path.strip_prefix(prefix).expect("it is below").to_string_lossy().into_owned();
        found.push((name, format!("{kind} {mode:04o} {owner}")));
        if kind == 'd' {
            list(prefix, &path, found);
        }
    }
}

/// A request of each kind that leaves files behind.
fn ask_for_everything(server: &Server) {
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\nX: named\r\n\r\n",
        "POST /keep/x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        "PUT /plain/dir/f HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        "MKCOL /plain/made/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "PUT /all/dir/f HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody",
        "MKCOL /all/made/ HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let status = server.connect().ask(request).status;
        assert!(matches!(status, 200 | 201 | 404), "{status}: {request}");
    }
    let named = server.prefix().join("logs/named.log");
    assert!(wait_until(PATIENCE, || named.exists()), "{}", server.described());
}

fn for_this_user(lines: &[&str]) -> Vec<String> {
    let owner = |line: &str| match is_root() {
        true => line.to_owned(),
        false => line.replace(" root ", " me ").replace(" nobody ", " me "),
    };
    lines.iter().map(|line| owner(line)).collect()
}

#[test]
fn what_a_daemon_creates_has_the_modes_and_owners_of_nginx() {
    let setup = Setup::new(Binary::under_test(), &configuration("nginx.pid")).daemon();
    let setup = setup.ready_at("unix:%%PREFIX%%/sock").file("site/index.html", "").prepared(|prefix| {
        fs::set_permissions(prefix.join("site"), fs::Permissions::from_mode(0o777)).expect("it is ours");
    });
    let mut server = setup.start();
    let made = ["logs", "temp", "nginx.conf", "stderr.log", "site", "site/index.html"].map(str::to_owned);
    ask_for_everything(&server);
    assert_eq!(created(&server, &made), for_this_user(CREATED));
    for log in ["access", "error", "named"] {
        let logs = server.prefix().join("logs");
        fs::rename(logs.join(log).with_extension("log"), logs.join(log).with_extension("old"))
            .expect("it is");
    }
    server.signal(Signal::USR1);
    let reopened = || {
        ["access", "error"]
            .iter()
            .all(|log| server.prefix().join("logs").join(log).with_extension("log").exists())
    };
    assert!(wait_until(PATIENCE, reopened), "{}", server.described());
    server.configure(&configuration("other.pid"));
    server.signal(Signal::HUP);
    let moved = || server.prefix().join("other.pid").exists() && !server.prefix().join("nginx.pid").exists();
    assert!(wait_until(PATIENCE, moved), "{}", server.described());
    let mut renewed = created(&server, &made);
    renewed.retain(|line| !for_this_user(CREATED).contains(line));
    assert_eq!(renewed, for_this_user(RENEWED));
}
