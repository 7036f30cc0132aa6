//! The contents of a connection's header of the PROXY protocol (`listen … proxy_protocol`), for its requests,
//! and the variables made of it.

use clearway_base::log::Level;
use clearway_message::put_decimal;
use clearway_net::PeerAddr;
use clearway_net::proxy_protocol::{Endpoint, Proxied, TlvError};

use crate::output::view::{Presence, View};
use crate::request::Request;
use crate::tables::{Module, VariableKind, VariableSpec};
use clearway_base::log::Verbatim;

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

impl Request<'_> {
    /// The facts that the proxy in front has sent about the connection.
    pub fn proxied(&self) -> Option<&Proxied> {
        self.client.front.as_ref()?.proxied()
    }

    /// The peer that connected, whatever address the client was given since.
    pub fn connection_peer(&self) -> PeerAddr {
        self.client.peer
    }
}
