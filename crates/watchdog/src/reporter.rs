//! The reporter: makes a report of each stall that is over, keeps the last ones and the sums for the status
//! API, and writes as many to the log as the rate allows. A thread of its own, of low priority: reading
//! debug information takes a second the first time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use clearway_base::log::{Level, Record, Sink};
use clearway_base::memory;
use clearway_os::clock;
use clearway_os::thread::{self, Policy};

use crate::observer::Desk;
use crate::rate::Bucket;
use crate::report::{Branch, Call, Frame, Report};
use crate::stacks::Stacks;
use crate::stall::Finished;
use crate::summary::{Row, Summary};
use crate::symbols::{self, Symbols};
use crate::together::Told;
use crate::{REPORTS_KEPT, Status, advice, json, metrics};

/// Its nice value.
const NICE: i32 = 10;

/// How long debug information is kept that no report needs.
const KEEP_SYMBOLS: Duration = Duration::from_mins(1);

/// The percentage of the samples that makes a function part of the common ones. A sample may be of the
/// thread's work just after the stall.
const COMMON_PERCENT: u64 = 95;

/// Ways to go on that are kept in a report.
const BRANCHES_KEPT: usize = 8;

/// System calls that are kept in a report.
const CALLS_KEPT: usize = 8;

/// The task that writes reports.
pub(crate) struct Reporter {
    desk: Arc<Desk>,
    /// The number of the first loop among those of all processes.
    first_loop: usize,
    status: Arc<ArcSwap<Status>>,
    sink: Arc<dyn Sink>,
    symbols: Symbols,
    /// When debug information was used last; `None`: nothing of it is kept.
    resolved_ns: Option<u64>,
    summary: Summary,
    reports: VecDeque<(Arc<Report>, Told)>,
    bucket: Bucket,
    /// Reports that were not written since the last one that was.
    suppressed: u64,
    number: u64,
}

impl Reporter {
    pub(crate) fn new(
        desk: Arc<Desk>,
        first_loop: usize,
        status: Arc<ArcSwap<Status>>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        Self {
            desk,
            first_loop,
            status,
            sink,
            symbols: Symbols::default(),
            resolved_ns: None,
            summary: Summary::default(),
            reports: VecDeque::new(),
            bucket: Bucket::new(clock::monotonic_ns()),
            suppressed: 0,
            number: 0,
        }
    }

    /// Runs as long as the process.
    pub(crate) fn run(mut self) {
        // A thread that cannot be lowered competes as before.
        let _ = thread::schedule(thread::current(), Policy::Batch, NICE, 0);
        loop {
            while let Some(finished) = self.desk.finished.pop() {
                if finished.was_short(self.desk.report_after()) {
                    continue;
                }
                if finished.was_late(self.desk.report_after()) {
                    metrics::LATE.increment();
                    continue;
                }
                metrics::STALLS.increment();
                let report = Arc::new(self.report(finished));
                self.summary.add([Row::of(&report)]);
                self.keep(Arc::clone(&report));
                self.write(&report);
                self.resolved_ns = Some(clock::monotonic_ns());
            }
            self.rest();
        }
    }

    /// Sleeps until there is something to report. If that takes long, the debug information goes: it is read
    /// anew for the next report.
    fn rest(&mut self) {
        let Some(since_ns) = self.resolved_ns else { return self.desk.reporter.wait(None) };
        let unused = || Duration::from_nanos(clock::monotonic_ns().saturating_sub(since_ns));
        self.desk.reporter.wait(Some(KEEP_SYMBOLS.saturating_sub(unused())));
        if self.desk.finished.is_empty() && unused() >= KEEP_SYMBOLS {
            self.symbols.forget();
            memory::release();
            self.resolved_ns = None;
        }
    }

    /// Publishes it with the last ones.
    fn keep(&mut self, report: Arc<Report>) {
        let mut text = String::new();
        json::put_report(&mut text, &report);
        let told = Told { unix_ms: report.unix_ms, json: text.into() };
        self.reports.push_back((report, told));
        if self.reports.len() > REPORTS_KEPT {
            self.reports.pop_front();
        }
        let (reports, told) = self.reports.iter().cloned().unzip();
        self.status.store(Arc::new(Status { reports, told, summary: self.summary.rows().to_vec() }));
    }

    fn report(&mut self, finished: Finished) -> Report {
        let place = match finished.account {
            Some(_) => None,
            None => self.desk.place(finished.tag),
        };
        let Finished { ledger, stacks, .. } = finished;
        let ns = Duration::from_nanos;
        let named = self.name(&stacks);
        let of_samples = entry_of_most(&named);
        let (common, branches) = merge(named);
        let calls: Vec<Call> = ledger.calls.into_iter().fold(Vec::new(), |calls, call| {
            let frames = self.symbols.resolve(&call.sight.stack);
            let (name, subject) = (call.sight.name, call.sight.subject);
            add_call(calls, Call { name, subject, time: ns(call.ns), wchan: call.sight.wchan, frames })
        });
        let time = ns(finished.time_ns);
        let in_calls = calls.iter().map(|call| call.time).sum::<Duration>() + ns(ledger.asleep_ns);
        let hottest = branches.first().map(|branch| &branch.frames).into_iter().flatten().chain(&common);
        let hottest: Vec<Frame> = hottest.cloned().collect();
        let on_cpu = ns(ledger.cpu_ns);
        let of_calls = calls.first().and_then(|call| symbols::entry(&call.frames));
        let of_calls = of_calls.map(|frame| frame.function.clone());
        let entry = if on_cpu * 2 >= time { of_samples.or(of_calls) } else { of_calls.or(of_samples) };
        self.number += 1;
        Report {
            number: self.number,
            process: std::process::id(),
            unix_ms: finished.unix_ms,
            loop_index: self.first_loop + finished.loop_index,
            entry,
            account: finished.account,
            place,
            time,
            end: finished.end,
            handover: finished.handover,
            on_cpu,
            in_calls,
            waiting: ns(ledger.waiting_ns),
            looks: ledger.looks,
            samples: stacks.samples,
            advice: advice::advise(time, on_cpu, &hottest, &calls),
            common,
            branches,
            calls: calls.into_iter().take(CALLS_KEPT).collect(),
            unknown: finished.unknown,
        }
    }

    /// The stacks as functions, the outermost first, each with its count.
    fn name(&mut self, stacks: &Stacks) -> Vec<(Vec<Frame>, u64)> {
        let name = |(sample, count)| {
            let mut frames = self.symbols.resolve(sample);
            frames.reverse();
            (frames, count)
        };
        stacks.iter().map(name).collect()
    }

    fn write(&mut self, report: &Report) {
        if !self.sink.enabled(Level::Warn) {
            return;
        }
        if !self.bucket.take(self.desk.rate(), clock::monotonic_ns()) {
            metrics::REPORTS_SUPPRESSED.increment();
            self.suppressed += 1;
            return;
        }
        let mut lines = report.lines();
        let suppressed = std::mem::take(&mut self.suppressed);
        if suppressed > 0 {
            let number = report.number;
            lines.push(format!(
                "stall {number}:   {suppressed} before it were not reported (stall_report_rate)"
            ));
        }
        let account = report.account.as_ref();
        for line in lines {
            self.sink.write(&Record {
                level: Level::Warn,
                tid: account.map_or(0, |account| account.identity),
                connection: account.map(|account| account.connection),
                message: format_args!("{line}"),
            });
        }
    }
}

/// Adds a call to those of the same name and subject.
fn add_call(mut calls: Vec<Call>, call: Call) -> Vec<Call> {
    match calls.iter_mut().find(|known| known.name == call.name && known.subject == call.subject) {
        Some(known) => known.time += call.time,
        None => calls.push(call),
    }
    calls.sort_by_key(|call| std::cmp::Reverse(call.time));
    calls
}

/// The entry function of most samples: a stack may lack one of its functions.
fn entry_of_most(stacks: &[(Vec<Frame>, u64)]) -> Option<String> {
    let mut entries: Vec<(String, u64)> = Vec::new();
    for (frames, count) in stacks {
        let inner_first: Vec<Frame> = frames.iter().rev().cloned().collect();
        let Some(Frame { function, .. }) = symbols::entry(&inner_first) else { continue };
        match entries.iter_mut().find(|(known, _)| known == function) {
            Some((_, all)) => *all += count,
            None => entries.push((function.clone(), *count)),
        }
    }
    entries.into_iter().max_by_key(|(_, count)| *count).map(|(function, _)| function)
}

/// Merges stacks, the outermost function first, each with its count.
fn merge(mut stacks: Vec<(Vec<Frame>, u64)>) -> (Vec<Frame>, Vec<Branch>) {
    let total: u64 = stacks.iter().map(|(_, count)| count).sum();
    let mut common: Vec<Frame> = Vec::new();
    while let Some((frame, count)) = most_frequent(&stacks, common.len()) {
        if count * 100 < total * COMMON_PERCENT {
            break;
        }
        stacks.retain(|(frames, _)| {
            frames.get(common.len()).is_some_and(|other| other.function == frame.function)
        });
        common.push(frame);
    }
    let mut branches: Vec<Branch> = Vec::new();
    for (frames, count) in stacks {
        let rest: Vec<Frame> = frames.into_iter().skip(common.len()).rev().collect();
        let is_like = |branch: &&mut Branch| {
            let functions = branch.frames.iter().map(|frame| &frame.function);
            functions.eq(rest.iter().map(|frame| &frame.function))
        };
        match branches.iter_mut().find(is_like) {
            Some(branch) => branch.samples += count,
            None => branches.push(Branch { samples: count, frames: rest }),
        }
    }
    branches.retain(|branch| !branch.frames.is_empty());
    branches.sort_by_key(|branch| std::cmp::Reverse(branch.samples));
    branches.truncate(BRANCHES_KEPT);
    common.reverse();
    (common, branches)
}

/// The function that most stacks have at a depth, with its most frequent line, and how many have it.
fn most_frequent(stacks: &[(Vec<Frame>, u64)], depth: usize) -> Option<(Frame, u64)> {
    let mut found: Vec<(&Frame, u64, u64)> = Vec::new();
    for (frames, count) in stacks {
        let Some(frame) = frames.get(depth) else { continue };
        match found.iter_mut().find(|(known, ..)| known.function == frame.function) {
            Some((known, all, most)) => {
                *all += count;
                if *count > *most {
                    (*known, *most) = (frame, *count);
                }
            }
            None => found.push((frame, *count, *count)),
        }
    }
    found.into_iter().max_by_key(|(_, all, _)| *all).map(|(frame, all, _)| (frame.clone(), all))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(text: &str, count: u64) -> (Vec<Frame>, u64) {
        let frame = |part: &str| {
            let (function, line) = part.split_once(':').unwrap_or((part, "0"));
            Frame { function: function.to_owned(), place: Some(line.to_owned()) }
        };
        (text.split(' ').map(frame).collect(), count)
    }

    fn names(frames: &[Frame]) -> String {
        let names: Vec<_> = frames
            .iter()
            .map(|frame| format!("{}:{}", frame.function, frame.place.as_deref().unwrap_or_default()))
            .collect();
        names.join(" ")
    }

    #[test]
    fn the_common_part_ends_where_ways_part() {
        let (common, branches) = merge(vec![
            stack("a b:1 c d", 30),
            stack("a b:2 c e f", 50),
            stack("a b:1 c", 16),
            stack("a b:3 c e f", 2),
            stack("z", 2),
        ]);
        assert_eq!(names(&common), "c:0 b:2 a:0");
        let branches: Vec<_> = branches.iter().map(|b| (b.samples, names(&b.frames))).collect();
        assert_eq!(branches, [(52, "f:0 e:0".to_owned()), (30, "d:0".to_owned())]);
    }

    #[test]
    fn no_samples_have_nothing_in_common() {
        assert_eq!(merge(Vec::new()), (Vec::new(), Vec::new()));
        let (common, branches) = merge(vec![stack("a", 1), stack("b", 1)]);
        assert_eq!((common.len(), branches.len()), (0, 2));
    }

    #[test]
    fn calls_of_one_kind_are_one() {
        let call = |name: &str, ms| Call {
            name: name.to_owned(),
            subject: None,
            time: Duration::from_millis(ms),
            wchan: None,
            frames: Vec::new(),
        };
        let calls = [call("read", 1), call("futex", 4), call("read", 5)];
        let calls = calls.into_iter().fold(Vec::new(), add_call);
        assert_eq!(calls.iter().map(|call| call.time.as_millis()).collect::<Vec<_>>(), [6, 4]);
    }
}
