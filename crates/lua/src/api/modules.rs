//! Modules that code finds by name without a package: those of lua-resty-core that are not a room of their
//! own (`ngx.errlog`, `ngx.process`, `ngx.req`, `ngx.resp`, `resty.core.base` and others), `resty.lrucache`,
//! and what OpenResty's LuaJIT has beside plain LuaJIT (`thread.exdata`, `table.clone` and others).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use arc_swap::ArcSwap;
use clearway_base::kept_lines;
use clearway_base::log::{Level, Verbatim};
use clearway_luajit::{Call, FastCall, Fault, JIT_MODULES, Raise, Reply, Returns, Value};
use clearway_os::signal::{self, Signal};
use clearway_os::{child, clock};

use super::header::add_header as add_response_header;
use super::log::level_of;
use super::properties::{bypass_if_checks, set_status};
use super::request::add_header as add_request_header;
use super::room::{Install, put};
use crate::current::{Current, HANDSHAKES, LuaPhase, Phases, Run, current};

/// Code that is loaded when it is asked for, where the path has none of that name.
const MADE: [(&str, &str); 2] = [
    ("resty.lrucache", include_str!("modules/lrucache.lua")),
    ("resty.lrucache.pureffi", include_str!("modules/lrucache.lua")),
];

/// Said where no lines are kept.
pub(super) const NOT_KEPT: &str = "directive \"lua_capture_error_log\" is not set";

/// Variables of the environment that the configuration says, with their values.
pub type Environment = Vec<(Vec<u8>, Vec<u8>)>;

static ENVIRONMENT: LazyLock<ArcSwap<Environment>> = LazyLock::new(ArcSwap::default);

/// Says which variables of the environment have which values. Called before VMs are made; any thread.
pub fn say_environment(variables: Environment) {
    ENVIRONMENT.store(Arc::new(variables));
}

fn environment_of(name: &[u8]) -> Option<Vec<u8>> {
    let all = ENVIRONMENT.load();
    all.iter().find(|(its, _)| its == name).map(|(_, value)| value.clone())
}

/// The kind of process, as `ngx.process.type()` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessType {
    /// The only one (`master_process off`).
    Single,
    /// A worker process.
    Worker,
    /// One that a master has started beside them, with its own rights.
    PrivilegedAgent,
}

static PROCESS_TYPE: OnceLock<ProcessType> = OnceLock::new();

/// Says what the process is. Called once, before code runs; without it there is one process.
pub fn run_in(kind: ProcessType) {
    // A second one would be the same.
    let _ = PROCESS_TYPE.set(kind);
}

pub(crate) fn process_type() -> ProcessType {
    PROCESS_TYPE.get().copied().unwrap_or(ProcessType::Single)
}

pub(super) fn master_pid() -> u32 {
    match process_type() {
        ProcessType::Single => std::process::id(),
        ProcessType::Worker | ProcessType::PrivilegedAgent => child::parent_id(),
    }
}

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("_modules", |stack| {
        // Beside it there are what compiled code shows and answers, which is no business of these.
        stack.push_host();
        stack.pop(2);
        stack.raw_set_field(-2, "vm");
        stack.push_fast(is_for_request);
        stack.raw_set_field(-2, "is_for_request");
        put(stack, "warn_of", warn_of);
        put(stack, "set_shelf", set_shelf);
        put(stack, "has_ctx", |call| {
            let has = current(call, |current| current.kept(|kept| kept.ctx.is_some()) == Some(true))?;
            call.stack.push(has);
            Ok(Returns::Values(1))
        });
        put(stack, "environment_names", environment_names);
        put(stack, "environment", |call| {
            let value = environment_of(call.text(1)?);
            call.stack.push(value.as_deref());
            Ok(Returns::Values(1))
        });
        put(stack, "add_request_header", add_request_header);
        put(stack, "add_response_header", add_response_header);
        put(stack, "set_status", set_status);
        put(stack, "bypass_if_checks", bypass_if_checks);
        put(stack, "monotonic_ms", |call| number(call, clock::monotonic_ms() as f64));
        put(stack, "raw_log", raw_log);
        put(stack, "filter_level", filter_level);
        put(stack, "are_lines_kept", |call| {
            call.stack.push(kept_lines::is_kept());
            Ok(Returns::Values(1))
        });
        put(stack, "keep_lines", keep_lines);
        put(stack, "take_line", take_line);
        put(stack, "process_type", |call| {
            // As upstream's, whose `init_by_lua` runs in the master.
            let phase = call.with_context::<Run, _>(|current| current.phase);
            call.stack.push(match (process_type(), phase) {
                (ProcessType::Single, _) => "single",
                (_, Some(LuaPhase::Init)) => "master",
                (ProcessType::Worker, _) => "worker",
                (ProcessType::PrivilegedAgent, _) => "privileged agent",
            });
            Ok(Returns::Values(1))
        });
        put(stack, "master_pid", |call| number(call, f64::from(master_pid())));
        put(stack, "want_agent", |call| {
            let connections = call.number(1)?;
            current(call, |current| current.vm.want_agent(connections as u32))?;
            Ok(Returns::Values(0))
        });
        put(stack, "end_process", end_process);
        put(stack, "code", code);
    });
    install.run(include_str!("modules/tables.lua"), c"=table")?;
    install.run(include_str!("modules/core.lua"), c"=resty.core")
}

/// (table): where `ngx.ctx` of each request is, by number.
fn set_shelf(call: &mut Call<'_>) -> Result<Returns, Raise> {
    if call.stack.get(1) != Value::Table {
        return Err(call.raise("a shelf is a table"));
    }
    call.stack.push_slot(1);
    call.stack.set_shelf();
    Ok(Returns::Values(0))
}

/// The names of variables that the configuration says.
fn environment_names(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let all = ENVIRONMENT.load();
    call.stack.push_table(all.len(), 0);
    for (at, (name, _)) in (1..).zip(all.iter()) {
        call.stack.push(&name[..]);
        call.stack.raw_set_item(-2, at);
    }
    Ok(Returns::Values(1))
}

fn number(call: &mut Call<'_>, number: f64) -> Result<Returns, Raise> {
    call.stack.push(number);
    Ok(Returns::Values(1))
}

/// (name): the code of a module, if there is one.
fn code(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let name = call.text(1)?;
    let found = MADE.iter().chain(&JIT_MODULES).find(|(other, _)| other.as_bytes() == name);
    match found {
        Some((_, code)) => call.stack.push(*code),
        None => call.stack.push(()),
    }
    Ok(Returns::Values(1))
}

/// Whether there is a request, or what stands for one: 1 or 0.
fn is_for_request(call: &FastCall<'_>, reply: &mut Reply) -> i32 {
    let is = call.with_context::<Run, bool>(reply, |current, _| {
        let stands = Phases::of(&[LuaPhase::InitWorker, LuaPhase::ExitWorker]).or(HANDSHAKES);
        current.stage.is_some() || current.alone.is_some() || stands.has(current.phase)
    });
    i32::from(is == Some(true))
}

/// (version): the path has a lua-resty-core of this version, which is not used; said once.
fn warn_of(call: &mut Call<'_>) -> Result<Returns, Raise> {
    static SAID: AtomicBool = AtomicBool::new(false);
    let version = call.text(1)?.to_vec();
    if !SAID.swap(true, Ordering::Relaxed) {
        current(call, |current| {
            let line = format_args!(
                "lua-resty-core {} of the path was not verified here: the server's own functions answer",
                Verbatim(&version)
            );
            current.log(Level::Warn, line);
        })?;
    }
    Ok(Returns::Values(0))
}

/// (level, text): a line without the place that it comes from; whether there is such a level.
fn raw_log(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let level = level_of(call.number(1)?);
    let line = call.text(2)?.to_vec();
    if let Some(level) = level {
        current(call, |current| current.log(level, format_args!("{}", Verbatim(&line))))?;
    }
    call.stack.push(level.is_some());
    Ok(Returns::Values(1))
}

/// (level): has lines of it and more severe ones kept; whether there is such a level.
fn keep_lines(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let level = level_of(call.number(1)?);
    call.stack.push(level.is_some_and(kept_lines::set_least));
    Ok(Returns::Values(1))
}

/// Level, time in seconds and text of the oldest line that is kept; nothing if there is none.
fn take_line(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let Some(line) = kept_lines::take() else { return Ok(Returns::Values(0)) };
    call.stack.push(f64::from(line.level as u8));
    call.stack.push(line.unix_ms as f64 / 1000.0);
    call.stack.push(&line.text[..]);
    Ok(Returns::Values(3))
}

/// The least severe level that is logged where the code runs.
fn filter_level(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let level = current(call, least_logged)?;
    number(call, f64::from(level))
}

/// The number of the least severe level that is logged.
pub(super) fn least_logged(current: &mut Current<'_>) -> i32 {
    const LEVELS: [Level; 8] = [
        Level::Debug,
        Level::Info,
        Level::Notice,
        Level::Warn,
        Level::Error,
        Level::Crit,
        Level::Alert,
        Level::Emerg,
    ];
    let least = LEVELS.iter().position(|&level| current.is_logged(level));
    (LEVELS.len() - least.unwrap_or(LEVELS.len())) as i32
}

/// The process is told to end when what is under way has.
fn end_process(call: &mut Call<'_>) -> Result<Returns, Raise> {
    match signal::kill(std::process::id(), Signal::QUIT) {
        Ok(()) => Ok(Returns::Values(0)),
        Err(error) => Err(call.raise(&*error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use crate::api::testing::Lua;

    #[test]
    fn the_oldest_of_a_cache_goes() {
        let mut lua = Lua::new();
        lua.says(
            "local c = require('resty.lrucache').new(2) c:set('a', 1) c:set('b', 2, 100, 7) c:get('a') \
             c:set('c', 3) return c:get('a'), c:get('b'), select(3, c:get('c')), c:count(), c:capacity(), \
             table.concat(c:get_keys(), '')",
            "1 nil 0 2 2 ca",
        );
        lua.says(
            "local c = require('resty.lrucache.pureffi').new(3) c:set('a', 1, -1, 5) c:set('b', 2) \
             local now, stale, flags = c:get('a') local was = c:delete('b') c:set('d', 4) c:set('e', 5) \
             c:set('f', 6) return now, stale, flags, was, c:delete('b'), c:get('a'), c:count(), \
             table.concat(c:get_keys(2), '')",
            "nil 1 5 true false nil 3 fe",
        );
        lua.says(
            "local c = require('resty.lrucache').new(1) c:set('a', 1) c:flush_all() c:set('b', false) \
             return c:count(), c:get('b'), #c:get_keys(5, { 1, 2, 3 }), \
             select(2, require('resty.lrucache').new(0))",
            "1 false 1 size too small",
        );
    }

    #[test]
    fn tables_have_what_the_fork_has() {
        let mut lua = Lua::new();
        lua.says(
            "local clone, nkeys = require 'table.clone', require 'table.nkeys' \
             local isempty, isarray = require 'table.isempty', table.isarray \
             local t = clone({ 1, x = 2 }) \
             return t.x, nkeys(t), isempty({}), isempty(t), isarray({}), isarray({ 1, 2 }), isarray(t)",
            "2 2 true false true true false",
        );
        lua.raises("table.nkeys()", "bad argument #1 to 'nkeys' (table expected, got no value)");
    }

    #[test]
    fn modules_of_the_core_are_there() {
        let mut lua = Lua::new();
        lua.says(
            "local utils = require 'resty.core.utils' \
             return utils.str_replace_char('_a__b', '_', '-'), utils.str_replace_char('ab', '02', '1')",
            "-a--b ab",
        );
        lua.says(
            "local base = require 'resty.core.base' local places = {} \
             local one, two = base.ref_in_table(places, 'a'), base.ref_in_table(places, 'b') \
             return one, two, base.ref_in_table(places), base.get_request(), base.FFI_BAD_CONTEXT, \
             require 'thread.exdata'(), require('ngx.process').type()",
            "1 2 -1 nil -101 nil single",
        );
        lua.raises("require('ngx.req').add_header('a', 'b')", "API disabled in the current context");
        lua.says("return require('resty.core.ctx').get_ctx_table == nil", "false");
        lua.says("return (require('ngx.errlog').set_filter_level(1))", "nil");
        lua.says("return select('#', pcall(require('ngx.errlog').raw_log, ngx.ERR, 'x'))", "1");
        lua.raises("require('ngx.errlog').raw_log(99, 'x')", "bad log level");
        lua.says(
            "local misc = require 'resty.core.misc' misc.register_ngx_magic_key_getter('own', function() \
             return 'mine' end) return ngx.own, ngx.get_phase()",
            "mine content",
        );
        lua.says(
            "return (select(2, pcall(require, 'none.such'))):match('module .none.such. not found')",
            "module 'none.such' not found",
        );
        lua.says("return type(require('jit.v').on), type(require('jit.p').start)", "function function");
    }
}
