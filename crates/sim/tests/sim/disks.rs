//! The disks of the cache: directories in memory, whose jobs are run here, when and as a program says, on the
//! test's thread. So no job runs beside the loop, and the same program is the same run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clearway_cache::disks::{Caches, Role};
use clearway_offload::faults::{self, Call};
use clearway_sim::{Disks as How, Random};
use clearway_zone::Zones;

use crate::site;

/// The directories of the cache.
const NAMES: [&str; 2] = ["one", "two"];

/// Which calls fail, and how: none.
const WELL: u64 = 0;
const FULL: u64 = 1;
const FAILING: u64 = 2;
/// So many and more: one call in so many does.
const AT_TIMES: u64 = 3;

/// The numbers of what the system says.
const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// How calls fail at present.
static FAULTS: AtomicU64 = AtomicU64::new(WELL);
/// How often calls were made in this run.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Whether one has failed in this run.
static HAVE_FAILED: AtomicBool = AtomicBool::new(false);

/// See the file's head.
pub(crate) struct Disks {
    pub(crate) zones: Arc<Zones>,
    pub(crate) caches: Arc<Caches>,
    pub(crate) directories: Vec<PathBuf>,
    pace: Pace,
}

/// When jobs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    AtOnce,
    /// One at a time, from then on and so far apart, milliseconds.
    Apart(u64, u64),
    Never,
}

impl Disks {
    /// Empty ones below a directory.
    pub(crate) fn new(below: &Path, seed: u64) -> std::io::Result<Self> {
        let directories: Vec<PathBuf> = NAMES.iter().map(|name| below.join(name)).collect();
        for directory in &directories {
            let _ = std::fs::remove_dir_all(directory);
            std::fs::create_dir_all(directory)?;
        }
        FAULTS.store(WELL, Ordering::Relaxed);
        CALLS.store(0, Ordering::Relaxed);
        HAVE_FAILED.store(false, Ordering::Relaxed);
        faults::follow(move |call| fault(call, seed));
        let caches = Caches::new(&site::alerts(), Role::Alone);
        Ok(Self { zones: Arc::new(Zones::create(None)), caches, directories, pace: Pace::AtOnce })
    }

    pub(crate) fn become_so(&mut self, how: How, now_ms: u64) {
        self.pace = match how {
            How::Slow(ms) => Pace::Apart(now_ms + ms, ms),
            How::Hang => Pace::Never,
            _ => Pace::AtOnce,
        };
        let faults = match how {
            How::Full => FULL,
            How::Fail => FAILING,
            How::FailAtTimes(n) => n.max(AT_TIMES),
            How::Quick | How::Slow(_) | How::Hang => WELL,
        };
        FAULTS.store(faults, Ordering::Relaxed);
    }

    /// Runs the jobs that are due. Whether there were any.
    pub(crate) fn go_on(&mut self, now_ms: u64) -> bool {
        match self.pace {
            Pace::Never => false,
            Pace::AtOnce => {
                let mut any = false;
                while self.run_one() {
                    any = true;
                }
                any
            }
            Pace::Apart(at_ms, apart_ms) => {
                let runs = at_ms <= now_ms && self.run_one();
                if runs {
                    self.pace = Pace::Apart(now_ms + apart_ms, apart_ms);
                }
                runs
            }
        }
    }

    fn run_one(&self) -> bool {
        self.caches.pools().iter().any(|pool| pool.run_by_hand())
    }
}

/// What of a message is no fault of the server's: what disks are told to say.
pub(crate) fn is_planned(message: &str) -> bool {
    [EIO, ENOSPC].iter().any(|number| message.contains(&format!("({number}: ")))
}

fn fault(call: Call, seed: u64) -> Option<i32> {
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    let mut random = Random::new(seed ^ number.wrapping_mul(0x9e37_79b9));
    if call == Call::Attempt {
        // What the kernel has in memory is no matter of the disk's.
        return random.once_in(3).then_some(EIO);
    }
    let fault = match FAULTS.load(Ordering::Relaxed) {
        WELL => None,
        FULL => matches!(call, Call::Create | Call::Write).then_some(ENOSPC),
        FAILING => Some(EIO),
        n => random.once_in(n).then_some(EIO),
    };
    HAVE_FAILED.fetch_or(fault.is_some(), Ordering::Relaxed);
    fault
}

/// Whether a call has failed: what came from a disk may have ended early since.
pub(crate) fn have_failed() -> bool {
    HAVE_FAILED.load(Ordering::Relaxed)
}
