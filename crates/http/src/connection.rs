//! What requests have of the connection that they come over: its socket and timer, who the client is, the
//! configuration. How connections begin, wait and end is for the crate above to say.

pub(crate) mod http1;

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::{Level, Record};
use clearway_net::PeerAddr;
use clearway_runtime::{LoopRef, Socket, Timer};
use clearway_site::{Address, CoreLocation, CoreServer, LocalAddress};

use crate::generation::{Listener, Serving};
use crate::link::departure::Deeds;
use crate::metrics::Stage;
use crate::proxied::Front;
use crate::request::parts::Parts;
use crate::tables::Snapshot;

/// What the error log says of a client that sent nothing for too long.
pub const TIMED_OUT: &str = "client timed out (110: Connection timed out)";

/// It was asked for that small writes leave at once.
const NODELAY_ON: u8 = 1;
/// It was asked for that they do not.
const NODELAY_OFF: u8 = 2;

/// Serial numbers of connections (`$connection`), over the whole process.
static SERIAL: AtomicU64 = AtomicU64::new(1);

/// What requests have of their connection.
pub struct Conn {
    /// Where its bytes come from and go to.
    pub socket: Socket,
    /// For one wait at a time: for a request, a head, more of a body.
    pub timer: Timer,
    /// The loop that its task is at home on.
    pub home: LoopRef,
    listener: Arc<Listener>,
    /// The configuration; exchanged between requests.
    serving: Arc<Serving>,
    /// Number of the address within the listener's socket.
    address: u32,
    pub(crate) peer: PeerAddr,
    pub(crate) serial: u64,
    /// When it was accepted, on the clock of its loop.
    pub start_ms: u64,
    /// Requests so far, which are not counted beyond the largest number; written by its task.
    served: AtomicU32,
    /// Whether small writes leave at once (TCP_NODELAY).
    nodelay: AtomicU8,
    /// What is not given up though the client leaves.
    pub(crate) deeds: Deeds,
    /// What a proxy has sent before the first request.
    pub front: Option<Box<Front>>,
    /// What it is counted as.
    pub(crate) stage: Stage,
}

/// Which address of the listener's socket a connection was made to.
fn find_address(serving: &Serving, socket: impl AsFd) -> u32 {
    let plan = serving.socket();
    plan.find(plan.needs_local_address().then(|| clearway_os::socket::local_address(socket)).flatten())
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.stage.close(self.home.index());
    }
}

impl Conn {
    /// A connection that was accepted on `home`.
    pub fn new(listener: Arc<Listener>, home: LoopRef, socket: OwnedFd, peer: PeerAddr) -> Self {
        let serving = listener.published();
        Self {
            address: find_address(&serving, &socket),
            serving,
            socket: Socket::new(home, socket),
            timer: Timer::new(home),
            home,
            peer,
            serial: SERIAL.fetch_add(1, Ordering::Relaxed),
            start_ms: home.now_ms(),
            served: AtomicU32::new(0),
            stage: Stage::new(home.index()),
            nodelay: AtomicU8::new(0),
            deeds: Deeds::default(),
            front: None,
            listener,
        }
    }

    /// Makes another loop its home.
    ///
    /// # Errors
    /// The socket cannot be registered there; nothing has changed then.
    pub fn move_to(&mut self, there: LoopRef) -> io::Result<()> {
        self.socket.move_to(there)?;
        self.stage.moved(self.home.index(), there.index());
        (self.home, self.timer) = (there, Timer::new(there));
        Ok(())
    }

    /// Where it arrived.
    #[inline]
    pub fn listener(&self) -> &Listener {
        &self.listener
    }

    /// The number of the generation that it has.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.serving.number
    }

    /// The generation that it has, which is not over as long as the result is there.
    pub(crate) fn serving(&self) -> Arc<Serving> {
        Arc::clone(&self.serving)
    }

    /// The configuration that it has.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.serving.snapshot
    }

    /// The id that stands for its loop (`$pid`).
    pub(crate) fn identity(&self) -> u32 {
        self.serving.identity(self.home)
    }

    /// How many requests there were so far.
    pub fn served(&self) -> u32 {
        self.served.load(Ordering::Relaxed)
    }

    /// The number of the request that begins, from 1.
    pub(crate) fn count_request(&self) -> u64 {
        let number = self.served().saturating_add(1);
        self.served.store(number, Ordering::Relaxed);
        u64::from(number)
    }

    /// Whether another generation than its own is published.
    #[inline]
    pub(crate) fn is_outdated(&self) -> bool {
        self.serving.number != self.listener.number()
    }

    /// Takes the generation that is published.
    #[inline]
    pub fn renew(&mut self) {
        if self.is_outdated() {
            self.take_published();
        }
    }

    #[cold]
    fn take_published(&mut self) {
        self.serving = self.listener.published();
        self.address = find_address(&self.serving, &self.socket);
    }

    /// The address that was connected to, as configured.
    pub fn address(&self) -> &Address {
        self.serving.socket().address(self.address)
    }

    /// The address that was connected to.
    pub(crate) fn local_address(&self) -> LocalAddress<'_> {
        let address = self.address();
        if !address.listen.is_wildcard() {
            return LocalAddress::new(None, address);
        }
        LocalAddress::new(clearway_os::socket::local_address(&self.socket), address)
    }

    /// Makes small writes leave at once, without waiting for what went before to be acknowledged, unless
    /// the location does not want that (`tcp_nodelay`). Asked for where a second write follows a first one;
    /// connections of one response are spared the call.
    pub(crate) fn send_at_once(&self, core: &CoreLocation) {
        if *core.sending.tcp_nodelay && self.nodelay.load(Ordering::Relaxed) != NODELAY_ON {
            self.nodelay.store(NODELAY_ON, Ordering::Relaxed);
            clearway_os::socket::set_nodelay(self.socket.as_fd());
        }
    }

    /// Takes back what connections have of their listening socket, where a location does not want it.
    pub(crate) fn begin_response(&self, core: &CoreLocation) {
        if !*core.sending.tcp_nodelay && self.nodelay.load(Ordering::Relaxed) != NODELAY_OFF {
            self.nodelay.store(NODELAY_OFF, Ordering::Relaxed);
            clearway_os::socket::clear_nodelay(self.socket.as_fd());
        }
    }

    /// Empty buffers for a request.
    pub fn take_parts(&self) -> Box<Parts> {
        let bytes = self.server_core().options.client_header_buffer_size;
        self.listener.stock.take(self.home.index(), bytes)
    }

    /// Takes the buffers of a request back.
    pub fn put_back(&self, parts: Box<Parts>) {
        self.listener.stock.put_back(self.home.index(), parts);
    }

    /// Whether connections are to end with their requests.
    pub(crate) fn is_stopping(&self) -> bool {
        self.listener.is_stopping()
    }

    /// The engine's settings of the server that answers for hosts of no other name.
    pub fn server_core(&self) -> &CoreServer {
        &self.snapshot().server(self.address().default_server).core
    }

    /// Says that the client has closed the connection, or how reading has failed.
    pub fn log_closed(&self, action: &str, result: io::Result<usize>) {
        let served = self.served();
        match result {
            Err(error) if served > 0 && error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => self.log(Level::Info, action, format_args!("recv() failed {}", Errno(&error))),
            Ok(_) if served > 0 => {
                let message = format_args!("client {} closed keepalive connection", self.peer);
                self.log_plain(Level::Info, message);
            }
            Ok(_) => self.log(Level::Info, action, format_args!("client closed connection")),
        }
    }

    /// Writes a line about the connection where there is no request to tell more.
    pub fn log(&self, level: Level, action: &str, message: fmt::Arguments<'_>) {
        let (client, server) = (self.peer, &self.address().text);
        let circumstances = format_args!(" while {action}, client: {client}, server: {server}");
        self.log_plain(level, format_args!("{message}{circumstances}"));
    }

    /// Writes a line as it stands.
    pub(crate) fn log_plain(&self, level: Level, message: fmt::Arguments<'_>) {
        let base = self.snapshot().server(self.address().default_server).base;
        let sinks = self.snapshot().location(base).core.error_log.iter();
        for sink in sinks.filter(|sink| sink.enabled(level)) {
            sink.write(&Record { level, tid: self.identity(), connection: Some(self.serial), message });
        }
    }

    /// Reads behind what is there; `None` when the timer fires first.
    pub(crate) fn poll_read(
        &self,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<usize>>> {
        match self.socket.poll_read_vec(cx, buf) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => self.timer.poll_expired(cx).map(|()| None),
        }
    }
}
