//! Functions of requests: variables, heads, arguments, the phase, ends.

use clearway_base::log::Level;
use clearway_http::{Origin, SharedHead};
use clearway_luajit::core::CoreCall;
use clearway_luajit::{Reference, Reply};

use super::codes::{
    BAD_CONTEXT, DECLINED, DONE, ERROR, NO_REQUEST, OK, WRONG_PHASE, failed, put_piece, with,
};
use crate::api::args::{self, Complete};
use crate::api::control::{EXITING, Leaving, leave};
use crate::api::header::{ONCE, WITH_HEAD, append, assign, values_of, written_name};
use crate::api::properties::{
    WITH_CTX, choose_phrased_status, choose_status, fallback_number, is_head_sent, leave_conditions,
    status_of,
};
use crate::api::request::{Before, EDITING, ENTRIES_MAX, METHODS, REQUEST, SHARED_HEAD, edit};
use crate::api::variables;
use crate::current::{Args, End, HANDSHAKES, Scene, objection};

/// `LUA_NOREF`: no value is numbered.
const NO_NUMBER: i32 = -2;

/// The number of `ngx.ctx`. Where there is none, whether this is a handshake, and the number of the table
/// that the connection has from handshakes, or [`NO_NUMBER`].
pub(super) fn get_ctx(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        let Some(known) = current.kept(|kept| kept.ctx.as_ref().map(Reference::number)) else {
            return NO_REQUEST;
        };
        if let Some(number) = known {
            return number;
        }
        let is_handshake = HANDSHAKES.has(current.phase);
        reply.places.extend([i32::from(is_handshake), fallback_number(current).unwrap_or(NO_NUMBER)]);
        NO_NUMBER
    })
}

/// (number)
pub(super) fn set_ctx(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let table = call.shelved(call.number(0) as i32);
    with(call, reply, |current, _| {
        let Some(table) = table.filter(|_| WITH_CTX.has(current.phase)) else { return ERROR };
        current.kept(|kept| kept.ctx = Some(table)).map_or(NO_REQUEST, |()| OK)
    })
}

pub(super) fn var_get(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let (group, is_named) = (call.number(0), call.number(1) != 0.0);
    let name = call.text(0).to_ascii_lowercase();
    with(call, reply, |current, reply| {
        if !REQUEST.has(current.phase) {
            return failed(reply, WRONG_PHASE);
        }
        let found = current.scene(|scene| {
            if is_named {
                return scene.view().variable_named(&name).map(std::borrow::Cow::into_owned);
            }
            // The whole of what has matched has no number.
            Some(scene.view().group(group as usize)).filter(|text| !text.is_empty() && group >= 1.0)
        });
        match found {
            None => NO_REQUEST,
            Some(None) => DECLINED,
            Some(Some(text)) => {
                reply.text.extend_from_slice(&text);
                OK
            }
        }
    })
}

pub(super) fn var_set(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let value = Some(call.text(1)).filter(|_| call.number(0) != 0.0);
    with(call, reply, |current, reply| {
        if !REQUEST.has(current.phase) {
            return failed(reply, WRONG_PHASE);
        }
        match current.scene(|scene| variables::write(scene, call.text(0), value)) {
            None => failed(reply, "no request found"),
            Some(Ok(())) => OK,
            Some(Err(words)) => failed(reply, &words),
        }
    })
}

pub(super) fn exit(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        let phase = current.phase;
        if let Some(words) = objection(phase, EXITING) {
            return failed(reply, &words);
        }
        match leave(current, phase, call.number(0) as i32) {
            Ok(Leaving::Yields) => OK,
            Ok(Leaving::GoesOn) => DONE,
            Err(words) => failed(reply, words),
        }
    })
}

pub(super) fn get_phase(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| match current.phase.core_bit() {
        ERROR => failed(reply, "no request ctx found"),
        bit => bit,
    })
}

pub(super) fn start_time(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        let began_ms = current.scene(|scene| scene.request().started_unix_ms());
        reply.number = began_ms.map_or(0.0, |began_ms| began_ms as f64 / 1000.0);
        OK
    })
}

/// How many entries are wanted: 0 for all.
fn limit(number: f64) -> usize {
    if number < 0.0 { ENTRIES_MAX } else { number as usize }
}

/// (max, whether names stay as they are; without that they are counted): the lines, and whether there are
/// more.
pub(super) fn req_headers(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let (max, is_raw) = (limit(call.number(0)), call.number(1) != 0.0);
    with(call, reply, |current, reply| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        let count = current.scene(|scene| {
            let mut count = 0;
            for line in scene.request().headers() {
                count += 1;
                if max > 0 && count > max {
                    continue;
                }
                if is_raw {
                    put_piece(reply, line.name);
                } else {
                    put_piece(reply, &line.name.to_ascii_lowercase());
                }
                put_piece(reply, line.value);
            }
            count
        });
        let Some(count) = count else { return NO_REQUEST };
        if max == 0 || count <= max {
            return count as i32;
        }
        if reply.number == 0.0 {
            let line = format_args!("lua exceeding request header limit {count} > {max}");
            current.log(Level::Debug, line);
        }
        reply.number = 1.0;
        max as i32
    })
}

pub(super) fn uri_args(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let max = limit(call.number(0));
    with(call, reply, |current, reply| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        let complete = current.scene(|scene| {
            args::each(scene.request().args(), max, |name, value| {
                put_piece(reply, name);
                match value {
                    Some(value) => put_piece(reply, value),
                    None => reply.places.extend([-1, -1]),
                }
            })
        });
        match complete {
            None => return NO_REQUEST,
            Some(Complete::Yes) => {}
            Some(Complete::Truncated) => {
                current.log(Level::Debug, format_args!("lua hit query args limit {max}"));
                reply.number = 1.0;
            }
        }
        (reply.places.len() / 4) as i32
    })
}

pub(super) fn query_len(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        reply.number = current.scene(|scene| scene.request().args().len()).unwrap_or(0) as f64;
        OK
    })
}

/// Its number, and its name.
pub(super) fn get_method(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        let Some(name) = current.scene(|scene| scene.request().method_name().to_vec()) else {
            return NO_REQUEST;
        };
        let known = METHODS.iter().find(|(method, _)| method.name() == name);
        reply.text.extend_from_slice(&name);
        known.map_or(1, |(_, number)| *number)
    })
}

pub(super) fn set_method(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let number = call.number(0) as i32;
    with(call, reply, |current, _| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        let Some((method, _)) = METHODS.iter().find(|(_, its)| *its == number) else { return DECLINED };
        let done = current.scene(|scene| {
            if let Scene::Handler(exchange) = scene {
                exchange.request.set_method(*method);
            }
        });
        done.map_or(NO_REQUEST, |()| OK)
    })
}

/// (name, values; whether they stand for those that there are)
pub(super) fn set_req_header(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let name = args::escape_header_name(call.text(0));
    let values: Vec<Vec<u8>> =
        call.texts_behind(0).iter().map(|value| args::escape_header_value(value)).collect();
    let before = if call.number(0) != 0.0 { Before::Replaced } else { Before::Kept };
    with(call, reply, |current, reply| {
        if !EDITING.has(current.phase) {
            return BAD_CONTEXT;
        }
        match current.scene(|scene| edit(scene, &name, &values, before)) {
            None => NO_REQUEST,
            Some(Ok(())) => OK,
            Some(Err(SharedHead)) => failed(reply, SHARED_HEAD),
        }
    })
}

pub(super) fn get_resp_header(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        if !WITH_HEAD.has(current.phase) {
            return BAD_CONTEXT;
        }
        let values = current.scene(|scene| {
            let name = written_name(&scene, call.text(0).to_vec());
            let view = scene.view();
            values_of(view.head(), &name)
        });
        let Some(values) = values else { return NO_REQUEST };
        values.iter().for_each(|value| put_piece(reply, value));
        OK
    })
}

/// (name, values; whether they stand for those that there are)
pub(super) fn set_resp_header(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let values: Vec<Vec<u8>> =
        call.texts_behind(0).iter().map(|value| args::escape_header_value(value)).collect();
    let replaces = call.number(0) != 0.0 || ONCE.contains(&&call.text(0).to_ascii_lowercase()[..]);
    with(call, reply, |current, reply| {
        let phase = current.phase;
        if !WITH_HEAD.has(phase) {
            return BAD_CONTEXT;
        }
        let done = current.scene(|scene| {
            let name = written_name(&scene, call.text(0).to_vec());
            if replaces {
                return assign(scene, phase, &name, &values);
            }
            append(scene, phase, &name, &values);
            true
        });
        match done {
            None => NO_REQUEST,
            Some(true) => OK,
            Some(false) => failed(reply, "failed to set header"),
        }
    })
}

pub(super) fn get_status(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, _| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        current.scene(|scene| i32::from(status_of(&scene))).unwrap_or(BAD_CONTEXT)
    })
}

pub(super) fn set_status(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, _| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        choose_status(current, call.number(0) as i64);
        OK
    })
}

pub(super) fn set_phrased_status(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, _| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        let is_chosen = choose_phrased_status(current, call.number(0) as i64, call.text(0));
        if is_chosen { OK } else { DECLINED }
    })
}

pub(super) fn bypass_if_checks(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, _| {
        leave_conditions(current);
        OK
    })
}

/// 0: is it of another request, 1: is the head sent, 2: is it the server's own.
pub(super) fn property(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let which = call.number(0) as u8;
    with(call, reply, |current, _| {
        if !REQUEST.has(current.phase) {
            return BAD_CONTEXT;
        }
        let is = current.scene(|scene| match which {
            0 => !scene.request().is_main(),
            1 => is_head_sent(&scene),
            _ => scene.request().origin() == Origin::Internal,
        });
        is.map_or(BAD_CONTEXT, i32::from)
    })
}

pub(super) fn set_by_param(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let at = call.number(0) as usize;
    with(call, reply, |current, reply| {
        let Args::Set(texts) = &current.args else { return BAD_CONTEXT };
        let Some(text) = at.checked_sub(1).and_then(|at| texts.get(at)) else { return DECLINED };
        reply.text.extend_from_slice(text);
        OK
    })
}

/// The piece, and whether the body ends behind it.
pub(super) fn body_param(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        let Args::Chunk { data, end } = &current.args else { return BAD_CONTEXT };
        if let Some(data) = data {
            reply.text.extend_from_slice(data);
        }
        i32::from(*end == End::Yes)
    })
}
