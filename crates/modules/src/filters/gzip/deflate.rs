//! Compresses a body on its way out. Runs on the loop of the response, a bounded part of it at a time: what
//! is left over waits until others have had their turn and the socket has taken what was made.

use std::collections::VecDeque;

use bytes::Bytes;
use clearway_http::{BodyFilter, Buf, BufferSize, Chunk, Compression, Mark, Next};
use flate2::{FlushCompress, Status};

use super::again::{BODIES, Body, Known};
use super::stock::Deflater;

/// Bytes passed on at once at most.
const OUT_MAX_BYTES: usize = BufferSize::Medium.bytes();
/// Room that is made at first for a body of unknown length, bytes.
const OUT_FIRST_BYTES: usize = 4 * 1024;

/// How a response is to be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Manner {
    /// zlib's, 1 to 9.
    pub(super) level: u32,
    pub(super) window_bits: u8,
    /// Input that is gathered before it is compressed (`postpone_gzipping`), bytes.
    pub(super) postpone_bytes: u64,
    /// Output that is gathered before it is passed on (`gzip_buffers`), bytes.
    pub(super) out_bytes: u64,
    pub(super) holding: Holding,
}

/// The fate of compressed bytes that do not fill a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Holding {
    /// Compressed bytes wait for more.
    Held,
    /// Compressed bytes are passed on as soon as there is no more input (`gzip_no_buffer`).
    PassedOn,
}

/// The body filter.
pub(super) struct Deflate {
    manner: Manner,
    deflater: Option<Deflater>,
    /// Input to be compressed in later turns, each with its mark.
    waiting: VecDeque<(Bytes, Mark)>,
    /// Input that is gathered before the first is compressed; `None` from then on.
    postponed: Option<Vec<u8>>,
    out: Buf,
    /// Size of the buffers for what is made, bytes.
    out_bytes: usize,
    /// The recording of a body that is to be kept.
    recording: Option<Box<Recording>>,
    result: Option<Compression>,
}

/// A body that is compressed to be sent again, and the pieces so far.
struct Recording {
    body: Body,
    pieces: Vec<Bytes>,
}

impl Deflate {
    /// A compressor for a body of this length, if that is known.
    pub(super) fn new(manner: Manner, length: Option<u64>) -> Self {
        let most = manner.out_bytes.clamp(64, OUT_MAX_BYTES as u64);
        let guess = length.map_or(OUT_FIRST_BYTES as u64, |length| length / 2 + 64);
        Self {
            manner,
            deflater: None,
            waiting: VecDeque::new(),
            postponed: (manner.postpone_bytes > 0).then(Vec::new),
            out: Buf::default(),
            out_bytes: guess.min(most) as usize,
            recording: None,
            result: None,
        }
    }

    /// How much is compressed in one turn, bytes: about a quarter of a millisecond's work. A poll may have
    /// two, one when a chunk is pushed and one when it is flushed.
    fn turn_bytes(&self) -> usize {
        match self.manner.level {
            ..=2 => 64 * 1024,
            3..=4 => 32 * 1024,
            5..=6 => 16 * 1024,
            7.. => 8 * 1024,
        }
    }

    /// Compresses, `budget` bytes at most; how much was taken. With all of it taken, the mark is served.
    fn work(&mut self, input: &[u8], mark: Mark, budget: usize, next: &mut Next<'_, '_>) -> usize {
        let Manner { level, window_bits, .. } = self.manner;
        self.deflater.get_or_insert_with(|| Deflater::take(level, window_bits));
        let taken = input.len().min(budget);
        let is_all = taken == input.len();
        let flush = match mark {
            Mark::Last if is_all => FlushCompress::Finish,
            Mark::Flush if is_all => FlushCompress::Sync,
            _ => FlushCompress::None,
        };
        self.compress(&input[..taken], flush, next);
        match mark {
            Mark::Last if is_all => {
                let (taken_bytes, made_bytes) = self.deflater.take().map_or((0, 0), |done| done.totals());
                self.result = Some(Compression { taken_bytes, made_bytes });
                self.pass_on(Mark::Last, next);
                if let Some(recording) = self.recording.take() {
                    BODIES.keep(recording.body, recording.pieces);
                }
            }
            Mark::Flush if is_all => self.pass_on(Mark::Flush, next),
            _ if self.manner.holding == Holding::PassedOn && !self.out.is_empty() => {
                self.pass_on(Mark::More, next);
            }
            _ => {}
        }
        taken
    }

    /// Passes on what was made.
    fn pass_on(&mut self, mark: Mark, next: &mut Next<'_, '_>) {
        let made = std::mem::take(&mut self.out);
        if let Some(recording) = &mut self.recording {
            recording.pieces.push(Bytes::copy_from_slice(made.bytes()));
        }
        next.push(Chunk::Pooled(made), mark);
    }

    /// Sends a body that comes in one piece as it was compressed before; whether that could be done.
    fn send_again(&mut self, bytes: &Bytes, next: &mut Next<'_, '_>) -> bool {
        let Some(body) = Body::new(bytes, self.manner, self.out_bytes) else { return false };
        match BODIES.find(body) {
            Known::Pieces(kept) => {
                let made_bytes = kept.pieces.iter().map(|piece| piece.len() as u64).sum();
                self.result = Some(Compression { taken_bytes: bytes.len() as u64, made_bytes });
                for (piece, left) in kept.pieces.iter().zip((0..kept.pieces.len()).rev()) {
                    let mark = if left == 0 { Mark::Last } else { Mark::More };
                    next.push(Chunk::Shared(piece.clone()), mark);
                }
                true
            }
            Known::Wanted(body) => {
                self.recording = Some(Box::new(Recording { body, pieces: Vec::new() }));
                false
            }
            Known::New => false,
        }
    }

    /// Whether nothing has come so far.
    fn is_untouched(&self) -> bool {
        self.deflater.is_none()
            && self.waiting.is_empty()
            && self.postponed.as_ref().is_none_or(Vec::is_empty)
    }

    /// Compresses all of the input, passing on buffers that are full.
    fn compress(&mut self, mut input: &[u8], flush: FlushCompress, next: &mut Next<'_, '_>) {
        loop {
            if self.out.vec().capacity() == 0 {
                self.out = match self.out_bytes {
                    OUT_MAX_BYTES => next.request().take_buffer(BufferSize::Medium),
                    bytes => Buf::with_room(bytes),
                };
                self.out_bytes = OUT_MAX_BYTES.min(self.manner.out_bytes.max(64) as usize);
            }
            let deflater = self.deflater.as_mut().expect("taken before the first call");
            let (taken, status) = deflater.compress(input, self.out.vec(), flush);
            input = &input[taken..];
            // With room left there is no more to come of what was put in.
            if status == Status::StreamEnd || self.out.room() > 0 {
                debug_assert!(input.is_empty());
                return;
            }
            self.pass_on(Mark::More, next);
            if input.is_empty() && matches!(flush, FlushCompress::None) {
                return;
            }
        }
    }

    /// Gathers what comes before the first is compressed; what there is when that is enough.
    fn gather(&mut self, bytes: &[u8], mark: Mark) -> Option<Vec<u8>> {
        let gathered = self.postponed.as_mut()?;
        gathered.extend_from_slice(bytes);
        let is_enough = mark != Mark::More || gathered.len() as u64 > self.manner.postpone_bytes;
        is_enough.then(|| self.postponed.take().expect("it is there"))
    }

    fn take_in(&mut self, bytes: &[u8], mark: Mark, next: &mut Next<'_, '_>) -> usize {
        if !self.waiting.is_empty() {
            return 0;
        }
        self.work(bytes, mark, self.turn_bytes(), next)
    }
}

impl BodyFilter for Deflate {
    fn push<'c>(&mut self, mut chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if self.result.is_some() {
            return;
        }
        if let (Chunk::Shared(bytes), Mark::Last) = (&chunk, mark)
            && self.is_untouched()
            && self.send_again(bytes, next)
        {
            return;
        }
        if self.postponed.is_some() {
            match self.gather(chunk.bytes(), mark) {
                None => return,
                Some(gathered) => chunk = Chunk::Owned(gathered),
            }
        }
        if chunk.is_empty() && mark == Mark::More {
            return;
        }
        let is_first = self.waiting.is_empty();
        let taken = self.take_in(chunk.bytes(), mark, next);
        let is_done = is_first && taken as u64 == chunk.len();
        if !is_done {
            let rest = chunk.into_bytes().split_off(taken);
            self.waiting.push_back((rest, mark));
        }
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn resume(&mut self, next: &mut Next<'_, '_>) {
        let mut budget = self.turn_bytes();
        while let Some((mut bytes, mark)) = self.waiting.pop_front() {
            let taken = self.work(&bytes, mark, budget, next);
            budget -= taken;
            if taken < bytes.len() {
                self.waiting.push_front((bytes.split_off(taken), mark));
            }
            if budget == 0 {
                return;
            }
        }
    }

    fn compression(&self) -> Option<Compression> {
        self.result
    }
}
