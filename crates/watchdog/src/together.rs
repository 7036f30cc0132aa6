//! The stalls of several worker processes: their last reports and their sums as one (`worker_groups`), and
//! the bytes by which one process tells the others, of which only those with the right form are believed. Any
//! thread; loops read.
//!
//! The bytes: rows and reports, each behind a letter and its length, in little endian.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use clearway_base::cursor::Cursor;

use crate::json;
use crate::summary::{Row, Summary};
use crate::{REPORTS_KEPT, Status};

const ROW: u8 = b'r';
const REPORT: u8 = b'R';

/// Bytes of a text of a row that are told.
const TEXT_BYTES_MAX: usize = 512;

/// A report, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) unix_ms: u64,
    pub(crate) json: Arc<str>,
}

/// See the file's head.
#[derive(Clone, Debug, Default)]
pub struct Together {
    /// The last [`REPORTS_KEPT`], the oldest first.
    reports: Vec<Told>,
    summary: Summary,
}

impl Together {
    /// Adds the stalls of a process.
    pub fn add(&mut self, status: &Status) {
        self.summary.add(status.summary.iter().cloned());
        self.take(status.told.iter().cloned());
    }

    /// Adds those that another process has written down.
    pub fn add_page(&mut self, page: &[u8]) {
        let mut rest = Cursor::new(page);
        let (mut rows, mut reports) = (Vec::new(), Vec::new());
        while let Some((tag, body)) = next_record(&mut rest) {
            match tag {
                ROW => rows.extend(row_of(body)),
                REPORT => reports.extend(report_of(body)),
                _ => {}
            }
        }
        self.summary.add(rows);
        self.take(reports);
    }

    fn take(&mut self, reports: impl IntoIterator<Item = Told>) {
        self.reports.extend(reports);
        self.reports.sort_by_key(|report| report.unix_ms);
        let many = self.reports.len().saturating_sub(REPORTS_KEPT);
        self.reports.drain(..many);
        debug_assert!(
            self.reports.len() <= REPORTS_KEPT,
            "they are bounded, however many processes there are"
        );
    }

    /// The bytes that [`add_page`](Self::add_page) reads: the sums of the longest times, in half of the
    /// room at most, and as many reports as the rest has room for, the newest first.
    #[must_use]
    pub fn to_page(&self, room_bytes: usize) -> Vec<u8> {
        let mut page = Vec::new();
        for row in self.summary.rows() {
            put_record(&mut page, room_bytes / 2, ROW, &row_bytes(row));
        }
        for report in self.reports.iter().rev() {
            let body = [&report.unix_ms.to_le_bytes()[..], report.json.as_bytes()].concat();
            put_record(&mut page, room_bytes, REPORT, &body);
        }
        debug_assert!(page.len() <= room_bytes, "a page has room for what is written");
        page
    }

    /// Appends `{"reports":[…],"summary":[…]}`, the newest report first.
    pub fn put_json(&self, out: &mut String) {
        json::put_status(out, &self.reports, self.summary.rows());
    }
}

/// A record without room is left out.
fn put_record(page: &mut Vec<u8>, room_bytes: usize, tag: u8, body: &[u8]) {
    let Ok(length) = u32::try_from(body.len()) else { return };
    if page.len() + 1 + size_of_val(&length) + body.len() <= room_bytes {
        page.push(tag);
        page.extend_from_slice(&length.to_le_bytes());
        page.extend_from_slice(body);
    }
}

fn row_bytes(row: &Row) -> Vec<u8> {
    let mut body = Vec::new();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let times = [row.time, row.longest, row.on_cpu, row.in_calls, row.waiting].map(ns);
    let numbers = [row.stalls, row.last_unix_ms].into_iter().chain(times);
    numbers.for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
    for text in [&*row.place, &*row.step, &*row.entry] {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        body.extend_from_slice(&(text.len() as u16).to_le_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    body
}

/// The letter and the bytes of what comes next on a page.
fn next_record<'a>(rest: &mut Cursor<'a>) -> Option<(u8, &'a [u8])> {
    let tag = rest.take(1)?[0];
    Some((tag, rest.counted::<4>()?))
}

fn row_of(body: &[u8]) -> Option<Row> {
    let mut rest = Cursor::new(body);
    let mut numbers = [0; 7];
    for number in &mut numbers {
        *number = rest.number::<8>()?;
    }
    let [stalls, last_unix_ms, times @ ..] = numbers;
    let [time, longest, on_cpu, in_calls, waiting] = times.map(Duration::from_nanos);
    let mut text = || String::from_utf8(rest.counted::<2>()?.to_vec()).ok();
    let (place, step, entry) = (text()?, Cow::Owned(text()?), text()?);
    Some(Row { stalls, last_unix_ms, time, longest, on_cpu, in_calls, waiting, place, step, entry })
}

fn report_of(body: &[u8]) -> Option<Told> {
    let (unix_ms, json) = body.split_first_chunk()?;
    Some(Told { unix_ms: u64::from_le_bytes(*unix_ms), json: std::str::from_utf8(json).ok()?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 4096;

    fn status(unix_ms: u64, entry: &str) -> Status {
        let report = crate::report::Report {
            unix_ms,
            entry: Some(entry.to_owned()),
            ..crate::report::tests::sample()
        };
        let told = vec![Told { unix_ms, json: format!("\"{entry} {unix_ms}\"").into() }];
        Status { summary: vec![Row::of(&report)], told, ..Status::default() }
    }

    fn shown(together: &Together) -> (Vec<String>, Vec<(String, u64)>) {
        let reports = together.reports.iter().map(|report| report.json.to_string()).collect();
        (reports, together.summary.rows().iter().map(|row| (row.entry.clone(), row.stalls)).collect())
    }

    #[test]
    fn what_processes_have_seen_is_one() {
        let mut other = Together::default();
        other.add(&status(5, "a"));
        other.add(&status(7, "b"));
        let mut both = Together::default();
        both.add(&status(6, "a"));
        both.add_page(&other.to_page(ROOM));
        let (reports, rows) = shown(&both);
        assert_eq!(reports, ["\"a 5\"", "\"a 6\"", "\"b 7\""], "by their times");
        assert_eq!(rows, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
        let row = &both.summary.rows()[0];
        assert_eq!(
            (&*row.step, row.time, row.last_unix_ms),
            ("content phase", Duration::from_millis(624), 6)
        );
        let mut json = String::new();
        both.put_json(&mut json);
        assert!(json.starts_with("{\"reports\":[\"b 7\",\"a 6\",\"a 5\"],\"summary\":[{"), "{json}");
    }

    #[test]
    fn the_last_ones_are_kept() {
        let mut many = Together::default();
        (0..=REPORTS_KEPT as u64).for_each(|at| many.add(&status(at, "a")));
        let mut all = Together::default();
        all.add_page(&many.to_page(ROOM));
        all.add_page(&many.to_page(ROOM));
        assert_eq!(all.reports.len(), REPORTS_KEPT);
        assert_eq!(all.reports[0].unix_ms, REPORTS_KEPT as u64 / 2 + 1);
    }

    #[test]
    fn what_has_no_room_is_left_out() {
        let mut many = Together::default();
        (0..20).for_each(|at| many.add(&status(at, &"e".repeat(at as usize + 1))));
        for room in [0, 10, 200, 1000] {
            let page = many.to_page(room);
            assert!(page.len() <= room);
            let mut read = Together::default();
            read.add_page(&page);
            assert!(read.reports.last().is_none_or(|newest| newest.unix_ms == 19), "{room}");
        }
        let mut read = Together::default();
        read.add_page(&many.to_page(1000));
        assert!(!read.reports.is_empty() && !read.summary.rows().is_empty());
    }

    #[test]
    fn what_is_no_page_adds_nothing() {
        let mut one = Together::default();
        one.add(&status(5, "a"));
        let page = one.to_page(ROOM);
        // The row alone is whole in the second half of these.
        for end in 0..page.len() {
            let mut read = Together::default();
            read.add_page(&page[..end]);
            assert!(read.reports.is_empty() && read.summary.rows().len() <= 1);
        }
        let mut read = Together::default();
        read.add_page(&[255; 100]);
        read.add_page(&[ROW, 2, 0, 0, 0, 1, 1, REPORT, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255]);
        assert!(read.reports.is_empty() && read.summary.rows().is_empty());
    }
}
