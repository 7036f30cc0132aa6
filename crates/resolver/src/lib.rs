//! Names and services become addresses: `resolver`. Name servers are asked as nginx asks them (the rules
//! stand at the head of `table.rs`), by a task of the resolver's own; what it knows every loop reads without
//! asking that task.
#![forbid(unsafe_code)]

mod known;
mod server;
mod service;
mod table;
mod waiter;
mod wire;

#[cfg(fuzzing)]
pub mod fuzzing;
pub mod metrics;

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::Duration;

use clearway_base::log::Sink;
use clearway_runtime::{LoopRef, Tag};
use crossbeam_queue::SegQueue;

use crate::known::KnownNames;
use crate::server::Server;
use crate::service::Service;
use crate::table::{Rules, Table};
use crate::waiter::{Found, Question, Waiter, Waiting};
use crate::wire::{Ask, Name, Target};

pub use crate::waiter::{Answer, Failure};

/// Names that a resolver knows or asks for at most, where nobody says: clients can have it ask for many.
pub const NAMES_MAX_DEFAULT: usize = 65_536;

/// Which addresses are wanted (`ipv4=`, `ipv6=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Both.
    #[default]
    Both,
}

/// The parameters of `resolver`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name servers; one at least.
    pub servers: Vec<SocketAddr>,
    /// `valid=`: how long answers hold, instead of what they say themselves. Whole seconds.
    pub valid: Option<Duration>,
    /// Which addresses are asked for.
    pub families: Families,
    /// Names that are known or asked for at most.
    pub names_max: usize,
}

impl Config {
    /// A resolver with these servers, and nginx's defaults.
    #[must_use]
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self { servers, valid: None, families: Families::Both, names_max: NAMES_MAX_DEFAULT }
    }
}

/// A host that has a service, with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Servers with the least number come first; others are for when these fail.
    pub priority: u16,
    /// Its part of the requests, at least 1.
    pub weight: u16,
    /// The port of the server.
    pub port: u16,
    /// In lower case.
    pub name: Box<[u8]>,
    /// Its addresses, or why there are none.
    pub addresses: Result<Answer, Failure>,
}

/// The servers of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundService {
    /// By priority.
    pub hosts: Vec<Host>,
    /// As long as the loops' clock shows no later second, all of that holds.
    pub valid_until_s: u64,
}

/// The state that loops and the resolver's task share.
pub(crate) struct Shared {
    inbox: SegQueue<Arc<Waiter>>,
    known: Arc<KnownNames>,
    /// Wakes the task. An asker that filled the inbox looks for it behind a fence; the task looks into the
    /// inbox behind one when it has set it.
    task: OnceLock<Waker>,
    is_closed: AtomicBool,
}

/// Asks name servers. Dropping it ends its task; what waits then does so until its time is over.
pub struct Resolver {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

impl Resolver {
    /// Starts the resolver's task on a loop. Sockets are opened when somebody asks.
    ///
    /// # Panics
    /// Without servers.
    #[must_use]
    pub fn start(config: &Config, home: LoopRef, sink: Arc<dyn Sink>) -> Self {
        assert!(!config.servers.is_empty(), "a resolver has servers");
        let known = Arc::new(KnownNames::new());
        let shared = Arc::new(Shared {
            inbox: SegQueue::new(),
            known: Arc::clone(&known),
            task: OnceLock::new(),
            is_closed: AtomicBool::new(false),
        });
        let rules = Rules {
            asks: match config.families {
                Families::V4 => vec![Ask::V4],
                Families::V6 => vec![Ask::V6],
                Families::Both => vec![Ask::V4, Ask::V6],
            },
            valid_s: config.valid.map(|valid| valid.as_secs()),
            servers: config.servers.len(),
            names_max: config.names_max.max(1),
        };
        let servers = config.servers.iter().map(|&address| Server::new(address, home)).collect();
        let service = Service::new(Arc::clone(&shared), sink, Table::new(rules, known), servers, home);
        home.spawn(Tag::NONE, service);
        Self { shared }
    }

    /// The answer for a name at this moment, without a question to a server. An address is its own answer.
    #[must_use]
    pub fn find(&self, home: LoopRef, name: &[u8]) -> Option<Answer> {
        self.look_up(home, &normalized(name))
    }

    fn look_up(&self, home: LoopRef, name: &[u8]) -> Option<Answer> {
        let literal = std::str::from_utf8(name).ok().and_then(|text| IpAddr::from_str(text).ok());
        match literal {
            Some(address) => Some(Answer { addresses: [address].into(), valid_until_s: u64::MAX }),
            None => self.shared.known.find(name, home.now_ms() / 1000),
        }
    }

    /// The addresses of a name, for a task of the loop `home` that waits so long at most.
    ///
    /// # Errors
    /// When a name server says that there are none, or none says anything.
    pub fn resolve(
        &self,
        home: LoopRef,
        name: &[u8],
        timeout: Duration,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send + use<> {
        let name = normalized(name);
        let known = self.look_up(home, &name);
        let waiting = known.is_none().then(|| self.ask(home, Question::Addresses(name), timeout));
        async move {
            match (known, waiting) {
                (Some(answer), _) => Ok(answer),
                (None, Some(waiting)) => waiting.await.map(addresses),
                (None, None) => unreachable!("one of the two"),
            }
        }
    }

    /// The hosts of a service, by priority, each with its addresses: `http` of `example.com` is
    /// `_http._tcp.example.com`; a service with a dot in it is taken as it is.
    ///
    /// # Errors
    /// As [`Resolver::resolve`], of the service; each host has its own result.
    pub async fn resolve_service(
        &self,
        home: LoopRef,
        service: &[u8],
        name: &[u8],
        timeout: Duration,
    ) -> Result<FoundService, Failure> {
        let whole = match service.contains(&b'.') {
            true => [service, b".", name].concat(),
            false => [b"_", service, b"._tcp.", name].concat(),
        };
        let found = self.ask(home, Question::Service(normalized(&whole)), timeout).await?;
        let (targets, valid_until_s) = match found {
            Found::Targets { targets, valid_until_s } => (targets, valid_until_s),
            Found::Addresses(answer) => (Arc::default(), answer.valid_until_s),
        };
        let asked = targets.iter().map(|target| Box::pin(self.resolve(home, &target.name, timeout)));
        let answers = all(asked.collect()).await;
        let hosts: Vec<Host> =
            targets.iter().zip(answers).map(|(target, addresses)| host(target, addresses)).collect();
        let ends = hosts.iter().filter_map(|host| Some(host.addresses.as_ref().ok()?.valid_until_s));
        let valid_until_s = ends.fold(valid_until_s, u64::min);
        Ok(FoundService { hosts, valid_until_s })
    }

    fn ask(&self, home: LoopRef, question: Question, timeout: Duration) -> Waiting {
        let waiter = Waiter::new(question);
        self.shared.inbox.push(Arc::clone(&waiter));
        fence(Ordering::SeqCst);
        if let Some(task) = self.shared.task.get() {
            task.wake_by_ref();
        }
        Waiting::new(waiter, home, timeout.as_millis().try_into().unwrap_or(u64::MAX))
    }
}

impl Drop for Resolver {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(task) = self.shared.task.get() {
            task.wake_by_ref();
        }
    }
}

/// A name as it is compared: in lower case, without the dot at its end.
fn normalized(name: &[u8]) -> Name {
    name.strip_suffix(b".").unwrap_or(name).to_ascii_lowercase().into()
}

fn addresses(found: Found) -> Answer {
    match found {
        Found::Addresses(answer) => answer,
        Found::Targets { valid_until_s, .. } => Answer { addresses: [].into(), valid_until_s },
    }
}

fn host(target: &Target, addresses: Result<Answer, Failure>) -> Host {
    let Target { priority, weight, port, name } = target.clone();
    Host { priority, weight, port, name, addresses }
}

/// The results of all futures, in their order.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let open = futures.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none());
        open.for_each(|(future, result)| {
            if let Poll::Ready(output) = Pin::new(future).poll(cx) {
                *result = Some(output);
            }
        });
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}
