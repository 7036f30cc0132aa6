//! Handshakes of connections with TLS, from the first byte to the last message. The connection's task.
//!
//! The ClientHello is gathered and read before anything of the library exists for a connection, so that one
//! that sends nothing costs its bytes. A step of the handshake runs at once where it is light and its loop
//! has not spent much on handshakes in this turn, else in the pool that is there for it.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Instant;

use clearway_base::Errno;
use clearway_base::log::Level;
use clearway_http::{
    Accept, AskedServers, Begun, Chosen, Claim, ClientHello, Front, Offer, OfferedHttp2, Opening, RecordSize,
    Shaking, SniHandling, TIMED_OUT, Tls, Unaccepted, Verify, Weight, Wishes, failure_level,
    look_at_handshake,
};
use clearway_offload::{Pool, Task};
use clearway_site::ServerId;
use clearway_tls::ciphers;
use clearway_tls::engine::{Failure, Session, Step};
use clearway_tls::hello::{Hello, HelloError, HelloReader};
use clearway_tls::level::Version;
use clearway_tls::reason::{Library, Reason};

use crate::conn::Conn;
use crate::connection::{Connection, Ending, Idle, read_idle};
use crate::handshake_budget as budget;
use crate::metrics;

/// The action under way, for the error log.
const HANDSHAKING: &str = "SSL handshaking";
/// Room for what clients begin with, bytes: more than most hellos are long.
const HELLO_BYTES: usize = 2 * 1024;
/// The alert of a server that does not know a name, or does not want to (RFC 6066 §3).
const UNRECOGNIZED_NAME: u8 = 112;
/// The alert of a server that is to blame (RFC 8446 §6.2).
const INTERNAL_ERROR: u8 = 80;
/// A shorter flight, in bytes, had no certificate in it: it asked for another hello.
const FLIGHT_MIN_BYTES: usize = 512;

/// The pool's lane of a step.
const fn lane_of(weight: Weight) -> usize {
    match weight {
        Weight::Resumed => 0,
        Weight::Light => 1,
        Weight::Moderate | Weight::Heavy => 2,
    }
}

/// Makes the handshake. A client that sends a plain request is left to be answered.
pub(crate) async fn accept(connection: &mut Connection) -> Result<(), Ending> {
    let conn = &mut connection.conn;
    let timeout_ms = *conn.setup.server_core().client_header_timeout_ms;
    conn.link.timer.arm(conn.client.start_ms + timeout_ms);
    let rest = conn.client.front.as_mut().and_then(|front| front.take_rest());
    let mut parts = rest.unwrap_or_else(|| conn.take_parts());
    if parts.input.is_empty() {
        receive(connection, &mut parts.input, Stage::First).await?;
    }
    let conn = &mut connection.conn;
    debug_assert!(!parts.input.is_empty(), "something has come of the handshake");
    let first = parts.input[0];
    if !HelloReader::begins_handshake(first) && first & 0x80 == 0 {
        let front = conn.client.front.get_or_insert_with(|| Box::new(Front::new(None, None)));
        front.put_rest(parts);
        return Ok(());
    }
    let mut input = Vec::with_capacity(HELLO_BYTES.max(parts.input.len()));
    input.append(&mut parts.input);
    conn.client.put_back(parts);
    let hello = Arc::new(read_hello(connection, &mut input).await?);
    let mut wishes = Wishes::default();
    if code::has_hello(&connection.conn) {
        Box::pin(code::hear(connection, &hello, &mut wishes)).await?;
    }
    let Asked { mut offer, acceptor, names, server, http2, terms } = choose(&connection.conn, &hello)?;
    let has_code = code::is_there(&connection.conn, server);
    if has_code {
        Box::pin(code::prepare(connection, (&hello, server), &*acceptor, &mut wishes)).await?;
    }
    let home = connection.conn.client.home;
    let client = ClientHello { hello: &hello, http2, home, names: &names, wishes: &wishes };
    let begun = ask(&mut connection.conn, client, &*acceptor, (server, &mut offer));
    let mut remembered = wishes.remembered.take();
    drop(wishes);
    let hello = Some(hello).filter(|_| has_code);
    let handshake = begin(&connection.conn, begun, input, &terms).await?;
    let mut state = shake_hands(connection, handshake).await?;
    connection.conn.log(Level::Debug, HANDSHAKING, format_args!("SSL_do_handshake: 1"));
    connection.conn.log(Level::Debug, HANDSHAKING, format_args!("{}", Agreed(&*state.session)));
    let mut kept = state.session.take_kept();
    if let Some(hello) = hello.filter(|_| !kept.is_empty()) {
        let version = state.session.info().version;
        kept = Box::pin(code::store(connection, (&hello, server), version, kept, &mut remembered)).await;
    }
    acceptor.keep(kept);
    offer.remembered = remembered;
    debug_assert!(connection.conn.link.transport.tls().is_none(), "a handshake is made once");
    let tls = Tls::new(state.session, offer, terms.records, state.input, state.output);
    connection.conn.link.transport.encrypt(Box::new(tls));
    metrics::HANDSHAKES.increment();
    Ok(())
}

mod code;

/// How far a handshake is, as far as messages differ.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No bytes have come.
    First,
    Begun,
}

/// Receives behind what there is.
async fn receive(connection: &mut Connection, input: &mut Vec<u8>, stage: Stage) -> Result<(), Ending> {
    let mut idle = Idle::New;
    loop {
        if input.len() == input.capacity() {
            input.reserve(HELLO_BYTES);
        }
        let conn = &connection.conn;
        match poll_fn(|cx| Poll::Ready(read_idle(conn, idle, input, cx))).await {
            Poll::Ready(Ok(1..)) => return Ok(()),
            Poll::Pending if idle != Idle::Leaving => {}
            Poll::Pending => return Err(Ending),
            Poll::Ready(Ok(_)) if stage == Stage::Begun => {
                conn.log(Level::Info, HANDSHAKING, format_args!("peer closed connection in SSL handshake"));
                return Err(Ending);
            }
            Poll::Ready(Err(error)) if stage == Stage::Begun => {
                let errno = Errno(&error);
                conn.log(Level::Info, HANDSHAKING, format_args!("SSL_do_handshake() failed {errno}"));
                return Err(Ending);
            }
            Poll::Ready(result) => {
                conn.log_closed(HANDSHAKING, result);
                return Err(Ending);
            }
        }
        idle = poll_fn(|cx| connection.poll_idle(cx)).await;
        idle = connection.go_on_idle(idle, HANDSHAKING)?;
    }
}

async fn read_hello(connection: &mut Connection, input: &mut Vec<u8>) -> Result<Hello, Ending> {
    let mut reader = HelloReader::default();
    loop {
        match reader.read(input) {
            Ok(Some(hello)) => return Ok(hello),
            Ok(None) => receive(connection, input, Stage::Begun).await?,
            Err(error) => {
                refuse_hello(&connection.conn, error);
                return Err(Ending);
            }
        }
    }
}

fn refuse_hello(conn: &Conn, error: HelloError) {
    send_alert(conn, error.alert());
    fail(conn, &Failure { reasons: vec![error.into()] });
}

/// The client's wishes.
struct Asked {
    offer: Offer,
    acceptor: Arc<dyn Accept>,
    names: AskedServers,
    server: ServerId,
    http2: OfferedHttp2,
    terms: Terms,
}

/// The server's terms for the handshake.
struct Terms {
    verify: Verify,
    pool: Option<Arc<Pool>>,
    records: RecordSize,
}

/// A handshake that has begun.
struct Handshake {
    state: HandshakeState,
    pool: Option<Arc<Pool>>,
    /// The weight of the answer to the hello.
    weight: Weight,
    /// The weight if no session is resumed.
    unclaimed: Weight,
    /// The weight of the step behind the flight, with TLS 1.3.
    finish: Weight,
}

/// The state that goes to the pool and comes back.
struct HandshakeState {
    session: Box<dyn Session>,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl HandshakeState {
    fn step(&mut self) -> Step {
        let mut rest = &self.input[..];
        let step = self.session.step(&mut rest, &mut self.output);
        assert!(rest.len() <= self.input.len(), "a step takes from the front of what has come");
        let used = self.input.len() - rest.len();
        self.input.drain(..used);
        step
    }
}

/// Chooses the server by the name that is asked for.
fn choose(conn: &Conn, hello: &Hello) -> Result<Asked, Ending> {
    let Ok(Chosen { id, host, server, acceptor, names, http2 }) = conn.setup.choose_tls(hello.server_name())
    else {
        send_alert(conn, INTERNAL_ERROR);
        fail(conn, &Failure { reasons: vec![HelloError::ServerName.into()] });
        return Err(Ending);
    };
    let is_rejected = server.is_some_and(|tls| tls.handling == SniHandling::Rejected);
    let (Some(acceptor), false) = (acceptor, is_rejected) else {
        send_alert(conn, UNRECOGNIZED_NAME);
        conn.log(Level::Info, HANDSHAKING, format_args!("handshake rejected"));
        return Err(Ending);
    };
    let terms = Terms {
        verify: server.map_or(Verify::Off, |tls| tls.verify),
        pool: server.and_then(|tls| tls.pool.clone()),
        records: server.map_or(RecordSize::default(), |tls| tls.records),
    };
    let offer = Offer::of(hello, host);
    Ok(Asked { offer, acceptor: Arc::clone(acceptor), names, server: id, http2, terms })
}

/// Asks for a session, which is told what the variables of that server say if it wants to know.
fn ask(
    conn: &mut Conn,
    client: ClientHello<'_>,
    acceptor: &dyn Accept,
    (server, offer): (ServerId, &mut Offer),
) -> Result<Begun, Unaccepted> {
    if !acceptor.needs_values() {
        return acceptor.accept(client, None);
    }
    let shaking = Shaking { client: &conn.client, setup: &conn.setup, server };
    look_at_handshake(shaking, &mut conn.link, offer, |view| acceptor.accept(client, Some(view)))
}

/// Waits for a session that needs files.
async fn begin(
    conn: &Conn,
    begun: Result<Begun, Unaccepted>,
    input: Vec<u8>,
    terms: &Terms,
) -> Result<Handshake, Ending> {
    let opening = match begun {
        Ok(Begun::Ready(opening)) => Ok(opening),
        Ok(Begun::Loading(task)) => wait_for(conn, task).await?,
        Err(error) => Err(error),
    };
    let Opening { session, weight, claim } = opening.map_err(|error| {
        send_alert(conn, INTERNAL_ERROR);
        match error {
            Unaccepted::Library(error) => conn.log(Level::Crit, HANDSHAKING, format_args!("{error}")),
            Unaccepted::Certificate(said) => {
                conn.log(Level::Error, HANDSHAKING, format_args!("{said}"));
                fail(conn, &Failure { reasons: vec![Reason::named(Library::Ssl, "CERT_CB_ERROR")] });
            }
        }
        Ending
    })?;
    // The client's last message has a signature only where it shows a certificate.
    let (weight, unclaimed, finish) = match (terms.verify, claim) {
        (Verify::Off, Claim::Session) => (Weight::Resumed, weight, Weight::Resumed),
        (Verify::Off, Claim::None) => (weight, weight, Weight::Resumed),
        _ => (Weight::Heavy, Weight::Heavy, Weight::Heavy),
    };
    let state = HandshakeState { session, input, output: Vec::new() };
    Ok(Handshake { state, pool: terms.pool.clone(), weight, unclaimed, finish })
}

async fn shake_hands(connection: &mut Connection, handshake: Handshake) -> Result<HandshakeState, Ending> {
    let Handshake { mut state, pool, mut weight, unclaimed, finish } = handshake;
    loop {
        let step;
        (state, step) = run_step(&connection.conn, state, pool.as_ref(), weight).await?;
        match step {
            Step::Done => return Ok(state),
            Step::Need | Step::Asked => {}
            Step::Closed => {
                let line = format_args!("peer closed connection in SSL handshake");
                connection.conn.log(Level::Info, HANDSHAKING, line);
                return Err(Ending);
            }
            Step::Failed(failure) => {
                // An alert that the client does not take is of no use.
                let _ = send(&connection.conn, &mut state.output).await;
                fail(&connection.conn, &failure);
                return Err(Ending);
            }
        }
        // With a certificate in it, so no session was taken up.
        if state.output.len() >= FLIGHT_MIN_BYTES {
            if weight == Weight::Resumed && matches!(unclaimed, Weight::Moderate | Weight::Heavy) {
                budget::distrust(connection.conn.client.home);
            }
            let is_13 = state.session.info().version == Some(Version::Tls13);
            weight = if is_13 { finish } else { unclaimed };
        }
        send(&connection.conn, &mut state.output).await?;
        debug_assert!(state.output.is_empty(), "all of a flight is sent before the client is waited for");
        if state.input.is_empty() {
            receive(connection, &mut state.input, Stage::Begun).await?;
        }
    }
}

/// Takes a step, here or in the pool.
async fn run_step(
    conn: &Conn,
    mut state: HandshakeState,
    pool: Option<&Arc<Pool>>,
    weight: Weight,
) -> Result<(HandshakeState, Step), Ending> {
    let home = conn.client.home;
    let pool = pool.filter(|_| !budget::has_room(home, weight));
    let Some(pool) = pool else {
        let begun = Instant::now();
        let step = state.step();
        budget::spend(home, begun.elapsed());
        return Ok((state, step));
    };
    let task = pool.submit_in(lane_of(weight), move |_| {
        let step = state.step();
        (state, step)
    });
    wait_for(conn, task).await
}

/// Waits for a job as long as the client may take for its handshake.
async fn wait_for<T>(conn: &Conn, mut task: Task<T>) -> Result<T, Ending> {
    let done = poll_fn(|cx| match Pin::new(&mut task).poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => conn.link.timer.poll_expired(cx).map(|()| None),
    });
    match done.await {
        Some(Ok(done)) => Ok(done),
        // The pool has logged that its queue is full.
        Some(Err(_)) => {
            metrics::REFUSED.increment();
            Err(Ending)
        }
        None => {
            conn.log(Level::Info, HANDSHAKING, format_args!("{TIMED_OUT}"));
            Err(Ending)
        }
    }
}

/// Sends what a step has made.
async fn send(conn: &Conn, output: &mut Vec<u8>) -> Result<(), Ending> {
    let mut sent = 0;
    while sent < output.len() {
        let written = poll_fn(|cx| match conn.link.transport.poll_write(cx, &output[sent..]) {
            Poll::Ready(written) => Poll::Ready(Some(written)),
            Poll::Pending => {
                ready!(conn.link.timer.poll_expired(cx));
                Poll::Ready(None)
            }
        });
        match written.await {
            Some(Ok(count)) => {
                sent += count;
                debug_assert!(sent <= output.len(), "a socket takes no more than it is given");
            }
            Some(Err(error)) => {
                let errno = Errno(&error);
                conn.log(Level::Info, HANDSHAKING, format_args!("SSL_do_handshake() failed {errno}"));
                return Err(Ending);
            }
            None => {
                conn.log(Level::Info, HANDSHAKING, format_args!("{TIMED_OUT}"));
                return Err(Ending);
            }
        }
    }
    output.clear();
    Ok(())
}

/// Says why a handshake is over, as nginx does.
fn fail(conn: &Conn, failure: &Failure) {
    metrics::FAILURES.increment();
    if failure.reasons.is_empty() {
        let line = format_args!("peer closed connection in SSL handshake");
        return conn.log(Level::Info, HANDSHAKING, line);
    }
    let level = failure_level(failure);
    conn.log(level, HANDSHAKING, format_args!("SSL_do_handshake() failed {failure}"));
}

/// Tells a client why it is not served, if its socket takes that at once.
fn send_alert(conn: &Conn, alert: u8) {
    const ALERT: u8 = 21;
    const FATAL: u8 = 2;
    let record = [ALERT, 3, 3, 0, 2, FATAL, alert];
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    // The connection ends in any case.
    let _ = conn.link.transport.poll_write(&mut cx, &record);
}

/// What client and server have agreed on, as nginx logs it; looked up where the line is wanted.
struct Agreed<'s>(&'s dyn Session);

impl fmt::Display for Agreed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.0.info();
        let suite = info.suite.and_then(ciphers::description).unwrap_or_default();
        write!(f, "SSL: {}, cipher: \"{suite}\"", info.version.map_or("", Version::name))
    }
}
