//! Header lines under any edits: the same as a list of owned ones, and no line is ever split. The input is a
//! program of edits, one each for a byte that chooses it and two texts that end with a line feed.
#![no_main]

#[path = "../../crates/message/tests/header_lines/model.rs"]
mod model;

use libfuzzer_sys::fuzz_target;
use model::{Edit, Received, check};

fuzz_target!(|input: &[u8]| {
    let (mut received, mut edits): (Vec<Received>, Vec<Edit>) = (Vec::new(), Vec::new());
    let mut parts = input.split(|&byte| byte == b'\n');
    while let (Some(first), Some(value)) = (parts.next(), parts.next()) {
        let Some((&choice, name)) = first.split_first() else { break };
        let (name, value) = (name.to_vec(), value.to_vec());
        match choice % 8 {
            0..=2 if !edits.is_empty() || name.iter().chain(&value).any(|byte| b"\r\0".contains(byte)) => {
                edits.push(Edit::Add(name, value));
            }
            0 => received.push((name, ": ", value, "\r\n")),
            1 => received.push((name, ":", value, "\r\n")),
            2 => received.push((name, ": ", value, "\n")),
            3 | 4 => edits.push(Edit::Set(name, value)),
            5 => edits.push(Edit::Remove(name)),
            6 => edits.push(Edit::Replace(name, value, usize::from(choice))),
            _ => edits.push(Edit::Add(name, [value, vec![0; usize::from(choice) * 16]].concat())),
        }
    }
    let sent = check(&received, &edits);
    let ends = sent.windows(2).filter(|end| end == b"\r\n").count();
    assert_eq!(sent.iter().filter(|byte| b"\r\n\0".contains(byte)).count(), 2 * ends);
});
