//! Advice: the change that would have helped, if that is known. Short, and only conclusions from what was
//! seen.

use std::time::Duration;

use crate::report::{Call, Frame};

/// Calls that wait for a disk where a file is cold.
const FILE_CALLS: &[&str] = &[
    "read",
    "pread64",
    "preadv",
    "preadv2",
    "readv",
    "sendfile",
    "openat",
    "openat2",
    "open",
    "statx",
    "stat",
    "newfstatat",
    "getdents64",
    "unlinkat",
    "renameat2",
    "page fault",
];

/// The least part of a stall that is worth an advice: a half.
fn is_most(part: Duration, time: Duration) -> bool {
    part * 2 >= time
}

/// Looks for the known causes. `functions` are those of the hottest stack.
pub(crate) fn advise(time: Duration, on_cpu: Duration, hottest: &[Frame], calls: &[Call]) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(call) = calls.first().filter(|call| is_most(call.time, time)) {
        let is_socket = call.subject.as_ref().is_some_and(|subject| subject.starts_with("\"socket:"));
        if FILE_CALLS.contains(&&*call.name) && !is_socket {
            advice.push(
                "the file was not in memory: without \"aio off\" a thread pool would have waited for it"
                    .to_owned(),
            );
        }
        if call.name == "futex" {
            advice.push("a lock was held by another thread: its stacks would tell".to_owned());
        }
    }
    if is_most(on_cpu, time) {
        let has = |text: &str| hottest.iter().any(|frame| frame.function.contains(text));
        if has("pcre2") || has("regex") {
            advice.push(
                "an expression backtracks: make it unambiguous, or anchor it; what matches its beginning \
                 only need not be an expression"
                    .to_owned(),
            );
        }
        if has("deflate") || has("zlib_rs") || has("gzip") {
            advice.push("compression took the time: a lower gzip_comp_level, or gzip_static".to_owned());
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, subject: &str, ms: u64) -> Call {
        let subject = Some(subject.to_owned()).filter(|subject| !subject.is_empty());
        let time = Duration::from_millis(ms);
        Call { name: name.to_owned(), subject, time, wchan: None, frames: Vec::new() }
    }

    fn count(on_cpu_ms: u64, function: &str, calls: &[Call]) -> usize {
        let frame = Frame { function: function.to_owned(), place: None };
        advise(Duration::from_millis(100), Duration::from_millis(on_cpu_ms), &[frame], calls).len()
    }

    #[test]
    fn only_what_was_most_of_it() {
        assert_eq!(count(0, "x", &[call("pread64", "\"/data\"", 60)]), 1);
        assert_eq!(count(0, "x", &[call("pread64", "\"/data\"", 40)]), 0);
        assert_eq!(count(0, "x", &[call("read", "\"socket:[1]\"", 90)]), 0);
        assert_eq!(count(0, "x", &[call("clock_nanosleep", "", 90)]), 0);
        assert_eq!(count(90, "zlib_rs::deflate::slow", &[]), 1);
        assert_eq!(count(90, "pcre2_match_16", &[]), 1);
        assert_eq!(count(10, "pcre2_match_16", &[]), 0);
    }
}
