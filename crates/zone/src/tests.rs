//! The table against a plain sequential model, its capacity, threads against each other, and slots that
//! a process has left half filled.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;

use crate::header::HEADER_WORDS;
use crate::slot::VALUE_MAX;
use crate::store::{CELL_BYTES, DeathInStore, Store, Unkept};
use crate::table::{BUCKET_WORDS, Death, Entry, KeyHash, Table, Updated, WAYS, bucket_words};
use crate::workers::{Worker, Workers};

const MIB_WORDS: usize = (1 << 20) / size_of::<u64>();

fn memory(words: usize) -> Vec<AtomicU64> {
    (0..words).map(|_| AtomicU64::new(0)).collect()
}

/// Two buckets: every key may be in any of their slots.
fn small() -> Vec<AtomicU64> {
    memory(2 * BUCKET_WORDS)
}

/// Stands for the keyed hash of a number (splitmix64).
fn key(number: u64) -> KeyHash {
    let mix = |seed: u64| {
        let z = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    KeyHash::new([mix(2 * number + 1), mix(2 * number + 2)])
}

fn put(table: Table<'_>, number: u64, payload: u64) -> Updated {
    table.update(key(number), 0, |_| Some(payload)).expect("few are in the way")
}

#[test]
fn a_key_is_kept_and_changed() {
    let words = small();
    let table = <Table<'_>>::new(&words);
    assert_eq!(table.get(key(1)), None);
    assert_eq!(put(table, 1, 5), Updated::Inserted);
    assert_eq!(table.update(key(1), 0, |present| present.map(|payload| payload + 1)), Ok(Updated::Changed));
    assert_eq!(table.update(key(1), 0, |_| None), Ok(Updated::Unchanged));
    assert_eq!(table.update(key(2), 0, |present| present), Ok(Updated::Unchanged));
    assert_eq!((table.get(key(1)), table.get(key(2))), (Some(6), None));
}

/// The capacity that the documentation of `Zone::table` promises for a zone of 1 MiB; nginx keeps 16,384
/// states of 64 bytes there.
#[test]
fn a_mebibyte_has_room() {
    let words = memory(MIB_WORDS - HEADER_WORDS);
    let table = <Table<'_>>::new(&words);
    assert_eq!(table.slots(), 43_648);
    let evicted = |number| put(table, number, 1 + number) == Updated::Evicted;
    let first = (0..100_000).find(|&number| evicted(number)).unwrap();
    assert!(first > 30_000, "the first key that had to go for another one came with number {first}");
    assert!((0..first).filter(|&number| table.get(key(number)).is_some()).count() as u64 >= first - 1);
}

#[test]
fn the_smallest_payload_goes_first() {
    let words = small();
    let table = <Table<'_>>::new(&words);
    let all = 2 * WAYS as u64;
    for number in 0..all {
        assert_eq!(put(table, number, 100 + number), Updated::Inserted);
    }
    assert_eq!(put(table, 1000, 500), Updated::Evicted);
    assert_eq!((table.get(key(0)), table.get(key(1))), (None, Some(101)));
    // A slot with a payload below the threshold counts as free: its key is not reported as evicted.
    assert_eq!(table.update(key(1001), 103, |_| Some(500)), Ok(Updated::Inserted));
    let left = (1..3).filter(|&number| table.get(key(number)).is_some()).count();
    assert_eq!((left, table.get(key(3))), (1, Some(103)));
}

#[test]
fn what_a_dead_process_has_left_is_used_again() {
    for death in [Death::Reserved, Death::HalfAKey, Death::WholeKey] {
        let words = small();
        let table = <Table<'_>>::new(&words);
        for number in 0..2 * WAYS as u64 {
            put(table, number, 100 + number);
        }
        // In the place of key 0.
        table.die_while_filling(key(1000), death);
        assert_eq!((table.get(key(1000)), table.get(key(0))), (None, None), "{death:?}");
        assert_eq!(table.get(key(1)), Some(101), "{death:?}");
        // The next key evicts another one, and frees the slot that the dead process had reserved ...
        assert_eq!(put(table, 1001, 500), Updated::Evicted, "{death:?}");
        // ... for the next request.
        assert_eq!(put(table, 1000, 600), Updated::Inserted, "{death:?}");
        assert_eq!((table.get(key(1000)), table.get(key(1001))), (Some(600), Some(500)), "{death:?}");
        assert_eq!((table.get(key(1)), table.get(key(2))), (None, Some(102)), "{death:?}");
    }
}

#[test]
fn no_change_is_lost_among_eight_threads() {
    const KEYS: u64 = 100;
    let words = memory(64 * BUCKET_WORDS);
    let table = <Table<'_>>::new(&words);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for number in (0..KEYS).cycle().take(20_000) {
                    table.update(key(number), 0, |present| Some(present.unwrap_or(0) + 1)).unwrap();
                }
            });
        }
    });
    for number in 0..KEYS {
        assert_eq!(table.get(key(number)), Some(8 * 200), "{number}");
        assert_eq!(table.occurrences(key(number)), 1, "{number}");
    }
}

/// Far more keys than slots: a payload says whose it is, and no thread ever meets that of another key.
#[test]
fn eight_threads_in_a_full_table() {
    const KEYS: u64 = 200;
    let words = small();
    let table = <Table<'_>>::new(&words);
    let inserted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let inserted = &inserted;
            scope.spawn(move || {
                for turn in 0..20_000_u64 {
                    let number = (turn * (2 * thread + 1) + turn / 7) % KEYS;
                    let updated = table.update(key(number), 0, |present| {
                        assert!(present.is_none_or(|payload| payload % KEYS == number), "whose is it?");
                        Some(present.unwrap_or(number) + KEYS)
                    });
                    inserted.fetch_add(u64::from(updated != Ok(Updated::Changed)), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(inserted.load(Ordering::Relaxed) > 1000, "it was full, so that keys came and went");
    let found: usize = (0..KEYS).map(|number| table.occurrences(key(number))).sum();
    assert!(found <= table.slots() && (0..KEYS).all(|number| table.occurrences(key(number)) <= 1));
}

#[derive(Clone, Copy, Debug)]
struct Op {
    number: u64,
    payload: u64,
    free_below: u64,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = (0..40_u64, 1..1000_u64, 0..300_u64);
    prop::collection::vec(
        op.prop_map(|(number, payload, free_below)| Op { number, payload, free_below }),
        1..100,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any sequence of calls a key has the payload that was put last, or is forgotten. Keys are
    /// forgotten only when a new key needs room and no slot is free: the one with the smallest payload goes.
    #[test]
    fn as_a_map_that_forgets(ops in ops()) {
        let words = small();
        let table = <Table<'_>>::new(&words);
        let mut model: HashMap<u64, u64> = HashMap::new();
        for op in ops {
            let updated = table.update(key(op.number), op.free_below, |present| {
                assert_eq!(present, model.get(&op.number).copied());
                Some(op.payload)
            });
            let was_there = model.contains_key(&op.number);
            let gone: Vec<u64> =
                model.keys().copied().filter(|&number| table.get(key(number)).is_none()).collect();
            let forgotten: Option<u64> = gone.first().and_then(|number| model.remove(number));
            prop_assert!(gone.len() <= 1, "{gone:?}");
            match updated {
                Ok(Updated::Changed) => prop_assert!(was_there && forgotten.is_none()),
                Ok(Updated::Inserted) => {
                    prop_assert!(!was_there && forgotten.is_none_or(|payload| payload < op.free_below));
                }
                Ok(Updated::Evicted) => {
                    let smallest = model.values().copied().min().unwrap_or(u64::MAX);
                    prop_assert!(!was_there && forgotten.is_some_and(|payload| payload <= smallest));
                    prop_assert!(forgotten.is_some_and(|payload| payload >= op.free_below));
                }
                other => prop_assert!(false, "{other:?}"),
            }
            model.insert(op.number, op.payload);
            prop_assert!(model.len() <= table.slots());
            for (&number, &payload) in &model {
                prop_assert_eq!(table.get(key(number)), Some(payload));
            }
        }
    }
}

/// 37 words for each of a hundred cells and their slots: enough to be full, and small enough to be seen
/// whole.
fn store_memory() -> (Vec<AtomicU64>, AtomicU64, [AtomicU64; 2]) {
    (memory(4096), AtomicU64::new(2), [AtomicU64::new(1 << 32 | 1), AtomicU64::new(2 << 32 | 2)])
}

fn store<'a>(
    (words, last, places): &'a (Vec<AtomicU64>, AtomicU64, [AtomicU64; 2]),
    worker: u32,
) -> Store<'a> {
    Store::new(words, Workers::new(last, places), Worker::numbered(worker).expect("from 1"))
}

fn value(store: Store<'_>, number: u64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    store.get(key(number), &mut out).map(|_| out)
}

/// A text that repeats the number of its key, so that a mixture of two texts is seen.
fn text(number: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number as usize * 31 + at) as u8).collect()
}

#[test]
fn values_of_any_length_are_kept_changed_and_forgotten() {
    let memory = store_memory();
    let (one, other) = (store(&memory, 1), store(&memory, 2));
    for len in [0, 1, 7, 8, CELL_BYTES - 1, CELL_BYTES, CELL_BYTES + 1, 9 * CELL_BYTES] {
        assert!(one.put(key(1), 0, 5, &text(1, len)).is_ok());
        assert_eq!(value(other, 1), Some(text(1, len)), "{len} bytes");
    }
    let mut out = b"in front ".to_vec();
    assert_eq!(other.get(key(1), &mut out), Some(5));
    assert!(out.starts_with(b"in front ") && out.len() == 9 + 9 * CELL_BYTES);
    let append = |present: Option<&[u8]>, out: &mut Vec<u8>| {
        out.extend_from_slice(present.unwrap_or(b"none"));
        out.push(b'!');
        true
    };
    assert_eq!(one.update(key(2), 0, 7, append), Ok(Updated::Inserted));
    assert_eq!(other.update(key(2), 0, 8, append), Ok(Updated::Changed));
    assert_eq!((value(one, 2).as_deref(), one.get(key(2), &mut Vec::new())), (Some(&b"none!!"[..]), Some(8)));
    assert_eq!(other.update(key(2), 0, 9, |_, _| false), Ok(Updated::Unchanged));
    assert!(other.remove(key(2)) && !one.remove(key(2)) && value(one, 2).is_none());
    let large = vec![0; one.capacity_bytes() / 8 + CELL_BYTES];
    assert_eq!(one.put(key(3), 0, 1, &large), Err(Unkept::TooLarge));
    assert_eq!(one.free_cells() * CELL_BYTES, one.capacity_bytes() - 9 * CELL_BYTES, "nothing is lost");
}

#[test]
fn a_store_that_is_full_forgets_what_matters_least() {
    let memory = store_memory();
    let store = store(&memory, 1);
    let count = 4 * (store.capacity_bytes() / CELL_BYTES) as u64;
    for number in 1..=count {
        assert!(store.put(key(number), 0, number, &text(number, 50)).is_ok());
        assert_eq!(value(store, number), Some(text(number, 50)));
    }
    let kept =
        (1..=count).filter(|&number| value(store, number).is_some_and(|found| found == text(number, 50)));
    let (kept, sum) = kept.fold((0, 0), |(kept, sum), number| (kept + 1, sum + number));
    assert!(kept * 10 > count / 4 * 8, "{kept} of {} cells are in use", count / 4);
    assert!(sum / kept > count * 3 / 4, "those that were put last mostly: on average number {}", sum / kept);
}

/// Wherever in a change a process dies, other processes can use the store, and no cell is lost.
#[test]
fn a_writer_that_dies_loses_its_change_and_nothing_else() {
    let memory = store_memory();
    let (living, dead) = (store(&memory, 1), store(&memory, 9));
    living.put(key(1), 0, 5, &text(1, 500)).unwrap();
    let free = living.free_cells();
    for death in [DeathInStore::Taken, DeathInStore::Filled] {
        dead.die_while_keeping(key(1), &text(2, 700), death);
        dead.die_while_keeping(key(7), &text(3, 700), death);
        assert_eq!((value(living, 1), value(living, 7)), (Some(text(1, 500)), None));
        assert_eq!(living.free_cells(), free);
    }
    dead.die_while_keeping(key(1), &text(2, 500), DeathInStore::Published);
    assert_eq!((value(living, 1), living.free_cells()), (Some(text(2, 500)), free));
    for number in 10..500 {
        living.put(key(number), 0, 1, &text(number, 100)).unwrap();
    }
    assert_eq!(value(living, 1), Some(text(2, 500)), "what it had published is as good as any other");
    // A process that lives and is slow keeps what it has taken.
    let slow = store(&memory, 2);
    let free = living.free_cells();
    slow.die_while_keeping(key(8), &text(2, 500), DeathInStore::Filled);
    assert!(living.free_cells() + 3 <= free.max(3), "{free}");
}

/// Many threads change values in a store that is always full: each value that is read is a whole one.
#[test]
fn values_are_whole_whoever_changes_them() {
    let memory = store_memory();
    let rounds = if cfg!(miri) { 20 } else { 4_000 };
    std::thread::scope(|scope| {
        for worker in [1, 2, 1] {
            let store = store(&memory, worker);
            scope.spawn(move || {
                for round in 0..rounds {
                    let number = (round * 7 + u64::from(worker)) % 40;
                    let whole = |text: &[u8]| text.iter().all(|byte| *byte == text[0]);
                    if let Some(found) = value(store, number) {
                        assert!(whole(&found) && found.len() % 97 == 1, "{} bytes", found.len());
                    }
                    let len = 1 + 97 * (round as usize % 19);
                    // Where all threads are in each other's way the value is not kept.
                    let _ = store.put(key(number), 0, 1 + round, &vec![round as u8; len]);
                }
            });
        }
    });
    assert!((0..40).any(|number| value(store(&memory, 1), number).is_some()));
}

#[test]
fn values_beside_a_payload_are_kept_put_anew_and_changed() {
    let words = memory(2 * bucket_words(5));
    let table = Table::<5>::new(&words);
    assert_eq!((table.slots(), table.read(key(1))), (2 * WAYS, None));
    let entry = Entry { payload: 9, values: [1, 2, 3, VALUE_MAX, 0] };
    assert_eq!(table.put(key(1), 0, entry), Ok(Updated::Inserted));
    assert_eq!((table.read(key(1)), table.get(key(1))), (Some(entry), Some(9)));
    assert_eq!(table.update(key(1), 0, |present| present.map(|payload| payload + 1)), Ok(Updated::Changed));
    assert_eq!(table.update_value(key(1), 4, |value| Some(value + 7)), Ok(Some(Updated::Changed)));
    assert_eq!(table.update_value(key(1), 3, |_| None), Ok(Some(Updated::Unchanged)));
    assert_eq!(table.update_value(key(2), 3, |_| Some(1)), Ok(None));
    let changed = Entry { payload: 10, values: [1, 2, 3, VALUE_MAX, 7] };
    assert_eq!(table.read(key(1)), Some(changed));
    assert_eq!(table.put(key(1), 0, entry), Ok(Updated::Changed));
    assert_eq!((table.read(key(1)), table.occurrences(key(1))), (Some(entry), 1));
    table.die_while_filling(key(3), Death::HalfAKey);
    assert!(table.read(key(3)).is_none() && table.remove(key(1)) && table.read(key(1)).is_none());
}

#[test]
fn all_slots_can_be_looked_at() {
    let words = memory(10 * bucket_words(2));
    let table = Table::<2>::new(&words);
    for n in 1..=20 {
        table.put(key(n), 0, Entry { payload: n, values: [n, 2 * n] }).unwrap();
    }
    assert!(table.remove(key(7)));
    let all = (0..=table.slots()).filter_map(|number| table.at(number));
    let mut seen: Vec<u64> = all
        .map(|(halves, Entry { payload, values })| {
            assert_eq!(values, [payload, 2 * payload]);
            assert_eq!(halves, key(payload).halves().map(|half| half & !0xff));
            payload
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (1..=20).filter(|&n| n != 7).collect::<Vec<_>>());
}

#[test]
fn pages_that_were_never_used_are_not_looked_at() {
    let words = memory(64 * 512);
    let table = Table::<5>::with_marks(&words);
    let plain = Table::<5>::new(&words).slots();
    assert!(table.slots() < plain && table.slots() > plain * 99 / 100, "{} of {plain}", table.slots());
    let put = |n| table.put(key(n), 0, Entry { payload: n, values: [n; 5] }).unwrap();
    put(1);
    put(2);
    // Memory of another page that only looks like slots in use is not read: the page has no mark.
    let marked = words[..8].iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>();
    assert!(marked == 1 || marked == 2, "{marked}");
    let seen = || (0..=table.slots()).filter_map(|number| table.at(number)).count();
    assert_eq!(seen(), 2);
    words[..8].iter().for_each(|word| word.store(0, Ordering::Relaxed));
    assert_eq!((seen(), table.read(key(1)).is_some()), (0, true), "marks alone say where to look");
    (3..2000).for_each(|n| _ = put(n));
    words[..8].iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    assert_eq!(seen(), 1999);
}
