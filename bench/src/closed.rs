//! The closed-loop client: each connection asks again when it has its answer. For saturating a server,
//! and for asking back to back for what holds a thread.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::connection::{Connection, Progress};
use crate::poller::Poller;

/// How long the last answers are waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a connection does when it has its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Asks again.
    SameConnection,
    /// The server closes; a new one takes its place.
    NewConnection,
}

/// What becomes of requests that are under way when the load is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// They do not count.
    Dropped,
    /// They are waited for: where many take turns, none of them may have been answered before.
    Awaited,
}

/// The load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) to: SocketAddr,
    pub(crate) request: Vec<u8>,
    pub(crate) connections: usize,
    pub(crate) next: Next,
    pub(crate) end: End,
}

/// The outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    /// From the first request to the last answer that counts.
    pub(crate) elapsed: Duration,
}

impl Tally {
    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

/// Runs the load on this thread until `stop`. A connection that fails is replaced.
pub(crate) fn run(load: &Load, stop: &AtomicBool) -> io::Result<Tally> {
    let mut poller = Poller::new()?;
    let mut tally = Tally::default();
    let mut connections = Vec::new();
    for index in 0..load.connections {
        connections.push(Some(begin(load, &poller, index)?));
    }
    let start = Instant::now();
    let mut stopped = None;
    while load.end == End::Awaited && connections.iter().any(Option::is_some) || stopped.is_none() {
        if stopped.is_none() && stop.load(Ordering::Relaxed) {
            stopped = Some(Instant::now());
        }
        if stopped.is_some_and(|at| at.elapsed() > PATIENCE) {
            break;
        }
        let ready: Vec<usize> = poller.wait(Duration::from_millis(50))?.collect();
        for index in ready {
            let Some(connection) = connections[index].as_mut() else { continue };
            match connection.receive()? {
                Progress::Partial => continue,
                Progress::Answered => {
                    tally.answered += 1;
                    let goes_on = stopped.is_none() && load.next == Next::SameConnection;
                    if goes_on && connection.send(&load.request).is_ok() {
                        continue;
                    }
                }
                Progress::Refused | Progress::Closed => tally.failed += 1,
            }
            connections[index] = match stopped {
                None => Some(begin(load, &poller, index)?),
                Some(_) => None,
            };
        }
    }
    tally.elapsed = start.elapsed();
    Ok(tally)
}

fn begin(load: &Load, poller: &Poller, index: usize) -> io::Result<Connection> {
    let mut connection = Connection::open(load.to)?;
    poller.add(&connection, index)?;
    connection.send(&load.request)?;
    Ok(connection)
}
