//! What Lua runs for: the phase, the VM's own state, and the request where there is one. A function of
//! the server gets it by [`current`], for as long as it is called.

use std::fmt;

use clearway_base::log::Level;
use clearway_luajit::{Call, Context, Raise};

use crate::vm::state::VmState;

/// Which directive's code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LuaPhase {
    /// `init_by_lua*`.
    Init = 0,
    /// `init_worker_by_lua*`.
    InitWorker,
    /// `exit_worker_by_lua*`.
    ExitWorker,
    /// `set_by_lua*`.
    Set,
    /// `server_rewrite_by_lua*`.
    ServerRewrite,
    /// `rewrite_by_lua*`.
    Rewrite,
    /// `access_by_lua*`.
    Access,
    /// `precontent_by_lua*`.
    Precontent,
    /// `content_by_lua*`.
    Content,
    /// `header_filter_by_lua*`.
    HeaderFilter,
    /// `body_filter_by_lua*`.
    BodyFilter,
    /// `log_by_lua*`.
    Log,
    /// A timer's function.
    Timer,
}

impl LuaPhase {
    /// As errors name it: "API disabled in the context of …".
    #[must_use]
    pub const fn context_name(self) -> &'static str {
        match self {
            Self::Init => "init_by_lua*",
            Self::InitWorker => "init_worker_by_lua*",
            Self::ExitWorker => "exit_worker_by_lua*",
            Self::Set => "set_by_lua*",
            Self::ServerRewrite => "server_rewrite_by_lua*",
            Self::Rewrite => "rewrite_by_lua*",
            Self::Access => "access_by_lua*",
            Self::Precontent => "precontent_by_lua*",
            Self::Content => "content_by_lua*",
            Self::HeaderFilter => "header_filter_by_lua*",
            Self::BodyFilter => "body_filter_by_lua*",
            Self::Log => "log_by_lua*",
            Self::Timer => "ngx.timer",
        }
    }

    /// What `ngx.get_phase()` says.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::InitWorker => "init_worker",
            Self::ExitWorker => "exit_worker",
            Self::Set => "set",
            Self::ServerRewrite => "server_rewrite",
            Self::Rewrite => "rewrite",
            Self::Access => "access",
            Self::Precontent => "precontent",
            Self::Content => "content",
            Self::HeaderFilter => "header_filter",
            Self::BodyFilter => "body_filter",
            Self::Log => "log",
            Self::Timer => "timer",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

/// Some of the phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases(u16);

impl Phases {
    /// These.
    #[must_use]
    pub const fn of(phases: &[LuaPhase]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < phases.len() {
            bits |= phases[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// Whether `phase` is one of them.
    #[must_use]
    pub const fn has(self, phase: LuaPhase) -> bool {
        self.0 & phase.bit() != 0
    }
}

/// What a run of Lua is for. Touched by the poll that runs it.
pub struct Current<'a> {
    /// Which directive's code it is.
    pub phase: LuaPhase,
    /// What Rust keeps for this VM: caches, and what the configuration gave it.
    pub vm: &'a mut VmState,
    /// Where lines go: the request's log, or that of the server where there is none.
    pub log: &'a dyn LogLine,
}

/// Takes lines for the error log.
pub trait LogLine {
    /// Whether lines of this level are written at all.
    fn enabled(&self, level: Level) -> bool;

    /// Writes a line; what is known of a request stands behind it.
    fn log(&self, level: Level, message: fmt::Arguments<'_>);
}

/// Stands for [`Current`] in [`Call::with_context`].
pub struct Run;

impl Context for Run {
    type Of<'a> = Current<'a>;
}

/// What the function is called for.
///
/// # Errors
/// "no request found": nothing of the server runs this code.
pub fn current<R>(call: &mut Call<'_>, work: impl for<'a> FnOnce(&mut Current<'a>) -> R) -> Result<R, Raise> {
    match call.with_context::<Run, R>(work) {
        Some(answer) => Ok(answer),
        None => Err(call.raise("no request found")),
    }
}

/// Refuses phases that are not in `allowed`.
///
/// # Errors
/// "API disabled in the context of …".
pub fn allow(call: &mut Call<'_>, allowed: Phases) -> Result<LuaPhase, Raise> {
    let phase = current(call, |current| current.phase)?;
    if allowed.has(phase) {
        return Ok(phase);
    }
    let name = phase.context_name();
    Err(call.raise(&*format!("API disabled in the context of {name}")))
}
