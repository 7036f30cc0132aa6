//! Reports of held loops: the runtime's watchdog shows the polls that do not come back, a thread of this
//! crate (the *sampler*) looks at those threads about a thousand times a second until they do, and another
//! one (the *reporter*) makes a report of each, in names and lines, off the loops. No loop waits for either.
#![forbid(unsafe_code)]

mod advice;
mod json;
mod ledger;
pub mod metrics;
mod observer;
mod place;
mod rate;
mod report;
mod reporter;
mod sampler;
mod stacks;
mod stall;
mod summary;
mod symbols;
mod together;

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::Duration;

use arc_swap::ArcSwap;
use clearway_base::log::Sink;
use clearway_os::signal;
use clearway_runtime::{Runtime, Tag};

pub use place::WorkPlace;
pub use rate::Rate;
pub use report::{Branch, Call, End, Frame, Handover, Report};
pub use summary::Row;
pub use together::Together;

use observer::Desk;
use together::Told;

/// Default of `stall_report_after`.
pub const REPORT_AFTER_DEFAULT: Duration = Duration::from_millis(50);

/// Default of `stall_report_rate`: enough to show every place of a fresh trouble, too little to fill a disk.
pub const REPORT_RATE_DEFAULT: Rate = Rate { count: 10, per: Duration::from_mins(1) };

/// Reports that are kept for the status API.
pub const REPORTS_KEPT: usize = 32;

/// The settings of a watchdog that can change while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The time from which on stalls are reported; `None`: none is.
    pub report_after: Option<Duration>,
    /// How many reports go to the log. The status API has all of them.
    pub report_rate: Rate,
}

/// The data for the status API: a snapshot, replaced after each stall.
#[derive(Clone, Debug, Default)]
pub struct Status {
    /// The last [`REPORTS_KEPT`], the oldest first.
    pub reports: Vec<Arc<Report>>,
    /// Since the process started, per location, phase and entry function, the longest time first.
    pub summary: Vec<Row>,
    /// The reports as JSON, made once, as this is read by loops.
    told: Vec<Told>,
}

impl Status {
    /// Appends `{"reports":[…],"summary":[…]}`, the newest report first.
    pub fn put_json(&self, out: &mut String) {
        json::put_status(out, &self.told, &self.summary);
    }
}

/// The watchdog of one runtime. Its threads last as long as the process.
pub struct Watchdog {
    desk: Arc<Desk>,
    status: Arc<ArcSwap<Status>>,
}

static FIRST: OnceLock<Watchdog> = OnceLock::new();

/// The reports and sums of this process; nothing before a watchdog was started. Does not wait.
#[must_use]
pub fn status() -> Arc<Status> {
    FIRST.get().map(Watchdog::status).unwrap_or_default()
}

impl Watchdog {
    /// Watches a runtime from now on, and reports to `sink`. The first one of a process is the one that
    /// [`status`] asks. Reports count loops from `first_loop` on, as there are those of other processes.
    ///
    /// # Errors
    /// When threads are refused.
    #[expect(clippy::disallowed_methods, reason = "the threads of a watchdog start here")]
    pub fn start(
        runtime: Runtime,
        first_loop: usize,
        settings: Settings,
        sink: Arc<dyn Sink>,
    ) -> io::Result<Self> {
        let desk = Arc::new(Desk::new(settings));
        let status = Arc::new(ArcSwap::default());
        let watchdog = Self { desk: Arc::clone(&desk), status: Arc::clone(&status) };
        let to_sample = Arc::clone(&desk);
        Builder::new().name("stall sampler".to_owned()).spawn(move || {
            signal::block_all();
            sampler::run(&to_sample);
        })?;
        let to_report = Arc::clone(&desk);
        Builder::new().name("stall reporter".to_owned()).spawn(move || {
            signal::block_all();
            reporter::Reporter::new(to_report, first_loop, status, sink).run();
        })?;
        runtime.observe(desk)?;
        // Further ones are not asked.
        let _ = FIRST.set(Self { desk: Arc::clone(&watchdog.desk), status: Arc::clone(&watchdog.status) });
        Ok(watchdog)
    }

    /// Goes on with other settings.
    pub fn configure(&self, settings: Settings) {
        self.desk.configure(settings);
    }

    /// Says from now on where a task was that gave no account of itself, by its tag. Called by the thread
    /// that makes the reports: it may take its time.
    pub fn name_places(&self, places: impl Fn(Tag) -> Option<WorkPlace> + Send + Sync + 'static) {
        self.desk.name_places(Box::new(places));
    }

    /// Its reports and sums.
    #[must_use]
    pub fn status(&self) -> Arc<Status> {
        self.status.load_full()
    }
}
