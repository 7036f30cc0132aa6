//! Runs programs: one loop that is turned here, a clock that is moved here, a site with clients on one side,
//! another server on the other, and disks below. What must be true is looked at after each turn.

use std::path::PathBuf;
use std::sync::Arc;

use clearway_http::Transport;
use clearway_net::PeerAddr;
use clearway_net::accept::{AcceptPolicy, MultiAccept};
use clearway_net::connect::Connector;
use clearway_net::memory::memory_pair;
use clearway_os::clock::testing as clock;
use clearway_runtime::{Hand, Identities, Left, Runtime, Tag};
use clearway_serve::serve_transport;
use clearway_sim::{Action, Disks as How, Others, Program, Step};

use crate::client::Client;
use crate::disks::Disks;
use crate::other::{self, Other};
use crate::site::{self, INACTIVE_S, Site};

const NS_PER_MS: u64 = 1_000_000;
/// Connections, to both sides.
const CONNECTIONS_MAX: u32 = 64;
/// Each run begins at a multiple of this, so that it meets timers and whole seconds as any other one,
/// milliseconds.
const RUN_MS: u64 = 1000 << 20;
/// Turns without an end to it are a mistake.
const TURNS_MAX: usize = 100_000;
/// Until the manager has looked for objects that are too old, or too many, seconds.
const AGED_S: u64 = 21;
/// Until directories are read again whose files are not all known, seconds.
const WALK_S: u64 = 620;
/// How long all may take that a program has begun, milliseconds.
const SETTLE_MAX_MS: u64 = 600_000;

/// A loop, and what outlives runs. One that has failed is not used again.
pub(crate) struct World {
    hand: Hand,
    identities: Arc<Identities>,
    policy: &'static AcceptPolicy,
    directory: PathBuf,
    now_ms: u64,
}

/// A run.
struct Run<'w> {
    world: &'w mut World,
    clients: Vec<Client>,
    other: Other,
    disks: Disks,
    site: Site,
}

impl World {
    pub(crate) fn new(directory: PathBuf, policies: &'static [AcceptPolicy]) -> Self {
        clock::set_ns(RUN_MS * NS_PER_MS);
        let (runtime, hand) = Runtime::by_hand(site::alerts()).expect("two descriptors");
        let identities = runtime.identities().expect("a thread");
        clearway_proxy::start(Connector::new(policies));
        clearway_proxy::start_in_memory(other::call);
        Self { hand, identities, policy: &policies[0], directory, now_ms: RUN_MS }
    }

    /// The places of connections, for all worlds of the process.
    pub(crate) fn policies() -> &'static [AcceptPolicy] {
        AcceptPolicy::for_loops(1, CONNECTIONS_MAX, MultiAccept::Off)
    }

    /// Runs a program; what came of it, or what was wrong.
    pub(crate) fn run(&mut self, program: &Program) -> Result<String, String> {
        self.now_ms = (self.now_ms / RUN_MS + 1) * RUN_MS;
        clock::begin_wall_at(self.now_ms * NS_PER_MS);
        self.set_clock(self.now_ms);
        // The loop learns what time it is.
        self.hand.turn();
        *site::written() = site::Written::default();
        let other = Other::new();
        let disks = Disks::new(&self.directory, program.seed).map_err(|error| error.to_string())?;
        let site = Site::new(&disks, &self.identities, self.hand.home());
        let mut clients = Vec::new();
        for protocol in &program.clients {
            let (end, there) = memory_pair(self.hand.home());
            let slot = self.policy.take_slot().ok_or("a place is not given back")?;
            let peer = PeerAddr::V4(std::net::Ipv4Addr::LOCALHOST, 4711);
            let serve = serve_transport(Arc::clone(&site.listener), Transport::Memory(there), peer, slot);
            self.hand.home().spawn(Tag::NONE, serve);
            clients.push(Client::new(end, *protocol, self.now_ms));
        }
        let mut run = Run { world: self, clients, other, disks, site };
        for (number, action) in program.actions.iter().enumerate() {
            run.act(action).map_err(|why| format!("action {number}, {action:?}: {why}"))?;
        }
        let trace = run.settle().map_err(|why| format!("at the end: {why}"))?;
        let Run { clients, other, disks, site, .. } = run;
        drop((clients, other, site));
        self.drain(disks)?;
        match self.policy.connections() {
            0 => Ok(trace),
            count => Err(format!("{count} places of connections are not given back")),
        }
    }

    /// Has the loop do what is left when everybody has gone, so that the next run meets none of it.
    fn drain(&mut self, mut disks: Disks) -> Result<(), String> {
        for _ in 0..TURNS_MAX {
            match self.hand.turn() {
                _ if disks.go_on(self.now_ms) => {}
                Left::Work => {}
                Left::Until(None) => {
                    disks.end();
                    return Ok(());
                }
                Left::Until(Some(next_ms)) => self.set_clock(next_ms.max(self.now_ms + 1)),
            }
        }
        Err("timers stay when everybody has gone".to_owned())
    }

    fn set_clock(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        clock::set_ns(now_ms * NS_PER_MS);
    }
}

impl Run<'_> {
    fn act(&mut self, action: &Action) -> Result<(), String> {
        let now_ms = self.world.now_ms;
        let client = &mut self.clients[action.client];
        match &action.step {
            Step::Ask(request) => client.ask(request, now_ms),
            Step::Send(bytes) => client.send(*bytes, now_ms),
            Step::Receive(bytes) => client.receive(*bytes, now_ms)?,
            Step::Open(bytes) => client.open(*bytes),
            Step::Cancel(back) => client.cancel(*back),
            Step::Finish => client.finish(),
            Step::Leave => client.leave(),
            Step::Reset => client.reset(),
            Step::Narrow(bytes) => client.narrow(*bytes),
            Step::Disks(which, how) => self.disks.become_so(*which, *how, now_ms),
            Step::Others(how) => self.other.become_so(*how),
            Step::Wait(ms) => self.wait(now_ms + ms),
        }
        for _ in 0..action.turns {
            self.turn()?;
        }
        Ok(())
    }

    fn wait(&mut self, until_ms: u64) {
        let now_ms = self.world.now_ms;
        self.clients.iter_mut().for_each(|client| client.wait(now_ms, until_ms));
        self.world.set_clock(until_ms);
    }

    /// One turn of the loop, and what must be true then.
    fn turn(&mut self) -> Result<Left, String> {
        let left = self.world.hand.turn();
        self.other.go_on(self.world.now_ms)?;
        let left = if self.disks.go_on(self.world.now_ms) { Left::Work } else { left };
        let written = site::written();
        if let Some(alert) = written.alerts.first() {
            return Err(format!("the error log: {alert}"));
        }
        self.clients.iter().try_for_each(|client| client.check_held(&written))?;
        Ok(left)
    }

    /// Turns until nothing is left to do at this time.
    fn turn_until_quiet(&mut self) -> Result<Option<u64>, String> {
        let mut quiet = 0;
        for _ in 0..TURNS_MAX {
            let left = self.turn()?;
            let trace: Vec<String> = self.clients.iter().map(Client::trace).collect();
            for client in &mut self.clients {
                client.settle(self.world.now_ms)?;
            }
            let is_still = trace.iter().zip(&self.clients).all(|(before, client)| *before == client.trace());
            match left {
                Left::Until(timer) if is_still => {
                    quiet += 1;
                    // What one side has done the other sees in the next turn.
                    if quiet == 3 {
                        return Ok(timer.into_iter().chain(self.other.next_ms()).min());
                    }
                }
                _ => quiet = 0,
            }
        }
        Err("there is always something to do".to_owned())
    }

    /// Has all go on that was begun, and end.
    fn settle(&mut self) -> Result<String, String> {
        self.disks.become_so(None, How::Quick, self.world.now_ms);
        self.other.become_so(Others::Quick);
        let end_ms = self.world.now_ms + SETTLE_MAX_MS;
        loop {
            let next_ms = self.turn_until_quiet()?;
            let is_answered = self.clients.iter().try_for_each(Client::check_answered);
            match (is_answered, next_ms) {
                (Ok(()), _) => break,
                (Err(_), Some(next_ms)) if next_ms <= end_ms => {
                    self.wait(next_ms.max(self.world.now_ms + 1));
                }
                (Err(why), _) => return Err(why),
            }
        }
        self.clients.iter_mut().for_each(Client::finish);
        while self.world.policy.connections() > 0 {
            match self.turn_until_quiet()? {
                _ if self.world.policy.connections() == 0 => break,
                Some(next_ms) if next_ms <= end_ms => {
                    self.wait(next_ms.max(self.world.now_ms + 1));
                }
                _ => return Err(format!("{} connections stay", self.world.policy.connections())),
            }
        }
        if let Some(at) = self.clients.iter().position(|client| !client.is_over()) {
            return Err(format!("client {at} is not told that its connection has ended"));
        }
        self.await_idle(end_ms)?;
        self.age()?;
        let written = site::written();
        self.clients.iter().try_for_each(|client| client.check_lines(&written))?;
        let traces: Vec<String> = self.clients.iter().map(Client::trace).collect();
        let took_ms = self.world.now_ms % RUN_MS;
        Ok(format!("{took_ms} ms, {traces:?}, {:?}, {} others", written.lines, written.others))
    }

    /// Work that goes on without a client comes to an end: storing, and asking anew.
    fn await_idle(&mut self, end_ms: u64) -> Result<(), String> {
        loop {
            let next_ms = self.turn_until_quiet()?;
            match (self.site.check_idle().and_then(|()| self.disks.check_idle()), next_ms) {
                (Ok(()), _) => return Ok(()),
                (Err(_), Some(next_ms)) if next_ms <= end_ms => {
                    self.wait(next_ms.max(self.world.now_ms + 1));
                }
                (Err(why), _) => return Err(why),
            }
        }
    }

    /// Nothing is asked for any more: the cache becomes no larger than it may be, then it becomes empty.
    fn age(&mut self) -> Result<(), String> {
        self.pass(AGED_S, 1000)?;
        self.disks.check_size()?;
        self.pass(INACTIVE_S, 1000)?;
        if self.disks.check_empty().is_err() && Disks::have_failed() {
            self.pass(WALK_S / 10, 10_000)?;
            self.pass(INACTIVE_S + AGED_S, 1000)?;
        }
        self.disks.check_empty()
    }

    fn pass(&mut self, times: u64, ms: u64) -> Result<(), String> {
        for _ in 0..times {
            self.wait(self.world.now_ms + ms);
            self.turn_until_quiet()?;
        }
        Ok(())
    }
}
