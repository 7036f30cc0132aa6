//! Metrics of Lua.

use clearway_luajit::resty_ffi::{Counts, counts};
use clearway_metrics::{Counter, Family, Kind, Label, Metric, Put, Value};

/// Runs that `lua_max_run_time` has ended.
pub(crate) static ENDED: Counter = Counter::new(
    "lua_runs_ended_total",
    "runs",
    "Code of Lua was ended since it ran for longer than lua_max_run_time.",
);

/// Requests for which there was no place in the line for a VM.
pub(crate) static CROWDED: Counter = Counter::new(
    "lua_waiting_refused_total",
    "requests",
    "A request got 503 since too many others waited for a VM of its loop to be made.",
);

/// Calls of `ngx.run_worker_thread` that were not taken.
pub(crate) static CALLS_REFUSED: Counter = Counter::new(
    "lua_worker_thread_refused_total",
    "calls",
    "A call of ngx.run_worker_thread was refused, since max_queue tasks waited in its thread pool or \
     lua_worker_thread_vm_pool_size calls were under way.",
);

const EVENT: Label = Label {
    name: "event",
    help: "`posted`; `refused`: its queue was full, or there was none; `answered`; `astray`: an answer that \
           was for no task, as it was the second one or names none.",
};

/// Tasks of plugins.
static TASKS: Family = Family::new(
    Kind::Counter,
    "lua_plugin_tasks_total",
    "tasks",
    "Tasks that code of Lua gave to plugins, and what became of them.",
)
.by(&[EVENT]);

fn put_tasks(put: &mut Put<'_>) {
    let Counts { posted, refused, answered, astray } = counts();
    let events = [("posted", posted), ("refused", refused), ("answered", answered), ("astray", astray)];
    for (event, value) in events {
        put(&[("event", event)], Value::Number(value));
    }
}

/// Everything that is counted here, for the reference and the status API.
pub(crate) static ALL: &[Metric] = &[
    Metric::Counter(&ENDED),
    Metric::Counter(&CROWDED),
    Metric::Counter(&CALLS_REFUSED),
    Metric::Values(&TASKS, put_tasks),
];
