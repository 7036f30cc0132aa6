//! When the machine itself stood still. On each processor a thread that goes before all others (SCHED_FIFO)
//! wakes every half millisecond and notes when it is late: then the hypervisor, or the kernel, had the
//! processor, and no server could have answered there. Latencies of requests that were on their way at
//! such a time say nothing of the server (the idea is that of jHiccup). To look is to disturb: at each of
//! these wake-ups the kernel also lets in others that wait, so latencies with and without it do not compare.

use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

const PERIOD: Duration = Duration::from_micros(500);

/// Later than this is a hiccup.
const TOLERANCE: Duration = Duration::from_micros(300);

/// The priority of the threads; any real-time priority goes before all servers.
const PRIORITY: &str = "50";

/// The threads, while they look.
pub(crate) struct Watch {
    threads: Vec<JoinHandle<Option<Vec<Hiccup>>>>,
}

/// From when until when something stood still, from the start of the watch.
type Hiccup = (Duration, Duration);

/// What they saw: times without overlap, in order.
#[derive(Debug, Default)]
pub(crate) struct Hiccups {
    still: Vec<Hiccup>,
}

impl Watch {
    /// Looks for so long.
    pub(crate) fn begin(start: Instant, length: Duration) -> Self {
        let all = sched_getaffinity(None).unwrap_or_default();
        let processors = (0..CpuSet::MAX_CPU).filter(|&cpu| all.is_set(cpu));
        Self { threads: processors.map(|cpu| thread::spawn(move || watch(cpu, start, length))).collect() }
    }

    /// What was seen; `None` where no thread may go before others.
    pub(crate) fn end(self) -> Option<Hiccups> {
        let mut all = Vec::new();
        for thread in self.threads {
            all.extend(thread.join().expect("it does not panic")?);
        }
        Some(Hiccups::new(all))
    }
}

/// Looks from one processor.
fn watch(cpu: usize, start: Instant, length: Duration) -> Option<Vec<Hiccup>> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).ok()?;
    let thread = gettid().as_raw_nonzero().to_string();
    let chrt =
        Command::new("chrt").args(["--fifo", "--pid", PRIORITY, &thread]).stderr(Stdio::null()).status();
    if !chrt.is_ok_and(|status| status.success()) {
        return None;
    }
    let mut seen = Vec::new();
    let mut now = start.elapsed();
    while now < length {
        let due = now + PERIOD;
        thread::sleep(PERIOD);
        now = start.elapsed();
        if now > due + TOLERANCE {
            seen.push((due, now));
        }
    }
    Some(seen)
}

impl Hiccups {
    fn new(mut all: Vec<Hiccup>) -> Self {
        all.sort_unstable();
        let mut still: Vec<Hiccup> = Vec::new();
        for (from, until) in all {
            match still.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(until),
                _ => still.push((from, until)),
            }
        }
        Self { still }
    }

    /// Whether something stood still at any time from `from` to `until`.
    pub(crate) fn meet(&self, from: Duration, until: Duration) -> bool {
        let first = self.still.partition_point(|(_, end)| *end < from);
        self.still.get(first).is_some_and(|(begin, _)| *begin <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn requests_that_meet_a_hiccup_are_found() {
        let hiccups = Hiccups::new(vec![(ms(50), ms(60)), (ms(10), ms(20)), (ms(15), ms(30))]);
        assert_eq!(hiccups.still, [(ms(10), ms(30)), (ms(50), ms(60))]);
        let met = [(0, 10), (12, 13), (29, 31), (5, 70), (60, 61)];
        assert!(met.iter().all(|&(from, until)| hiccups.meet(ms(from), ms(until))));
        let clear = [(0, 9), (31, 49), (61, 99)];
        assert!(clear.iter().all(|&(from, until)| !hiccups.meet(ms(from), ms(until))));
    }
}
