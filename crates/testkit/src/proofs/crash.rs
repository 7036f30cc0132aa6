//! Workers that are killed under load: the next one is there at once, and only the connections that the
//! killed one had are lost.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{BODY, deployed};
use crate::load::{Load, Tally};
use crate::server::send_signal;
use crate::{Binary, Setup};

/// Clients of the load; each has one connection at a time.
const CLIENTS: (usize, usize) = (3, 3);
/// Answers between two crashes, at least.
const ANSWERS_BETWEEN: u64 = 50;

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// How many times the worker is killed.
    pub kills: usize,
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// From each kill until a connection that was made after it was answered.
    pub back_after: Vec<Duration>,
    /// The load.
    pub load: Tally,
    /// How many connections there were at all kills together, at most.
    pub connections_killed: u64,
}

impl Crash {
    /// Plays it.
    ///
    /// # Panics
    /// If no other worker comes.
    pub fn play(self, binary: &Binary) -> CrashReport {
        // One process of nginx has all connections, as ours does.
        let config = deployed("", &format!("server {{ listen 127.0.0.1:%%PORT%%; return 200 {BODY}; }}"))
            .replace("worker_processes 2;", "worker_processes 1;");
        let server = Setup::new(binary.clone(), &config).start();
        let load = Load::new(server.address()).bodies(&[BODY]).clients(CLIENTS.0, CLIENTS.1).start();
        let mut back_after = Vec::new();
        for _ in 0..self.kills {
            load.wait_answers(ANSWERS_BETWEEN);
            let worker = server.worker();
            let began = Instant::now();
            send_signal(worker, Signal::KILL);
            // Not before it is dead: it might still answer.
            server.wait_gone(worker);
            assert_eq!(server.get("/").text(), BODY);
            back_after.push(began.elapsed());
            server.worker_after(worker);
        }
        load.wait_answers(ANSWERS_BETWEEN);
        let connections_killed = (self.kills * (CLIENTS.0 + CLIENTS.1)) as u64;
        CrashReport { back_after, load: load.finish(), connections_killed }
    }
}
