//! A connection that is being made: a future. Dropping it gives the connection up. How long it may take is
//! for its task to say, with a timer.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use clearway_os::outgoing::{self, Progress, Remote};
use clearway_os::socket as sys;

use crate::LoopRef;
use crate::io::socket::Socket;
use crate::io::watched::{Origin, Watched};

/// A connection that is being made: a future, not to be polled after it was ready.
#[must_use = "a future that nobody polls connects, but never says so"]
pub struct Connecting {
    socket: Option<Socket>,
    progress: Progress,
}

impl Socket {
    /// Begins to connect a nonblocking socket (`clearway_os::outgoing::open`), which `home` watches.
    ///
    /// # Errors
    /// As connect(2), where it fails at once: a unix socket that nobody listens on, or whose queue is full
    /// (WouldBlock), no route. What comes later is what the future returns.
    pub fn connect(home: LoopRef, fd: OwnedFd, remote: &Remote) -> io::Result<Connecting> {
        let progress = outgoing::connect(fd.as_fd(), remote)?;
        let io = Watched::new(home, fd, Origin::Own);
        Ok(Connecting { socket: Some(Self { io }), progress })
    }
}

impl Future for Connecting {
    type Output = io::Result<Socket>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        let this = self.get_mut();
        let socket = this.socket.as_ref().expect("polled until it is ready");
        if this.progress == Progress::UnderWay {
            ready!(socket.io.poll_writable(cx))?;
            sys::take_error(socket.as_fd())?;
        }
        Poll::Ready(this.socket.take().ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}
