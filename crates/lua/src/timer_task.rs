//! The task of one timer: waits for its time, then runs its code in the VM that it belongs to.

use std::sync::{Arc, Weak};

use clearway_base::log::{Level, Sink, Verbatim};
use clearway_http::Snapshot;
use clearway_luajit::Coroutine;
use clearway_runtime::Tag;

use crate::alone::Alone;
use crate::current::LuaPhase;
use crate::phases::scheduler::{Ended, Failure, Ground, Schedule};
use crate::vm::interpreter::Interpreter;
use crate::vm::of_loop::Chosen;
use crate::vm::timers::Count;
use crate::vm::vms::Described;
use crate::waiter::Waiter;

/// A timer whose time has not come.
pub(crate) struct Delayed {
    pub(crate) alone: Arc<Alone>,
    pub(crate) waiter: Waiter,
    pub(crate) count: Count,
    /// `lua_max_running_timers`
    pub(crate) most_running: usize,
    pub(crate) snapshot: Weak<Snapshot>,
}

/// Starts the task. `code` is a function with its arguments except for the first one, `premature`.
///
/// `place` is where that function is written: its chunk and its line.
pub(crate) fn start(timer: Delayed, code: Coroutine, place: Option<(Vec<u8>, i32)>) {
    timer.alone.home.spawn_bound(Tag::NONE, run(timer, code, place));
}

async fn run(timer: Delayed, code: Coroutine, place: Option<(Vec<u8>, i32)>) {
    let Delayed { alone, waiter, mut count, most_running, snapshot } = timer;
    let is_premature = waiter.await;
    // The configuration that the code runs with stays until the code has ended.
    let Some(_snapshot) = snapshot.upgrade() else { return };
    alone.log(Level::Debug, format_args!("lua ngx.timer expired"));
    if !count.run(most_running) {
        let (chunk, line) = place.unwrap_or_default();
        let (chunk, text) = (Verbatim(&chunk), "lua failed to run timer with function defined at");
        let line =
            format_args!("{text} {chunk}:{line}: {most_running} lua_max_running_timers are not enough");
        alone.log(Level::Alert, line);
        return;
    }
    if !alone.slot.is_poisoned() {
        let mut code = Some(code);
        let mut start = |interpreter: &mut Interpreter| {
            let code = code.take().expect("the entry thread is made once");
            let mut stack = interpreter.vm.stack(&code);
            stack.push(is_premature);
            stack.insert(2);
            Ok(code)
        };
        let mut chosen = Chosen::again(Arc::clone(&alone.slot));
        let ended =
            Schedule::new(LuaPhase::Timer).run(&mut Ground::Alone(&alone), &mut chosen, &mut start).await;
        if let Ended::Failed(Failure::Run(fault)) = ended {
            let line = format_args!("lua entry thread aborted: runtime error: {}", Described(&fault));
            alone.log(Level::Error, line);
        }
    }
    alone.log(Level::Debug, format_args!("http lua close fake http connection"));
}
