//! Expressions. Each is an object that lua-resty-core keeps: it has a cache of its own.

use clearway_base::log::Level;
use clearway_luajit::Reply;
use clearway_luajit::core::CoreCall;
use clearway_pcre::{Code, How, Jit, Matcher, Options};

use super::codes::{ERROR, OK, failed, with};
use crate::api::regex::{Piece, compile_failed, template};
use crate::vm::regexes::Regexes;

/// Options of lua-resty-core beside those of PCRE2.
const DFA: u32 = 0x02;
const JIT: u32 = 0x04;
const UNCHECKED: u32 = 0x10;

/// PCRE2's options by its numbers, as lua-resty-core has them for PCRE2.
const OPTIONS: [(u32, Options); 7] = [
    (0x0000_0008, Options::CASELESS),
    (0x0000_0400, Options::MULTILINE),
    (0x0000_0020, Options::DOTALL),
    (0x0000_0080, Options::EXTENDED),
    (0x8000_0000, Options::ANCHORED),
    (0x0000_0040, Options::DUPNAMES),
    (0x0000_0002, Options::JAVASCRIPT),
];
const UTF: u32 = 0x0008_0000;

struct Compiled {
    code: Code,
    how: How,
}

fn with_matcher(
    call: &CoreCall<'_>,
    reply: &mut Reply,
    work: impl FnOnce(&mut Matcher, &mut Reply) -> i32,
) -> i32 {
    with(call, reply, |current, reply| {
        let conf = current.vm.regex_conf;
        let regexes = current.vm.regexes.get_or_insert_with(|| Box::new(Regexes::new(conf)));
        work(&mut regexes.matcher, reply)
    })
}

pub(super) fn cache_max(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    with(call, reply, |current, reply| {
        reply.number = current.vm.regex_conf.cache_max_entries as f64;
        OK
    })
}

/// (pattern; flags, PCRE2's options): how many groups, and for each name its group and where it is.
pub(super) fn compile(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let (flags, bits) = (call.number(0) as u32, call.number(1) as u32);
    let how = if flags & DFA != 0 { How::Dfa } else { How::Perl };
    let jit = if flags & JIT != 0 && how == How::Perl { Jit::On } else { Jit::Off };
    let utf = match bits & UTF != 0 {
        true if flags & UNCHECKED != 0 && how == How::Perl => Options::UTF_UNCHECKED,
        true => Options::UTF,
        false => Options::default(),
    };
    let options = OPTIONS.iter().filter(|(bit, _)| bits & bit != 0).fold(utf, |all, (_, one)| all | *one);
    let code = match Code::compile(call.text(0), options, jit) {
        Ok(code) => code,
        Err(error) => {
            reply.text.extend_from_slice(&compile_failed(&error, call.text(0)));
            return ERROR;
        }
    };
    if jit == Jit::On {
        with(call, reply, |current, _| {
            current.log(Level::Debug, format_args!("pcre2 JIT compiled successfully"));
            OK
        });
    }
    for (group, name) in code.names() {
        let from = reply.text.len() as i32;
        reply.text.extend_from_slice(name);
        reply.places.extend([*group as i32, from, reply.text.len() as i32]);
    }
    let groups = if how == How::Dfa { 0 } else { code.groups() };
    reply.object = Some(Box::new(Compiled { code, how }));
    groups as i32
}

/// (subject; flags, from where): one plus the last group that has matched, with the places of all.
pub(super) fn exec(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let Some(Compiled { code, how }) = call.object::<Compiled>() else { return ERROR };
    with_matcher(call, reply, |matcher, reply| {
        match matcher.find(code, call.text(0), call.number(1).max(0.0) as usize, *how) {
            Ok(true) => {}
            Ok(false) => return ERROR,
            Err(number) => return number,
        }
        let groups = if *how == How::Dfa { 0 } else { code.groups() };
        let mut last = 0;
        for group in 0..=groups {
            let place = matcher.group(group);
            if place.is_some() {
                last = group;
            }
            let (from, to) = place.map_or((-1, -1), |place| (place.start as i32, place.end as i32));
            reply.places.extend([from, to]);
        }
        last as i32 + 1
    })
}

pub(super) fn check_template(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let Err(words) = template(call.text(0)) else { return OK };
    with(call, reply, |current, _| {
        current.log(Level::Error, format_args!("{words}"));
        ERROR
    })
}

/// (template, subject; places of groups): what the template comes to.
pub(super) fn expand(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let Ok(pieces) = template(call.text(0)) else { return ERROR };
    for piece in pieces {
        match piece {
            Piece::Text(text) => reply.text.extend_from_slice(text),
            Piece::Group(group) => {
                let at = group.saturating_mul(2);
                let (from, to) = (call.number(at), call.number(at.saturating_add(1)));
                // Beyond the groups there are zeros.
                let text = (from >= 0.0).then(|| call.text(1).get(from as usize..to as usize)).flatten();
                reply.text.extend_from_slice(text.unwrap_or_default());
            }
        }
    }
    OK
}

pub(super) fn set_stack(call: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    let bytes = call.number(0) as usize;
    with_matcher(call, reply, |matcher, reply| match matcher.set_stack(bytes) {
        true => OK,
        false => failed(reply, "no memory"),
    })
}
