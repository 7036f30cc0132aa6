//! A server is chosen, and a connection to it found or made.

use std::fmt;
use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use clearway_base::log::{Level, Record, Sink, Verbatim};
use clearway_http::{Answer, Exchange, Request, Step};
use clearway_message::Method;
use clearway_net::connect::{AddressOwner, ConnectFault, ConnectOptions, Connector, Keepalive, Local};
use clearway_os::outgoing::Remote;
use clearway_upstream::{Ejection, Fault, Identity, Lease, Moment, Pool, Repeat};

use crate::attempts::{Attempt, Attempts, Connection, PeerName};
use crate::engine::by_code::Timeout;
#[cfg(feature = "testing")]
use crate::engine::memory::call;
use crate::engine::mend::may_be_asked;
use crate::engine::protocol::Protocol;
use crate::engine::send::Sending;
use crate::engine::session::{CONNECTING, Flow, Session, Stage};
use crate::settings::masks::{Failures, Mask};
use crate::settings::pass::{BindAddress, BindForm, parse_local};
use crate::upstreams::{Next, Reuse};

/// The maker of connections in this process.
static CONNECTOR: OnceLock<Connector> = OnceLock::new();

/// From now on requests can be passed on: connections count among those of the connector's loops. The first
/// connector that is given stays.
pub fn start(connector: Connector) {
    let _ = CONNECTOR.set(connector);
}

/// The maker of connections.
pub(super) fn connector() -> Option<Connector> {
    CONNECTOR.get().copied()
}

impl<'c, P: Protocol> Session<'c, P> {
    pub(super) fn select(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        self.begin_choosing(exchange).unwrap_or_else(|| self.select_by_rule(exchange))
    }

    /// The group's rule says which server is next.
    pub(super) fn select_by_rule(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        debug_assert!(self.lease.is_none(), "the server before was let go of");
        debug_assert!(may_be_asked(exchange), "behind a head no other server is asked");
        exchange.request.set_action(CONNECTING);
        let now_ms = self.home.now_ms();
        self.attempt_ms = now_ms;
        let moment = Moment { at_loop: self.home.index(), now_ms };
        self.eject(exchange, now_ms);
        let next = self.asked.choice.next_or_wait(moment);
        let peer = match &next {
            Next::Server(lease) => PeerName::Peer(lease.peer().clone()),
            Next::Waits(..) | Next::Full | Next::None => PeerName::Group(self.asked.choice.name().into()),
        };
        let attempt = Attempt { peer, ..Attempt::default() };
        Attempts::of_mut(exchange.request).list.push(attempt);
        exchange.request.set_upstream(Attempts::write_url);
        match next {
            Next::Server(lease) => self.ask_server(exchange, lease),
            Next::Waits(waiting, timeout_ms) => self.wait_in_queue(waiting, timeout_ms),
            Next::Full => self.end_without_server(exchange, "upstream queue is full"),
            Next::None => self.end_without_server(exchange, "no live upstreams"),
        }
    }

    /// Has servers left alone that are worse than others, where it is time to look.
    pub(super) fn eject(&mut self, exchange: &Exchange<'_, 'c>, now_ms: u64) {
        for Ejection { peer, fault, time_ms } in self.asked.choice.eject(now_ms) {
            let (name, time_s) = (&*peer.config().name, time_ms / 1000);
            let log = |why: fmt::Arguments<'_>| {
                let message = format_args!("upstream server \"{name}\" {why}, left alone for {time_s}s");
                exchange.request.log(Level::Warn, message);
            };
            match fault {
                Fault::Fails(count) => log(format_args!("has failed {count} times in a row")),
                Fault::Slow(ms) => log(format_args!("takes {ms} ms, much longer than others")),
            }
        }
    }

    /// There is none that could be asked.
    pub(super) fn end_without_server(&mut self, exchange: &mut Exchange<'_, 'c>, why: &str) -> Flow {
        exchange.request.log(Level::Error, format_args!("{why}"));
        self.attempt(exchange).status = 502;
        self.end_failed(exchange, Failures::ERROR)
    }

    /// The attempt with this server begins.
    pub(super) fn ask_server(&mut self, exchange: &mut Exchange<'_, 'c>, lease: Lease) -> Flow {
        let peer = lease.peer().clone();
        debug_assert!(self.lease.is_none(), "the server before was let go of");
        debug_assert!(self.outbound.is_none(), "the connection before was let go of");
        self.lease = Some(lease);
        self.begin_attempt();
        self.local = self.local_address(exchange);
        let remote = &peer.config().remote;
        if self.take_idle(exchange, remote) { Flow::On } else { self.connect(exchange, remote) }
    }

    /// Takes a connection that waits for a request; whether there was one.
    fn take_idle(&mut self, exchange: &mut Exchange<'_, 'c>, remote: &Remote) -> bool {
        let Some(upstream) = self.asked.choice.upstream() else { return false };
        let Some(pool) = CONNECTOR.get().and_then(|connector| upstream.idle(*connector)) else {
            return false;
        };
        let kept_by_code = self.by_code.as_ref().filter(|by_code| by_code.keepalive().is_some());
        let is_of_location = upstream.keepalive().is_some_and(|one| one.reuse == Reuse::Location);
        let scope = match kept_by_code {
            Some(by_code) => by_code.scope(),
            None if !upstream.keeps_by_itself() => return false,
            None if is_of_location => scope_of(exchange.request),
            None => 0,
        };
        self.scope = scope ^ self.tls.as_ref().map_or(0, |tls| tls.tag());
        let identity = Identity { remote, local: self.local, scope: self.scope };
        let Some(connection) = pool.take(self.home, identity, self.repeat(exchange)) else { return false };
        debug_assert!(self.outbound.is_none(), "one connection at a time");
        self.outbound = Some(connection);
        self.connection = Connection::Reused;
        self.note_connected(exchange);
        true
    }

    /// Whether the connection, which was idle before, had ended before the request came to the server: then
    /// it was asked nothing, whatever the method, and the request can be sent again.
    pub(super) fn was_closed_unasked(&self, exchange: &mut Exchange<'_, 'c>) -> bool {
        self.connection == Connection::Reused
            && self.attempt(exchange).received_bytes == 0
            && self.sending.is_whole(&self.asked.body)
            && !self.sending.was_reset()
            && self.outbound.as_ref().is_some_and(|outbound| outbound.ended_unasked())
    }

    /// Asks the same server on a new connection, as if there had been no other.
    pub(super) fn ask_again(&mut self, exchange: &mut Exchange<'_, 'c>) -> Flow {
        let Some(peer) = self.lease.as_ref().map(|lease| lease.peer().clone()) else {
            return self.fail(exchange, Failures::ERROR);
        };
        if let (Some(ended), Some(pool)) = (self.outbound.take(), self.pool()) {
            pool.note_ended(&ended, self.attempt_ms);
        }
        self.clocks.clear();
        self.begin_attempt();
        exchange.request.set_action(CONNECTING);
        self.connect(exchange, &peer.config().remote)
    }

    /// Whether the request may be sent again where its connection turns out to be closed.
    fn repeat(&self, exchange: &Exchange<'_, 'c>) -> Repeat {
        let is_idempotent = !matches!(exchange.request.method(), Method::Post | Method::Lock | Method::Patch);
        let is_allowed = self.asked.pass.next_upstream.has(Failures::NON_IDEMPOTENT);
        let may = (is_idempotent || is_allowed) && !self.streams();
        if may { Repeat::Possible } else { Repeat::Impossible }
    }

    /// There is a connection.
    pub(super) fn note_connected(&mut self, exchange: &mut Exchange<'_, 'c>) {
        self.clocks.clear();
        let (elapsed_ms, connection) = (self.elapsed_ms(), self.connection);
        let attempt = self.attempt(exchange);
        (attempt.connect_ms, attempt.wait_ms) = (Some(elapsed_ms), Some(elapsed_ms));
        attempt.connection = connection;
        debug_assert!(self.outbound.is_some(), "there is a connection");
        debug_assert!(self.lease.is_some(), "it leads to the server that was chosen");
        self.stage = Stage::Asking;
    }

    /// The connection may be used by another request.
    pub(super) fn put_idle(&self, mut connection: Box<clearway_upstream::Connection>) {
        match self.by_code.as_ref().and_then(|by_code| by_code.keepalive()) {
            Some(said) => connection.keep_for(said.timeout_ms, said.requests_max),
            None if self.asked.choice.upstream().is_some_and(|upstream| !upstream.keeps_by_itself()) => {
                return;
            }
            None => {}
        }
        if let Some(pool) = self.pool() {
            pool.put(self.home, connection);
        }
    }

    /// Where connections wait, if they do.
    fn pool(&self) -> Option<&Pool> {
        let upstream = self.asked.choice.upstream();
        let found = upstream.zip(CONNECTOR.get());
        found.and_then(|(upstream, connector)| upstream.idle(*connector)).map(|pool| &**pool)
    }

    /// Forgets the attempt before this one.
    fn begin_attempt(&mut self) {
        debug_assert!(self.outbound.is_none(), "the connection before was let go of");
        self.protocol.reset();
        self.input.clear();
        self.whole_body = None;
        self.sending = Sending::default();
        self.connection = Connection::New;
    }

    fn connect(&mut self, exchange: &mut Exchange<'_, 'c>, remote: &Remote) -> Flow {
        let Some(connector) = CONNECTOR.get() else {
            exchange.request.log(Level::Alert, format_args!("no connections can be made"));
            return Flow::End(Step::Respond(Answer::Status(500)));
        };
        debug_assert!(self.outbound.is_none(), "one connection at a time");
        debug_assert_eq!(self.sending.sent_bytes, 0, "nothing of this attempt is sent");
        let options = self.options();
        let log = RequestLog(exchange.request);
        self.stage = self
            .call_in_memory(*connector)
            .unwrap_or_else(|| Stage::Connecting(connector.connect(self.home, remote, &options, &log)));
        let until_ms = self.home.now_ms() + self.timeout_ms(Timeout::Connect);
        self.clocks.send_until_ms = Some(until_ms);
        Flow::On
    }

    #[cfg(feature = "testing")]
    fn call_in_memory(&self, connector: Connector) -> Option<Stage> {
        call(connector, self.home).map(Stage::Calling)
    }

    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "as the other one")]
    fn call_in_memory(&self, _: Connector) -> Option<Stage> {
        None
    }

    #[cfg(feature = "testing")]
    pub(super) fn poll_calling(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let Stage::Calling(called) = &mut self.stage else { return Flow::On };
        let Some((end, _)) = &called.end else {
            let fault = ConnectFault::Connections { limit: called.limit };
            return self.refuse(exchange, &fault);
        };
        match end.poll_connected(cx) {
            Poll::Pending => return Flow::Wait,
            Poll::Ready(Err(error)) => return self.refuse(exchange, &ConnectFault::Failed(error)),
            Poll::Ready(Ok(())) => {}
        }
        let peer = self.lease.as_ref().map(|lease| lease.peer().clone());
        let (Some((end, slot)), Some(peer)) = (called.end.take(), peer) else {
            return Flow::End(Step::Respond(Answer::Status(500)));
        };
        let identity = Identity { remote: &peer.config().remote, local: self.local, scope: self.scope };
        let made = clearway_upstream::Connection::in_memory(end, slot, identity, self.home.now_ms());
        self.outbound = Some(made);
        self.note_connected(exchange);
        Flow::On
    }

    fn options(&self) -> ConnectOptions {
        let pass = self.asked.pass;
        let size = |bytes: u64| usize::try_from(bytes).ok().filter(|&bytes| bytes > 0);
        ConnectOptions {
            local: self.local,
            keepalive: if *pass.socket_keepalive { Keepalive::On } else { Keepalive::Off },
            receive_buffer_bytes: size(*pass.receive_buffer_bytes),
            send_buffer_bytes: size(*pass.send_buffer_bytes),
        }
    }

    /// `…_bind`
    fn local_address(&self, exchange: &Exchange<'_, 'c>) -> Option<Local> {
        if let Some(local) = self.by_code.as_ref().and_then(|by_code| by_code.local()) {
            return Some(local);
        }
        let bind = self.asked.pass.bind.as_ref()?;
        let address = match &bind.address {
            BindAddress::Fixed(address) => Some(*address),
            BindAddress::Evaluated(value) => {
                let text = value.eval(&exchange.view());
                let address = parse_local(&text);
                if address.is_none() && !text.is_empty() {
                    let message = format_args!("invalid local address \"{}\"", Verbatim(&text));
                    exchange.request.log(Level::Error, message);
                }
                address
            }
        };
        let owner = match bind.form {
            BindForm::Own => AddressOwner::Here,
            BindForm::Transparent => AddressOwner::Elsewhere,
        };
        Some(Local { address: address?, owner })
    }

    pub(super) fn poll_connecting(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let Stage::Connecting(connecting) = &mut self.stage else { return Flow::On };
        match Pin::new(connecting).poll(cx) {
            Poll::Pending => Flow::Wait,
            Poll::Ready(Ok(outbound)) => {
                let Some(peer) = self.lease.as_ref().map(|lease| lease.peer().clone()) else {
                    return Flow::End(Step::Respond(Answer::Status(500)));
                };
                debug_assert!(self.outbound.is_none(), "one connection at a time");
                self.begin_handshake(exchange, outbound, &peer.config().remote)
            }
            Poll::Ready(Err(fault)) => self.refuse(exchange, &fault),
        }
    }

    fn refuse(&mut self, exchange: &mut Exchange<'_, 'c>, fault: &ConnectFault) -> Flow {
        let name = self.lease.as_ref().map(|lease| &*lease.peer().config().name).unwrap_or_default();
        exchange.request.log(fault.level(), format_args!("{}", fault.describe(name)));
        match fault.is_of_server() {
            true => self.fail(exchange, Failures::ERROR),
            false => Flow::End(Step::Respond(Answer::Status(500))),
        }
    }
}

/// Stands for a location.
fn scope_of(request: &Request<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (request.server().name(), request.location().name()).hash(&mut hasher);
    hasher.finish()
}

/// Lines about a connection that is being made.
struct RequestLog<'a, 'c>(&'a Request<'c>);

impl Sink for RequestLog<'_, '_> {
    fn enabled(&self, _: Level) -> bool {
        true
    }

    fn write(&self, record: &Record<'_>) {
        self.0.log(record.level, record.message);
    }
}
