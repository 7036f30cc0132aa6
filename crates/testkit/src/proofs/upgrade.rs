//! Another binary takes over under load, gives back, and takes over for good.

use rustix::process::Signal;

use super::{BODY, deployed};
use crate::client::PATIENCE;
use crate::load::{Load, Tally};
use crate::process::{children, is_running};
use crate::server::send_signal;
use crate::{Binary, Server, Setup, wait_until};

/// Answers in each state that lasts, at least.
const ANSWERS: u64 = 100;

/// Starts `from`, upgrades it to `to` and back and again, over TCP and with a unix socket beside it, and
/// says what became of the requests meanwhile.
///
/// # Panics
/// If a step does not take place.
pub fn upgrade(from: &Binary, to: &Binary) -> Tally {
    // Either product must understand it: without the temporary directories that only nginx has.
    let config = deployed(
        "",
        &format!("server {{ listen 127.0.0.1:%%PORT%%; listen unix:%%PREFIX%%/sock; return 200 {BODY}; }}"),
    )
    .replace("%%TEMP%%", "")
    // In the foreground nginx takes its parent for the old binary, and refuses.
    .replace("daemon off;", "daemon on;");
    let mut server = Setup::new(from.clone(), &config).copied().daemon().start();
    let old = server.pid();
    let load = Load::new(server.address()).bodies(&[BODY]).start();
    load.wait_answers(ANSWERS);

    server.replace_program(to);
    let new = server.begin_upgrade();
    load.wait_answers(ANSWERS);
    send_signal(old, Signal::WINCH);
    let retired = wait_until(PATIENCE, || children(old).iter().all(|&pid| pid == new || !is_running(pid)));
    assert!(retired, "WINCH ends the workers: {}", server.described());
    assert!(is_running(old), "but not the master");
    load.wait_answers(ANSWERS);

    send_signal(old, Signal::HUP);
    server.worker_of(old);
    send_signal(new, Signal::QUIT);
    server.wait_gone(new);
    assert!(wait_until(PATIENCE, || server.pid_file() == Some(old)), "the old master has its file back");
    load.wait_answers(ANSWERS);
    over_unix(&server);

    let new = server.begin_upgrade();
    send_signal(old, Signal::QUIT);
    server.wait_gone(old);
    server.follow(new);
    load.wait_answers(ANSWERS);
    assert_eq!((server.pid_file(), server.pid_in("nginx.pid.oldbin")), (Some(new), None));
    over_unix(&server);
    load.finish()
}

fn over_unix(server: &Server) {
    let to = server.address_of("unix:%%PREFIX%%/sock");
    let mut connection = crate::Connection::open(&to).expect("the unix socket is still there");
    assert_eq!(connection.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").text(), BODY);
}
