//! Servers are asked whether they are well (`health_check`). For each check a task looks which servers its
//! group has, and each of those has a task that asks it and tells the group what has become of it. They end
//! with the configuration. They run on loops, spread over all of them.

use std::future::poll_fn;
use std::sync::{Arc, Weak};

use clearway_base::log::Level;
use clearway_http::Generation;
use clearway_runtime::{LoopRef, Tag, Timer};
use clearway_upstream::{Checked, Peer, ServerState};

use crate::engine::{Kept, Question, probe};
use crate::settings::health::{Check, First, HEALTH, Rhythm};
use crate::upstreams::Lasting;

/// How often is looked which servers a group has, milliseconds.
const LOOK_EVERY_MS: u64 = 1000;

/// A configuration is in use from now on: its checks begin, from this loop on, and end with it. To be called
/// behind [`Lasting::begin`], before requests get to know the configuration.
pub fn begin(lasting: &Arc<Lasting>, generation: &Arc<Generation>, home: LoopRef) {
    for (check, number) in generation.parts().snapshot.conf(&HEALTH).checks.iter().zip(0..) {
        let at = home.sibling(number % lasting.loops());
        let mut checking = Checking {
            check: Arc::clone(check),
            lasting: Arc::clone(lasting),
            generation: Arc::downgrade(generation),
            home: at,
            watched: Vec::new(),
            next_loop: number,
        };
        if checking.look() == Use::Goes {
            at.spawn(Tag::NONE, checking.run());
        }
    }
}

/// Whether a configuration is in use.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Goes,
    Over,
}

/// A check and the servers that it watches.
struct Checking {
    check: Arc<Check>,
    lasting: Arc<Lasting>,
    generation: Weak<Generation>,
    home: LoopRef,
    watched: Vec<Arc<Peer>>,
    next_loop: usize,
}

impl Checking {
    async fn run(mut self) {
        loop {
            pause(self.home, LOOK_EVERY_MS).await;
            if self.look() == Use::Over {
                return;
            }
        }
    }

    /// Has all servers watched that the group has now.
    fn look(&mut self) -> Use {
        let Some(peers) = peers_of(&self.check, &self.lasting) else { return Use::Over };
        self.watched.retain(|known| peers.iter().any(|peer| peer.is_same(known)));
        debug_assert!(self.watched.len() <= peers.len(), "a server is watched once");
        for peer in peers {
            let is_known = self.watched.iter().any(|known| known.is_same(&peer));
            if is_known || peer.config().state == ServerState::Down {
                continue;
            }
            self.next_loop += 1;
            let home = self.home.sibling(self.next_loop % self.lasting.loops());
            let condition = match self.check.first {
                First::AsBefore if peer.state().was_healthy() => Condition::Healthy,
                First::Checking | First::AsBefore => Condition::Unknown,
                First::Healthy => Condition::Healthy,
            };
            if condition == Condition::Unknown {
                peer.fall_ill();
            }
            let watch = Watch {
                check: Arc::clone(&self.check),
                lasting: Arc::clone(&self.lasting),
                generation: Weak::clone(&self.generation),
                peer: Arc::clone(&peer),
                home,
                health: Health { condition, streak: 0 },
                kept: None,
            };
            home.spawn(Tag::NONE, watch.run());
            self.watched.push(peer);
        }
        Use::Goes
    }
}

/// The servers of a check's group; `None`: its configuration is not in use any more.
fn peers_of(check: &Check, lasting: &Lasting) -> Option<Vec<Arc<Peer>>> {
    let group = &check.aim.get()?.group;
    let is_in_use = lasting.uses(group);
    group.upgrade().filter(|_| is_in_use)?.get().map(|group| group.peers())
}

/// One server.
struct Watch {
    check: Arc<Check>,
    lasting: Arc<Lasting>,
    /// What requests are made in; held while the server is asked.
    generation: Weak<Generation>,
    peer: Arc<Peer>,
    home: LoopRef,
    health: Health,
    kept: Option<Kept>,
}

impl Watch {
    async fn run(mut self) {
        let Rhythm { interval_ms, jitter_ms, .. } = self.check.rhythm;
        let later_ms = || if jitter_ms > 0 { rand::random_range(0..=jitter_ms) } else { 0 };
        pause(self.home, later_ms()).await;
        loop {
            let peers = peers_of(&self.check, &self.lasting).unwrap_or_default();
            // What is said of it may have changed.
            let Some(peer) = peers.into_iter().find(|peer| peer.is_same(&self.peer)) else { return };
            self.peer = peer;
            if self.peer.config().state != ServerState::Down {
                let Some(generation) = self.generation.upgrade() else { return };
                let (check, peer, kept) = (&*self.check, &self.peer, &mut self.kept);
                let question = Question { check, peer, home: self.home, kept };
                let found = Box::pin(probe(question, generation)).await;
                self.take(found.err());
            }
            pause(self.home, interval_ms + later_ms()).await;
        }
    }

    /// What has come of a question.
    fn take(&mut self, fault: Option<String>) {
        let log = self.lasting.log();
        let tests = self.check.tests_name.as_deref().unwrap_or_default();
        let tests = String::from_utf8_lossy(tests);
        let group = self.check.aim.get().map_or("", |aim| &*aim.group_name);
        let say = |level, text: &str| {
            let name = &self.peer.config().name;
            let about = format_args!("health check \"{tests}\" of peer {name} in upstream \"{group}\"");
            log.log(level, format_args!("{text}, {about}"));
        };
        let checked = if fault.is_none() { Checked::Passed } else { Checked::Failed };
        self.peer.state().count_check(checked);
        if let Some(fault) = &fault {
            say(Level::Error, fault);
        }
        let before = self.health.condition;
        self.health.note(checked, self.check.rhythm);
        debug_assert_ne!(self.health.condition, Condition::Unknown, "the first answer decides");
        // What the log says is true already: requests that follow on its line meet the new condition.
        match (before, self.health.condition) {
            (Condition::Unhealthy, Condition::Healthy) => {
                self.peer.recover(self.home.now_ms());
                say(Level::Notice, "peer is healthy");
            }
            (Condition::Unknown, Condition::Healthy) => {
                self.peer.get_well();
                say(Level::Notice, "peer is healthy");
            }
            (Condition::Unknown, Condition::Unhealthy) => say(Level::Warn, "peer is unhealthy"),
            (Condition::Healthy, Condition::Unhealthy) => {
                self.peer.fall_ill();
                say(Level::Warn, "peer is unhealthy");
            }
            _ => {}
        }
        self.peer.state().remember_health(match self.health.condition {
            Condition::Healthy => Checked::Passed,
            Condition::Unknown | Condition::Unhealthy => Checked::Failed,
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// It was not asked yet, and gets no requests.
    Unknown,
    Healthy,
    Unhealthy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Health {
    condition: Condition,
    /// Answers in a row that speak against the condition.
    streak: u32,
}

impl Health {
    /// The first answer decides; later ones when there are enough in a row.
    fn note(&mut self, checked: Checked, rhythm: Rhythm) {
        let passed = checked == Checked::Passed;
        let (other, enough, is_against) = match self.condition {
            Condition::Unknown if passed => (Condition::Healthy, 1, true),
            Condition::Unknown => (Condition::Unhealthy, 1, true),
            Condition::Healthy => (Condition::Unhealthy, rhythm.fails, !passed),
            Condition::Unhealthy => (Condition::Healthy, rhythm.passes, passed),
        };
        self.streak = if is_against { self.streak + 1 } else { 0 };
        if is_against && self.streak >= enough {
            *self = Self { condition: other, streak: 0 };
        }
        debug_assert!(is_against || self.streak == 0, "an answer that fits begins anew");
    }
}

async fn pause(home: LoopRef, time_ms: u64) {
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + time_ms);
    poll_fn(|cx| timer.poll_expired(cx)).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `+` and `-` are answers; what it is behind each.
    fn conditions(first: Condition, rhythm: (u32, u32), answers: &str) -> String {
        let rhythm = Rhythm { interval_ms: 1, jitter_ms: 0, fails: rhythm.0, passes: rhythm.1 };
        let mut health = Health { condition: first, streak: 0 };
        let letters = answers.chars().map(|answer| {
            health.note(if answer == '+' { Checked::Passed } else { Checked::Failed }, rhythm);
            match health.condition {
                Condition::Unknown => '?',
                Condition::Healthy => 'h',
                Condition::Unhealthy => 'u',
            }
        });
        letters.collect()
    }

    #[test]
    fn a_server_changes_when_there_were_enough_answers_in_a_row() {
        assert_eq!(conditions(Condition::Healthy, (1, 1), "+-+-"), "huhu");
        assert_eq!(conditions(Condition::Healthy, (3, 2), "--+---+-++"), "hhhhhuuuuh");
        assert_eq!(conditions(Condition::Unknown, (3, 2), "+--"), "hhh");
        assert_eq!(conditions(Condition::Unknown, (3, 2), "-++"), "uuh");
    }
}
