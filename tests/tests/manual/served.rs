//! `clearway serve DIR`, as the tutorial begins with it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::ports::free_port;
use clearway_testkit::{Address, Binary, Connection, wait_until};

/// The address that pages serve a directory at.
const LISTEN: &str = "127.0.0.1:8080";

/// A directory that is served; ended, and removed, when dropped.
pub(crate) struct Served {
    child: Child,
    dir: PathBuf,
    address: String,
}

impl Served {
    /// Serves what `prepare` has put into a directory, with the words behind `clearway serve`.
    pub(crate) fn start(arguments: &str, prepare: impl Fn(&Path)) -> Self {
        let dir = std::env::temp_dir().join(format!("clearway-manual-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("the temporary directory is writable");
        prepare(&dir);
        let address = format!("127.0.0.1:{}", free_port());
        let arguments = arguments.trim_end_matches('&').replace(LISTEN, &address);
        let mut command = Command::new(Binary::under_test().path);
        command.arg("serve").args(arguments.split_whitespace()).current_dir(&dir);
        let child = command.stderr(Stdio::null()).spawn().expect("the server runs");
        let listens = Address::Tcp(address.parse().expect("it is one"));
        let served = Self { child, dir, address };
        let up = wait_until(PATIENCE, || Connection::open(&listens).is_ok());
        assert!(up, "nothing listens at {}", served.address);
        served
    }

    /// A command line with the port that it is served at.
    pub(crate) fn with_port(&self, command: &str) -> String {
        command.replace(LISTEN, &self.address)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // An error means that it has ended.
        if let Ok(pid) = i32::try_from(self.child.id()) {
            let pid = rustix::process::Pid::from_raw(pid);
            pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok());
        }
        drop(self.child.wait());
        drop(std::fs::remove_dir_all(&self.dir));
    }
}
