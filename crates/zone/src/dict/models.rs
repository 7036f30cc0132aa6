//! Loom models of the rules of `dict.rs`.

use loom::sync::Arc;
use loom::thread;

use super::*;
use crate::models::model;
use crate::sync::AtomicU64;

const NOW: u64 = 1_000;
const PAGES: usize = 3;
const A: Key<'static> = Key { bytes: b"a", hash: 1 };
/// A key of the other stripe.
const B: Key<'static> = Key { bytes: b"b", hash: 1 << 32 | 1 };

/// Two processes have places; whatever a third one holds is nobody's.
struct Shared {
    words: Vec<AtomicU64>,
    last: AtomicU64,
    places: [AtomicU64; 2],
}

impl Shared {
    fn new() -> Arc<Self> {
        let bytes = PAGES * layout::PAGE_BYTES;
        Arc::new(Self {
            words: (0..Layout::new(bytes).words()).map(|_| AtomicU64::new(0)).collect(),
            last: AtomicU64::new(2),
            places: [AtomicU64::new(1 << 32 | 1), AtomicU64::new(2 << 32 | 2)],
        })
    }

    fn of(&self, worker: u32) -> Dict<'_> {
        let workers = Workers::new(&self.last, &self.places);
        let own = Worker::numbered(worker).expect("from 1");
        Dict::new(&self.words, PAGES * layout::PAGE_BYTES, 4, workers, own)
    }

    fn set(&self, worker: u32, key: &Key<'_>, value: Value<'_>) {
        let setting = Setting { mode: Mode::Set, room: Room::Safe, ttl_ms: 0, flags: 0 };
        assert_eq!(self.of(worker).store(key, Some(value), setting, NOW), Change::done(0));
    }

    fn get(&self, key: &Key<'_>) -> Option<(Got, Vec<u8>)> {
        let mut out = Vec::new();
        let found = self.of(1).get(key, NOW, &mut out)?;
        Some((found.got, out))
    }

    fn number(&self, key: &Key<'_>) -> Option<f64> {
        match self.get(key)? {
            (Got::Number(number), _) => Some(number),
            (got, _) => panic!("it is a number: {got:?}"),
        }
    }
}

/// Rule 4: a reader has a value whole, the old one or the new one.
#[test]
fn a_value_is_read_whole() {
    model(2, || {
        let shared = Shared::new();
        shared.set(1, &A, Value::Text(&[1; 16]));
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || {
            let (got, value) = other.get(&A).expect("it is there all the time");
            assert_eq!(got, Got::Text);
            assert!(value == [1; 16] || value == [2; 24], "{value:?}");
        });
        shared.set(2, &A, Value::Text(&[2; 24]));
        reader.join().expect("no panic");
        assert_eq!(shared.get(&A), Some((Got::Text, vec![2; 24])));
    });
}

/// Rule 5: sums that are made at once are both made.
#[test]
fn no_sum_is_lost() {
    model(2, || {
        let shared = Shared::new();
        shared.set(1, &A, Value::Number(1.0));
        let other = Arc::clone(&shared);
        let adder = thread::spawn(move || {
            assert!(other.of(2).incr(&A, 10.0, None, NOW).0.is_ok());
        });
        assert!(shared.of(1).incr(&A, 100.0, None, NOW).0.is_ok());
        adder.join().expect("no panic");
        assert_eq!(shared.number(&A), Some(111.0));
    });
}

/// Rules 1 and 5: a number that is set while it is added to is one of both in some order.
#[test]
fn a_sum_and_a_store_follow_each_other() {
    model(2, || {
        let shared = Shared::new();
        shared.set(1, &A, Value::Number(1.0));
        let other = Arc::clone(&shared);
        let adder = thread::spawn(move || other.of(2).incr(&A, 10.0, None, NOW).0.expect("it is there"));
        shared.set(1, &A, Value::Number(100.0));
        let sum = adder.join().expect("no panic");
        let is_in_order = match shared.number(&A) {
            Some(100.0) => sum == 11.0,
            Some(110.0) => sum == 110.0,
            _ => false,
        };
        assert!(is_in_order, "{sum}");
    });
}

/// Rule 3: what the dead had begun is taken back before anybody reads or changes it.
#[test]
fn a_change_of_the_dead_is_none() {
    model(2, || {
        let shared = Shared::new();
        shared.set(1, &A, Value::Number(1.0));
        let dead = shared.of(7);
        let mut held = dead.held(&A);
        let (place, _) = held.find(&A).expect("it is there");
        held.writer.unlink(place);
        held.writer.die();
        let other = Arc::clone(&shared);
        let reader = thread::spawn(move || assert_eq!(other.number(&A), Some(1.0)));
        shared.set(2, &B, Value::Number(2.0));
        reader.join().expect("no panic");
        assert_eq!((shared.number(&A), shared.number(&B)), (Some(1.0), Some(2.0)));
    });
}

/// Rule 3, of one that had only a stripe.
#[test]
fn a_stripe_of_the_dead_is_free() {
    model(2, || {
        let shared = Shared::new();
        shared.set(1, &A, Value::Number(1.0));
        let dead = shared.of(7);
        let stripe = dead.memory.try_stripe(layout::stripe_of(A.hash)).expect("it is free");
        let _dead = std::mem::ManuallyDrop::new(stripe);
        let other = Arc::clone(&shared);
        let adder = thread::spawn(move || assert!(other.of(2).incr(&A, 10.0, None, NOW).0.is_ok()));
        assert_eq!(shared.of(1).incr(&B, 1.0, Some((0.0, 0)), NOW).0, Ok(1.0));
        adder.join().expect("no panic");
        assert_eq!(shared.number(&A), Some(11.0));
    });
}
