//! Servers are asked whether they are well (`health_check`). For each check a task looks which servers its
//! group has, and each of those has a task that asks it and tells the group what has become of it. They end
//! with the configuration. They run on loops, spread over all of them. Where several processes have a group
//! in common (`worker_groups`, and a zone) a server is asked by one of them in each interval, whichever comes
//! first, and the others learn its health from two words of the zone.

use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use clearway_base::log::Level;
use clearway_http::Generation;
use clearway_os::clock;
use clearway_runtime::{LoopRef, Tag, Timer};
use clearway_upstream::{Checked, Memory, Peer, ServerState};

use crate::engine::{Kept, Question, probe};
use crate::settings::health::{Check, First, HEALTH, Rhythm};
use crate::upstreams::Lasting;

/// How often is looked which servers a group has, milliseconds.
const LOOK_EVERY_MS: u64 = 1000;
/// How often is looked what another process has found out, milliseconds at most.
const FOLLOW_EVERY_MS: u64 = 1000;

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
            number,
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
    /// The number of the check in the configuration.
    number: usize,
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
            let turns = Turns::of(&self.check, self.number, &peer, condition);
            let watch = Watch {
                turns,
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

/// The state of a server that several processes check: when one of them asked it last, and its health.
struct Turns(Arc<dyn Memory>);

impl Turns {
    const ASKED_AT: usize = 0;
    const FOUND_AT: usize = 1;

    /// The words of this server, if its group shares them with other processes.
    fn of(check: &Check, number: usize, peer: &Peer, first: Condition) -> Option<Self> {
        let group = check.aim.get()?.group.upgrade()?;
        let mut hasher = DefaultHasher::new();
        ("health_check", number, &*peer.config().name, &*peer.config().server).hash(&mut hasher);
        // The highest ones are the group's own.
        let memory = group.get()?.common()?.words(hasher.finish() >> 1, 2)?;
        let found = Health { condition: first, streak: 0 }.to_word();
        // If another process has found a result that holds, that stays.
        let _ = memory.word(Self::FOUND_AT).compare_exchange(0, found, Ordering::AcqRel, Ordering::Relaxed);
        Some(Self(memory))
    }

    /// Whether this process is the one that asks now.
    fn take(&self, interval_ms: u64) -> bool {
        let (word, now_ms) = (self.0.word(Self::ASKED_AT), clock::monotonic_ms().max(1));
        let asked_ms = word.load(Ordering::Acquire);
        let is_due = asked_ms == 0 || now_ms >= asked_ms.saturating_add(interval_ms);
        is_due && word.compare_exchange(asked_ms, now_ms, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn health(&self) -> Health {
        Health::of_word(self.0.word(Self::FOUND_AT).load(Ordering::Acquire))
    }

    fn publish(&self, health: Health) {
        self.0.word(Self::FOUND_AT).store(health.to_word(), Ordering::Release);
    }
}

/// The check of one server.
struct Watch {
    turns: Option<Turns>,
    check: Arc<Check>,
    lasting: Arc<Lasting>,
    /// The generation for its requests; held while the server is asked.
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
            // The server's settings may have changed.
            let Some(peer) = peers.into_iter().find(|peer| peer.is_same(&self.peer)) else { return };
            self.peer = peer;
            let is_up = self.peer.config().state != ServerState::Down;
            if is_up && self.turns.as_ref().is_some_and(|turns| !turns.take(interval_ms)) {
                self.follow();
            } else if is_up {
                let Some(generation) = self.generation.upgrade() else { return };
                let (check, peer, kept) = (&*self.check, &self.peer, &mut self.kept);
                let question = Question { check, peer, home: self.home, kept };
                let found = Box::pin(probe(question, generation)).await;
                self.take(found.err());
            }
            let pause_ms = match &self.turns {
                None => interval_ms,
                Some(_) => interval_ms.min(FOLLOW_EVERY_MS),
            };
            pause(self.home, pause_ms + later_ms()).await;
        }
    }

    /// Takes the result of a question.
    fn take(&mut self, fault: Option<String>) {
        let checked = if fault.is_none() { Checked::Passed } else { Checked::Failed };
        self.peer.state().count_check(checked);
        if let Some(fault) = &fault {
            self.say(Level::Error, fault);
        }
        let mut health = self.turns.as_ref().map_or(self.health, Turns::health);
        let before = health.condition;
        health.note(checked, self.check.rhythm);
        debug_assert_ne!(health.condition, Condition::Unknown, "the first answer decides");
        if let Some(turns) = &self.turns {
            turns.publish(health);
        }
        self.become_so(health);
        // The log says it when it is true: requests that follow on its line meet the new condition.
        match (before, health.condition) {
            (Condition::Unhealthy | Condition::Unknown, Condition::Healthy) => {
                self.say(Level::Notice, "peer is healthy");
            }
            (Condition::Unknown | Condition::Healthy, Condition::Unhealthy) => {
                self.say(Level::Warn, "peer is unhealthy");
            }
            _ => {}
        }
    }

    fn say(&self, level: Level, text: &str) {
        let tests = self.check.tests_name.as_deref().unwrap_or_default();
        let tests = String::from_utf8_lossy(tests);
        let group = self.check.aim.get().map_or("", |aim| &*aim.group_name);
        let name = &self.peer.config().name;
        let about = format_args!("health check \"{tests}\" of peer {name} in upstream \"{group}\"");
        self.lasting.log().log(level, format_args!("{text}, {about}"));
    }

    /// Another process checks this server: its result counts here as well.
    fn follow(&mut self) {
        let found = self.turns.as_ref().map(Turns::health);
        if let Some(health) = found.filter(|health| health.condition != Condition::Unknown) {
            self.become_so(health);
        }
    }

    fn become_so(&mut self, health: Health) {
        match (self.health.condition, health.condition) {
            (Condition::Unhealthy, Condition::Healthy) => self.peer.recover(self.home.now_ms()),
            (Condition::Unknown, Condition::Healthy) => self.peer.get_well(),
            (Condition::Healthy, Condition::Unhealthy) => self.peer.fall_ill(),
            _ => {}
        }
        self.health = health;
        self.peer.state().remember_health(match health.condition {
            Condition::Healthy => Checked::Passed,
            Condition::Unknown | Condition::Unhealthy => Checked::Failed,
        });
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// The server was not checked yet, and gets no requests.
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
    /// As a word that processes have in common, which is never 0.
    fn to_word(self) -> u64 {
        let condition = match self.condition {
            Condition::Unknown => 1,
            Condition::Healthy => 2,
            Condition::Unhealthy => 3,
        };
        u64::from(self.streak) << 2 | condition
    }

    /// Reads the health from a word, which may have any value.
    fn of_word(word: u64) -> Self {
        let condition = match word & 3 {
            2 => Condition::Healthy,
            3 => Condition::Unhealthy,
            _ => Condition::Unknown,
        };
        Self { condition, streak: (word >> 2) as u32 }
    }

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
    fn words_say_what_it_is() {
        for condition in [Condition::Unknown, Condition::Healthy, Condition::Unhealthy] {
            let health = Health { condition, streak: 70_000 };
            assert_eq!(Health::of_word(health.to_word()), health);
        }
        assert_eq!(Health::of_word(0), Health { condition: Condition::Unknown, streak: 0 });
    }

    #[test]
    fn a_server_changes_when_there_were_enough_answers_in_a_row() {
        assert_eq!(conditions(Condition::Healthy, (1, 1), "+-+-"), "huhu");
        assert_eq!(conditions(Condition::Healthy, (3, 2), "--+---+-++"), "hhhhhuuuuh");
        assert_eq!(conditions(Condition::Unknown, (3, 2), "+--"), "hhh");
        assert_eq!(conditions(Condition::Unknown, (3, 2), "-++"), "uuh");
    }
}
