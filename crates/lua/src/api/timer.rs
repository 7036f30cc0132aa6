//! `ngx.timer`: code that runs later, for no request. Each timer is a task of the loop whose VM has made it.

use std::sync::Arc;

use clearway_http::Snapshot;
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_runtime::TaskCell;

use super::room::{Install, put};
use crate::alone::Alone;
use crate::current::{Current, LuaPhase, Phases, Scene, allow, current};
use crate::place::{AloneConf, AlonePlace, Tail};
use crate::request_state::RequestState;
use crate::timer_task::{Delayed, start};
use crate::vm::net_settings::NET_MAIN;
use crate::vm::of_loop::Slot;
use crate::vm::timers::Timers;
use crate::waiter::Waiter;

/// Where timers are made.
const MAKING: Phases = Phases::but(&[LuaPhase::Init, LuaPhase::ExitWorker, LuaPhase::WorkerThread]);

pub(super) fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("timer", |stack| {
        put(stack, "at", at);
        put(stack, "_check", |call| {
            if check(call)? <= 0.0 {
                return Err(call.raise("delay cannot be zero"));
            }
            Ok(Returns::Values(0))
        });
        put(stack, "running_count", |call| count(call, Timers::running));
        put(stack, "pending_count", |call| count(call, Timers::pending));
    });
    install.run(include_str!("timer.lua"), c"=ngx.timer")
}

fn count(call: &mut Call<'_>, of: fn(&Timers, usize) -> usize) -> Result<Returns, Raise> {
    let count = current(call, |current| {
        let (timers, home) = (current.vm.timers()?, current.vm.home?);
        Some(of(&timers, home.index()))
    })?;
    call.stack.push(count.unwrap_or_default() as f64);
    Ok(Returns::Values(1))
}

/// The arguments of `at` and `every`: the delay, seconds.
fn check(call: &mut Call<'_>) -> Result<f64, Raise> {
    let count = call.arguments();
    if count < 2 {
        return Err(call.raise(&*format!("expecting at least 2 arguments but got {count}")));
    }
    let seconds = call.number(1)?;
    if call.stack.get(2) != Value::Function {
        return Err(call.bad_argument(2, "Lua function expected"));
    }
    Ok(seconds)
}

fn at(call: &mut Call<'_>) -> Result<Returns, Raise> {
    let seconds = check(call)?;
    allow(call, MAKING)?;
    let delay_ms = (seconds * 1000.0) as u64;
    let made = current(call, |current| make(current, delay_ms))?;
    let timer = match made {
        Ok(timer) => timer,
        Err(text) => {
            call.stack.push(());
            call.stack.push(text);
            return Ok(Returns::Values(2));
        }
    };
    let place = call.stack.function_place(2);
    let code = call.stack.take_coroutine(call.arguments() - 2);
    start(timer, code, place);
    call.stack.push(1.0);
    Ok(Returns::Values(1))
}

/// The state of a timer beside its code.
fn make(current: &mut Current<'_>, delay_ms: u64) -> Result<Delayed, &'static str> {
    let missing = "no request";
    let home = current.vm.home.ok_or(missing)?;
    let snapshot = current.vm.snapshot.upgrade().ok_or("process exiting")?;
    let timers = current.vm.timers().ok_or(missing)?;
    if timers.is_ending() && delay_ms > 0 {
        return Err("process exiting");
    }
    let slot = slot_of(current).ok_or(missing)?;
    let main = snapshot.conf(&NET_MAIN);
    let most = usize::try_from(*main.max_pending_timers).unwrap_or(usize::MAX);
    let count = timers.begin(home.index(), most).ok_or("too many pending timers")?;
    let place = place_of(current, &snapshot);
    let (waiter, bell) = Waiter::new(home, Some(delay_ms));
    // One that is to run at once is not premature.
    if delay_ms > 0 {
        timers.ring_at_end(bell);
    }
    let most_running = usize::try_from(*main.max_running_timers).unwrap_or(usize::MAX);
    slot.note_owner();
    let alone = Arc::new(Alone {
        home,
        place,
        slot,
        kept: TaskCell::default(),
        #[cfg(feature = "tls")]
        shaking: None,
    });
    let snapshot = Arc::downgrade(&snapshot);
    Ok(Delayed { alone, waiter, count, most_running, snapshot })
}

fn slot_of(current: &mut Current<'_>) -> Option<Arc<Slot>> {
    if let Some(alone) = current.alone {
        return Some(Arc::clone(&alone.slot));
    }
    let of_request = current.scene(|scene| RequestState::of(scene.request())?.usable_slot());
    of_request.flatten().or_else(|| current.vm.slot.upgrade())
}

/// Where its lines go and what stands behind them, and what holds for it: as where it is made, or in `http`.
/// What it is called is left to say.
pub(super) fn place_of(current: &mut Current<'_>, snapshot: &Snapshot) -> AlonePlace {
    if let Some(alone) = current.alone {
        let place = &alone.place;
        let tail = Tail { context: LuaPhase::Timer.context_name(), serial: None, ..place.tail.clone() };
        return AlonePlace { tail, ..place.clone() };
    }
    let of_request = current.scene(|scene: Scene<'_, '_, '_>| {
        let request = scene.request();
        let conf = AloneConf::of(request.location());
        let text = |name: &[u8]| scene.view().variable_named(name).map(|text| text.to_vec().into());
        let server = Some(request.listen_address().to_string().into());
        let tail = Tail { client: text(b"remote_addr"), server, tid: request.identity(), ..Tail::default() };
        AlonePlace { sinks: request.location().core.error_log.iter().cloned().collect(), tail, conf }
    });
    of_request.unwrap_or_else(|| {
        let location = snapshot.outermost();
        let sinks = location.core.error_log.iter().cloned().collect();
        AlonePlace { sinks, tail: Tail::default(), conf: AloneConf::of(location) }
    })
}
