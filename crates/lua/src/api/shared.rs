//! `ngx.shared`: dictionaries of `lua_shared_dict`. What they are is in `clearway_zone::dict`; this is what
//! Lua sees of them, in OpenResty's words.

use std::sync::Arc;

use clearway_luajit::{Boxed, Call, Fault, Raise, Returns, Value as LuaValue};
use clearway_os::clock::unix_ms;
use clearway_zone::Zone;
use clearway_zone::dict::{
    Change, Dict, End, Found, Got, KEY_MAX_BYTES, Mode, Refusal, Room, Setting, Value,
};

use crate::api::arguments::{make_text, text_at};
use crate::api::room::{Install, put};
use crate::current::current;
use crate::vm::state::Dictionary;

/// Where the number of its dictionary stands in the table that is `ngx.shared.NAME`.
const NUMBER_AT: i32 = 2;

/// The index of the number of its dictionary plus one, in a place that C functions look into for
/// lua-resty-core.
const ADDRESS_AT: i32 = 1;

/// Keys that `get_keys` gives unless it is told.
const KEYS_DEFAULT: usize = 1024;

/// Installs `ngx.shared`.
///
/// # Errors
/// None.
pub fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    let names: Vec<Box<[u8]>> =
        install.state.dictionaries.list.iter().map(|one| one.zone.name().into()).collect();
    let mut result = Ok(());
    install.table("shared", |stack| {
        stack.push_table(0, 24);
        put_methods(stack);
        stack.push_slot(-1);
        stack.raw_set_field(-2, "__index");
        for (number, name) in names.iter().enumerate() {
            // ngx.shared, methods, name, the dictionary's table
            stack.push(&**name);
            stack.push_table(2, 0);
            stack.push(Boxed(number + 1));
            stack.raw_set_item(-2, ADDRESS_AT);
            stack.push(number as f64);
            stack.raw_set_item(-2, NUMBER_AT);
            stack.push_slot(-3);
            stack.set_metatable(-2);
            if result.is_ok() {
                result = stack.set_field(-4);
            }
        }
    });
    result
}

fn put_methods(stack: &mut clearway_luajit::Stack<'_>) {
    put(stack, "get", |call| get(call, Stale::Hidden));
    put(stack, "get_stale", |call| get(call, Stale::Shown));
    put(stack, "set", |call| store(call, Mode::Set, Room::Force));
    put(stack, "safe_set", |call| store(call, Mode::Set, Room::Safe));
    put(stack, "add", |call| store(call, Mode::Add, Room::Force));
    put(stack, "safe_add", |call| store(call, Mode::Add, Room::Safe));
    put(stack, "replace", |call| store(call, Mode::Replace, Room::Force));
    put(stack, "delete", delete);
    put(stack, "incr", incr);
    put(stack, "lpush", |call| push(call, End::Left));
    put(stack, "rpush", |call| push(call, End::Right));
    put(stack, "lpop", |call| pop(call, End::Left));
    put(stack, "rpop", |call| pop(call, End::Right));
    put(stack, "llen", llen);
    put(stack, "ttl", ttl);
    put(stack, "expire", expire);
    put(stack, "flush_all", flush_all);
    put(stack, "flush_expired", flush_expired);
    put(stack, "get_keys", get_keys);
    put(stack, "capacity", capacity);
    put(stack, "free_space", free_space);
}

/// Whether what has expired is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stale {
    Hidden,
    Shown,
}

/// The dictionary that a method is called of.
fn dictionary(call: &mut Call<'_>) -> Result<Arc<Dictionary>, Raise> {
    if call.stack.is_empty() || call.stack.get(1) != LuaValue::Table {
        return Err(call.raise("bad \"zone\" argument"));
    }
    let height = call.stack.len();
    call.stack.raw_item(1, NUMBER_AT);
    let number = match call.stack.get(-1) {
        LuaValue::Number(number) => number as usize,
        _ => usize::MAX,
    };
    call.stack.pop(1);
    debug_assert_eq!(call.stack.len(), height, "the arguments are as they were");
    match current(call, |current| current.vm.dictionaries.list.get(number).map(Arc::clone))? {
        Some(dictionary) => Ok(dictionary),
        None => Err(call.raise("bad \"zone\" argument")),
    }
}

fn dict<'z>(call: &mut Call<'_>, zone: &'z Zone) -> Result<Dict<'z>, Raise> {
    zone.dict().ok_or_else(|| call.raise("too many processes use the dictionary"))
}

fn refused(call: &mut Call<'_>, why: &str) -> Returns {
    call.stack.push(());
    call.stack.push(why);
    Returns::Values(2)
}

/// Makes the key in slot 2 a text; what is wrong with it.
fn check_key(call: &mut Call<'_>) -> Result<Option<&'static str>, Raise> {
    match call.stack.get(2) {
        LuaValue::Nil => return Ok(Some("nil key")),
        LuaValue::Text(_) => {}
        _ => make_text(call, 2)?,
    }
    debug_assert!(matches!(call.stack.get(2), LuaValue::Text(_)), "a key is a text from here on");
    Ok(match text_at(call, 2).len() {
        0 => Some("empty key"),
        len if len > KEY_MAX_BYTES => Some("key too long"),
        _ => None,
    })
}

fn get(call: &mut Call<'_>, stale: Stale) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if let Some(why) = check_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    let now_ms = unix_ms();
    let mut text = current(call, |current| std::mem::take(&mut current.vm.dictionaries.text))?;
    text.clear();
    let found = dict.get(&zone.dict_key(text_at(call, 2)), now_ms, &mut text);
    let found = found.filter(|found| stale == Stale::Shown || !found.is_stale(now_ms));
    let is_list = found.is_some_and(|found| found.got == Got::List);
    let returns = if is_list {
        refused(call, "value is a list")
    } else {
        answer(call, found, &text, (stale == Stale::Shown).then_some(now_ms))
    };
    current(call, |current| current.vm.dictionaries.text = text)?;
    Ok(returns)
}

/// The value, its flags if they are not 0, and if `now_ms` says so whether it has expired.
fn answer(call: &mut Call<'_>, found: Option<Found>, text: &[u8], now_ms: Option<u64>) -> Returns {
    let Some(found) = found else {
        call.stack.push(());
        return Returns::Values(1);
    };
    let height = call.stack.len();
    push_value(call, found.got, text);
    debug_assert_eq!(call.stack.len(), height + 1, "a value is one");
    let flags = (found.flags != 0).then_some(f64::from(found.flags));
    let Some(now_ms) = now_ms else {
        let Some(flags) = flags else { return Returns::Values(1) };
        call.stack.push(flags);
        return Returns::Values(2);
    };
    call.stack.push(flags);
    call.stack.push(found.is_stale(now_ms));
    Returns::Values(3)
}

fn push_value(call: &mut Call<'_>, got: Got, text: &[u8]) {
    match got {
        Got::Text => call.stack.push(text),
        Got::Number(number) => call.stack.push(number),
        Got::Boolean(boolean) => call.stack.push(boolean),
        Got::List => call.stack.push(()),
    }
}

/// Milliseconds of an argument in seconds; nothing is 0.
fn ttl_ms(call: &mut Call<'_>, at: i32) -> Result<u64, Raise> {
    if matches!(call.stack.get(at), LuaValue::Nil | LuaValue::Boolean(false)) {
        return Ok(0);
    }
    let seconds = call.number(at)?;
    if seconds < 0.0 {
        return Err(call.raise("bad \"exptime\" argument"));
    }
    Ok((seconds * 1000.0) as u64)
}

fn store(call: &mut Call<'_>, mode: Mode, room: Room) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    let ttl_ms = ttl_ms(call, 4)?;
    let flags = match call.stack.get(5) {
        LuaValue::Nil | LuaValue::Boolean(false) => 0,
        _ => call.number(5)? as i64 as u32,
    };
    if let Some(why) = check_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    let value = match call.stack.get(3) {
        LuaValue::Text(text) => Some(Value::Text(text)),
        LuaValue::Number(number) => Some(Value::Number(number)),
        LuaValue::Boolean(boolean) => Some(Value::Boolean(boolean)),
        LuaValue::Nil if mode == Mode::Set => None,
        LuaValue::Nil => return Ok(not_stored(call, "attempt to add or replace nil values", 0)),
        _ => return Ok(refused(call, "bad value type")),
    };
    let setting = Setting { mode, room, ttl_ms, flags };
    let change = dict.store(&zone.dict_key(text_at(call, 2)), value, setting, unix_ms());
    Ok(stored(call, change))
}

fn stored(call: &mut Call<'_>, change: Change) -> Returns {
    if let Err(refusal) = change.result {
        return not_stored(call, words(refusal), change.evicted);
    }
    call.stack.push(true);
    call.stack.push(());
    call.stack.push(change.evicted > 0);
    Returns::Values(3)
}

fn not_stored(call: &mut Call<'_>, why: &str, evicted: u32) -> Returns {
    call.stack.push(false);
    call.stack.push(why);
    call.stack.push(evicted > 0);
    Returns::Values(3)
}

/// The message of a refusal.
pub(super) fn words(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::NotFound => "not found",
        Refusal::Exists => "exists",
        Refusal::NotNumber => "not a number",
        Refusal::NotList => "value not a list",
        Refusal::NoMemory => "no memory",
    }
}

fn delete(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let len = call.stack.len();
    if len > 2 {
        call.stack.pop(len - 2);
    }
    store(call, Mode::Set, Room::Force)
}

fn incr(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if let Some(why) = check_key(call)? {
        return Ok(refused(call, why));
    }
    let amount = call.number(3)?;
    let init = match call.stack.get(4) {
        LuaValue::Nil | LuaValue::Boolean(false) => None,
        _ => Some(number_named(call, 4, "init")?),
    };
    let init_ttl = match call.stack.get(5) {
        LuaValue::Nil => None,
        _ => Some(number_named(call, 5, "init_ttl")?),
    };
    let init = match (init, init_ttl) {
        (_, Some(ttl)) if ttl < 0.0 => return Err(call.raise("bad \"init_ttl\" argument")),
        (None, Some(_)) => return Err(call.raise("must provide \"init\" when providing \"init_ttl\"")),
        (init, ttl) => init.map(|init| (init, (ttl.unwrap_or(0.0) * 1000.0) as u64)),
    };
    let dict = dict(call, zone)?;
    let (sum, change) = dict.incr(&zone.dict_key(text_at(call, 2)), amount, init, unix_ms());
    match sum {
        Err(refusal) => {
            let returns = refused(call, words(refusal));
            if refusal != Refusal::NoMemory {
                return Ok(returns);
            }
            call.stack.push(change.evicted > 0);
            Ok(Returns::Values(3))
        }
        Ok(sum) if init.is_none() => {
            call.stack.push(sum);
            Ok(Returns::Values(1))
        }
        Ok(sum) => {
            call.stack.push(sum);
            call.stack.push(());
            call.stack.push(change.evicted > 0);
            Ok(Returns::Values(3))
        }
    }
}

fn number_named(call: &mut Call<'_>, at: i32, name: &str) -> Result<f64, Raise> {
    if let Some(number) = call.stack.number(at) {
        return Ok(number);
    }
    let got = call.stack.get(at).type_name();
    Err(call.raise(&*format!("bad {name} arg: number expected, got {got}")))
}

fn expect_arguments(call: &mut Call<'_>, count: i32) -> Result<(), Raise> {
    let seen = call.arguments();
    if seen == count {
        return Ok(());
    }
    Err(call.raise(&*format!("expecting {count} arguments, but only seen {seen}")))
}

/// The key of functions that take no `tostring`.
fn check_list_key(call: &mut Call<'_>) -> Result<Option<&'static str>, Raise> {
    if call.stack.get(2) != LuaValue::Nil {
        call.text(2)?;
    }
    check_key(call)
}

fn push(call: &mut Call<'_>, end: End) -> Result<Returns, Raise> {
    expect_arguments(call, 3)?;
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if let Some(why) = check_list_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    let value = match call.stack.get(3) {
        LuaValue::Text(text) => Value::Text(text),
        LuaValue::Number(number) => Value::Number(number),
        _ => return Ok(refused(call, "bad value type")),
    };
    match dict.push(&zone.dict_key(text_at(call, 2)), end, value, unix_ms()) {
        Ok(len) => call.stack.push(f64::from(len)),
        Err(refusal) => return Ok(refused(call, words(refusal))),
    }
    Ok(Returns::Values(1))
}

fn pop(call: &mut Call<'_>, end: End) -> Result<Returns, Raise> {
    expect_arguments(call, 2)?;
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if let Some(why) = check_list_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    let mut text = Vec::new();
    match dict.pop(&zone.dict_key(text_at(call, 2)), end, unix_ms(), &mut text) {
        Ok(Some(got)) => push_value(call, got, &text),
        Ok(None) => call.stack.push(()),
        Err(refusal) => return Ok(refused(call, words(refusal))),
    }
    Ok(Returns::Values(1))
}

fn llen(call: &mut Call<'_>) -> Result<Returns, Raise> {
    expect_arguments(call, 2)?;
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if let Some(why) = check_list_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    match dict.list_len(&zone.dict_key(text_at(call, 2)), unix_ms()) {
        Ok(len) => call.stack.push(f64::from(len)),
        Err(refusal) => return Ok(refused(call, words(refusal))),
    }
    Ok(Returns::Values(1))
}

fn ttl(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if let Some(why) = check_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    match dict.expires_ms(&zone.dict_key(text_at(call, 2))) {
        None => return Ok(refused(call, words(Refusal::NotFound))),
        Some(0) => call.stack.push(0.0),
        Some(expires_ms) => call.stack.push((expires_ms as f64 - unix_ms() as f64) / 1000.0),
    }
    Ok(Returns::Values(1))
}

fn expire(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    if matches!(call.stack.get(3), LuaValue::Nil | LuaValue::Boolean(false)) {
        return Err(call.raise("bad \"exptime\" argument"));
    }
    let ttl_ms = ttl_ms(call, 3)?;
    if let Some(why) = check_key(call)? {
        return Ok(refused(call, why));
    }
    let dict = dict(call, zone)?;
    if !dict.set_ttl(&zone.dict_key(text_at(call, 2)), ttl_ms, unix_ms()) {
        return Ok(refused(call, words(Refusal::NotFound)));
    }
    call.stack.push(true);
    Ok(Returns::Values(1))
}

fn flush_all(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    dict(call, zone)?.flush_all(unix_ms());
    Ok(Returns::Values(0))
}

/// How many an optional second argument says.
fn count(call: &mut Call<'_>, default: usize) -> Result<usize, Raise> {
    match call.arguments() {
        1 => Ok(default),
        2 => {
            if call.stack.get(1) != LuaValue::Table {
                return Err(call.expected(1, "table"));
            }
            Ok(call.number(2)?.max(0.0) as usize)
        }
        seen => Err(call.raise(&*format!("expecting 1 or 2 argument(s), but saw {seen}"))),
    }
}

fn flush_expired(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let max = count(call, 0)?;
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    let freed = dict(call, zone)?.flush_expired(u32::try_from(max).unwrap_or(u32::MAX), unix_ms());
    debug_assert!(max == 0 || freed as usize <= max, "no more are removed than are wanted");
    call.stack.push(f64::from(freed));
    Ok(Returns::Values(1))
}

fn get_keys(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let max = count(call, KEYS_DEFAULT)?;
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    let dict = dict(call, zone)?;
    let mut keys = Vec::new();
    dict.keys(max, unix_ms(), |key| keys.push(Box::<[u8]>::from(key)));
    debug_assert!(max == 0 || keys.len() <= max, "no more are told than are wanted");
    call.stack.push_table(keys.len(), 0);
    for (key, index) in keys.iter().zip(1..) {
        call.stack.push(&**key);
        call.stack.raw_set_item(-2, index);
    }
    Ok(Returns::Values(1))
}

fn capacity(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    call.stack.push(zone.bytes() as f64);
    Ok(Returns::Values(1))
}

fn free_space(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let dictionary = dictionary(call)?;
    let zone = &dictionary.zone;
    let free = dict(call, zone)?.free_bytes();
    call.stack.push(free as f64);
    Ok(Returns::Values(1))
}

#[cfg(test)]
mod tests {
    use clearway_zone::Zones;

    use crate::api::testing::Lua;
    use crate::vm::state::{Dictionaries, VmState};

    fn lua() -> Lua {
        let zones = Zones::create(None);
        let dogs = zones.declare_dict(b"dogs", 100 * 1024, "lua").unwrap();
        zones.open().unwrap();
        Lua::with(VmState { dictionaries: Dictionaries::new([dogs]), ..VmState::default() })
    }

    #[test]
    fn values_of_all_kinds_come_back() {
        let mut lua = lua();
        lua.says("local d = ngx.shared.dogs; return d:set('a', 'text'), d:get('a')", "true text");
        lua.says("local d = ngx.shared.dogs; d:set('a', 1.5, 0, 7); return d:get('a')", "1.5 7");
        lua.says("local d = ngx.shared.dogs; d:set('a', false); return d:get('a')", "false");
        lua.says("local d = ngx.shared.dogs; d:set(12, 'x'); return d:get('12')", "x");
        lua.says("return ngx.shared.dogs:get('none')", "nil");
        lua.says("return ngx.shared.dogs:set('t', {})", "nil bad value type");
        lua.says("return ngx.shared.dogs:get(nil)", "nil nil key");
        lua.says("return ngx.shared.dogs:get('')", "nil empty key");
        lua.says("return ngx.shared.dogs:set(string.rep('k', 65536), 1)", "nil key too long");
        lua.says("return ngx.shared.cats", "nil");
        lua.says("return ngx.shared.dogs:capacity()", "102400");
    }

    #[test]
    fn refusals_are_worded_as_upstream() {
        let mut lua = lua();
        lua.says("local d = ngx.shared.dogs; d:set('a', 1); return d:add('a', 2)", "false exists false");
        lua.says("return ngx.shared.dogs:replace('b', 2)", "false not found false");
        lua.says(
            "return ngx.shared.dogs:replace('a', nil)",
            "false attempt to add or replace nil values false",
        );
        lua.says("return ngx.shared.dogs:incr('b', 1)", "nil not found");
        lua.says("return ngx.shared.dogs:incr('b', 1, 10)", "11 nil false");
        lua.says("local d = ngx.shared.dogs; d:set('s', 'x'); return d:incr('s', 1)", "nil not a number");
        lua.says("return ngx.shared.dogs:lpush('a', 1)", "nil value not a list");
        lua.says("return ngx.shared.dogs:ttl('none')", "nil not found");
        lua.raises("return ngx.shared.dogs.get(nil, 'a')", "bad \"zone\" argument");
        lua.raises("return ngx.shared.dogs.get({}, 'a')", "bad \"zone\" argument");
        lua.raises("return ngx.shared.dogs:set('a', 1, -1)", "bad \"exptime\" argument");
        lua.raises("return ngx.shared.dogs:incr('a', 1, 'x')", "bad init arg: number expected, got string");
        lua.raises("return ngx.shared.dogs:lpush('a')", "expecting 3 arguments, but only seen 2");
    }

    #[test]
    fn lists_and_keys() {
        let mut lua = lua();
        lua.says(
            "local d = ngx.shared.dogs; return d:lpush('l', 'b'), d:rpush('l', 3), d:lpush('l', 'a')",
            "1 2 3",
        );
        lua.says("return ngx.shared.dogs:get('l')", "nil value is a list");
        lua.says(
            "local d = ngx.shared.dogs; return d:llen('l'), d:lpop('l'), d:rpop('l'), d:lpop('l')",
            "3 a 3 b",
        );
        lua.says("local d = ngx.shared.dogs; return d:llen('l'), d:lpop('l')", "0 nil");
        lua.says("local d = ngx.shared.dogs; d:set('x', 1); return #d:get_keys(), d:get_keys()[1]", "1 x");
        lua.says("local d = ngx.shared.dogs; d:flush_all(); return d:get('x'), d:flush_expired()", "nil 0");
        lua.says(
            "local d = ngx.shared.dogs; d:set('x', 1, 100); return d:ttl('x') > 99, d:expire('x', 0)",
            "true true",
        );
        lua.says(
            "local d = ngx.shared.dogs; d:expire('x', 0); return d:ttl('x'), d:get_stale('x')",
            "0 1 nil false",
        );
    }
}
