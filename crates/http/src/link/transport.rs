//! Where the bytes of a connection come from and go to: a socket, with TLS between it and the bytes or
//! without. What lives in memory for tests is another kind. Used by the connection's task, and by the one
//! request that it runs. A plain connection pays one branch for each call, which goes the same way each time.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use clearway_os::socket as sys;
use clearway_os::tcp::{self, TcpInfo};
use clearway_runtime::{LoopRef, Socket, Woken};

use super::tls::Tls;

/// The bytes of one connection, in both directions. What its methods promise is what [`Socket`]'s do.
pub enum Transport {
    /// A socket.
    Socket {
        /// The socket.
        socket: Socket,
        /// The TLS session, from the end of a handshake on.
        tls: Option<Box<Tls>>,
    },
    /// No socket at all.
    #[cfg(feature = "testing")]
    Memory(clearway_net::memory::MemoryEnd),
}

impl Drop for Transport {
    /// A client with TLS is told that nothing follows.
    #[inline]
    fn drop(&mut self) {
        if let Self::Socket { socket, tls: Some(tls) } = self {
            tls.close(socket);
        }
    }
}

/// TLS.
impl Transport {
    /// A socket, with nothing between it and the bytes.
    pub fn plain(socket: Socket) -> Self {
        Self::Socket { socket, tls: None }
    }

    /// The TLS session, if there is one.
    #[inline]
    pub fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Socket { tls, .. } => tls.as_deref(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }

    /// Encrypts all later bytes.
    pub fn encrypt(&mut self, by: Box<Tls>) {
        match self {
            Self::Socket { tls, .. } => {
                debug_assert!(tls.is_none(), "a connection is encrypted once");
                *tls = Some(by);
            }
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    /// Takes the TLS session away, if there was one.
    pub(crate) fn take_tls(&mut self) -> Option<Box<Tls>> {
        match self {
            Self::Socket { tls, .. } => tls.take(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }
}

/// Reading, and what is known of the peer.
#[expect(missing_docs, reason = "they are the socket's")]
impl Transport {
    #[inline]
    pub fn home(&self) -> LoopRef {
        match self {
            Self::Socket { socket, .. } => socket.home(),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.home(),
        }
    }

    pub fn move_to(&mut self, there: LoopRef) -> io::Result<()> {
        match self {
            Self::Socket { tls: Some(tls), .. } if tls.has_buffered() => {
                Err(io::ErrorKind::ResourceBusy.into())
            }
            Self::Socket { socket, .. } => socket.move_to(there),
            #[cfg(feature = "testing")]
            Self::Memory(end) => {
                end.move_to(there);
                Ok(())
            }
        }
    }

    pub fn may_have_data(&self) -> bool {
        match self {
            Self::Socket { socket, tls: None } => socket.may_have_data(),
            Self::Socket { tls: Some(_), .. } => true,
            #[cfg(feature = "testing")]
            Self::Memory(_) => true,
        }
    }

    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Socket { tls: Some(tls), .. } if tls.has_buffered() => Poll::Ready(()),
            Self::Socket { socket, .. } => socket.poll_readable(cx),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_readable(cx),
        }
    }

    #[inline]
    pub fn poll_readable_or_reclaimed(&self, cx: &mut Context<'_>, from_ms: u64) -> Poll<Woken> {
        match self {
            Self::Socket { tls: Some(tls), .. } if tls.has_buffered() => Poll::Ready(Woken::Readable),
            Self::Socket { socket, .. } => socket.poll_readable_or_reclaimed(cx, from_ms),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_readable(cx).map(|()| Woken::Readable),
        }
    }

    #[inline]
    pub fn poll_read_vec(&self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket { socket, tls: None } => socket.poll_read_vec(cx, buf),
            Self::Socket { socket, tls: Some(tls) } => tls.poll_read_vec(socket, cx, buf),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_read_vec(cx, buf),
        }
    }

    pub fn try_read_vec(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        match self {
            Self::Socket { socket, tls: None } => socket.try_read_vec(buf),
            Self::Socket { socket, tls: Some(tls) } => tls.try_read_vec(socket, buf),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.try_read_vec(buf),
        }
    }

    pub fn has_unread(&self) -> bool {
        match self {
            Self::Socket { tls: Some(tls), .. } if tls.has_buffered() => true,
            Self::Socket { socket, .. } => socket.has_unread(),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.has_unread(),
        }
    }

    pub fn has_ended(&self) -> bool {
        match self {
            Self::Socket { socket, .. } => socket.has_ended(),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.has_ended(),
        }
    }

    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Socket { socket, .. } => socket.poll_closed(cx),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_closed(cx),
        }
    }

    pub fn local_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Socket { socket, .. } => sys::local_address(socket),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }

    pub fn tcp_info(&self) -> Option<TcpInfo> {
        match self {
            Self::Socket { socket, .. } => tcp::info(socket).ok(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }
}

/// Writing.
#[expect(missing_docs, reason = "they are the socket's")]
impl Transport {
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Socket { socket, .. } => socket.is_writable(),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.is_writable(),
        }
    }

    #[inline]
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket { socket, tls: None } => socket.poll_write(cx, bytes),
            Self::Socket { socket, tls: Some(tls) } => tls.poll_write(socket, cx, &[IoSlice::new(bytes)]),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_write_vectored(cx, &[IoSlice::new(bytes)]),
        }
    }

    pub fn poll_write_more(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket { socket, tls: None } => socket.poll_write_more(cx, bytes),
            Self::Socket { socket, tls: Some(tls) } => tls.poll_write(socket, cx, &[IoSlice::new(bytes)]),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_write_vectored(cx, &[IoSlice::new(bytes)]),
        }
    }

    pub fn poll_write_vectored(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket { socket, tls: None } => socket.poll_write_vectored(cx, pieces),
            Self::Socket { socket, tls: Some(tls) } => tls.poll_write(socket, cx, pieces),
            #[cfg(feature = "testing")]
            Self::Memory(end) => end.poll_write_vectored(cx, pieces),
        }
    }

    /// Only where [files are sent](Self::sends_files).
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Socket { socket, tls } => {
                assert!(tls.is_none(), "a file would leave as it is beside what is encrypted");
                socket.poll_sendfile(cx, file, offset, count)
            }
            #[cfg(feature = "testing")]
            Self::Memory(_) => unreachable!("it sends no files"),
        }
    }

    /// Whether files can be sent without being read.
    pub fn sends_files(&self) -> bool {
        match self {
            Self::Socket { tls, .. } => tls.is_none(),
            #[cfg(feature = "testing")]
            Self::Memory(_) => false,
        }
    }

    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Socket { socket, tls } => {
                if let Some(tls) = tls {
                    tls.close(socket);
                }
                socket.shutdown_write()
            }
            #[cfg(feature = "testing")]
            Self::Memory(end) => {
                end.shutdown_write();
                Ok(())
            }
        }
    }

    /// The socket, if it is one.
    pub fn socket_fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Socket { socket, .. } => Some(socket.as_fd()),
            #[cfg(feature = "testing")]
            Self::Memory(_) => None,
        }
    }

    /// Has the kernel keep nothing of the connection when it is closed.
    pub fn reset_on_close(&self) {
        match self {
            Self::Socket { socket, .. } => sys::reset_on_close(socket.as_fd()),
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    pub fn cork(&self) {
        match self {
            Self::Socket { socket, .. } => sys::cork(socket.as_fd()),
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    pub fn uncork(&self) {
        match self {
            Self::Socket { socket, .. } => sys::uncork(socket.as_fd()),
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    pub fn set_nodelay(&self) {
        match self {
            Self::Socket { socket, .. } => sys::set_nodelay(socket.as_fd()),
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }

    pub fn clear_nodelay(&self) {
        match self {
            Self::Socket { socket, .. } => sys::clear_nodelay(socket.as_fd()),
            #[cfg(feature = "testing")]
            Self::Memory(_) => {}
        }
    }
}
