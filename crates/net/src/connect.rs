//! Connections to upstream servers: the socket with its options, the place among `worker_connections` that it
//! takes as any connection does, connect(2), and nginx's messages for failures. Runs on loops and never
//! blocks them; the request's task limits the time.
//!
//! If hardly a place is free, or there is no descriptor, idle connections to clients and servers are closed,
//! as they are when a client connects. If there is no place at all, the request waits for one,
//! [`RECLAIM_WAIT_MS`] at most.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use clearway_base::Errno;
use clearway_base::log::{Discard, Level, Sink};
use clearway_os::outgoing::{self, Carries, Remote};
use clearway_os::tcp;
use clearway_runtime::{LoopRef, Socket, Timer};
use rustix::io::Errno as Code;

use crate::accept::{
    AcceptPolicy, ConnectionSlot, RECLAIM_MAX, RECLAIM_SHARE, RECLAIM_WAIT_MS, RESERVE_SHARE,
};
use crate::metrics;

/// How often a request that waits for a place looks whether there is one, in milliseconds.
const LOOK_EVERY_MS: u64 = 1;

/// The settings for connections to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The local address (`proxy_bind`).
    pub local: Option<Local>,
    /// `proxy_socket_keepalive`.
    pub keepalive: Keepalive,
    /// `proxy_socket_rcvbuf`, bytes.
    pub receive_buffer_bytes: Option<usize>,
    /// `proxy_socket_sndbuf`, bytes.
    pub send_buffer_bytes: Option<usize>,
}

/// The local address of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Local {
    /// The address; with port 0 the kernel chooses a port.
    pub address: SocketAddr,
    /// Whether the address is another machine's (`transparent`).
    pub owner: AddressOwner,
}

/// The owner of a local address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressOwner {
    /// This machine.
    #[default]
    Here,
    /// Any machine, such as the client: the kernel is told so (IP_TRANSPARENT).
    Elsewhere,
}

/// Whether the kernel looks after silent connections (SO_KEEPALIVE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keepalive {
    /// No.
    #[default]
    Off,
    /// Yes.
    On,
}

/// Makes connections. Each request has a copy.
#[derive(Clone, Copy, Debug)]
pub struct Connector {
    policies: &'static [AcceptPolicy],
}

/// A connection that was made.
pub struct Outbound {
    /// The socket, watched by the loop that it was made on.
    pub socket: Socket,
    /// The place among `worker_connections`, to be kept as long as the connection.
    pub slot: ConnectionSlot,
}

impl Connector {
    /// Connections count among those of these loops.
    #[must_use]
    pub fn new(policies: &'static [AcceptPolicy]) -> Self {
        Self { policies }
    }

    /// How many loops there are.
    #[must_use]
    pub fn loops(self) -> usize {
        self.policies.len()
    }

    /// The policy of a loop, which gives a place to connections that move there.
    #[must_use]
    pub fn policy(self, home: LoopRef) -> &'static AcceptPolicy {
        &self.policies[home.index()]
    }

    /// Begins to connect to `remote`. To be called on `home`. Problems that do not fail the connection are
    /// reported to `log`.
    pub fn connect(
        self,
        home: LoopRef,
        remote: &Remote,
        options: &ConnectOptions,
        log: &dyn Sink,
    ) -> Connecting {
        let policy = self.policy(home);
        let wait = |wants| {
            Connecting(ConnectState::Waiting(Box::new(Waiting {
                home,
                wants,
                remote: remote.clone(),
                policy,
                deadline_ms: home.now_ms() + RECLAIM_WAIT_MS,
                timer: Timer::new(home),
            })))
        };
        let fd = match open(remote, options, log) {
            Ok(fd) => fd,
            Err(fault) if fault.is_of_descriptors() && reclaim(home) > 0 => {
                return wait(Wants::Descriptor(options.clone()));
            }
            Err(fault) => return Connecting(ConnectState::Failed(fault)),
        };
        let (free, limit) = policy.room();
        let mut reclaimed = 0;
        if free <= limit / RESERVE_SHARE {
            reclaimed = reclaim(home);
            if reclaimed > 0 {
                policy.say_reclaimed(home.now_ms(), log);
            }
        }
        match policy.take_slot() {
            Some(slot) => Connecting(ConnectState::begin(home, fd, remote, slot)),
            None if reclaimed == 0 => Connecting(ConnectState::Failed(ConnectFault::Connections { limit })),
            None => wait(Wants::Place(fd)),
        }
    }
}

/// Has some idle connections closed. Returns how many.
#[cold]
fn reclaim(home: LoopRef) -> usize {
    let reclaimed = home.reclaim(RECLAIM_SHARE, RECLAIM_MAX);
    metrics::RECLAIMED.add(reclaimed as u64);
    reclaimed
}

/// Makes the socket, with its options, bound to its local address.
fn open(remote: &Remote, options: &ConnectOptions, log: &dyn Sink) -> Result<OwnedFd, ConnectFault> {
    let fd = outgoing::open(remote, Carries::Stream).map_err(ConnectFault::Socket)?;
    let ignore = |what: fmt::Arguments<'_>, result: io::Result<()>| {
        if let Err(error) = result {
            log.log(Level::Alert, format_args!("setsockopt({what}) failed, ignored {}", Errno(&error)));
        }
    };
    if let Some(bytes) = options.receive_buffer_bytes {
        ignore(format_args!("SO_RCVBUF, {bytes}"), outgoing::set_receive_buffer(fd.as_fd(), bytes));
    }
    if let Some(bytes) = options.send_buffer_bytes {
        ignore(format_args!("SO_SNDBUF, {bytes}"), outgoing::set_send_buffer(fd.as_fd(), bytes));
    }
    if options.keepalive == Keepalive::On {
        ignore(format_args!("SO_KEEPALIVE"), outgoing::set_keepalive(fd.as_fd()));
    }
    let Some(local) = options.local else { return Ok(fd) };
    if local.owner == AddressOwner::Elsewhere {
        let result = tcp::set_transparent(&fd, &local.address);
        result.map_err(|error| ConnectFault::Transparent(local.address, error))?;
    }
    if local.address.port() == 0 && matches!(remote, Remote::Inet(_)) {
        ignore(format_args!("IP_BIND_ADDRESS_NO_PORT"), tcp::set_bind_address_no_port(&fd));
    }
    outgoing::bind(fd.as_fd(), local.address).map_err(|error| ConnectFault::Bind(local.address, error))?;
    Ok(fd)
}

/// A connection that is being made: a future. Dropping it gives the connection up.
#[must_use = "a future that nobody polls connects, but never says so"]
pub struct Connecting(ConnectState);

enum ConnectState {
    Waiting(Box<Waiting>),
    UnderWay(clearway_runtime::Connecting, Option<ConnectionSlot>),
    Failed(ConnectFault),
    Over,
}

/// Waits for a place or a descriptor that a closing connection will free.
struct Waiting {
    home: LoopRef,
    wants: Wants,
    remote: Remote,
    policy: &'static AcceptPolicy,
    deadline_ms: u64,
    timer: Timer,
}

/// The event that a request waits for.
enum Wants {
    /// A descriptor for a socket with these options, and a place.
    Descriptor(ConnectOptions),
    /// A place among the connections of the loop, for this socket.
    Place(OwnedFd),
    Nothing,
}

impl ConnectState {
    fn begin(home: LoopRef, fd: OwnedFd, remote: &Remote, slot: ConnectionSlot) -> Self {
        match Socket::connect(home, fd, remote) {
            Ok(connecting) => Self::UnderWay(connecting, Some(slot)),
            Err(error) => Self::Failed(ConnectFault::Refused(error)),
        }
    }
}

impl Waiting {
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<ConnectState> {
        loop {
            let now_ms = self.home.now_ms();
            let fault = match self.try_begin() {
                Ok(state) => return Poll::Ready(state),
                Err(fault) if now_ms >= self.deadline_ms => return Poll::Ready(ConnectState::Failed(fault)),
                Err(fault) => fault,
            };
            if !fault.is_of_descriptors() && !matches!(fault, ConnectFault::Connections { .. }) {
                return Poll::Ready(ConnectState::Failed(fault));
            }
            self.timer.arm(now_ms + LOOK_EVERY_MS);
            ready!(self.timer.poll_expired(cx));
        }
    }

    fn try_begin(&mut self) -> Result<ConnectState, ConnectFault> {
        let fd = match std::mem::replace(&mut self.wants, Wants::Nothing) {
            Wants::Place(fd) => fd,
            Wants::Descriptor(options) => match open(&self.remote, &options, &Discard) {
                Ok(fd) => fd,
                Err(fault) => {
                    self.wants = Wants::Descriptor(options);
                    return Err(fault);
                }
            },
            Wants::Nothing => unreachable!("polled until it is ready"),
        };
        match self.policy.take_slot() {
            Some(slot) => Ok(ConnectState::begin(self.home, fd, &self.remote, slot)),
            None => {
                self.wants = Wants::Place(fd);
                Err(ConnectFault::Connections { limit: self.policy.room().1 })
            }
        }
    }
}

impl Future for Connecting {
    type Output = Result<Outbound, ConnectFault>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let state = &mut self.0;
        if let ConnectState::Waiting(waiting) = state {
            *state = ready!(waiting.poll_room(cx));
        }
        if let ConnectState::UnderWay(connecting, slot) = state {
            let made = ready!(Pin::new(connecting).poll(cx));
            let slot = slot.take().expect("polled until it is ready");
            *state = ConnectState::Over;
            let made = made.map(|socket| Outbound { socket, slot });
            return Poll::Ready(made.map_err(ConnectFault::Failed));
        }
        match std::mem::replace(state, ConnectState::Over) {
            ConnectState::Failed(fault) => Poll::Ready(Err(fault)),
            _ => unreachable!("polled until it is ready"),
        }
    }
}

/// Why there is no connection.
#[derive(Debug)]
pub enum ConnectFault {
    /// All `worker_connections` are in use.
    Connections {
        /// How many there may be.
        limit: u32,
    },
    /// socket(2), mostly for want of descriptors.
    Socket(io::Error),
    /// The process may not use the address of another machine.
    Transparent(SocketAddr, io::Error),
    /// bind(2) to the local address.
    Bind(SocketAddr, io::Error),
    /// connect(2) failed at once.
    Refused(io::Error),
    /// connect(2) failed in the end.
    Failed(io::Error),
}

impl ConnectFault {
    /// Whether the fault is the server's, so that another server may be tried. Otherwise it is on this side,
    /// and the answer is 500.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Failed(_))
    }

    /// Whether this process or the machine has no descriptor left.
    fn is_of_descriptors(&self) -> bool {
        let Self::Socket(error) = self else { return false };
        [Code::MFILE, Code::NFILE].iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
    }

    /// At which level nginx logs it.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Connections { .. } | Self::Socket(_) | Self::Transparent(..) => Level::Alert,
            Self::Bind(..) => Level::Crit,
            Self::Refused(error) if is_usual(error) || error.kind() == io::ErrorKind::WouldBlock => {
                Level::Error
            }
            Self::Refused(_) => Level::Crit,
            Self::Failed(error) if is_usual(error) => Level::Error,
            Self::Failed(_) => Level::Alert,
        }
    }

    /// The line of the error log in nginx's words; `name` is that of the server's address.
    pub fn describe<'a>(&'a self, name: &'a str) -> impl fmt::Display + 'a {
        Description { fault: self, name }
    }
}

/// Whether an error is usual for servers and networks that are down.
fn is_usual(error: &io::Error) -> bool {
    let usual = [
        Code::CONNREFUSED,
        Code::CONNRESET,
        Code::NETDOWN,
        Code::NETUNREACH,
        Code::HOSTDOWN,
        Code::HOSTUNREACH,
        Code::TIMEDOUT,
    ];
    error.raw_os_error().is_some_and(|code| usual.iter().any(|usual| usual.raw_os_error() == code))
}

struct Description<'a> {
    fault: &'a ConnectFault,
    name: &'a str,
}

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.fault {
            ConnectFault::Connections { limit } => {
                write!(f, "{limit} worker_connections are not enough")
            }
            ConnectFault::Socket(error) => write!(f, "socket() failed {}", Errno(error)),
            ConnectFault::Transparent(SocketAddr::V4(_), error) => {
                write!(f, "setsockopt(IP_TRANSPARENT) failed {}", Errno(error))
            }
            ConnectFault::Transparent(SocketAddr::V6(_), error) => {
                write!(f, "setsockopt(IPV6_TRANSPARENT) failed {}", Errno(error))
            }
            ConnectFault::Bind(local, error) if local.port() == 0 => {
                write!(f, "bind({}) failed {}", local.ip(), Errno(error))
            }
            ConnectFault::Bind(local, error) => write!(f, "bind({local}) failed {}", Errno(error)),
            ConnectFault::Refused(error) => write!(f, "connect() to {} failed {}", self.name, Errno(error)),
            ConnectFault::Failed(error) => write!(f, "connect() failed {}", Errno(error)),
        }
    }
}
