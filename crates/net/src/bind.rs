//! Opening listening sockets: options, nginx's messages, its five attempts. Boot only.
//!
//! Invariant: a socket that is returned listens, is nonblocking and close-on-exec. The file of a unix socket
//! belongs to the process that bound it: binding fails while it is there, [`close_unix`] removes it.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};

use crate::listen::ListenAddr;
use crate::sys;
use crate::tune::{Tuning, tune};

/// Connections that the kernel completes before they are accepted, where `backlog=` is not given.
pub const DEFAULT_BACKLOG: i32 = 511;

/// How often binding is tried while an address is in use.
pub const BIND_ATTEMPTS: usize = 5;

/// The time between two attempts.
pub const BIND_RETRY_AFTER: Duration = Duration::from_millis(500);

/// The options of one listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// See [`DEFAULT_BACKLOG`].
    pub backlog: i32,
    /// A socket for each loop instead of one for all; the kernel spreads connections by hash.
    pub reuseport: bool,
    /// The option of an IPv6 wildcard address.
    pub ipv6only: Ipv6Only,
    /// The protocol below TCP.
    pub transport: Transport,
    /// Buffers, keepalive and the like.
    pub tuning: Tuning,
}

/// Whether an IPv6 wildcard leaves IPv4 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ipv6Only {
    /// An IPv6 socket takes IPv6 only.
    #[default]
    On,
    /// An IPv6 socket takes IPv4 as well.
    Off,
}

/// The protocol below the stream of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// One path.
    #[default]
    Plain,
    /// Several paths at once where the client can (`multipath`, RFC 8684).
    Multipath,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backlog: DEFAULT_BACKLOG,
            reuseport: false,
            ipv6only: Ipv6Only::default(),
            transport: Transport::default(),
            tuning: Tuning::default(),
        }
    }
}

/// The call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Socket,
    Reuseaddr,
    Reuseport,
    Bind,
    Listen { backlog: i32 },
}

/// A listening socket that could not be opened. Displays nginx's text.
#[derive(Debug)]
pub struct BindError {
    call: Call,
    address: ListenAddr,
    error: io::Error,
}

impl BindError {
    /// Whether another socket has the address, so that it may be free a little later.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse && matches!(self.call, Call::Bind | Call::Listen { .. })
    }

    /// The system's error.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match self.call {
            Call::Socket => write!(f, "socket() {address} failed")?,
            Call::Reuseaddr => write!(f, "setsockopt(SO_REUSEADDR) {address} failed")?,
            Call::Reuseport => write!(f, "setsockopt(SO_REUSEPORT) {address} failed")?,
            Call::Bind => write!(f, "bind() to {address} failed")?,
            Call::Listen { backlog } => write!(f, "listen() to {address}, backlog {backlog} failed")?,
        }
        write!(f, " {}", Errno(&self.error))
    }
}

impl std::error::Error for BindError {}

/// Opens one listening socket. What is not fatal goes to the log.
///
/// # Errors
/// When the socket cannot listen.
pub fn bind(address: &ListenAddr, options: &Options, log: &dyn Sink) -> Result<OwnedFd, BindError> {
    let failed = |call| move |error| BindError { call, address: address.clone(), error };
    let socket = sys::stream_socket(address, options.transport).map_err(failed(Call::Socket))?;
    sys::set_reuseaddr(&socket).map_err(failed(Call::Reuseaddr))?;
    if options.reuseport {
        sys::set_reuseport(&socket).map_err(failed(Call::Reuseport))?;
    }
    if let ListenAddr::Inet(std::net::SocketAddr::V6(_)) = address
        && let Err(error) = sys::set_ipv6only(&socket, options.ipv6only)
    {
        let errno = Errno(&error);
        log.log(Level::Emerg, format_args!("setsockopt(IPV6_V6ONLY) {address} failed, ignored {errno}"));
    }
    sys::bind(&socket, address).map_err(failed(Call::Bind))?;
    if let ListenAddr::Unix(path) = address
        && let Err(error) = sys::open_to_all(path)
    {
        let path = Verbatim(path);
        log.log(Level::Emerg, format_args!("chmod() \"{path}\" failed {}", Errno(&error)));
    }
    if let ListenAddr::Inet(_) = address {
        // Accepted sockets inherit it, which saves a call for each of them.
        clearway_os::socket::set_nodelay(std::os::fd::AsFd::as_fd(&socket));
    }
    tune(&socket, address, &options.tuning, &Tuning::default(), log);
    let backlog = options.backlog;
    sys::listen(&socket, backlog).map_err(failed(Call::Listen { backlog }))?;
    Ok(socket)
}

/// The sockets of one address.
#[derive(Debug)]
pub enum Sockets {
    /// A socket that all loops accept from, woken in turn (EPOLLEXCLUSIVE).
    Shared(OwnedFd),
    /// A socket for each loop, in the order of the loops.
    PerLoop(Vec<OwnedFd>),
}

/// One address to listen on.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where.
    pub address: ListenAddr,
    /// How.
    pub options: Options,
}

/// Binding was given up; everything about it has been logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CouldNotBind;

/// Opens the sockets of all addresses for `loops` loops. Addresses that are in use are tried again up to
/// [`BIND_ATTEMPTS`] times; `pause` waits after each. Messages go to the log at level emerg.
///
/// # Errors
/// When one of them cannot be had; those that could are closed again.
pub fn bind_all(
    requests: &[Request],
    loops: usize,
    log: &dyn Sink,
    pause: &mut dyn FnMut(Duration),
) -> Result<Vec<Sockets>, CouldNotBind> {
    let mut bound: Vec<Option<Sockets>> = requests.iter().map(|_| None).collect();
    for _ in 0..BIND_ATTEMPTS {
        for (request, slot) in requests.iter().zip(&mut bound).filter(|(_, slot)| slot.is_none()) {
            match bind_sockets(request, loops, log) {
                Ok(sockets) => *slot = Some(sockets),
                Err(error) => {
                    log.log(Level::Emerg, format_args!("{error}"));
                    if !error.is_in_use() {
                        return give_up(requests, &bound, log);
                    }
                }
            }
        }
        if bound.iter().all(Option::is_some) {
            return Ok(bound.into_iter().flatten().collect());
        }
        log.log(Level::Notice, format_args!("try again to bind() after {}ms", BIND_RETRY_AFTER.as_millis()));
        pause(BIND_RETRY_AFTER);
    }
    log.log(Level::Emerg, format_args!("still could not bind()"));
    give_up(requests, &bound, log)
}

fn give_up<T>(requests: &[Request], bound: &[Option<Sockets>], log: &dyn Sink) -> Result<T, CouldNotBind> {
    for (request, _) in requests.iter().zip(bound).filter(|(_, slot)| slot.is_some()) {
        close_unix(&request.address, log);
    }
    Err(CouldNotBind)
}

fn bind_sockets(request: &Request, loops: usize, log: &dyn Sink) -> Result<Sockets, BindError> {
    let open = || bind(&request.address, &request.options, log);
    // Two sockets cannot have one file.
    if request.options.reuseport && matches!(request.address, ListenAddr::Inet(_)) {
        Ok(Sockets::PerLoop((0..loops).map(|_| open()).collect::<Result<_, _>>()?))
    } else {
        Ok(Sockets::Shared(open()?))
    }
}

/// Removes the file of a unix socket that is no longer listened on; other addresses need nothing.
pub fn close_unix(address: &ListenAddr, log: &dyn Sink) {
    if let ListenAddr::Unix(path) = address
        && let Err(error) = sys::unlink(path)
    {
        let path = Verbatim(path);
        log.log(Level::Emerg, format_args!("unlink() {path} failed {}", Errno(&error)));
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::sync::Mutex;

    use clearway_base::log::{Discard, Record};

    use super::*;

    /// Lines of a log, with their levels.
    #[derive(Default)]
    pub(crate) struct Lines(pub(crate) Mutex<Vec<String>>);

    impl Sink for Lines {
        fn enabled(&self, _: Level) -> bool {
            true
        }

        fn write(&self, record: &Record<'_>) {
            let line = format!("[{}] {}", record.level.as_str(), record.message);
            self.0.lock().unwrap().push(line);
        }
    }

    fn loopback(port: u16) -> ListenAddr {
        ListenAddr::Inet(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn port_of(socket: &OwnedFd) -> u16 {
        clearway_os::socket::local_address(socket).unwrap().port()
    }

    #[test]
    fn a_bound_socket_accepts() {
        let socket = bind(&loopback(0), &Options::default(), &Discard).unwrap();
        assert_eq!(
            crate::accept::accept(socket.as_fd()).map(drop).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        #[expect(clippy::disallowed_methods, reason = "a test may connect")]
        let mut client = TcpStream::connect(("127.0.0.1", port_of(&socket))).unwrap();
        let (accepted, peer) = crate::accept::accept(socket.as_fd()).unwrap();
        assert_eq!(peer.to_string(), "127.0.0.1");
        assert_eq!(peer.port(), Some(client.local_addr().unwrap().port()));
        let flags = rustix::fs::fcntl_getfl(&accepted).unwrap();
        assert!(flags.contains(rustix::fs::OFlags::NONBLOCK));
        TcpStream::from(accepted).write_all(b"x").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "x");
    }

    #[test]
    fn reuseport_gives_each_loop_a_socket() {
        // Which port is free is known only once it is bound, so the first socket is opened beforehand.
        let options = Options { reuseport: true, ..Options::default() };
        let first = bind(&loopback(0), &options, &Discard).unwrap();
        let request = Request { address: loopback(port_of(&first)), options };
        let bound = bind_all(&[request], 3, &Discard, &mut |_| panic!("the port can be shared")).unwrap();
        let [Sockets::PerLoop(sockets)] = &bound[..] else { panic!("{bound:?}") };
        assert!(sockets.len() == 3 && sockets.iter().all(|socket| port_of(socket) == port_of(&first)));
    }

    #[test]
    fn an_address_in_use_is_tried_five_times() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = loopback(taken.local_addr().unwrap().port());
        let request = Request { address: address.clone(), options: Options::default() };
        let (lines, mut pauses) = (Lines::default(), 0);
        let bound = bind_all(&[request], 1, &lines, &mut |time| pauses += time.as_millis());
        assert_eq!(bound.err(), Some(CouldNotBind));
        assert_eq!(pauses, 2500);
        let lines = lines.0.into_inner().unwrap();
        assert_eq!(lines[0], format!("[emerg] bind() to {address} failed (98: Address already in use)"));
        assert_eq!(lines[1], "[notice] try again to bind() after 500ms");
        assert_eq!((lines.len(), lines[10].as_str()), (11, "[emerg] still could not bind()"));
    }

    #[test]
    fn an_address_that_gets_free_is_bound() {
        let mut taken = Some(TcpListener::bind("127.0.0.1:0").unwrap());
        let port = taken.as_ref().unwrap().local_addr().unwrap().port();
        let request = Request { address: loopback(port), options: Options::default() };
        let bound = bind_all(&[request], 1, &Discard, &mut |_| taken = None).unwrap();
        assert!(matches!(&bound[..], [Sockets::Shared(socket)] if port_of(socket) == port));
    }

    #[test]
    fn other_errors_end_it_at_once() {
        let address = ListenAddr::Inet(SocketAddr::from(([192, 0, 2, 1], 18_000)));
        let request = Request { address, options: Options::default() };
        let lines = Lines::default();
        assert!(bind_all(&[request], 1, &lines, &mut |_| panic!("no use in waiting")).is_err());
        let lines = lines.0.into_inner().unwrap();
        assert_eq!(lines, ["[emerg] bind() to 192.0.2.1:18000 failed (99: Cannot assign requested address)"]);
    }

    #[test]
    fn a_unix_socket_owns_its_file() {
        let path = std::env::temp_dir().join(format!("clearway-net-{}.sock", std::process::id()));
        let bytes = path.as_os_str().as_encoded_bytes();
        let address = ListenAddr::Unix(bytes.into());
        let request = Request { address: address.clone(), options: Options::default() };
        let bound = bind_all(std::slice::from_ref(&request), 2, &Discard, &mut |_| {}).unwrap();
        assert!(matches!(bound[..], [Sockets::Shared(_)]));
        let mode = rustix::fs::stat(&path).unwrap().st_mode & 0o777;
        assert_eq!(mode, 0o666);
        drop(bound);
        let error = bind(&address, &Options::default(), &Discard).unwrap_err();
        assert!(error.is_in_use(), "{error}");
        let failed = format!("bind() to unix:{} failed (98: Address already in use)", path.display());
        assert_eq!(error.to_string(), failed);
        close_unix(&address, &Discard);
        let lines = Lines::default();
        close_unix(&address, &lines);
        let expected = format!("[emerg] unlink() {} failed (2: No such file or directory)", path.display());
        assert_eq!(lines.0.into_inner().unwrap(), [expected]);
    }
}
