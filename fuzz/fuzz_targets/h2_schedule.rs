//! Whatever a client says of priorities: streams that are ready have their turns. Of those with equal
//! priorities none is a turn behind another; with RFC 9218 a more urgent stream goes before all others; with
//! the tree of RFC 7540 there is always one whose turn it is.
#![no_main]

use std::collections::BTreeMap;

use clearway_h2::connection::{Connection, Event, Limits};
use clearway_h2::frame::{FrameHead, PREFACE, flag, kind};
use clearway_h2::request::{HeadLimits, HeadReader, Underscores, Unusual};
use clearway_h2::schedule::Urgency;
use clearway_message::RequestHead;

const STREAMS: u32 = 8;
/// Turns that are looked at: each stream has many, whatever its weight of 1 to 256.
const TURNS: usize = 8 * 256 * 4;
const PIECE_BYTES: usize = 1_000;

const LIMITS: Limits = Limits {
    streams: STREAMS,
    window_bytes: 1_000,
    head: HeadLimits {
        field_bytes: 200,
        head_bytes: 400,
        fields: 10,
        unusual: Unusual::Skipped,
        underscores: Underscores::Unusual,
    },
};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut connection = Connection::new(LIMITS);
    assert_eq!(connection.receive(&mut &PREFACE[..]), Ok(Event::Need));
    let ids = || (0..STREAMS).map(|at| 2 * at + 1);
    for id in ids() {
        say(&mut connection, kind::HEADERS, flag::END_HEADERS | 1, id, b"\x82\x87\x84\x41\x01a");
    }
    let (way, said) = input.split_first().unwrap_or((&0, b""));
    let mut urgencies: BTreeMap<u32, Urgency> = ids().map(|id| (id, Urgency::default())).collect();
    for chunk in said.chunks_exact(4).take(64) {
        let of = u32::from(chunk[0]) % STREAMS * 2 + 1;
        match way % 3 {
            0 => {}
            1 => {
                let value = format!("u={}{}", chunk[1] % 8, if chunk[2] % 2 == 0 { ", i" } else { "" });
                urgencies.insert(of, Urgency::parse(value.as_bytes()));
                let payload = [&of.to_be_bytes()[..], value.as_bytes()].concat();
                say(&mut connection, kind::PRIORITY_UPDATE, 0, 0, &payload);
            }
            _ => {
                let parent = u32::from(chunk[1]) % (2 * STREAMS + 2);
                if parent != of {
                    let exclusive = u32::from(chunk[2] & 1) << 31;
                    let payload = [&(parent | exclusive).to_be_bytes()[..], &[chunk[3]]].concat();
                    say(&mut connection, kind::PRIORITY, 0, of, &payload);
                }
            }
        }
    }
    let turns = turns(&mut connection, ids());
    match way % 3 {
        0 => are_equal(ids().map(|id| turns.get(&id).copied().unwrap_or_default())),
        1 => {
            let first = urgencies.values().map(|urgency| urgency.level()).min().unwrap_or_default();
            assert!(turns.keys().all(|id| urgencies[id].level() == first), "the most urgent go first");
            let of_first = |id: &u32| urgencies[id].level() == first && urgencies[id].is_incremental();
            are_equal(ids().filter(of_first).map(|id| turns.get(&id).copied().unwrap_or_default()));
        }
        _ => assert!(!turns.is_empty()),
    }
});

fn say(connection: &mut Connection, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let mut bytes = Vec::new();
    let length = u32::try_from(payload.len()).expect("it is short");
    FrameHead { length, kind, flags, stream }.push(&mut bytes);
    bytes.extend_from_slice(payload);
    connection.begin_read(bytes.len()).expect("they are few");
    let mut rest = &bytes[..];
    if let Event::Head(_, end) = connection.receive(&mut rest).expect("it is right") {
        let (mut text, mut head) = (Vec::new(), RequestHead::default());
        connection.read_head(&mut HeadReader::default(), end, (&mut text, &mut head)).expect("it is right");
    }
}

/// How many turns each has while all of them are ready all the time.
fn turns(connection: &mut Connection, ids: impl Iterator<Item = u32>) -> BTreeMap<u32, usize> {
    let mut turns = BTreeMap::new();
    ids.for_each(|id| connection.schedule().make_ready(id));
    for _ in 0..TURNS {
        let id = connection.schedule().next_ready().expect("they are ready");
        *turns.entry(id).or_default() += 1;
        connection.schedule().charge(id, PIECE_BYTES);
        connection.schedule().make_ready(id);
    }
    turns
}

fn are_equal(turns: impl Iterator<Item = usize>) {
    let turns: Vec<usize> = turns.collect();
    let (least, most) = (turns.iter().min(), turns.iter().max());
    assert!(least.zip(most).is_none_or(|(least, most)| most - least <= 1), "{turns:?}");
}
