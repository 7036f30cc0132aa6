//! Streams of one connection of which one holds its thread: the others are answered meanwhile. All are begun
//! with one write, so the one that holds is begun among the others, and each round it is in another location,
//! of which the server knows nothing yet.

use std::time::{Duration, Instant};

use clearway_h2::frame::Rest;
use clearway_h2::settings::Settings;

use crate::client::PATIENCE;
use crate::http2::{Frames, Http2};
use crate::{Binary, Server, Setup};

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct HeldStream {
    /// Streams of a round, the one that holds among them.
    pub streams: u32,
    /// How often they are begun.
    pub rounds: u32,
    /// How the one holds its thread.
    pub hold: Hold,
    /// For how long.
    pub time: Duration,
    /// How long nothing is asked before each round: a server that nothing has blocked for a while looks less
    /// closely.
    pub pause: Duration,
}

/// How a thread is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Not at all: what the others take without it.
    Not,
    /// The handler sleeps in a system call.
    Sleeps,
    /// The handler burns CPU.
    Spins,
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct HeldStreamReport {
    /// How long each of the others took, from the write to its last frame.
    pub others: Vec<Duration>,
    /// Answers without a 200.
    pub wrong: usize,
}

impl HeldStream {
    /// Plays it, on one loop.
    ///
    /// # Panics
    /// If an answer does not come.
    pub fn play(self, binary: &Binary) -> HeldStreamReport {
        let server = self.server(binary);
        let mut report = HeldStreamReport::default();
        let settings = Settings { window_bytes: Some(1 << 20), ..Settings::default() };
        for round in 0..self.rounds {
            // Each has a connection of its own: one that was used up would be ended among others.
            let mut client = Http2::open(&server.address(), settings);
            std::thread::sleep(self.pause);
            client.get(1, "/cheap");
            client.answer(1);
            self.round(&mut client, round, &mut report);
        }
        report
    }

    fn server(&self, binary: &Binary) -> Server {
        let (time, word) = (self.time.as_millis(), self.word());
        let held: String = (0..self.rounds)
            .map(|round| format!("location = /held/{round} {{ testing_{word} {time}ms; }}\n"))
            .collect();
        let http = format!(
            "access_log off;\nserver {{ listen 127.0.0.1:%%PORT%%; http2 on;\n\
             http2_max_concurrent_streams {};\nlocation /cheap {{ return 200 cheap; }}\n{held} }}",
            self.streams
        );
        Setup::http(binary.clone(), &http).start()
    }

    fn word(&self) -> &'static str {
        if self.hold == Hold::Spins { "spin" } else { "sleep" }
    }

    fn round(&self, client: &mut Http2, round: u32, report: &mut HeldStreamReport) {
        let place = round * 7 % self.streams;
        let id = |at: u32| 2 * at + 3;
        let path = |at: u32| match self.hold {
            Hold::Sleeps | Hold::Spins if at == place => format!("/held/{round}"),
            _ => "/cheap".to_owned(),
        };
        let bytes: Vec<u8> = (0..self.streams)
            .flat_map(|at| Frames::request(id(at), "GET", &path(at), &[], Rest::Ended))
            .collect();
        let begun = Instant::now();
        client.send(&bytes);
        let mut left: Vec<u32> = (0..self.streams).collect();
        while !left.is_empty() {
            assert!(client.receive(PATIENCE) && begun.elapsed() < PATIENCE, "streams {left:?} are left");
            let took = begun.elapsed();
            left.retain(|&at| {
                let Some(answer) = client.frames.answers.get(&id(at)).filter(|answer| answer.end.is_some())
                else {
                    return true;
                };
                report.wrong += usize::from(answer.status() != "200");
                if at != place {
                    report.others.push(took);
                }
                false
            });
        }
    }
}
