//! Reports and sums as JSON (RFC 8259), for the status API. docs/blocking.md names the members.

use std::fmt::Write;
use std::time::Duration;

use crate::report::{Branch, Call, End, Frame, Handover, Report};
use crate::summary::Row;
use crate::together::Told;

/// Appends an object of comma-separated members.
struct Object<'a> {
    out: &'a mut String,
    is_first: bool,
}

impl<'a> Object<'a> {
    fn open(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, is_first: true }
    }

    fn key(&mut self, name: &str) -> &mut String {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(',');
        }
        put_text(self.out, name);
        self.out.push(':');
        self.out
    }

    fn number(&mut self, name: &str, value: u64) {
        let _ = write!(self.key(name), "{value}");
    }

    fn ms(&mut self, name: &str, time: Duration) {
        let _ = write!(self.key(name), "{}.{:03}", time.as_millis(), time.as_micros() % 1000);
    }

    fn text(&mut self, name: &str, value: &str) {
        put_text(self.key(name), value);
    }

    fn optional(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.text(name, value),
            None => self.key(name).push_str("null"),
        }
    }

    fn list<T>(&mut self, name: &str, items: &[T], put: impl FnMut(&mut String, &T)) {
        put_list(self.key(name), items, put);
    }

    fn close(self) {
        self.out.push('}');
    }
}

/// Appends `{"reports":[…],"summary":[…]}`: the reports, which are JSON already, the newest first, and the
/// sums.
pub(crate) fn put_status(out: &mut String, reports: &[Told], summary: &[Row]) {
    let mut object = Object::open(out);
    let reports: Vec<&str> = reports.iter().rev().map(|report| &*report.json).collect();
    object.list("reports", &reports, |out, report| out.push_str(report));
    object.list("summary", summary, put_row);
    object.close();
}

/// Appends one report.
pub(crate) fn put_report(out: &mut String, report: &Report) {
    let mut object = Object::open(out);
    object.number("number", report.number);
    object.number("process", report.process.into());
    object.number("unix_ms", report.unix_ms);
    object.number("loop", report.loop_index as u64);
    let account = report.account.as_ref();
    object.optional("request", account.map(|account| &*account.subject));
    object.optional("location", report.whereabouts().map(|(place, _)| place));
    object.optional("phase", report.whereabouts().map(|(_, step)| step));
    object.number("connection", account.map_or(0, |account| account.connection));
    object.optional("entry", report.entry.as_deref());
    object.ms("ms", report.time);
    object.key("over").push_str(if report.end == End::Over { "true" } else { "false" });
    match report.handover {
        Handover::None => object.key("handed_over_after_ms").push_str("null"),
        Handover::After(time) => object.ms("handed_over_after_ms", time),
        Handover::Suspect => object.number("handed_over_after_ms", 0),
    }
    object.ms("on_cpu_ms", report.on_cpu);
    object.ms("in_calls_ms", report.in_calls);
    object.ms("waiting_ms", report.waiting);
    object.number("samples", report.samples);
    object.list("common", &report.common, put_frame);
    object.list("branches", &report.branches, put_branch);
    object.list("calls", &report.calls, put_call);
    object.list("advice", &report.advice, |out, text| put_text(out, text));
    object.list("unknown", &report.unknown, |out, text| put_text(out, text));
    object.close();
}

fn put_frame(out: &mut String, frame: &Frame) {
    let mut object = Object::open(out);
    object.text("function", &frame.function);
    object.optional("place", frame.place.as_deref());
    object.close();
}

fn put_branch(out: &mut String, branch: &Branch) {
    let mut object = Object::open(out);
    object.number("samples", branch.samples);
    object.list("frames", &branch.frames, put_frame);
    object.close();
}

fn put_call(out: &mut String, call: &Call) {
    let mut object = Object::open(out);
    object.text("name", &call.name);
    object.optional("subject", call.subject.as_deref());
    object.ms("ms", call.time);
    object.optional("wchan", call.wchan.as_deref());
    object.list("frames", &call.frames, put_frame);
    object.close();
}

fn put_row(out: &mut String, row: &Row) {
    let mut object = Object::open(out);
    object.text("location", &row.place);
    object.text("phase", &row.step);
    object.text("entry", &row.entry);
    object.number("stalls", row.stalls);
    object.ms("ms", row.time);
    object.ms("longest_ms", row.longest);
    object.ms("on_cpu_ms", row.on_cpu);
    object.ms("in_calls_ms", row.in_calls);
    object.ms("waiting_ms", row.waiting);
    object.number("last_unix_ms", row.last_unix_ms);
    object.close();
}

fn put_list<T>(out: &mut String, items: &[T], mut put: impl FnMut(&mut String, &T)) {
    out.push('[');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        put(out, item);
    }
    out.push(']');
}

fn put_text(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_all_its_members() {
        let report = crate::report::tests::sample();
        let mut out = String::new();
        put_report(&mut out, &report);
        let told = Told { unix_ms: report.unix_ms, json: std::mem::take(&mut out).into() };
        put_status(&mut out, &[told], &[Row::of(&report)]);
        let expected = concat!(
            r#"{"reports":[{"number":7,"process":9,"unix_ms":1700000000123,"loop":1,"#,
            r#""request":"GET /a HTTP/1.1","location":"/a","phase":"content phase","connection":5,"#,
            r#""entry":"m::handler","ms":312.000,"#,
            r#""over":true,"handed_over_after_ms":1.600,"on_cpu_ms":100.000,"in_calls_ms":210.000,"#,
            r#""waiting_ms":2.000,"samples":25,"common":[{"function":"m::burn","place":"crates/m.rs:9"},"#,
            r#"{"function":"m::handler","place":"crates/m.rs:3"},"#,
            r#"{"function":"clearway_http::phases::engine::run","#,
            r#""place":"crates/http/src/phases/engine.rs:1"}],"branches":[{"samples":20,"frames":"#,
            r#"[{"function":"0x1234","place":null}]}],"calls":[{"name":"pread64","subject":"\"/data/x\"","#,
            r#""ms":210.000,"wchan":"folio_wait","frames":[{"function":"m::read","#,
            r#""place":"crates/m.rs:5"}]}],"#,
            r#""advice":["do not"],"unknown":["nothing"]}],"summary":[{"location":"/a","phase":"#,
            r#""content phase","entry":"m::handler","stalls":1,"ms":312.000,"longest_ms":312.000,"#,
            r#""on_cpu_ms":100.000,"in_calls_ms":210.000,"waiting_ms":2.000,"last_unix_ms":1700000000123}]}"#,
        );
        assert_eq!(out, expected);
    }

    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        put_text(&mut out, "a\"b\\c\n\u{7f}é");
        assert_eq!(out, "\"a\\\"b\\\\c\\u000a\u{7f}é\"");
    }
}
