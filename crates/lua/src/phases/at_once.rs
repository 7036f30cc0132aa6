//! Code that cannot wait: filters, and values of variables. It runs within one entry into its VM.

use clearway_base::log::{Level, Verbatim};
use clearway_http::Request;
use clearway_luajit::{Coroutine, Fault, FaultKind, Resumed};

use crate::code::Code;
use crate::current::{Args, Current, LuaPhase, Pause, Stage};
use crate::metrics;
use crate::phases::code_file::File;
use crate::vm::interpreter::{Interpreter, Recovery};
use crate::vm::settings::LUA_CONF;
use crate::vm::vms::Described;

/// The results of code that has run to its end.
pub(super) struct Over {
    /// Its last request to the server.
    pub(super) pause: Option<Pause>,
    /// The values of `ngx.arg`.
    pub(super) args: Args,
    /// The first value that it has returned, if that is a text or a number.
    pub(super) text: Option<Vec<u8>>,
}

/// Runs code that cannot wait.
///
/// # Errors
/// Why it has not run to its end.
pub(super) fn run_at_once<'a>(
    interpreter: &'a mut Interpreter,
    (code, file): (&Code, Option<&File>),
    phase: LuaPhase,
    stage: &'a mut (dyn Stage + 'a),
    args: Args,
) -> Result<Over, Broken> {
    let coroutine = start(interpreter, code, file)?;
    finish(interpreter, coroutine, phase, stage, args)
}

/// A thread for code of the configuration, for that of this file, or of one that the VM began with.
///
/// # Errors
/// The code is not valid Lua.
pub(super) fn start(
    interpreter: &mut Interpreter,
    code: &Code,
    file: Option<&File>,
) -> Result<Coroutine, Broken> {
    if let Some(File { path, text }) = file {
        let started = interpreter.start_file(path, text.as_deref());
        return started.map_err(|fault| Broken::LoadFile(path.clone(), fault));
    }
    interpreter.start_compiled(code).map_err(Broken::Load)
}

/// Runs a thread that was started.
///
/// # Errors
/// Why it has not run to its end.
pub(super) fn finish<'a>(
    interpreter: &'a mut Interpreter,
    mut coroutine: Coroutine,
    phase: LuaPhase,
    stage: &'a mut (dyn Stage + 'a),
    args: Args,
) -> Result<Over, Broken> {
    let mut current = Current::of(phase, &mut interpreter.state, stage);
    current.args = args;
    let limit = current.scene(|scene| *scene.request().conf(&LUA_CONF).max_run_time).flatten();
    interpreter.vm.limit_runs(limit, None);
    let resumed = current.resume(&mut interpreter.vm, &mut coroutine);
    let (pause, args) = (current.pause.take(), std::mem::take(&mut current.args));
    match resumed {
        Resumed::Finished(values) => {
            let mut stack = interpreter.vm.stack(&coroutine);
            let text = if values > 0 { stack.text(1).map(<[u8]>::to_vec) } else { None };
            interpreter.vm.give_back(coroutine);
            Ok(Over { pause, args, text })
        }
        Resumed::Yielded(_) if pause.is_some() => Ok(Over { pause, args, text: None }),
        Resumed::Yielded(_) => {
            let fault = Fault::of(FaultKind::Runtime, "attempt to yield across C-call boundary");
            Err(Broken::Run(fault, Recovery::GoesOn))
        }
        Resumed::Failed(fault) => {
            if fault.kind() == FaultKind::TimeLimit {
                metrics::ENDED.increment();
            }
            let recovery = interpreter.recover(&fault);
            Err(Broken::Run(fault, recovery))
        }
    }
}

/// Why code has not run to its end.
pub(super) enum Broken {
    /// The code is not valid Lua.
    Load(Fault),
    /// The file has no valid Lua.
    LoadFile(Vec<u8>, Fault),
    /// The code has raised an error; the second value tells the state of the VM.
    Run(Fault, Recovery),
}

impl Broken {
    pub(super) fn log(&self, request: &Request<'_>, code: &Code) {
        let name = code.directive();
        match self {
            Self::Load(fault) => {
                let text = Verbatim(fault.text());
                request.log(Level::Error, format_args!("failed to load inlined Lua code: {text}"));
            }
            Self::LoadFile(path, fault) => {
                let (path, text) = (Verbatim(path), Verbatim(fault.text()));
                let line = format_args!("failed to load external Lua file \"{path}\": {text}");
                request.log(Level::Error, line);
            }
            Self::Run(fault, recovery) => {
                request.log(Level::Error, format_args!("failed to run {name}*: {}", Described(fault)));
                if *recovery == Recovery::GivenUp {
                    request.log(Level::Alert, format_args!("{}", Recovery::FULL));
                }
            }
        }
    }
}
