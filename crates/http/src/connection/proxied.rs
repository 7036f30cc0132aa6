//! The header of the PROXY protocol that a connection begins with (`listen … proxy_protocol`), read in the
//! connection's task before its first request, and the variables made of it.

use std::future::poll_fn;
use std::task::Poll;

use clearway_base::log::Level;
use clearway_message::put_decimal;
use clearway_net::PeerAddr;
use clearway_net::proxy_protocol::{Broken, Endpoint, Progress, Proxied, TlvError, parse};

use crate::connection::{Conn, Ending, Idle, TIMED_OUT, Waiting};
use crate::request::parts::Parts;
use crate::request::{Request, Verbatim};
use crate::tables::{Module, VariableKind, VariableSpec};
use crate::variables::{Presence, View};

/// What is being done, for the error log.
const READING: &str = "reading PROXY protocol";

/// The engine's own part of the tables, as far as the PROXY protocol goes.
pub(crate) static PROXIED: Module = Module { name: "proxy_protocol", variables: VARIABLES, ..Module::EMPTY };

macro_rules! variable {
    ($name:literal, $doc:literal, $eval:expr) => {
        VariableSpec { name: $name, kind: VariableKind::Exact, doc: $doc, eval: $eval }
    };
}

static VARIABLES: &[VariableSpec] = &[
    variable!(
        "proxy_protocol_addr",
        "Address of the client by the header of the PROXY protocol.",
        |view, _, out| put_address(view, |proxied| &proxied.source, out)
    ),
    variable!(
        "proxy_protocol_port",
        "Port of the client by the header of the PROXY protocol.",
        |view, _, out| put_port(view, |proxied| &proxied.source, out)
    ),
    variable!(
        "proxy_protocol_server_addr",
        "Address that the client connected to by the header of the PROXY protocol.",
        |view, _, out| put_address(view, |proxied| &proxied.destination, out)
    ),
    variable!(
        "proxy_protocol_server_port",
        "Port that the client connected to by the header of the PROXY protocol.",
        |view, _, out| put_port(view, |proxied| &proxied.destination, out)
    ),
    VariableSpec {
        name: "proxy_protocol_tlv_",
        kind: VariableKind::Prefix,
        doc: "A typed value of the header of the PROXY protocol: by its number (`0x01`), or `alpn`, \
              `authority`, `unique_id`, `netns`, `ssl`; of those about TLS `ssl_version`, `ssl_cn`, \
              `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`, `ssl_verify`, or `ssl_0x21` and so on.",
        eval: typed_value,
    },
];

fn put_address(view: &View<'_, '_>, end: fn(&Proxied) -> &Endpoint, out: &mut Vec<u8>) -> Presence {
    let proxied = view.request.proxied();
    Presence::put(proxied.map(|proxied| end(proxied).address.as_bytes()), out)
}

fn put_port(view: &View<'_, '_>, end: fn(&Proxied) -> &Endpoint, out: &mut Vec<u8>) -> Presence {
    let Some(proxied) = view.request.proxied() else { return Presence::NotFound };
    match end(proxied).port {
        0 => {}
        port => put_decimal(out, u64::from(port)),
    }
    Presence::Found
}

fn typed_value(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence {
    let Some(proxied) = view.request.proxied() else { return Presence::NotFound };
    let say = |message| view.request.log(Level::Error, message);
    match proxied.tlv(name) {
        Ok(value) => return Presence::put(value.as_deref(), out),
        Err(TlvError::Broken) => say(format_args!("broken PROXY protocol TLV")),
        Err(TlvError::Invalid) => say(format_args!("invalid PROXY protocol TLV \"{}\"", Verbatim(name))),
        Err(TlvError::Unknown) => {
            let name = name.strip_prefix(b"ssl_").unwrap_or(name);
            say(format_args!("unknown PROXY protocol TLV \"{}\"", Verbatim(name)));
        }
        Err(TlvError::Short) => {}
    }
    Presence::NotFound
}

/// What has come before the first request of a connection.
pub(crate) struct Front {
    proxied: Option<Box<Proxied>>,
    /// What was received together with it.
    rest: Option<Box<Parts>>,
}

impl Front {
    pub(crate) fn take_rest(&mut self) -> Option<Box<Parts>> {
        self.rest.take()
    }
}

impl Request<'_> {
    /// What the proxy in front has said of the connection.
    pub fn proxied(&self) -> Option<&Proxied> {
        self.conn.front.as_ref()?.proxied.as_deref()
    }

    /// Who has connected, whatever was said of the client since.
    pub fn connection_peer(&self) -> PeerAddr {
        self.conn.peer
    }
}

/// Reads the header, and keeps it with what was received of the first request, if anything was.
pub(crate) async fn read_front(conn: &mut Conn, waiting: Waiting) -> Result<(), Ending> {
    conn.timer.arm(conn.start_ms + *conn.server_core().client_header_timeout_ms);
    let mut parts = conn.take_parts();
    let mut idle = Idle::New;
    loop {
        match poll_fn(|cx| Poll::Ready(conn.read_idle(idle, &mut parts.input, cx))).await {
            Poll::Ready(Ok(1..)) => {
                if let Some(proxied) = take_header(conn, &mut parts.input)? {
                    conn.front = Some(Box::new(Front { proxied, rest: keep_unless_empty(conn, parts) }));
                    return Ok(());
                }
            }
            Poll::Pending if idle != Idle::Leaving => {}
            Poll::Pending => return Err(Ending),
            Poll::Ready(result) => {
                conn.log_closed(READING, result);
                return Err(Ending);
            }
        }
        idle = poll_fn(|cx| conn.poll_idle(waiting, cx)).await;
        match idle {
            Idle::New | Idle::Readable | Idle::Leaving => {}
            Idle::Closed => return Err(Ending),
            Idle::TimedOut => {
                conn.log(Level::Info, READING, format_args!("{TIMED_OUT}"));
                return Err(Ending);
            }
        }
    }
}

/// Takes the header from the front of what was received, and tells what it says; `None` while there is
/// more to come of it.
fn take_header(conn: &Conn, input: &mut Vec<u8>) -> Result<Option<Option<Box<Proxied>>>, Ending> {
    match parse(input, conn.server_core().options.client_header_buffer_size) {
        Ok(Progress::Incomplete) => Ok(None),
        Ok(Progress::Complete { proxied, length }) => {
            input.drain(..length);
            Ok(Some(proxied))
        }
        Err(Broken::Addresses) => Err(Ending),
        Err(broken) => {
            conn.log(Level::Error, READING, format_args!("{broken}"));
            Err(Ending)
        }
    }
}

fn keep_unless_empty(conn: &Conn, parts: Box<Parts>) -> Option<Box<Parts>> {
    if parts.input.is_empty() {
        conn.put_back(parts);
        return None;
    }
    Some(parts)
}
