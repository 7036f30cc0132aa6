//! Servers under test: Clearway or nginx, each in a directory of its own below the system's temporary
//! directory, with a configuration in which `%%KEY%%` stands for what differs from run to run:
//! `%%PORT%%`, `%%PORT2%%` … a free port each, `%%PREFIX%%` the directory, `%%TEMP%%` what only nginx
//! needs (its temporary directories), so that it works without the rights of a system service.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use rustix::process::{Pid as KernelPid, Signal, kill_process};

use crate::client::{Address, Connection, PATIENCE};
use crate::ports::free_port;
use crate::process::{Pid, family};
use crate::wait_until;

/// Modification time of every file that a test makes (2024-01-02 03:04:05 UTC), so that two servers
/// send the same validators.
const FILE_TIME_SECONDS: u64 = 1_704_164_645;

const TEMP: &str = "client_body_temp_path temp/body; proxy_temp_path temp/proxy; \
    fastcgi_temp_path temp/fastcgi; uwsgi_temp_path temp/uwsgi; scgi_temp_path temp/scgi;";

/// What is around the `http` part of most tests: one process in the foreground, its logs in `logs/`.
const FRAME: &str = "\
daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log logs/error.log info;
events { worker_connections 256; }
http {
    %%TEMP%%
    access_log logs/access.log;
";

/// Which configuration language extras and version texts to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// The oracle.
    Nginx,
    /// The server this repository builds.
    Clearway,
}

/// A server program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// Where it is.
    pub path: PathBuf,
    /// What it is, by its name.
    pub product: Product,
}

impl Binary {
    /// A program called `nginx` is taken for nginx, everything else for Clearway.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let nginx = path.file_name().is_some_and(|name| name == "nginx");
        Self { product: if nginx { Product::Nginx } else { Product::Clearway }, path }
    }

    /// The server under test: `CLEARWAY_BIN`, or what cargo has built beside this test program. It may
    /// be an nginx: then nginx is compared with nginx, which proves the cases themselves.
    ///
    /// # Panics
    /// If it has not been built.
    pub fn under_test() -> Self {
        let path = std::env::var_os("CLEARWAY_BIN").map_or_else(built, PathBuf::from);
        assert!(path.is_file(), "{}: not built; cargo build -p clearway --features testing", path.display());
        Self::at(path)
    }

    /// The server to compare with: `NGINX_BIN`, or Debian's.
    ///
    /// # Panics
    /// If it is not installed.
    pub fn oracle() -> Self {
        let path = std::env::var_os("NGINX_BIN").map_or_else(|| "/usr/sbin/nginx".into(), PathBuf::from);
        assert!(path.is_file(), "{}: install Debian's nginx-extras", path.display());
        Self::at(path)
    }
}

/// `target/debug/clearway`, from a test program in `target/debug/deps`.
fn built() -> PathBuf {
    let here = std::env::current_exe().expect("a running program has a path");
    let dir = here.parent().expect("a program lies in a directory");
    if dir.ends_with("deps") { dir.with_file_name("clearway") } else { dir.join("clearway") }
}

/// A server that could be started.
pub struct Setup {
    binary: Binary,
    config: String,
    files: Vec<(String, Vec<u8>)>,
    wrapper: Vec<String>,
    ready: Vec<String>,
    place: Place,
}

/// Which file of the program is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The one that was built.
    Built,
    /// A copy in the prefix, for users who may not look where it was built.
    Copied,
}

impl Setup {
    /// With a whole configuration.
    pub fn new(binary: Binary, config: &str) -> Self {
        Self {
            binary,
            config: config.to_owned(),
            files: Vec::new(),
            wrapper: Vec::new(),
            ready: Vec::new(),
            place: Place::Built,
        }
    }

    /// With the contents of the `http` block; see the head of this file for what is around it.
    pub fn http(binary: Binary, content: &str) -> Self {
        Self::new(binary, &format!("{FRAME}{content}\n}}\n"))
    }

    /// Adds a file, its path relative to the prefix; `%%KEY%%` that the configuration has are filled in.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// Starts the server through a program that replaces itself with it (`setpriv`, `taskset`, `sh -c
    /// 'ulimit …; exec "$@"' sh`).
    #[must_use]
    pub fn through(mut self, wrapper: &[&str]) -> Self {
        self.wrapper.extend(wrapper.iter().map(|&word| word.to_owned()));
        self
    }

    /// Runs it without privileges, as the user and group 65534 (`nobody`). Only root can.
    #[must_use]
    pub fn as_nobody(mut self) -> Self {
        self.place = Place::Copied;
        self.through(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"])
    }

    /// It is ready when these listen (`%%KEY%%` may be used), instead of every port on 127.0.0.1.
    #[must_use]
    pub fn ready_at(mut self, listen: &str) -> Self {
        self.ready.push(listen.to_owned());
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    pub fn start(self) -> Server {
        let (dir, ports) = self.prepare();
        let child = self.spawn(&dir);
        let wanted: Vec<Address> = if self.ready.is_empty() {
            ports.iter().map(|(_, port)| localhost(*port)).collect()
        } else {
            self.ready.iter().map(|text| address(&fill(text, &self.binary, &dir, &ports))).collect()
        };
        let mut server = Server { child, dir, ports, exited: None };
        let up = wait_until(PATIENCE, || {
            server.has_exited() || wanted.iter().all(|at| Connection::open(at).is_ok())
        });
        if !up || server.has_exited() {
            let said = server.read("stderr.log") + &server.error_log();
            panic!("{} did not start: {said}", self.binary.path.display());
        }
        server
    }

    /// Runs it, expecting that it refuses to start: its exit code and what it wrote to standard error,
    /// with keys in place of ports and prefix.
    ///
    /// # Panics
    /// If it goes on running.
    pub fn refused(self) -> (Option<i32>, String) {
        let (dir, ports) = self.prepare();
        let child = self.spawn(&dir);
        let mut server = Server { child, dir, ports, exited: None };
        let status = server.wait_exit(PATIENCE);
        let path = self.binary.path.display();
        assert!(status.is_some(), "{path} accepts what it should refuse:\n{}", self.config);
        let said = server.with_keys(&server.read("stderr.log"));
        (status.and_then(|status| status.code()), said)
    }

    /// Makes the directory with all files and fills the configuration in.
    fn prepare(&self) -> (PathBuf, Vec<(String, u16)>) {
        let dir = new_dir();
        for sub in ["logs", "temp"] {
            make_dir(&dir.join(sub));
        }
        let ports: Vec<(String, u16)> = keys(&self.config)
            .into_iter()
            .filter(|key| key.starts_with("PORT"))
            .map(|key| (key, free_port()))
            .collect();
        for (path, content) in &self.files {
            match std::str::from_utf8(content) {
                Ok(text) if text.contains("%%") => {
                    write_file(&dir.join(path), fill(text, &self.binary, &dir, &ports).as_bytes());
                }
                _ => write_file(&dir.join(path), content),
            }
        }
        write_file(&dir.join("nginx.conf"), fill(&self.config, &self.binary, &dir, &ports).as_bytes());
        (dir, ports)
    }

    fn spawn(&self, dir: &Path) -> Child {
        let said = fs::File::create(dir.join("stderr.log")).expect("the prefix is writable");
        let mut path = self.binary.path.clone();
        if self.place == Place::Copied {
            path = dir.join(path.file_name().expect("a program has a name"));
            fs::copy(&self.binary.path, &path).expect("the prefix has room for the program");
        }
        let mut words = self.wrapper.iter().map(PathBuf::from).chain([path]);
        let mut command = Command::new(words.next().expect("the binary at least"));
        command.args(words).arg("-p").arg(dir).arg("-c").arg(dir.join("nginx.conf"));
        command.current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        command.spawn().unwrap_or_else(|e| panic!("{}: {e}", self.binary.path.display()))
    }
}

/// Whether this process may change users and raise priorities.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A running server; killed with its children, and its directory removed, when dropped (the directory
/// stays when the test has failed).
pub struct Server {
    child: Child,
    dir: PathBuf,
    ports: Vec<(String, u16)>,
    exited: Option<ExitStatus>,
}

impl Server {
    /// The port that `%%PORT%%` became.
    pub fn port(&self) -> u16 {
        self.port_of("PORT")
    }

    /// The port that another key became.
    pub fn port_of(&self, key: &str) -> u16 {
        let found = self.ports.iter().find(|(name, _)| name == key);
        found.unwrap_or_else(|| panic!("the configuration has no %%{key}%%")).1
    }

    /// The text with keys in place of this server's ports and prefix.
    pub fn with_keys(&self, text: &str) -> String {
        let mut out = text.replace(&*self.dir.to_string_lossy(), "%%PREFIX%%");
        for (key, port) in &self.ports {
            out = replace_number(&out, &port.to_string(), &format!("%%{key}%%"));
        }
        out
    }

    /// `%%PORT%%` on 127.0.0.1.
    pub fn address(&self) -> Address {
        localhost(self.port())
    }

    /// The address that is written in nginx's words, with keys: `127.0.0.1:%%PORT2%%`, `[::1]:%%PORT%%`,
    /// `unix:%%PREFIX%%/sock`.
    pub fn address_of(&self, listen: &str) -> Address {
        address(&fill(listen, &Binary::at("nginx"), &self.dir, &self.ports))
    }

    /// A connection to [`Server::address`].
    ///
    /// # Panics
    /// If it is refused.
    pub fn connect(&self) -> Connection {
        Connection::open(&self.address()).expect("the server listens")
    }

    /// One GET over a connection of its own that is closed afterwards.
    pub fn get(&self, target: &str) -> crate::Response {
        self.connect().ask(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    /// Where its files are.
    pub fn prefix(&self) -> &Path {
        &self.dir
    }

    /// Its (first) process.
    pub fn pid(&self) -> Pid {
        self.child.id()
    }

    /// Sends a signal to its first process.
    pub fn signal(&self, signal: Signal) {
        send_signal(self.pid(), signal);
    }

    /// Waits for its end, at most `limit`; nothing if it goes on.
    pub fn wait_exit(&mut self, limit: Duration) -> Option<ExitStatus> {
        wait_until(limit, || self.has_exited());
        self.exited
    }

    /// Ends it with SIGTERM and returns how it ended.
    ///
    /// # Panics
    /// If it does not end within [`PATIENCE`].
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait_exit(PATIENCE).expect("SIGTERM ends a server")
    }

    /// A file below the prefix as text; empty if it is not there.
    pub fn read(&self, path: &str) -> String {
        let bytes = fs::read(self.dir.join(path)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// `logs/error.log`.
    pub fn error_log(&self) -> String {
        self.read("logs/error.log")
    }

    /// `logs/access.log`.
    pub fn access_log(&self) -> String {
        self.read("logs/access.log")
    }

    /// Waits until a line of a log file holds the text, and returns the file.
    ///
    /// # Panics
    /// If none ever does.
    pub fn wait_log(&self, path: &str, text: &str) -> String {
        self.wait_lines(path, text, 1)
    }

    /// Waits until so many lines of a log file hold the text, and returns the file. Lines are written
    /// by a thread of their own some time after what they tell, so a test waits for the last one that it
    /// needs before it looks at any.
    ///
    /// # Panics
    /// If they never do.
    pub fn wait_lines(&self, path: &str, text: &str, count: usize) -> String {
        let mut log = String::new();
        let found = wait_until(PATIENCE, || {
            log = self.lines(path);
            log.lines().filter(|line| line.contains(text)).count() >= count
        });
        assert!(found, "{text:?} is not in {count} lines of {path}:\n{log}");
        log
    }

    /// The whole lines of a file: of one that is just being written, half a line may be there.
    fn lines(&self, path: &str) -> String {
        let mut text = self.read(path);
        text.truncate(text.rfind('\n').map_or(0, |at| at + 1));
        text
    }

    fn has_exited(&mut self) -> bool {
        if self.exited.is_none() {
            self.exited = self.child.try_wait().expect("the child is ours");
        }
        self.exited.is_some()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.has_exited() {
            for pid in family(self.pid()) {
                send_signal(pid, Signal::KILL);
            }
            // The process was killed: there is nothing that this could fail on.
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("the server's files are in {}", self.dir.display());
        } else {
            drop(fs::remove_dir_all(&self.dir));
        }
    }
}

fn send_signal(pid: Pid, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(KernelPid::from_raw) {
        // A process that has ended meanwhile is what was wanted.
        let _ = kill_process(pid, signal);
    }
}

fn localhost(port: u16) -> Address {
    Address::Tcp(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
}

fn address(text: &str) -> Address {
    match text.strip_prefix("unix:") {
        Some(path) => Address::Unix(path.into()),
        None => Address::Tcp(text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))),
    }
}

/// A new directory that everybody may use: some servers run as another user.
fn new_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("clearway-test-{}-{number}", std::process::id()));
    drop(fs::remove_dir_all(&dir));
    make_dir(&dir);
    dir
}

fn make_dir(dir: &Path) {
    fs::create_dir_all(dir).expect("the temporary directory is writable");
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("the directory is ours");
}

fn write_file(path: &Path, content: &[u8]) {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).expect("the prefix is writable");
    }
    fs::write(path, content).expect("the prefix is writable");
    let file = fs::File::options().write(true).open(path).expect("it was just written");
    file.set_modified(UNIX_EPOCH + Duration::from_secs(FILE_TIME_SECONDS)).expect("the file is ours");
}

/// The names between `%%`, each once, in order.
fn keys(text: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    for name in text.split("%%").skip(1).step_by(2) {
        if !out.iter().any(|known| known == name) {
            out.push(name.to_owned());
        }
    }
    out
}

fn fill(text: &str, binary: &Binary, dir: &Path, ports: &[(String, u16)]) -> String {
    let mut out = text.to_owned();
    for (key, port) in ports {
        out = out.replace(&format!("%%{key}%%"), &port.to_string());
    }
    let temp = if binary.product == Product::Nginx { TEMP } else { "" };
    out.replace("%%PREFIX%%", &dir.to_string_lossy()).replace("%%TEMP%%", temp)
}

/// Replaces a number where it stands alone.
fn replace_number(text: &str, number: &str, by: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(number) {
        let (before, after) = (&rest[..at], &rest[at + number.len()..]);
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let alone = !digit(before.chars().next_back()) && !digit(after.chars().next());
        out.push_str(before);
        out.push_str(if alone { by } else { number });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_filled() {
        let config = "listen %%PORT%%; listen %%PORT2%%; listen [::1]:%%PORT%%; root %%PREFIX%%/x; %%TEMP%%";
        assert_eq!(keys(config), ["PORT", "PORT2", "PREFIX", "TEMP"]);
        let ports = [("PORT".to_owned(), 1), ("PORT2".to_owned(), 2)];
        let filled = fill(config, &Binary::at("/x/clearway"), Path::new("/p"), &ports);
        assert_eq!(filled, "listen 1; listen 2; listen [::1]:1; root /p/x; ");
    }

    #[test]
    fn ports_are_replaced_where_they_stand_alone() {
        assert_eq!(replace_number("a:123 1234 0123 123", "123", "P"), "a:P 1234 0123 P");
    }

    #[test]
    fn nginx_is_known_by_name() {
        assert_eq!(Binary::at("/usr/sbin/nginx").product, Product::Nginx);
        assert_eq!(Binary::at("target/debug/clearway").product, Product::Clearway);
    }
}
