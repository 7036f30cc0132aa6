//! The memory of compressors, some 300 KiB each, kept for the next response when one is done: a bounded
//! stock per size of window, shared by all loops. Compressors that no response needed for a while are
//! freed. Nobody waits here.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{LazyLock, Once};

use clearway_base::memory;
use clearway_os::clock;
use crossbeam_queue::ArrayQueue;
use flate2::{Compress, Compression, FlushCompress, Status};

/// Compressors of each size of window that are kept at most.
const STOCK_MAX: usize = 32;
/// The smallest and the largest window, bits.
pub(crate) const WINDOW_BITS: std::ops::RangeInclusive<u8> = 9..=15;

/// How often unused ones are freed at most, in milliseconds: loops ask for it one after the other.
const RELEASE_EVERY_MS: u64 = 4000;

static COMPRESSORS: [LazyLock<Stock>; 7] = [const { LazyLock::new(Stock::new) }; 7];

/// The compressors of one size.
struct Stock {
    kept: ArrayQueue<Compress>,
    /// The fewest that there were since unused ones were freed: so many nobody needed.
    least: AtomicUsize,
}

impl Stock {
    fn new() -> Self {
        Self { kept: ArrayQueue::new(STOCK_MAX), least: AtomicUsize::new(0) }
    }

    fn pop(&self) -> Option<Compress> {
        let popped = self.kept.pop();
        self.least.fetch_min(self.kept.len(), Ordering::Relaxed);
        popped
    }

    /// Frees what was not needed since the last call.
    fn release(&self) {
        for _ in 0..self.least.load(Ordering::Relaxed) {
            drop(self.kept.pop());
        }
        self.least.store(self.kept.len(), Ordering::Relaxed);
    }
}

fn compressors(window_bits: u8) -> &'static Stock {
    &COMPRESSORS[usize::from(window_bits - WINDOW_BITS.start())]
}

fn release() {
    static LAST_MS: AtomicU64 = AtomicU64::new(0);
    let now_ms = clock::monotonic_ms();
    let last_ms = LAST_MS.load(Ordering::Relaxed);
    let is_due = now_ms.saturating_sub(last_ms) >= RELEASE_EVERY_MS;
    if is_due && LAST_MS.compare_exchange(last_ms, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        for stock in COMPRESSORS.iter().filter_map(LazyLock::get) {
            stock.release();
        }
    }
}

/// A compressor that makes gzip.
pub(crate) struct Deflater {
    /// Taken when it goes back.
    compress: Option<Compress>,
    window_bits: u8,
}

impl Deflater {
    /// Takes an empty compressor from the stock. `level` is zlib's.
    pub(crate) fn take(level: u32, window_bits: u8) -> Self {
        let compression = Compression::new(library_level(level));
        let kept = compressors(window_bits).pop().and_then(|mut kept| {
            kept.reset();
            kept.set_level(compression).is_ok().then_some(kept)
        });
        let compress = kept.unwrap_or_else(|| Compress::new_gzip(compression, window_bits));
        Self { compress: Some(compress), window_bits }
    }

    /// Compresses into the room that `out` has; how much of the input that took, bytes.
    pub(crate) fn compress(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        flush: FlushCompress,
    ) -> (usize, Status) {
        let compress = self.compress.as_mut().expect("taken when it goes back");
        let before = compress.total_in();
        let status = compress.compress_vec(input, out, flush);
        // It only fails when it is used out of order.
        let status = status.expect("a stream is compressed in order");
        ((compress.total_in() - before) as usize, status)
    }

    /// Bytes that it has taken and made so far.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let compress = self.compress.as_ref().expect("taken when it goes back");
        (compress.total_in(), compress.total_out())
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        if let Some(compress) = self.compress.take() {
            static REGISTERED: Once = Once::new();
            REGISTERED.call_once(|| memory::register(release));
            // What does not fit in is freed.
            let _ = compressors(self.window_bits).kept.push(compress);
        }
    }
}

/// The library's first level finds much less than zlib's, its second as much in less time.
fn library_level(level: u32) -> u32 {
    level.max(2)
}
