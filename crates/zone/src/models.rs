//! loom models of the rules of the table, of the store, of pages and of their workers: every interleaving
//! that loom finds with bounded preemptions. A key has four slots there. Run with `RUSTFLAGS="--cfg loom"
//! cargo test -p clearway-zone --release models`.

use loom::sync::Arc;
use loom::thread;

use crate::page::Page;
use crate::store::{CELL_BYTES, CELL_WORDS, DeathInStore, Store};
use crate::sync::AtomicU64;
use crate::table::{BUCKET_WORDS, Death, Entry, KeyHash, Table, Updated, bucket_words};
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

pub(crate) fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // A model that is played in one order proves nothing: it says so.
    let played = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&played);
    builder.check(move || {
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        check();
    });
    let played = played.load(std::sync::atomic::Ordering::Relaxed);
    assert!(played > 1, "the threads of this model do not meet");
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

/// Two processes have places; whatever a third one had taken is nobody's.
struct StoreMemory {
    words: Vec<AtomicU64>,
    last: AtomicU64,
    places: [AtomicU64; 2],
}

impl StoreMemory {
    /// Two buckets, and so many cells.
    fn new(cells: usize) -> Arc<Self> {
        let words = 1 + 2 * bucket_words(1) + cells * CELL_WORDS;
        Arc::new(Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            last: AtomicU64::new(2),
            places: [AtomicU64::new(1 << 32 | 1), AtomicU64::new(2 << 32 | 2)],
        })
    }

    fn of(&self, worker: u32) -> Store<'_> {
        let own = Worker::numbered(worker).expect("from 1");
        Store::new(&self.words, Workers::new(&self.last, &self.places), own)
    }

    fn value(&self, key: KeyHash) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        self.of(1).get(key, &mut out).map(|_| out)
    }
}

/// Values of two cells, of which all bytes are alike.
fn value(byte: u8) -> [u8; 2 * CELL_BYTES] {
    [byte; 2 * CELL_BYTES]
}

/// A reader has a value whole, the old one or a later one, while its cells become others'.
#[test]
fn a_value_is_read_whole_or_not_at_all() {
    model(2, || {
        let memory = StoreMemory::new(4);
        memory.of(1).put(X, 0, 1, &value(1)).expect("there is room");
        // The side that only reads is the thread: loom goes back to where its reads meet writes.
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || {
            let read = other.value(X).expect("it is there all the time");
            assert!([1, 2, 3].iter().any(|&byte| read == value(byte)), "{read:?}");
        });
        // The second one is written where the first one was.
        memory.of(2).put(X, 0, 1, &value(2)).expect("there is room");
        memory.of(2).put(X, 0, 1, &value(3)).expect("there is room");
        thread.join().expect("no panic");
        assert_eq!(memory.value(X).as_deref(), Some(&value(3)[..]));
    });
}

/// If two threads change a value at the same time, no change is lost, and no cell.
#[test]
fn changes_of_a_value_follow_each_other() {
    fn add(store: Store<'_>, amount: u8) {
        let change = |present: Option<&[u8]>, out: &mut Vec<u8>| {
            out.push(present.map_or(0, |present| present[0]) + amount);
            true
        };
        store.update(X, 0, 1, change).expect("few are in the way");
    }
    model(2, || {
        let memory = StoreMemory::new(4);
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || add(other.of(2), 1));
        add(memory.of(1), 10);
        thread.join().expect("no panic");
        assert_eq!(memory.value(X), Some(vec![11]));
        assert_eq!(memory.of(1).free_cells(), 3);
    });
}

/// What a process that died has taken others take, and what it has published stays.
#[test]
fn the_cells_of_the_dead_are_taken_unless_they_are_named() {
    for death in [DeathInStore::Taken, DeathInStore::Filled, DeathInStore::Published] {
        loom::model(move || {
            let memory = StoreMemory::new(5);
            memory.of(1).put(X, 0, 5, &[1]).expect("there is room");
            memory.of(7).die_while_keeping(X, &value(9), death);
            let other = Arc::clone(&memory);
            let thread = thread::spawn(move || other.of(2).put(Y, 0, 9, &value(2)).expect("room"));
            let expected = if death == DeathInStore::Published { value(9).to_vec() } else { vec![1] };
            assert!(memory.value(X).is_none_or(|found| found == expected));
            thread.join().expect("no panic");
            assert_eq!(memory.value(Y).as_deref(), Some(&value(2)[..]));
            assert_eq!(memory.value(X), Some(expected));
        });
    }
}

/// Where all cells are in use the key that matters least goes, and its cells are another one's, whole.
#[test]
fn a_full_store_forgets_whole_values() {
    model(2, || {
        let memory = StoreMemory::new(4);
        memory.of(1).put(X, 0, 1, &value(1)).expect("there is room");
        memory.of(1).put(LASTING[0], 0, 9, &value(3)).expect("there is room");
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || other.of(2).put(Y, 0, 8, &value(2)).expect("others go"));
        assert!(memory.value(X).is_none_or(|found| found == value(1)));
        assert!(memory.value(LASTING[0]).is_none_or(|found| found == value(3)));
        thread.join().expect("no panic");
        assert_eq!(memory.value(Y).as_deref(), Some(&value(2)[..]));
    });
}

/// All values of a slot are of one filling, whatever reader looks while they are put anew.
#[test]
fn values_of_a_slot_belong_together() {
    type Three<'a> = Table<'a, 3>;
    let put = |table: Three<'_>, value: u64| {
        let entry = Entry { payload: value, values: [value; 3] };
        table.put(X, 0, entry).expect("few are in the way");
    };
    model(2, move || {
        let words: Vec<AtomicU64> = (0..2 * bucket_words(3)).map(|_| AtomicU64::new(0)).collect();
        let words = Arc::new(words);
        put(Table::new(&words), 1);
        let other = Arc::clone(&words);
        let thread = thread::spawn(move || {
            // While it is put anew it is not there for a moment.
            if let Some(Entry { payload, values }) = Three::new(&other).read(X) {
                assert!(payload <= 2 && values == [payload; 3], "{payload} {values:?}");
            }
        });
        put(Table::new(&words), 2);
        thread.join().expect("no panic");
        assert_eq!(Three::new(&words).read(X), Some(Entry { payload: 2, values: [2; 3] }));
    });
}

/// A change of one value either holds or finds that the key has gone; it never changes another key's.
#[test]
fn a_value_that_is_changed_is_its_keys() {
    model(2, || {
        let words: Vec<AtomicU64> = (0..2 * bucket_words(1)).map(|_| AtomicU64::new(0)).collect();
        let words = Arc::new(words);
        let put = |words: &[AtomicU64], key, payload, value| {
            Table::<1>::new(words)
                .put(key, 0, Entry { payload, values: [value] })
                .expect("few are in the way")
        };
        put(&words, X, 1, 100);
        LASTING.iter().for_each(|&key| assert_eq!(put(&words, key, 9, 7), Updated::Inserted));
        let other = Arc::clone(&words);
        let thread = thread::spawn(move || put(&other, Y, 8, 200));
        let changed = Table::<1>::new(&words).update_value(X, 0, |value| Some(value + 1));
        thread.join().expect("no panic");
        let read = |key| Table::<1>::new(&words).read(key).map(|entry| entry.values[0]);
        assert_eq!(read(Y), Some(200));
        assert!(matches!(changed, Ok(None | Some(Updated::Changed))), "{changed:?}");
        assert!(LASTING.iter().all(|&key| read(key) == Some(7)));
    });
}

/// Words of a page whose halves hold a word of bytes each.
const PAGE_WORDS: usize = 2 + 2 * 2;

/// A reader has something that was written, and all of it, while a writer is two versions ahead and dies in
/// the third.
#[test]
fn a_page_is_read_whole() {
    model(3, || {
        let words: Arc<Vec<AtomicU64>> = Arc::new((0..PAGE_WORDS).map(|_| AtomicU64::new(0)).collect());
        Page::new(&words).write(&[1]);
        let same = Arc::clone(&words);
        let writer = thread::spawn(move || {
            let page = Page::new(&same);
            page.write(&[2; 2]);
            page.write(&[3; 3]);
            page.write_partly(&[4; 4]);
        });
        if let Some(read) = Page::new(&words).read() {
            let number = read.first().copied().expect("nothing is written that is empty");
            assert!((1..=3).contains(&number) && read == vec![number; number.into()], "{read:?}");
        }
        writer.join().expect("no panic");
        assert_eq!(Page::new(&words).read(), Some(vec![3; 3]));
    });
}
