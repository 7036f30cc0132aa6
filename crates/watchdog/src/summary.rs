//! Stalls added up per location, phase and entry function. Kept by the reporter's thread, bounded.

use std::time::Duration;

use crate::report::Report;

/// Rows that are kept; what comes after goes into the last one, which has no names.
const ROWS_MAX: usize = 256;

/// The stalls of one entry function in one location and phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The location; empty where it is not known.
    pub place: String,
    /// The step of the work, such as a phase.
    pub step: &'static str,
    /// The entry function; empty where it is not known.
    pub entry: String,
    /// How many.
    pub stalls: u64,
    /// How long, together.
    pub time: Duration,
    /// The longest of them.
    pub longest: Duration,
    /// The part of `time` in which the thread used a processor.
    pub on_cpu: Duration,
    /// The part of `time` in which the thread slept in system calls.
    pub in_calls: Duration,
    /// The part of `time` in which the thread waited for a processor.
    pub waiting: Duration,
    /// When the last one ended, milliseconds since the epoch.
    pub last_unix_ms: u64,
}

impl Row {
    /// The summary of one stall.
    pub(crate) fn of(report: &Report) -> Self {
        let (place, step) = report.whereabouts().unwrap_or_default();
        Self {
            place: place.to_owned(),
            step,
            entry: report.entry.clone().unwrap_or_default(),
            stalls: 1,
            time: report.time,
            longest: report.time,
            on_cpu: report.on_cpu,
            in_calls: report.in_calls,
            waiting: report.waiting,
            last_unix_ms: report.unix_ms,
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        self.place == other.place && self.step == other.step && self.entry == other.entry
    }

    fn add(&mut self, other: &Self) {
        self.stalls += other.stalls;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
        self.on_cpu += other.on_cpu;
        self.in_calls += other.in_calls;
        self.waiting += other.waiting;
        self.last_unix_ms = self.last_unix_ms.max(other.last_unix_ms);
    }
}

/// All rows, the longest time first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary(Vec<Row>);

impl Summary {
    pub(crate) fn add(&mut self, report: &Report) {
        let mut row = Row::of(report);
        if self.0.len() >= ROWS_MAX && !self.0.iter().any(|known| known.is_like(&row)) {
            row = Row { place: String::new(), step: "", entry: String::new(), ..row };
        }
        match self.0.iter_mut().find(|known| known.is_like(&row)) {
            Some(known) => known.add(&row),
            None => self.0.push(row),
        }
        self.0.sort_by_key(|row| std::cmp::Reverse(row.time));
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_is_added_to_like_and_the_rest_is_bounded() {
        let mut summary = Summary::default();
        let mut report = crate::report::tests::sample();
        summary.add(&report);
        summary.add(&report);
        assert_eq!(summary.rows().len(), 1);
        assert_eq!((summary.rows()[0].stalls, summary.rows()[0].time), (2, Duration::from_millis(624)));
        for i in 0..ROWS_MAX + 10 {
            report.entry = Some(i.to_string());
            summary.add(&report);
        }
        assert_eq!(summary.rows().len(), ROWS_MAX + 1);
        assert_eq!(summary.rows().iter().map(|row| row.stalls).sum::<u64>(), ROWS_MAX as u64 + 12);
        assert!(summary.rows().is_sorted_by(|a, b| a.time >= b.time));
    }
}
