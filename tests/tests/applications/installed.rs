//! Servers of the distribution, each in a directory of its own, for as long as a test needs it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::wait_until;
use rustix::process::{Pid, Signal};

/// One program: its whole group of processes ends with this.
pub(crate) struct Application {
    child: Child,
    dir: PathBuf,
}

/// A front controller.
const PHP: &str = r#"<?php
$path = $_SERVER['PATH_INFO'];
if ($path === '/upload') {
    [$in, $len, $sum] = [fopen('php://input', 'r'), 0, 0];
    while (($piece = fread($in, 65536)) !== false && $piece !== '') {
        $len += strlen($piece);
        foreach (count_chars($piece, 1) as $byte => $count) { $sum += $byte * $count; }
    }
    echo "$len $sum";
} elseif ($path === '/large') {
    for ($at = 0; $at < 10240; $at++) { echo str_repeat(chr(97 + $at % 26), 1024); }
} elseif ($path === '/accel') {
    header('X-Accel-Redirect: /inside/inside.txt');
} elseif ($path === '/missing') {
    http_response_code(404);
    echo 'nothing here';
} elseif ($path === '/slow') {
    foreach (str_split('slowly') as $letter) { echo $letter; flush(); usleep(50000); }
} elseif ($path === '/complains') {
    error_log('a complaint');
    echo 'behind a complaint';
} else {
    echo $_SERVER['REQUEST_METHOD'] . "|$path|" . $_SERVER['QUERY_STRING'];
}
"#;

const PYTHON: &str = r#"
import time

def application(environ, start_response):
    path = environ['PATH_INFO']
    headers = [('Content-Type', 'text/plain')]
    if path == '/upload':
        length, total = 0, 0
        while True:
            piece = environ['wsgi.input'].read(65536)
            if not piece:
                break
            length, total = length + len(piece), total + sum(piece)
        start_response('200 OK', headers)
        return [f'{length} {total}'.encode()]
    if path == '/large':
        start_response('200 OK', headers)
        return (bytes([97 + at % 26]) * 1024 for at in range(10240))
    if path == '/accel':
        start_response('200 OK', headers + [('X-Accel-Redirect', '/inside/inside.txt')])
        return []
    if path == '/missing':
        start_response('404 Not Found', headers)
        return [b'nothing here']
    start_response('200 OK', headers)
    if path == '/slow':
        return (time.sleep(0.05) or bytes([letter]) for letter in b'slowly')
    return ['|'.join([environ['REQUEST_METHOD'], path, environ['QUERY_STRING']]).encode()]
"#;

impl Application {
    pub(crate) fn php() -> Self {
        let dir = make_dir();
        let at = dir.display();
        let user = if is_root() { "user = root\n" } else { "" };
        let config = format!(
            "[global]\nerror_log = {at}/fpm.log\ndaemonize = no\n[www]\n{user}listen = {at}/socket\n\
             listen.mode = 0666\npm = static\npm.max_children = 3\n\
             php_admin_value[post_max_size] = 100M\nphp_admin_flag[log_errors] = on\n"
        );
        fs::write(dir.join("fpm.conf"), config).expect("it is ours");
        fs::write(dir.join("index.php"), PHP).expect("it is ours");
        let mut command = Command::new("php-fpm8.2");
        command.args(["-n", "-F", "-y"]).arg(dir.join("fpm.conf"));
        if is_root() {
            command.arg("-R");
        }
        Self::start(command, dir)
    }

    pub(crate) fn python() -> Self {
        let dir = make_dir();
        fs::write(dir.join("app.py"), PYTHON).expect("it is ours");
        let mut command = Command::new("uwsgi");
        command.args(["--plugin", "python3", "--chmod-socket=666", "--processes", "2", "--master"]);
        command.args(["--die-on-term", "--post-buffering", "8192", "--disable-logging", "--socket"]);
        command.arg(dir.join("socket")).arg("--wsgi-file").arg(dir.join("app.py"));
        Self::start(command, dir)
    }

    pub(crate) fn memcached() -> Self {
        let dir = make_dir();
        let mut command = Command::new("memcached");
        command.arg("-s").arg(dir.join("socket")).args(["-a", "0666"]);
        if is_root() {
            command.args(["-u", "root"]);
        }
        Self::start(command, dir)
    }

    fn start(mut command: Command, dir: PathBuf) -> Self {
        let said = fs::File::create(dir.join("said.log")).expect("it is ours");
        let both = said.try_clone().expect("a descriptor");
        command.current_dir(&dir).stdin(Stdio::null()).stdout(said).stderr(both);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut application = Self { child, dir };
        let is_up = wait_until(PATIENCE, || {
            UnixStream::connect(application.socket()).is_ok()
                || application.child.try_wait().is_ok_and(|ended| ended.is_some())
        });
        let is_up = is_up && UnixStream::connect(application.socket()).is_ok();
        let said = || fs::read_to_string(application.dir.join("said.log")).unwrap_or_default();
        assert!(is_up, "{command:?} does not listen: {}", said());
        application
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("socket")
    }

    /// The one of PHP.
    pub(crate) fn script(&self) -> PathBuf {
        self.dir.join("index.php")
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn make_dir() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new("/tmp").join(format!("clearway-applications-{}-{number}", std::process::id()));
    fs::create_dir_all(&dir).expect("/tmp is writable");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("it is ours");
    dir
}
