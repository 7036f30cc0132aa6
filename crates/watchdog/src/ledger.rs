//! Where the time of a stall went: what a thread did between two looks, added up. Pure: the sampler has the
//! clocks and the files.
//!
//! The thread's CPU clock is exact. What is left of an interval was sleep or waiting for a processor: at a
//! thread that was found running it was waiting, else the kernel's count of waiting says how much of it was,
//! and the rest is the system call that was found.

use clearway_os::thread_files::Doing;

/// System calls told apart; what comes after shares the last one's place.
const CALLS_MAX: usize = 32;

/// The identity of a call: number (-1: a page fault) and first argument.
type Key = (i64, usize);

/// One look at a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    /// Monotonic clock.
    pub(crate) at_ns: u64,
    /// The thread's CPU clock.
    pub(crate) cpu_ns: u64,
    /// The time that it has waited for processors, if the kernel reports it.
    pub(crate) waited_ns: Option<u64>,
    pub(crate) doing: Option<Doing>,
}

/// Time in one system call, and what was learnt about it when it was found first.
#[derive(Debug)]
pub(crate) struct CallTime<S> {
    key: Key,
    pub(crate) ns: u64,
    pub(crate) sight: S,
}

/// The sums.
#[derive(Debug)]
pub(crate) struct Ledger<S> {
    last_ns: u64,
    last_cpu_ns: u64,
    last_waited_ns: Option<u64>,
    last: Option<Doing>,
    /// Looks so far.
    pub(crate) looks: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) waiting_ns: u64,
    /// Asleep, and nothing says in what.
    pub(crate) asleep_ns: u64,
    pub(crate) calls: Vec<CallTime<S>>,
}

fn key_of(doing: Doing) -> Option<Key> {
    match doing {
        Doing::Call { number, args, .. } => Some((number, args[0])),
        Doing::Fault { .. } => Some((-1, 0)),
        Doing::Running | Doing::Asleep => None,
    }
}

impl<S> Ledger<S> {
    /// The ledger of a poll that began at `since_ns`, when the thread's CPU clock showed `cpu_ns`.
    pub(crate) fn new(since_ns: u64, cpu_ns: u64) -> Self {
        Self {
            last_ns: since_ns,
            last_cpu_ns: cpu_ns,
            last_waited_ns: None,
            last: None,
            looks: 0,
            cpu_ns: 0,
            waiting_ns: 0,
            asleep_ns: 0,
            calls: Vec::new(),
        }
    }

    /// Adds what was done since the last look. `learn` is asked about a call that is new.
    pub(crate) fn add(&mut self, look: Look, learn: impl FnOnce(Doing) -> S) {
        let passed_ns = look.at_ns.saturating_sub(self.last_ns);
        let cpu_ns = look.cpu_ns.saturating_sub(self.last_cpu_ns).min(passed_ns);
        let rest_ns = passed_ns - cpu_ns;
        let waited_ns = match (self.last_waited_ns, look.waited_ns) {
            (Some(before), Some(now)) => now.saturating_sub(before).min(rest_ns),
            _ => 0,
        };
        self.looks += 1;
        self.cpu_ns += cpu_ns;
        let slept_in = look.doing.filter(|doing| *doing != Doing::Running);
        let slept_in = slept_in.or(self.last.filter(|doing| *doing != Doing::Running));
        match slept_in {
            None => self.waiting_ns += rest_ns,
            Some(doing) => {
                self.waiting_ns += waited_ns;
                self.add_sleep(doing, rest_ns - waited_ns, learn);
            }
        }
        self.last = look.doing;
        (self.last_ns, self.last_cpu_ns) = (look.at_ns, look.cpu_ns);
        self.last_waited_ns = look.waited_ns.or(self.last_waited_ns);
    }

    fn add_sleep(&mut self, doing: Doing, ns: u64, learn: impl FnOnce(Doing) -> S) {
        let Some(key) = key_of(doing) else {
            self.asleep_ns += ns;
            return;
        };
        if let Some(call) = self.calls.iter_mut().find(|call| call.key == key) {
            call.ns += ns;
        } else if self.calls.len() < CALLS_MAX {
            self.calls.push(CallTime { key, ns, sight: learn(doing) });
        } else {
            self.asleep_ns += ns;
        }
    }

    /// Ends it: what was done last went on until then. Without a look nothing is known.
    pub(crate) fn finish(&mut self, at_ns: u64) {
        let rest_ns = at_ns.saturating_sub(self.last_ns);
        match self.last {
            None if self.looks == 0 => {}
            Some(Doing::Running) | None => self.cpu_ns += rest_ns,
            Some(doing) => match self.calls.iter_mut().find(|call| Some(call.key) == key_of(doing)) {
                Some(call) => call.ns += rest_ns,
                None => self.asleep_ns += rest_ns,
            },
        }
        self.calls.sort_by_key(|call| std::cmp::Reverse(call.ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLEEP: Doing = Doing::Call { number: 230, args: [1; 6], sp: 0, pc: 0 };
    const READ: Doing = Doing::Call { number: 17, args: [9; 6], sp: 0, pc: 0 };

    fn look(at_ns: u64, cpu_ns: u64, waited_ns: u64, doing: Doing) -> Look {
        Look { at_ns, cpu_ns, waited_ns: Some(waited_ns), doing: Some(doing) }
    }

    fn sums<S>(ledger: &Ledger<S>) -> (u64, u64, u64, Vec<u64>) {
        let calls = ledger.calls.iter().map(|call| call.ns).collect();
        (ledger.cpu_ns, ledger.waiting_ns, ledger.asleep_ns, calls)
    }

    #[test]
    fn what_was_found_has_the_time_before_it() {
        let mut ledger = Ledger::new(1000, 50);
        ledger.add(look(1100, 60, 7, SLEEP), |_| "sleep");
        ledger.add(look(1200, 60, 7, SLEEP), |_| unreachable!());
        ledger.add(look(1300, 110, 17, READ), |_| "read");
        ledger.add(look(1400, 130, 47, Doing::Running), |_| unreachable!());
        ledger.add(look(1500, 220, 57, Doing::Running), |_| unreachable!());
        ledger.finish(1510);
        assert_eq!(sums(&ledger), (10 + 50 + 20 + 90 + 10, 10 + 30 + 10, 0, vec![190, 90]));
        assert_eq!(ledger.calls[0].sight, "sleep");
        let (cpu, waiting, _, calls) = sums(&ledger);
        assert_eq!(cpu + waiting + calls.iter().sum::<u64>(), 510);
    }

    #[test]
    fn who_runs_and_gets_nowhere_waits_for_a_processor() {
        let mut ledger = Ledger::new(0, 0);
        ledger.add(look(100, 30, 0, Doing::Running), |_| ());
        ledger.add(Look { waited_ns: None, ..look(200, 30, 0, Doing::Running) }, |_| ());
        assert_eq!(sums(&ledger), (30, 170, 0, vec![]));
    }

    #[test]
    fn without_files_there_is_sleep_at_least() {
        let mut ledger = Ledger::new(0, 0);
        ledger.add(Look { waited_ns: None, ..look(100, 0, 0, Doing::Asleep) }, |_| ());
        ledger.finish(150);
        assert_eq!(sums(&ledger), (0, 0, 150, vec![]));
    }

    #[test]
    fn without_a_look_nothing_is_known() {
        let mut ledger = Ledger::<()>::new(0, 0);
        ledger.finish(150);
        assert_eq!(sums(&ledger), (0, 0, 0, vec![]));
    }

    #[test]
    fn calls_are_bounded() {
        let mut ledger = Ledger::new(0, 0);
        for i in 0..100_u64 {
            let doing = Doing::Call { number: i as i64, args: [0; 6], sp: 0, pc: 0 };
            ledger.add(look(10 * (i + 1), 0, 0, doing), |_| ());
        }
        assert_eq!((ledger.calls.len(), ledger.asleep_ns), (CALLS_MAX, 10 * (100 - CALLS_MAX as u64)));
    }
}
