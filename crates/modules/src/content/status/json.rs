//! The page as JSON: `{"metrics": {NAME: {"type", "unit", "values": [{"labels", "value"}]}}, SECTION: …}`.
//! A histogram has `count`, `sum` and `buckets` instead of `value`: pairs of an upper bound in seconds
//! (`null` for none) and how many were in that bucket and in none before it, without the empty ones. Pure
//! functions, run on loops.

use clearway_base::json::{put, put_text};
use clearway_metrics::{BUCKETS, Durations, Family, Labels, Value, bound_us};

use super::PREFIX;
use super::prometheus::seconds_of_us;

pub(super) fn begin(out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"metrics\":{");
}

pub(super) fn begin_metric(out: &mut Vec<u8>, family: &Family) {
    separate(out);
    let (name, kind, unit) = (family.name, family.kind.as_str(), family.unit);
    put(out, format_args!("\n\"{PREFIX}{name}\":{{\"type\":\"{kind}\",\"unit\":\"{unit}\",\"values\":["));
}

/// One value of a metric.
pub(super) fn write_value(out: &mut Vec<u8>, labels: &Labels<'_>, value: Value<'_>) {
    separate(out);
    out.push(b'{');
    if !labels.is_empty() {
        out.extend_from_slice(b"\"labels\":{");
        for (label, text) in labels.iter() {
            separate(out);
            put(out, format_args!("\"{label}\":"));
            put_text(out, text);
        }
        out.extend_from_slice(b"},");
    }
    match value {
        Value::Number(number) => put(out, format_args!("\"value\":{number}")),
        Value::Milliseconds(ms) => put(out, format_args!("\"value\":{}.{:03}", ms / 1000, ms % 1000)),
        Value::Durations(durations) => write_durations(out, durations),
    }
    out.push(b'}');
}

fn write_durations(out: &mut Vec<u8>, durations: &Durations) {
    let (seconds, ns) = (durations.sum_ns / 1_000_000_000, durations.sum_ns % 1_000_000_000);
    put(out, format_args!("\"count\":{},\"sum\":{seconds}.{ns:09},\"buckets\":[", durations.count()));
    let filled = (0..BUCKETS).filter(|&bucket| durations.counts[bucket] > 0);
    for bucket in filled {
        separate(out);
        let bound = bound_us(bucket).map_or_else(|| "null".to_owned(), seconds_of_us);
        put(out, format_args!("[{bound},{}]", durations.counts[bucket]));
    }
    out.push(b']');
}

pub(super) fn end_metric(out: &mut Vec<u8>) {
    out.extend_from_slice(b"]}");
}

pub(super) fn end_metrics(out: &mut Vec<u8>) {
    out.push(b'}');
}

/// Writes the text in front of the value of a section.
pub(super) fn begin_section(out: &mut Vec<u8>, name: &str) {
    put(out, format_args!(",\n\"{name}\":"));
}

pub(super) fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"}\n");
}

/// Writes a comma unless what follows is the first of its kind.
fn separate(out: &mut Vec<u8>) {
    if !matches!(out.last(), Some(b'{' | b'[')) {
        out.push(b',');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_metrics::{Histogram, Kind};

    static JOBS: Family = Family::new(Kind::Counter, "jobs_total", "jobs", "Jobs.");

    #[test]
    fn a_page_is_one_object() {
        let mut out = Vec::new();
        begin(&mut out);
        begin_metric(&mut out, &JOBS);
        write_value(&mut out, &[("pool", "a\"\\\nb"), ("loop", "1")], Value::Number(7));
        write_value(&mut out, &[], Value::Milliseconds(1_002));
        end_metric(&mut out);
        end_metrics(&mut out);
        begin_section(&mut out, "more");
        out.extend_from_slice(b"[]");
        end(&mut out);
        let wanted = "{\"metrics\":{\n\"clearway_jobs_total\":{\"type\":\"counter\",\"unit\":\"jobs\",\
                      \"values\":[{\"labels\":{\"pool\":\"a\\\"\\\\\\u000ab\",\"loop\":\"1\"},\"value\":7},\
                      {\"value\":1.002}]}},\n\"more\":[]}\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn a_histogram_shows_what_is_in_it() {
        let histogram = Histogram::new();
        [5_000, 5_000, 200_000_000_000].into_iter().for_each(|ns| histogram.note(ns));
        let mut out = b"[".to_vec();
        write_value(&mut out, &[], Value::Durations(&histogram.read()));
        let wanted = "[{\"count\":3,\"sum\":200.000010000,\"buckets\":[[0.000006,2],[null,1]]}";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
