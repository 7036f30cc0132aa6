//! The memory of compressors, some 300 KiB each, kept for the next response when one is done: a bounded
//! stock per size of window, shared by all loops. Nobody waits here.

use std::sync::LazyLock;

use crossbeam_queue::ArrayQueue;
use flate2::{Compress, Compression, FlushCompress, Status};

/// Compressors of each size of window that are kept at most.
const STOCK_MAX: usize = 32;
/// The smallest and the largest window, bits.
pub(crate) const WINDOW_BITS: std::ops::RangeInclusive<u8> = 9..=15;

static COMPRESSORS: [LazyLock<ArrayQueue<Compress>>; 7] =
    [const { LazyLock::new(|| ArrayQueue::new(STOCK_MAX)) }; 7];

fn compressors(window_bits: u8) -> &'static ArrayQueue<Compress> {
    &COMPRESSORS[usize::from(window_bits - WINDOW_BITS.start())]
}

/// A compressor that makes gzip.
pub(crate) struct Deflater {
    /// Taken when it goes back.
    compress: Option<Compress>,
    window_bits: u8,
}

impl Deflater {
    /// One with nothing in it. `level` is zlib's.
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

    /// What it took and made so far, bytes.
    pub(crate) fn totals(&self) -> (u64, u64) {
        let compress = self.compress.as_ref().expect("taken when it goes back");
        (compress.total_in(), compress.total_out())
    }
}

impl Drop for Deflater {
    fn drop(&mut self) {
        if let Some(compress) = self.compress.take() {
            // What does not fit in is freed.
            let _ = compressors(self.window_bits).push(compress);
        }
    }
}

/// The library's first level finds much less than zlib's, its second as much in less time.
fn library_level(level: u32) -> u32 {
    level.max(2)
}
