//! loom models of the rules of the table and of its workers: every interleaving that loom finds with bounded
//! preemptions. A key has four slots there. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p clearway-zone --release models`.

use loom::sync::Arc;
use loom::thread;

use crate::sync::AtomicU64;
use crate::table::{BUCKET_WORDS, Death, KeyHash, Table, Updated};
use crate::workers::{Worker, Workers};

/// Two buckets, so that every key may be in each of their slots.
struct Memory(Vec<AtomicU64>);

impl Memory {
    fn new() -> Arc<Self> {
        Arc::new(Self((0..2 * BUCKET_WORDS).map(|_| AtomicU64::new(0)).collect()))
    }

    fn table(&self) -> Table<'_> {
        Table::new(&self.0)
    }
}

fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

const X: KeyHash = KeyHash::new([0x1000, 0x8000_0000_0000_1000]);
const Y: KeyHash = KeyHash::new([0x2000, 0x8000_0000_0000_2000]);
const LASTING: [KeyHash; 3] = [
    KeyHash::new([0x3000, 0x8000_0000_0000_3000]),
    KeyHash::new([0x4000, 0x8000_0000_0000_4000]),
    KeyHash::new([0x5000, 0x8000_0000_0000_5000]),
];

/// Adds to what is there, as a limit does.
fn add(table: Table<'_>, key: KeyHash, amount: u64) -> Updated {
    table.update(key, 0, |present| Some(present.unwrap_or(0) + amount)).expect("few are in the way")
}

/// Two that bring the same key at once: it is there once, and neither's change is lost.
#[test]
fn a_key_is_live_once() {
    model(3, || {
        let memory = Memory::new();
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || add(other.table(), X, 1));
        add(memory.table(), X, 10);
        thread.join().expect("no panic");
        assert_eq!(memory.table().get(X), Some(11));
        assert_eq!(memory.table().occurrences(X), 1);
    });
}

/// Two that bring different keys at once do not take each other's slot for good.
#[test]
fn two_keys_find_their_slots() {
    model(3, || {
        let memory = Memory::new();
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || add(other.table(), X, 1));
        add(memory.table(), Y, 2);
        thread.join().expect("no panic");
        assert_eq!((memory.table().get(X), memory.table().get(Y)), (Some(1), Some(2)));
    });
}

/// A change of a key that is being forgotten for another one changes nobody else.
#[test]
fn a_change_never_meets_another_key() {
    model(3, || {
        let memory = Memory::new();
        add(memory.table(), X, 1);
        LASTING.iter().for_each(|&key| assert_eq!(add(memory.table(), key, 5_000), Updated::Inserted));
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || add(other.table(), Y, 1));
        add(memory.table(), X, 100);
        thread.join().expect("no panic");
        let table = memory.table();
        // X was changed, then forgotten for Y, or forgotten first and has come back then.
        assert!(matches!(table.get(Y), None | Some(1)), "{:?}", table.get(Y));
        assert!(matches!(table.get(X), None | Some(100 | 101)), "{:?}", table.get(X));
        let lasting = LASTING.iter().filter_map(|&key| table.get(key));
        // One of them at most had to go, where X came back while Y was on its way.
        assert!(lasting.clone().count() >= 2 && lasting.clone().all(|payload| payload == 5_000));
    });
}

/// Three at once, two of them with the same key.
#[test]
fn three_at_once() {
    model(2, || {
        let memory = Memory::new();
        let threads = [(X, 1), (Y, 2)].map(|(key, amount)| {
            let other = Arc::clone(&memory);
            thread::spawn(move || add(other.table(), key, amount))
        });
        add(memory.table(), X, 10);
        for thread in threads {
            thread.join().expect("no panic");
        }
        assert_eq!((memory.table().get(X), memory.table().get(Y)), (Some(11), Some(2)));
        assert_eq!(memory.table().occurrences(X), 1);
    });
}

/// What a process that died has reserved is found by the next one, whose key gets there.
#[test]
fn the_reservation_of_the_dead_is_nobodys() {
    model(3, || {
        let memory = Memory::new();
        memory.table().die_while_filling(LASTING[0], Death::HalfAKey);
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || add(other.table(), X, 1));
        add(memory.table(), Y, 2);
        thread.join().expect("no panic");
        assert_eq!((memory.table().get(X), memory.table().get(Y)), (Some(1), Some(2)));
        assert_eq!(memory.table().get(LASTING[0]), None);
    });
}

/// Processes that come at once: what one of them takes for the smallest number is not above that of another,
/// whose counts would stand in slots that seem to be free.
#[test]
fn the_oldest_worker_is_no_younger_than_any() {
    struct Places {
        last: AtomicU64,
        places: [AtomicU64; 2],
    }
    fn enlist_and_look(shared: &Places, pid: u32) -> (Worker, Worker) {
        let workers = Workers::new(&shared.last, &shared.places);
        let own = workers.enlist(pid).expect("there are as many places");
        (own, workers.all().fold(own, Ord::min))
    }
    model(3, || {
        let places = [AtomicU64::new(0), AtomicU64::new(0)];
        let shared = Arc::new(Places { last: AtomicU64::new(4), places });
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || enlist_and_look(&other, 7));
        let (here, oldest_here) = enlist_and_look(&shared, 8);
        let (there, oldest_there) = thread.join().expect("no panic");
        assert_ne!(here, there);
        assert!(oldest_here <= there && oldest_there <= here, "{oldest_here:?} {oldest_there:?}");
    });
}
