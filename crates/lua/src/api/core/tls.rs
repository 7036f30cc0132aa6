//! Handshakes, certificates and keys, and the answers of authorities (OCSP). C holds chains and keys.

use std::net::IpAddr;
use std::sync::Arc;

use clearway_http::{About, Tls};
use clearway_luajit::Reply;
use clearway_luajit::core::{CoreCall, handshake as asked, ocsp as authority, reading};
use clearway_net::PeerAddr;
use clearway_tls::engine::{ClientCheck, Versions};
use clearway_tls::level::Version;
use clearway_tls::ocsp::{Followed, OcspError};
use clearway_tls::{Chain, PrivateKey, is_session};

use super::codes::{DECLINED, ERROR, OK, failed, with};
use crate::api::handshake::{
    self, EXPORTED_MAX_BYTES, NO_SESSION, session_name, shaking_of, unread, with_meeting,
};
use crate::api::ocsp::responder_of;
use crate::current::{Current, LuaPhase};
use crate::shaking::{Meeting, Shaking, Showing};

/// Said where there is no handshake, and none was.
const NO_TLS: &str = "bad request";
/// The error for a connection to a server that is not there.
const NO_SERVER: &str = "bad upstream connection";
/// Said where only OpenSSL's own objects could tell.
const NO_OBJECT: &str = "no object of OpenSSL's is behind the connection";

const UNREAD_DER: &str = "d2i_X509_bio() failed";
const UNREAD_KEY_PEM: &str = "PEM_read_bio_PrivateKey() failed";
const UNREAD_KEY_DER: &str = "d2i_PrivateKey_bio() failed";

/// (which function; with a client or a server, and a number that belongs to it).
pub(super) fn handshake(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let (what, is_server) = (call.number(0) as u8, call.number(1) == asked::WITH_SERVER);
    with(call, reply, |current, reply| match (what, is_server) {
        (asked::UNKNOWN, true) if with_meeting(current, |_| ()).is_none() => failed(reply, NO_TLS),
        (asked::UNKNOWN, false) if !has_tls(current) => failed(reply, NO_TLS),
        (asked::UNKNOWN, _) => failed(reply, NO_OBJECT),
        (asked::CHECK_CLIENT, _) if current.phase != LuaPhase::SslCertificate => {
            failed(reply, "API disabled in the current context")
        }
        (asked::CLEAR..=asked::KEY, _) => {
            let said = said_of(call, what);
            let shown = match (said, is_server) {
                (Err(text), _) => return failed(reply, text),
                (Ok(said), true) => with_meeting(current, |meeting| said.show(&mut meeting.showing)),
                (Ok(said), false) => {
                    shaking_of(current).map(|shaking| shaking.show(|showing| said.show(showing)))
                }
            };
            match shown {
                None => failed(reply, NO_TLS),
                Some(Err(text)) => failed(reply, text),
                Some(Ok(())) => OK,
            }
        }
        (_, true) => {
            let known = with_meeting(current, |meeting| of_server(call, what, meeting, reply));
            known.unwrap_or_else(|| failed(reply, NO_SERVER))
        }
        (_, false) => match shaking_of(current) {
            Some(shaking) => of_client(call, what, shaking, reply),
            None => of_request(call, what, current, reply),
        },
    })
}

fn has_tls(current: &mut Current<'_>) -> bool {
    shaking_of(current).is_some() || current.scene(|scene| scene.request().tls().is_some()) == Some(true)
}

/// Something said of certificates that the other side is shown.
enum Said {
    Clear,
    Chain(Arc<Chain>),
    Key(Arc<PrivateKey>),
}

impl Said {
    fn show(self, showing: &mut Showing) -> Result<(), &'static str> {
        match self {
            Self::Clear => showing.clear(),
            Self::Chain(chain) => showing.add_chain(chain),
            Self::Key(key) => showing.add_key(key).map_err(|()| "SSL_use_PrivateKey() failed")?,
        }
        Ok(())
    }
}

fn said_of(call: &CoreCall<'_>, what: u8) -> Result<Said, &'static str> {
    match what {
        asked::CLEAR => Ok(Said::Clear),
        asked::DER_CERTIFICATE => {
            Chain::from_der(call.text(0)).map(|chain| Said::Chain(chain.into())).ok_or(UNREAD_DER)
        }
        asked::DER_KEY => {
            PrivateKey::from_der(call.text(0)).map(|key| Said::Key(key.into())).ok_or(UNREAD_KEY_DER)
        }
        asked::CERTIFICATE => {
            let chain = call.object::<Arc<Chain>>().ok_or("invalid certificate chain")?;
            Ok(Said::Chain(Arc::clone(chain)))
        }
        _ => {
            let key = call.object::<Arc<PrivateKey>>().ok_or("invalid private key")?;
            Ok(Said::Key(Arc::clone(key)))
        }
    }
}

/// Appends a text to the reply; -5 where there is none.
fn put(reply: &mut Reply, text: Option<&[u8]>) -> i32 {
    let Some(text) = text else { return DECLINED };
    reply.text.extend_from_slice(text);
    OK
}

fn put_address(reply: &mut Reply, address: Option<IpAddr>) -> i32 {
    let family = match address {
        Some(IpAddr::V4(address)) => {
            reply.text.extend_from_slice(&address.octets());
            asked::INET
        }
        Some(IpAddr::V6(address)) => {
            reply.text.extend_from_slice(&address.octets());
            asked::INET6
        }
        None => asked::UNIX,
    };
    reply.number = f64::from(family);
    OK
}

fn ip_of(peer: PeerAddr) -> Option<IpAddr> {
    match peer {
        PeerAddr::Unix => None,
        peer => peer.ip(),
    }
}

/// Looks at a handshake with a client, or says something of it.
fn of_client(call: &CoreCall<'_>, what: u8, shaking: &Shaking, reply: &mut Reply) -> i32 {
    let about = &shaking.about;
    match what {
        asked::VERSION => i32::from(about.version.unwrap_or(0)),
        asked::SERVER_NAME => put(reply, about.hello.server_name()),
        asked::SERVER_ADDRESS => put_address(reply, about.local.map(|local| local.ip())),
        asked::CLIENT_ADDRESS => put_address(reply, ip_of(about.peer)),
        asked::SERVER_PORT => match about.local {
            None => failed(reply, "unix domain has no port"),
            Some(local) => {
                reply.number = f64::from(local.port());
                OK
            }
        },
        asked::RANDOM => put(reply, Some(about.hello.random())),
        asked::EXTENSION => {
            let mut all = about.hello.extensions();
            let found = all.find(|(kind, _)| f64::from(*kind) == call.number(2));
            put(reply, found.map(|(_, content)| content))
        }
        asked::EXTENSIONS => {
            let kinds = about.hello.extensions().map(|(kind, _)| kind);
            reply.places.extend(kinds.filter(|kind| !handshake::means_nothing(*kind)).map(i32::from));
            OK
        }
        asked::SUITES => {
            reply.places.extend(about.hello.suites().map(i32::from));
            OK
        }
        asked::PROTOCOLS => {
            let versions = versions_of(call.number(2) as u32);
            shaking.wish(|wishes| wishes.versions = Some(versions));
            OK
        }
        asked::SESSION_ID => match session_name(shaking) {
            None => failed(reply, "uninitialized session id len in lua context"),
            name => put(reply, name.as_deref()),
        },
        asked::SESSION => match &about.session {
            None => failed(reply, "bad session in lua context"),
            Some(session) => put(reply, Some(&session.content)),
        },
        asked::SET_SESSION => set_session(call.text(0), shaking, reply),
        asked::ANSWER if !about.hello.asks_for_status() => DECLINED,
        asked::ANSWER => {
            let answer: Arc<[u8]> = call.text(0).into();
            shaking.wish(|wishes| wishes.answer = Some(answer));
            OK
        }
        asked::CHECK_CLIENT => match check_of(call) {
            Err(text) => failed(reply, text),
            Ok(check) => {
                shaking.wish(|wishes| wishes.check = Some(check));
                OK
            }
        },
        asked::SHARED_SUITES if !about.suites.is_empty() => put_offered(about, call.number(2), reply),
        // The library is asked behind the code.
        asked::SERVER_RANDOM | asked::MASTER_KEY | asked::SHARED_SUITES | asked::EXPORT => {
            failed(reply, "bad ssl conn")
        }
        _ => ERROR,
    }
}

/// The client takes up this session, if it is one.
fn set_session(session: &[u8], shaking: &Shaking, reply: &mut Reply) -> i32 {
    if session.is_empty() {
        return failed(reply, "invalid session length");
    }
    if !is_session(session) {
        return failed(reply, NO_SESSION);
    }
    shaking.wish(|wishes| wishes.session = Some(session.to_vec()));
    OK
}

/// The suites of the server that the client has offered.
fn put_offered(about: &About, room: f64, reply: &mut Reply) -> i32 {
    if about.suites.len() as f64 > room {
        return failed(reply, "buffer too small");
    }
    reply.places.extend(handshake::shared_suites(about).into_iter().map(i32::from));
    OK
}

/// How a client's certificate is to be checked: the depth, and which of two chains are given.
fn check_of(call: &CoreCall<'_>) -> Result<ClientCheck, &'static str> {
    let mut chains = call.objects::<Arc<Chain>>();
    let mut chain = |number: usize| match call.number(number) == 0.0 {
        true => Ok(None),
        false => chains.next().map(|chain| Some(Arc::clone(chain) as _)).ok_or("invalid certificate chain"),
    };
    let (authorities, trusted) = (chain(3)?, chain(4)?);
    Ok(ClientCheck { authorities, trusted, depth: u32::try_from(call.number(2) as i32).ok() })
}

/// The versions that bits of lua-resty-core's name; those that are not spoken are passed over.
fn versions_of(bits: u32) -> Versions {
    const BITS: [(u32, Version); 4] =
        [(0x08, Version::Tls10), (0x10, Version::Tls11), (0x20, Version::Tls12), (0x40, Version::Tls13)];
    BITS.iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(Versions::none(), |versions, (_, version)| versions.and(*version))
}

/// The suites that client and server have in common, in the server's order, if all of the server's have room.
fn put_shared(reply: &mut Reply, tls: &Tls, room: f64) -> i32 {
    if tls.suites().len() as f64 > room {
        return failed(reply, "buffer too small");
    }
    reply.places.extend(tls.shared_suites().into_iter().map(i32::from));
    debug_assert!(reply.places.len() as f64 <= room, "what is shared is a part of the server's");
    OK
}

/// Bytes that are derived from the handshake: a label, and a context if there is one.
fn put_exported(call: &CoreCall<'_>, tls: &Tls, reply: &mut Reply) -> i32 {
    let (bytes, has_context) = (call.number(2), call.number(3) != 0.0);
    let context = has_context.then(|| call.text(1));
    let exported =
        (bytes <= EXPORTED_MAX_BYTES as f64).then(|| tls.export(call.text(0), context, bytes as usize));
    match exported.flatten() {
        Some(exported) => {
            debug_assert_eq!(exported.len(), bytes as usize, "as many as there is room for");
            put(reply, Some(&exported))
        }
        None => failed(reply, "SSL_export_keying_material() failed"),
    }
}

/// Looks at the handshake of a request that came over TLS.
fn of_request(call: &CoreCall<'_>, what: u8, current: &mut Current<'_>, reply: &mut Reply) -> i32 {
    let known = current.scene(|scene| {
        let request = scene.request();
        let tls = request.tls()?;
        Some(match what {
            asked::VERSION => i32::from(tls.info().version.map_or(0, |version| version.number())),
            asked::SERVER_NAME => put(reply, tls.offer.server_name.as_deref()),
            asked::CLIENT_ADDRESS => put_address(reply, ip_of(request.peer())),
            asked::RANDOM => put(reply, Some(&tls.secrets().client_random)),
            asked::SERVER_RANDOM => put(reply, Some(&tls.secrets().server_random)),
            asked::MASTER_KEY => put(reply, Some(&tls.secrets().master_key)),
            asked::SHARED_SUITES => put_shared(reply, tls, call.number(2)),
            asked::EXPORT => put_exported(call, tls, reply),
            _ => failed(reply, "bad ssl conn"),
        })
    });
    known.flatten().unwrap_or_else(|| failed(reply, NO_TLS))
}

/// Looks at a handshake with a server, or says something of it.
fn of_server(call: &CoreCall<'_>, what: u8, meeting: &mut Meeting, reply: &mut Reply) -> i32 {
    let met = &mut meeting.met;
    match what {
        asked::VERSION => i32::from(met.version.unwrap_or(0)),
        asked::VERIFICATION => met.verification,
        asked::SET_VERIFICATION => {
            met.verification = call.number(2) as i32;
            OK
        }
        asked::PEER_CERTIFICATE => match met.certificate.as_deref().and_then(Chain::from_der) {
            Some(chain) => keep(reply, chain),
            None => failed(reply, "get verify result failed"),
        },
        _ => ERROR,
    }
}

/// Has C keep it.
fn keep<T: Send + Sync + 'static>(reply: &mut Reply, object: T) -> i32 {
    debug_assert!(reply.object.is_none(), "a call gives C one object");
    reply.object = Some(Box::new(Arc::new(object)));
    OK
}

/// (text, password; which function): an object, or a text.
pub(super) fn certificates(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let text = call.text(0);
    let passwords: Vec<Vec<u8>> = call.texts_behind(0).iter().map(|password| password.to_vec()).collect();
    match call.number(0) as u8 {
        reading::PEM_TO_DER => match Chain::read(text).map(|chain| chain.to_der()) {
            Ok(Some(der)) => put(reply, Some(&der)),
            Ok(None) => failed(reply, "i2d_X509() failed"),
            Err(error) => failed(reply, &unread(&error)),
        },
        reading::KEY_PEM_TO_DER => match PrivateKey::read(text, &passwords).ok().and_then(|key| key.to_der())
        {
            Some(der) => put(reply, Some(&der)),
            None => failed(reply, UNREAD_KEY_PEM),
        },
        reading::OF_PEM => match Chain::read(text) {
            Ok(chain) => keep(reply, chain),
            Err(error) => failed(reply, &unread(&error)),
        },
        reading::KEY_OF_PEM => match PrivateKey::read(text, &passwords) {
            Ok(key) => keep(reply, key),
            Err(_) => failed(reply, UNREAD_KEY_PEM),
        },
        reading::OF_DER | reading::KEY_OF_DER if text.is_empty() => failed(reply, "invalid argument"),
        reading::OF_DER => match Chain::from_der(text) {
            Some(chain) => keep(reply, chain),
            None => failed(reply, UNREAD_DER),
        },
        _ => match PrivateKey::from_der(text) {
            Some(key) => keep(reply, key),
            None => failed(reply, UNREAD_KEY_DER),
        },
    }
}

/// (chain in DER, or an answer and a chain; which function): a text, or until when the answer holds.
pub(super) fn ocsp(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let words = |error: OcspError| match error {
        OcspError::Library(error) => format!("{} failed", error.call),
        other => other.to_string(),
    };
    match call.number(0) as u8 {
        authority::RESPONDER => match responder_of(call.text(0)) {
            Ok(url) => put(reply, url.as_deref()),
            Err(text) => failed(reply, text),
        },
        authority::QUESTION => {
            let question = Followed::from_der(call.text(0)).map_err(str::to_owned);
            match question.and_then(|followed| followed.question().map_err(|error| words(error.into()))) {
                Ok(question) => put(reply, Some(&question)),
                Err(text) => failed(reply, &text),
            }
        }
        _ => {
            let judged = Followed::from_der(call.text(1)).map_err(str::to_owned);
            match judged.and_then(|followed| followed.judge(call.text(0)).map_err(words)) {
                Ok(good) => {
                    reply.number = good.until_s.unwrap_or(0) as f64;
                    OK
                }
                Err(text) => failed(reply, &text),
            }
        }
    }
}
