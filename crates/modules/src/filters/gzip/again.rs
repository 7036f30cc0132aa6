//! Compressed forms of bodies, for bodies that are sent again and again from the same memory: copies of small
//! files and of cached objects. Shared by all loops; nobody waits here.
//!
//! A body is known by the memory in which it lies, which nobody changes, and which is held here so that
//! nothing else comes to lie there. Whether it is the right body for a request is found out before, as for
//! one that is not compressed: with its copy goes what it was compressed to. Only what comes as one piece in
//! shared memory is looked at, so a body that a filter has made for one request is not.
//!
//! A table of fixed size whose places are exchanged as wholes. A body is kept when it comes for a second
//! time.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use clearway_metrics::{Counter, Metric};

use super::deflate::Manner;

/// Shorter bodies are not worth a place, bytes.
const BODY_MIN_BYTES: usize = 256;
/// Longer ones have no copies in memory, bytes.
const BODY_MAX_BYTES: usize = 64 * 1024;
/// All that is kept, and the bodies themselves, bytes.
const BYTES_MAX: usize = 32 << 20;
/// Bodies at most.
const PLACES: usize = 2048;
/// Places that a body may have.
const WAYS: usize = 4;
/// Bodies of which it is remembered that they came once.
const SEEN: usize = 4096;
/// Memory of a body in addition to its bytes.
const OVERHEAD_BYTES: usize = 192;
/// Places that are looked at for something to let go of, for each body that is kept.
const SWEEP_PLACES: usize = 32;

static USED: Counter = Counter::new(
    "gzip_compressed_before_total",
    "responses",
    "Responses that were sent as they had been compressed for an earlier one: the same body in the same \
     memory, in the same manner.",
);
static KEPT: Counter = Counter::new(
    "gzip_kept_total",
    "bodies",
    "Bodies that were kept as they were compressed, until their copies in memory go. Many more than there \
     are hot bodies: they do not fit.",
);

/// The metrics of this file.
pub(super) static METRICS: &[Metric] = &[Metric::Counter(&USED), Metric::Counter(&KEPT)];

/// A body in the manner in which it was compressed.
#[derive(Clone, Debug)]
pub(super) struct Body {
    bytes: Bytes,
    manner: Manner,
    /// The first buffer for what is made, bytes.
    first_bytes: usize,
}

impl Body {
    /// `None` of one that is not worth it.
    pub(super) fn new(bytes: &Bytes, manner: Manner, first_bytes: usize) -> Option<Self> {
        let is_worth_it = (BODY_MIN_BYTES..=BODY_MAX_BYTES).contains(&bytes.len());
        is_worth_it.then(|| Self { bytes: bytes.clone(), manner, first_bytes })
    }

    fn hash(&self) -> u64 {
        let place = self.bytes.as_ptr() as usize;
        let build = BuildHasherDefault::<DefaultHasher>::default();
        build.hash_one((place, self.bytes.len(), self.manner, self.first_bytes))
    }

    fn is(&self, other: &Self) -> bool {
        let place = |body: &Self| (body.bytes.as_ptr(), body.bytes.len(), body.first_bytes);
        place(self) == place(other) && self.manner == other.manner
    }
}

/// The state of a body.
pub(super) enum Known {
    /// The body was compressed before, to these pieces.
    Pieces(Arc<Kept>),
    /// The body came before, and is to be kept compressed.
    Wanted(Body),
    /// Nothing.
    New,
}

/// A body that was compressed.
pub(super) struct Kept {
    body: Body,
    /// As they were passed on.
    pub(super) pieces: Vec<Bytes>,
    /// Since it was last looked at to make room.
    is_used: AtomicBool,
}

impl Kept {
    fn size_bytes(&self) -> usize {
        let made: usize = self.pieces.iter().map(Bytes::len).sum();
        self.body.bytes.len() + made + OVERHEAD_BYTES
    }

    /// Whether nobody else has the body any more.
    fn is_left_over(&self) -> bool {
        self.body.bytes.is_unique()
    }
}

/// The bodies that were compressed in this process.
pub(super) static BODIES: Bodies = Bodies::new();

/// The compressed forms that a process keeps.
pub(super) struct Bodies {
    places: [ArcSwapOption<Kept>; PLACES],
    seen: [AtomicU32; SEEN],
    bytes: AtomicUsize,
    /// Where room was made last.
    hand: AtomicUsize,
}

impl Bodies {
    const fn new() -> Self {
        Self {
            places: [const { ArcSwapOption::const_empty() }; PLACES],
            seen: [const { AtomicU32::new(0) }; SEEN],
            bytes: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
        }
    }

    /// The state of a body that arrives, which is noted.
    pub(super) fn find(&self, body: Body) -> Known {
        let hash = body.hash();
        let found = set(hash).find_map(|place| {
            let there = self.places[place].load();
            there.as_ref().filter(|kept| kept.body.is(&body)).map(Arc::clone)
        });
        if let Some(kept) = found {
            if !kept.is_used.load(Ordering::Relaxed) {
                kept.is_used.store(true, Ordering::Relaxed);
            }
            USED.increment();
            return Known::Pieces(kept);
        }
        let (seen, tag) = (&self.seen[hash as usize % SEEN], (hash >> 32) as u32 | 1);
        if seen.load(Ordering::Relaxed) == tag {
            return Known::Wanted(body);
        }
        seen.store(tag, Ordering::Relaxed);
        Known::New
    }

    /// Keeps what a body was compressed to.
    pub(super) fn keep(&self, body: Body, pieces: Vec<Bytes>) {
        let hash = body.hash();
        let kept = Arc::new(Kept { body, pieces, is_used: AtomicBool::new(false) });
        let size = kept.size_bytes();
        if !self.make_room(size) {
            return;
        }
        let is_free = |place: &usize| {
            let there = self.places[*place].load();
            there.as_ref().is_none_or(|there| there.body.is(&kept.body) || there.is_left_over())
        };
        let is_idle = |place: &usize| {
            let there = self.places[*place].load();
            there.as_ref().is_none_or(|there| !there.is_used.swap(false, Ordering::Relaxed))
        };
        let place = set(hash).find(is_free).or_else(|| set(hash).find(is_idle)).unwrap_or(set(hash).start);
        KEPT.increment();
        self.bytes.fetch_add(size, Ordering::Relaxed);
        self.note_gone(self.places[place].swap(Some(kept)));
    }

    fn make_room(&self, wanted: usize) -> bool {
        let has_room = || self.bytes.load(Ordering::Relaxed).saturating_add(wanted) <= BYTES_MAX;
        for _ in 0..SWEEP_PLACES {
            let place = self.hand.fetch_add(1, Ordering::Relaxed) % PLACES;
            let there = self.places[place].load();
            let goes = there.as_ref().is_some_and(|there| {
                there.is_left_over() || !has_room() && !there.is_used.swap(false, Ordering::Relaxed)
            });
            if goes {
                self.note_gone(self.places[place].swap(None));
            }
        }
        has_room()
    }

    fn note_gone(&self, gone: Option<Arc<Kept>>) {
        if let Some(gone) = gone {
            self.bytes.fetch_sub(gone.size_bytes(), Ordering::Relaxed);
        }
    }
}

fn set(hash: u64) -> std::ops::Range<usize> {
    let first = (hash >> 16) as usize % (PLACES / WAYS) * WAYS;
    first..first + WAYS
}

#[cfg(test)]
mod tests {
    use super::super::deflate::Holding;
    use super::*;

    fn manner(level: u32) -> Manner {
        Manner { level, window_bits: 15, postpone_bytes: 0, out_bytes: 4096, holding: Holding::Held }
    }

    fn body(bytes: &Bytes, level: u32) -> Body {
        Body::new(bytes, manner(level), 100).expect("it is worth it")
    }

    /// Whether it was kept, and as what.
    fn pieces(bodies: &Bodies, body: Body) -> Option<Vec<Bytes>> {
        match bodies.find(body) {
            Known::Pieces(kept) => Some(kept.pieces.clone()),
            Known::Wanted(_) | Known::New => None,
        }
    }

    #[test]
    fn a_body_is_known_by_its_memory_and_manner() {
        let bodies = Box::new(Bodies::new());
        let (text, same) = (Bytes::from(vec![7; 1000]), Bytes::from(vec![7; 1000]));
        assert!(matches!(bodies.find(body(&text, 1)), Known::New));
        let Known::Wanted(wanted) = bodies.find(body(&text, 1)) else { panic!("it came before") };
        let made = vec![Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        bodies.keep(wanted, made.clone());
        assert_eq!(pieces(&bodies, body(&text, 1)), Some(made));
        assert_eq!(pieces(&bodies, body(&text, 2)), None, "another manner");
        assert_eq!(pieces(&bodies, body(&same, 1)), None, "other memory");
        assert_eq!(pieces(&bodies, body(&text.slice(..999), 1)), None, "another length");
        assert!(Body::new(&text.slice(..255), manner(1), 100).is_none());
        assert!(Body::new(&Bytes::from(vec![0; BODY_MAX_BYTES + 1]), manner(1), 100).is_none());
    }

    #[test]
    fn what_nobody_has_any_more_goes_and_all_of_it_fits() {
        let bodies = Box::new(Bodies::new());
        let hot = Bytes::from(vec![1; 60_000]);
        bodies.keep(body(&hot, 1), vec![Bytes::from(vec![2; 30_000])]);
        let others: Vec<Bytes> = (0..3000_u32).map(|_| Bytes::from(vec![3; 60_000])).collect();
        let mut left = 0;
        for other in others {
            bodies.keep(body(&other, 1), vec![Bytes::from(vec![4; 30_000])]);
            left += usize::from(pieces(&bodies, body(&other, 1)).is_some());
            assert!(pieces(&bodies, body(&hot, 1)).is_some());
            assert!(bodies.bytes.load(Ordering::Relaxed) <= BYTES_MAX);
        }
        assert!(left > 2900, "{left}");
        // No other holder has the copies, so they may go.
        (0..PLACES).for_each(|_| _ = bodies.make_room(0));
        let there: Vec<_> = bodies.places.iter().filter_map(ArcSwapOption::load_full).collect();
        assert_eq!(there.len(), 1);
        assert_eq!(bodies.bytes.load(Ordering::Relaxed), there[0].size_bytes());
    }
}
