//! The functions that requests call most, in forms that compiled code of Lua calls by itself
//! (`clearway_luajit::FastCall`): `ngx.var.NAME`, `ngx.ctx`, `ngx.re.match` and `find`, `get` and `incr` of
//! dictionaries. `compiled.lua` puts each before the function of the same name that is there already; what is
//! out of the ordinary (arguments of other types, errors, what is to be made first) is left to that one.

use clearway_http::Presence;
use clearway_luajit::{Call, DECLARATIONS, FastCall, Fault, Raise, Reply, Returns, Value};
use clearway_os::clock::unix_ms;
use clearway_zone::dict::{Got, KEY_MAX_BYTES};

use crate::api::properties::{WITH_CTX, has_fallback};
use crate::api::request::REQUEST;
use crate::api::room::{Install, put};
use crate::current::{Current, Run};
use crate::vm::regexes::{Numbered, Regexes};

/// The answer of a function that leaves the call to the ordinary one.
const ORDINARY: i32 = -1;

/// The expression did not match.
const NOTHING: i32 = 0;

/// Names of variables that a VM remembers; others are looked up each time.
const VARIABLES_MAX: usize = 1024;

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("", |stack| {
        stack.push_table(0, 16);
        stack.push(DECLARATIONS);
        stack.raw_set_field(-2, "declarations");
        stack.push_host();
        stack.raw_set_field(-4, "shown");
        stack.raw_set_field(-3, "reply");
        stack.raw_set_field(-2, "vm");
        stack.push_fast(variable);
        stack.raw_set_field(-2, "variable");
        stack.push_fast(adopt_ctx);
        stack.raw_set_field(-2, "adopt_ctx");
        stack.push_fast(find);
        stack.raw_set_field(-2, "find");
        stack.push_fast(get);
        stack.raw_set_field(-2, "get");
        stack.push_fast(incr);
        stack.raw_set_field(-2, "incr");
        put(stack, "number", number);
        put(stack, "number_of_variable", number_of_variable);
        stack.raw_set_field(-2, "_compiled");
    });
    install.run(include_str!("compiled.lua"), c"=ngx")
}

/// Has `work` do what it does with what Lua runs for.
fn with_current(
    call: &FastCall<'_>,
    reply: &mut Reply,
    work: impl for<'a> FnOnce(&mut Current<'a>, &mut Reply) -> i32,
) -> i32 {
    call.with_context::<Run, i32>(reply, work).unwrap_or(ORDINARY)
}

/// A variable of the request by its number: 1 and its text.
fn variable(call: &FastCall<'_>, reply: &mut Reply) -> i32 {
    with_current(call, reply, |current, reply| {
        let Current { phase, vm, stage: Some(stage), .. } = current else { return ORDINARY };
        let Some(named) = vm.variables.get(call.which as usize).filter(|_| REQUEST.has(*phase)) else {
            return ORDINARY;
        };
        let mut answer = ORDINARY;
        stage.show(&mut |scene| {
            answer = match scene.view().append_named(named, &mut reply.text) {
                Presence::Found => 1,
                Presence::NotFound => NOTHING,
            };
        });
        answer
    })
}

/// Code is about to make `ngx.ctx` in the room that there is for it: 1.
fn adopt_ctx(call: &FastCall<'_>, reply: &mut Reply) -> i32 {
    with_current(call, reply, |current, _| {
        let is_plain = WITH_CTX.has(current.phase) && !has_fallback(current);
        let is_kept = is_plain
            && current.kept(|kept| {
                debug_assert!(kept.ctx.is_none(), "it is shown then");
                kept.ctx = call.take_room();
                kept.ctx.is_some()
            }) == Some(true);
        if is_kept { 1 } else { ORDINARY }
    })
}

/// The number of a variable by its name, which it has for as long as the VM lives; nothing where there is no
/// such variable, or no number for it.
fn number_of_variable(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let Value::Text(name) = call.stack.get(1) else { return Ok(Returns::Values(0)) };
    let name = name.to_ascii_lowercase();
    let number = call.with_context::<Run, _>(|current| {
        let number = current.vm.variables.len();
        if number == VARIABLES_MAX {
            return None;
        }
        let named = current.scene(|scene| scene.view().named(&name)).flatten()?;
        current.vm.variables.push(named);
        debug_assert!(current.vm.variables.len() <= VARIABLES_MAX, "numbers are bounded");
        Some(number)
    });
    let Some(number) = number.flatten() else { return Ok(Returns::Values(0)) };
    call.stack.push(number as f64);
    Ok(Returns::Values(1))
}

/// Where the numbered expression matches the first text: 1 and the places of its groups, each from where, to
/// where; -1 of one that took no part.
fn find(call: &FastCall<'_>, reply: &mut Reply) -> i32 {
    if i32::try_from(call.first.len()).is_err() {
        return ORDINARY;
    }
    with_current(call, reply, |current, reply| {
        let Some(regexes) = &mut current.vm.regexes else { return ORDINARY };
        match regexes.find_numbered(call.which as usize, call.first, call.number as usize) {
            Some(Ok(false)) => NOTHING,
            Some(Ok(true)) => {
                let (matcher, places) = (&regexes.matcher, &mut reply.places);
                for group in 0..=regexes.groups_of(call.which as usize) {
                    let (from, to) =
                        matcher.group(group).map_or((-1, -1), |it| (it.start as i32, it.end as i32));
                    places.extend([from, to]);
                }
                debug_assert!(places.len() % 2 == 0 && places.len() >= 2, "the whole match, and its groups");
                1
            }
            Some(Err(_)) | None => ORDINARY,
        }
    })
}

/// The number of an expression that is remembered, how many groups it has, and their names where there are
/// some, by number; nothing where it is one that is to be left to the ordinary functions.
fn number(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let Some(numbered) = super::regex::number(call)? else { return Ok(Returns::Values(0)) };
    let Numbered { number, groups, names } = numbered;
    call.stack.push(number as f64);
    call.stack.push(groups as f64);
    if names.is_empty() {
        return Ok(Returns::Values(2));
    }
    call.stack.push_table(names.len(), 0);
    for (at, (group, name)) in (1..).zip(&names) {
        call.stack.push_table(2, 0);
        call.stack.push(&name[..]);
        call.stack.raw_set_item(-2, 1);
        call.stack.push(*group as f64);
        call.stack.raw_set_item(-2, 2);
        call.stack.raw_set_item(-2, at);
    }
    Ok(Returns::Values(3))
}

/// A key that dictionaries take.
fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= KEY_MAX_BYTES
}

/// A value without flags: 1 and its text, 2 and its number, 3 and 4 for true and false.
fn get(call: &FastCall<'_>, reply: &mut Reply) -> i32 {
    with_current(call, reply, |current, reply| {
        let Some(dictionary) = current.vm.dictionaries.list.get(call.which as usize) else { return ORDINARY };
        let zone = &dictionary.zone;
        let Some(dict) = zone.dict().filter(|_| is_key(call.first)) else { return ORDINARY };
        let now_ms = unix_ms();
        let found = dict.get(&zone.dict_key(call.first), now_ms, &mut reply.text);
        match found.filter(|found| !found.is_stale(now_ms)) {
            None => NOTHING,
            Some(found) if found.flags != 0 => ORDINARY,
            Some(found) => match found.got {
                Got::Text => 1,
                Got::Number(number) => {
                    reply.number = number;
                    2
                }
                Got::Boolean(true) => 3,
                Got::Boolean(false) => 4,
                Got::List => ORDINARY,
            },
        }
    })
}

/// Adds to a number that is there: 1 and the sum. What has to be made is left to the ordinary function.
fn incr(call: &FastCall<'_>, reply: &mut Reply) -> i32 {
    with_current(call, reply, |current, reply| {
        let Some(dictionary) = current.vm.dictionaries.list.get(call.which as usize) else { return ORDINARY };
        let zone = &dictionary.zone;
        let Some(dict) = zone.dict().filter(|_| is_key(call.first)) else { return ORDINARY };
        let (sum, _) = dict.incr(&zone.dict_key(call.first), call.number, None, unix_ms());
        match sum {
            Ok(sum) => {
                reply.number = sum;
                1
            }
            Err(_) => ORDINARY,
        }
    })
}

impl Regexes {
    /// Looks for a numbered expression; `None` if there is no such number.
    fn find_numbered(&mut self, number: usize, subject: &[u8], start: usize) -> Option<Result<bool, i32>> {
        let (matcher, (flags, code)) = (&mut self.matcher, self.numbered.get(number)?);
        Some(matcher.find(code, subject, start, flags.how))
    }

    fn groups_of(&self, number: usize) -> usize {
        self.numbered.get(number).map_or(0, |(_, code)| code.groups())
    }
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    /// What compiled code and the ordinary functions say is the same, many times over.
    #[test]
    fn compiled_code_says_what_interpreted_code_says() {
        let mut lua = Lua::new();
        let many = |code: &str| {
            format!(
                "local function once() {code} end local first = once() \
                 for i = 1, 300 do local now = once() if now ~= first then return i, first, now end end \
                 return first"
            )
        };
        lua.says(
            &many(
                "local m = ngx.re.match('/user/12/posts', '^/user/([0-9]+)/([a-z]+)(x)?$', 'jo') \
                 return m[0] .. ' ' .. m[1] .. ' ' .. m[2] .. ' ' .. tostring(m[3])",
            ),
            "/user/12/posts 12 posts false",
        );
        lua.says(&many("return tostring(ngx.re.match('abc', 'x', 'jo'))"), "nil");
        lua.says(
            &many("local m = ngx.re.match('a1', '(?<l>[a-z])(?<n>x)?', 'o') return m.l .. tostring(m.n)"),
            "afalse",
        );
        lua.says(
            &many("local from, to, err = ngx.re.find('hello, 12', '[0-9]+', 'jo') return from .. '-' .. to"),
            "8-9",
        );
        lua.says(&many("return tostring((ngx.re.find('hello', '[0-9]+', 'jo')))"), "nil");
        lua.says(&many("return ngx.re.match(12345, '3', 'jo')[0]"), "3");
        lua.says(
            &many("local t = {} return tostring(ngx.re.match('b', 'b', 'jo', nil, t) == t) .. t[0]"),
            "trueb",
        );
        lua.says(
            &many("local c = { pos = 2 } return ngx.re.match('1234', '[0-9]', 'jo', c)[0] .. c.pos"),
            "23",
        );
        lua.says(&many("local _, err = ngx.re.match('a', '(', 'jo') return #err > 10"), "true");
        lua.says(&many("return ngx.re.match('x1234567', '(.)(.)(.)(.)(.)', 'jo')[5]"), "4");
        lua.raises("return ngx.re.match('a', 'b', 'oH')", "unknown flag \"H\" (flags \"oH\")");
    }
}
