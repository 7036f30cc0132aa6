//! `ngx.ocsp`: what an authority is asked about a certificate, and whether its answer holds. Certificates are
//! chains in DER.

use std::sync::Arc;

use clearway_luajit::{Call, Fault, Raise, Returns};
use clearway_tls::ocsp::{Followed, OcspError, responder_in};

use super::handshake::{SHOWING, with};
use super::room::{Install, put};
use super::tcp::refuse;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_ocsp", |stack| {
        put(stack, "responder", responder);
        put(stack, "question", question);
        put(stack, "judge", judge);
        put(stack, "set", set);
    });
    install.run(include_str!("ocsp.lua"), c"=ngx.ocsp")
}

/// (chain): the URL, or nothing where the certificate names none.
fn responder(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match responder_of(call.text(1)?) {
        Err(text) => return refuse(call, text),
        Ok(url) => call.stack.push(url.as_deref()),
    }
    Ok(Returns::Values(1))
}

/// Where the authority of a chain in DER is asked; nothing where its certificate names none.
///
/// # Errors
/// The chain is broken, or has no issuer.
pub(super) fn responder_of(chain: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let url = responder_in(chain);
    match Followed::from_der(chain) {
        Err(text) if url.is_some() || text.starts_with("d2i") => Err(text),
        Ok(followed) if url.is_some() && !followed.is_issued() => Err("issuer certificate not next to leaf"),
        Ok(_) | Err(_) => Ok(url),
    }
}

/// (chain): the question in DER.
fn question(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let made = match Followed::from_der(call.text(1)?) {
        Err(text) => Err(text.to_owned()),
        Ok(followed) => followed.question().map_err(|error| format!("{} failed", error.call)),
    };
    match made {
        Ok(question) => {
            call.stack.push(&question[..]);
            Ok(Returns::Values(1))
        }
        Err(text) => refuse(call, &text),
    }
}

/// (answer, chain): true, and until when it holds, seconds since 1970, where it says so.
fn judge(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let answer = call.text(1)?.to_vec();
    let judged = match Followed::from_der(call.text(2)?) {
        Err(text) => Err(text.to_owned()),
        Ok(followed) => followed.judge(&answer).map_err(|error| match error {
            OcspError::Library(error) => format!("{} failed", error.call),
            other => other.to_string(),
        }),
    };
    match judged {
        Ok(good) => {
            call.stack.push(true);
            match good.until_s {
                Some(until_s) => call.stack.push(until_s as f64),
                None => call.stack.push(()),
            }
            Ok(Returns::Values(2))
        }
        Err(text) => refuse(call, &text),
    }
}

/// (answer): the client is told, if it has asked; whether it has.
fn set(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let answer: Arc<[u8]> = call.text(1)?.into();
    let has_asked = with(call, SHOWING, |shaking| {
        let has_asked = shaking.about.hello.asks_for_status();
        if has_asked {
            shaking.wish(|wishes| wishes.answer = Some(answer));
        }
        has_asked
    })?;
    call.stack.push(has_asked);
    Ok(Returns::Values(1))
}
