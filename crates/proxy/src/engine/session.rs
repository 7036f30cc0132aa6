//! One request at other servers: its stages, its clocks, and what ends it. The methods of the stages stand
//! in the files beside this one.
//!
//! Invariants: there is a lease while a server is asked, and the connection belongs to that attempt; what
//! was sent to the client is never taken back, so no other server is asked behind the head of a response.

use std::task::{Context, Poll};
use std::{fmt, io};

use bytes::Bytes;
use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_cache::Lifetime;
use clearway_http::{Answer, Exchange, Step};
use clearway_net::connect::{Connecting, Local};
use clearway_runtime::{LoopRef, Timer};
use clearway_tls::stream::TlsError;
use clearway_upstream::{Attempt as PeerAttempt, AttemptOutcome, Lease, QueuePlace, Verdict};

use crate::attempts::{Attempt, Attempts, CacheStatus, Connection};
use crate::engine::asked::{Asked, AskedBody};
use crate::engine::by_code::{ByCode, ChoosingStage, ConsultingStage};
use crate::engine::lookup::log_departure;
use crate::engine::object::Cached;
use crate::engine::protocol::Protocol;
use crate::engine::relay::Relay;
use crate::engine::secure::Secure;
use crate::engine::send::Sending;

/// The action for the log while a connection is made.
pub(super) const CONNECTING: &str = "connecting to upstream";
pub(super) const SENDING: &str = "sending request to upstream";
pub(super) const READING_HEAD: &str = "reading response header from upstream";
pub(super) const READING: &str = "reading upstream";
pub(super) const TO_CLIENT: &str = "sending to client";

/// One request at other servers.
pub(super) struct Session<'c, P> {
    pub(super) asked: Asked<'c>,
    pub(super) home: LoopRef,
    pub(super) stage: Stage,
    /// How many servers may be asked, the present one included.
    pub(super) tries: usize,
    /// When the first server was looked for.
    pub(super) began_ms: u64,
    /// When the present one was.
    pub(super) attempt_ms: u64,
    pub(super) lease: Option<Lease>,
    pub(super) outbound: Option<Box<clearway_upstream::Connection>>,
    /// The local address, if one is configured.
    pub(super) local: Option<Local>,
    /// The part of code that chooses servers.
    pub(super) by_code: Option<Box<ByCode<'c>>>,
    /// TLS with the server, if it is asked so.
    pub(super) tls: Option<Box<Secure<'c>>>,
    /// Stands for the location where connections are not shared by locations.
    pub(super) scope: u64,
    pub(super) connection: Connection,
    pub(super) sending: Sending,
    /// Received bytes that were not handled yet.
    pub(super) input: Vec<u8>,
    /// The body of the response, if all of it has come with the head.
    pub(super) whole_body: Option<Bytes>,
    pub(super) protocol: P,
    pub(super) relay: Relay,
    pub(super) clocks: Clocks,
    /// The cache's part, if there is one.
    pub(super) cached: Option<Box<Cached>>,
    /// An error that the cache is to remember: its status, and until when, Unix seconds.
    pub(super) remembered: Option<(u16, u64)>,
    /// The server's answer about the object that it was asked to validate.
    pub(super) validated: Option<Lifetime>,
}

/// How far a request is.
pub(super) enum Stage {
    /// A server is to be found.
    Selecting,
    /// Code is finding one.
    Choosing(ChoosingStage),
    /// A server is chosen.
    Chosen,
    /// The request waits until a server can be used.
    Queued(Queued),
    Connecting(Connecting),
    /// As above, to a server in memory.
    #[cfg(feature = "testing")]
    Calling(crate::engine::memory::Called),
    /// TLS is agreed on.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is no TLS"))]
    Handshaking,
    /// Code has its say in that.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "there is no TLS"))]
    Consulting(ConsultingStage),
    /// The request is sent, the head of the response read.
    Asking,
    /// The body of the response is passed on.
    Relaying,
    /// The whole response has come, and waits for the client.
    Draining,
    /// The whole response is pushed; the file that it is kept as gets its path.
    Storing,
    /// The rest of a response that is cut is sent; then it ends.
    Cutting,
}

/// A request that waits until a server can be used.
pub(super) struct Queued {
    pub(super) waiting: QueuePlace,
    /// Until when, milliseconds of its loop.
    pub(super) until_ms: u64,
}

/// How a stage goes on.
pub(super) enum Flow {
    /// At once, perhaps in another stage.
    On,
    /// When something has come.
    Wait,
    End(Step<'static>),
    /// The head is pushed; what follows are no messages.
    Tunnel,
    /// The cached object is sent.
    Cached(CacheStatus),
    /// When code's wishes are done.
    Renew,
}

/// The end of a request.
pub(super) enum End {
    Step(Step<'static>),
    Tunnel,
    Cached(CacheStatus),
    /// The request goes on once the wishes of Lua code are met.
    Renew,
}

/// The deadlines of waits, on the clock of the loop.
pub(super) struct Clocks {
    timer: Timer,
    /// Until when the server has to take something.
    pub(super) send_until_ms: Option<u64>,
    /// Until when it has to say something.
    pub(super) read_until_ms: Option<u64>,
    /// The time that the timer is set to.
    armed_ms: Option<u64>,
}

impl Clocks {
    fn new(home: LoopRef) -> Self {
        Self { timer: Timer::new(home), send_until_ms: None, read_until_ms: None, armed_ms: None }
    }

    pub(super) fn clear(&mut self) {
        (self.send_until_ms, self.read_until_ms) = (None, None);
    }

    /// Ready when the earlier of both times has come.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let due_ms = [self.send_until_ms, self.read_until_ms].into_iter().flatten().min();
        let Some(due_ms) = due_ms else { return Poll::Pending };
        if self.armed_ms != Some(due_ms) {
            self.timer.arm(due_ms);
            self.armed_ms = Some(due_ms);
        }
        let expired = self.timer.poll_expired(cx);
        if expired.is_ready() {
            self.armed_ms = None;
        }
        expired
    }
}

impl<'c, P: Protocol> Session<'c, P> {
    pub(super) fn new(
        exchange: &mut Exchange<'_, 'c>,
        asked: Asked<'c>,
        (protocol, cached): (P, Option<Box<Cached>>),
    ) -> Self {
        let home = exchange.request.home();
        let most = usize::try_from(*asked.pass.next_upstream_tries).unwrap_or(usize::MAX);
        let by_code = asked.choice.balancer().map(|balancer| ByCode::new(balancer, most));
        let least = usize::from(by_code.is_some());
        let tries = asked.choice.tries().max(least);
        let tries = if most == 0 { tries } else { tries.min(most) };
        let now_ms = home.now_ms();
        Self {
            asked,
            home,
            stage: Stage::Selecting,
            tries,
            began_ms: now_ms,
            attempt_ms: now_ms,
            lease: None,
            outbound: None,
            local: None,
            by_code,
            tls: None,
            scope: 0,
            connection: Connection::New,
            sending: Sending::default(),
            input: Vec::new(),
            whole_body: None,
            protocol,
            relay: Relay::default(),
            clocks: Clocks::new(home),
            cached,
            remembered: None,
            validated: None,
        }
    }

    /// Goes on as far as possible.
    pub(super) fn poll(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let flow = match &mut self.stage {
                Stage::Selecting => self.select(exchange),
                Stage::Choosing(_) => self.poll_choosing(exchange, cx),
                Stage::Chosen => self.ask_chosen(exchange),
                Stage::Queued(_) => self.poll_queued(exchange, cx),
                Stage::Connecting(_) => self.poll_connecting(exchange, cx),
                #[cfg(feature = "testing")]
                Stage::Calling(_) => self.poll_calling(exchange, cx),
                Stage::Handshaking => self.poll_handshaking(exchange, cx),
                Stage::Consulting(_) => self.poll_consulting(exchange, cx),
                Stage::Asking => self.poll_asking(exchange, cx),
                Stage::Relaying => self.poll_relaying(exchange, cx),
                Stage::Draining => self.poll_draining(exchange, cx),
                Stage::Storing => self.poll_storing(exchange, cx),
                Stage::Cutting => self.poll_cutting(exchange, cx),
            };
            let flow = match flow {
                Flow::Wait => self.poll_others(exchange, cx),
                flow => flow,
            };
            match flow {
                Flow::On => {}
                Flow::Wait => return Poll::Pending,
                Flow::End(step) => {
                    self.close(exchange);
                    exchange.request.set_action(TO_CLIENT);
                    return Poll::Ready(End::Step(step));
                }
                Flow::Cached(status) => {
                    self.close(exchange);
                    return Poll::Ready(End::Cached(status));
                }
                Flow::Tunnel => {
                    debug_assert!(self.outbound.is_some(), "a tunnel leads to a server");
                    return Poll::Ready(End::Tunnel);
                }
                Flow::Renew => return Poll::Ready(End::Renew),
            }
        }
    }

    /// Other events while a stage waits: the end of its time, or of the client.
    fn poll_others(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        if self.clocks.poll(cx).is_ready() {
            return self.time_out(exchange);
        }
        let pass = self.asked.pass;
        let is_heard = !exchange.output.is_abandoned();
        let goes_on =
            *pass.ignore_client_abort || pass.keeping.store.is_some() || self.may_keep() || !is_heard;
        let watches = !goes_on && !self.sending.reads_client(&self.asked.body);
        if !watches {
            return Flow::Wait;
        }
        let Poll::Ready(closed) = exchange.request.poll_closed(cx) else { return Flow::Wait };
        let end = if self.outbound.is_some() { ", so upstream connection is closed too" } else { "" };
        log_departure(exchange.request, closed, end);
        Flow::End(Step::Respond(Answer::Status(CLIENT_CLOSED_REQUEST)))
    }

    /// The attempt that is under way, as variables show it.
    pub(super) fn attempt<'a>(&self, exchange: &'a mut Exchange<'_, 'c>) -> &'a mut Attempt {
        Attempts::of_mut(exchange.request).last()
    }

    pub(super) fn elapsed_ms(&self) -> u64 {
        self.home.now_ms().saturating_sub(self.attempt_ms)
    }

    /// The lease ends: how the server fared.
    pub(super) fn finish_lease(&mut self, exchange: &mut Exchange<'_, 'c>, outcome: AttemptOutcome) {
        let Some(lease) = self.lease.take() else { return };
        debug_assert!(self.attempt_ms >= self.began_ms, "an attempt begins behind its request");
        let now_ms = self.home.now_ms();
        let Attempt { header_ms, status, .. } = *self.attempt(exchange);
        let attempt = PeerAttempt { outcome, header_ms, response_ms: self.elapsed_ms(), status };
        if lease.finish(attempt, now_ms) == Verdict::Disabled {
            exchange.request.log(Level::Warn, format_args!("upstream server temporarily disabled"));
        }
    }

    /// Closes the connection: nothing more is read from the server.
    fn close(&mut self, exchange: &mut Exchange<'_, 'c>) {
        self.note_end(exchange);
        self.finish_lease(exchange, AttemptOutcome::Answered);
        self.drop_connection();
        self.clocks.clear();
        debug_assert!(self.lease.is_none() && self.outbound.is_none(), "the server has been let go of");
    }

    /// Closes the connection, if there is one.
    pub(super) fn drop_connection(&mut self) {
        if let Some(mut outbound) = self.outbound.take() {
            outbound.transport.close();
        }
    }

    /// The work at the end of the tunnel that this has become.
    pub(super) fn tunnel_end(&mut self) -> TunnelEnd {
        TunnelEnd(self.lease.take())
    }

    /// Writes down how long the present attempt took, unless that was done.
    pub(super) fn note_end(&mut self, exchange: &mut Exchange<'_, 'c>) {
        self.keep_session();
        let (elapsed_ms, sent_bytes) = (self.elapsed_ms(), self.sending.sent_bytes);
        let length = self.relay.length;
        let attempt = self.attempt(exchange);
        if attempt.response_ms.is_none() {
            attempt.response_ms = Some(elapsed_ms);
            attempt.sent_bytes = sent_bytes;
            attempt.length = length;
        }
    }

    /// The body of the request is passed on as it comes.
    pub(super) fn streams(&self) -> bool {
        matches!(self.asked.body, AskedBody::Stream)
    }
}

/// Why a connection broke, as the log has it: the call that failed, or what TLS says.
pub(super) struct BrokenBy<'a>(pub(super) &'static str, pub(super) &'a io::Error);

impl fmt::Display for BrokenBy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match TlsError::find(self.1) {
            Some(error) => write!(f, "{error}"),
            None => write!(f, "{} failed {}", self.0, Errno(self.1)),
        }
    }
}

/// The lease of a server that a tunnel leads to.
pub(super) struct TunnelEnd(Option<Lease>);

impl TunnelEnd {
    /// The tunnel is over.
    pub(super) fn tell(self, home: LoopRef, outcome: AttemptOutcome) {
        if let Some(lease) = self.0 {
            lease.finish(PeerAttempt::of(outcome), home.now_ms());
        }
    }
}

/// The status in the log when the client has left.
pub(super) const CLIENT_CLOSED_REQUEST: u16 = 499;
