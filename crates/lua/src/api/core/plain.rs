//! Functions that need no request: time, digests, encodings, the process.

use clearway_base::date::{cookie_date, error_log_time, http_date, parse_http_date};
use clearway_base::kept_lines;
use clearway_base::log::Verbatim;
use clearway_log::UtcOffset;
use clearway_luajit::Reply;
use clearway_luajit::core::CoreCall;
use clearway_os::clock;
use clearway_os::signal::{self, Signal};
use md5::{Digest, Md5};
use sha1::Sha1;

use super::codes::{DECLINED, DONE, ERROR, OK, failed, with};
use crate::api::encoding::{self, Base64, Escape};
use crate::api::log::level_of;
use crate::api::modules::{self, ProcessType};
use crate::api::ndk;
use crate::api::time::{dashed, now_s};
use crate::current::LuaPhase;

pub(super) fn clock(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let ms = if call.number(0) == 0.0 { clock::unix_ms() } else { clock::monotonic_ms() };
    reply.number = ms as f64;
    OK
}

pub(super) fn date(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let seconds = call.number(1) as i64;
    let local = |reply: &mut Reply| {
        let mut minutes = 0;
        with(call, reply, |current, _| {
            minutes = current.vm.utc_offset.as_ref().map_or(0, UtcOffset::minutes);
            OK
        });
        dashed(error_log_time(now_s(), minutes))
    };
    match call.number(0) as u8 {
        0 => {
            let now = local(reply);
            reply.text.extend_from_slice(&now[..10]);
        }
        1 => {
            let now = local(reply);
            reply.text.extend_from_slice(&now);
        }
        2 => reply.text.extend_from_slice(&dashed(error_log_time(now_s(), 0))),
        3 => reply.text.extend_from_slice(cookie_date(seconds).as_bytes()),
        _ => reply.text.extend_from_slice(&http_date(seconds)),
    }
    OK
}

pub(super) fn parse_date(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let Some(seconds) = parse_http_date(call.text(0)) else { return ERROR };
    reply.number = seconds as f64;
    OK
}

pub(super) fn digest(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let text = call.text(0);
    match call.number(0) as u8 {
        0 => reply.text.extend_from_slice(&Md5::digest(text)),
        1 => reply.text.extend_from_slice(&encoding::md5_hex(text)),
        _ => reply.text.extend_from_slice(&Sha1::digest(text)),
    }
    OK
}

pub(super) fn crc32(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    reply.number = f64::from(crc32fast::hash(call.text(0)));
    OK
}

pub(super) fn escape_uri(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let kind = Escape::numbered(call.number(0)).unwrap_or(Escape::Component);
    reply.text.extend_from_slice(&encoding::escape(call.text(0), kind));
    OK
}

pub(super) fn unescape_uri(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    reply.text.extend_from_slice(&encoding::unescape(call.text(0)));
    OK
}

pub(super) fn encode_base64(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let form = match call.number(0) as u8 {
        0 => Base64::Standard,
        1 => Base64::Unpadded,
        _ => Base64::Url,
    };
    reply.text.extend_from_slice(&encoding::in_base64(call.text(0), form));
    OK
}

pub(super) fn decode_base64(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let form = match call.number(0) as u8 {
        0 => Base64::Standard,
        1 => Base64::Mime,
        _ => Base64::Url,
    };
    let Some(text) = encoding::of_base64(call.text(0), form) else { return ERROR };
    reply.text.extend_from_slice(&text);
    OK
}

/// 0: the loop, 1: how many, 2: whether they end, 3: its number in `$pid`, 4: how many such there are, 5 and
/// more: the first of them, and so on.
pub(super) fn worker(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let which = call.number(0) as u32;
    let answer = call.with_context::<crate::current::Run, i32>(reply, |current, _| match which {
        // The agent is none of the workers.
        0 if modules::process_type() == ProcessType::PrivilegedAgent => ERROR,
        0 => current.vm.place.worker_id as i32,
        1 => current.vm.place.workers as i32,
        3 => current.vm.pid() as i32,
        4 => current.vm.pids().len() as i32,
        5.. => current.vm.pids().get(which as usize - 5).map_or(ERROR, |pid| *pid as i32),
        _ => {
            let is_ending = current.vm.timers().is_some_and(|timers| timers.is_ending());
            i32::from(is_ending || current.phase == LuaPhase::ExitWorker)
        }
    });
    answer.unwrap_or(if which == 2 { 0 } else { ERROR })
}

/// 0: what the process is, 1: the one that has started it, 2: it ends, 3: the least severe level that is
/// logged, 4: (connections) a privileged agent is wanted.
pub(super) fn process(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    // `NGX_PROCESS_SINGLE`, `_MASTER` and `_WORKER`
    const SINGLE: i32 = 0;
    const MASTER: i32 = 1;
    const WORKER: i32 = 3;
    const PRIVILEGED_AGENT: i32 = 99;
    match call.number(0) as u8 {
        0 => {
            // As upstream's, whose `init_by_lua` runs in the master.
            let is_init = with(call, reply, |current, _| i32::from(current.phase == LuaPhase::Init)) == 1;
            match modules::process_type() {
                ProcessType::Single => SINGLE,
                _ if is_init => MASTER,
                ProcessType::Worker => WORKER,
                ProcessType::PrivilegedAgent => PRIVILEGED_AGENT,
            }
        }
        1 => modules::master_pid() as i32,
        2 => signal::kill(std::process::id(), Signal::QUIT).map_or(ERROR, |()| OK),
        3 => with(call, reply, |current, _| modules::least_logged(current)),
        _ => {
            let connections = call.number(1) as u32;
            with(call, reply, |current, _| {
                current.vm.want_agent(connections);
                OK
            })
        }
    }
}

pub(super) fn raw_log(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let Some(level) = level_of(call.number(0)) else { return ERROR };
    let line = call.text(0);
    with(call, reply, |current, _| {
        current.log(level, format_args!("{}", Verbatim(line)));
        OK
    })
}

pub(super) fn ndk_find(call: &CoreCall<'_>, _: &mut Reply) -> i32 {
    ndk::find(call.text(0)).map_or(DECLINED, |number| number as i32)
}

pub(super) fn ndk_call(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let Some((_, change)) = ndk::CHANGES.get(call.number(0) as usize) else { return DECLINED };
    let Some(changed) = change(call.text(0)) else { return ERROR };
    reply.text.extend_from_slice(&changed);
    OK
}

/// 0: the oldest line that is kept, with its level and its time in seconds; 1: (level) lines of it and more
/// severe ones are kept.
pub(super) fn kept_lines(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    if !kept_lines::is_kept() {
        return failed(reply, modules::NOT_KEPT);
    }
    if call.number(0) != 0.0 {
        let level = call.number(1);
        return match level_of(level) {
            Some(level) if kept_lines::set_least(level) => OK,
            Some(_) => failed(reply, modules::NOT_KEPT),
            None => failed(reply, &format!("bad log level: {level}")),
        };
    }
    let Some(line) = kept_lines::take() else { return DONE };
    reply.text.extend_from_slice(&line.text);
    reply.places.push(i32::from(line.level as u8));
    reply.number = line.unix_ms as f64 / 1000.0;
    OK
}
