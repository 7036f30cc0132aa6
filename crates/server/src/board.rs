//! The worker processes' board of one master (`worker_groups`), which makes one server of them for clients:
//! the counts of each, the stalls that it has seen, its loops, and the serial numbers of connections. It is
//! memory of a zone that the master holds. Main threads write; loops read, and ask.
//!
//! Rules.
//! 1. A process writes to the pages of its place in the zone alone, by its main thread: once a second, and
//!    when another one asks. The last version is read meanwhile (`zone::Page`).
//! 2. One that asks draws a number and sends SIGWINCH to all others. A place says which question was
//!    answered, behind its pages. In place of an answer that does not come the pages are read as they are.
//! 3. What was counted stays counted: of a process that is gone its counters are added up, and the process
//!    that has its place next counts on from them, and goes on with its stalls. Gauges are those
//!    of living processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use clearway_base::cursor::Cursor;
use clearway_http::metrics as clients;
use clearway_metrics::{Asking, BUCKETS, Durations, Family, Kind, MetricSource, Next, Put, Together, Value};
use clearway_os::signal::{self, Signal};
use clearway_watchdog::{Status, Together as Stalls};
use clearway_zone::{Page, Zone};

/// The zone's name, which no directive can give.
pub(crate) const NAME: &[u8] = b"\0worker groups";
/// Bytes of the zone, of which those take memory that are used: a header, what is common, and 64 places.
pub(crate) const BYTES: u64 = (PLACES_AT + 64 * PLACE_WORDS + 1024) as u64 * 8;

/// The last serial number of a connection.
const SERIAL_AT: usize = 0;
/// The last question.
const ASKED_AT: usize = 1;
const PLACES_AT: usize = 8;

/// Of each place: the last question that was answered, a page of the process's loops, of which a thousand
/// have room, one of its counts, whose halves have 512 KiB, and one of the stalls that it has seen, whose
/// halves have 256. The rest is left out.
const ANSWERED_AT: usize = 0;
const LOOPS_AT: usize = 8;
const COUNTS_AT: usize = LOOPS_AT + 1024;
const STALLS_AT: usize = COUNTS_AT + 2 * 64 * 1024;
const PLACE_WORDS: usize = STALLS_AT + 2 * 32 * 1024;

/// The head of the counts: the number of the process, and the numbers of `stub_status`
/// ([`clients::Numbers`]).
const HEAD_BYTES: usize = 8 * 8;

/// Values that are shown at once.
const PART: usize = 64;

/// This process's part of the board; absent if the process serves alone.
static BOARD: OnceLock<Board> = OnceLock::new();

/// The board of the worker processes of one master.
struct Board {
    zone: Arc<Zone>,
    place: usize,
    number: u32,
    /// The counts of earlier processes that had its place.
    before: Sums,
    numbers_before: clients::Numbers,
    stalls_before: Stalls,
    /// The stalls of this process that others know of.
    told: ArcSwap<Status>,
}

/// The process serves beside others from now on, if it did not before; as if it were alone, where there are
/// too many.
pub(crate) fn join(zone: &Arc<Zone>) {
    if BOARD.get().is_some() {
        return;
    }
    let Some((place, number)) = zone.own_place() else { return };
    let its = place_of(zone, place);
    let mut before = Sums::default();
    let mut numbers_before = clients::Numbers::default();
    let mut stalls_before = Stalls::default();
    if let Some(read) = its.read() {
        before.add_page(&read.content, Which::Counters);
        numbers_before = clients::Numbers { connections: clients::Connections::default(), ..read.numbers };
    }
    if let Some(read) = its.stalls().read() {
        stalls_before.add_page(&read);
    }
    let (zone, told) = (Arc::clone(zone), ArcSwap::default());
    let board = Board { zone, place, number, before, numbers_before, stalls_before, told };
    if BOARD.set(board).is_ok() {
        clients::count_beside(others, next_serial);
    }
    publish();
}

/// Writes down what this process has counted. The main thread's.
pub(crate) fn publish() {
    let Some(board) = BOARD.get() else { return };
    let asked = board.zone.words()[ASKED_AT].load(Ordering::SeqCst);
    board.tell_stalls();
    board.at(board.place).write((asked, board.number), board.own_numbers(), &board.own());
}

/// These loops serve from now on, of which the first one has this number among those of all processes;
/// `None`: they are no workers. The main thread's.
pub(crate) fn tell_loops(first: Option<usize>, identities: &[u32]) {
    let Some(board) = BOARD.get() else { return };
    let page: Vec<u8> = first.map_or_else(Vec::new, |first| {
        let head = [board.number, u32::try_from(first).unwrap_or(u32::MAX)];
        head.iter().chain(identities).flat_map(|number| number.to_le_bytes()).collect()
    });
    board.at(board.place).loops().write(&page);
    clearway_lua::name_workers(loops_of_all);
}

/// The identities of the loops of all processes in the order of their numbers, these as those of this one.
fn loops_of_all(own: &[u32]) -> Vec<u32> {
    let Some(board) = BOARD.get() else { return own.to_vec() };
    let read = |place: usize| Some((place, Loops::read(&board.at(place).loops().read()?)?));
    let mut all: Vec<(bool, Loops)> = (0..64)
        .filter_map(read)
        .map(|(place, loops)| (place == board.place, loops))
        .filter(|(is_own, loops)| *is_own || board.zone.has_worker(loops.owner))
        .collect();
    // Of processes with the same share this one counts, or the one that has come last.
    all.sort_by_key(|(is_own, loops)| (loops.first, !is_own, std::cmp::Reverse(loops.owner)));
    all.dedup_by_key(|(_, loops)| loops.first);
    all.iter().flat_map(|(is_own, loops)| if *is_own { own } else { &loops.identities }).copied().collect()
}

/// The loops of a process, as a page has them.
struct Loops {
    owner: u32,
    first: u32,
    identities: Vec<u32>,
}

impl Loops {
    fn read(page: &[u8]) -> Option<Self> {
        let mut numbers =
            page.chunks_exact(4).map(|number| u32::from_le_bytes(number.try_into().unwrap_or_default()));
        Some(Self { owner: numbers.next()?, first: numbers.next()?, identities: numbers.collect() })
    }
}

/// Answers the process with this pid. Whether it is one that may ask.
pub(crate) fn answer(pid: u32) -> bool {
    let is_asked = BOARD.get().is_some_and(|board| board.zone.places().any(|(_, known, _)| known == pid));
    if is_asked {
        publish();
    }
    is_asked
}

/// A question to all others; `None` where there are none.
pub(crate) fn ask() -> Option<Box<dyn Asking>> {
    let board = BOARD.get()?;
    let number = board.zone.words()[ASKED_AT].fetch_add(1, Ordering::SeqCst) + 1;
    let others: Vec<(usize, u32)> = board
        .zone
        .places()
        .filter(|(place, ..)| *place != board.place)
        .map(|(place, pid, number)| {
            // One that is gone is not waited for.
            let _ = signal::kill(pid, Signal::WINCH);
            (place, number)
        })
        .collect();
    Some(Box::new(Question { number, others }))
}

/// The serial number of a connection.
fn next_serial() -> u64 {
    let serial = |board: &Board| board.zone.words()[SERIAL_AT].fetch_add(1, Ordering::Relaxed) + 1;
    BOARD.get().map_or(0, serial)
}

/// The counts in the pages of others, and earlier counts in this one's.
fn others() -> clients::Numbers {
    let Some(board) = BOARD.get() else { return clients::Numbers::default() };
    let mut sum = board.numbers_before;
    board.visit_others(|read, which| {
        let none = clients::Connections::default();
        let connections = if which == Which::All { read.numbers.connections } else { none };
        sum = sum.plus(clients::Numbers { connections, ..read.numbers });
    });
    sum
}

struct Question {
    number: u64,
    /// The places that are asked, and the numbers of the processes there.
    others: Vec<(usize, u32)>,
}

impl Asking for Question {
    fn is_answered(&self) -> bool {
        let Some(board) = BOARD.get() else { return true };
        let answered = |place: usize| board.at(place).has_answered(self.number);
        self.others.iter().all(|&(place, number)| answered(place) || !board.zone.has_worker(number))
    }

    fn together(&self) -> Box<dyn MetricSource> {
        let mut sums = Sums::default();
        if let Some(board) = BOARD.get() {
            sums = board.own();
            board.visit_others(|read, which| sums.add_page(&read.content, which));
        }
        Box::new(Shown(sums))
    }
}

fn place_of(zone: &Zone, place: usize) -> Place<'_> {
    debug_assert!(place < 64, "a zone has 64 places");
    Place(&zone.words()[PLACES_AT + place * PLACE_WORDS..][..PLACE_WORDS])
}

/// The part of a page that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    /// Its process is gone.
    Counters,
}

impl Board {
    fn at(&self, place: usize) -> Place<'_> {
        place_of(&self.zone, place)
    }

    /// The stalls of this process, and those of earlier ones at its place.
    fn own_stalls(&self) -> Stalls {
        let mut stalls = self.stalls_before.clone();
        stalls.add(&clearway_watchdog::status());
        stalls
    }

    /// Those of all, also of processes that are gone.
    fn stalls(&self) -> Stalls {
        let mut stalls = self.own_stalls();
        let others = (0..64).filter(|&place| place != self.place);
        others.filter_map(|place| self.at(place).stalls().read()).for_each(|page| stalls.add_page(&page));
        stalls
    }

    /// Writes them down, where there are more than before.
    fn tell_stalls(&self) {
        let status = clearway_watchdog::status();
        if Arc::ptr_eq(&self.told.load(), &status) {
            return;
        }
        let page = self.at(self.place).stalls();
        page.write(&self.own_stalls().to_page(page.capacity_bytes()));
        self.told.store(status);
    }

    /// The counts of this process.
    fn own(&self) -> Sums {
        let mut sums = Sums::default();
        sums.add_source(&*crate::metrics::source());
        sums.add(&self.before);
        sums
    }

    fn own_numbers(&self) -> clients::Numbers {
        clients::here().plus(self.numbers_before)
    }

    fn visit_others(&self, mut visit: impl FnMut(&ReadPage, Which)) {
        for place in (0..64).filter(|&place| place != self.place) {
            let Some(read) = self.at(place).read() else { continue };
            let lives = self.zone.has_worker(read.owner);
            visit(&read, if lives { Which::All } else { Which::Counters });
        }
    }
}

/// The page of one process.
#[derive(Clone, Copy)]
struct Place<'a>(&'a [AtomicU64]);

struct ReadPage {
    owner: u32,
    numbers: clients::Numbers,
    content: Vec<u8>,
}

impl<'a> Place<'a> {
    fn loops(self) -> Page<'a> {
        Page::new(&self.0[LOOPS_AT..COUNTS_AT])
    }

    fn counts(self) -> Page<'a> {
        Page::new(&self.0[COUNTS_AT..STALLS_AT])
    }

    fn stalls(self) -> Page<'a> {
        Page::new(&self.0[STALLS_AT..PLACE_WORDS])
    }

    fn has_answered(self, number: u64) -> bool {
        self.0[ANSWERED_AT].load(Ordering::Acquire) >= number
    }

    /// Rule 1, of the writer.
    fn write(self, (answered, owner): (u64, u32), numbers: clients::Numbers, sums: &Sums) {
        let page = self.counts();
        let mut content = u64::from(owner).to_le_bytes().to_vec();
        numbers.to_words().iter().for_each(|number| content.extend_from_slice(&number.to_le_bytes()));
        debug_assert_eq!(content.len(), HEAD_BYTES, "the head is as long as it is read");
        sums.write(&mut content, page.capacity_bytes());
        page.write(&content);
        self.0[ANSWERED_AT].store(answered, Ordering::Release);
    }

    /// The counts of the process. `None`: no process has written any.
    fn read(self) -> Option<ReadPage> {
        let mut content = self.counts().read()?;
        let mut words =
            content.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let owner = words.next()? as u32;
        let mut numbers = [0; HEAD_BYTES / 8 - 1];
        for number in &mut numbers {
            *number = words.next()?;
        }
        content.drain(..HEAD_BYTES);
        Some(ReadPage { owner, numbers: clients::Numbers::of_words(numbers), content })
    }
}

/// A value of a metric that is added up.
#[derive(Clone)]
enum Total {
    Number(u64),
    Milliseconds(u64),
    Durations(Box<Durations>),
}

impl Total {
    fn of(value: Value<'_>) -> Self {
        match value {
            Value::Number(number) => Self::Number(number),
            Value::Milliseconds(ms) => Self::Milliseconds(ms),
            Value::Durations(durations) => Self::Durations(Box::new(*durations)),
        }
    }

    fn add(&mut self, other: &Self, together: Together) {
        let add = |one: u64, other: u64| match together {
            Together::Sum => one.saturating_add(other),
            Together::Alike => one.max(other),
        };
        match (self, other) {
            (Self::Number(one), Self::Number(other))
            | (Self::Milliseconds(one), Self::Milliseconds(other)) => {
                *one = add(*one, *other);
            }
            (Self::Durations(one), Self::Durations(other)) => {
                one.sum_ns = one.sum_ns.saturating_add(other.sum_ns);
                one.counts.iter_mut().zip(other.counts).for_each(|(one, other)| *one += other);
            }
            // A page that says something else of a metric than this program does is no page of its.
            _ => {}
        }
    }
}

/// Values of metrics, by metric and values of labels, in the order in which they came.
#[derive(Default)]
struct Sums {
    /// For each metric: the values of its labels, each behind its length, and their total.
    values: Vec<Vec<(Box<[u8]>, Total)>>,
    places: HashMap<(usize, Box<[u8]>), usize>,
}

fn families() -> Vec<&'static Family> {
    crate::metrics::source().families().to_vec()
}

impl Sums {
    fn add_source(&mut self, source: &dyn MetricSource) {
        for at in 0..source.families().len() {
            for part in 0.. {
                let next = source.read(at, part, &mut |labels, value| {
                    let mut key = Vec::new();
                    for (_, value) in labels {
                        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
                        key.extend_from_slice(&length.to_le_bytes());
                        key.extend_from_slice(&value.as_bytes()[..length.into()]);
                    }
                    self.add_value((at, Together::Sum), &key, &Total::of(value));
                });
                if next == Next::Over {
                    break;
                }
            }
        }
    }

    fn add_value(&mut self, (at, together): (usize, Together), key: &[u8], total: &Total) {
        if self.values.len() <= at {
            self.values.resize_with(at + 1, Vec::new);
        }
        match self.places.get(&(at, key.into())) {
            Some(&place) => self.values[at][place].1.add(total, together),
            None => {
                debug_assert_eq!(self.places.len(), self.values.iter().map(Vec::len).sum::<usize>());
                self.places.insert((at, key.into()), self.values[at].len());
                self.values[at].push((key.into(), total.clone()));
            }
        }
    }

    fn add(&mut self, other: &Self) {
        let families = families();
        for (at, values) in other.values.iter().enumerate() {
            let together = families.get(at).map_or(Together::Sum, |family| family.together);
            values.iter().for_each(|(key, total)| self.add_value((at, together), key, total));
        }
    }

    /// Adds the counts that `write` has written.
    fn add_page(&mut self, page: &[u8], which: Which) {
        let families = families();
        let mut rest = Cursor::new(page);
        while let Some((at, key, total)) = next_value(&mut rest) {
            let Some(family) = families.get(at) else { return };
            if which == Which::All || family.kind != Kind::Gauge {
                self.add_value((at, family.together), key, &total);
            }
        }
    }

    /// As far as so many bytes have room for it.
    fn write(&self, out: &mut Vec<u8>, room_bytes: usize) {
        for (at, values) in self.values.iter().enumerate() {
            for (key, total) in values {
                let before = out.len();
                out.extend_from_slice(&(at as u16).to_le_bytes());
                out.extend_from_slice(&(key.len() as u16).to_le_bytes());
                out.extend_from_slice(key);
                match total {
                    Total::Number(number) => put(out, 0, *number),
                    Total::Milliseconds(ms) => put(out, 1, *ms),
                    Total::Durations(durations) => {
                        put(out, 2, durations.sum_ns);
                        durations.counts.iter().for_each(|count| out.extend_from_slice(&count.to_le_bytes()));
                    }
                }
                if out.len() > room_bytes {
                    out.truncate(before);
                    return;
                }
            }
        }
    }

    fn read(&self, at: usize, part: usize, put: &mut Put<'_>) -> Next {
        let none = Vec::new();
        let values = self.values.get(at).unwrap_or(&none);
        let names = crate::metrics::families()[at].labels;
        for (key, total) in values.iter().skip(part * PART).take(PART) {
            let mut rest = Cursor::new(key);
            let mut texts = Vec::with_capacity(names.len());
            while let Some(length) = rest.number::<2>() {
                let text = rest.take(usize::try_from(length).unwrap_or(0)).unwrap_or_default();
                texts.push(String::from_utf8_lossy(text));
            }
            let labels: Vec<(&str, &str)> =
                names.iter().zip(&texts).map(|(label, text)| (label.name, &**text)).collect();
            match total {
                Total::Number(number) => put(&labels, Value::Number(*number)),
                Total::Milliseconds(ms) => put(&labels, Value::Milliseconds(*ms)),
                Total::Durations(durations) => put(&labels, Value::Durations(durations)),
            }
        }
        if (part + 1) * PART < values.len() { Next::More } else { Next::Over }
    }
}

fn put(out: &mut Vec<u8>, tag: u8, number: u64) {
    out.push(tag);
    out.extend_from_slice(&number.to_le_bytes());
}

/// The metric, the values of its labels and the value that come next on a page.
fn next_value<'a>(rest: &mut Cursor<'a>) -> Option<(usize, &'a [u8], Total)> {
    let at = usize::try_from(rest.number::<2>()?).ok()?;
    let key = rest.counted::<2>()?;
    let total = match (rest.number::<1>()?, rest.number::<8>()?) {
        (0, number) => Total::Number(number),
        (1, ms) => Total::Milliseconds(ms),
        (2, sum_ns) => {
            let mut durations = Durations { counts: [0; BUCKETS], sum_ns };
            for count in &mut durations.counts {
                *count = rest.number::<8>()?;
            }
            Total::Durations(Box::new(durations))
        }
        _ => return None,
    };
    Some((at, key, total))
}

/// The sums of all processes.
struct Shown(Sums);

impl MetricSource for Shown {
    fn families(&self) -> &[&'static Family] {
        crate::metrics::families()
    }

    fn read(&self, at: usize, part: usize, put: &mut Put<'_>) -> Next {
        self.0.read(at, part, put)
    }

    fn sections(&self) -> &[&'static str] {
        crate::metrics::SECTIONS
    }

    /// The stall reports; there are as many as one process has.
    fn write_section(&self, _: usize, _: usize, out: &mut Vec<u8>) -> Next {
        let mut text = String::new();
        BOARD.get().map(Board::stalls).unwrap_or_default().put_json(&mut text);
        out.append(&mut text.into_bytes());
        Next::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 4096;

    fn at_of(name: &str) -> usize {
        families().iter().position(|family| family.name == name).expect("it is shown")
    }

    fn sums(values: &[(&str, &str, u64)]) -> Sums {
        let mut sums = Sums::default();
        for (name, label, number) in values {
            let key = [&(label.len() as u16).to_le_bytes()[..], label.as_bytes()].concat();
            sums.add_value((at_of(name), Together::Sum), &key, &Total::Number(*number));
        }
        sums
    }

    fn shown(sums: &Sums, name: &str) -> Vec<String> {
        let (mut all, mut part) = (Vec::new(), 0);
        while sums.read(at_of(name), part, &mut |labels, value| all.push(format!("{labels:?} {value:?}")))
            == Next::More
        {
            part += 1;
        }
        all
    }

    #[test]
    fn what_several_have_counted_is_added_up() {
        let of_one = [("requests_total", "0", 7), ("cache_bytes", "c", 100), ("connections", "0", 2)];
        let of_other = [("requests_total", "1", 5), ("cache_bytes", "c", 100), ("connections", "0", 3)];
        let mut page = Vec::new();
        sums(&of_other).write(&mut page, ROOM);
        let mut both = sums(&of_one);
        both.add_page(&page, Which::All);
        assert_eq!(
            shown(&both, "requests_total"),
            ["[(\"loop\", \"0\")] Number(7)", "[(\"loop\", \"1\")] Number(5)"]
        );
        assert_eq!(shown(&both, "cache_bytes"), ["[(\"zone\", \"c\")] Number(100)"], "all have the same");
        assert_eq!(shown(&both, "connections"), ["[(\"loop\", \"0\")] Number(5)"]);
        // The connections of a process that is gone do not count.
        both.add_page(&page, Which::Counters);
        assert_eq!(shown(&both, "connections"), ["[(\"loop\", \"0\")] Number(5)"]);
        assert!(shown(&both, "requests_total").contains(&"[(\"loop\", \"1\")] Number(10)".to_owned()));
    }

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let words: Vec<AtomicU64> = (0..PLACE_WORDS).map(|_| AtomicU64::new(0)).collect();
        let place = Place(&words);
        assert!(place.read().is_none() && !place.has_answered(1), "nobody has written it");
        let numbers = clients::Numbers::of_words([1, 2, 3, 4, 5, 6, 7]);
        place.write((3, 9), numbers, &sums(&[("requests_total", "0", 7)]));
        let read = place.read().unwrap();
        assert_eq!((read.owner, read.numbers.to_words()), (9, [1, 2, 3, 4, 5, 6, 7]));
        assert!(place.has_answered(3) && !place.has_answered(4));
        let mut counted = Sums::default();
        counted.add_page(&read.content, Which::All);
        assert_eq!(shown(&counted, "requests_total"), ["[(\"loop\", \"0\")] Number(7)"]);
        assert!(place.stalls().read().is_none(), "pages are apart");
        place.stalls().write(b"stalls");
        assert_eq!(place.read().unwrap().owner, 9);
        place.counts().write(b"too short");
        assert!(place.read().is_none());
    }

    #[test]
    fn what_is_no_page_adds_nothing() {
        let mut page = Vec::new();
        sums(&[("requests_total", "0", 7)]).write(&mut page, ROOM);
        for end in 0..page.len() {
            let mut read = Sums::default();
            read.add_page(&page[..end], Which::All);
            assert!(read.values.is_empty());
        }
        let mut read = Sums::default();
        read.add_page(&[255; 100], Which::All);
        assert!(read.values.is_empty());
    }

    #[test]
    fn values_are_shown_in_parts() {
        let mut many = Sums::default();
        (0..PART * 2 + 1).for_each(|at| many.add(&sums(&[("requests_total", &at.to_string(), 1)])));
        assert_eq!(shown(&many, "requests_total").len(), PART * 2 + 1);
    }
}
