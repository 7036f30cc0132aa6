//! A connection that carries HTTP/1: its client, the configuration that answers its next request, and the
//! link that carries it.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_http::{Client, Http1Link, Listener, Parts, Setup, Transport, failure_level};
use clearway_net::PeerAddr;
use clearway_runtime::LoopRef;
use clearway_tls::stream::TlsError;

/// A connection.
pub(crate) struct Conn {
    /// The client.
    pub(crate) client: Client,
    /// The generation for the next request; exchanged between requests.
    pub(crate) setup: Arc<Setup>,
    /// The link that carries the requests.
    pub(crate) link: Http1Link,
}

impl Conn {
    /// A connection that was accepted on `home`.
    pub(crate) fn new(listener: Arc<Listener>, home: LoopRef, transport: Transport, peer: PeerAddr) -> Self {
        let link = Http1Link::new(transport);
        let setup = listener.published(|| link.transport.local_address());
        Self { client: Client::new(listener, home, peer), setup, link }
    }

    /// Empty buffers for a request.
    pub(crate) fn take_parts(&self) -> Box<Parts> {
        self.client.take_parts(&self.setup)
    }

    /// Makes another loop its home.
    ///
    /// # Errors
    /// The socket cannot be registered there; nothing has changed then.
    pub(crate) fn move_to(&mut self, there: LoopRef) -> io::Result<()> {
        self.link.move_to(there)?;
        self.client.home = there;
        Ok(())
    }

    /// Takes the generation that is published.
    #[inline]
    pub(crate) fn renew(&mut self) {
        if self.setup.is_outdated(self.client.listener()) {
            self.take_published();
        }
    }

    #[cold]
    fn take_published(&mut self) {
        let transport = &self.link.transport;
        self.setup = self.client.listener().published(|| transport.local_address());
    }

    /// Writes a line about the connection where there is no request to tell more.
    pub(crate) fn log(&self, level: Level, action: &str, message: std::fmt::Arguments<'_>) {
        self.client.log(&self.setup, level, action, message);
    }

    /// Whether it is to be closed at once, whatever goes on.
    #[inline]
    pub(crate) fn closes(&self) -> bool {
        self.client.listener().closes(self.setup.generation())
    }

    /// Says that the client has closed the connection, or how reading has failed.
    pub(crate) fn log_closed(&self, action: &str, result: io::Result<usize>) {
        let served = self.link.served();
        match result {
            Err(error) if served > 0 && error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => match TlsError::find(&error) {
                Some(error) => self.log(failure_level(error.failure()), action, format_args!("{error}")),
                None => self.log(Level::Info, action, format_args!("recv() failed {}", Errno(&error))),
            },
            Ok(_) if served > 0 => {
                let message = format_args!("client {} closed keepalive connection", self.client.peer());
                self.client.log_plain(&self.setup, Level::Info, message);
            }
            Ok(_) => self.log(Level::Info, action, format_args!("client closed connection")),
        }
    }

    /// Reads behind what is there; `None` when the timer fires first.
    pub(crate) fn poll_read(
        &self,
        buf: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<usize>>> {
        match self.link.transport.poll_read_vec(cx, buf) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => self.link.timer.poll_expired(cx).map(|()| None),
        }
    }
}
