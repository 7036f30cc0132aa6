//! `ngx.req.socket`: the body of the request, read as a socket is, or all of the client's connection.

use std::sync::Arc;

use clearway_luajit::{Call, Fault, Raise, Returns};
use clearway_message::Version;

use super::output::ANSWERING;
use super::room::{Install, put};
use super::tcp::{home_conf, keep, refuse, timeouts};
use crate::current::{Scene, allow, current, scene};
use crate::request_state::{RequestState, Response};
use crate::socket::connection::Tcp;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| put(stack, "_body_socket", begin));
    Ok(())
}

/// Why there is none.
enum Refusal {
    Raised(&'static str),
    Answered(&'static str),
}

/// (table, raw): has the table stand for the body.
fn begin(call: &mut Call<'_>) -> Result<Returns, Raise> {
    call.speak_for_caller();
    allow(call, ANSWERING)?;
    if call.stack.is_true(2) {
        return begin_raw(call);
    }
    let refusal = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return Some(Refusal::Answered("no body")) };
        let (request, body) = (&exchange.request, &exchange.body);
        match () {
            () if !request.is_main() => {
                Some(Refusal::Raised("attempt to read the request body in a subrequest"))
            }
            () if request.version() > Version::HTTP_11 => Some(Refusal::Raised("http v2 not supported yet")),
            () if body.is_chunked() => Some(Refusal::Answered("chunked request bodies not supported yet")),
            () if request.has_read_body() => Some(Refusal::Answered("request body already exists")),
            () if body.is_dropped() => Some(Refusal::Answered("request body discarded")),
            () if !body.is_announced() => Some(Refusal::Answered("no body")),
            () => {
                exchange.invite_body();
                None
            }
        }
    })?;
    match refusal {
        Some(Refusal::Raised(text)) => return Err(call.raise(text)),
        Some(Refusal::Answered(text)) => return refuse(call, text),
        None => {}
    }
    let Some((conf, ..)) = current(call, home_conf)? else { return Err(call.raise("no request found")) };
    current(call, |current| current.kept(|kept| kept.has_body_socket = true))?;
    let timeouts = timeouts(call, &conf);
    keep(call, &Arc::new(Tcp::of_body(conf, timeouts)))?;
    call.stack.push(true);
    Ok(Returns::Values(1))
}

/// Begins a socket over all that the client sends and receives (`ngx.req.socket(true)`).
fn begin_raw(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let Some((conf, ..)) = current(call, home_conf)? else { return Err(call.raise("no request found")) };
    let timeouts = timeouts(call, &conf);
    let is_reading =
        current(call, |current| current.threads.as_mut().is_some_and(|threads| threads.waits_for_body()))?;
    let taken = scene(call, |scene| {
        let Scene::Handler(exchange) = scene else { return Err(Refusal::Answered("no request")) };
        let request = &exchange.request;
        let refusal = |text| Err(Refusal::Answered(text));
        let Some(state) = RequestState::of(request) else { return refusal("no request") };
        let mut kept = state.kept.enter();
        match () {
            () if !request.is_main() => {
                return Err(Refusal::Raised("attempt to read the request body in a subrequest"));
            }
            () if request.version() > Version::HTTP_11 => {
                return Err(Refusal::Raised("http v2 not supported yet"));
            }
            () if is_reading => return refusal("pending request body reading in some other thread"),
            () if kept.buffered.is_some() => return refusal("http 1.0 buffering"),
            () if kept.response == Response::Raw => return refusal("duplicate call"),
            () if !exchange.may_take_raw() => return refusal("pending data to write"),
            () => kept.response = Response::Raw,
        }
        drop(kept);
        Ok(exchange.take_raw())
    })?;
    match taken {
        Err(Refusal::Raised(text)) => Err(call.raise(text)),
        Err(Refusal::Answered(text)) => refuse(call, text),
        Ok(received) => {
            keep(call, &Arc::new(Tcp::of_client(conf, timeouts, &received)))?;
            call.stack.push(true);
            Ok(Returns::Values(1))
        }
    }
}
