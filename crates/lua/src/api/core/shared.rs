//! Dictionaries, by their numbers in the VM.

use std::sync::Arc;

use clearway_luajit::Reply;
use clearway_luajit::core::CoreCall;
use clearway_os::clock::unix_ms;
use clearway_zone::dict::{Dict, Got, Mode, Refusal, Room, Setting, Value};

use super::codes::{DECLINED, ERROR, OK, failed, with};
use crate::api::shared::words;
use crate::vm::state::Dictionary;

/// `LUA_TNIL`, `LUA_TBOOLEAN`, `LUA_TNUMBER` and `LUA_TSTRING`
const NIL: i32 = 0;
const BOOLEAN: i32 = 1;
const NUMBER: i32 = 3;
const STRING: i32 = 4;

/// Flags of `store`, as bits.
const ADD: u32 = 1;
const REPLACE: u32 = 2;
const SAFE: u32 = 4;

/// Does it with the dictionary whose number is the first one, and with its zone.
fn with_dict(
    call: &CoreCall<'_>,
    reply: &mut Reply,
    work: impl FnOnce(&Dict<'_>, &Dictionary, &mut Reply) -> i32,
) -> i32 {
    let mut found: Option<Arc<Dictionary>> = None;
    with(call, reply, |current, _| {
        found = current.vm.dictionaries.list.get(call.number(0) as usize).map(Arc::clone);
        OK
    });
    let Some(dictionary) = found else { return failed(reply, "bad \"zone\" argument") };
    match dictionary.zone.dict() {
        Some(dict) => work(&dict, &dictionary, reply),
        None => failed(reply, "too many processes use the dictionary"),
    }
}

/// Upstream's code and message for a refusal.
fn refused(reply: &mut Reply, refusal: Refusal) -> i32 {
    failed(reply, words(refusal));
    match refusal {
        Refusal::NoMemory | Refusal::NotNumber | Refusal::NotList => ERROR,
        Refusal::NotFound | Refusal::Exists => DECLINED,
    }
}

/// (number, whether what is over counts): the type; beside the value its flags, and whether it is over.
pub(super) fn get(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let with_stale = call.number(1) != 0.0;
    with_dict(call, reply, |dict, dictionary, reply| {
        let now_ms = unix_ms();
        let found = dict.get(&dictionary.zone.dict_key(call.text(0)), now_ms, &mut reply.text);
        let Some(found) = found.filter(|found| with_stale || !found.is_stale(now_ms)) else { return NIL };
        reply.places.extend([found.flags.cast_signed(), i32::from(found.is_stale(now_ms))]);
        match found.got {
            Got::Text => STRING,
            Got::Number(number) => {
                reply.number = number;
                NUMBER
            }
            Got::Boolean(boolean) => {
                reply.number = f64::from(u8::from(boolean));
                BOOLEAN
            }
            Got::List => failed(reply, "value is a list"),
        }
    })
}

/// (number, what, type, number, milliseconds, flags) with the key and a text.
pub(super) fn store(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let op = call.number(1) as u32;
    let mode = match op {
        op if op & ADD != 0 => Mode::Add,
        op if op & REPLACE != 0 => Mode::Replace,
        _ => Mode::Set,
    };
    let value = match call.number(2) as i32 {
        STRING => Some(Value::Text(call.text(1))),
        NUMBER => Some(Value::Number(call.number(3))),
        BOOLEAN => Some(Value::Boolean(call.number(3) != 0.0)),
        NIL if mode == Mode::Set => None,
        NIL => return failed(reply, "attempt to add or replace nil values"),
        _ => return failed(reply, "unsupported value type"),
    };
    let room = if op & SAFE != 0 { Room::Safe } else { Room::Force };
    let setting = Setting { mode, room, ttl_ms: call.number(4) as u64, flags: call.number(5) as u32 };
    with_dict(call, reply, |dict, dictionary, reply| {
        let change = dict.store(&dictionary.zone.dict_key(call.text(0)), value, setting, unix_ms());
        reply.places.push(i32::from(change.evicted > 0));
        change.result.map_or_else(|refusal| refused(reply, refusal), |_| OK)
    })
}

/// (number, amount, whether it begins somewhere, where, milliseconds from then)
pub(super) fn incr(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let init = (call.number(2) != 0.0).then(|| (call.number(3), call.number(4) as u64));
    with_dict(call, reply, |dict, dictionary, reply| {
        let key = dictionary.zone.dict_key(call.text(0));
        let (sum, change) = dict.incr(&key, call.number(1), init, unix_ms());
        reply.places.push(i32::from(change.evicted > 0));
        match sum {
            Ok(sum) => {
                reply.number = sum;
                OK
            }
            Err(refusal) => refused(reply, refusal),
        }
    })
}

pub(super) fn flush_all(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with_dict(call, reply, |dict, _, _| {
        dict.flush_all(unix_ms());
        OK
    })
}

pub(super) fn ttl(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with_dict(call, reply, |dict, dictionary, reply| {
        reply.number = match dict.expires_ms(&dictionary.zone.dict_key(call.text(0))) {
            None => return DECLINED,
            Some(0) => 0.0,
            Some(expires_ms) => expires_ms as f64 - unix_ms() as f64,
        };
        OK
    })
}

pub(super) fn expire(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with_dict(call, reply, |dict, dictionary, _| {
        let key = dictionary.zone.dict_key(call.text(0));
        if dict.set_ttl(&key, call.number(1) as u64, unix_ms()) { OK } else { DECLINED }
    })
}

pub(super) fn capacity(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with_dict(call, reply, |_, dictionary, reply| {
        reply.number = dictionary.zone.bytes() as f64;
        OK
    })
}

pub(super) fn free_space(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with_dict(call, reply, |dict, _, reply| {
        reply.number = dict.free_bytes() as f64;
        OK
    })
}
