//! One stall while it lasts: the looks at its thread. On the sampler's thread.

use std::io;
use std::time::Duration;

use clearway_luajit::registry::Run;
use clearway_luajit::samples::Sampler;
use clearway_luajit::walk::LuaStack;
use clearway_os::stack_walk::{self, Registers, Stack};
use clearway_os::thread_files::{Doing, ThreadFiles};
use clearway_os::{clock, system_calls, thread};
use clearway_runtime::{Account, PollId, StuckPoll, Tag};

use crate::ledger::{Ledger, Look};
use crate::metrics;
use crate::report::{End, Handover};
use crate::stacks::{Sample, Stacks};

/// Between two looks at first.
pub(crate) const INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Between two looks at most.
const INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Looks are so much shorter apart than the stall is long: some thousand looks per tenfold time.
const INTERVAL_SHARE: u32 = 1000;

/// A task that holds its thread for that long is reported while it still does.
const REPORTED_AFTER: Duration = Duration::from_mins(1);

/// The facts about a system call when it is found first.
#[derive(Debug)]
pub(crate) struct CallSight {
    pub(crate) name: String,
    pub(crate) subject: Option<String>,
    pub(crate) wchan: Option<String>,
    /// Its caller, and what that was called by.
    pub(crate) stack: Sample,
}

/// A stall that is under way.
pub(crate) struct Stall {
    poll: StuckPoll,
    account: Option<Account>,
    handover: Handover,
    files: ThreadFiles,
    sampler: io::Result<Sampler>,
    ledger: Ledger<CallSight>,
    stacks: Stacks,
    interval: Duration,
    purpose: Purpose,
    pub(crate) due_ns: u64,
}

/// The purpose of looking at a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A report when it is over, or has lasted long enough for one.
    Report,
    /// It was reported; code of Lua in it may still have to be ended.
    Limit,
}

/// The rest of a stall: addresses and numbers.
pub(crate) struct Finished {
    pub(crate) loop_index: usize,
    pub(crate) account: Option<Account>,
    /// The tag that the task had set.
    pub(crate) tag: Tag,
    pub(crate) handover: Handover,
    pub(crate) end: End,
    pub(crate) unix_ms: u64,
    pub(crate) time_ns: u64,
    pub(crate) ledger: Ledger<CallSight>,
    pub(crate) stacks: Stacks,
    /// The facts that could not be found out.
    pub(crate) unknown: Vec<String>,
}

impl Finished {
    /// Whether it was over before it was worth a report: it was looked at as code in it has a limit.
    pub(crate) fn was_short(&self, report_after: Duration) -> bool {
        u128::from(self.time_ns) < report_after.as_nanos()
    }

    /// Whether it took so long only because the thread waited for a processor, which is nothing that its task
    /// does.
    pub(crate) fn was_late(&self, report_after: Duration) -> bool {
        self.ledger.waiting_ns > 0
            && u128::from(self.time_ns.saturating_sub(self.ledger.waiting_ns)) < report_after.as_nanos()
    }
}

/// Whether a stall goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Now {
    GoesOn,
    /// It is over, or has lasted long enough.
    Done(End),
}

impl Stall {
    pub(crate) fn begin(poll: StuckPoll) -> Self {
        // The thread's work between the beginning and the first sight was like its work then.
        let ledger = Ledger::new(poll.since_ns, poll.cpu_ns.saturating_sub(cpu_before_sight(&poll)));
        Self {
            poll,
            account: None,
            handover: Handover::None,
            files: ThreadFiles::open(poll.tid),
            sampler: Sampler::start(poll.tid, poll.stack_base, INTERVAL_MIN),
            ledger,
            stacks: Stacks::default(),
            interval: INTERVAL_MIN,
            purpose: Purpose::Report,
            due_ns: 0,
        }
    }

    /// Goes on looking after a report.
    pub(crate) fn begin_again(&self) -> Self {
        Self { purpose: Purpose::Limit, ..Self::begin(self.poll) }
    }

    pub(crate) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(crate) fn id(&self) -> PollId {
        self.poll.id
    }

    pub(crate) fn explain(&mut self, account: Account) {
        self.account.get_or_insert(account);
    }

    /// Looks at the thread, one of so many that are looked at.
    pub(crate) fn look(&mut self, stalls: u32) -> Now {
        let at_ns = clock::monotonic_ns();
        if let Some(lent_ns) = self.poll.handed_over_ns() {
            self.handover = if self.poll.is_suspect() {
                Handover::Suspect
            } else {
                Handover::After(Duration::from_nanos(lent_ns.saturating_sub(self.poll.since_ns)))
            };
        }
        let Some(cpu_ns) = thread::cpu_ns(self.poll.tid) else { return Now::Done(End::Over) };
        let look = Look { at_ns, cpu_ns, waited_ns: self.files.waited_ns(), doing: self.files.doing() };
        // Asked last: what was seen of a poll that is over may have been something else.
        if self.poll.is_over() {
            return Now::Done(End::Over);
        }
        metrics::SAMPLES.increment();
        let (files, stack_base) = (&self.files, self.poll.stack_base);
        self.ledger.add(look, |doing| learn(doing, files, stack_base));
        self.take_sample();
        let held = Duration::from_nanos(at_ns.saturating_sub(self.poll.since_ns));
        if held >= REPORTED_AFTER && self.purpose == Purpose::Report {
            return Now::Done(End::StillHeld);
        }
        if let Ok(sampler) = &self.sampler {
            sampler.set_held(held);
        }
        self.pace(held, stalls);
        self.due_ns = at_ns + self.interval.as_nanos() as u64;
        Now::GoesOn
    }

    fn take_sample(&mut self) {
        let (mut frames, mut lua) = (Vec::new(), LuaStack::default());
        if let Ok(sampler) = &self.sampler
            && let Some(taken_ns) = sampler.take(&mut frames, &mut lua)
            && self.poll.ended_ns().is_none_or(|ended_ns| taken_ns < ended_ns)
        {
            self.stacks.add(&frames, &lua);
        }
    }

    /// The longer a stall, the rarer the looks; and however many stalls there are, all looks together are one
    /// per [`INTERVAL_MIN`], as they take processors from loops that do not stall.
    fn pace(&mut self, held: Duration, stalls: u32) {
        let least = (INTERVAL_MIN * stalls).clamp(INTERVAL_MIN, INTERVAL_MAX);
        let interval = (held / INTERVAL_SHARE).clamp(least, INTERVAL_MAX);
        if interval >= self.interval * 2 || interval <= self.interval / 2 {
            self.interval = interval;
            if let Ok(sampler) = &self.sampler {
                // Where that is refused the samples go on as they came.
                let _ = sampler.set_period(interval);
            }
        }
    }

    pub(crate) fn finish(mut self, end: End) -> Finished {
        let now_ns = clock::monotonic_ns();
        let ended_ns = self.poll.ended_ns().filter(|_| end == End::Over).unwrap_or(now_ns);
        if end == End::Over {
            self.take_sample();
        }
        self.ledger.finish(ended_ns);
        let mut unknown = Vec::new();
        if self.ledger.looks == 0 {
            unknown.push("what it did, as it was over before it could be looked at".to_owned());
        }
        if let Err(error) = &self.sampler {
            unknown.push(format!("stacks on a processor, as samples are refused ({error})"));
        }
        if let Some(error) = self.files.refusal() {
            unknown.push(format!("system calls, as /proc/self/task is refused ({error})"));
        }
        Finished {
            loop_index: self.poll.loop_index,
            account: self.account,
            tag: self.poll.tag,
            handover: self.handover,
            end,
            unix_ms: clock::unix_ms(),
            time_ns: ended_ns.saturating_sub(self.poll.since_ns),
            ledger: self.ledger,
            stacks: self.stacks,
            unknown,
        }
    }
}

/// About how much CPU a poll had used when it was seen first: as large a share of the time as since then.
fn cpu_before_sight(poll: &StuckPoll) -> u64 {
    let since_sight_ns = clock::monotonic_ns().saturating_sub(poll.seen_ns);
    let before_ns = poll.seen_ns.saturating_sub(poll.since_ns);
    let used_ns = thread::cpu_ns(poll.tid).unwrap_or(0).saturating_sub(poll.cpu_ns);
    let share = u128::from(before_ns) * u128::from(used_ns) / u128::from(since_sight_ns.max(1));
    u64::try_from(share).unwrap_or(u64::MAX).min(before_ns)
}

fn learn(doing: Doing, files: &ThreadFiles, stack_base: usize) -> CallSight {
    let (name, subject, sp, pc) = match doing {
        Doing::Call { number, args, sp, pc } => {
            let subject = system_calls::subject(number, &args);
            let subject = subject.map(|path| format!("\"{}\"", String::from_utf8_lossy(&path)));
            (system_calls::name(number), subject, sp, pc)
        }
        Doing::Fault { sp, pc } => ("page fault".to_owned(), None, sp, pc),
        Doing::Running | Doing::Asleep => return CallSight::nothing(),
    };
    let (mut native, mut lua) = (Vec::new(), LuaStack::default());
    if let Some(run) = Run::on(&(sp..stack_base)) {
        lua.read(&run, None);
        if !run.goes_on() {
            lua = LuaStack::default();
        }
    }
    if let Ok(words) = stack_walk::copy_stack(sp, stack_base) {
        let registers = Registers { pc, sp, fp: 0, lr: 0 };
        stack_walk::walk(
            registers,
            &Stack::copied(sp.next_multiple_of(size_of::<usize>()), &words),
            |frame| {
                native.push(frame);
            },
        );
    }
    // A copy that was made while the thread went on is no stack.
    let is_one = files.doing() == Some(doing);
    let stack = if is_one { Sample::new(&native, &lua) } else { Sample::default() };
    CallSight { name, subject, wchan: files.wchan(), stack }
}

impl CallSight {
    fn nothing() -> Self {
        Self { name: String::new(), subject: None, wchan: None, stack: Sample::default() }
    }
}
