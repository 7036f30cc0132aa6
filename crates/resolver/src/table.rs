//! The state of a resolver: all answers and questions, without sockets and clocks. One task owns it.
//!
//! The rules are those of nginx (`ngx_resolver.c`):
//! 1. A name is asked for once, however many wait for it: for A and AAAA under two idents, which are random.
//!    Servers take turns; the one that does not answer within [`RESEND_MS`] is followed by the next, as long
//!    as somebody waits.
//! 2. A truncated response is asked for again by TCP.
//! 3. Both have to be answered, and an error of one is that of the name. Errors are not kept.
//! 4. What is known holds for the least time to live of its records (or `valid=`), rounded up to the second.
//!    It is forgotten when nobody has asked for it for [`KEEP_S`].
//! 5. An alias without addresses is followed, [`HOPS_MAX`] times.
//!
//! Ours: when a server says at once that it is not there, the next one is asked at once.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::known::{Known, KnownNames};
use crate::metrics;
use crate::waiter::{Answer, Failure, Found, Question, Waiter};
use crate::wire::{self, Answers, Ask, Name, Response, Target, Via};

/// A server that has not answered for so long is followed by the next, ms.
pub(crate) const RESEND_MS: u64 = 5000;
/// An answer that is not asked for is forgotten after so many seconds.
const KEEP_S: u64 = 30;
/// How many aliases are followed for one name.
const HOPS_MAX: u8 = 50;
/// NXDOMAIN
const NO_SUCH_NAME: u8 = 3;
/// Names that are looked at per call when old ones are to be forgotten.
const SWEEP: usize = 64;

/// The settings of `resolver` that a table needs.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    /// A, AAAA or both.
    pub(crate) asks: Vec<Ask>,
    /// `valid=`, seconds.
    pub(crate) valid_s: Option<u64>,
    /// How many servers there are.
    pub(crate) servers: usize,
    /// Names that are known or asked for at most.
    pub(crate) names_max: usize,
}

/// The work to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Sends a query, to another server where that is not possible.
    Send { server: usize, via: Via, query: Vec<u8> },
    /// Logs an error.
    Log(String),
}

/// The state of one resolver.
pub(crate) struct Table {
    rules: Rules,
    names: HashMap<Arc<Question>, EntryState>,
    next_server: usize,
    /// When what is asked for is to be asked for again; entries may be out of date. In the order of time.
    resend: VecDeque<(u64, Arc<Question>)>,
    /// The known names, roughly in the order of use; entries with an old number are out of date.
    sweep: VecDeque<(u64, Arc<Question>)>,
    last_number: u64,
    known: Arc<KnownNames>,
    pub(crate) deeds: Vec<Deed>,
}

enum EntryState {
    Asked(Asked),
    Known {
        fact: Fact,
        /// In `sweep`.
        number: u64,
    },
}

/// The answer for a name.
enum Fact {
    Addresses(Arc<Known>),
    Targets { targets: Arc<[Target]>, valid_until_s: u64, used_s: u64 },
    Alias { name: Name, valid_until_s: u64, used_s: u64 },
}

struct Asked {
    halves: Vec<Half>,
    server: usize,
    /// Servers that were asked since the last answer or timeout.
    tried: usize,
    code: u8,
    ttl_s: u32,
    targets: Vec<Target>,
    waiting: Vec<Follower>,
    resend_ms: u64,
}

/// One of the two queries for a name.
struct Half {
    ask: Ask,
    ident: u16,
    query: Vec<u8>,
    via: Via,
    answer: Option<Vec<IpAddr>>,
    alias: Option<Name>,
}

/// A waiter, and how many aliases were followed for it.
struct Follower {
    waiter: Arc<Waiter>,
    hops: u8,
    /// The least of the aliases that were followed.
    valid_until_s: u64,
}

impl Table {
    pub(crate) fn new(rules: Rules, known: Arc<KnownNames>) -> Self {
        Self {
            rules,
            known,
            names: HashMap::new(),
            next_server: 0,
            resend: VecDeque::new(),
            sweep: VecDeque::new(),
            last_number: 0,
            deeds: Vec::new(),
        }
    }

    /// A task asks for a name.
    pub(crate) fn ask(&mut self, waiter: Arc<Waiter>, now_ms: u64) {
        let question = waiter.question.clone();
        let follower = Follower { waiter, hops: 0, valid_until_s: u64::MAX };
        self.follow(question, vec![follower], now_ms);
        self.forget(now_ms);
    }

    /// Answers them, or has them wait for an answer.
    fn follow(&mut self, mut question: Question, mut followers: Vec<Follower>, now_ms: u64) {
        let now_s = now_ms / 1000;
        loop {
            match self.names.get_mut(&question) {
                Some(EntryState::Asked(asked)) => return asked.waiting.append(&mut followers),
                Some(EntryState::Known { fact, .. }) if fact.valid_until_s() >= now_s => {
                    fact.touch(now_s);
                    let Fact::Alias { name, valid_until_s, .. } = fact else {
                        return followers.iter().for_each(|follower| finish(&self.known, follower, fact));
                    };
                    let (name, valid_until_s) = (name.clone(), *valid_until_s);
                    followers.retain_mut(|follower| follower.go_on(valid_until_s));
                    if followers.is_empty() {
                        return;
                    }
                    question = question.of(name);
                }
                _ => return self.begin(Arc::new(question), followers, now_ms),
            }
        }
    }

    /// Rule 1.
    fn begin(&mut self, question: Arc<Question>, waiting: Vec<Follower>, now_ms: u64) {
        if !self.has_room() {
            metrics::CROWDED_OUT.add(waiting.len() as u64);
            return fail(&waiting, Failure::TimedOut);
        }
        let asks: &[Ask] = match &*question {
            Question::Addresses(_) => &self.rules.asks,
            Question::Service(_) => &[Ask::Service],
        };
        let Some(halves) = queries(&question, asks) else {
            self.names.remove(&question);
            return fail(&waiting, Failure::Code(NO_SUCH_NAME));
        };
        let server = self.next_server;
        self.next_server = (server + 1) % self.rules.servers;
        let asked = Asked {
            halves,
            server,
            tried: 1,
            code: 0,
            ttl_s: u32::MAX,
            targets: Vec::new(),
            waiting,
            resend_ms: now_ms + RESEND_MS,
        };
        asked.send(&mut self.deeds);
        self.resend.push_back((asked.resend_ms, Arc::clone(&question)));
        self.names.insert(question, EntryState::Asked(asked));
    }

    /// Whether another name may be asked for: the one that was not used for longest may have to go.
    fn has_room(&mut self) -> bool {
        while self.names.len() >= self.rules.names_max {
            let Some((number, question)) = self.sweep.pop_front() else { return false };
            if self.find_swept(number, &question).is_some() {
                self.drop_known(&question);
            }
        }
        true
    }

    /// The answer, if that number is not out of date.
    fn find_swept(&self, number: u64, question: &Question) -> Option<&Fact> {
        match self.names.get(question)? {
            EntryState::Known { fact, number: of } if *of == number => Some(fact),
            EntryState::Known { .. } | EntryState::Asked(_) => None,
        }
    }

    fn drop_known(&mut self, question: &Question) {
        self.names.remove(question);
        self.known.remove(question.name());
    }

    /// A message has come from a name server.
    pub(crate) fn receive(&mut self, message: &[u8], via: Via, now_ms: u64) {
        let response = match Response::parse(message, via) {
            Ok(response) => response,
            Err(fault) => return self.odd(fault.to_string()),
        };
        let question = match response.ask {
            Ask::V4 | Ask::V6 => Question::Addresses(response.name.clone()),
            Ask::Service => Question::Service(response.name.clone()),
        };
        let shown = String::from_utf8_lossy(&response.name);
        let Some(EntryState::Asked(asked)) = self.names.get_mut(&question) else {
            return self.odd(format!("unexpected DNS response for {shown}"));
        };
        let half = asked.halves.iter_mut().find(|half| half.ask == response.ask && half.answer.is_none());
        let Some(half) = half else {
            return self.odd(format!("unexpected DNS response for {shown}"));
        };
        if half.ident != response.ident {
            let (ident, expected) = (response.ident, half.ident);
            let text = format!("wrong ident {ident} in DNS response for {shown}, expect {expected}");
            return self.odd(text);
        }
        if response.is_truncated {
            // The second response of this kind says nothing new (rule 2).
            if half.via == Via::Udp {
                half.via = Via::Tcp;
                let query = half.query.clone();
                self.deeds.push(Deed::Send { server: asked.server, via: Via::Tcp, query });
                asked.resend_ms = now_ms + RESEND_MS;
                self.resend.push_back((asked.resend_ms, Arc::new(question)));
            }
            return;
        }
        match response.answers() {
            Ok(answers) => {
                self.deeds.extend(
                    answers
                        .odd
                        .iter()
                        .map(|kind| Deed::Log(format!("unexpected RR type {kind} in DNS response"))),
                );
                asked.take(&response, answers);
                metrics::RESPONSES.increment();
                self.settle(&question, now_ms);
            }
            Err(fault) => self.odd(fault.to_string()),
        }
    }

    fn odd(&mut self, text: String) {
        metrics::STRANGE.increment();
        self.deeds.push(Deed::Log(text));
    }

    /// Ends questions that have all their answers (rule 3).
    fn settle(&mut self, question: &Question, now_ms: u64) {
        let is_whole = |state: &EntryState| match state {
            EntryState::Asked(asked) => asked.halves.iter().all(|half| half.answer.is_some()),
            EntryState::Known { .. } => false,
        };
        if !self.names.get(question).is_some_and(is_whole) {
            return;
        }
        let Some((question, EntryState::Asked(mut asked))) = self.names.remove_entry(question) else {
            return;
        };
        let waiting = std::mem::take(&mut asked.waiting);
        let now_s = now_ms / 1000;
        let valid_until_s = now_s + self.rules.valid_s.unwrap_or(asked.ttl_s.into());
        let fact = match asked.conclude(&question, now_s, valid_until_s) {
            Ok(fact) => fact,
            Err(code) => {
                metrics::REFUSALS.increment();
                return fail(&waiting, Failure::Code(code));
            }
        };
        let alias = match &fact {
            Fact::Alias { name, .. } => Some(name.clone()),
            Fact::Addresses(found) => {
                self.known.put(Arc::clone(found));
                None
            }
            Fact::Targets { .. } => None,
        };
        if alias.is_none() {
            waiting.iter().for_each(|follower| finish(&self.known, follower, &fact));
        }
        self.last_number += 1;
        let number = self.last_number;
        self.names.insert(Arc::clone(&question), EntryState::Known { fact, number });
        self.sweep.push_back((number, Arc::clone(&question)));
        if let Some(alias) = alias {
            let still = waiting
                .into_iter()
                .filter_map(|mut follower| follower.go_on(valid_until_s).then_some(follower));
            self.follow(question.of(alias), still.collect(), now_ms);
        }
    }

    /// Sends the queries for a server that failed to the next one, once round.
    pub(crate) fn server_failed(&mut self, server: usize) {
        for (at_ms, question) in &self.resend {
            if let Some(EntryState::Asked(asked)) = self.names.get_mut(question)
                && asked.resend_ms == *at_ms
                && asked.server == server
                && asked.tried < self.rules.servers
            {
                asked.server = (server + 1) % self.rules.servers;
                asked.tried += 1;
                asked.send(&mut self.deeds);
            }
        }
    }

    /// When [`Table::tick`] has something to do.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.resend.front().map(|(at_ms, _)| *at_ms)
    }

    /// Asks again for what has not been answered; forgets what nobody waits for.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        while self.resend.front().is_some_and(|(at_ms, _)| *at_ms <= now_ms) {
            let Some((at_ms, question)) = self.resend.pop_front() else { return };
            let Some(EntryState::Asked(asked)) = self.names.get_mut(&question) else { continue };
            if asked.resend_ms != at_ms {
                continue;
            }
            asked.waiting.retain(|follower| !follower.waiter.is_gone());
            if asked.waiting.is_empty() {
                self.names.remove(&question);
                continue;
            }
            asked.server = (asked.server + 1) % self.rules.servers;
            asked.tried = 1;
            asked.resend_ms = now_ms + RESEND_MS;
            asked.send(&mut self.deeds);
            self.resend.push_back((asked.resend_ms, question));
        }
        self.forget(now_ms);
    }

    /// Rule 4.
    fn forget(&mut self, now_ms: u64) {
        let now_s = now_ms / 1000;
        for _ in 0..SWEEP.min(self.sweep.len()) {
            let Some((number, question)) = self.sweep.pop_front() else { return };
            match self.find_swept(number, &question).map(Fact::used_s) {
                Some(used_s) if used_s + KEEP_S >= now_s => {
                    self.sweep.push_back((number, question));
                    return;
                }
                Some(_) => self.drop_known(&question),
                None => {}
            }
        }
    }
}

/// The queries for a name, with random idents that differ; `None` where that is no name.
fn queries(question: &Question, asks: &[Ask]) -> Option<Vec<Half>> {
    let first: u16 = rand::random();
    let apart: u16 = rand::random::<u16>() | 1;
    let idents = (0..).map(|number: u16| first.wrapping_add(apart.wrapping_mul(number)));
    let halves = asks.iter().zip(idents).map(|(&ask, ident)| {
        let query = wire::query(ident, question.name(), ask)?;
        Some(Half { ask, ident, query, via: Via::Udp, answer: None, alias: None })
    });
    halves.collect()
}

fn fail(waiting: &[Follower], failure: Failure) {
    waiting.iter().for_each(|follower| follower.waiter.finish(Err(failure)));
}

/// Tells one query what was found, and all later ones for the same name.
fn finish(known: &KnownNames, follower: &Follower, fact: &Fact) {
    let valid_until_s = fact.valid_until_s().min(follower.valid_until_s);
    match fact {
        Fact::Addresses(found) => {
            let addresses = Arc::clone(&found.addresses);
            let is_alias = *found.name != *follower.waiter.question.name();
            known.put(if is_alias {
                Arc::new(found.renamed(follower.waiter.question.name(), valid_until_s))
            } else {
                Arc::clone(found)
            });
            follower.waiter.finish(Ok(Found::Addresses(Answer { addresses, valid_until_s })));
        }
        Fact::Targets { targets, .. } => {
            let targets = Arc::clone(targets);
            follower.waiter.finish(Ok(Found::Targets { targets, valid_until_s }));
        }
        Fact::Alias { .. } => {}
    }
}

impl Follower {
    /// Rule 5; `false` where the way has come to its end.
    fn go_on(&mut self, valid_until_s: u64) -> bool {
        self.hops += 1;
        self.valid_until_s = self.valid_until_s.min(valid_until_s);
        let may_go_on = self.hops <= HOPS_MAX;
        if !may_go_on {
            self.waiter.finish(Err(Failure::Code(NO_SUCH_NAME)));
        }
        may_go_on
    }
}

impl Asked {
    fn send(&self, deeds: &mut Vec<Deed>) {
        let open = self.halves.iter().filter(|half| half.answer.is_none());
        deeds.extend(open.map(|half| Deed::Send {
            server: self.server,
            via: half.via,
            query: half.query.clone(),
        }));
    }

    /// Takes what a response says of one of the halves.
    fn take(&mut self, response: &Response<'_>, answers: Answers) {
        let Some(half) = self.halves.iter_mut().find(|half| half.ask == response.ask) else { return };
        if self.code == 0 {
            self.code = response.code;
        }
        self.ttl_s = self.ttl_s.min(answers.ttl_s);
        self.targets = answers.targets;
        (half.answer, half.alias) = (Some(answers.addresses), answers.alias);
    }

    /// Combines all answers, or the code of an error.
    fn conclude(&mut self, question: &Question, now_s: u64, valid_until_s: u64) -> Result<Fact, u8> {
        if self.code != 0 {
            return Err(self.code);
        }
        let addresses: Arc<[IpAddr]> =
            self.halves.iter_mut().flat_map(|half| half.answer.take()).flatten().collect();
        if !addresses.is_empty() {
            let known = Known::new(question.name(), addresses, valid_until_s, now_s);
            return Ok(Fact::Addresses(Arc::new(known)));
        }
        if !self.targets.is_empty() {
            let targets = std::mem::take(&mut self.targets).into();
            return Ok(Fact::Targets { targets, valid_until_s, used_s: now_s });
        }
        // As in nginx, where it is the answer that comes last: a name that is an alias for one kind of
        // addresses alone is broken.
        let name = self.halves.last_mut().and_then(|half| half.alias.take()).ok_or(NO_SUCH_NAME)?;
        Ok(Fact::Alias { name, valid_until_s, used_s: now_s })
    }
}

impl Fact {
    fn valid_until_s(&self) -> u64 {
        match self {
            Self::Addresses(known) => known.valid_until_s,
            Self::Targets { valid_until_s, .. } | Self::Alias { valid_until_s, .. } => *valid_until_s,
        }
    }

    fn used_s(&self) -> u64 {
        match self {
            Self::Addresses(known) => known.used_s.load(Ordering::Relaxed),
            Self::Targets { used_s, .. } | Self::Alias { used_s, .. } => *used_s,
        }
    }

    fn touch(&mut self, now_s: u64) {
        match self {
            Self::Addresses(known) => known.used_s.store(now_s, Ordering::Relaxed),
            Self::Targets { used_s, .. } | Self::Alias { used_s, .. } => *used_s = now_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::tests::{respond, wire_name};

    const OK: u16 = 0x8180;
    const A: u16 = 1;
    const CNAME: u16 = 5;
    const AAAA: u16 = 28;
    const SRV: u16 = 33;
    /// Some time, ms.
    const NOW: u64 = 1_000_000;

    type Records<'a> = &'a [(u16, u32, Vec<u8>)];

    fn table(asks: &[Ask], servers: usize) -> Table {
        let rules = Rules { asks: asks.to_vec(), valid_s: None, servers, names_max: 100 };
        Table::new(rules, Arc::new(KnownNames::new()))
    }

    fn ask(table: &mut Table, name: &str, now_ms: u64) -> Arc<Waiter> {
        let waiter = Waiter::new(Question::Addresses(name.as_bytes().into()));
        table.ask(Arc::clone(&waiter), now_ms);
        waiter
    }

    /// Queries that are to be sent: to which server, by what, the query.
    fn sent(table: &mut Table) -> Vec<(usize, Via, Vec<u8>)> {
        let sends = table.deeds.drain(..).filter_map(|deed| match deed {
            Deed::Send { server, via, query } => Some((server, via, query)),
            Deed::Log(_) => None,
        });
        sends.collect()
    }

    fn logged(table: &mut Table) -> Vec<String> {
        let lines = table.deeds.drain(..).filter_map(|deed| match deed {
            Deed::Log(text) => Some(text),
            Deed::Send { .. } => None,
        });
        lines.collect()
    }

    fn one_sent(table: &mut Table) -> Vec<u8> {
        let mut sent = sent(table);
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0).2
    }

    fn answer(table: &mut Table, query: &[u8], records: Records<'_>, now_ms: u64) {
        table.receive(&respond(query, OK, records), Via::Udp, now_ms);
    }

    fn addresses(waiter: &Waiter) -> Option<Result<Vec<String>, Failure>> {
        let found = waiter.answer()?.clone();
        Some(found.map(|found| match found {
            Found::Addresses(answer) => answer.addresses.iter().map(IpAddr::to_string).collect(),
            Found::Targets { .. } => Vec::new(),
        }))
    }

    fn v4(last: u8) -> (u16, u32, Vec<u8>) {
        (A, 10, vec![127, 0, 0, last])
    }

    #[test]
    fn a_name_is_asked_for_once_and_kept_as_long_as_it_holds() {
        let mut table = table(&[Ask::V4], 1);
        let waiters = [ask(&mut table, "a.b", NOW), ask(&mut table, "a.b", NOW)];
        let query = one_sent(&mut table);
        assert!(waiters.iter().all(|waiter| waiter.answer().is_none()));
        answer(&mut table, &query, &[v4(1), v4(2)], NOW);
        for waiter in &waiters {
            assert_eq!(addresses(waiter), Some(Ok(vec!["127.0.0.1".into(), "127.0.0.2".into()])));
        }
        assert!(addresses(&ask(&mut table, "a.b", NOW + 10_999)).is_some(), "to the end of the second");
        assert!(table.known.find(b"a.b", 1010).is_some() && table.known.find(b"a.b", 1011).is_none());
        assert!(addresses(&ask(&mut table, "a.b", NOW + 11_000)).is_none());
        assert_eq!(sent(&mut table).len(), 1, "it is asked for again");
    }

    #[test]
    fn both_families_are_waited_for() {
        let mut table = table(&[Ask::V4, Ask::V6], 1);
        let waiter = ask(&mut table, "a.b", NOW);
        let queries = sent(&mut table);
        assert_ne!(queries[0].2[..2], queries[1].2[..2], "idents differ");
        answer(&mut table, &queries[1].2, &[(AAAA, 5, [&[0; 15][..], &[1]].concat())], NOW);
        assert_eq!(addresses(&waiter), None);
        answer(&mut table, &queries[0].2, &[v4(1)], NOW);
        assert_eq!(addresses(&waiter), Some(Ok(vec!["127.0.0.1".into(), "::1".into()])));
        // If there is no address of one family, those of the other are enough.
        let waiter = ask(&mut table, "c.d", NOW);
        let queries = sent(&mut table);
        answer(&mut table, &queries[0].2, &[v4(3)], NOW);
        answer(&mut table, &queries[1].2, &[], NOW);
        assert_eq!(addresses(&waiter), Some(Ok(vec!["127.0.0.3".into()])));
        // An error of one is an error.
        let waiter = ask(&mut table, "e.f", NOW);
        let queries = sent(&mut table);
        answer(&mut table, &queries[0].2, &[v4(3)], NOW);
        table.receive(&respond(&queries[1].2, 0x8182, &[]), Via::Udp, NOW);
        assert_eq!(addresses(&waiter), Some(Err(Failure::Code(2))));
    }

    #[test]
    fn errors_are_told_and_not_kept() {
        let mut table = table(&[Ask::V4], 1);
        for (flags, code) in [(0x8183, 3), (0x8185, 5), (OK, 3)] {
            let waiter = ask(&mut table, "a.b", NOW);
            let query = one_sent(&mut table);
            table.receive(&respond(&query, flags, &[]), Via::Udp, NOW);
            assert_eq!(addresses(&waiter), Some(Err(Failure::Code(code))));
        }
        assert!(table.names.is_empty());
        assert_eq!(addresses(&ask(&mut table, "a..b", NOW)), Some(Err(Failure::Code(3))));
        assert_eq!(Failure::Code(3).to_string(), "3: Host not found");
    }

    #[test]
    fn servers_take_turns_until_nobody_waits() {
        let mut table = table(&[Ask::V4], 3);
        let waiter = ask(&mut table, "a.b", NOW);
        let mut servers = vec![sent(&mut table)[0].0];
        ask(&mut table, "c.d", NOW);
        servers.push(sent(&mut table)[0].0);
        assert_eq!(servers, [0, 1]);
        assert_eq!(table.next_ms(), Some(NOW + RESEND_MS));
        table.tick(NOW + RESEND_MS - 1);
        assert!(sent(&mut table).is_empty());
        table.tick(NOW + RESEND_MS);
        assert_eq!(sent(&mut table).iter().map(|sent| sent.0).collect::<Vec<_>>(), [1, 2]);
        // A waiter that is dropped by its future says so; here nobody else holds it.
        drop(crate::waiter::tests::give_up(waiter));
        table.tick(NOW + 2 * RESEND_MS);
        assert_eq!(sent(&mut table).iter().map(|sent| sent.0).collect::<Vec<_>>(), [0]);
        assert_eq!(table.names.len(), 1);
    }

    #[test]
    fn a_server_that_is_not_there_is_left_at_once() {
        let mut table = table(&[Ask::V4, Ask::V6], 3);
        let waiter = ask(&mut table, "a.b", NOW);
        sent(&mut table);
        table.server_failed(1);
        assert!(sent(&mut table).is_empty(), "it was not asked");
        for next in [1, 2] {
            table.server_failed(next - 1);
            let sent = sent(&mut table);
            assert_eq!(sent.iter().map(|sent| sent.0).collect::<Vec<_>>(), [next, next]);
        }
        table.server_failed(2);
        assert!(sent(&mut table).is_empty(), "all were asked");
        table.tick(NOW + RESEND_MS);
        assert_eq!(sent(&mut table)[0].0, 0, "and are again");
        assert_eq!(addresses(&waiter), None);
    }

    #[test]
    fn what_was_not_asked_for_changes_nothing() {
        let mut table = table(&[Ask::V4], 1);
        let waiter = ask(&mut table, "a.b", NOW);
        let query = one_sent(&mut table);
        let mut forged = query.clone();
        forged[0] ^= 1;
        let [wrong, right] = [&forged, &query].map(|query| u16::from_be_bytes([query[0], query[1]]));
        answer(&mut table, &forged, &[v4(66)], NOW);
        let expected = format!("wrong ident {wrong} in DNS response for a.b, expect {right}");
        assert_eq!(logged(&mut table), [expected]);
        for (name, ask) in [(&b"c.d"[..], Ask::V4), (b"a.b", Ask::V6), (b"a.b", Ask::Service)] {
            let query = wire::query(right, name, ask).expect("a name");
            answer(&mut table, &query, &[], NOW);
            let name = String::from_utf8_lossy(name);
            assert_eq!(logged(&mut table), [format!("unexpected DNS response for {name}")]);
        }
        answer(&mut table, &query, &[v4(1), (16, 1, vec![0])], NOW);
        assert_eq!(logged(&mut table), ["unexpected RR type 16 in DNS response"]);
        assert_eq!(addresses(&waiter), Some(Ok(vec!["127.0.0.1".into()])));
        answer(&mut table, &query, &[v4(66)], NOW);
        assert_eq!(logged(&mut table), ["unexpected DNS response for a.b"], "only the first counts");
    }

    #[test]
    fn what_was_cut_is_asked_for_by_a_stream() {
        let mut table = table(&[Ask::V4], 2);
        let waiter = ask(&mut table, "a.b", NOW);
        let query = one_sent(&mut table);
        for expected in [1, 0] {
            table.receive(&respond(&query, 0x8380, &[]), Via::Udp, NOW);
            let sent = sent(&mut table);
            assert_eq!(sent.len(), expected);
            assert!(sent.iter().all(|sent| *sent == (0, Via::Tcp, query.clone())));
        }
        table.receive(&respond(&query, OK, &[v4(1)]), Via::Tcp, NOW);
        assert_eq!(addresses(&waiter), Some(Ok(vec!["127.0.0.1".into()])));
    }

    #[test]
    fn aliases_are_followed_and_hold_as_long_as_the_least() {
        let mut table = table(&[Ask::V4], 1);
        let waiter = ask(&mut table, "a.b", NOW);
        for (alias, ttl) in [("c.d", 2), ("e.f", 7)] {
            let query = one_sent(&mut table);
            answer(&mut table, &query, &[(CNAME, ttl, wire_name(alias))], NOW);
        }
        let query = one_sent(&mut table);
        answer(&mut table, &query, &[v4(1)], NOW);
        assert_eq!(addresses(&waiter), Some(Ok(vec!["127.0.0.1".into()])));
        let known = |name: &[u8], now_s| table.known.find(name, now_s).is_some();
        assert!(known(b"a.b", 1002) && !known(b"a.b", 1003) && known(b"e.f", 1010));
        // The rest of the way is known when the first step is not any more.
        let waiter = ask(&mut table, "a.b", NOW + 3000);
        let query = one_sent(&mut table);
        answer(&mut table, &query, &[(CNAME, 2, wire_name("c.d"))], NOW + 3000);
        assert_eq!(addresses(&waiter), Some(Ok(vec!["127.0.0.1".into()])));
    }

    #[test]
    fn the_last_kind_of_addresses_says_what_is_followed() {
        let name = |name: &str| (CNAME, 60, wire_name(name));
        for (v4, v6, followed) in [
            (vec![name("c.d")], vec![], None),
            (vec![], vec![name("e.f")], Some(b"e.f")),
            (vec![name("c.d")], vec![name("e.f")], Some(b"e.f")),
        ] {
            for order in [[Ask::V4, Ask::V6], [Ask::V6, Ask::V4]] {
                let mut table = table(&[Ask::V4, Ask::V6], 1);
                let waiter = ask(&mut table, "a.b", NOW);
                let queries = sent(&mut table);
                for kind in order {
                    let (at, records) = if kind == Ask::V4 { (0, &v4) } else { (1, &v6) };
                    answer(&mut table, &queries[at].2, records, NOW);
                }
                let asked = sent(&mut table);
                let names = asked.iter().map(|(.., query)| &query[13..16]).collect::<Vec<_>>();
                let expected = followed.map(|_| vec![&b"e\x01f"[..]; 2]).unwrap_or_default();
                assert_eq!(names, expected, "{order:?}");
                assert_eq!(addresses(&waiter).is_some(), followed.is_none());
            }
        }
    }

    #[test]
    fn aliases_that_lead_round_come_to_an_end() {
        let mut table = table(&[Ask::V4], 1);
        let waiter = ask(&mut table, "a.b", NOW);
        for alias in ["c.d", "a.b"] {
            let query = one_sent(&mut table);
            answer(&mut table, &query, &[(CNAME, 60, wire_name(alias))], NOW);
        }
        assert!(sent(&mut table).is_empty());
        assert_eq!(addresses(&waiter), Some(Err(Failure::Code(3))));
    }

    #[test]
    fn services_have_targets_by_priority() {
        let mut table = table(&[Ask::V4], 1);
        let waiter = Waiter::new(Question::Service(b"_x._tcp.a.b"[..].into()));
        table.ask(Arc::clone(&waiter), NOW);
        let query = one_sent(&mut table);
        let target = |priority: u8| [vec![0, priority, 0, 1, 0, 80], wire_name("c.d")].concat();
        answer(&mut table, &query, &[(SRV, 9, target(7)), (SRV, 9, target(2))], NOW);
        let Some(Ok(Found::Targets { targets, valid_until_s: 1009 })) = waiter.answer() else {
            panic!("{:?}", waiter.answer())
        };
        assert_eq!(targets.iter().map(|target| target.priority).collect::<Vec<_>>(), [2, 7]);
    }

    #[test]
    fn names_are_bounded_and_forgotten() {
        let mut table = table(&[Ask::V4], 1);
        for number in 0..150 {
            let name = format!("n{number}.b");
            let waiter = ask(&mut table, &name, NOW);
            let query = one_sent(&mut table);
            answer(&mut table, &query, &[v4(1)], NOW);
            assert!(addresses(&waiter).is_some());
            assert!(table.names.len() <= 100);
        }
        assert!(table.known.find(b"n0.b", 1000).is_none() && table.known.find(b"n149.b", 1000).is_some());
        // Nobody asks for them any more; one is asked for all the time.
        for step in 1..=35 {
            let waiter = ask(&mut table, "n149.b", NOW + step * 1000);
            if waiter.answer().is_none() {
                let query = one_sent(&mut table);
                answer(&mut table, &query, &[v4(1)], NOW + step * 1000);
            }
        }
        assert_eq!(table.names.len(), 1);
        assert!(
            table.sweep.len() < 10 && table.resend.len() < 200,
            "{} {}",
            table.sweep.len(),
            table.resend.len()
        );
        table.tick(NOW + 60_000);
        assert!(table.resend.is_empty());
        // As many as there may be are asked for: there is no room for another.
        let waiters: Vec<_> = (0..100).map(|number| ask(&mut table, &format!("m{number}.b"), NOW)).collect();
        assert!(waiters.iter().all(|waiter| waiter.answer().is_none()));
        assert_eq!(addresses(&ask(&mut table, "one.more", NOW)), Some(Err(Failure::TimedOut)));
    }
}
