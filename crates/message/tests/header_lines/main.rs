//! Any edits of received header lines come to what they come to on a list of owned lines.

mod model;

use model::{Edit, check};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn name() -> impl Strategy<Value = Vec<u8>> {
    let usual = select(vec!["Set-Cookie", "set-cookie", "Range", "RANGE", "X-A", "x-a", "X-B", "Host"]);
    prop_oneof![
        usual.prop_map(|name| name.as_bytes().to_vec()),
        "[A-Za-z-]{1,12}".prop_map(String::into_bytes)
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof!["[!-~]{0,20}".prop_map(String::into_bytes), vec(select(b"ab \r\n\0:".to_vec()), 0..6)]
}

fn received() -> impl Strategy<Value = model::Received> {
    let between = select(vec![": ", ": ", ": ", ":", ":  ", " : "]);
    let end = select(vec!["\r\n", "\r\n", "\r\n", "\n", " \r\n"]);
    (name(), between, "[!-~]{0,20}".prop_map(String::into_bytes), end)
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (name(), value()).prop_map(|(name, value)| Edit::Add(name, value)),
        (name(), value()).prop_map(|(name, value)| Edit::Set(name, value)),
        name().prop_map(Edit::Remove),
        (name(), value(), 0..60_usize).prop_map(|(name, more, max)| Edit::Replace(name, more, max)),
        // What makes the buffer grow beyond what is compacted.
        (name(), 1000..3000_usize).prop_map(|(name, len)| Edit::Set(name, vec![b'l'; len])),
    ]
}

proptest! {
    #[test]
    fn edits_are_those_of_a_list(received in vec(received(), 0..12), edits in vec(edit(), 0..40)) {
        check(&received, &edits);
    }
}
