//! The open-loop client: requests are due at fixed times, whatever became of the ones before, and each
//! latency counts from the moment the request was due. A server that stalls cannot hide it by slowing
//! its own load down.

use std::borrow::Cow;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::closed::Next;
use crate::connection::{Connection, Progress, request};
use crate::poller::Poller;

/// How long the answer to the last request is waited for where nothing else is said.
pub(crate) const GRACE: Duration = Duration::from_secs(10);

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Requests {
    /// Always this.
    Same(Vec<u8>),
    /// For a path that nobody has asked for before: this and a number.
    Numbered {
        /// The beginning of the path.
        prefix: String,
    },
}

impl Requests {
    fn get(&self, number: u64) -> Cow<'_, [u8]> {
        match self {
            Self::Same(request) => request.into(),
            Self::Numbered { prefix } => request(&format!("{prefix}{number}"), "keep-alive").into(),
        }
    }
}

/// A fixed schedule of requests.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) to: SocketAddr,
    pub(crate) requests: Requests,
    pub(crate) connections: usize,
    /// Of all connections together.
    pub(crate) requests_per_second: f64,
    pub(crate) duration: Duration,
    /// After the last request was due, its answer is waited for so long; what is missing then is lost.
    pub(crate) grace: Duration,
    /// With a new connection for each request, opening it is part of its latency.
    pub(crate) next: Next,
}

/// What became of a schedule.
#[derive(Debug, Default)]
pub(crate) struct ScheduleOutcome {
    /// When it was due, from the start, and how long after that it was answered.
    pub(crate) answered: Vec<(Duration, Duration)>,
    /// Due times of requests that were refused or lost.
    pub(crate) failed: Vec<Duration>,
}

/// One connection's place in the schedule.
struct Lane {
    connection: Option<Connection>,
    /// When its next request is due, from the start.
    due: Duration,
    /// When the request that is on its way was due.
    waiting: Option<Duration>,
}

/// Plays the schedule on this thread. `begun` is called with the moment from which times count, when
/// all connections are open.
pub(crate) fn run(schedule: &Schedule, begun: impl FnOnce(Instant)) -> io::Result<ScheduleOutcome> {
    let mut player = Player::new(schedule)?;
    begun(player.start);
    while !player.done() {
        let nearest = player.send_due();
        player.receive_until(nearest)?;
    }
    player.give_up();
    Ok(player.outcome)
}

struct Player<'a> {
    schedule: &'a Schedule,
    poller: Poller,
    lanes: Vec<Lane>,
    start: Instant,
    gap: Duration,
    /// Requests so far.
    asked: u64,
    outcome: ScheduleOutcome,
}

impl<'a> Player<'a> {
    fn new(schedule: &'a Schedule) -> io::Result<Self> {
        let poller = Poller::new()?;
        let gap = Duration::from_secs_f64(schedule.connections as f64 / schedule.requests_per_second);
        let mut lanes = Vec::new();
        for index in 0..schedule.connections {
            let connection = match schedule.next {
                Next::NewConnection => None,
                Next::SameConnection => Some(open(schedule, &poller, index)?),
            };
            let share = index as f64 / schedule.connections as f64;
            lanes.push(Lane { connection, due: gap.mul_f64(share), waiting: None });
            // Opened one by one, as clients come.
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Self {
            schedule,
            poller,
            lanes,
            start: Instant::now(),
            gap,
            asked: 0,
            outcome: ScheduleOutcome::default(),
        })
    }

    fn done(&self) -> bool {
        let over = |lane: &Lane| lane.waiting.is_none() && lane.due >= self.schedule.duration;
        self.start.elapsed() > self.schedule.duration + self.schedule.grace || self.lanes.iter().all(over)
    }

    /// Sends what is due and says when the next one is, from the start.
    fn send_due(&mut self) -> Duration {
        let now = self.start.elapsed();
        let mut nearest = now + Duration::from_millis(100);
        for (index, lane) in self.lanes.iter_mut().enumerate() {
            if lane.waiting.is_some() || lane.due >= self.schedule.duration {
                continue;
            }
            if lane.due > now {
                nearest = nearest.min(lane.due);
                continue;
            }
            let due = lane.due;
            lane.due += self.gap;
            nearest = nearest.min(lane.due.max(now));
            self.asked += 1;
            let request = self.schedule.requests.get(self.asked);
            if self.schedule.next == Next::NewConnection {
                // One that fails to open is a request that is lost.
                lane.connection = open(self.schedule, &self.poller, index).ok();
            }
            let sent = lane.connection.as_mut().map(|connection| connection.send(&request));
            match sent {
                Some(Ok(())) => lane.waiting = Some(due),
                // A closed connection is found by the read; without one the request is lost.
                Some(Err(_)) | None => self.outcome.failed.push(due),
            }
        }
        nearest
    }

    fn receive_until(&mut self, nearest: Duration) -> io::Result<()> {
        let limit = nearest.saturating_sub(self.start.elapsed());
        let ready: Vec<usize> = self.poller.wait(limit)?.collect();
        for index in ready {
            let lane = &mut self.lanes[index];
            let Some(connection) = lane.connection.as_mut() else { continue };
            match connection.receive()? {
                Progress::Partial => {}
                Progress::Answered => {
                    if let Some(due) = lane.waiting.take() {
                        self.outcome.answered.push((due, self.start.elapsed().saturating_sub(due)));
                    }
                }
                Progress::Refused => self.outcome.failed.extend(lane.waiting.take()),
                Progress::Closed => {
                    self.outcome.failed.extend(lane.waiting.take());
                    lane.connection = None;
                }
            }
        }
        Ok(())
    }

    /// What is still on its way, or was never sent, is lost.
    fn give_up(&mut self) {
        for lane in &mut self.lanes {
            self.outcome.failed.extend(lane.waiting.take());
            while lane.due < self.schedule.duration {
                self.outcome.failed.push(lane.due);
                lane.due += self.gap;
            }
        }
    }
}

fn open(schedule: &Schedule, poller: &Poller, index: usize) -> io::Result<Connection> {
    let connection = Connection::open(schedule.to)?;
    poller.add(&connection, index)?;
    Ok(connection)
}
