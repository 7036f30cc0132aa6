//! The VMs of a generation: made when it is built, off the loops; begun when it is used; ended with it.
//! `init_by_lua` runs in each one, then `init_worker_by_lua`.

use std::ffi::{CStr, CString};
use std::fmt;
use std::ops::Index;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use clearway_base::log::{Level, Lines, Record, Sink, Verbatim};
use clearway_http::Snapshot;
use clearway_luajit::{Fault, FaultKind, Resumed, samples};
use clearway_offload::Pool;
use clearway_runtime::{LoopRef, PerLoop, Runtime};

use crate::code::{Code, CodeSource};
use crate::current::{Current, LuaPhase};
use crate::vm::choice::worker_id;
use crate::vm::interpreter::{Installer, Interpreter, VmSettings};
use crate::vm::net_settings::NET_MAIN;
use crate::vm::of_loop::{Builder, LoopVms, Publish, Wanted};
use crate::vm::regexes::RegexConf;
use crate::vm::settings::{LUA_MAIN, LuaMain};
use crate::vm::state::VmPlace;
use crate::vm::texts::Texts;
use crate::vm::timers::Timers;
use crate::vm::workers;

/// The VMs of one generation.
pub(crate) struct Vms {
    of_loops: PerLoop<Arc<LoopVms>>,
}

impl Index<LoopRef> for Vms {
    type Output = Arc<LoopVms>;

    fn index(&self, home: LoopRef) -> &Arc<LoopVms> {
        &self.of_loops[home]
    }
}

/// The VMs of one loop, before it has them: its own one, and its reserves.
pub(crate) type OfLoop = (Interpreter, Vec<Interpreter>);

/// Makes the VMs of a configuration that is about to be used, and runs `init_by_lua` in each. Takes its time:
/// not to be called on a loop.
///
/// # Errors
/// What `init_by_lua` raised, or that a VM cannot be made.
pub(crate) fn prepare(
    snapshot: &Arc<Snapshot>,
    runtime: Runtime,
    sink: &Arc<dyn Sink>,
    install: Installer,
) -> Result<(), String> {
    let main = snapshot.conf(&LUA_MAIN);
    if !*main.is_used {
        return Ok(());
    }
    let is_new = snapshot.conf(&NET_MAIN).timers.set(Timers::new(runtime.len())).is_ok();
    debug_assert!(is_new, "a configuration is prepared once");
    let maker = Arc::new(Maker::new(snapshot, runtime.len(), sink, install));
    let ahead = main.made_ahead.lock().unwrap_or_else(PoisonError::into_inner).take();
    let made = match ahead {
        Some(made) => made,
        None => maker.make_all(main)?,
    };
    debug_assert_eq!(made.len(), runtime.len(), "each loop has its VMs");
    let mut made = runtime.loops().zip(made).map(|(home, (own, reserves))| {
        let builder = Arc::clone(&maker) as Arc<dyn Builder>;
        LoopVms::new(home, *main.reserve_vms, own, reserves, builder)
    });
    let of_loops = PerLoop::new(runtime, |_| made.next().expect("one for each loop"));
    let is_new = main.vms.set(Arc::new(Vms { of_loops })).is_ok();
    debug_assert!(is_new, "a configuration is prepared once");
    Ok(())
}

/// Makes the VMs of a configuration before there are loops, for [`prepare`] to find: `init_by_lua` runs with
/// the rights that the process has now (`lua_init_privileged`). A main thread.
///
/// # Errors
/// As of [`prepare`].
pub(crate) fn make_ahead(
    snapshot: &Arc<Snapshot>,
    loops: usize,
    sink: &Arc<dyn Sink>,
    install: Installer,
) -> Result<(), String> {
    let main = snapshot.conf(&LUA_MAIN);
    if *main.is_used {
        let made = Maker::new(snapshot, loops, sink, install).make_all(main)?;
        *main.made_ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }
    Ok(())
}

/// Makes one VM of a configuration, and lets it go. A main thread of a process that serves nothing.
///
/// # Errors
/// As of [`prepare`]; what the code had logged is in `sink` then.
pub(crate) fn try_out(
    snapshot: &Arc<Snapshot>,
    loops: usize,
    sink: &Arc<dyn Sink>,
    install: Installer,
) -> Result<(), String> {
    let main = snapshot.conf(&LUA_MAIN);
    if !*main.is_used {
        return Ok(());
    }
    let held = Arc::new(HeldLines { of: Arc::clone(sink), lines: Mutex::default() });
    let for_code = Arc::clone(&held) as Arc<dyn Sink>;
    let tried = Maker::new(snapshot, loops, &for_code, install).make((main, &main.texts), 0, None);
    if tried.is_err() {
        held.release();
    }
    tried.map(drop)
}

/// Lines that are logged when it is known that nobody else will say the same.
struct HeldLines {
    of: Arc<dyn Sink>,
    lines: Mutex<Vec<(Level, String)>>,
}

/// Lines that are held; further ones are lost.
const HELD_LINES_MAX: usize = 1000;

impl HeldLines {
    fn release(&self) {
        let lines = std::mem::take(&mut *self.lines.lock().unwrap_or_else(PoisonError::into_inner));
        lines.iter().for_each(|(level, line)| self.of.log(*level, format_args!("{line}")));
    }
}

impl Sink for HeldLines {
    fn enabled(&self, level: Level) -> bool {
        self.of.enabled(level)
    }

    fn write(&self, record: &Record<'_>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() < HELD_LINES_MAX {
            lines.push((record.level, record.message.to_string()));
        }
        debug_assert!(lines.len() <= HELD_LINES_MAX, "what is held is bounded");
    }
}

/// The configuration is about to be used, by loops that these numbers stand for: runs `init_worker_by_lua` in
/// its VMs. Not to be called on a loop.
pub fn begin(snapshot: &Snapshot, identities: &[u32], sink: &dyn Sink) {
    let is_new = snapshot.conf(&NET_MAIN).pids.set(identities.to_vec()).is_ok();
    debug_assert!(is_new, "a configuration begins once");
    run_in_all(snapshot, &snapshot.conf(&LUA_MAIN).init_worker, LuaPhase::InitWorker, sink);
}

/// The connections of the privileged agent that `init_by_lua` of a prepared configuration wants.
#[must_use]
pub fn wanted_agent(snapshot: &Snapshot) -> Option<u32> {
    snapshot.conf(&NET_MAIN).agent.get().copied()
}

/// No requests begin with the configuration any more: its timers run now (`premature`).
pub fn retire(snapshot: &Snapshot, sink: &dyn Sink) {
    if let Some(timers) = snapshot.conf(&NET_MAIN).timers.get() {
        if timers.is_busy() {
            sink.log(Level::Debug, format_args!("lua abort pending timers"));
            let count = timers.all_pending();
            let line = format_args!("lua found {count} pending timers to be aborted prematurely");
            sink.log(Level::Debug, line);
        }
        timers.end();
    }
}

/// Whether a timer of the configuration waits or runs.
#[must_use]
pub fn is_busy(snapshot: &Snapshot) -> bool {
    snapshot.conf(&NET_MAIN).timers.get().is_some_and(|timers| timers.is_busy())
}

/// The configuration is not used any more: runs `exit_worker_by_lua`. Not to be called on a loop.
pub fn end(snapshot: &Snapshot, sink: &dyn Sink) {
    run_in_all(snapshot, &snapshot.conf(&LUA_MAIN).exit_worker, LuaPhase::ExitWorker, sink);
}

fn run_in_all(snapshot: &Snapshot, code: &Option<Arc<Code>>, phase: LuaPhase, sink: &dyn Sink) {
    let Some(code) = code else { return };
    let LuaMain { vms, texts, .. } = snapshot.conf(&LUA_MAIN);
    let Some(vms) = vms.get() else { return };
    let cx = std::task::Context::from_waker(std::task::Waker::noop());
    for slot in vms.of_loops.iter().flat_map(|of_loop| of_loop.slots()) {
        // One that is in use is stuck in a request.
        let Some(mut interpreter) = slot.try_enter(&cx) else { continue };
        if let Err(text) = run(&mut interpreter, code, phase, (texts, sink)) {
            sink.log(Level::Error, format_args!("{}", Verbatim(&text)));
        }
    }
}

/// Runs code without a request; the error is a line for the log.
fn run(
    interpreter: &mut Interpreter,
    code: &Code,
    phase: LuaPhase,
    (texts, sink): (&Texts, &dyn Sink),
) -> Result<(), Vec<u8>> {
    let directive = code.directive();
    let read;
    let (text, chunk, form) = match code.source() {
        CodeSource::Inline(text) => (&text[..], code.chunk().clone(), ""),
        CodeSource::File(path) => {
            let path = full_name(&interpreter.state.prefix, path.as_literal().unwrap_or_default());
            read = texts.get(&path, read_file).map_err(|error| {
                let reason = cannot_open(&path, &error, phase);
                [directive.as_bytes(), b"_file error: ", &reason].concat()
            })?;
            (&read[..], CString::new([b"@", &path[..]].concat()).unwrap_or_default(), "_file")
        }
    };
    run_alone(interpreter, (text, &chunk), phase, sink).map_err(|fault| {
        let mut line = format!("{directive}{form} error: ").into_bytes();
        line.extend_from_slice(fault.text());
        if fault.text().windows(DENIED.len()).any(|part| part == DENIED) {
            line.extend_from_slice(hint(phase).as_bytes());
        }
        line
    })
}

/// The name of a file from where relative paths begin.
pub(crate) fn full_name(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    if name.first() == Some(&b'/') { name.to_vec() } else { [prefix, name].concat() }
}

/// As the system says it.
const DENIED: &[u8] = b"Permission denied";

/// A hint for operators whose code is refused a file.
fn hint(phase: LuaPhase) -> &'static str {
    match phase {
        LuaPhase::Init => {
            " (code runs as the user of the worker; \"lua_init_privileged on\" has init_by_lua* run before \
             that)"
        }
        _ => " (code is read and run as the user of the worker)",
    }
}

/// Runs code for which there is no request: `init_by_lua` and the like; a text, and what errors call it.
///
/// # Errors
/// What it raised.
fn run_alone(
    interpreter: &mut Interpreter,
    (text, chunk): (&[u8], &CStr),
    phase: LuaPhase,
    sink: &dyn Sink,
) -> Result<(), Fault> {
    let reference = interpreter.vm.load(text, chunk)?;
    let mut coroutine = interpreter.vm.start(&reference);
    let limit = interpreter.alone_max;
    interpreter.vm.limit_runs(limit, None);
    let mut current = Current::alone(phase, &mut interpreter.state, sink);
    let vm = &mut interpreter.vm;
    let mut resume = || current.resume(vm, &mut coroutine);
    let resumed = if limit.is_some() { samples::watched(resume) } else { resume() };
    match resumed {
        Resumed::Finished(_) => {
            interpreter.vm.give_back(coroutine);
            Ok(())
        }
        Resumed::Yielded(_) => Err(Fault::of(FaultKind::Runtime, "attempt to yield across C-call boundary")),
        Resumed::Failed(fault) => Err(fault),
    }
}

/// As Lua says it.
pub(crate) fn cannot_open(path: &[u8], error: &std::io::Error, phase: LuaPhase) -> Vec<u8> {
    let hint = if error.kind() == std::io::ErrorKind::PermissionDenied { hint(phase) } else { "" };
    let error = error.to_string();
    let reason = error.split(" (os error").next().unwrap_or_default();
    [b"cannot open ", path, b": ", reason.as_bytes(), hint.as_bytes()].concat()
}

#[expect(clippy::disallowed_methods, reason = "boot or a pool, no loop")]
pub(crate) fn read_file(path: &[u8]) -> std::io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    std::fs::read(std::ffi::OsStr::from_bytes(path))
}

/// The settings that VMs of a configuration are made with.
pub(crate) fn settings(snapshot: &Snapshot, main: &LuaMain, install: Installer) -> VmSettings {
    VmSettings {
        package_path: Option::clone(&main.package_path),
        package_cpath: Option::clone(&main.package_cpath),
        memory_max_bytes: *main.max_memory_bytes,
        idle_max: *main.thread_cache_max_entries,
        alone_max: *main.init_run_time,
        prefix: snapshot.prefix.clone(),
        dictionaries: main.dictionaries.to_vec(),
        regexes: RegexConf {
            cache_max_entries: *main.regex_cache_max_entries,
            match_limit: *main.regex_match_limit,
        },
        utc_offset: snapshot.utc_offset.clone(),
        install,
        snapshot: Weak::new(),
        sink: None,
    }
}

/// Makes VMs while the generation is used, in a pool.
struct Maker {
    snapshot: Weak<Snapshot>,
    settings: VmSettings,
    loops: usize,
    pool: Option<Arc<Pool>>,
    sink: Arc<dyn Sink>,
}

impl Maker {
    fn new(snapshot: &Arc<Snapshot>, loops: usize, sink: &Arc<dyn Sink>, install: Installer) -> Self {
        let main = snapshot.conf(&LUA_MAIN);
        Self {
            snapshot: Arc::downgrade(snapshot),
            settings: VmSettings {
                snapshot: Arc::downgrade(snapshot),
                sink: Some(Arc::clone(sink)),
                ..settings(snapshot, main, install)
            },
            loops,
            pool: Option::clone(&main.pool),
            sink: Arc::clone(sink),
        }
    }

    /// Makes the VMs of all loops.
    fn make_all(&self, main: &LuaMain) -> Result<Vec<OfLoop>, String> {
        let reserves = main.reserve_vms.at_start() as usize;
        (0..self.loops)
            .map(|of_loop| {
                let make = |reserve| self.make((main, &main.texts), of_loop, reserve);
                let own = make(None)?;
                let reserves = (0..reserves).map(|index| make(Some(index)));
                Ok((own, reserves.collect::<Result<_, _>>()?))
            })
            .collect()
    }

    /// A VM in which `init_by_lua` has run.
    fn make(
        &self,
        (main, texts): (&LuaMain, &Texts),
        of_loop: usize,
        reserve: Option<usize>,
    ) -> Result<Interpreter, String> {
        debug_assert!(of_loop < self.loops.max(1), "a VM belongs to a loop that there is");
        let (workers, number) = (workers::count(self.loops), workers::first() + of_loop as u32);
        let worker_id = worker_id(workers, number, reserve.map(|index| index as u32));
        let place = VmPlace { worker_id, workers };
        let mut interpreter = Interpreter::new(&self.settings, place)?;
        if let Some(code) = &*main.init {
            let ran = run(&mut interpreter, code, LuaPhase::Init, (texts, &*self.sink));
            ran.map_err(|text| String::from_utf8_lossy(&text).into_owned())?;
        }
        for code in main.ahead.iter() {
            self.compile_ahead(&mut interpreter, code, texts);
        }
        Ok(interpreter)
    }

    /// What cannot be read or compiled is found so again by the requests that need it.
    fn compile_ahead(&self, interpreter: &mut Interpreter, code: &Code, texts: &Texts) {
        let CodeSource::File(value) = code.source() else { return };
        let path = full_name(&self.settings.prefix, value.as_literal().unwrap_or_default());
        if let Ok(text) = texts.get(&path, read_file) {
            let _ = interpreter.compile_ahead(code, &path, &text);
        }
    }

    fn make_late(&self, of_loop: usize, wanted: Wanted) -> Result<Interpreter, String> {
        let snapshot = self.snapshot.upgrade().ok_or("the configuration has ended")?;
        let main = snapshot.conf(&LUA_MAIN);
        let reserve = match wanted {
            Wanted::Reserve(index) => Some(index),
            Wanted::Own | Wanted::Fresh => None,
        };
        let anew = Texts::default();
        let texts = if wanted == Wanted::Fresh { &anew } else { &*main.texts };
        let mut interpreter = self.make((main, texts), of_loop, reserve)?;
        // One for a single request is no worker's.
        if let Some(code) = &*main.init_worker
            && wanted != Wanted::Fresh
        {
            let ran = run(&mut interpreter, code, LuaPhase::InitWorker, (texts, &*self.sink));
            ran.unwrap_or_else(|text| self.sink.log(Level::Error, format_args!("{}", Verbatim(&text))));
        }
        Ok(interpreter)
    }
}

impl Builder for Maker {
    fn build(&self, of_loop: usize, wanted: Wanted, publish: Publish) {
        let late = Self {
            snapshot: Weak::clone(&self.snapshot),
            settings: self.settings.clone(),
            loops: self.loops,
            pool: None,
            sink: Arc::clone(&self.sink),
        };
        let Some(pool) = &self.pool else { return };
        let job = move |_: &_| match late.make_late(of_loop, wanted) {
            Ok(interpreter) => publish.made(interpreter),
            Err(text) => late.sink.log(Level::Alert, format_args!("a Lua VM cannot be made: {text}")),
        };
        pool.submit(job).detach();
    }
}

/// A handler is a function around its code, which begins in line 1: a traceback calls it what it is written
/// as, the main chunk.
fn with_main_chunk(traceback: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = traceback.split(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
    let mark = b": in function <";
    for line in lines.iter_mut().rev() {
        let Some(at) = line.windows(mark.len()).position(|part| part == mark) else { continue };
        let name = &line[at + mark.len()..];
        let is_main = name.strip_suffix(b":1>").is_some_and(|chunk| {
            line[..at].trim_ascii_start().strip_prefix(chunk).is_some_and(|rest| rest.starts_with(b":"))
        });
        if is_main {
            line.truncate(at);
            line.extend_from_slice(b": in main chunk");
            break;
        }
    }
    lines.join(&b'\n')
}

/// The text of an error of Lua in the log, and where it was raised. Line feeds in the text are not lines of
/// the log.
pub(crate) struct Described<'a>(pub(crate) &'a Fault);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(fault) = self;
        let traceback = fault.traceback();
        let traceback = traceback.strip_prefix(b"stack traceback:").unwrap_or(traceback);
        let traceback = &with_main_chunk(traceback)[..];
        let begin = Lines(b"\nstack traceback:\ncoroutine 0:");
        write!(f, "{}{begin}{}", Verbatim(fault.text()), Lines(traceback))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_around_a_handlers_code_is_its_main_chunk() {
        let traceback = b"\n\t[C]: in function 'error'\n\tset(a:4):3: in function <set(a:4):1>\n\t[C]: in ?";
        let shown = String::from_utf8(with_main_chunk(traceback)).unwrap();
        assert_eq!(shown, "\n\t[C]: in function 'error'\n\tset(a:4):3: in main chunk\n\t[C]: in ?");
        let other = b"\n\tset(a:4):3: in function <set(a:4):2>";
        assert_eq!(with_main_chunk(other), other);
    }
}
