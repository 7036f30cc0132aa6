//! A report: what is known of one stall when it is over. Made by the reporter's thread, immutable from then
//! on; the lines for the error log are written here, JSON is in json.rs. docs/blocking.md says how to read
//! both, and changes with this file.

use std::fmt;
use std::time::Duration;

use clearway_runtime::Account;

use crate::place::WorkPlace;

/// A function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Its name, without hashes and machine paths; an address where there is no name.
    pub function: String,
    /// Source file and line, `crates/http/src/phases/engine.rs:12`; nothing where it is not known.
    pub place: Option<String>,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{} ({place})", self.function),
            None => f.write_str(&self.function),
        }
    }
}

/// Samples that went on from the common part in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// How many.
    pub samples: u64,
    /// Down to the common part, the innermost function first.
    pub frames: Vec<Frame>,
}

/// A system call that the thread slept in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name, or `page fault`.
    pub name: String,
    /// The file or path that it was about, if that is known.
    pub subject: Option<String>,
    /// For how long, all calls of this kind together.
    pub time: Duration,
    /// The kernel's function that it waited in, where the kernel tells.
    pub wchan: Option<String>,
    /// The stack of the first of them, the innermost function first.
    pub frames: Vec<Frame>,
}

/// The fate of the loop that was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// Nobody took it over.
    None,
    /// The loop was handed over after that time.
    After(Duration),
    /// The task was polled away from it from the start, as its location and phase had blocked lately.
    Suspect,
}

/// How a stall ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The task came back.
    Over,
    /// The poll was still under way when the report was made; nothing more will be reported of it.
    StillHeld,
}

/// The facts about one stall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// From 1, in the order in which stalls ended.
    pub number: u64,
    /// Which process.
    pub process: u32,
    /// When it ended, milliseconds since the epoch.
    pub unix_ms: u64,
    /// Which loop, of those of all processes.
    pub loop_index: usize,
    /// The task's account of itself; `None` if it did not get to it.
    pub account: Option<Account>,
    /// Where it was as far as its tag says, if it gave no account.
    pub place: Option<WorkPlace>,
    /// The function of a module, script or plugin in which it began.
    pub entry: Option<String>,
    /// How long.
    pub time: Duration,
    /// How it ended.
    pub end: End,
    /// The fate of the loop.
    pub handover: Handover,
    /// The part of `time` in which the thread used a processor, in the kernel too.
    pub on_cpu: Duration,
    /// The part of `time` in which the thread slept in system calls.
    pub in_calls: Duration,
    /// The part of `time` in which the thread waited for a processor.
    pub waiting: Duration,
    /// Looks at the thread.
    pub looks: u64,
    /// Stacks that were taken while it used a processor.
    pub samples: u64,
    /// The functions that nearly all samples have in common, the innermost first.
    pub common: Vec<Frame>,
    /// How they went on from there, the most frequent first.
    pub branches: Vec<Branch>,
    /// The longest first.
    pub calls: Vec<Call>,
    /// The changes that would have helped.
    pub advice: Vec<String>,
    /// The facts that could not be found out, and why.
    pub unknown: Vec<String>,
}

/// Functions of a stack that a log shows.
const FRAMES_SHOWN: usize = 12;
/// Ways to go on that a log shows.
const BRANCHES_SHOWN: usize = 3;
/// System calls that a log shows.
const CALLS_SHOWN: usize = 3;

impl Report {
    /// The location and the step in which it was, if they are known.
    #[must_use]
    pub fn whereabouts(&self) -> Option<(&str, &'static str)> {
        let said = self.account.as_ref().map(|account| (&*account.place, account.step));
        said.or_else(|| self.place.as_ref().map(|place| (&*place.name, place.step)))
    }

    /// The lines for the error log, in order; each begins with the number of the stall.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.headline(), self.times()];
        // Where ways part before the entry function they have in common what all requests have.
        let is_entry = |frame: &Frame| self.entry.as_ref() == Some(&frame.function);
        if !self.common.is_empty() && (self.entry.is_none() || self.common.iter().any(is_entry)) {
            lines.push("  all stacks lead through".to_owned());
            self.put_frames(&mut lines, &self.common);
        }
        for branch in self.branches.iter().take(BRANCHES_SHOWN) {
            lines.push(format!("  {} of {} samples were then in", branch.samples, self.samples));
            self.put_frames(&mut lines, &branch.frames);
        }
        for call in self.calls.iter().take(CALLS_SHOWN) {
            lines.push(format!("  {call}"));
            self.put_frames(&mut lines, &call.frames);
        }
        lines.extend(self.unknown.iter().map(|text| format!("  not known: {text}")));
        lines.extend(self.advice.iter().map(|text| format!("  advice: {text}")));
        lines.iter().map(|line| format!("stall {}: {line}", self.number)).collect()
    }

    /// As far as the entry function: its callers are the same for all.
    fn put_frames(&self, lines: &mut Vec<String>, frames: &[Frame]) {
        let is_entry = |frame: &Frame| self.entry.as_ref() == Some(&frame.function);
        let frames = match frames.iter().rposition(is_entry) {
            Some(at) => &frames[..=at],
            None => frames,
        };
        lines.extend(frames.iter().take(FRAMES_SHOWN).map(|frame| format!("    {frame}")));
        if frames.len() > FRAMES_SHOWN {
            lines.push(format!("    and {} more", frames.len() - FRAMES_SHOWN));
        }
    }

    fn headline(&self) -> String {
        let so_far = if self.end == End::StillHeld { " so far" } else { "" };
        let handover = match self.handover {
            Handover::None => "not handed over".to_owned(),
            Handover::After(time) => format!("handed over after {} ms", Ms(time)),
            Handover::Suspect => "polled away from it from the start".to_owned(),
        };
        let (index, time) = (self.loop_index, Ms(self.time));
        let held = format!("a task of loop {index} held its thread for {time} ms{so_far}, {handover}");
        let entry = self.entry.as_ref().map(|entry| format!(" in {entry}")).unwrap_or_default();
        let circumstances = self.account.as_ref().map_or("", |account| &account.circumstances);
        match self.whereabouts() {
            Some((place, step)) => {
                format!("{held}, while {step}, location: \"{place}\"{entry}{circumstances}")
            }
            None => format!("{held}{entry}"),
        }
    }

    fn times(&self) -> String {
        let (cpu, calls, waiting) = (Ms(self.on_cpu), Ms(self.in_calls), Ms(self.waiting));
        format!(
            "  {cpu} ms on a processor, {calls} ms in system calls, {waiting} ms waiting for a processor, \
             {} samples",
            self.samples
        )
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} us in {}", self.time.as_micros(), self.name)?;
        if let Some(subject) = &self.subject {
            write!(f, " of {subject}")?;
        }
        match &self.wchan {
            Some(wchan) => write!(f, " ({wchan})"),
            None => Ok(()),
        }
    }
}

/// Whole milliseconds, rounded.
pub(crate) struct Ms(pub(crate) Duration);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", (self.0.as_micros() + 500) / 1000)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn frame(function: &str, place: &str) -> Frame {
        Frame { function: function.to_owned(), place: Some(place.to_owned()).filter(|p| !p.is_empty()) }
    }

    /// A report with one of everything.
    pub(crate) fn sample() -> Report {
        let ms = Duration::from_millis;
        Report {
            number: 7,
            process: 9,
            unix_ms: 1_700_000_000_123,
            loop_index: 1,
            account: Some(Account {
                connection: 5,
                identity: 100,
                subject: "GET /a HTTP/1.1".to_owned(),
                place: "/a".to_owned(),
                step: "content phase",
                circumstances: ", client: 127.0.0.1, request: \"GET /a HTTP/1.1\"".to_owned(),
            }),
            place: None,
            entry: Some("m::handler".to_owned()),
            time: ms(312),
            end: End::Over,
            handover: Handover::After(Duration::from_micros(1_600)),
            on_cpu: ms(100),
            in_calls: ms(210),
            waiting: ms(2),
            looks: 250,
            samples: 25,
            common: vec![
                frame("m::burn", "crates/m.rs:9"),
                frame("m::handler", "crates/m.rs:3"),
                frame("clearway_http::phases::engine::run", "crates/http/src/phases/engine.rs:1"),
            ],
            branches: vec![Branch { samples: 20, frames: vec![frame("0x1234", "")] }],
            calls: vec![Call {
                name: "pread64".to_owned(),
                subject: Some("\"/data/x\"".to_owned()),
                time: ms(210),
                wchan: Some("folio_wait".to_owned()),
                frames: vec![frame("m::read", "crates/m.rs:5")],
            }],
            advice: vec!["do not".to_owned()],
            unknown: vec!["nothing".to_owned()],
        }
    }

    #[test]
    fn lines_are_in_the_documented_form() {
        let lines = sample().lines();
        let expected = [
            "stall 7: a task of loop 1 held its thread for 312 ms, handed over after 2 ms, while \
             content phase, location: \"/a\" in m::handler, client: 127.0.0.1, request: \"GET /a HTTP/1.1\"",
            "stall 7:   100 ms on a processor, 210 ms in system calls, 2 ms waiting for a processor, \
             25 samples",
            "stall 7:   all stacks lead through",
            "stall 7:     m::burn (crates/m.rs:9)",
            "stall 7:     m::handler (crates/m.rs:3)",
            "stall 7:   20 of 25 samples were then in",
            "stall 7:     0x1234",
            "stall 7:   210000 us in pread64 of \"/data/x\" (folio_wait)",
            "stall 7:     m::read (crates/m.rs:5)",
            "stall 7:   not known: nothing",
            "stall 7:   advice: do not",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn who_said_nothing_and_was_not_handed_over() {
        let report = Report {
            account: None,
            entry: None,
            handover: Handover::None,
            end: End::StillHeld,
            common: (0..20).map(|i| frame(&i.to_string(), "")).collect(),
            ..sample()
        };
        let lines = report.lines();
        assert_eq!(lines[0], "stall 7: a task of loop 1 held its thread for 312 ms so far, not handed over");
        assert_eq!(lines[15], "stall 7:     and 8 more");
        let place = Some(WorkPlace { name: "/b".to_owned(), step: "in the access phase" });
        let tagged = Report { place, ..report };
        let expected = ", while in the access phase, location: \"/b\"";
        assert_eq!(tagged.lines()[0], [&*lines[0], expected].concat());
    }
}
