//! Dictionaries against what they are meant to be: a simple model, nginx's room, and processes that die.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test may block, and fails there")]

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Zone, Zones};

const NOW: u64 = 1_000_000;

fn open(bytes: u64) -> (Zones, Arc<Zone>) {
    let zones = Zones::create(None);
    let zone = zones.declare_dict(b"dogs", bytes, "lua").unwrap();
    zones.open().unwrap();
    (zones, zone)
}

fn setting(mode: Mode, room: Room) -> Setting {
    Setting { mode, room, ttl_ms: 0, flags: 0 }
}

fn set(zone: &Zone, key: &[u8], value: &[u8]) -> Change {
    let dict = zone.dict().unwrap();
    dict.store(&zone.dict_key(key), Some(Value::Text(value)), setting(Mode::Set, Room::Force), NOW)
}

fn safe_set(zone: &Zone, key: &[u8], value: &[u8]) -> Change {
    let dict = zone.dict().unwrap();
    dict.store(&zone.dict_key(key), Some(Value::Text(value)), setting(Mode::Set, Room::Safe), NOW)
}

fn delete(zone: &Zone, key: &[u8]) {
    let dict = zone.dict().unwrap();
    let change = dict.store(&zone.dict_key(key), None, setting(Mode::Set, Room::Force), NOW);
    assert_eq!(change, Change::done(0));
}

fn get(zone: &Zone, key: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let found = zone.dict().unwrap().get(&zone.dict_key(key), NOW, &mut out)?;
    assert_eq!(found.got, Got::Text);
    (!found.is_stale(NOW)).then_some(out)
}

fn keys(zone: &Zone) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    zone.dict().unwrap().keys(0, NOW, |key| keys.push(key.to_vec()));
    keys
}

/// The first case of upstream's 126-shdict-frag.t: what fits where, as nginx's slab has it.
#[test]
fn large_values_have_nginxs_pages() {
    let (_zones, zone) = open(20 * 1024);
    for turn in 0..2 {
        let foo = set(&zone, b"foo", &[b'a'; 4000]);
        assert_eq!((foo.result, foo.evicted > 0), (Ok(()), turn > 0));
        assert_eq!(set(&zone, b"bar", &[b'b'; 4001]), Change::done(0));
        assert!(set(&zone, b"baz", &[b'c'; 8102]).evicted > 0);
        assert_eq!((get(&zone, b"foo"), get(&zone, b"bar")), (None, None));
        assert_eq!(get(&zone, b"baz"), Some(vec![b'c'; 8102]));
    }
}

/// Its third: blocks that are freed join with those before and behind.
#[test]
fn free_pages_join() {
    let (_zones, zone) = open(25 * 1024);
    for _ in 0..2 {
        set(&zone, b"foo", &[b'a'; 4000]);
        set(&zone, b"bar", &[b'b'; 4001]);
        set(&zone, b"baz", &[b'c'; 4002]);
        delete(&zone, b"foo");
        assert_eq!(safe_set(&zone, b"blah", &[b'a'; 8100]).result, Err(Refusal::NoMemory));
        delete(&zone, b"baz");
        assert_eq!(safe_set(&zone, b"blah", &[b'a'; 8100]).result, Err(Refusal::NoMemory));
        delete(&zone, b"bar");
        assert_eq!(safe_set(&zone, b"blah", &[b'a'; 12_010]).result, Ok(()));
        delete(&zone, b"blah");
    }
    assert_eq!(zone.dict().unwrap().free_bytes(), 3 * 4096);
}

#[test]
fn the_oldest_goes_where_there_is_no_room() {
    let (_zones, zone) = open(12 * 1024);
    let name = |number: usize| format!("key{number:03}").into_bytes();
    let first = (0..).find(|&number| set(&zone, &name(number), b"x").evicted > 0).unwrap();
    assert_eq!(first, 31, "a page of 128 bytes each, of which nginx has one");
    assert_eq!(get(&zone, &name(0)), None);
    // What is read is young again.
    assert!(get(&zone, &name(1)).is_some());
    assert_eq!(set(&zone, b"another", b"x").evicted, 1);
    assert!(get(&zone, &name(1)).is_some());
    assert_eq!(get(&zone, &name(2)), None);
    assert_eq!(safe_set(&zone, b"one more", b"x").result, Err(Refusal::NoMemory));
    assert_eq!(keys(&zone).len(), 31);
}

#[test]
fn what_has_expired_is_stale_until_its_room_is_needed() {
    let (_zones, zone) = open(100 * 1024);
    let dict = zone.dict().unwrap();
    let key = zone.dict_key(b"a");
    let short = Setting { ttl_ms: 10, flags: 7, ..setting(Mode::Set, Room::Force) };
    assert_eq!(dict.store(&key, Some(Value::Number(1.5)), short, NOW), Change::done(0));
    let found = dict.get(&key, NOW, &mut Vec::new()).unwrap();
    assert_eq!((found.got, found.flags, found.expires_ms), (Got::Number(1.5), 7, NOW + 10));
    assert!(!found.is_stale(NOW + 9) && found.is_stale(NOW + 10));
    assert!(dict.set_ttl(&key, 0, NOW + 11));
    assert_eq!(dict.expires_ms(&key), Some(0));
    dict.flush_all(NOW);
    assert_eq!(dict.expires_ms(&key), None, "of three the oldest go");
    for name in [b"1", b"2", b"3", b"4", b"5"] {
        set(&zone, name, b"x");
    }
    dict.flush_all(NOW);
    assert_eq!(
        (dict.expires_ms(&zone.dict_key(b"3")), dict.expires_ms(&zone.dict_key(b"4"))),
        (None, Some(1))
    );
    assert_eq!(get(&zone, b"5"), None);
    assert!(keys(&zone).is_empty());
    assert_eq!(dict.flush_expired(1, NOW), 1);
    assert_eq!(dict.flush_expired(0, NOW), 1);
}

#[test]
fn numbers_are_added_to() {
    let (_zones, zone) = open(100 * 1024);
    let dict = zone.dict().unwrap();
    let key = zone.dict_key(b"n");
    assert_eq!(dict.incr(&key, 1.0, None, NOW).0, Err(Refusal::NotFound));
    assert_eq!(dict.incr(&key, 1.0, Some((10.0, 5)), NOW).0, Ok(11.0));
    assert_eq!(dict.incr(&key, 0.5, None, NOW).0, Ok(11.5));
    assert_eq!(dict.incr(&key, 1.0, None, NOW + 5).0, Err(Refusal::NotFound));
    assert_eq!(dict.incr(&key, 1.0, Some((0.0, 0)), NOW + 5).0, Ok(1.0));
    set(&zone, b"n", b"text");
    assert_eq!(dict.incr(&key, 1.0, Some((0.0, 0)), NOW).0, Err(Refusal::NotNumber));
}

#[test]
fn a_zone_keeps_its_dictionary() {
    let (first, zone) = open(100 * 1024);
    set(&zone, b"a", b"value");
    let second = Zones::create(Some(&first));
    let same = second.declare_dict(b"dogs", 100 * 1024, "lua").unwrap();
    second.open().unwrap();
    assert_eq!(get(&same, b"a").as_deref(), Some(&b"value"[..]));
}

/// Another process, as far as a dictionary can tell.
fn as_another<'z>(zone: &'z Zone, pid: u32) -> Dict<'z> {
    let own = zone.workers().enlist(pid).unwrap();
    let mut dict = zone.dict().unwrap();
    dict.memory.own = own;
    dict
}

#[test]
fn the_dead_lose_the_change_that_they_were_making() {
    const OTHER: u32 = 1 << 30;
    let (zones, zone) = open(100 * 1024);
    set(&zone, b"a", b"one");
    set(&zone, b"b", b"two");
    let free = zone.dict().unwrap().free_bytes();
    for words in 0..20 {
        let other = as_another(&zone, OTHER);
        let key = zone.dict_key(b"a");
        let mut held = other.held(&key);
        // A removal and something new, of which so many words get written.
        let (place, _) = held.find(&key).unwrap();
        held.writer.alloc(5_000).unwrap();
        held.writer.unlink(place);
        let journal = held.writer.read(layout::JOURNAL_LEN_AT) as usize;
        // As if it had come so far: the later ones are what they were.
        for entry in (words.min(journal)..journal).rev() {
            let at = held.writer.read(layout::JOURNAL_AT + 2 * entry) as usize;
            held.writer.fill(at, held.writer.read(layout::JOURNAL_AT + 2 * entry + 1));
        }
        held.writer.fill(layout::JOURNAL_LEN_AT, words.min(journal) as u64);
        held.writer.die();
        zones.forget_worker(OTHER);
        assert_eq!(get(&zone, b"a").as_deref(), Some(&b"one"[..]), "after {words} words");
        assert_eq!(get(&zone, b"b").as_deref(), Some(&b"two"[..]));
        assert_eq!(zone.dict().unwrap().free_bytes(), free);
        assert_eq!(set(&zone, b"a", b"one"), Change::done(0));
    }
}

#[test]
fn threads_change_different_keys_and_the_same_one() {
    let (_zones, zone) = open(64 * 1024);
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let zone = &zone;
            scope.spawn(move || {
                for round in 0..2_000_u32 {
                    let dict = zone.dict().unwrap();
                    dict.incr(&zone.dict_key(b"all"), 1.0, Some((0.0, 0)), NOW).0.unwrap();
                    let key = [b'k', thread, (round % 50) as u8];
                    set(zone, &key, &vec![thread; (round % 700) as usize]);
                    if let Some(value) = get(zone, &[b'k', thread ^ 1, (round % 50) as u8]) {
                        assert!(value.iter().all(|&byte| byte == thread ^ 1));
                    }
                }
            });
        }
    });
    let found = zone.dict().unwrap().get(&zone.dict_key(b"all"), NOW, &mut Vec::new());
    assert!(found.is_none_or(|found| matches!(found.got, Got::Number(sum) if sum <= 8_000.0)));
}

#[derive(Clone, Debug)]
enum Step {
    Set(u8, u16, u64),
    Add(u8, u16),
    Replace(u8, u16),
    Delete(u8),
    Incr(u8),
    Push(u8, bool, u16),
    Pop(u8, bool),
    Ttl(u8, u64),
    FlushAll,
    FlushExpired,
    Later(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..6_u8;
    let ttl = || prop_oneof![Just(0), 1..50_u64];
    let len = || prop_oneof![0..300_u16, 3_000..6_000_u16];
    prop_oneof![
        4 => (key(), len(), ttl()).prop_map(|(key, len, ttl)| Step::Set(key, len, ttl)),
        1 => (key(), len()).prop_map(|(key, len)| Step::Add(key, len)),
        1 => (key(), len()).prop_map(|(key, len)| Step::Replace(key, len)),
        2 => key().prop_map(Step::Delete),
        2 => key().prop_map(Step::Incr),
        3 => (key(), any::<bool>(), 0..300_u16).prop_map(|(key, left, len)| Step::Push(key, left, len)),
        3 => (key(), any::<bool>()).prop_map(|(key, left)| Step::Pop(key, left)),
        1 => (key(), 0..30_u64).prop_map(|(key, ttl)| Step::Ttl(key, ttl)),
        1 => Just(Step::FlushAll),
        1 => Just(Step::FlushExpired),
        2 => (1..20_u64).prop_map(Step::Later),
    ]
}

#[derive(Clone, Debug, PartialEq)]
enum Content {
    Text(Vec<u8>),
    Number(f64),
    List(VecDeque<Vec<u8>>),
}

/// What a dictionary with room for everything is.
#[derive(Default)]
struct Model {
    entries: HashMap<u8, (Content, u64)>,
    now: u64,
}

impl Model {
    fn live(&self, key: u8) -> Option<&Content> {
        let (content, expires) = self.entries.get(&key)?;
        (*expires == 0 || *expires > self.now).then_some(content)
    }

    fn end(left: bool) -> End {
        if left { End::Left } else { End::Right }
    }

    /// Does a step here and there; what both say is the same.
    fn take(&mut self, zone: &Zone, step: Step) {
        let dict = zone.dict().unwrap();
        let now = self.now;
        let store = |key: u8, len: u16, ttl_ms: u64, mode| {
            let value = vec![key; len.into()];
            let setting = Setting { ttl_ms, ..setting(mode, Room::Force) };
            let change = dict.store(&zone.dict_key(&[key]), Some(Value::Text(&value)), setting, now);
            assert_eq!(change.evicted, 0, "there is room for all");
            let expires = if ttl_ms == 0 { 0 } else { now + ttl_ms };
            (change.result, (Content::Text(value), expires))
        };
        match step {
            Step::Set(key, len, ttl) => {
                let (result, entry) = store(key, len, ttl, Mode::Set);
                assert_eq!(result, Ok(()));
                self.entries.insert(key, entry);
            }
            Step::Add(key, len) => {
                let (result, entry) = store(key, len, 0, Mode::Add);
                assert_eq!(result, if self.live(key).is_some() { Err(Refusal::Exists) } else { Ok(()) });
                if result.is_ok() {
                    self.entries.insert(key, entry);
                }
            }
            Step::Replace(key, len) => {
                let (result, entry) = store(key, len, 0, Mode::Replace);
                assert_eq!(result, if self.live(key).is_none() { Err(Refusal::NotFound) } else { Ok(()) });
                if result.is_ok() {
                    self.entries.insert(key, entry);
                }
            }
            Step::Delete(key) => {
                dict.store(&zone.dict_key(&[key]), None, setting(Mode::Set, Room::Force), now);
                self.entries.remove(&key);
            }
            Step::Incr(key) => self.incr(zone, key),
            Step::Push(key, left, len) => self.push(zone, key, left, len),
            Step::Pop(key, left) => self.pop(zone, key, left),
            Step::Ttl(key, ttl) => {
                let is_there = dict.set_ttl(&zone.dict_key(&[key]), ttl, now);
                assert!(is_there || self.live(key).is_none());
                if is_there && self.live(key).is_none() {
                    // It was stale; what it is now is what it was.
                    delete(zone, &[key]);
                    self.entries.remove(&key);
                } else if let Some((_, expires)) = self.entries.get_mut(&key).filter(|_| is_there) {
                    *expires = if ttl == 0 { 0 } else { now + ttl };
                }
            }
            Step::FlushAll => {
                dict.flush_all(now);
                self.entries.clear();
            }
            Step::FlushExpired => {
                dict.flush_expired(0, now);
            }
            Step::Later(ms) => self.now += ms,
        }
    }

    fn incr(&mut self, zone: &Zone, key: u8) {
        let (dict, now) = (zone.dict().unwrap(), self.now);
        let sum = dict.incr(&zone.dict_key(&[key]), 2.0, Some((1.0, 0)), now).0;
        let expected = match self.live(key) {
            None => Ok(3.0),
            Some(Content::Number(number)) => Ok(number + 2.0),
            Some(_) => Err(Refusal::NotNumber),
        };
        assert_eq!(sum, expected);
        if let Ok(sum) = sum {
            let kept = self.live(key).is_some();
            let expires = self.entries.get(&key).map_or(0, |(_, expires)| if kept { *expires } else { 0 });
            self.entries.insert(key, (Content::Number(sum), expires));
        }
    }

    fn push(&mut self, zone: &Zone, key: u8, left: bool, len: u16) {
        let value = vec![b'v'; len.into()];
        let dict = zone.dict().unwrap();
        let pushed = dict.push(&zone.dict_key(&[key]), Self::end(left), Value::Text(&value), self.now);
        if self.live(key).is_none() {
            self.entries.insert(key, (Content::List(VecDeque::new()), 0));
        }
        let Some((Content::List(list), _)) = self.entries.get_mut(&key) else {
            return assert_eq!(pushed, Err(Refusal::NotList));
        };
        if left {
            list.push_front(value)
        } else {
            list.push_back(value)
        }
        assert_eq!(pushed, Ok(list.len() as u32));
    }

    fn pop(&mut self, zone: &Zone, key: u8, left: bool) {
        let mut out = Vec::new();
        let popped = zone.dict().unwrap().pop(&zone.dict_key(&[key]), Self::end(left), self.now, &mut out);
        if self.live(key).is_none() {
            return assert_eq!(popped, Ok(None));
        }
        let Some((Content::List(list), _)) = self.entries.get_mut(&key) else {
            return assert_eq!(popped, Err(Refusal::NotList));
        };
        let expected = if left { list.pop_front() } else { list.pop_back() };
        assert_eq!((popped, Some(out)), (Ok(Some(Got::Text)), expected));
        if list.is_empty() {
            self.entries.remove(&key);
        }
    }

    fn check(&self, zone: &Zone) {
        let dict = zone.dict().unwrap();
        for key in 0..6 {
            let mut out = Vec::new();
            let found = dict.get(&zone.dict_key(&[key]), self.now, &mut out);
            let found = found.filter(|found| !found.is_stale(self.now)).map(|found| found.got);
            match self.live(key) {
                None => assert_eq!(found, None),
                Some(Content::Text(text)) => assert_eq!((found, &out), (Some(Got::Text), text)),
                Some(Content::Number(number)) => assert_eq!(found, Some(Got::Number(*number))),
                Some(Content::List(list)) => {
                    assert_eq!(found, Some(Got::List));
                    assert_eq!(dict.list_len(&zone.dict_key(&[key]), self.now), Ok(list.len() as u32));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// It does what the model does, and gives all its memory back in the end.
    #[test]
    fn it_is_a_dictionary(steps in proptest::collection::vec(step(), 1..120)) {
        let (_zones, zone) = open(1 << 20);
        let free = zone.dict().unwrap().free_bytes();
        let mut model = Model { now: NOW, ..Model::default() };
        for step in steps {
            model.take(&zone, step);
            model.check(&zone);
        }
        let dict = zone.dict().unwrap();
        (0..6).for_each(|key| delete(&zone, &[key]));
        dict.flush_expired(0, u64::MAX);
        // Chunks of entries stand in the page of nginx's own.
        prop_assert!(dict.free_bytes() >= free, "{} {free}", dict.free_bytes());
    }

    /// Where there is no room, what is there is right, and is as much as there can be.
    #[test]
    fn a_full_one_has_what_was_set_last(lens in proptest::collection::vec(0..3_000_usize, 1..150)) {
        let (_zones, zone) = open(32 * 1024);
        for (number, len) in lens.iter().enumerate() {
            let key = (number % 40).to_le_bytes();
            let change = set(&zone, &key, &vec![number as u8; *len]);
            prop_assert_eq!(change.result, Ok(()));
            prop_assert_eq!(get(&zone, &key), Some(vec![number as u8; *len]));
        }
        prop_assert!(keys(&zone).iter().all(|key| get(&zone, key).is_some()));
    }
}

/// The variable that tells the test's own program to be the process that is killed: the other one's pid and
/// the descriptor of the memory.
const VICTIM: &str = "CLEARWAY_DICT_VICTIM";

/// What the process does that is killed: changes of all kinds, without end.
fn be_killed(of: &str) -> ! {
    let (pid, fd) = of.split_once(' ').expect("two numbers");
    let memory = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/fd/{fd}"))
        .expect("the other process keeps it open");
    let name = crate::ZoneKey { name: b"dogs"[..].into(), module: "lua".into(), bytes: 64 * 1024 };
    let zones = Zones::handed(vec![(name, memory.into())]);
    let zone = zones.declare_dict(b"dogs", 64 * 1024, "lua").unwrap();
    zones.open().unwrap();
    let dict = zone.dict().unwrap();
    for round in 0_usize.. {
        let key = [b'k', (round % 40) as u8];
        set(&zone, &key, &vec![key[1]; round * 37 % 3_000]);
        delete(&zone, &[b'k', (round * 7 % 40) as u8]);
        let list = [b'l', (round % 3) as u8];
        // Where there is no room there is none.
        let _ = dict.push(&zone.dict_key(&list), End::Left, Value::Text(&[list[1]; 50]), NOW);
        let _ = dict.pop(&zone.dict_key(&list), End::Right, NOW, &mut Vec::new());
        let _ = dict.incr(&zone.dict_key(b"n"), 1.0, Some((0.0, 0)), NOW);
    }
    unreachable!("it is killed")
}

/// Counts pages of free blocks and entries in use, along every link that there is.
fn check_links(zone: &Zone) {
    let dict = zone.dict().unwrap();
    let writer = dict.memory.begin();
    let (mut seen, mut next) = (0, writer.oldest());
    while let Some(at) = next {
        seen += 1;
        assert!(dict.memory.layout.is_chunk(at) && seen < 10_000);
        next = writer.newer(at);
        let mut key = Vec::new();
        writer.copy_key(dict.memory.entry(at), &mut key);
        let found = dict.memory.find(&zone.dict_key(&key)).expect("its chain has it");
        assert_eq!(found.at, at);
    }
}

/// Two processes over one memory, of which one is killed again and again, wherever it is.
#[test]
fn a_killed_process_leaves_a_dictionary() {
    use std::os::fd::AsRawFd;
    use std::process::{Command, Stdio};

    if let Ok(of) = std::env::var(VICTIM) {
        be_killed(&of);
    }
    let (zones, zone) = open(64 * 1024);
    let fd = zones.list()[0].1.as_raw_fd();
    let number = |zone: &Zone| match zone.dict().unwrap().get(&zone.dict_key(b"n"), NOW, &mut Vec::new()) {
        Some(Found { got: Got::Number(number), .. }) => number,
        _ => 0.0,
    };
    for kill in 0..25 {
        let before = number(&zone);
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "dict::tests::a_killed_process_leaves_a_dictionary"])
            .env(VICTIM, format!("{} {fd}", std::process::id()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // It begins again where it was evicted, so that any other number shows that the victim works.
        while number(&zone) == before {
            std::thread::yield_now();
        }
        for _ in 0..kill * 50 {
            let _ = get(&zone, b"k\x01");
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        zones.forget_worker(victim.id());
        check_links(&zone);
        for key in keys(&zone).iter().filter(|key| key[0] == b'k') {
            let value = get(&zone, key).expect("it is there");
            assert!(value.iter().all(|&byte| byte == key[1]), "{key:?}");
        }
        assert_eq!(set(&zone, b"k\x01", &[1; 2_500]).result, Ok(()));
    }
    let dict = zone.dict().unwrap();
    dict.flush_all(NOW);
    dict.flush_expired(0, NOW);
    let fresh = open(64 * 1024).1;
    assert_eq!(dict.free_bytes(), fresh.dict().unwrap().free_bytes(), "nothing is lost");
}

/// What OpenResty's module (0.10.23, nginx 1.22) says of dictionaries of these sizes: free bytes at first,
/// and how many values of each length it takes, under keys of eight bytes, before one has to go.
const ROOM: [(u64, u64, [usize; 7]); 3] = [
    (32, 20_480, [191, 80, 80, 40, 10, 5, 2]),
    (100, 90_112, [735, 352, 352, 176, 44, 22, 11]),
    (1024, 1_032_192, [8_095, 4_032, 4_032, 2_016, 504, 252, 126]),
];

#[test]
fn as_much_fits_as_with_openresty() {
    for (kib, free, counts) in ROOM {
        for (len, count) in [10, 60, 100, 300, 1000, 3000, 5000].into_iter().zip(counts) {
            let (_zones, zone) = open(kib * 1024);
            assert_eq!(zone.dict().unwrap().free_bytes(), free, "{kib}k");
            let name = |number: usize| format!("key{number:05}").into_bytes();
            let first = (0..).find(|&number| {
                let change = set(&zone, &name(number), &vec![b'x'; len]);
                change.evicted > 0 || change.result.is_err()
            });
            assert_eq!(first, Some(count), "{kib}k of {len} bytes");
        }
    }
    let (_zones, zone) = open(100 * 1024);
    let dict = zone.dict().unwrap();
    let key = zone.dict_key(b"list");
    let push = |number: usize| dict.push(&key, End::Right, Value::Text(&vec![b'v'; number % 50]), NOW);
    assert_eq!((0..).find(|&number| push(number).is_err()), Some(1512));
    assert_eq!(dict.free_bytes(), 0);
}
