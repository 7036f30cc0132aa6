//! Stalls added up per location, phase and entry function. Kept by the reporter's thread, bounded.

use std::borrow::Cow;
use std::time::Duration;

use crate::report::Report;

/// Rows that are kept; the rest is added up in one that has no names.
const ROWS_MAX: usize = 256;
/// Of that one.
const NO_NAMES: [&str; 3] = [""; 3];

/// The stalls of one entry function in one location and phase.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The location; empty where it is not known.
    pub place: String,
    /// The step of the work, such as a phase.
    pub step: Cow<'static, str>,
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
            step: Cow::Borrowed(step),
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

    fn names(&self) -> [&str; 3] {
        [&self.place, &self.step, &self.entry]
    }

    fn add(&mut self, other: &Self) {
        self.stalls = self.stalls.saturating_add(other.stalls);
        self.time = self.time.saturating_add(other.time);
        self.longest = self.longest.max(other.longest);
        self.on_cpu = self.on_cpu.saturating_add(other.on_cpu);
        self.in_calls = self.in_calls.saturating_add(other.in_calls);
        self.waiting = self.waiting.saturating_add(other.waiting);
        self.last_unix_ms = self.last_unix_ms.max(other.last_unix_ms);
    }
}

/// All rows, the longest time first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary(Vec<Row>);

impl Summary {
    /// Adds rows to those that are like them. Of more than [`ROWS_MAX`] the shortest times become one row.
    pub(crate) fn add(&mut self, rows: impl IntoIterator<Item = Row>) {
        self.0.extend(rows);
        self.0.sort_by(|one, other| one.names().cmp(&other.names()));
        self.0.dedup_by(|row, kept| {
            let is_like = row.names() == kept.names();
            if is_like {
                kept.add(row);
            }
            is_like
        });
        self.bound();
        self.0.sort_by_key(|row| std::cmp::Reverse(row.time));
        debug_assert!(self.0.len() <= ROWS_MAX + 1, "rows are bounded, whatever is told");
    }

    fn bound(&mut self) {
        let named = |row: &Row| row.names() != NO_NAMES;
        if self.0.iter().filter(|row| named(row)).count() <= ROWS_MAX {
            return;
        }
        self.0.sort_by_key(|row| (named(row), std::cmp::Reverse(row.time)));
        let rest = self.0.split_off(ROWS_MAX + usize::from(!named(&self.0[0])));
        let mut one = Row::default();
        rest.iter().for_each(|row| one.add(row));
        match self.0.first_mut().filter(|row| !named(row)) {
            Some(known) => known.add(&one),
            None => self.0.push(one),
        }
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
        summary.add([Row::of(&report)]);
        summary.add([Row::of(&report)]);
        assert_eq!(summary.rows().len(), 1);
        assert_eq!((summary.rows()[0].stalls, summary.rows()[0].time), (2, Duration::from_millis(624)));
        for i in 0..ROWS_MAX + 10 {
            report.entry = Some(i.to_string());
            summary.add([Row::of(&report)]);
        }
        assert_eq!(summary.rows().len(), ROWS_MAX + 1);
        assert_eq!(summary.rows().iter().map(|row| row.stalls).sum::<u64>(), ROWS_MAX as u64 + 12);
        assert!(summary.rows().is_sorted_by(|a, b| a.time >= b.time));
    }
}
