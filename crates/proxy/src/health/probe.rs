//! One question to a server, and its answer. What is read is bounded: the head by `proxy_buffer_size`, the
//! body by what tests look at.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use clearway_base::Errno;
use clearway_base::log::Discard;
use clearway_h1::{Asked, BodyEvent, Eof, ResponseBody, ResponseParser, ResponseProgress, Trailers};
use clearway_message::Header;
use clearway_net::accept::ConnectionSlot;
use clearway_net::connect::{ConnectOptions, Outbound};
use clearway_os::outgoing::Remote;
use clearway_runtime::{LoopRef, Socket, Timer};
#[cfg(feature = "tls")]
use clearway_upstream::TlsStream;
use clearway_upstream::{Peer, Transport};

use crate::engine;
use crate::settings::health::{Aim, Answered, BODY_MAX_BYTES, Check};

/// What is read at once, bytes.
const READ_BYTES: usize = 16 * 1024;

const CONNECTING: &str = " while connecting to upstream";
const READING: &str = " while reading response from upstream";
const TIMED_OUT: &str = "upstream timed out (110: Connection timed out)";

/// Asks the server, from a task of this loop.
///
/// # Errors
/// What is wrong with it, for the log.
pub(super) async fn ask(
    check: &Check,
    peer: &Peer,
    home: LoopRef,
    kept: &mut Option<Kept>,
) -> Result<(), String> {
    let (Some(connector), Some(times), Some(aim)) = (engine::connector(), check.times.get(), check.aim.get())
    else {
        return Err("no connections can be made".to_owned());
    };
    let mut conversation = Conversation::new(check, times.head_max_bytes);
    let keeps_ms = check.keepalive_ms.unwrap_or(0);
    if let Some(mut before) = kept.take().filter(|kept| home.now_ms() - kept.born_ms < keeps_ms) {
        let talked = before.talk(&mut conversation, aim, (home, times.read_ms)).await;
        if talked.is_ok() || !conversation.has_heard_nothing() {
            return conversation.conclude(check, talked, kept, before);
        }
        // It was closed meanwhile, which says nothing.
        conversation = Conversation::new(check, times.head_max_bytes);
    }
    let config = peer.config();
    let mut remote = config.remote.clone();
    if let (Remote::Inet(address), Some(port)) = (&mut remote, check.port) {
        address.set_port(port);
    }
    let mut connecting = connector.connect(home, &remote, &ConnectOptions::default(), &Discard);
    let connected = within(home, times.connect_ms, |cx| Pin::new(&mut connecting).poll(cx)).await;
    let outbound = match connected {
        None => return Err(format!("{TIMED_OUT}{CONNECTING}")),
        Some(Err(fault)) => return Err(format!("{}{CONNECTING}", fault.describe(&config.name))),
        Some(Ok(outbound)) => outbound,
    };
    let Outbound { socket, slot } = outbound;
    let transport = secure(check, aim, socket, (home, times.connect_ms)).await?;
    let mut made = Kept { transport, _slot: slot, born_ms: home.now_ms() };
    let talked = made.talk(&mut conversation, aim, (home, times.read_ms)).await;
    conversation.conclude(check, talked, kept, made)
}

/// A connection on which a server may be asked again (`keepalive_time`).
pub(super) struct Kept {
    transport: Transport,
    _slot: ConnectionSlot,
    born_ms: u64,
}

impl Kept {
    async fn talk(
        &mut self,
        conversation: &mut Conversation,
        aim: &Aim,
        (home, time_ms): (LoopRef, u64),
    ) -> Result<(), String> {
        let talked = within(home, time_ms, |cx| conversation.poll(&mut self.transport, &aim.head, cx)).await;
        match talked {
            None => {
                conversation.is_timed_out = true;
                Err(format!("{TIMED_OUT}{READING}"))
            }
            Some(talked) => talked.map_err(|fault| format!("{fault}{READING}")),
        }
    }
}

/// Makes a connection one with TLS, where the server speaks it.
#[cfg(feature = "tls")]
async fn secure(
    check: &Check,
    aim: &Aim,
    socket: Socket,
    (home, time_ms): (LoopRef, u64),
) -> Result<Transport, String> {
    const HANDSHAKING: &str = " while SSL handshaking to upstream";
    let Some(tls) = check.tls.get() else { return Ok(Transport::Plain(socket)) };
    let name = engine::without_port(tls.name.as_ref().unwrap_or(&aim.host));
    let session = engine::begin_check(&tls.server, Some(name).filter(|_| tls.tells_name))?;
    let mut stream = TlsStream::new(socket, session);
    match within(home, time_ms, |cx| stream.poll_handshake(cx)).await {
        None => return Err(format!("{TIMED_OUT}{HANDSHAKING}")),
        Some(Err(fault)) => return Err(format!("{fault}{HANDSHAKING}")),
        Some(Ok(())) if tls.verifies => engine::check_certificate(stream.session(), name)?,
        Some(Ok(())) => {}
    }
    Ok(Transport::Tls(stream))
}

/// A build without TLS passes no request on with it.
#[cfg(not(feature = "tls"))]
#[expect(clippy::unused_async, reason = "where there is TLS it waits")]
async fn secure(_: &Check, _: &Aim, socket: Socket, _: (LoopRef, u64)) -> Result<Transport, String> {
    Ok(Transport::Plain(socket))
}

/// `None`: it was not ready in time.
async fn within<T>(
    home: LoopRef,
    time_ms: u64,
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Option<T> {
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + time_ms);
    poll_fn(|cx| match poll(cx) {
        Poll::Ready(found) => Poll::Ready(Some(found)),
        Poll::Pending => timer.poll_expired(cx).map(|()| None),
    })
    .await
}

/// What was sent and received so far.
struct Conversation {
    sent_bytes: usize,
    input: Vec<u8>,
    parser: ResponseParser,
    head_max_bytes: usize,
    head: Vec<u8>,
    lines: Vec<Header>,
    /// There when the head is.
    body: Option<ResponseBody>,
    text: Vec<u8>,
    reads_body: bool,
    is_timed_out: bool,
}

impl Conversation {
    fn new(check: &Check, head_max_bytes: usize) -> Self {
        Self {
            sent_bytes: 0,
            input: Vec::new(),
            parser: ResponseParser::default(),
            head_max_bytes: head_max_bytes.max(1),
            head: Vec::new(),
            lines: Vec::new(),
            body: None,
            text: Vec::new(),
            reads_body: check.reads_body() || check.keepalive_ms.is_some(),
            is_timed_out: false,
        }
    }

    /// Whether the server closed the connection before it has said anything.
    fn has_heard_nothing(&self) -> bool {
        self.input.is_empty() && self.head.is_empty() && !self.is_timed_out
    }

    /// What has come of it; a connection that can be used again is kept.
    fn conclude(
        &self,
        check: &Check,
        talked: Result<(), String>,
        kept: &mut Option<Kept>,
        mut used: Kept,
    ) -> Result<(), String> {
        let is_whole = self.input.is_empty() && self.body.as_ref().is_some_and(ResponseBody::is_done);
        if check.keepalive_ms.is_some() && talked.is_ok() && is_whole && self.parser.keeps_alive() {
            *kept = Some(used);
        } else {
            used.transport.close();
        }
        talked?;
        let answer = self.answer();
        match check.find_fault(&answer) {
            None => Ok(()),
            Some("status") => Err(format!("unexpected status {}", answer.status)),
            Some(what) => Err(format!("unexpected {what} of response")),
        }
    }

    fn answer(&self) -> Answered<'_> {
        let Self { parser, head, lines, text, .. } = self;
        Answered { status: parser.status(), head, lines, body: text }
    }

    /// Ready when all has come that is looked at.
    fn poll(
        &mut self,
        transport: &mut Transport,
        request: &[u8],
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), String>> {
        while self.sent_bytes < request.len() {
            match transport.poll_write(cx, &request[self.sent_bytes..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(size)) => self.sent_bytes += size,
                // It may have answered before it has closed.
                Poll::Ready(Err(_)) => self.sent_bytes = request.len(),
            }
        }
        loop {
            self.input.reserve(READ_BYTES);
            let size = match ready!(transport.poll_read_vec(cx, &mut self.input)) {
                Ok(size) => size,
                Err(error) => return Poll::Ready(Err(format!("recv() failed {}", Errno(&error)))),
            };
            let is_over = match size {
                0 => self.end(),
                _ => self.take(),
            };
            match is_over {
                Ok(false) => {}
                Ok(true) => return Poll::Ready(Ok(())),
                Err(fault) => return Poll::Ready(Err(fault)),
            }
        }
    }

    /// The server has closed the connection.
    fn end(&self) -> Result<bool, String> {
        match self.body.as_ref().map(ResponseBody::eof) {
            Some(Eof::Complete) => Ok(true),
            _ => Err("upstream prematurely closed connection".to_owned()),
        }
    }

    /// Takes what was received; whether that is all.
    fn take(&mut self) -> Result<bool, String> {
        while self.body.is_none() {
            let progress = self.parser.parse(&self.input, self.head_max_bytes);
            match progress.map_err(|fault| self.parser.describe(fault, &self.input).to_string())? {
                ResponseProgress::Incomplete => return Ok(false),
                ResponseProgress::Interim => {
                    let len = self.parser.next_head();
                    self.input.drain(..len);
                }
                ResponseProgress::Headless => return Err(ResponseParser::NO_HEADER.to_owned()),
                ResponseProgress::Final => {
                    let len = self.parser.len();
                    self.head = self.input.drain(..len).collect();
                    self.lines = self.parser.take_lines();
                    self.body = Some(ResponseBody::new(self.parser.framing(Asked::Whole), Trailers::Dropped));
                }
            }
        }
        if !self.reads_body {
            return Ok(true);
        }
        self.take_body().map_err(str::to_owned)
    }

    fn take_body(&mut self) -> Result<bool, &'static str> {
        let Some(body) = &mut self.body else { return Ok(false) };
        loop {
            let decoded = match body.decode(&self.input) {
                Ok(decoded) => decoded,
                Err(fault) => return Err(fault.message()),
            };
            let is_over = match decoded.event {
                BodyEvent::Data(range) => {
                    let room = BODY_MAX_BYTES - self.text.len();
                    let data = &self.input[range];
                    self.text.extend_from_slice(&data[..data.len().min(room)]);
                    (self.text.len() == BODY_MAX_BYTES).then_some(true)
                }
                BodyEvent::NeedInput => Some(false),
                BodyEvent::End => Some(true),
            };
            self.input.drain(..decoded.consumed);
            if let Some(is_over) = is_over {
                return Ok(is_over);
            }
        }
    }
}
