//! Reloads under load, alternating two configurations that differ in a listener, a pool, a log and what
//! they answer.

use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{deployed, lines_with};
use crate::client::PATIENCE;
use crate::load::{Idle, Load, Tally, raise_descriptor_limit};
use crate::{Binary, Server, Setup, wait_until};

/// Answers between two reloads, at least.
const ANSWERS_BETWEEN: u64 = 20;
/// The time between two reloads, at least. The socket of a listener that is gone is held for a while, so
/// that nobody in its queue is lost; a listener that is back earlier has to try twice to bind.
const BETWEEN: Duration = Duration::from_millis(120);

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Reload {
    /// How many reloads.
    pub rounds: usize,
    /// Idle connections on the listener that stays.
    pub idle: usize,
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct ReloadReport {
    /// The load on the listener that stays.
    pub staying: Tally,
    /// New connections to the listener that comes and goes: refused half of the time.
    pub coming_and_going: Tally,
    /// Idle connections that are open in the end.
    pub idle_open: usize,
    /// Idle connections that are answered in the end.
    pub idle_answered: usize,
    /// Lines of the load in both access logs.
    pub lines: u64,
    /// Memory of all processes after a fifth of the rounds, bytes.
    pub rss_early: u64,
    /// Memory of all processes in the end, bytes.
    pub rss_late: u64,
    /// How many processes there are in the end.
    pub processes: usize,
}

impl Reload {
    /// Plays it.
    ///
    /// # Panics
    /// If a reload does not take effect.
    pub fn play(self, binary: &Binary) -> ReloadReport {
        raise_descriptor_limit();
        let configs = [config(Side::One, binary), config(Side::Two, binary)];
        let mut server = Setup::new(binary.clone(), &configs[0]).ready_at("127.0.0.1:%%PORT%%").start();
        // A port for each listener, also for the one that is not there yet.
        configs.iter().for_each(|config| server.configure(config));
        let mut idle = Idle::open(&server.address(), "/idle", self.idle);
        let staying = Load::new(server.address()).target("/load").bodies(&["one", "two"]).start();
        let leaving = server.address_of("127.0.0.1:%%PORT2%%");
        let coming_and_going = Load::new(leaving).bodies(&["one"]).clients(0, 2).start();
        let mut rss_early = 0;
        for round in 1..=self.rounds {
            let side = round % 2;
            server.configure(&configs[side]);
            reload(&server, ["one", "two"][side], round);
            thread::sleep(BETWEEN);
            staying.wait_answers(ANSWERS_BETWEEN);
            if round == self.rounds.div_ceil(5) {
                rss_early = settled_rss(&server);
            }
        }
        let (staying, coming_and_going) = (staying.finish(), coming_and_going.finish());
        let mut lines = 0;
        wait_until(PATIENCE, || {
            lines = ["logs/one.log", "logs/two.log"]
                .map(|log| lines_with(&server.read(log), "GET /load "))
                .iter()
                .sum();
            lines >= staying.answered
        });
        ReloadReport {
            staying,
            coming_and_going,
            idle_open: idle.still_open(),
            idle_answered: idle.still_answered(),
            lines,
            rss_early,
            rss_late: late_rss(&server, rss_early),
            processes: server.processes().len(),
        }
    }
}

#[derive(Clone, Copy)]
enum Side {
    One,
    Two,
}

fn config(side: Side, binary: &Binary) -> String {
    let (name, threads, listen, port) = match side {
        Side::One => ("one", 4, "listen 127.0.0.1:%%PORT2%%;", "server_name a.example b.example;"),
        Side::Two => ("two", 9, "listen 127.0.0.1:%%PORT3%% backlog=64;", "server_name ~^c\\d+$;"),
    };
    // A machine that pauses makes a stall, whose report keeps debug information for a minute.
    let reports = if binary.is_clearway() { "stall_report_after off;" } else { "" };
    deployed(
        &format!("thread_pool spinning threads={threads}; {reports}"),
        &format!(
            "access_log logs/{name}.log;\n\
             server {{ listen 127.0.0.1:%%PORT%%; {listen} location / {{ return 200 {name}; }} }}\n\
             server {{ listen 127.0.0.1:%%PORT%%; {port} location /{name} {{ return 204; }} }}"
        ),
    )
}

/// Reloads, and waits until `body` is answered. A worker that gets no processor for seconds holds the socket
/// of a listener that was gone longer than a reload tries to bind another; an operator would try again.
fn reload(server: &Server, body: &str, round: usize) {
    let refusals = || lines_with(&server.error_log(), "still could not bind()");
    let mut refused = refusals();
    server.signal(Signal::HUP);
    let there = wait_until(PATIENCE, || {
        let now = refusals();
        if now > refused {
            refused = now;
            server.signal(Signal::HUP);
        }
        server.get("/which").text() == body
    });
    assert!(there, "reload {round} has no effect: {}", server.described());
}

/// Memory in the end, when what the last configurations held is given back: on a busy machine that is not at
/// once.
fn late_rss(server: &Server, early: u64) -> u64 {
    let mut late = settled_rss(server);
    wait_until(PATIENCE, || {
        late = late.min(server.rss_bytes());
        late <= early + early / 20
    });
    late
}

/// Memory once only the processes that stay are left.
fn settled_rss(server: &Server) -> u64 {
    let master = server.pid();
    wait_until(PATIENCE, || server.processes().len() == 1 + server.workers_of(master).len());
    server.rss_bytes()
}
