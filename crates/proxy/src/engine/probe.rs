//! One question to a server whether it is well, and its answer: a request of no client in the location of the
//! check, told to one server as that of a client would be. What is read is bounded: the head by the family's
//! `…_buffer_size`, the body by what tests look at. Runs in the task of the check, on its loop.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use clearway_base::Errno;
use clearway_base::log::{Discard, Level};
use clearway_h1::{BodyEvent, ResponseParser};
use clearway_http::{
    Active, Answer, Client, Exchange, Generation, Link, Listener, NoHead, Request, Strands, Stream, Way,
};
use clearway_message::Header;
use clearway_net::PeerAddr;
use clearway_net::accept::ConnectionSlot;
use clearway_net::connect::{ConnectOptions, Outbound};
use clearway_os::outgoing::Remote;
use clearway_runtime::{LoopRef, Timer};
use clearway_upstream::{Group, GroupConfig, Peer, Transport};

use crate::attempts::{Attempt, Attempts, KeptHead, Lines, PeerName};
use crate::engine::application::{FastCgiPass, ScgiPass, UwsgiPass};
use crate::engine::ask::Proxy;
use crate::engine::asked::{AskedBody, Family, Where};
use crate::engine::connect::connector;
use crate::engine::memcached::MemcachedPass;
use crate::engine::protocol::{Eof, HeadProgress, Persistence, Protocol, Say, TrailerUse, Wanted};
use crate::engine::secure::{self, Secure};
use crate::settings::health::{Answered, Asks, BODY_MAX_BYTES, Check, find_unmet};
use crate::upstreams::Choice;

/// Bytes read at once.
const READ_BYTES: usize = 16 * 1024;

const CONNECTING: &str = " while connecting to upstream";
const READING: &str = " while reading response from upstream";
const TIMED_OUT: &str = "upstream timed out (110: Connection timed out)";

/// The question, and the server. The request goes on a connection that was kept, if there is one.
pub(crate) struct Question<'q> {
    pub(crate) check: &'q Check,
    pub(crate) peer: &'q Arc<Peer>,
    pub(crate) home: LoopRef,
    pub(crate) kept: &'q mut Option<Kept>,
}

/// Asks the server, from a task of its loop, as the check's location in this generation says.
///
/// # Errors
/// What is wrong with it, for the log.
pub(crate) async fn ask(question: Question<'_>, generation: Arc<Generation>) -> Result<(), String> {
    let (check, home) = (question.check, question.home);
    let (server, location) = check.place;
    let sockets = generation.parts().snapshot.sockets();
    let is_of_server = |at: &usize| {
        let socket = &sockets[*at];
        (0..socket.address_count()).any(|address| socket.address(address).default_server == server)
    };
    let socket = (0..sockets.len()).find(is_of_server).unwrap_or(0);
    let listener = Arc::new(Listener::new(generation, socket));
    let setup = listener.published(|| None);
    let client = Client::new(listener, home, PeerAddr::Unix);
    let stream = Stream::internal(home);
    let mut parts = client.take_parts(&setup);
    // As in the commercial nginx most variables about a client are empty: it has not even named a host.
    for part in [&b"GET "[..], &check.uri, b" HTTP/1.0\r\n\r\n"] {
        parts.input.extend_from_slice(part);
    }
    let way = Way { client: &client, setup: &setup, link: Link::Stream(&stream) };
    let strands = Strands::default();
    let mut active = Active::new(way, &strands, &mut parts, 0, 1);
    let found = {
        let mut asking = pin!(async {
            let unmade = |_: NoHead| "no request can be made of the \"uri\"".to_owned();
            active.enter(server, location).await.map_err(unmade)?;
            let exchange = active.exchange();
            let Some(aim) = check.aim.get() else { return Ok(()) };
            match aim.protocol {
                Asks::Http => talk::<Proxy>(exchange, question).await,
                Asks::FastCgi => talk::<FastCgiPass>(exchange, question).await,
                Asks::Scgi => talk::<ScgiPass>(exchange, question).await,
                Asks::Uwsgi => talk::<UwsgiPass>(exchange, question).await,
                Asks::Memcached => talk::<MemcachedPass>(exchange, question).await,
            }
        });
        poll_fn(|cx| strands.poll_beside(asking.as_mut(), cx)).await
    };
    active.end();
    drop(active);
    client.put_back(parts);
    found
}

/// Asks as requests of a family are asked.
async fn talk<F: Family>(mut exchange: Exchange<'_, '_>, question: Question<'_>) -> Result<(), String> {
    let Question { check, peer, home, kept } = question;
    let unmade = |_: Answer| "no request can be made".to_owned();
    let Where { mut target, .. } = F::evaluate(&exchange).map_err(unmade)?;
    F::ask_for(&mut target, &check.uri);
    F::describe(&mut exchange, &mut target, &AskedBody::None).map_err(unmade)?;
    let pass = F::pass(exchange.request);
    let tls = match F::tls_host(&target) {
        Some(host) => Some(secure::prepare(&exchange, pass, host).map_err(unmade)?),
        None => None,
    };
    let nobody = Arc::new(Group::new(GroupConfig::default(), 1));
    let made = F::begin(&mut exchange, (target, Choice::among(nobody)), AskedBody::None);
    let (asked, protocol) = made.map_err(unmade)?;
    let attempt = Attempt { peer: PeerName::Peer(Arc::clone(peer)), ..Attempt::default() };
    Attempts::of_mut(exchange.request).list.push(attempt);
    exchange.request.set_upstream(Attempts::write_url);
    let head_max_bytes = usize::try_from(*pass.buffer_bytes).unwrap_or(usize::MAX).max(1);
    let mut conversation = Conversation {
        request: asked.head,
        sent_bytes: 0,
        input: Vec::new(),
        protocol,
        head_max_bytes,
        head: None,
        text: Vec::new(),
        reads_body: check.reads_body() || check.keepalive_ms.is_some(),
        is_timed_out: false,
    };
    let read = (home, *pass.read_timeout_ms);
    let keeps_ms = check.keepalive_ms.unwrap_or(0);
    if let Some(mut before) = kept.take().filter(|kept| home.now_ms() - kept.born_ms < keeps_ms) {
        let talked = before.talk(&mut conversation, exchange.request, read).await;
        if talked.is_ok() || !conversation.has_heard_nothing() {
            return conversation.conclude((check, &mut exchange), talked, (kept, before));
        }
        // The connection was closed meanwhile, which says nothing about the server.
        conversation.start_over();
    }
    let mut made = connect(check, peer, (home, *pass.connect_timeout_ms)).await?;
    if let Some(tls) = tls {
        made = made.secure(tls, exchange.request, (home, *pass.connect_timeout_ms)).await?;
    }
    let talked = made.talk(&mut conversation, exchange.request, read).await;
    conversation.conclude((check, &mut exchange), talked, (kept, made))
}

async fn connect(check: &Check, peer: &Peer, (home, time_ms): (LoopRef, u64)) -> Result<Kept, String> {
    let connector = connector().ok_or_else(|| "no connections can be made".to_owned())?;
    let config = peer.config();
    let mut remote = config.remote.clone();
    if let (Remote::Inet(address), Some(port)) = (&mut remote, check.port) {
        address.set_port(port);
    }
    let mut connecting = connector.connect(home, &remote, &ConnectOptions::default(), &Discard);
    let connected = within(home, time_ms, |cx| Pin::new(&mut connecting).poll(cx)).await;
    match connected {
        None => Err(format!("{TIMED_OUT}{CONNECTING}")),
        Some(Err(fault)) => Err(format!("{}{CONNECTING}", fault.describe(&config.name))),
        Some(Ok(Outbound { socket, slot })) => {
            Ok(Kept { transport: Transport::Plain(socket), slot, born_ms: home.now_ms() })
        }
    }
}

/// A connection on which a server may be asked again (`keepalive_time`).
pub(crate) struct Kept {
    transport: Transport,
    slot: ConnectionSlot,
    born_ms: u64,
}

impl Kept {
    /// Makes a connection one with TLS.
    async fn secure(
        self,
        mut tls: Box<Secure<'_>>,
        request: &Request<'_>,
        (home, time_ms): (LoopRef, u64),
    ) -> Result<Self, String> {
        const HANDSHAKING: &str = " while SSL handshaking to upstream";
        tls.load(request).await.map_err(|_| "no certificate can be shown".to_owned())?;
        let Self { transport: Transport::Plain(socket), slot, born_ms } = self else { return Ok(self) };
        let mut shaking = tls.shake_hands(socket)?;
        match within(home, time_ms, |cx| shaking.poll(cx)).await {
            None => Err(format!("{TIMED_OUT}{HANDSHAKING}")),
            Some(Err(fault)) => Err(format!("{fault}{HANDSHAKING}")),
            Some(Ok(())) => Ok(Self { transport: shaking.finish(&tls)?, slot, born_ms }),
        }
    }

    async fn talk<P: Protocol>(
        &mut self,
        conversation: &mut Conversation<P>,
        request: &Request<'_>,
        (home, time_ms): (LoopRef, u64),
    ) -> Result<(), String> {
        let mut say = |level: Level, text: std::fmt::Arguments<'_>| request.log(level, text);
        let transport = &mut self.transport;
        let talked = within(home, time_ms, |cx| conversation.poll(transport, &mut say, cx)).await;
        match talked {
            None => {
                conversation.is_timed_out = true;
                Err(format!("{TIMED_OUT}{READING}"))
            }
            Some(talked) => talked.map_err(|fault| format!("{fault}{READING}")),
        }
    }
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

/// The bytes that were sent and received so far.
struct Conversation<P> {
    request: Vec<u8>,
    sent_bytes: usize,
    input: Vec<u8>,
    protocol: P,
    head_max_bytes: usize,
    /// There when it is complete: its bytes and its lines.
    head: Option<(Vec<u8>, Vec<Header>)>,
    text: Vec<u8>,
    reads_body: bool,
    is_timed_out: bool,
}

impl<P: Protocol> Conversation<P> {
    /// Whether the server closed the connection before it has said anything.
    fn has_heard_nothing(&self) -> bool {
        self.input.is_empty() && self.head.is_none() && !self.is_timed_out
    }

    /// Asks the same on another connection.
    fn start_over(&mut self) {
        debug_assert!(self.head.is_none() && self.text.is_empty(), "nothing was heard");
        self.sent_bytes = 0;
        self.input.clear();
        self.protocol.reset();
    }

    /// Ends the question; a connection that can be used again is kept.
    fn conclude(
        mut self,
        (check, exchange): (&Check, &mut Exchange<'_, '_>),
        talked: Result<(), String>,
        (kept, mut used): (&mut Option<Kept>, Kept),
    ) -> Result<(), String> {
        let is_whole = self.input.is_empty() && self.head.is_some() && self.protocol.is_done();
        let stays = self.protocol.persistence() == Persistence::Stays;
        if check.keepalive_ms.is_some() && talked.is_ok() && is_whole && stays {
            debug_assert!(kept.is_none(), "one connection is kept");
            *kept = Some(used);
        } else {
            used.transport.close();
        }
        talked?;
        let (head, lines) = self.head.take().unwrap_or_default();
        let status = self.protocol.status();
        let answer = Answered { status, head: &head, lines: &lines, body: &self.text };
        match check.find_fault(&answer) {
            None => {}
            Some("status") => return Err(format!("unexpected status {status}")),
            Some(what) => return Err(format!("unexpected {what} of response")),
        }
        let attempts = Attempts::of_mut(exchange.request);
        attempts.last().status = status;
        attempts.head = Some(KeptHead { bytes: head.into(), lines: Lines::Own(lines) });
        match find_unmet(check.place, &exchange.view()) {
            None => Ok(()),
            Some(name) => Err(format!("required \"{name}\" is empty or 0")),
        }
    }

    /// Ready when all has come that is looked at.
    fn poll(
        &mut self,
        transport: &mut Transport,
        say: Say<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), String>> {
        while self.sent_bytes < self.request.len() {
            match transport.poll_write(cx, &self.request[self.sent_bytes..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(size)) => {
                    self.sent_bytes += size;
                    assert!(self.sent_bytes <= self.request.len(), "a socket takes no more than it is given");
                }
                // The server may have answered before it closed.
                Poll::Ready(Err(_)) => self.sent_bytes = self.request.len(),
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
                _ => self.take(size, say),
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
        match self.head.as_ref().map(|_| self.protocol.eof()) {
            Some(Eof::Complete) => Ok(true),
            _ => Err("upstream prematurely closed connection".to_owned()),
        }
    }

    /// Takes the last bytes that were received; whether that is all.
    fn take(&mut self, size: usize, say: Say<'_>) -> Result<bool, String> {
        assert!(size <= self.input.len(), "what was read stands in the input");
        let from = self.input.len() - size;
        self.protocol.unframe(&mut self.input, from, self.head_max_bytes, say);
        debug_assert!(self.input.len() <= from + size, "framing takes bytes out of what has come");
        while self.head.is_none() {
            let progress = match self.protocol.head(&self.input, self.head_max_bytes) {
                Ok(progress) => progress,
                Err(fault) => {
                    let text = self.protocol.describe_head(fault, &self.input);
                    // For errors that were caught the log has the details.
                    return Err(text.map_or_else(|| "errors of upstream".to_owned(), |text| text.to_string()));
                }
            };
            match progress {
                HeadProgress::Incomplete => return Ok(false),
                HeadProgress::Interim => {
                    let len = self.protocol.next_head();
                    self.input.drain(..len);
                }
                HeadProgress::Headless => return Err(ResponseParser::NO_HEADER.to_owned()),
                HeadProgress::Final => {
                    let len = self.protocol.head_len();
                    let head = self.input.drain(..len).collect();
                    self.head = Some((head, self.protocol.take_lines()));
                    self.protocol.begin_body(Wanted::Whole, TrailerUse::Dropped);
                }
            }
        }
        if !self.reads_body {
            return Ok(true);
        }
        self.take_body()
    }

    fn take_body(&mut self) -> Result<bool, String> {
        loop {
            let decoded = match self.protocol.body(&self.input) {
                Ok(decoded) => decoded,
                Err(fault) => return Err(self.protocol.describe_body(fault).to_string()),
            };
            let is_over = match decoded.event {
                BodyEvent::Data(range) => {
                    debug_assert!(self.text.len() < BODY_MAX_BYTES, "a body that is full is not read on");
                    let room = BODY_MAX_BYTES - self.text.len();
                    let data = &self.input[range];
                    self.text.extend_from_slice(&data[..data.len().min(room)]);
                    (self.text.len() == BODY_MAX_BYTES).then_some(true)
                }
                BodyEvent::NeedInput => Some(false),
                BodyEvent::End => Some(true),
            };
            assert!(decoded.consumed <= self.input.len(), "a body is taken from what has come");
            self.input.drain(..decoded.consumed);
            if let Some(is_over) = is_over {
                return Ok(is_over);
            }
        }
    }
}
