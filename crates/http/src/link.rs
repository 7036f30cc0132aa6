//! The link that carries a request: where bytes go to the client and come from it, how fast, and whether
//! somebody is there to read them. A request has a [`Link`] and knows no socket. Polled by the request's
//! task.

pub(crate) mod departure;
pub(crate) mod http1;
pub(crate) mod pace;
pub(crate) mod parts;
pub(crate) mod send_queue;
pub(crate) mod stream;
pub(crate) mod tls;
pub(crate) mod transport;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::task::{Context, Poll};

use clearway_os::tcp::TcpInfo;
use clearway_runtime::{LoopRef, Timer};
use clearway_site::CoreLocation;

use crate::metrics::Stage;
use departure::Deeds;
use http1::Http1Link;
use stream::{Stream, was_reset};
use tls::Tls;

/// The link that carries one request at a time. A subrequest has the link of its main request.
#[derive(Clone, Copy)]
pub enum Link<'c> {
    /// A connection that carries one request after the other, on its transport.
    Http1(&'c Http1Link),
    /// A stream: one of several requests at a time on a connection.
    Stream(&'c Stream),
}

/// The client's side.
impl<'c> Link<'c> {
    /// Its socket, where the connection carries one request after the other.
    pub(crate) fn socket_fd(self) -> Option<BorrowedFd<'c>> {
        match self {
            Self::Http1(link) => link.transport.socket_fd(),
            Self::Stream(_) => None,
        }
    }

    /// The loop that it is at home on.
    #[inline]
    pub(crate) fn home(self) -> LoopRef {
        match self {
            Self::Http1(link) => link.transport.home(),
            Self::Stream(stream) => stream.home(),
        }
    }

    /// The address that was connected to, if it is an internet one.
    pub(crate) fn local_address(self) -> Option<SocketAddr> {
        match self {
            Self::Http1(link) => link.transport.local_address(),
            Self::Stream(stream) => stream.local_address(),
        }
    }

    /// See [`Stream::note_acted`].
    pub(crate) fn note_acted(self) {
        if let Self::Stream(stream) = self {
            stream.note_acted();
        }
    }

    /// When the request was received, nanoseconds of the monotonic clock, where several came at once.
    pub(crate) fn arrived_ns(self) -> Option<u64> {
        match self {
            Self::Http1(_) => None,
            Self::Stream(stream) => stream.arrived_ns(),
        }
    }

    /// The kernel's facts about the connection, if it is TCP.
    pub(crate) fn tcp_info(self) -> Option<TcpInfo> {
        match self {
            Self::Http1(link) => link.transport.tcp_info(),
            Self::Stream(_) => None,
        }
    }

    /// Ready when the client has ended its direction, or the connection broke: then with what broke it.
    pub(crate) fn poll_closed(self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Http1(link) => link.transport.poll_closed(cx),
            Self::Stream(stream) => stream.poll_reset(cx).map(|()| Err(was_reset())),
        }
    }

    /// Whether it is known that the client has ended its direction, or that the connection broke.
    pub(crate) fn has_ended(self) -> bool {
        match self {
            Self::Http1(link) => link.transport.has_ended(),
            Self::Stream(stream) => stream.is_reset(),
        }
    }

    /// Whether what was sent last was taken, as far as is known.
    pub(crate) fn is_writable(self) -> bool {
        match self {
            Self::Http1(link) => link.transport.is_writable(),
            Self::Stream(_) => true,
        }
    }

    /// TLS, if there is any between the client and the bytes.
    #[inline]
    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Http1(link) => link.transport.tls(),
            Self::Stream(stream) => stream.tls(),
        }
    }

    /// Jobs that are not given up though the client leaves.
    pub(crate) fn deeds(&self) -> &Deeds {
        match self {
            Self::Http1(link) => &link.deeds,
            Self::Stream(stream) => &stream.deeds,
        }
    }

    /// The timer for one wait at a time: for more of the request's body, as a rule.
    pub(crate) fn timer(&self) -> &Timer {
        match self {
            Self::Http1(link) => &link.timer,
            Self::Stream(stream) => stream.timer(),
        }
    }
}

/// Counters and facts.
impl Link<'_> {
    /// The body is not as long as was announced.
    pub(crate) fn note_malformed(self) {
        if let Self::Stream(stream) = self {
            stream.note_malformed();
        }
    }

    /// A request is over before its task is: it is cut short.
    pub(crate) fn cut_short(self, code: u16) {
        match self {
            Self::Http1(link) => link.stage.end(link.transport.home().index(), Some(code)),
            Self::Stream(stream) => {
                Stage::end_stream(stream.home().index(), code);
                stream.abort(stream::Fault::Other);
            }
        }
    }
}

/// Writing.
impl Link<'_> {
    #[inline]
    pub(crate) fn poll_write(self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Http1(link) => link.transport.poll_write(cx, bytes),
            Self::Stream(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    /// Writes what something else follows at once.
    pub(crate) fn poll_write_more(self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Http1(link) => link.transport.poll_write_more(cx, bytes),
            Self::Stream(stream) => stream.poll_write(cx, &[IoSlice::new(bytes)]),
        }
    }

    pub(crate) fn poll_write_vectored(
        self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Http1(link) => link.transport.poll_write_vectored(cx, pieces),
            Self::Stream(stream) => stream.poll_write(cx, pieces),
        }
    }

    /// Sends a part of a file that is in memory; only where [files are sent](Self::sends_files).
    pub(crate) fn poll_sendfile(
        self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Http1(link) => link.transport.poll_sendfile(cx, file, offset, count),
            Self::Stream(_) => unreachable!("it sends no files"),
        }
    }

    /// Whether files can be sent without being read.
    pub(crate) fn sends_files(self) -> bool {
        match self {
            Self::Http1(link) => link.transport.sends_files(),
            Self::Stream(_) => false,
        }
    }

    /// Holds back packets that are not full.
    pub(crate) fn cork(self) {
        match self {
            Self::Http1(link) => link.transport.cork(),
            Self::Stream(_) => {}
        }
    }

    /// Lets them go.
    pub(crate) fn uncork(self) {
        match self {
            Self::Http1(link) => link.transport.uncork(),
            Self::Stream(_) => {}
        }
    }

    /// Makes small writes leave at once, unless the location does not want that (`tcp_nodelay`). Asked for
    /// where a second write follows a first one; connections of one response are spared the call.
    #[inline]
    pub(crate) fn send_at_once(self, core: &CoreLocation) {
        match self {
            Self::Http1(link) => link.send_at_once(core),
            Self::Stream(_) => {}
        }
    }

    /// Announces that the next write, if it has so many bytes, is the last one: the client may learn that at
    /// once.
    pub(crate) fn end_behind(self, bytes: usize) {
        if let Self::Http1(link) = self
            && let Some(tls) = link.transport.tls()
        {
            tls.end_behind(bytes);
        }
    }

    /// Takes back what connections have of their listening socket, where a location does not want it.
    #[inline]
    pub(crate) fn begin_response(self, core: &CoreLocation) {
        match self {
            Self::Http1(link) => link.begin_response(core),
            Self::Stream(_) => {}
        }
    }
}
