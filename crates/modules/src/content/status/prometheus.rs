//! The text format of Prometheus, version 0.0.4. Pure functions, run on loops.

use std::io::Write;

use clearway_metrics::{BUCKETS, Durations, Family, Labels, Value, bound_us};

use super::PREFIX;

/// So many bounds of buckets are merged into one that is shown: one for each power of two.
const BOUNDS_MERGED: usize = 2;

/// Writes the text in front of the values of a metric.
pub(super) fn begin_metric(out: &mut Vec<u8>, family: &Family) {
    let name = family.name;
    let help = family.help.replace('\\', "\\\\").replace('\n', "\\n");
    let kind = family.kind.as_str();
    put(out, format_args!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n"));
}

/// One value: a line, or those of a histogram.
pub(super) fn write_value(out: &mut Vec<u8>, family: &Family, labels: &Labels<'_>, value: Value<'_>) {
    match value {
        Value::Number(number) => write_line(out, (family.name, ""), (labels, None), format_args!("{number}")),
        Value::Milliseconds(ms) => {
            let (seconds, ms) = (ms / 1000, ms % 1000);
            write_line(out, (family.name, ""), (labels, None), format_args!("{seconds}.{ms:03}"));
        }
        Value::Durations(durations) => write_durations(out, family, labels, durations),
    }
}

fn write_durations(out: &mut Vec<u8>, family: &Family, labels: &Labels<'_>, durations: &Durations) {
    let mut below = 0;
    for bucket in 0..BUCKETS {
        below += durations.counts[bucket];
        let bound = match bound_us(bucket) {
            Some(_) if !bucket.is_multiple_of(BOUNDS_MERGED) => continue,
            Some(us) => seconds_of_us(us),
            None => "+Inf".to_owned(),
        };
        write_line(out, (family.name, "_bucket"), (labels, Some(&bound)), format_args!("{below}"));
    }
    let (seconds, ns) = (durations.sum_ns / 1_000_000_000, durations.sum_ns % 1_000_000_000);
    write_line(out, (family.name, "_sum"), (labels, None), format_args!("{seconds}.{ns:09}"));
    write_line(out, (family.name, "_count"), (labels, None), format_args!("{below}"));
}

/// Decimal seconds without zeros at the end.
pub(super) fn seconds_of_us(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn write_line(
    out: &mut Vec<u8>,
    (name, suffix): (&str, &str),
    (labels, bound): (&Labels<'_>, Option<&str>),
    value: std::fmt::Arguments<'_>,
) {
    put(out, format_args!("{PREFIX}{name}{suffix}"));
    let mut separator = '{';
    for (label, text) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
        put(out, format_args!("{separator}{label}=\""));
        for character in text.chars() {
            match character {
                '\\' => out.extend_from_slice(b"\\\\"),
                '"' => out.extend_from_slice(b"\\\""),
                '\n' => out.extend_from_slice(b"\\n"),
                character => put(out, format_args!("{character}")),
            }
        }
        out.push(b'"');
        separator = ',';
    }
    if separator == ',' {
        out.push(b'}');
    }
    put(out, format_args!(" {value}\n"));
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to memory does not fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_metrics::{Histogram, Kind, Label};

    static JOBS: Family = Family::new(Kind::Counter, "jobs_total", "jobs", "Jobs \\ of a\npool.")
        .by(&[Label { name: "pool", help: "Name." }]);
    static TIMES: Family = Family::new(Kind::Histogram, "wait_seconds", "seconds", "Waiting.");

    #[test]
    fn a_counter_has_a_line_for_each_value() {
        let mut out = Vec::new();
        begin_metric(&mut out, &JOBS);
        write_value(&mut out, &JOBS, &[("pool", "a\"\\\nb")], Value::Number(7));
        write_value(&mut out, &JOBS, &[], Value::Milliseconds(1_002));
        let wanted = "# HELP clearway_jobs_total Jobs \\\\ of a\\npool.\n\
                      # TYPE clearway_jobs_total counter\n\
                      clearway_jobs_total{pool=\"a\\\"\\\\\\nb\"} 7\n\
                      clearway_jobs_total 1.002\n";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }

    #[test]
    fn a_histogram_adds_up_to_its_count() {
        let histogram = Histogram::new();
        [5_000, 7_000, 1_500_000_000, 200_000_000_000].into_iter().for_each(|ns| histogram.note(ns));
        let mut out = Vec::new();
        write_value(&mut out, &TIMES, &[("loop", "0")], Value::Durations(&histogram.read()));
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), BUCKETS / BOUNDS_MERGED + 3);
        for line in [
            "clearway_wait_seconds_bucket{loop=\"0\",le=\"0.000004\"} 0",
            "clearway_wait_seconds_bucket{loop=\"0\",le=\"0.000008\"} 2",
            "clearway_wait_seconds_bucket{loop=\"0\",le=\"1.048576\"} 2",
            "clearway_wait_seconds_bucket{loop=\"0\",le=\"2.097152\"} 3",
            "clearway_wait_seconds_bucket{loop=\"0\",le=\"67.108864\"} 3",
            "clearway_wait_seconds_bucket{loop=\"0\",le=\"+Inf\"} 4",
            "clearway_wait_seconds_sum{loop=\"0\"} 201.500012000",
            "clearway_wait_seconds_count{loop=\"0\"} 4",
        ] {
            assert!(lines.contains(&line), "{line} in {text}");
        }
    }
}
