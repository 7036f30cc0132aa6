//! Accepting: the task that takes connections from one listening socket on one loop, and the policy
//! that the accept tasks of a loop share (`worker_connections`, what to do when accept4(2) fails).
//!
//! Runs on loops and never blocks them. The socket's readiness is edge-triggered, so that a task accepts
//! until nothing is left; after each batch it lets the other tasks of the loop run. When descriptors run
//! out all accept tasks of the loop rest for [`PAUSE_MS`]: clients wait in the kernel's queue meanwhile
//! and nothing spins. Each connection holds a [`ConnectionSlot`] until it ends.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use clearway_base::log::{Level, Record, Sink};
use rustix::io::Errno as Code;

use crate::PeerAddr;
use crate::bind::Errno;
use crate::listen::ListenAddr;
use crate::metrics;

/// How long a loop accepts nothing after descriptors or memory ran out, in milliseconds (nginx's
/// `accept_mutex_delay`).
pub const PAUSE_MS: u64 = 500;

/// Most connections that are accepted in a row with `multi_accept on` before other tasks run.
pub const BATCH_MAX: u32 = 64;

/// Takes one connection, nonblocking and close-on-exec.
///
/// # Errors
/// As accept4(2); WouldBlock when none waits.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, PeerAddr)> {
    let (fd, peer) = clearway_os::socket::accept(listener)?;
    Ok((fd, peer.into()))
}

/// A listening socket on a loop, and the clock of that loop.
pub trait Source {
    /// See [`accept`](accept()).
    ///
    /// # Errors
    /// As accept4(2).
    fn accept(&self) -> io::Result<(OwnedFd, PeerAddr)>;

    /// Ready when connections may wait. A hint; but after `accept` said WouldBlock it is pending until
    /// another connection arrives.
    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// The clock of the loop, in milliseconds.
    fn now_ms(&self) -> u64;

    /// Ready when that clock has reached `deadline_ms`. Asked for one deadline at a time.
    fn poll_deadline(&self, cx: &mut Context<'_>, deadline_ms: u64) -> Poll<()>;

    /// The identity thread of the loop, for log lines.
    fn identity(&self) -> u32;
}

/// What the accept tasks of one loop share.
#[derive(Debug)]
pub struct AcceptPolicy {
    /// `worker_connections`.
    connections_max: u32,
    connections: AtomicU32,
    /// On the clock of the loop; 0 when nothing is paused.
    paused_until_ms: AtomicU64,
}

impl AcceptPolicy {
    /// A loop without connections that may have `connections_max` of them.
    #[must_use]
    pub fn new(connections_max: u32) -> Arc<Self> {
        let (connections, paused_until_ms) = (AtomicU32::new(0), AtomicU64::new(0));
        Arc::new(Self { connections_max, connections, paused_until_ms })
    }

    /// Connections that hold a slot now.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Takes the slot of a connection; `None` when all `worker_connections` are in use. Connections to
    /// upstream servers take one as well.
    pub fn take_slot(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let more = |count| (count < self.connections_max).then_some(count + 1);
        self.connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(ConnectionSlot { policy: Arc::clone(self) })
    }
}

/// One of the `worker_connections` of a loop, free again when dropped (on whichever thread).
#[derive(Debug)]
pub struct ConnectionSlot {
    policy: Arc<AcceptPolicy>,
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let before = self.policy.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each slot is given back once");
    }
}

/// A connection as accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Nonblocking and close-on-exec.
    pub socket: OwnedFd,
    /// Who connected.
    pub peer: PeerAddr,
    /// To be kept as long as the connection.
    pub slot: ConnectionSlot,
}

/// `multi_accept`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultiAccept {
    /// Other tasks run after each connection.
    Off,
    /// Other tasks run after [`BATCH_MAX`] connections.
    On,
}

/// Accepts from one listening socket on one loop.
pub struct Acceptor<S> {
    /// The socket.
    pub source: S,
    /// Where it listens, for log lines.
    pub address: ListenAddr,
    /// Shared with the other acceptors of the loop.
    pub policy: Arc<AcceptPolicy>,
    /// The error log of the default server of that address.
    pub log: Arc<dyn Sink>,
    /// How many connections are taken in a row.
    pub multi_accept: MultiAccept,
}

/// What follows a failed accept4(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The one connection was lost; others may wait.
    Another,
    /// Nothing can be accepted for now.
    Pause,
}

impl<S: Source> Acceptor<S> {
    /// Gives every connection to `serve`, which must not block, until the future is dropped.
    pub async fn run(self, mut serve: impl FnMut(Accepted)) {
        let batch = match self.multi_accept {
            MultiAccept::Off => 1,
            MultiAccept::On => BATCH_MAX,
        };
        let mut in_batch = 0;
        loop {
            poll_fn(|cx| self.source.poll_acceptable(cx)).await;
            while self.accept_one(&mut serve).await {
                in_batch += 1;
                if in_batch >= batch {
                    in_batch = 0;
                    let_others_run().await;
                }
            }
        }
    }

    /// False when no connection waits.
    async fn accept_one(&self, serve: &mut impl FnMut(Accepted)) -> bool {
        self.rest().await;
        match self.source.accept() {
            Ok((socket, peer)) => {
                metrics::ACCEPTED.increment();
                match self.policy.take_slot() {
                    Some(slot) => serve(Accepted { socket, peer, slot }),
                    None => {
                        metrics::REFUSED.increment();
                        let limit = self.policy.connections_max;
                        self.log(
                            Level::Alert,
                            format_args!("{limit} worker_connections are not enough{}", While(&self.address)),
                        );
                    }
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                self.fail(&error);
                true
            }
        }
    }

    /// Waits while the accept tasks of this loop are paused, by whichever of them.
    async fn rest(&self) {
        loop {
            let deadline_ms = self.policy.paused_until_ms.load(Ordering::Relaxed);
            if deadline_ms <= self.source.now_ms() {
                return;
            }
            poll_fn(|cx| self.source.poll_deadline(cx, deadline_ms)).await;
        }
    }

    fn fail(&self, error: &io::Error) {
        let (level, next) = judge(error);
        self.log(level, format_args!("accept4() failed {}{}", Errno(error), While(&self.address)));
        if next == Next::Pause {
            metrics::ACCEPT_PAUSES.increment();
            let until = self.source.now_ms() + PAUSE_MS;
            self.policy.paused_until_ms.store(until, Ordering::Relaxed);
        }
    }

    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        if self.log.enabled(level) {
            self.log.write(&Record { level, tid: self.source.identity(), connection: None, message });
        }
    }
}

/// Errors of accept4(2) that concern one connection are nothing to stop for (see its manual page on
/// errors of the network); after all others trying again at once would only spin.
fn judge(error: &io::Error) -> (Level, Next) {
    let Some(code) = Code::from_io_error(error) else { return (Level::Alert, Next::Pause) };
    match code {
        Code::CONNABORTED => (Level::Error, Next::Another),
        Code::MFILE | Code::NFILE => (Level::Crit, Next::Pause),
        Code::INTR
        | Code::NETDOWN
        | Code::PROTO
        | Code::NOPROTOOPT
        | Code::HOSTDOWN
        | Code::NONET
        | Code::HOSTUNREACH
        | Code::OPNOTSUPP
        | Code::NETUNREACH
        | Code::PERM
        | Code::TIMEDOUT => (Level::Alert, Next::Another),
        _ => (Level::Alert, Next::Pause),
    }
}

/// What nginx says at the end of a line about accepting.
struct While<'a>(&'a ListenAddr);

impl fmt::Display for While<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " while accepting new connection on {}", self.0)
    }
}

/// Pending once, and ready to run again at once.
async fn let_others_run() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
