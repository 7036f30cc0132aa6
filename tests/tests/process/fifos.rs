//! Logs that are named pipes: without a reader open(2) would wait for one, and nobody would answer signals.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Server, wait_until};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::process::Signal;

use crate::{config, setup};

const HTTP: &str = "server { listen 127.0.0.1:%%PORT%%; return 200 ok; }";
const SAID: &str = "failed (6: No such device or address)";

fn make_fifo(prefix: &Path) {
    let path = prefix.join("fifo");
    rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .expect("a directory for tests");
    rustix::fs::chmod(&path, Mode::from_raw_mode(0o666)).expect("it is ours");
}

/// Its other end, which does not wait.
struct Reader {
    file: File,
    came: Vec<u8>,
}

impl Reader {
    fn open(prefix: &Path) -> Self {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(prefix.join("fifo")).expect("it is there");
        Self { file, came: Vec::new() }
    }

    /// Whether the text has come by now.
    fn has(&mut self, text: &str) -> bool {
        // An error: nothing more is there for now.
        let _ = self.file.read_to_end(&mut self.came);
        String::from_utf8_lossy(&self.came).contains(text)
    }
}

/// What names the pipe as a log.
const LOGS: [(&str, &str); 3] =
    [("error_log fifo notice;", ""), ("", "access_log fifo;"), ("master_process off;", "access_log fifo;")];

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx waits for a reader, deaf to all signals but KILL")]
fn a_start_whose_log_nobody_reads_fails() {
    for (main, http) in LOGS {
        let refusal = setup(main, &format!("{http}{HTTP}")).prepared(make_fifo).refusal();
        assert_eq!(refusal.code, Some(1), "{main}{http}: {refusal:?}");
        let said = format!("open() \"%%PREFIX%%/fifo\" {SAID}");
        let is_said = |line: &str| line.contains("[emerg]") && line.contains(&said);
        assert!(refusal.said.lines().any(is_said), "{main}{http}: {refusal:?}");
        assert!(!refusal.left.contains(&"nginx.pid".to_owned()), "{refusal:?}");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn a_configuration_whose_log_nobody_reads_fails_its_test() {
    let (code, said) = setup("error_log fifo;", HTTP).prepared(make_fifo).arguments(&["-t"]).refused();
    assert_eq!(code, Some(1));
    assert!(said.contains(&format!("open() \"%%PREFIX%%/fifo\" {SAID}")), "{said}");
}

fn still_serves(server: &Server) {
    assert_eq!(server.get("/").text(), "ok");
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn a_reload_whose_log_nobody_reads_fails_and_the_server_goes_on() {
    for (main, http) in LOGS {
        let first = if main.starts_with("master") { main } else { "" };
        let mut server = setup(first, HTTP).prepared(make_fifo).start();
        server.configure(&config(main, &format!("{http}{HTTP}")));
        server.signal(Signal::HUP);
        let log = server.wait_log("logs/error.log", SAID);
        let said = format!("open() \"{}/fifo\" {SAID}", server.prefix().display());
        assert!(log.lines().any(|line| line.contains("[emerg]") && line.contains(&said)), "{log}");
        still_serves(&server);
        // With a reader the same succeeds, and lines arrive.
        let mut reader = Reader::open(server.prefix());
        server.signal(Signal::HUP);
        let line = if http.starts_with("access_log") { "GET / HTTP/1.1" } else { " [" };
        let arrives = wait_until(PATIENCE, || {
            still_serves(&server);
            reader.has(line)
        });
        assert!(arrives, "{main}{http}: {}", server.described());
        assert_eq!(server.stop().code(), Some(0), "TERM ends it at once");
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx does otherwise")]
fn a_log_that_lost_its_reader_is_kept_and_reopening_says_so() {
    let setup = setup("error_log logs/error.log; error_log fifo notice;", HTTP);
    let kept = std::rc::Rc::new(std::cell::RefCell::new(None));
    let keep = std::rc::Rc::clone(&kept);
    let mut server = setup
        .prepared(move |prefix| {
            make_fifo(prefix);
            *keep.borrow_mut() = Some(Reader::open(prefix));
        })
        .start();
    let mut end = kept.borrow_mut().take().expect("it was prepared");
    assert!(wait_until(PATIENCE, || end.has("start worker process")));
    drop(end);
    server.signal(Signal::USR1);
    server.wait_log("logs/error.log", SAID);
    still_serves(&server);
    assert_eq!(server.stop().code(), Some(0));
}

/// Fills the pipe, so that a writer has to wait for its reader.
fn fill(prefix: &Path) {
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let mut file = options.open(prefix.join("fifo")).expect("it has a reader");
    for size in [4096, 1] {
        while file.write(&vec![b'x'; size]).is_ok() {}
    }
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx waits for its reader, deaf to all signals but KILL")]
fn a_reader_that_hangs_holds_no_thread_that_answers_signals() {
    let setup = setup("error_log logs/error.log notice; error_log fifo notice;", HTTP);
    let kept = std::rc::Rc::new(std::cell::RefCell::new(None));
    let keep = std::rc::Rc::clone(&kept);
    let mut server = setup
        .prepared(move |prefix| {
            make_fifo(prefix);
            *keep.borrow_mut() = Some(Reader::open(prefix));
            fill(prefix);
        })
        .start();
    let mut reader = kept.borrow_mut().take().expect("it was prepared");
    still_serves(&server);
    server.signal(Signal::HUP);
    server.wait_log("logs/error.log", "exited with code 0");
    still_serves(&server);
    // When it reads again nothing is missing, nor out of order.
    assert!(wait_until(PATIENCE, || reader.has("exited with code 0")));
    let came = String::from_utf8_lossy(&reader.came).into_owned();
    let said = ["start worker process ", "(SIGHUP) received", "reconfiguring", "exited with code 0"];
    let places: Vec<_> = said
        .iter()
        .map(|text| came.find(text).unwrap_or_else(|| panic!("no {text}: {}", came.trim_start_matches('x'))))
        .collect();
    assert!(places.is_sorted(), "{places:?}: {came}");
    fill(server.prefix());
    assert_eq!(server.stop().code(), Some(0), "TERM ends it at once");
}
