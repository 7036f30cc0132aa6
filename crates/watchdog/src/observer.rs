//! Where what the runtime shows is left for the sampler, and what the sampler has finished for the reporter:
//! bounded queues without locks, and bells. The runtime's watchdog and stuck carriers come here; neither
//! waits. What finds a queue full is counted and dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use clearway_luajit::registry;
use clearway_os::{clock, futex};
use clearway_runtime::{Account, Observer, PollId, StuckPoll, Tag, Wish};
use crossbeam_queue::ArrayQueue;

use crate::metrics;
use crate::place::{Places, WorkPlace};
use crate::stall::Finished;
use crate::{Rate, Settings};

/// Stalls that begin while the sampler does not look, at most; so many carriers there are as a rule.
const ARRIVALS_MAX: usize = 1024;

/// Stalls that wait for the reporter.
const FINISHED_MAX: usize = 256;

/// Tells a thread that there is something to do.
#[derive(Default)]
pub(crate) struct Bell(AtomicU32);

impl Bell {
    pub(crate) fn ring(&self) {
        self.0.store(1, Ordering::Release);
        futex::wake(&self.0, 1);
    }

    /// Sleeps until it rings, or for that time.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        futex::wait(&self.0, 0, limit);
        // What was left before the bell rang is seen by a look after this.
        self.0.swap(0, Ordering::AcqRel);
    }
}

/// The desk between runtime, sampler and reporter.
pub(crate) struct Desk {
    /// Nanoseconds; `u64::MAX`: never.
    report_after_ns: AtomicU64,
    rate: ArcSwap<Rate>,
    places: ArcSwapOption<Box<Places>>,
    pub(crate) arrivals: ArrayQueue<StuckPoll>,
    pub(crate) accounts: ArrayQueue<(PollId, Account)>,
    pub(crate) sampler: Bell,
    pub(crate) finished: ArrayQueue<Finished>,
    pub(crate) reporter: Bell,
}

impl Desk {
    pub(crate) fn new(settings: Settings) -> Self {
        let desk = Self {
            report_after_ns: AtomicU64::new(0),
            rate: ArcSwap::new(Arc::new(settings.report_rate)),
            places: ArcSwapOption::empty(),
            arrivals: ArrayQueue::new(ARRIVALS_MAX),
            accounts: ArrayQueue::new(ARRIVALS_MAX),
            sampler: Bell::default(),
            finished: ArrayQueue::new(FINISHED_MAX),
            reporter: Bell::default(),
        };
        desk.configure(settings);
        desk
    }

    pub(crate) fn configure(&self, settings: Settings) {
        let after_ns = settings.report_after.map_or(u128::from(u64::MAX), |after| after.as_nanos());
        self.report_after_ns.store(u64::try_from(after_ns).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.rate.store(Arc::new(settings.report_rate));
    }

    pub(crate) fn name_places(&self, places: Box<Places>) {
        self.places.store(Some(Arc::new(places)));
    }

    /// The work of a tag.
    pub(crate) fn place(&self, tag: Tag) -> Option<WorkPlace> {
        let places = self.places.load_full().filter(|_| tag != Tag::NONE)?;
        places(tag)
    }

    pub(crate) fn report_after(&self) -> Duration {
        Duration::from_nanos(self.report_after_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn rate(&self) -> Rate {
        **self.rate.load()
    }
}

impl Observer for Desk {
    fn stuck(&self, poll: &StuckPoll) -> Wish {
        let held_ns = clock::monotonic_ns().saturating_sub(poll.since_ns);
        // Code of Lua that has a limit is ended by the one that looks at its thread.
        let after_ns = self.report_after_ns.load(Ordering::Relaxed).min(registry::least_limit_ns());
        if held_ns < after_ns {
            return Wish::LookAgain;
        }
        if self.arrivals.push(*poll).is_err() {
            metrics::STALLS_UNSAMPLED.increment();
        }
        self.sampler.ring();
        Wish::Account
    }

    fn account(&self, poll: PollId, account: Account) {
        // Accounts without stalls are dropped by the sampler; where there is no room, so is this one.
        let _ = self.accounts.push((poll, account));
        self.sampler.ring();
    }
}
