//! The listening sockets that the master holds: opened with its rights, kept over reloads, handed to
//! workers, inherited from and left to other binaries. The master's thread only.
//!
//! Invariant: a set of sockets that a configuration asked for and that was not taken into use leaves
//! everything as it was: new sockets are closed, files of unix sockets removed.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_net::accept::DRAIN_MS;
use clearway_net::bind::{self, Request, Sockets};
use clearway_net::listen::ListenAddr;
use clearway_net::reuse;
use clearway_net::tune::tune;
use clearway_os::accept_queue;

use crate::control::{HandedSocket, SocketKind};
use crate::start::Failed;

/// The sockets of one address.
#[derive(Clone, Debug)]
struct Entry {
    request: Request,
    serial: u64,
    kind: SocketKind,
    fds: Vec<Arc<OwnedFd>>,
}

/// All listening sockets, in the order of the snapshot's sockets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Listening {
    entries: Vec<Entry>,
    next_serial: u64,
    /// When the addresses are free that were let go of before.
    settled_at: Option<Instant>,
}

/// For how long workers hold on to sockets that are removed, and a little more.
const SETTLE: Duration = Duration::from_millis(DRAIN_MS + 50);

impl Listening {
    /// Sockets that another binary has opened.
    pub(crate) fn inherited(sockets: Vec<(ListenAddr, OwnedFd)>) -> Self {
        let mut all = Self::default();
        for (address, fd) in sockets {
            let fd = Arc::new(fd);
            if let Some(entry) = all.entries.iter_mut().find(|entry| entry.request.address == address) {
                entry.kind = SocketKind::PerLoop;
                entry.fds.push(fd);
                continue;
            }
            let options = bind::Options { transport: reuse::transport_of(&fd), ..Default::default() };
            let request = Request { address, options };
            let serial = all.serial();
            all.entries.push(Entry { request, serial, kind: SocketKind::Shared, fds: vec![fd] });
        }
        all
    }

    /// The sockets for these requests: those of `self` where there are any, others newly bound.
    ///
    /// # Errors
    /// When one of them cannot be had, which has been logged.
    pub(crate) fn open(&self, requests: &[Request], loops: usize, log: &dyn Sink) -> Result<Self, Failed> {
        let missing: Vec<Request> =
            requests.iter().filter(|request| self.find(&request.address).is_none()).cloned().collect();
        #[expect(clippy::disallowed_methods, reason = "the master's thread, which runs no loop")]
        let mut pause: fn(Duration) = std::thread::sleep;
        let bound = bind::bind_all(&missing, loops, log, &mut pause).map_err(|_| Failed)?;
        let mut bound = bound.into_iter();
        self.settle(requests, loops);
        let mut all = Self { entries: Vec::new(), next_serial: self.next_serial, settled_at: None };
        for request in requests {
            let entry = match self.find(&request.address) {
                Some(old) => all.adapt(old, request, loops, log),
                None => {
                    let (kind, fds) = match bound.next().expect("one for each that was missing") {
                        Sockets::Shared(fd) => (SocketKind::Shared, vec![fd]),
                        Sockets::PerLoop(fds) => (SocketKind::PerLoop, fds),
                    };
                    let fds = fds.into_iter().map(Arc::new).collect();
                    Ok(Entry { request: request.clone(), serial: all.serial(), kind, fds })
                }
            };
            match entry {
                Ok(entry) => all.entries.push(entry),
                Err(failed) => {
                    self.give_up(&missing, log);
                    return Err(failed);
                }
            }
        }
        debug_assert!(bound.next().is_none(), "all that was bound is asked for");
        debug_assert_eq!(all.entries.len(), requests.len(), "each request has its sockets");
        debug_assert!(all.entries.iter().all(|entry| !entry.fds.is_empty()), "an address has a socket");
        Ok(all)
    }

    /// How many addresses are listened on.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Removes what [`Listening::open`] made for `unused`, which is not taken into use.
    pub(crate) fn forget(&self, unused: &Self, log: &dyn Sink) {
        let new: Vec<Request> = unused.without(self).map(|entry| entry.request.clone()).collect();
        self.give_up(&new, log);
    }

    fn give_up(&self, new: &[Request], log: &dyn Sink) {
        new.iter().for_each(|request| bind::close_unix(&request.address, log));
    }

    /// Removes the files of unix sockets that `next` has no more.
    pub(crate) fn unlink_dropped(&self, next: &Self, log: &dyn Sink) {
        self.without(next).for_each(|entry| bind::close_unix(&entry.request.address, log));
    }

    /// Has the kernel begin no more connections to sockets that `next` does not have: those of addresses
    /// that are gone, and those in excess where fewer loops share an address, or all of them one socket.
    /// Those that are new get their share from now on.
    pub(crate) fn refuse_removed_in(&self, next: &Self) {
        for fd in self.without(next).flat_map(|entry| &entry.fds) {
            // If that cannot be done, a connection may be lost at the moment of the last close(2).
            drop(clearway_os::filter::refuse_handshakes(fd));
        }
        for (old, new) in self.with(next) {
            let (before, after) = (old.fds.len(), new.fds.len());
            if after > before {
                accept_queue::steer_to_all(&new.fds[0]);
            } else if after < before && steer(&new.fds[0], after).is_err() {
                // A client that begins to connect there tries again, and meets a socket that stays.
                old.fds[after..].iter().for_each(|fd| drop(clearway_os::filter::refuse_handshakes(fd)));
            }
        }
    }

    /// The serial numbers of sockets whose address `next` does not have. Where the address stays, so does
    /// a socket.
    pub(crate) fn removed_in(&self, next: &Self) -> Vec<u64> {
        self.without(next).map(|entry| entry.serial).collect()
    }

    /// Waits until addresses that were let go of are free, if one of them is wanted again: workers take a
    /// moment to let those clients in that have begun to connect.
    fn settle(&self, requests: &[Request], loops: usize) {
        let Some(left) = self.settled_at.map(|at| at.saturating_duration_since(Instant::now())) else {
            return;
        };
        // New sockets of an address count from behind those that are left over.
        let wants = |request: &Request| {
            self.find(&request.address).is_none_or(|entry| is_per_loop(request) && entry.fds.len() < loops)
        };
        if requests.iter().any(wants) {
            #[expect(clippy::disallowed_methods, reason = "the master's thread, which runs no loop")]
            std::thread::sleep(left);
        }
    }

    /// Notes that `next` takes the place of this.
    pub(crate) fn give_way(&self, next: &mut Self) {
        let is_smaller = |(old, new): (&Entry, &Entry)| new.fds.len() < old.fds.len();
        if self.without(next).next().is_some() || self.with(next).any(is_smaller) {
            next.settled_at = Some(Instant::now() + SETTLE);
        }
    }

    /// Removes the files of all unix sockets, at the end.
    pub(crate) fn unlink_all(&self, log: &dyn Sink) {
        self.addresses().iter().for_each(|address| bind::close_unix(address, log));
    }

    /// The addresses that are listened on.
    pub(crate) fn addresses(&self) -> Vec<ListenAddr> {
        self.entries.iter().map(|entry| entry.request.address.clone()).collect()
    }

    /// Duplicates for a worker that has these of the loops.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(crate) fn hand(&self, loops: Range<usize>) -> io::Result<Vec<HandedSocket>> {
        let hand = |entry: &Entry| {
            let fds = match entry.kind {
                SocketKind::Shared => &entry.fds[..],
                SocketKind::PerLoop => &entry.fds[loops.clone()],
            };
            let fds = fds.iter().map(|fd| fd.as_fd().try_clone_to_owned()).collect::<Result<_, _>>()?;
            Ok(HandedSocket {
                address: entry.request.address.to_string(),
                serial: entry.serial,
                kind: entry.kind,
                fds,
            })
        };
        self.entries.iter().map(hand).collect()
    }

    /// All descriptors.
    pub(crate) fn fds(&self) -> impl Iterator<Item = &OwnedFd> {
        self.entries.iter().flat_map(|entry| entry.fds.iter().map(|fd| &**fd))
    }

    /// The value in the environment of a new binary: `6;7;`.
    pub(crate) fn numbers(&self) -> String {
        self.fds().map(|fd| format!("{};", fd.as_raw_fd())).collect()
    }

    fn find(&self, address: &ListenAddr) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.request.address == *address)
    }

    /// Entries whose address `other` has too, with those.
    fn with<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (&'a Entry, &'a Entry)> {
        self.entries.iter().filter_map(|entry| Some((entry, other.find(&entry.request.address)?)))
    }

    fn without<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Entry> {
        self.entries.iter().filter(|entry| other.find(&entry.request.address).is_none())
    }

    fn serial(&mut self) -> u64 {
        self.next_serial += 1;
        debug_assert!(
            self.entries.iter().all(|entry| entry.serial != self.next_serial),
            "a number stands for the same sockets"
        );
        self.next_serial
    }

    /// The sockets of an address that is listened on already, with other options perhaps. What the
    /// kernel fixes when a socket is bound (`ipv6only`) stays, as in nginx.
    fn adapt(
        &mut self,
        old: &Entry,
        request: &Request,
        loops: usize,
        log: &dyn Sink,
    ) -> Result<Entry, Failed> {
        let per_loop = is_per_loop(request);
        let wanted = if per_loop { loops } else { 1 };
        let mut fds = old.fds.clone();
        let is_replaced = request.options.transport != old.request.options.transport;
        if is_replaced || per_loop && old.kind == SocketKind::Shared {
            fds.iter().for_each(|fd| reuse::share_port(fd, &request.address, log));
        }
        // What a socket runs over is fixed: others take its place.
        fds.truncate(if is_replaced { 0 } else { wanted });
        let kept = fds.len();
        debug_assert!(kept <= wanted, "no more sockets are kept than are wanted");
        let reuseport = request.options.reuseport || is_replaced;
        while fds.len() < wanted {
            let options = bind::Options { reuseport, ..request.options };
            let bound = bind::bind(&request.address, &options, log);
            fds.push(Arc::new(bound.map_err(|error| {
                log.log(Level::Emerg, format_args!("{error}"));
                Failed
            })?));
            // No client may wait there: it would be lost if this configuration were not taken into use.
            drop(steer(&fds[0], old.fds.len()));
        }
        configure(&fds[..kept], request, &old.request.options, log);
        let kind = if per_loop { SocketKind::PerLoop } else { SocketKind::Shared };
        let same = kind == old.kind && fds.len() == old.fds.len() && !is_replaced;
        let serial = if same { old.serial } else { self.serial() };
        debug_assert_eq!(fds.len(), wanted, "an address has as many sockets as are wanted");
        debug_assert!(same || serial > old.serial, "other sockets have another number");
        Ok(Entry { request: request.clone(), serial, kind, fds })
    }
}

/// Whether each loop gets a socket of its own.
fn is_per_loop(request: &Request) -> bool {
    request.options.reuseport && matches!(request.address, ListenAddr::Inet(_))
}

/// Has new connections to the address of a socket go to the first `count` of its sockets.
fn steer(fd: &OwnedFd, count: usize) -> io::Result<()> {
    accept_queue::steer_to_first(fd, u32::try_from(count).unwrap_or(u32::MAX))
}

/// Changes about sockets that are listened on already what can be changed.
fn configure(fds: &[Arc<OwnedFd>], request: &Request, before: &bind::Options, log: &dyn Sink) {
    let (address, options) = (&request.address, &request.options);
    for fd in fds {
        tune(fd, address, &options.tuning, &before.tuning, log);
        if options.backlog != before.backlog
            && let Err(error) = reuse::set_backlog(fd, options.backlog)
        {
            let (backlog, errno) = (options.backlog, Errno(&error));
            log.log(
                Level::Alert,
                format_args!("listen() to {address}, backlog {backlog} failed, ignored {errno}"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_base::log::Discard;
    use clearway_net::bind::Transport;
    use clearway_net::tune::{Keepalive, Tuning};

    const LOOPS: usize = 3;

    fn request(address: &ListenAddr, reuseport: bool) -> Request {
        Request { address: address.clone(), options: bind::Options { reuseport, ..Default::default() } }
    }

    /// An address of the loopback interface that is free.
    fn free_address() -> ListenAddr {
        ListenAddr::Inet(([127, 0, 0, 1], clearway_testkit::ports::free_port()).into())
    }

    fn numbers(listening: &Listening) -> Vec<i32> {
        listening.fds().map(AsRawFd::as_raw_fd).collect()
    }

    #[test]
    fn sockets_stay_while_their_address_does() {
        let (kept, dropped, new) = (free_address(), free_address(), free_address());
        let requests = |addresses: [&ListenAddr; 2]| addresses.map(|address| request(address, false));
        let none = Listening::default();
        let first = none.open(&requests([&dropped, &kept]), LOOPS, &Discard).unwrap();
        let second = first.open(&requests([&kept, &new]), LOOPS, &Discard).unwrap();
        let (one, two) = (first.hand(0..LOOPS).unwrap(), second.hand(0..LOOPS).unwrap());
        assert_eq!(one[1].serial, two[0].serial);
        assert_eq!(numbers(&first)[1], numbers(&second)[0]);
        let serials = [one[0].serial, one[1].serial, two[1].serial];
        assert!(serials[0] != serials[1] && !serials[..2].contains(&serials[2]));
        assert_eq!(second.addresses(), [kept, new]);
    }

    #[test]
    fn reuseport_comes_and_goes_and_one_socket_stays() {
        let address = free_address();
        let shared = [request(&address, false)];
        let per_loop = [request(&address, true)];
        let first = Listening::default().open(&shared, LOOPS, &Discard).unwrap();
        let second = first.open(&per_loop, LOOPS, &Discard).unwrap();
        let third = second.open(&shared, LOOPS, &Discard).unwrap();
        assert_eq!([&first, &second, &third].map(|listening| numbers(listening).len()), [1, LOOPS, 1]);
        assert!(numbers(&first)[0] == numbers(&second)[0] && numbers(&first) == numbers(&third));
        let kinds = [&first, &second, &third].map(|listening| listening.hand(0..LOOPS).unwrap()[0].kind);
        assert_eq!(kinds, [SocketKind::Shared, SocketKind::PerLoop, SocketKind::Shared]);
        let serials = [&first, &second, &third].map(|listening| listening.hand(0..LOOPS).unwrap()[0].serial);
        assert!(serials[0] != serials[1] && serials[1] != serials[2]);
        assert!(second.fds().all(|fd| reuse::address_of(fd).as_ref() == Some(&address)));
    }

    #[test]
    fn options_change_and_sockets_stay_unless_they_run_over_something_else() {
        let address = free_address();
        let with = |tuning, transport| {
            let options = bind::Options { tuning, transport, ..Default::default() };
            [Request { address: address.clone(), options }]
        };
        let probed = Keepalive::On { idle_s: 60, interval_s: 0, count: 0 };
        let tuned = Tuning { keepalive: probed, deferred: true, ..Default::default() };
        let plain = with(Tuning::default(), Transport::Plain);
        let first = Listening::default().open(&plain, LOOPS, &Discard).unwrap();
        let second = first.open(&with(tuned, Transport::Plain), LOOPS, &Discard).unwrap();
        assert_eq!(numbers(&first), numbers(&second));
        let third = second.open(&with(tuned, Transport::Multipath), LOOPS, &Discard);
        // A kernel without multipath TCP says so, and what there is stays.
        let Ok(third) = third else { return };
        assert_ne!(numbers(&second), numbers(&third));
        let serials = [&second, &third].map(|listening| listening.hand(0..LOOPS).unwrap()[0].serial);
        assert_ne!(serials[0], serials[1]);
        let back = third.open(&plain, LOOPS, &Discard).unwrap();
        assert_eq!(back.addresses(), [address]);
    }

    /// How many connections wait at each socket, once `total` do.
    fn queues(listening: &Listening, total: u32) -> Vec<u32> {
        let begun = Instant::now();
        loop {
            let queues: Vec<u32> = listening.fds().map(accept_queue::waiting).collect();
            if queues.iter().sum::<u32>() == total {
                return queues;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "{queues:?} of {total}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn sockets_get_connections_while_they_are_in_use() {
        let address = free_address();
        let ListenAddr::Inet(inet) = address else { panic!("{address}") };
        #[expect(clippy::disallowed_methods, reason = "a test may connect")]
        let connect = |count: u32| -> Vec<std::net::TcpStream> {
            (0..count).map(|_| std::net::TcpStream::connect(inet).unwrap()).collect()
        };
        let shared = [request(&address, false)];
        let one = Listening::default().open(&shared, LOOPS, &Discard).unwrap();
        let each = one.open(&[request(&address, true)], LOOPS, &Discard).unwrap();
        let first = connect(30);
        assert_eq!(queues(&each, 30), [30, 0, 0], "the configuration may still be refused");
        one.refuse_removed_in(&each);
        let second = connect(60);
        let before = queues(&each, 90);
        assert!(before[1] + before[2] > 0, "{before:?}");
        let again = each.open(&shared, LOOPS, &Discard).unwrap();
        each.refuse_removed_in(&again);
        let third = connect(30);
        assert_eq!(queues(&each, 120), [before[0] + 30, before[1], before[2]]);
        drop((first, second, third));
    }

    #[test]
    fn what_was_inherited_is_used_and_the_rest_let_go() {
        let (address, other) = (free_address(), free_address());
        let open = |address: &ListenAddr| bind::bind(address, &bind::Options::default(), &Discard).unwrap();
        let (socket, unused) = (open(&address), open(&other));
        let number = socket.as_raw_fd();
        let old = Listening::inherited(vec![(address.clone(), socket), (other.clone(), unused)]);
        let new = old.open(&[request(&address, false)], LOOPS, &Discard).unwrap();
        drop(old);
        assert_eq!((numbers(&new), new.numbers()), (vec![number], format!("{number};")));
        // Free again: nobody holds what was not asked for.
        drop(open(&other));
    }
}
