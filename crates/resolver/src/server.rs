//! One name server: the sockets by which it is asked. Its messages are given on as they come; a forger has to
//! guess a port as well, which is why there are several, and none for long.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use clearway_os::outgoing::{self, Carries, Remote};
use clearway_runtime::{Connecting, Datagrams, LoopRef, Socket};

use crate::table::RESEND_MS;
use crate::wire::Via;

/// UDP sockets that are in use at a time.
const PORTS: usize = 4;
/// Queries that one of them sends before another port takes its place.
const QUERIES_PER_PORT: u32 = 1000;
/// Sockets that only wait for answers, at most: older ones are closed.
const OLD_PORTS_MAX: usize = 4;
/// A stream by which nothing could be sent for so long is closed, ms.
const STREAM_MS: u64 = 5000;
/// The most bytes that wait to be sent by a stream; queries beyond that are made again later.
const STREAM_QUEUE_MAX: usize = 64 << 10;
/// Largest datagram that is taken whole, bytes.
pub(crate) const DATAGRAM_MAX: usize = 4096;

/// One name server.
pub(crate) struct Server {
    address: SocketAddr,
    home: LoopRef,
    ports: Vec<Port>,
    /// Ports that have sent enough queries.
    old: Vec<Port>,
    stream: Option<Stream>,
}

struct Port {
    io: Datagrams,
    sent: u32,
    /// When an old one is closed.
    until_ms: u64,
}

struct Stream {
    state: Link,
    out: Vec<u8>,
    input: Vec<u8>,
    until_ms: u64,
}

enum Link {
    Connecting(Connecting),
    Up(Socket),
}

/// The failure of a server.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) call: &'static str,
    pub(crate) error: io::Error,
}

impl Trouble {
    fn new(call: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self { call, error }
    }
}

impl Server {
    pub(crate) fn new(address: SocketAddr, home: LoopRef) -> Self {
        Self { address, home, ports: Vec::new(), old: Vec::new(), stream: None }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends a query, or has a stream send it. Pending: to be called again.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        via: Via,
        query: &[u8],
    ) -> Poll<Result<(), Trouble>> {
        match via {
            Via::Udp => self.poll_send_datagram(cx, query),
            Via::Tcp => Poll::Ready(self.queue(query)),
        }
    }

    fn poll_send_datagram(&mut self, cx: &mut Context<'_>, query: &[u8]) -> Poll<Result<(), Trouble>> {
        let at = usize::from(rand::random::<u8>()) % PORTS;
        if at >= self.ports.len() {
            let port = self.open_port().map_err(Trouble::new("connect()"))?;
            self.ports.push(port);
        }
        let at = at.min(self.ports.len() - 1);
        let sent = std::task::ready!(self.ports[at].io.poll_send(cx, query));
        self.ports[at].sent += 1;
        if sent.is_err() {
            self.ports.swap_remove(at);
        } else if self.ports[at].sent >= QUERIES_PER_PORT {
            let mut port = self.ports.swap_remove(at);
            port.until_ms = self.home.now_ms() + RESEND_MS;
            self.old.push(port);
            let surplus = self.old.len().saturating_sub(OLD_PORTS_MAX);
            self.old.drain(..surplus);
        }
        Poll::Ready(sent.map_err(Trouble::new("send()")))
    }

    fn open_port(&self) -> io::Result<Port> {
        let remote = Remote::Inet(self.address);
        let fd = outgoing::open(&remote, Carries::Datagrams)?;
        outgoing::connect(fd.as_fd(), &remote)?;
        Ok(Port { io: Datagrams::new(self.home, fd), sent: 0, until_ms: u64::MAX })
    }

    /// Gives a query to the stream, which is made if there is none.
    fn queue(&mut self, query: &[u8]) -> Result<(), Trouble> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            none => none.insert(Stream::open(self.address, self.home).map_err(Trouble::new("connect()"))?),
        };
        let len = u16::try_from(query.len()).map_err(|_| io::ErrorKind::InvalidInput.into());
        let len = len.map_err(Trouble::new("send()"))?;
        if stream.out.len() + query.len() <= STREAM_QUEUE_MAX {
            stream.out.extend(len.to_be_bytes());
            stream.out.extend(query);
        }
        Ok(())
    }

    /// Takes what has come, and sends what a stream has to send: `take` is called for each message. Pending
    /// when there is no more for now. After an error the rest goes on with the next call.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
        mut take: impl FnMut(&[u8], Via),
    ) -> Poll<Trouble> {
        let now_ms = self.home.now_ms();
        self.old.retain(|port| port.until_ms > now_ms);
        for ports in [&mut self.ports, &mut self.old] {
            let mut at = 0;
            while let Some(port) = ports.get(at) {
                match port.io.poll_receive(cx, buf) {
                    Poll::Ready(Ok((len, _))) => take(&buf[..len.min(buf.len())], Via::Udp),
                    Poll::Ready(Err(error)) => {
                        ports.swap_remove(at);
                        return Poll::Ready(Trouble { call: "recv()", error });
                    }
                    Poll::Pending => at += 1,
                }
            }
        }
        let Some(stream) = &mut self.stream else { return Poll::Pending };
        let end = std::task::ready!(stream.poll(cx, now_ms, |message| take(message, Via::Tcp)));
        self.stream = None;
        match end {
            Ok(()) => Poll::Pending,
            Err(trouble) => Poll::Ready(trouble),
        }
    }

    /// When something here ends by itself.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let stream = self.stream.iter().map(|stream| stream.until_ms);
        self.old.iter().map(|port| port.until_ms).chain(stream).min()
    }
}

impl Stream {
    fn open(address: SocketAddr, home: LoopRef) -> io::Result<Self> {
        let remote = Remote::Inet(address);
        let fd = outgoing::open(&remote, Carries::Stream)?;
        let state = Link::Connecting(Socket::connect(home, fd, &remote)?);
        Ok(Self { state, out: Vec::new(), input: Vec::new(), until_ms: home.now_ms() + STREAM_MS })
    }

    /// Ready when it is over: the server has closed it, or it was idle for long.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        now_ms: u64,
        take: impl FnMut(&[u8]),
    ) -> Poll<Result<(), Trouble>> {
        if now_ms >= self.until_ms {
            return Poll::Ready(Ok(()));
        }
        if let Link::Connecting(connecting) = &mut self.state {
            let connected = std::task::ready!(Pin::new(connecting).poll(cx));
            self.state = Link::Up(connected.map_err(Trouble::new("connect()"))?);
        }
        let Link::Up(socket) = &self.state else { return Poll::Pending };
        while !self.out.is_empty() {
            match socket.poll_write(cx, &self.out) {
                Poll::Ready(Ok(sent)) => _ = self.out.drain(..sent),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Trouble { call: "send()", error })),
                Poll::Pending => break,
            }
            self.until_ms = now_ms + STREAM_MS;
        }
        self.receive(cx, take)
    }

    fn receive(&mut self, cx: &mut Context<'_>, mut take: impl FnMut(&[u8])) -> Poll<Result<(), Trouble>> {
        let Link::Up(socket) = &self.state else { return Poll::Pending };
        loop {
            self.input.reserve(DATAGRAM_MAX);
            match std::task::ready!(socket.poll_read_vec(cx, &mut self.input)) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Trouble { call: "recv()", error })),
            }
            let mut rest = &self.input[..];
            while let Some((len, behind)) = rest.split_first_chunk::<2>()
                && let Some((message, behind)) = behind.split_at_checked(u16::from_be_bytes(*len).into())
            {
                take(message);
                rest = behind;
            }
            let left = rest.len();
            self.input.drain(..self.input.len() - left);
        }
    }
}
