//! `ngx.ssl` and `ngx.proxyssl` with what belongs to them: what code of a handshake looks at, and what it has
//! the client be shown. Certificates and keys are read here; in Lua they are texts in PEM or DER.

use std::net::IpAddr;
use std::sync::Arc;

use clearway_http::{About, Met, Tls};
use clearway_luajit::{Call, Fault, Raise, Returns, Stack};
use clearway_net::PeerAddr;
use clearway_tls::engine::LoadError;
use clearway_tls::engine::{ClientCheck, Versions};
use clearway_tls::hello::Hello;
use clearway_tls::level::Version;
use clearway_tls::{Chain, PrivateKey, is_session};

use super::room::{Install, put};
use super::tcp::refuse;
use crate::current::{Current, LuaPhase, Phases, allow, current};
use crate::shaking::{Meeting, Shaking, Showing};

/// Where certificates are said.
pub(super) const SHOWING: Phases = Phases::of(&[LuaPhase::SslCertificate]);
/// Phases in which certificates for servers can be set.
const PROXY_SHOWING: Phases = Phases::of(&[LuaPhase::ProxySslCertificate]);
/// Where the certificate of a server is looked at.
const PROXY_VERIFYING: Phases = Phases::of(&[LuaPhase::ProxySslVerify]);
/// Where a server shakes hands.
const PROXY: Phases = Phases::of(&[LuaPhase::ProxySslCertificate, LuaPhase::ProxySslVerify]);
/// Where a hello is there.
const HELLO: Phases = Phases::of(&[LuaPhase::SslClientHello]);
/// The phases in which there is a handshake.
const SHAKING: Phases = Phases::of(&[
    LuaPhase::SslClientHello,
    LuaPhase::SslCertificate,
    LuaPhase::SslSessionFetch,
    LuaPhase::SslSessionStore,
]);
/// Upstream's words for a session that is none.
pub(super) const NO_SESSION: &str = "failed to de-serialize session";

/// Where sessions are looked for, or put aside.
const FETCHING: Phases = Phases::of(&[LuaPhase::SslSessionFetch]);
const STORING: Phases = Phases::of(&[LuaPhase::SslSessionStore]);
const SESSIONS: Phases = Phases::of(&[LuaPhase::SslSessionFetch, LuaPhase::SslSessionStore]);

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_ssl", |stack| {
        put(stack, "clear_certs", |call| clear_certs(call, SHOWING));
        put(stack, "set_cert", |call| set_cert(call, SHOWING));
        put(stack, "set_priv_key", |call| set_priv_key(call, SHOWING));
        put(stack, "cert_pem_to_der", cert_pem_to_der);
        put(stack, "cert_der_to_pem", cert_der_to_pem);
        put(stack, "priv_key_pem_to_der", priv_key_pem_to_der);
        put(stack, "priv_key_der_to_pem", priv_key_der_to_pem);
        put(stack, "server_name", |call| {
            allow(call, SHAKING)?;
            push_some(call, |shaking| shaking.about.hello.server_name().map(<[u8]>::to_vec))
        });
        put(stack, "server_port", server_port);
        put(stack, "raw_client_addr", |call| {
            let peer = with(call, SHAKING, |shaking| shaking.about.peer)?;
            match peer {
                PeerAddr::Unix => push_address(call, None),
                peer => push_address(call, peer.ip()),
            }
        });
        put(stack, "raw_server_addr", |call| {
            let local = with(call, SHAKING, |shaking| shaking.about.local)?;
            push_address(call, local.map(|local| local.ip()))
        });
        put(stack, "get_tls1_version", |call| {
            let version = with(call, SHAKING, |shaking| shaking.about.version)?;
            call.stack.push(version.map_or(0.0, f64::from));
            Ok(Returns::Values(1))
        });
        put_secrets(stack);
    });
    install.table("_clienthello", |stack| {
        put(stack, "server_name", |call| {
            allow(call, HELLO)?;
            push_some(call, |shaking| shaking.about.hello.server_name().map(<[u8]>::to_vec))
        });
        put(stack, "extension", extension);
        put(stack, "extensions", |call| {
            push_numbers(call, |hello| hello.extensions().map(|(kind, _)| kind).collect())
        });
        put(stack, "ciphers", |call| push_numbers(call, |hello| hello.suites().collect()));
        put(stack, "versions", |call| push_numbers(call, |hello| hello.versions().collect()));
        put(stack, "set_protocols", set_protocols);
    });
    install.table("_session", |stack| {
        put(stack, "id", session_id);
        put(stack, "get", |call| {
            allow(call, STORING)?;
            push_some(call, |shaking| shaking.about.session.as_ref().map(|session| session.content.clone()))
        });
        put(stack, "set", |call| {
            let content = call.text(1)?.to_vec();
            if !is_session(&content) {
                allow(call, FETCHING)?;
                return refuse(call, NO_SESSION);
            }
            with(call, FETCHING, |shaking| shaking.wish(|wishes| wishes.session = Some(content)))?;
            done(call)
        });
    });
    install_proxy(install);
    install.run(include_str!("handshake.lua"), c"=ngx.ssl")
}

/// Bytes that are derived from a handshake at once, at most.
pub(super) const EXPORTED_MAX_BYTES: usize = 16 * 1024;

/// Said where the request has come without TLS.
const NO_TLS: &str = "bad request";

/// What a request's connection tells.
fn of_request(call: &mut Call<'_>, work: impl FnOnce(&Tls) -> Option<Vec<u8>>) -> Result<Returns, Raise> {
    let told = current(call, |current| current.scene(|scene| scene.request().tls().map(work)).flatten())?;
    match told {
        None => refuse(call, NO_TLS),
        Some(bytes) => answer(call, bytes, "SSL_export_keying_material() failed"),
    }
}

/// (bytes, label, context or nil)
fn export_keying_material(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let (bytes, label) = (call.number(1)?, call.text(2)?.to_vec());
    let context = if call.arguments() > 2 { call.stack.text(3).map(<[u8]>::to_vec) } else { None };
    of_request(call, |tls| {
        let bytes = (0.0..=EXPORTED_MAX_BYTES as f64).contains(&bytes).then_some(bytes as usize)?;
        tls.export(&label, context.as_deref(), bytes)
    })
}

/// Those of the server's suites that the client of a handshake has offered.
pub(super) fn shared_suites(about: &About) -> Vec<u16> {
    let is_offered = |suite: &u16| about.hello.suites().any(|offered| offered == *suite);
    about.suites.iter().copied().filter(is_offered).collect()
}

/// The suites that client and server have in common, in the server's order.
fn shared_ciphers(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let shared = current(call, |current| match shaking_of(current).map(|shaking| &shaking.about) {
        Some(about) => Some(shared_suites(about)).filter(|_| !about.suites.is_empty()),
        None => current.scene(|scene| scene.request().tls().map(Tls::shared_suites)).flatten(),
    })?;
    let Some(shared) = shared else { return refuse(call, NO_TLS) };
    call.stack.push_table(shared.len(), 0);
    for (at, suite) in (1..).zip(shared) {
        call.stack.push(f64::from(suite));
        call.stack.raw_set_item(-2, at);
    }
    Ok(Returns::Values(1))
}

/// (authorities in PEM, depth, others that are trusted in PEM): empty texts and a negative depth are none.
fn verify_client(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, SHOWING)?;
    let mut chain = |argument: i32| -> Result<Result<Option<Arc<Chain>>, ()>, Raise> {
        let pem = call.text(argument)?;
        Ok(match pem.is_empty() {
            true => Ok(None),
            false => Chain::read(pem).map(|chain| Some(Arc::new(chain))).map_err(drop),
        })
    };
    let (Ok(authorities), Ok(trusted)) = (chain(1)?, chain(3)?) else {
        return refuse(call, "invalid certificate chain");
    };
    let depth = u32::try_from(call.number(2)? as i32).ok();
    let check = ClientCheck {
        authorities: authorities.map(|chain| chain as _),
        trusted: trusted.map(|chain| chain as _),
        depth,
    };
    with(call, SHOWING, |shaking| shaking.wish(|wishes| wishes.check = Some(check)))?;
    done(call)
}

/// What is known behind a handshake, and how the client is checked in it.
fn put_secrets(stack: &mut Stack<'_>) {
    put(stack, "get_client_random", |call| {
        let random = current(call, |current| {
            shaking_of(current).map(|shaking| shaking.about.hello.random().to_vec())
        })?;
        match random {
            Some(random) => answer(call, Some(random), NO_TLS),
            None => of_request(call, |tls| Some(tls.secrets().client_random)),
        }
    });
    put(stack, "get_server_random", |call| of_request(call, |tls| Some(tls.secrets().server_random)));
    put(stack, "get_session_master_key", |call| of_request(call, |tls| Some(tls.secrets().master_key)));
    put(stack, "export_keying_material", export_keying_material);
    put(stack, "get_shared_ciphers", shared_ciphers);
    put(stack, "verify_client", verify_client);
}

/// Functions for handshakes with servers.
fn install_proxy(install: &mut Install<'_>) {
    install.table("_proxyssl", |stack| {
        put(stack, "clear_certs", |call| clear_certs(call, PROXY_SHOWING));
        put(stack, "set_cert", |call| set_cert(call, PROXY_SHOWING));
        put(stack, "set_priv_key", |call| set_priv_key(call, PROXY_SHOWING));
        put(stack, "get_tls1_version", |call| {
            let version = meet(call, PROXY, |met| met.version)?;
            call.stack.push(version.map_or(0.0, f64::from));
            Ok(Returns::Values(1))
        });
        put(stack, "set_verify_result", |call| {
            let number = call.number(1)? as i32;
            meet(call, PROXY_VERIFYING, |met| met.verification = number)?;
            done(call)
        });
        put(stack, "get_verify_result", |call| {
            let number = meet(call, PROXY_VERIFYING, |met| met.verification)?;
            call.stack.push(f64::from(number));
            Ok(Returns::Values(1))
        });
        put(stack, "get_verify_cert", |call| {
            let der = meet(call, PROXY_VERIFYING, |met| met.certificate.clone())?;
            let pem = der.and_then(|der| Chain::from_der(&der)).and_then(|chain| chain.to_pem());
            answer(call, pem, "X509_STORE_CTX_get0_cert() failed")
        });
    });
}

fn done(call: &mut Call<'_>) -> Result<Returns, Raise> {
    call.stack.push(true);
    Ok(Returns::Values(1))
}

/// Does something with the handshake that the code runs in.
pub(super) fn with<R>(
    call: &mut Call<'_>,
    allowed: Phases,
    work: impl FnOnce(&Shaking) -> R,
) -> Result<R, Raise> {
    allow(call, allowed)?;
    let done = current(call, |current| shaking_of(current).map(work))?;
    done.ok_or_else(|| call.raise("no request found"))
}

/// The handshake with a client that the code runs in.
pub(super) fn shaking_of<'c>(current: &Current<'c>) -> Option<&'c Shaking> {
    current.alone?.shaking.as_ref()
}

/// Does something with a server that shakes hands, where there is one.
pub(super) fn with_meeting<R>(current: &mut Current<'_>, work: impl FnOnce(&mut Meeting) -> R) -> Option<R> {
    current.kept(|kept| kept.meeting.as_deref_mut().map(work)).flatten()
}

/// Does something with the server that shakes hands.
fn meet<R>(call: &mut Call<'_>, allowed: Phases, work: impl FnOnce(&mut Met) -> R) -> Result<R, Raise> {
    allow(call, allowed)?;
    let done = current(call, |current| with_meeting(current, |meeting| work(&mut meeting.met)))?;
    done.ok_or_else(|| call.raise("no request found"))
}

/// Does something with the certificates that the other side is shown.
fn show<R>(call: &mut Call<'_>, allowed: Phases, work: impl FnOnce(&mut Showing) -> R) -> Result<R, Raise> {
    allow(call, allowed)?;
    let done = current(call, |current| match current.alone {
        Some(_) => shaking_of(current).map(|shaking| shaking.show(work)),
        None => with_meeting(current, |meeting| work(&mut meeting.showing)),
    })?;
    done.ok_or_else(|| call.raise("no request found"))
}

fn clear_certs(call: &mut Call<'_>, allowed: Phases) -> Result<Returns, Raise> {
    show(call, allowed, Showing::clear)?;
    done(call)
}

/// Pushes a text, or nil.
fn push_some(call: &mut Call<'_>, find: impl FnOnce(&Shaking) -> Option<Vec<u8>>) -> Result<Returns, Raise> {
    match with(call, SHAKING, find)? {
        Some(text) => call.stack.push(&text[..]),
        None => call.stack.push(()),
    }
    Ok(Returns::Values(1))
}

/// A table of numbers.
fn push_numbers(call: &mut Call<'_>, list: impl FnOnce(&Hello) -> Vec<u16>) -> Result<Returns, Raise> {
    let mut numbers = with(call, HELLO, |shaking| list(&shaking.about.hello))?;
    numbers.retain(|number| !means_nothing(*number));
    let height = call.stack.len();
    call.stack.push_table(numbers.len(), 0);
    for (number, at) in numbers.into_iter().zip(1..) {
        call.stack.push(f64::from(number));
        call.stack.raw_set_item(-2, at);
    }
    debug_assert_eq!(call.stack.len(), height + 1, "numbers are one table");
    Ok(Returns::Values(1))
}

/// Numbers that clients say so that servers get used to unknown ones (GREASE, RFC 8701).
pub(super) fn means_nothing(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}

/// The bytes of an address and what it is: "inet", "inet6", or "unix" without bytes.
fn push_address(call: &mut Call<'_>, address: Option<IpAddr>) -> Result<Returns, Raise> {
    match address {
        Some(IpAddr::V4(address)) => {
            call.stack.push(&address.octets()[..]);
            call.stack.push("inet");
        }
        Some(IpAddr::V6(address)) => {
            call.stack.push(&address.octets()[..]);
            call.stack.push("inet6");
        }
        None => {
            call.stack.push("");
            call.stack.push("unix");
        }
    }
    Ok(Returns::Values(2))
}

fn server_port(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match with(call, SHAKING, |shaking| shaking.about.local)? {
        Some(local) => {
            call.stack.push(f64::from(local.port()));
            Ok(Returns::Values(1))
        }
        None => refuse(call, "unix domain has no port"),
    }
}

/// Upstream's words for certificates in PEM that are none: the first one is read by another function.
pub(super) fn unread(error: &LoadError) -> String {
    format!("{} failed", error.call)
}

/// (certificates in PEM)
fn set_cert(call: &mut Call<'_>, allowed: Phases) -> Result<Returns, Raise> {
    allow(call, allowed)?;
    let chain = match Chain::read(call.text(1)?) {
        Ok(chain) => chain,
        Err(error) => return refuse(call, &unread(&error)),
    };
    show(call, allowed, |showing| showing.add_chain(Arc::new(chain)))?;
    done(call)
}

/// (key in PEM)
fn set_priv_key(call: &mut Call<'_>, allowed: Phases) -> Result<Returns, Raise> {
    allow(call, allowed)?;
    let Ok(key) = PrivateKey::read(call.text(1)?, &[]) else {
        return refuse(call, "PEM_read_bio_PrivateKey() failed");
    };
    match show(call, allowed, |showing| showing.add_key(Arc::new(key)))? {
        Ok(()) => done(call),
        Err(()) => refuse(call, "SSL_use_PrivateKey() failed"),
    }
}

fn answer(call: &mut Call<'_>, text: Option<Vec<u8>>, refusal: &str) -> Result<Returns, Raise> {
    let Some(text) = text else { return refuse(call, refusal) };
    call.stack.push(&text[..]);
    Ok(Returns::Values(1))
}

fn cert_pem_to_der(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match Chain::read(call.text(1)?) {
        Ok(chain) => answer(call, chain.to_der(), "i2d_X509() failed"),
        Err(error) => refuse(call, &unread(&error)),
    }
}

fn cert_der_to_pem(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let pem = Chain::from_der(call.text(1)?).and_then(|chain| chain.to_pem());
    answer(call, pem, "d2i_X509_bio() failed")
}

/// (PEM, password or nil)
fn priv_key_pem_to_der(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let pem = call.text(1)?.to_vec();
    let password = if call.arguments() > 1 { call.stack.text(2).map(<[u8]>::to_vec) } else { None };
    let passwords: Vec<Vec<u8>> = password.into_iter().collect();
    let der = PrivateKey::read(&pem, &passwords).ok().and_then(|key| key.to_der());
    answer(call, der, "PEM_read_bio_PrivateKey() failed")
}

fn priv_key_der_to_pem(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let pem = PrivateKey::from_der(call.text(1)?).and_then(|key| key.to_pem());
    answer(call, pem, "d2i_PrivateKey_bio() failed")
}

/// (number): what stands in an extension, or nil.
fn extension(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, HELLO)?;
    let wanted = call.number(1)?;
    push_some(call, |shaking| {
        let mut all = shaking.about.hello.extensions();
        all.find(|(kind, _)| f64::from(*kind) == wanted).map(|(_, content)| content.to_vec())
    })
}

/// (names): those versions may be spoken.
fn set_protocols(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let names = String::from_utf8_lossy(call.text(1)?).into_owned();
    let named = |version: &Version| names.split(' ').any(|name| name == version.name());
    let versions = Version::ALL.into_iter().filter(named).fold(Versions::none(), Versions::and);
    with(call, HELLO, |shaking| shaking.wish(|wishes| wishes.versions = Some(versions)))?;
    done(call)
}

/// In hexadecimal digits.
fn session_id(call: &mut Call<'_>) -> Result<Returns, Raise> {
    allow(call, SESSIONS)?;
    push_some(call, session_name)
}

/// The name of the session in hexadecimal digits.
pub(super) fn session_name(shaking: &Shaking) -> Option<Vec<u8>> {
    let about = &shaking.about;
    let stored = about.session.as_ref().map(|session| &session.key[..]);
    let key = stored.or_else(|| clearway_tls::engine::kept_key(&about.hello))?;
    Some(key.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect())
}
