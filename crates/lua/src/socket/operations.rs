//! The operations that functions of sockets wait for. Each is a future that owns what it needs; where it is
//! dropped before it is over, as its thread is killed, the connection ends, since it is unknown how far it
//! was.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use clearway_base::Errno;
use clearway_base::log::{Discard, Level, Sink};
use clearway_http::{AskedServers, Unresolved};
use clearway_net::connect::{AddressOwner, ConnectOptions, Local, Outbound};
use clearway_os::outgoing::Remote;
use clearway_runtime::{LoopRef, Timer};
use clearway_tls::stream::TlsError;

use super::connection::{Conn, Direction, Tcp, TcpState};
use super::connector;
use super::pool::{Given, Queued, Ticket};
use super::receive::{Found, Received, Want};
use crate::threads::{Answers, Line};

/// The most bytes that a function may keep of received data; more is an error.
const RECEIVED_BYTES_MAX: usize = 1 << 30;
/// Read at a time where more is wanted than the buffer of a socket holds.
const READ_BYTES_MAX: usize = 1 << 20;

/// Where to connect.
pub(crate) enum Target {
    Remote(Remote),
    /// A name, and a port.
    Name(Vec<u8>, u16),
}

/// The log, where it takes lines at debug level: hears of operations that are given up.
#[derive(Default)]
pub(crate) struct Told(Option<Arc<dyn Sink>>);

impl Told {
    pub(crate) fn of(sink: Option<&Arc<dyn Sink>>) -> Self {
        Self(sink.filter(|sink| sink.enabled(Level::Debug)).cloned())
    }

    fn say(&self, text: &str) {
        if let Some(sink) = &self.0 {
            sink.log(Level::Debug, format_args!("{text}"));
        }
    }

    /// Waits for `future`; `given_up` is said where that is dropped before.
    async fn until<T>(&self, given_up: &[&str], future: impl Future<Output = T>) -> T {
        let mut waiting = Waiting { told: self, given_up };
        let result = future.await;
        waiting.given_up = &[];
        result
    }
}

struct Waiting<'t> {
    told: &'t Told,
    given_up: &'t [&'t str],
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.given_up.iter().for_each(|text| self.told.say(text));
    }
}

/// The parameters of a connection.
pub(crate) struct Connecting {
    pub(crate) tcp: Arc<Tcp>,
    pub(crate) home: LoopRef,
    pub(crate) target: Target,
    pub(crate) name_servers: AskedServers,
    pub(crate) ticket: Option<Ticket>,
    /// The place in the queue for another connection of the key, if there are too many.
    pub(crate) queued: Option<Queued>,
    /// The local address.
    pub(crate) local: Option<SocketAddr>,
    /// The server in lines of the log.
    pub(crate) shown: String,
    pub(crate) told: Told,
}

impl Drop for Connecting {
    /// It has its place in the queue from the beginning, also where it is given up before it waits there.
    fn drop(&mut self) {
        if self.queued.is_some() {
            self.told.say(ABORT_QUEUEING);
        }
    }
}

/// Said of a place in a queue that is given up.
const ABORT_QUEUEING: &str = "lua tcp socket abort queueing";

/// As system calls fail, in Lua's words.
pub(crate) fn reason(error: &io::Error) -> String {
    if TlsError::find(error).is_some() {
        return "error".to_owned();
    }
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_ascii_lowercase()
}

pub(crate) fn line(tcp: &Tcp, level: Level, text: String) -> Option<Line> {
    tcp.conf.logs_errors.then(|| Line { level, text: text + &tcp.tail() })
}

/// The line of the log for a connection that has broken.
fn broken_line(tcp: &Tcp, call: &str, error: &io::Error) -> Option<Line> {
    let text = match (TlsError::find(error), error.raw_os_error()) {
        (Some(error), _) => error.to_string(),
        (None, Some(_)) => format!("{call} failed {}", Errno(error)),
        (None, None) => return None,
    };
    line(tcp, Level::Error, text)
}

/// `nil` and a text, with a line for the log.
pub(crate) fn failed(line: Option<Line>, text: String) -> Answers {
    Answers::Push(
        Box::new(move |stack| {
            stack.push(());
            stack.push(&*text);
        }),
        line.map(Box::new),
    )
}

/// Ends what was begun where it is not carried to its end.
pub(crate) struct Guard {
    tcp: Arc<Tcp>,
    pub(crate) is_over: bool,
}

impl Guard {
    pub(crate) fn new(tcp: &Arc<Tcp>) -> Self {
        Self { tcp: Arc::clone(tcp), is_over: false }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_over {
            let mut state = self.tcp.state();
            state.is_connecting = false;
            state.close_reading();
            state.close_writing();
        }
    }
}

/// Polls something that is not waited for where it is not over at once.
fn at_once<T>(poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    poll(&mut Context::from_waker(Waker::noop()))
}

/// Ends after so many milliseconds; begun anew after each step, unless that makes little of a difference
/// ([`LAZY_MS`]).
pub(crate) struct Limit {
    timer: Timer,
    home: LoopRef,
    /// When it ends.
    at_ms: u64,
}

/// As nginx has it: a timer is not set anew for less than this, milliseconds. A limit that is shorter holds
/// for all of an operation.
const LAZY_MS: u64 = 300;

impl Limit {
    pub(crate) fn new(home: LoopRef, ms: u64) -> Self {
        Self::with(Timer::new(home), home, ms)
    }

    fn with(timer: Timer, home: LoopRef, ms: u64) -> Self {
        let limit = Self { timer, home, at_ms: home.now_ms() + ms };
        limit.timer.arm(limit.at_ms);
        limit
    }

    /// The limit of an operation, with the timer of its connection.
    fn of(state: &TcpState, home: LoopRef, ms: u64) -> Self {
        let timer = state.conn.as_ref().and_then(|conn| conn.timer.enter().take());
        Self::with(timer.unwrap_or_else(|| Timer::new(home)), home, ms)
    }

    /// The operation is over: its connection's next one has the timer.
    fn end(limit: Option<Self>, state: &TcpState) {
        if let (Some(Self { timer, .. }), Some(conn)) = (limit, &state.conn) {
            timer.rest();
            *conn.timer.enter() = Some(timer);
        }
    }

    /// Begins anew, and is this long.
    fn renew(&mut self, ms: u64) {
        let at_ms = self.home.now_ms() + ms;
        if at_ms.abs_diff(self.at_ms) >= LAZY_MS {
            self.at_ms = at_ms;
            self.timer.arm(at_ms);
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.timer.poll_expired(cx)
    }
}

/// A future's result, unless time is up.
async fn within<T>(limit: &Limit, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => limit.poll(cx).map(|()| None),
    })
    .await
}

/// Connects.
pub(crate) async fn connect(mut work: Connecting) -> Answers {
    let mut guard = Guard::new(&work.tcp);
    let timeout_ms = work.tcp.state().timeouts.connect_ms;
    if let Some(queued) = work.queued.take() {
        match work.told.until(&[ABORT_QUEUEING], queued.wait()).await {
            None => {
                let shown = &work.shown;
                let text =
                    format!("lua tcp socket queued connect timed out, when trying to connect to {shown}");
                return failed(line(&work.tcp, Level::Error, text), "timeout".to_owned());
            }
            Some(Given::Conn(conn, used)) => {
                guard.is_over = true;
                work.tcp.state().begin(conn, used + 1);
                return Answers::One;
            }
            Some(Given::Leave(ticket)) => work.ticket = Some(ticket),
        }
    }
    let remote = match find(work.home, &work.target, &work.name_servers, &work.told).await {
        Ok(remote) => remote,
        Err(text) => return failed(None, text),
    };
    work.tcp.note_server(Some(&remote));
    let Some(connector) = connector() else { return failed(None, "no connector".to_owned()) };
    let limit = Limit::new(work.home, timeout_ms);
    let local = work.local.filter(|_| matches!(remote, Remote::Inet(_)));
    let local = local.map(|address| Local { address, owner: AddressOwner::Here });
    let options = ConnectOptions { local, ..ConnectOptions::default() };
    let connecting = connector.connect(work.home, &remote, &options, &Discard);
    match within(&limit, connecting).await {
        None => {
            let text = "lua tcp socket connect timed out".to_owned();
            failed(line(&work.tcp, Level::Error, text), "timeout".to_owned())
        }
        Some(Err(fault)) => {
            let (level, text) = (fault.level(), fault.describe(&work.shown).to_string());
            failed(line(&work.tcp, level, text), connect_reason(&fault))
        }
        Some(Ok(outbound)) => {
            guard.is_over = true;
            finish(&mut work, outbound);
            Answers::One
        }
    }
}

fn connect_reason(fault: &clearway_net::connect::ConnectFault) -> String {
    use clearway_net::connect::ConnectFault as Fault;
    match fault {
        Fault::Connections { .. } => "no connection available".to_owned(),
        Fault::Socket(error)
        | Fault::Transparent(_, error)
        | Fault::Bind(_, error)
        | Fault::Refused(error)
        | Fault::Failed(error) => reason(error),
    }
}

fn finish(work: &mut Connecting, outbound: Outbound) {
    // What is written is to leave at once; of a unix socket it does.
    clearway_os::socket::set_nodelay(outbound.socket.as_fd());
    let conn = Conn::new(outbound, work.ticket.take());
    work.tcp.state().begin(Arc::new(conn), 0);
}

/// The address to connect to.
pub(crate) async fn find(
    home: LoopRef,
    target: &Target,
    asked: &AskedServers,
    told: &Told,
) -> Result<Remote, String> {
    let (name, port) = match target {
        Target::Remote(remote) => return Ok(remote.clone()),
        Target::Name(name, port) => (name, *port),
    };
    let shown = String::from_utf8_lossy(name);
    let Some(servers) = &asked.servers else {
        return Err(format!("no resolver defined to resolve \"{shown}\""));
    };
    let resolving = servers.resolve(home, name, asked.timeout);
    let resolved = told.until(&["lua tcp socket abort resolver", "resolve name done: -2"], resolving).await;
    told.say("resolve name done: 0");
    match resolved {
        Ok(addresses) => {
            let address = pick(&addresses).ok_or_else(|| format!("{shown} could not be resolved"))?;
            Ok(Remote::Inet(SocketAddr::new(address, port)))
        }
        Err(Unresolved::NoServers) => Err(format!("no resolver defined to resolve \"{shown}\"")),
        Err(Unresolved::Failed(text)) => Err(format!("{shown} could not be resolved ({text})")),
    }
}

/// Picks one of several addresses, in turn.
fn pick(addresses: &[IpAddr]) -> Option<IpAddr> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static TURN: AtomicUsize = AtomicUsize::new(0);
    match addresses {
        [] => None,
        [one] => Some(*one),
        many => many.get(TURN.fetch_add(1, Ordering::Relaxed) % many.len()).copied(),
    }
}

/// Received data, and whether they are the last piece before a pattern.
pub(crate) type Taken = Result<(Vec<u8>, bool), (String, Vec<u8>)>;

/// A receive operation: `reading` of its socket is Busy until it is over.
pub(crate) struct Receiving {
    pub(crate) tcp: Arc<Tcp>,
    home: LoopRef,
    /// Its timeout, as it was when it began: another thread may set one for its own.
    limit_ms: u64,
    want: Want,
    /// Once it waits.
    limit: Option<Limit>,
    guard: Guard,
    answer: fn((Taken, Option<Line>)) -> Answers,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").field("want", &self.want).finish_non_exhaustive()
    }
}

/// Reads more of a connection, or of what stands for one; 0 is the end.
pub(crate) type Read<'r> =
    &'r mut dyn FnMut(Option<&Conn>, &mut Vec<u8>, &mut Context<'_>) -> Poll<io::Result<usize>>;

impl Receiving {
    pub(crate) fn new(
        tcp: Arc<Tcp>,
        home: LoopRef,
        want: Want,
        answer: fn((Taken, Option<Line>)) -> Answers,
    ) -> Self {
        let guard = Guard::new(&tcp);
        let limit_ms = tcp.state().timeouts.read_ms;
        Self { tcp, home, limit_ms, want, limit: None, guard, answer }
    }

    /// Takes what is there, without waiting for more.
    pub(crate) fn poll_now(&mut self) -> Poll<Answers> {
        debug_assert!(self.limit.is_none(), "what waits is not tried at once");
        let tcp = Arc::clone(&self.tcp);
        let mut state = tcp.state();
        let mut read: Read<'_> = &mut |conn, buffer, cx| match conn {
            Some(conn) if conn.may_have_data() => conn.poll_read(cx, buffer),
            Some(_) => Poll::Pending,
            None => Poll::Ready(Ok(0)),
        };
        let taken = ready!(at_once(|cx| self.poll_receive(&mut state, &mut read, cx)));
        Poll::Ready(self.conclude(&mut state, taken))
    }

    /// Goes on with what `read` gives.
    pub(crate) fn poll(&mut self, mut read: Read<'_>, cx: &mut Context<'_>) -> Poll<Answers> {
        let tcp = Arc::clone(&self.tcp);
        let mut state = tcp.state();
        let taken = match self.poll_receive(&mut state, &mut read, cx) {
            Poll::Ready(taken) => taken,
            Poll::Pending => {
                let begin = || Limit::of(&state, self.home, self.limit_ms);
                ready!(self.limit.get_or_insert_with(begin).poll(cx));
                Err(Broken::Timeout)
            }
        };
        Poll::Ready(self.conclude(&mut state, taken))
    }

    fn poll_receive(
        &mut self,
        state: &mut TcpState,
        read: &mut Read<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Vec<u8>, bool), Broken>> {
        loop {
            match self.want.find(&mut state.input) {
                Found::Data(data) => return Poll::Ready(Ok((data, false))),
                Found::Last(data) => return Poll::Ready(Ok((data, true))),
                Found::More => {}
            }
            if state.input.rest().len() >= RECEIVED_BYTES_MAX {
                return Poll::Ready(Err(Broken::TooMuch));
            }
            let room = self.want.missing(&state.input).clamp(self.tcp.conf.buffer_bytes, READ_BYTES_MAX);
            match ready!(read(state.conn.as_deref(), state.input.room(room), cx)) {
                Ok(0) => return Poll::Ready(Err(Broken::End)),
                Ok(count) => {
                    debug_assert!(count <= state.input.rest().len(), "what was read stands in the input");
                    // A timeout that another thread has set meanwhile holds from here on.
                    if let Some(limit) = &mut self.limit {
                        limit.renew(state.timeouts.read_ms);
                    }
                }
                Err(error) => return Poll::Ready(Err(Broken::Error(error))),
            }
        }
    }

    /// It is over.
    fn conclude(&mut self, state: &mut TcpState, taken: Result<(Vec<u8>, bool), Broken>) -> Answers {
        debug_assert!(!self.guard.is_over, "an operation is over once");
        self.guard.is_over = true;
        Limit::end(self.limit.take(), state);
        if state.reading == Direction::Busy {
            state.reading = Direction::Free;
        }
        (self.answer)(conclude(&self.tcp, state, &self.want, taken))
    }
}

/// What comes of it.
fn conclude(
    tcp: &Tcp,
    state: &mut TcpState,
    want: &Want,
    taken: Result<(Vec<u8>, bool), Broken>,
) -> (Taken, Option<Line>) {
    match taken {
        Ok(taken) => (Ok(taken), None),
        Err(Broken::Timeout) => {
            let text = "lua tcp socket read timed out".to_owned();
            let partial = state.input.take_all();
            (Err(("timeout".to_owned(), partial)), line(tcp, Level::Error, text))
        }
        Err(Broken::End) => {
            let answer = want.find_at_end(&mut state.input);
            state.close_reading();
            (answer.map(|data| (data, false)).map_err(|rest| ("closed".to_owned(), rest)), None)
        }
        Err(Broken::TooMuch) => {
            let partial = state.input.take_all();
            state.close_reading();
            (Err(("no memory".to_owned(), partial)), None)
        }
        Err(Broken::Error(error)) => {
            let partial = state.input.take_all();
            state.close_reading();
            (Err((reason(&error), partial)), broken_line(tcp, "recv()", &error))
        }
    }
}

enum Broken {
    Timeout,
    End,
    TooMuch,
    Error(io::Error),
}

/// Receives from the connection of a socket.
pub(crate) async fn receive(mut receiving: Receiving) -> Answers {
    poll_fn(|cx| {
        receiving.poll(
            &mut |conn, buffer, cx| match conn {
                Some(conn) => conn.poll_read(cx, buffer),
                None => Poll::Ready(Ok(0)),
            },
            cx,
        )
    })
    .await
}

/// Answers of what was received up to a pattern: data, nothing, nothing, whether it is the last piece.
pub(crate) fn received_until((taken, line): (Taken, Option<Line>)) -> Answers {
    match taken {
        Ok((data, is_last)) => Answers::Push(
            Box::new(move |stack| {
                stack.push(&data[..]);
                stack.push(());
                stack.push(());
                stack.push(is_last);
            }),
            line.map(Box::new),
        ),
        failed => received((failed, line)),
    }
}

/// Answers of what was received.
pub(crate) fn received((taken, line): (Taken, Option<Line>)) -> Answers {
    let received = match taken {
        Ok((data, _)) => Received::Data(data),
        Err((text, partial)) => Received::Failed(text, partial),
    };
    Answers::Push(Box::new(move |stack| received.push(stack)), line.map(Box::new))
}

/// A send operation: `writing` of its socket is Busy until it is over.
pub(crate) struct Sending {
    pub(crate) tcp: Arc<Tcp>,
    home: LoopRef,
    /// As of [`Receiving`].
    limit_ms: u64,
    data: Vec<u8>,
    sent: usize,
    /// Once it waits.
    limit: Option<Limit>,
    guard: Guard,
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sending").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// Writes to a connection, or to what stands for one.
pub(crate) type Write<'w> =
    &'w mut dyn FnMut(Option<&Conn>, &[u8], &mut Context<'_>) -> Poll<io::Result<usize>>;

impl Sending {
    pub(crate) fn new(tcp: Arc<Tcp>, home: LoopRef, data: Vec<u8>) -> Self {
        let guard = Guard::new(&tcp);
        let limit_ms = tcp.state().timeouts.send_ms;
        Self { tcp, home, limit_ms, data, sent: 0, limit: None, guard }
    }

    /// Sends what the connection takes at once.
    pub(crate) fn poll_now(&mut self) -> Poll<Answers> {
        debug_assert!(self.limit.is_none(), "what waits is not tried at once");
        let tcp = Arc::clone(&self.tcp);
        let mut state = tcp.state();
        let sent = ready!(at_once(|cx| self.poll_send(&state, &mut write_to, cx)));
        Poll::Ready(self.conclude(&mut state, sent))
    }

    /// Goes on with what `write` takes.
    pub(crate) fn poll(&mut self, write: Write<'_>, cx: &mut Context<'_>) -> Poll<Answers> {
        let tcp = Arc::clone(&self.tcp);
        let mut state = tcp.state();
        let sent = match self.poll_send(&state, write, cx) {
            Poll::Ready(sent) => sent,
            Poll::Pending => {
                let begin = || Limit::of(&state, self.home, self.limit_ms);
                ready!(self.limit.get_or_insert_with(begin).poll(cx));
                Err(Broken::Timeout)
            }
        };
        Poll::Ready(self.conclude(&mut state, sent))
    }

    fn poll_send(
        &mut self,
        state: &TcpState,
        write: Write<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Broken>> {
        while self.sent < self.data.len() {
            match ready!(write(state.conn.as_deref(), &self.data[self.sent..], cx)) {
                Ok(count) => {
                    self.sent += count;
                    assert!(self.sent <= self.data.len(), "a socket takes no more than it is given");
                    if let Some(limit) = &mut self.limit {
                        limit.renew(state.timeouts.send_ms);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                    return Poll::Ready(Err(Broken::End));
                }
                Err(error) => return Poll::Ready(Err(Broken::Error(error))),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// It is over.
    fn conclude(&mut self, state: &mut TcpState, sent: Result<(), Broken>) -> Answers {
        debug_assert!(!self.guard.is_over, "an operation is over once");
        debug_assert!(sent.is_err() || self.sent == self.data.len(), "all of it is sent, or it has failed");
        self.guard.is_over = true;
        Limit::end(self.limit.take(), state);
        if state.writing == Direction::Busy {
            state.writing = Direction::Free;
        }
        match sent {
            Ok(()) => Answers::Number(self.data.len() as f64),
            Err(broken) => {
                state.close_writing();
                unsent(&self.tcp, broken)
            }
        }
    }
}

/// Writes to the connection of a socket.
fn write_to(conn: Option<&Conn>, data: &[u8], cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    match conn {
        Some(conn) => conn.poll_write(cx, data),
        None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
    }
}

fn unsent(tcp: &Tcp, broken: Broken) -> Answers {
    match broken {
        Broken::Timeout => {
            let text = "lua tcp socket write timed out".to_owned();
            failed(line(tcp, Level::Error, text), "timeout".to_owned())
        }
        Broken::Error(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            failed(broken_line(tcp, "send()", &error), "broken pipe".to_owned())
        }
        Broken::Error(error) => failed(broken_line(tcp, "send()", &error), reason(&error)),
        Broken::End | Broken::TooMuch => failed(None, "closed".to_owned()),
    }
}

/// Sends all of it over the connection of a socket.
pub(crate) async fn send(mut sending: Sending) -> Answers {
    poll_fn(|cx| sending.poll(&mut write_to, cx)).await
}
