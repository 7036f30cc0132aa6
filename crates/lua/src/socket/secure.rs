//! `sslhandshake`: TLS between a socket of Lua's and its connection. The handshake is a future of its own;
//! where it fails, or is given up, the connection ends.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use clearway_base::log::{Level, Verbatim};
use clearway_luajit::Stack;
use clearway_runtime::LoopRef;
use clearway_tls::engine::{Asking, Engine, Info, Session, Target, Verified, Versions};
use clearway_tls::outgoing::{Checks, Outgoing};
use clearway_tls::{AwsLc, Certificate, Context, Pair, TlsSession};
use clearway_upstream::{HandshakeFault, TlsStream, Transport};

use super::connection::{Conn, Tcp};
use super::operations::{Guard, Limit, failed, line};
use crate::threads::{Answers, Line};

/// Whether something is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    No,
    Yes,
}

/// The parameters of a handshake.
pub(crate) struct Handshake {
    pub(crate) tcp: Arc<Tcp>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) home: LoopRef,
    pub(crate) context: Arc<Context>,
    /// The server that is asked for.
    pub(crate) name: Option<Vec<u8>>,
    /// A session of before.
    pub(crate) session: Option<Vec<u8>>,
    /// The certificate for servers that ask for one.
    pub(crate) pair: Option<Pair>,
    /// Whether the certificate of the server is to be good.
    pub(crate) verify: Wish,
    /// Whether the server is asked what authorities say of its certificate.
    pub(crate) staple: Wish,
}

/// The defaults of `lua_ssl_…`.
pub(crate) fn settings() -> Outgoing {
    Outgoing {
        versions: Versions::default(),
        ciphers: b"DEFAULT".to_vec(),
        keeps_sessions: true,
        verify: Some(Checks { asking: Asking::Off, depth: 1, trusted: Vec::new(), revoked: Vec::new() }),
        pair: None,
        passwords: None,
        commands: Vec::new(),
    }
}

/// The context where the configuration says nothing, made once.
pub(crate) fn default_context() -> Option<Arc<Context>> {
    static DEFAULT: OnceLock<Option<Arc<Context>>> = OnceLock::new();
    let make = || settings().build(&<[u8]>::to_vec, &mut |_| Err(std::io::ErrorKind::NotFound.into())).ok();
    DEFAULT.get_or_init(make).clone()
}

/// Makes the handshake. What it answers: whether a session was taken up, what the log says of the connection,
/// and the session, if there is one yet; or nothing, and why.
pub(crate) async fn handshake(work: Handshake) -> Answers {
    match shake(work).await {
        Ok(conn) => Answers::Push(Box::new(move |stack| push_session(&conn, stack)), None),
        Err((line, text)) => failed(line, text),
    }
}

/// The handshake, for code that fetches the outcome.
pub(crate) async fn handshake_beside(work: Handshake) -> Answers {
    let tcp = Arc::clone(&work.tcp);
    let (line, shaken) = match shake(work).await {
        Ok(_) => (None, Ok(())),
        Err((line, text)) => (line, Err(text)),
    };
    tcp.state().shaken = Some(shaken);
    Answers::Push(Box::new(|_| ()), line.map(Box::new))
}

/// A line for the log, and the words for Lua.
type Refusal = (Option<Line>, String);

async fn shake(work: Handshake) -> Result<Arc<Conn>, Refusal> {
    let Handshake { tcp, conn, home, context, name, session, pair, verify, staple } = work;
    let mut guard = Guard::new(&tcp);
    let limit = Limit::new(home, tcp.state().timeouts.connect_ms);
    let target = Target { name: name.as_deref().and_then(said_name), session: session.as_deref() };
    let begun = AwsLc::connect(&context, target).and_then(|mut session| {
        pair.iter().try_for_each(|pair| session.present(pair))?;
        if staple == Wish::Yes {
            session.ask_for_staple();
        }
        Ok(session)
    });
    let session = match begun {
        Ok(session) => session,
        Err(error) => {
            let text = match error.call {
                "SSL_use_PrivateKey()" => "ssl set client private key failed",
                "SSL_use_certificate()" => "ssl set client certificate failed",
                _ => "failed to create ssl connection",
            };
            return Err((line(&tcp, Level::Error, error.to_string()), text.to_owned()));
        }
    };
    let conn = Arc::new(secured(conn, session).await);
    let done = poll_fn(|cx| match conn.with_tls(|stream| stream.poll_handshake(cx)) {
        None => Poll::Ready(Some(Err(HandshakeFault::Closed))),
        Some(Poll::Ready(done)) => Poll::Ready(Some(done)),
        Some(Poll::Pending) => limit.poll(cx).map(|()| None),
    })
    .await;
    match done {
        None => Err((None, "timeout".to_owned())),
        Some(Err(fault)) => Err((line(&tcp, Level::Error, fault.to_string()), "handshake failed".into())),
        Some(Ok(())) => {
            let refused =
                conn.with_tls(|stream| refusal(stream.session(), name.as_deref(), verify)).flatten();
            if let Some((said, text)) = refused {
                return Err((line(&tcp, Level::Error, said), text));
            }
            guard.is_over = true;
            let mut state = tcp.state();
            state.is_connecting = false;
            state.conn = Some(Arc::clone(&conn));
            Ok(conn)
        }
    }
}

/// A connection that was put aside may still be held by what has looked after it, for the moment.
async fn secured(conn: Arc<Conn>, session: TlsSession) -> Conn {
    let mut conn = Some(conn);
    let alone = poll_fn(|cx| match conn.take().map(Arc::try_unwrap) {
        Some(Ok(alone)) => Poll::Ready(alone),
        Some(Err(shared)) => {
            conn = Some(shared);
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        None => Poll::Pending,
    })
    .await;
    alone.secured(|socket| Transport::Tls(TlsStream::new(socket, Box::new(session))))
}

/// The name that a server is told, which goes up to its first NUL. Servers are told no addresses.
fn said_name(name: &[u8]) -> Option<&str> {
    let name = name.split(|&byte| byte == 0).next()?;
    let name = std::str::from_utf8(name).ok()?;
    Some(name).filter(|name| !name.is_empty() && name.parse::<IpAddr>().is_err())
}

/// The fault of the server's certificate: the line of the log, and the text for Lua.
fn refusal(session: &dyn Session, name: Option<&[u8]>, verify: Wish) -> Option<(String, String)> {
    if verify == Wish::No {
        return None;
    }
    if let Verified::Failed(number, text) = session.info().verification {
        let line = format!("lua ssl certificate verify error: ({number}: {text})");
        return Some((line, format!("{number}: {text}")));
    }
    let name = name.filter(|name| !name.is_empty())?;
    let certificate = session.peer_certificate().and_then(|der| Certificate::from_der(&der));
    if certificate.is_some_and(|certificate| certificate.is_for(&String::from_utf8_lossy(name))) {
        return None;
    }
    let line = format!("lua ssl certificate does not match host \"{}\"", Verbatim(name));
    Some((line, "certificate host mismatch".to_owned()))
}

/// See [`handshake`].
pub(crate) fn push_session(conn: &Conn, stack: &mut Stack<'_>) {
    let (info, session) = session_of(conn);
    stack.push(info.is_resumed);
    stack.push(&*described(&info));
    stack.push(session.as_deref());
}

/// Facts about the connection, and the session that the server has given since the last one was taken.
pub(crate) fn session_of(conn: &Conn) -> (Info, Option<Vec<u8>>) {
    let known = conn.with_tls(|stream| (stream.session().info(), stream.take_kept().pop()));
    let (info, kept) = known.unwrap_or_default();
    (info, kept.map(|kept| kept.content))
}

/// As nginx says it of a connection.
pub(crate) fn described(info: &Info) -> String {
    let version = info.version.map_or("", |version| version.name());
    let suite = info.suite.unwrap_or_default();
    format!("SSL: {version}, cipher: \"{suite} {version}\"")
}
