//! Accepting: the task that takes connections from one listening socket on one loop, and the policy
//! that the accept tasks of a loop share (`worker_connections`, what to do when accept4(2) fails).
//!
//! Runs on loops and never blocks them. The socket's readiness is level-triggered: a task accepts its
//! batch and is told in the next turn of the loop if more connections wait. When descriptors run out all
//! accept tasks of the loop rest for [`PAUSE_MS`] and have their sockets not watched: clients wait in the
//! kernel's queue meanwhile and nothing spins. Each connection holds a [`ConnectionSlot`] until it ends.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use rustix::io::Errno as Code;

use crate::PeerAddr;
use crate::metrics;

pub use crate::placement::{AcceptPolicy, BATCH_MAX, ConnectionSlot, MultiAccept};

/// How long a loop accepts nothing after descriptors or memory ran out, in milliseconds (nginx's
/// `accept_mutex_delay`).
pub const PAUSE_MS: u64 = 500;

/// When fewer than one in so many of the `worker_connections` are free, some that wait for a request are
/// closed.
pub const RESERVE_SHARE: u32 = 16;

/// How many of those that wait are closed at once: one in so many, but one at least.
pub const RECLAIM_SHARE: usize = 8;

/// How many at most.
pub const RECLAIM_MAX: usize = 32;

/// How long a connection waits for them to be closed, in milliseconds.
pub const RECLAIM_WAIT_MS: u64 = 100;

/// How long the handshakes that have begun have to be completed before a socket is let go of, in
/// milliseconds. Meanwhile nobody else can listen on its address.
pub const DRAIN_MS: u64 = 100;

/// Most connections that are taken from a socket before it is let go of; more than any backlog.
pub const DRAIN_CONNECTIONS_MAX: u32 = 65_536;

/// How often a socket that is to be let go of rests for [`PAUSE_MS`] before what is in its queue is given
/// up.
pub const DRAIN_RESTS_MAX: u32 = 20;

/// Takes one connection, nonblocking and close-on-exec.
///
/// # Errors
/// As accept4(2); WouldBlock when none waits.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, PeerAddr)> {
    let (fd, peer) = clearway_os::socket::accept(listener)?;
    Ok((fd, peer.into()))
}

/// A listening socket on a loop, and the clock of that loop.
pub trait ConnectionSource {
    /// See [`accept`](accept()).
    ///
    /// # Errors
    /// As accept4(2).
    fn accept(&self) -> io::Result<(OwnedFd, PeerAddr)>;

    /// Ready once for each turn of the loop in which connections wait. A hint: another loop may be
    /// faster.
    fn poll_acceptable(&self, cx: &mut Context<'_>) -> Poll<()>;

    /// Has the loop not watch the socket.
    fn pause(&self);

    /// Has the loop watch it again.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    fn resume(&self) -> io::Result<()>;

    /// Has some of the connections of loop number `at` closed that wait for a request, the longest first;
    /// how many. They are closed soon, but not yet.
    fn reclaim(&self, at: usize) -> usize;

    /// The work of loop number `at` before it gets to another connection.
    fn backlog(&self, at: usize) -> u32;

    /// Has other loops be told first of the next connections, where several share the socket and this one
    /// has nothing else to do. `false`: the loop does not watch the socket any more.
    fn let_others_first(&self) -> bool;

    /// Watches the sockets of other loops no more.
    fn leave_others(&mut self);

    /// Has the kernel begin no more handshakes, but complete those that have begun. `false`: there are none
    /// on such a socket, or it cannot.
    fn refuse_handshakes(&self) -> bool;

    /// The clock of the loop, in milliseconds.
    fn now_ms(&self) -> u64;

    /// Ready when that clock has reached `deadline_ms`. Asked for one deadline at a time.
    fn poll_deadline(&self, cx: &mut Context<'_>, deadline_ms: u64) -> Poll<()>;
}

/// A connection as accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Nonblocking and close-on-exec.
    pub socket: OwnedFd,
    /// The peer that connected.
    pub peer: PeerAddr,
    /// The place of the connection, to be kept as long as the connection.
    pub slot: ConnectionSlot,
}

/// Ends the accept tasks of one listening socket, those of all loops.
#[derive(Debug, Default)]
pub struct AcceptStop(AtomicU32);

const STOPPED: u32 = 1;
const REMOVED: u32 = 2;
const LEFT: u32 = 3;

impl AcceptStop {
    /// For tasks that go on.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Has each task take what waits in the kernel's queue and then let go of the socket, with which
    /// other processes may go on. They notice when they are woken: to be followed by
    /// `Runtime::wake_all`.
    pub fn stop(&self) {
        self.0.store(STOPPED, Ordering::Release);
    }

    /// The same for a socket with which nobody is to go on, such as that of a listener that a reload has
    /// removed: no connection is lost between the last accept4(2) and the close(2), nor in the middle of a
    /// handshake, for which the tasks wait up to [`DRAIN_MS`]. Not to be called while another process serves
    /// the socket as well, which would get no more connections.
    pub fn remove(&self) {
        self.0.store(REMOVED, Ordering::Release);
    }

    /// The same for the sockets of an address whose other sockets go on: new connections are steered to
    /// those, and the tasks wait up to [`DRAIN_MS`] for handshakes that have begun here.
    pub fn leave(&self) {
        self.0.store(LEFT, Ordering::Release);
    }

    /// Whether no task is left: all of them have let go of the socket.
    #[must_use]
    pub fn is_over(self: &Arc<Self>) -> bool {
        Arc::strong_count(self) == 1
    }

    fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    fn is_removed(&self) -> bool {
        self.0.load(Ordering::Acquire) == REMOVED
    }

    /// Whether handshakes may have begun that nobody else completes.
    fn waits(&self) -> bool {
        self.0.load(Ordering::Acquire) != STOPPED
    }
}

/// Accepts from one listening socket on one loop.
pub struct Acceptor<S> {
    /// The socket.
    pub source: S,
    /// Shared with the other acceptors of the loop.
    pub policy: &'static AcceptPolicy,
    /// The error log of the default server of that address; it knows the identity of the loop.
    pub log: Arc<dyn Sink>,
    /// Shared with the acceptors of the same socket on other loops.
    pub stop: Arc<AcceptStop>,
}

/// The step after an accept4(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// More connections may wait, also if this one was lost.
    Another,
    /// None waits.
    Wait,
    /// No connection can be accepted for now.
    Rest,
}

impl<S: ConnectionSource> Acceptor<S> {
    /// Gives every connection to `serve`, which must not block, until it is stopped; then the socket
    /// is let go of. As in nginx it counts as one of the `worker_connections`.
    pub async fn run(mut self, mut serve: impl FnMut(Accepted)) {
        let _listening = self.policy.take_slot();
        while poll_fn(|cx| self.poll_going_on(cx)).await {
            self.rest().await;
            for _ in 0..self.policy.batch() {
                if self.accept_one(&mut serve).await != Next::Another {
                    break;
                }
            }
            if !self.source.let_others_first() {
                self.rest().await;
            }
        }
        self.drain(&mut serve).await;
    }

    /// Ready with `true` when connections wait, with `false` when there will be no more.
    fn poll_going_on(&self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.stop.is_stopped() {
            return Poll::Ready(false);
        }
        match self.source.poll_acceptable(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            // The stopper wakes the tasks that registered before; a task that registers later sees it here.
            Poll::Pending if self.stop.is_stopped() => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Takes the connections that the kernel has accepted already, and where the socket is removed those
    /// whose handshake has begun.
    async fn drain(&mut self, serve: &mut impl FnMut(Accepted)) {
        self.source.leave_others();
        let waits = self.stop.waits();
        if self.stop.is_removed() {
            // If that is not allowed, the owner of the sockets has done it.
            self.source.refuse_handshakes();
        }
        let end_ms = self.source.now_ms() + if waits { DRAIN_MS } else { 0 };
        let mut rests = 0;
        for taken in 1..=DRAIN_CONNECTIONS_MAX {
            let in_time = self.source.now_ms() < end_ms;
            match self.accept_one(serve).await {
                Next::Another if taken % BATCH_MAX == 0 => clearway_runtime::yield_now().await,
                Next::Another => {}
                Next::Wait if in_time => poll_fn(|cx| self.poll_acceptable_until(cx, end_ms)).await,
                Next::Wait => return,
                Next::Rest if rests == DRAIN_RESTS_MAX => return,
                Next::Rest => {
                    rests += 1;
                    self.rest().await;
                }
            }
        }
    }

    fn poll_acceptable_until(&self, cx: &mut Context<'_>, end_ms: u64) -> Poll<()> {
        match self.source.poll_acceptable(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => self.source.poll_deadline(cx, end_ms),
        }
    }

    async fn accept_one(&self, serve: &mut impl FnMut(Accepted)) -> Next {
        let (socket, peer) = match self.source.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Wait,
            Err(error) => return self.fail(&error),
        };
        metrics::ACCEPTED.increment();
        let policy = self.policy.least_loaded(|at| self.source.backlog(at));
        let (free, limit) = policy.room();
        if free <= limit / RESERVE_SHARE {
            self.make_room(policy).await;
        }
        match policy.take_slot() {
            Some(slot) => serve(Accepted { socket, peer, slot }),
            None => {
                metrics::REFUSED.increment();
                self.log(Level::Alert, format_args!("{limit} worker_connections are not enough"));
            }
        }
        Next::Another
    }

    /// Closes some connections that wait for a request, and waits for that if there is no room at all.
    async fn make_room(&self, policy: &AcceptPolicy) {
        let reclaimed = self.source.reclaim(policy.index());
        if reclaimed == 0 {
            return;
        }
        metrics::RECLAIMED.add(reclaimed as u64);
        let now_ms = self.source.now_ms();
        policy.say_reclaimed(now_ms, &*self.log);
        let mut turns = 0..;
        while policy.room().0 == 0 && self.source.now_ms() < now_ms + RECLAIM_WAIT_MS {
            // As a rule they are closed in this turn of the loop or the next.
            if turns.next() < Some(4) {
                clearway_runtime::yield_now().await;
            } else {
                let soon_ms = self.source.now_ms() + 1;
                poll_fn(|cx| self.source.poll_deadline(cx, soon_ms)).await;
            }
        }
    }

    /// Waits while the accept tasks of this loop are paused, by whichever of them.
    async fn rest(&self) {
        loop {
            let deadline_ms = self.policy.paused_until_ms.load(Ordering::Relaxed);
            if deadline_ms <= self.source.now_ms() {
                break;
            }
            self.source.pause();
            poll_fn(|cx| self.source.poll_deadline(cx, deadline_ms)).await;
        }
        while let Err(error) = self.source.resume() {
            self.log(Level::Alert, format_args!("epoll_ctl() failed {}", Errno(&error)));
            let deadline_ms = self.source.now_ms() + PAUSE_MS;
            poll_fn(|cx| self.source.poll_deadline(cx, deadline_ms)).await;
        }
    }

    fn fail(&self, error: &io::Error) -> Next {
        let (level, next) = judge(error);
        self.log(level, format_args!("accept4() failed {}", Errno(error)));
        if next == Next::Rest {
            metrics::ACCEPT_PAUSES.increment();
            let until = self.source.now_ms() + PAUSE_MS;
            self.policy.paused_until_ms.store(until, Ordering::Relaxed);
        }
        next
    }

    fn log(&self, level: Level, message: fmt::Arguments<'_>) {
        self.log.log(level, message);
    }
}

/// Errors of accept4(2) that concern one connection are nothing to stop for (see its manual page on
/// errors of the network); after all others trying again at once would only spin.
fn judge(error: &io::Error) -> (Level, Next) {
    let Some(code) = Code::from_io_error(error) else { return (Level::Alert, Next::Rest) };
    match code {
        Code::CONNABORTED => (Level::Error, Next::Another),
        Code::MFILE | Code::NFILE => (Level::Crit, Next::Rest),
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
        _ => (Level::Alert, Next::Rest),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::Future;
    use std::net::Ipv4Addr;
    use std::pin::{Pin, pin};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::task::Waker;

    use clearway_base::log::Record;

    use super::*;

    /// A script of results; a connection's number is its port.
    #[derive(Default)]
    struct Script {
        results: Mutex<VecDeque<Result<u16, Code>>>,
        now_ms: AtomicU64,
        accepts: AtomicU32,
        told: AtomicBool,
        paused: AtomicBool,
        /// Connections that wait for a request.
        waiting: AtomicU32,
        has_handshakes: AtomicBool,
        refused: AtomicBool,
    }

    impl ConnectionSource for &Script {
        fn pause(&self) {
            self.paused.store(true, Ordering::Relaxed);
        }

        fn resume(&self) -> io::Result<()> {
            self.paused.store(false, Ordering::Relaxed);
            Ok(())
        }

        fn accept(&self) -> io::Result<(OwnedFd, PeerAddr)> {
            self.accepts.fetch_add(1, Ordering::Relaxed);
            let (fd, _) = std::os::unix::net::UnixStream::pair().unwrap();
            match self.results.lock().unwrap().pop_front() {
                Some(Ok(port)) => Ok((fd.into(), PeerAddr::V4(Ipv4Addr::LOCALHOST, port))),
                Some(Err(code)) => Err(code.into()),
                None => Err(Code::AGAIN.into()),
            }
        }

        fn backlog(&self, _: usize) -> u32 {
            0
        }

        fn let_others_first(&self) -> bool {
            true
        }

        fn leave_others(&mut self) {}

        fn reclaim(&self, _: usize) -> usize {
            self.waiting.swap(0, Ordering::Relaxed) as usize
        }

        fn refuse_handshakes(&self) -> bool {
            self.refused.store(true, Ordering::Relaxed);
            self.has_handshakes.load(Ordering::Relaxed)
        }

        fn poll_acceptable(&self, _: &mut Context<'_>) -> Poll<()> {
            // Once for each poll of the task, which stands for a turn of its loop.
            let wait = self.results.lock().unwrap().is_empty() || self.told.load(Ordering::Relaxed);
            self.told.store(!wait, Ordering::Relaxed);
            if wait { Poll::Pending } else { Poll::Ready(()) }
        }

        fn now_ms(&self) -> u64 {
            self.now_ms.load(Ordering::Relaxed)
        }

        fn poll_deadline(&self, _: &mut Context<'_>, deadline_ms: u64) -> Poll<()> {
            if self.now_ms() >= deadline_ms { Poll::Ready(()) } else { Poll::Pending }
        }
    }

    #[derive(Default)]
    struct Lines(Mutex<Vec<String>>);

    impl Sink for Lines {
        fn enabled(&self, _: Level) -> bool {
            true
        }

        fn write(&self, record: &Record<'_>) {
            self.0.lock().unwrap().push(format!("[{}] {}", record.level.as_str(), record.message));
        }
    }

    impl Script {
        fn arrive(&self, results: impl IntoIterator<Item = Result<u16, Code>>) {
            self.results.lock().unwrap().extend(results);
        }
    }

    fn acceptor<'a>(
        script: &'a Script,
        policy: &'static AcceptPolicy,
        log: &Arc<Lines>,
        stop: &Arc<AcceptStop>,
    ) -> Acceptor<&'a Script> {
        Acceptor { source: script, policy, log: log.clone(), stop: Arc::clone(stop) }
    }

    fn poll(task: Pin<&mut impl Future<Output = ()>>) {
        assert!(task.poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }

    #[test]
    fn all_that_wait_are_taken_in_batches() {
        for (multi_accept, batch) in [(MultiAccept::Off, 1), (MultiAccept::On, BATCH_MAX as usize)] {
            let (script, policy, log) =
                (Script::default(), AcceptPolicy::new(1000, multi_accept), Arc::default());
            let taken = Mutex::new(Vec::new());
            let serve = |accepted: Accepted| taken.lock().unwrap().push(accepted.peer.port().unwrap());
            let mut task = pin!(acceptor(&script, policy, &log, &AcceptStop::new()).run(serve));
            poll(task.as_mut());
            assert_eq!(script.accepts.load(Ordering::Relaxed), 0, "nothing is tried before it is ready");
            script.arrive((1..=100).map(Ok));
            let mut polls = 0;
            while taken.lock().unwrap().len() < 100 {
                let before = taken.lock().unwrap().len();
                poll(task.as_mut());
                polls += 1;
                assert!(taken.lock().unwrap().len() - before <= batch);
            }
            assert_eq!(polls, 100_usize.div_ceil(batch));
            assert_eq!(*taken.lock().unwrap(), (1..=100).collect::<Vec<u16>>());
            assert_eq!(policy.connections(), 1, "a dropped connection gives its slot back");
        }
    }

    #[test]
    fn connections_beyond_the_limit_are_closed_and_told() {
        let (script, policy, log) =
            (Script::default(), AcceptPolicy::new(3, MultiAccept::On), Arc::new(Lines::default()));
        let taken = Mutex::new(Vec::new());
        let serve = |accepted: Accepted| taken.lock().unwrap().push(accepted);
        let mut task = pin!(acceptor(&script, policy, &log, &AcceptStop::new()).run(serve));
        script.arrive((1..=3).map(Ok));
        poll(task.as_mut());
        let refused = "[alert] 3 worker_connections are not enough";
        assert_eq!(*log.0.lock().unwrap(), [refused]);
        assert_eq!((taken.lock().unwrap().len(), policy.connections()), (2, 3));
        taken.lock().unwrap().pop();
        assert_eq!(policy.connections(), 2);
        script.arrive([Ok(4)]);
        poll(task.as_mut());
        assert_eq!(taken.lock().unwrap()[1].peer.port(), Some(4));
        assert!(policy.take_slot().is_none());
    }

    #[test]
    fn connections_that_wait_make_room_for_others() {
        let (policy, log) = (AcceptPolicy::new(33, MultiAccept::On), Arc::new(Lines::default()));
        let script = Script::default();
        let taken = Mutex::new(VecDeque::new());
        let serve = |accepted: Accepted| taken.lock().unwrap().push_back(accepted);
        let mut task = pin!(acceptor(&script, policy, &log, &AcceptStop::new()).run(serve));
        let mut turns = |count| (0..count).for_each(|_| poll(task.as_mut()));
        let lines = || log.0.lock().unwrap().clone();
        let (reusing, full) = (
            "[warn] 33 worker_connections are not enough, reusing connections",
            "[alert] 33 worker_connections are not enough",
        );
        script.now_ms.store(5000, Ordering::Relaxed);
        script.arrive((1..=30).map(Ok));
        turns(1);
        assert_eq!((taken.lock().unwrap().len(), lines().len()), (30, 0));
        // Two are free: a sixteenth. None has to be closed before the next one is served.
        script.waiting.store(3, Ordering::Relaxed);
        script.arrive([Ok(31)]);
        turns(1);
        assert_eq!((taken.lock().unwrap().len(), lines()), (31, vec![reusing.to_owned()]));
        // None is free: a new connection waits until one is closed.
        script.arrive([Ok(32)]);
        turns(1);
        script.waiting.store(1, Ordering::Relaxed);
        script.arrive([Ok(33)]);
        turns(3);
        assert_eq!((taken.lock().unwrap().len(), policy.connections()), (32, 33));
        drop(taken.lock().unwrap().pop_front());
        turns(1);
        assert_eq!(taken.lock().unwrap().back().unwrap().peer.port(), Some(33));
        assert_eq!(lines().len(), 1, "it is said once a second");
        // None can be closed, or none is.
        script.now_ms.store(6000, Ordering::Relaxed);
        for (waiting, wanted) in [(0, vec![reusing, full]), (1, vec![reusing, full, reusing, full])] {
            script.waiting.store(waiting, Ordering::Relaxed);
            script.arrive([Ok(34)]);
            turns(8);
            script.now_ms.fetch_add(RECLAIM_WAIT_MS, Ordering::Relaxed);
            turns(2);
            assert_eq!(lines(), wanted);
        }
    }

    #[test]
    fn without_descriptors_the_whole_loop_rests() {
        let (script, other) = (Script::default(), Script::default());
        let (policy, log) = (AcceptPolicy::new(1000, MultiAccept::On), Arc::new(Lines::default()));
        let taken = Mutex::new(0);
        let serve = |_: Accepted| *taken.lock().unwrap() += 1;
        let mut task = pin!(acceptor(&script, policy, &log, &AcceptStop::new()).run(serve));
        let mut second = pin!(acceptor(&other, policy, &log, &AcceptStop::new()).run(serve));
        script.arrive([Ok(1), Err(Code::MFILE), Err(Code::NFILE), Ok(2)]);
        other.arrive([Ok(3)]);
        let tries = || script.accepts.load(Ordering::Relaxed) + other.accepts.load(Ordering::Relaxed);
        // At a time of the loop: calls of accept4, connections taken, whether the socket is unwatched
        // (from the first event on that comes during the rest).
        for (now_ms, tried, seen, unwatched) in [
            (0, 2, 1, false),
            (0, 2, 1, true),
            (499, 2, 1, true),
            (500, 3, 1, false),
            (999, 3, 1, true),
            (1000, 7, 3, false),
        ] {
            script.now_ms.store(now_ms, Ordering::Relaxed);
            other.now_ms.store(now_ms, Ordering::Relaxed);
            poll(task.as_mut());
            poll(second.as_mut());
            assert_eq!((tries(), *taken.lock().unwrap()), (tried, seen), "at {now_ms} ms");
            let paused = script.paused.load(Ordering::Relaxed);
            assert_eq!(paused, unwatched, "at {now_ms} ms");
        }
        assert_eq!(
            *log.0.lock().unwrap(),
            [
                "[crit] accept4() failed (24: Too many open files)",
                "[crit] accept4() failed (23: Too many open files in system)",
            ]
        );
    }

    #[test]
    fn a_stopped_task_takes_what_waits_and_lets_go() {
        let (script, policy, log) =
            (Script::default(), AcceptPolicy::new(1000, MultiAccept::Off), Arc::default());
        let (taken, stop) = (Mutex::new(Vec::new()), AcceptStop::new());
        let serve = |accepted: Accepted| taken.lock().unwrap().push(accepted);
        let mut task = pin!(acceptor(&script, policy, &log, &stop).run(serve));
        poll(task.as_mut());
        stop.stop();
        script.arrive((0..2 * BATCH_MAX as u16 + 1).map(Ok));
        let mut cx = Context::from_waker(Waker::noop());
        let mut polls = 1;
        while task.as_mut().poll(&mut cx).is_pending() {
            polls += 1;
            assert!(taken.lock().unwrap().len() <= polls * BATCH_MAX as usize, "others run in between");
        }
        assert_eq!(polls, 3);
        let ports: Vec<_> =
            taken.lock().unwrap().iter().map(|accepted| accepted.peer.port().unwrap()).collect();
        assert_eq!(ports, (0..2 * BATCH_MAX as u16 + 1).collect::<Vec<_>>());
        assert_eq!(policy.connections(), 2 * BATCH_MAX + 1, "the socket's own place is free again");
    }

    #[test]
    fn a_stopped_task_waits_for_handshakes_that_have_begun() {
        let policy = AcceptPolicy::new(1000, MultiAccept::On);
        let (script, log) = (Script::default(), Arc::default());
        script.has_handshakes.store(true, Ordering::Relaxed);
        let (taken, stop) = (Mutex::new(0), AcceptStop::new());
        let serve = |_: Accepted| *taken.lock().unwrap() += 1;
        let mut task = Box::pin(acceptor(&script, policy, &log, &stop).run(serve));
        poll(task.as_mut());
        assert!(!script.refused.load(Ordering::Relaxed));
        stop.remove();
        let mut cx = Context::from_waker(Waker::noop());
        for (now_ms, seen) in [(0, 1), (DRAIN_MS - 1, 2), (DRAIN_MS - 1, 3)] {
            script.now_ms.store(now_ms, Ordering::Relaxed);
            script.arrive([Ok(1)]);
            poll(task.as_mut());
            poll(task.as_mut());
            assert!(script.refused.load(Ordering::Relaxed));
            assert_eq!(*taken.lock().unwrap(), seen);
        }
        script.now_ms.store(DRAIN_MS, Ordering::Relaxed);
        script.arrive([Ok(1)]);
        assert!(!stop.is_over());
        assert!(task.as_mut().poll(&mut cx).is_ready());
        drop(task);
        assert!(stop.is_over());
        assert_eq!(*taken.lock().unwrap(), 4);
    }

    #[test]
    fn a_stopped_task_waits_for_descriptors_but_not_for_ever() {
        let (script, policy, log) =
            (Script::default(), AcceptPolicy::new(1000, MultiAccept::On), Arc::default());
        let (taken, stop) = (Mutex::new(0), AcceptStop::new());
        let serve = |_: Accepted| *taken.lock().unwrap() += 1;
        let mut task = pin!(acceptor(&script, policy, &log, &stop).run(serve));
        stop.stop();
        script.arrive([Ok(1), Err(Code::MFILE), Ok(2)]);
        script.arrive((0..DRAIN_RESTS_MAX).map(|_| Err(Code::MFILE)));
        script.arrive([Ok(3)]);
        let mut cx = Context::from_waker(Waker::noop());
        for rest in 0..DRAIN_RESTS_MAX {
            assert!(task.as_mut().poll(&mut cx).is_pending(), "rest {rest}");
            script.now_ms.fetch_add(PAUSE_MS, Ordering::Relaxed);
        }
        assert!(task.as_mut().poll(&mut cx).is_ready());
        assert_eq!(*taken.lock().unwrap(), 2);
    }

    #[test]
    fn a_lost_connection_is_told_and_stops_nobody() {
        let (script, policy, log) =
            (Script::default(), AcceptPolicy::new(1000, MultiAccept::On), Arc::new(Lines::default()));
        let taken = Mutex::new(0);
        let serve = |_: Accepted| *taken.lock().unwrap() += 1;
        let mut task = pin!(acceptor(&script, policy, &log, &AcceptStop::new()).run(serve));
        script.arrive([Err(Code::CONNABORTED), Ok(1), Err(Code::PROTO), Ok(2), Err(Code::NOMEM), Ok(3)]);
        poll(task.as_mut());
        assert_eq!(*taken.lock().unwrap(), 2, "the third waits for the end of the pause");
        assert_eq!(
            *log.0.lock().unwrap(),
            [
                "[error] accept4() failed (103: Software caused connection abort)",
                "[alert] accept4() failed (71: Protocol error)",
                "[alert] accept4() failed (12: Cannot allocate memory)",
            ]
        );
    }
}
