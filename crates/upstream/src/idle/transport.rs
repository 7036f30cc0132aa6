//! Where the bytes of a connection to a server come from and go to: a plain socket, or one with TLS before
//! it, which costs plain ones a branch per call.
//!
//! Its methods promise the same as those of [`Socket`], for the bytes of the request and the response:
//! 1. Ready to read means that a read may succeed now: the socket has something, or what was read ahead is
//!    still there. A reader that has read less than there was is told again.
//! 2. Quiet means that neither the socket nor what was read ahead holds anything.
//! 3. A transport moves to another loop only while it is quiet.
//! 4. Bytes count as acknowledged when the peer's kernel has acknowledged all that they became on the wire.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, Waker};

use clearway_os::tcp;
use clearway_runtime::{LoopRef, Probe, Socket};

use super::tls::TlsStream;

/// The transport of one connection to a server.
pub enum Transport {
    /// A socket, with nothing between it and the bytes.
    Plain(Socket),
    /// A socket whose bytes are TLS.
    Tls(Box<TlsStream>),
    /// No socket at all.
    #[cfg(feature = "testing")]
    Memory(clearway_net::memory::MemoryEnd),
}

/// Functions for a request.
#[expect(missing_docs, clippy::missing_errors_doc, reason = "they are the socket's")]
impl Transport {
    #[inline]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(socket) => socket.poll_readable(cx),
            Self::Tls(stream) => stream.poll_readable(cx),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_readable(cx),
        }
    }

    #[inline]
    pub fn poll_read_vec(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_read_vec(cx, buf),
            Self::Tls(stream) => stream.poll_read_vec(cx, buf),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_read_vec(cx, buf),
        }
    }

    #[inline]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write(cx, buf),
            Self::Tls(stream) => stream.poll_write(cx, &[IoSlice::new(buf)]),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_write_vectored(cx, &[IoSlice::new(buf)]),
        }
    }

    #[inline]
    pub fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_write_vectored(cx, bufs),
            Self::Tls(stream) => stream.poll_write(cx, bufs),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_write_vectored(cx, bufs),
        }
    }

    #[inline]
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => socket.poll_closed(cx),
            Self::Tls(stream) => stream.socket.poll_closed(cx),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_closed(cx),
        }
    }

    /// The socket below.
    #[must_use]
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.socket,
            #[cfg(feature = "testing")]
            Self::Memory(_) => unreachable!("it has none"),
        }
    }

    /// TLS, where there is any.
    pub fn tls_mut(&mut self) -> Option<&mut TlsStream> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(stream) => Some(stream),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }

    /// Nothing follows: the server is told so where that is not said by the socket's end alone.
    pub fn close(&mut self) {
        if let Self::Tls(stream) = self {
            stream.close();
        }
    }

    /// How many of the bytes that were sent the server's kernel has acknowledged.
    pub fn acknowledged_bytes(&self) -> io::Result<u64> {
        match self {
            Self::Plain(socket) => tcp::acknowledged_bytes(socket),
            Self::Tls(stream) => tcp::acknowledged_bytes(&stream.socket).map(|wire| stream.content_of(wire)),
            #[cfg(feature = "testing")]
            Self::Memory(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Functions for an idle connection.
#[expect(missing_docs, clippy::missing_errors_doc, reason = "they are the socket's")]
impl Transport {
    /// The request that used it is over, and nothing is left of its response.
    pub fn note_idle(&mut self) {
        if let Self::Tls(stream) = self {
            stream.note_idle();
        }
    }

    /// Whether nothing has come, as far as the loop has learned.
    #[inline]
    pub fn is_quiet(&self) -> bool {
        match self {
            Self::Plain(socket) => is_silent(socket),
            Self::Tls(stream) => stream.is_quiet(),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.probe() == Probe::Quiet,
        }
    }

    #[must_use]
    pub fn probe(&self) -> Probe {
        match self {
            Self::Plain(socket) => socket.probe(),
            Self::Tls(stream) => stream.socket.probe(),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.probe(),
        }
    }

    pub fn move_to(&mut self, home: LoopRef) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.move_to(home),
            Self::Tls(stream) => stream.socket.move_to(home),
            #[cfg(feature = "testing")]
            Self::Memory(end) => {
                end.move_to(home);
                Ok(())
            }
        }
    }

    pub fn watch(&self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.watch(),
            Self::Tls(stream) => stream.socket.watch(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => Ok(()),
        }
    }

    pub fn watch_idle(&self, waker: &Waker) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.watch_idle(waker),
            Self::Tls(stream) => stream.socket.watch_idle(waker),
            #[cfg(feature = "testing")]
            Self::Memory(end) => {
                end.watch_idle(waker);
                Ok(())
            }
        }
    }

    #[inline]
    pub fn offer(&self) {
        match self {
            Self::Plain(socket) => socket.offer(),
            Self::Tls(stream) => stream.socket.offer(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    #[inline]
    #[must_use]
    pub fn take_back(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.take_back(),
            Self::Tls(stream) => stream.socket.take_back(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => true,
        }
    }

    #[must_use]
    pub fn is_reclaimed(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.is_reclaimed(),
            Self::Tls(stream) => stream.socket.is_reclaimed(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => false,
        }
    }
}

/// Whether nothing has come on a socket, as far as the loop has learned. What it learned last may be of bytes
/// that the response before ended with, where those were read as many as they were: the kernel knows.
#[inline]
pub(super) fn is_silent(socket: &Socket) -> bool {
    !socket.has_ended() && (!socket.has_unread() || socket.probe() == Probe::Quiet)
}
