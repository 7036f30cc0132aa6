//! The modules: which phases and filters have code in a location, and in which order they come among others.
//! The handlers do nothing but begin to run it.

use std::sync::atomic::Ordering;

use clearway_base::log::{Level, Verbatim};
use clearway_base::memory;
use clearway_conf::Error;
use clearway_http::{
    Cost, Enabling, Exchange, FilterSpec, Load, Module, Phase, PhaseHandler, Step, ThreadPools, WantedRights,
};

use crate::current::LuaPhase;
use crate::metrics;
use crate::phases::directives::{CODE, OTHERS};
use crate::phases::filters;
use crate::phases::run::run;
use crate::phases::set;
use crate::pooled::POOLED;
use crate::request_state::RequestState;
use crate::vm::settings::{LUA_CONF, LUA_MAIN, LuaConf};

/// The module. `set`, `if` and `rewrite` of a location come before its code, and so do limits and passwords;
/// requests are passed on behind it.
pub static LUA: Module = Module {
    name: "lua",
    directives: CODE,
    confs: &[&LUA_CONF, &LUA_MAIN, &POOLED],
    phases: &[
        PhaseHandler {
            phase: Phase::Rewrite,
            cost: Cost::MayBlock,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.rewrite.is_some() && !*conf.rewrite_no_postpone
            },
            handler: rewrite,
        },
        PhaseHandler {
            phase: Phase::Access,
            cost: Cost::MayBlock,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.access.is_some() && !*conf.access_no_postpone
            },
            handler: access,
        },
        PhaseHandler {
            phase: Phase::PreContent,
            cost: Cost::MayBlock,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.precontent.is_some() && !*conf.precontent_no_postpone
            },
            handler: precontent,
        },
        PhaseHandler {
            phase: Phase::Content,
            cost: Cost::MayBlock,
            enabled: |enabling| conf(enabling).content.is_some(),
            handler: content,
        },
        PhaseHandler {
            phase: Phase::Log,
            cost: Cost::MayBlock,
            enabled: |enabling| conf(enabling).log.is_some(),
            handler: log,
        },
        PhaseHandler {
            phase: Phase::Log,
            cost: Cost::Cheap,
            enabled: |enabling| *conf(enabling).malloc_trim > 0,
            handler: trim,
        },
    ],
    metrics: metrics::ALL,
    finish: Some(finish),
    ..Module::EMPTY
};

/// `set_by_lua`, and its filters, which come before those that add lines to a head.
pub static LUA_FILTER: Module = Module {
    name: "lua_filter",
    directives: set::DIRECTIVES,
    filters: &[FilterSpec {
        enabled: |enabling| {
            let conf = conf(enabling);
            conf.header_filter.is_some() || conf.body_filter.is_some()
        },
        filter: filters::header_filter,
    }],
    ..Module::EMPTY
};

/// Phases that come before other modules (`rewrite_by_lua_no_postpone` and the like).
pub static LUA_EARLY: Module = Module {
    name: "lua_early",
    directives: OTHERS,
    phases: &[
        PhaseHandler {
            phase: Phase::ServerRewrite,
            cost: Cost::MayBlock,
            enabled: |enabling| conf(enabling).server_rewrite.is_some(),
            handler: server_rewrite,
        },
        PhaseHandler {
            phase: Phase::Rewrite,
            cost: Cost::Cheap,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.header_filter.is_some() || conf.body_filter.is_some()
            },
            handler: prepare_filters,
        },
        PhaseHandler {
            phase: Phase::PreContent,
            cost: Cost::MayBlock,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.precontent.is_some() && *conf.precontent_no_postpone
            },
            handler: precontent,
        },
        PhaseHandler {
            phase: Phase::Rewrite,
            cost: Cost::MayBlock,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.rewrite.is_some() && *conf.rewrite_no_postpone
            },
            handler: rewrite,
        },
        PhaseHandler {
            phase: Phase::Access,
            cost: Cost::MayBlock,
            enabled: |enabling| {
                let conf = conf(enabling);
                conf.access.is_some() && *conf.access_no_postpone
            },
            handler: access,
        },
    ],
    ..Module::EMPTY
};

fn conf<'a>(enabling: &'a Enabling<'_>) -> &'a LuaConf {
    enabling.confs.of(&LUA_CONF)
}

/// VMs are made later in a pool; what runs in them first may have wishes.
fn finish(load: &mut Load) -> Result<(), Error> {
    let pools = load.environment().services.find::<ThreadPools>().cloned();
    *load.main(&LUA_MAIN).pool = pools.as_ref().and_then(|pools| pools.find(b"default")).cloned();
    *load.main(&POOLED).thread_pools = pools;
    let run_time = *load.location(&LUA_CONF).max_run_time;
    *load.main(&LUA_MAIN).init_run_time = run_time;
    let (has_init, is_privileged) = {
        let main = load.main(&LUA_MAIN);
        (main.init.is_some(), *main.init_privileged)
    };
    if let Some(rights) = load.environment().services.find::<WantedRights>()
        && has_init
    {
        if is_privileged {
            rights.want_privileged_start();
        }
        rights.want_trial();
    }
    Ok(())
}

/// Filters cannot make what they keep things in (`ngx.ctx`).
fn prepare_filters<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    if RequestState::of(exchange.request).is_none() {
        RequestState::begin(exchange.request);
    }
    Step::Declined
}

fn server_rewrite<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    start(exchange, LuaPhase::ServerRewrite)
}

fn rewrite<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    // Another location has the request, and may have code of its own.
    if exchange.request.is_to_search() {
        return Step::Declined;
    }
    start(exchange, LuaPhase::Rewrite)
}

fn access<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    start(exchange, LuaPhase::Access)
}

fn precontent<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    start(exchange, LuaPhase::Precontent)
}

fn content<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    start(exchange, LuaPhase::Content)
}

fn log<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    start(exchange, LuaPhase::Log)
}

/// `lua_malloc_trim`
fn trim<'a>(exchange: Exchange<'a, '_>) -> Step<'a> {
    if !exchange.request.is_main() && !*exchange.request.location().core.log_subrequest {
        return Step::Declined;
    }
    let every = *exchange.request.conf(&LUA_CONF).malloc_trim;
    let untrimmed = &exchange.request.main_conf(&LUA_MAIN).untrimmed;
    if (untrimmed.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every) {
        memory::release();
        exchange.request.log(Level::Debug, format_args!("malloc_trim(1) returned 1"));
    }
    Step::Declined
}

/// Without `lua_check_client_abort` a client that leaves changes nothing until something is written; with it
/// the run itself looks for the client.
fn start<'a>(exchange: Exchange<'a, '_>, phase: LuaPhase) -> Step<'a> {
    let conf = exchange.request.conf(&LUA_CONF);
    let code = match phase {
        LuaPhase::ServerRewrite => &*conf.server_rewrite,
        LuaPhase::Rewrite => &*conf.rewrite,
        LuaPhase::Access => &*conf.access,
        LuaPhase::Precontent => &*conf.precontent,
        LuaPhase::Content => &*conf.content,
        _ => &*conf.log,
    };
    let Some(code) = code else { return Step::Declined };
    let path = Verbatim(exchange.request.path());
    let line = format_args!("lua {} handler, uri:\"{path}\" c:1", phase.handler_name());
    exchange.request.log(Level::Debug, line);
    Step::WaitRegardless(Box::pin(run(exchange, code, phase)))
}
