//! `gunzip`: responses that are there compressed only are decompressed for clients that do not accept that.
//! A filter on the loop of the response. However much comes out of little, a turn makes a bounded part of it,
//! and the next one comes when the socket has taken that.

use std::collections::VecDeque;

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Spec};
use clearway_http::{
    BodyFilter, Chunk, ConfKey, FilterSpec, Filtering, Level, Load, Mark, Module, Next, Ranges, Setting,
    context, set, settings,
};
use flate2::{Decompress, FlushDecompress, Status};

use crate::filters::gzip::acceptance::{is_accepted, mark_varying};

/// The module.
pub static GUNZIP: Module = Module {
    name: "gunzip",
    directives: DIRECTIVES,
    confs: &[&GUNZIP_CONF],
    filters: &[FilterSpec { enabled: |enabling| *enabling.confs.of(&GUNZIP_CONF).enable, filter }],
    ..Module::EMPTY
};

/// Bytes passed on at once at most.
const OUT_MAX_BYTES: u64 = 32 * 1024;
/// The most bytes that are made in one turn; one buffer may come on top.
const TURN_BYTES: usize = 64 * 1024;
/// The cost of a further member of a file in a turn, bytes: a decompressor is made for it.
const MEMBER_COST_BYTES: usize = 8 * 1024;
/// The window of gzip, bits.
const WINDOW_BITS: u8 = 15;

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "gunzip",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "gunzip on | off",
        default: "gunzip off;",
        doc: "Whether responses with `Content-Encoding: gzip` are decompressed for clients that do not \
              accept them.",
        example: EXAMPLE_OF_GUNZIP,
        see: &["gunzip_buffers", "gzip_static", "gzip"],
        handler: |scope, d| set(d, &mut scope.conf.location(&GUNZIP_CONF).enable, |d| d.flag(0)),
    },
    Spec {
        name: "gunzip_buffers",
        contexts: context::ALL,
        args: Args::TAKE2,
        syntax: "gunzip_buffers NUMBER SIZE",
        default: "gunzip_buffers 32 4k;",
        doc: "How much is decompressed before it is passed on: all the buffers together, 32k at most.",
        example: EXAMPLE_OF_GUNZIP,
        see: &["gunzip", "gzip_static", "gzip"],
        handler: |scope, d| set(d, &mut scope.conf.location(&GUNZIP_CONF).buffers, |d| d.buffers(0)),
    },
];

/// The example of `gunzip` and `gunzip_buffers`.
const EXAMPLE_OF_GUNZIP: &str = "
    location /assets/ {
        gzip_static always;
        gunzip on;
        gunzip_buffers 16 8k;
    }";

static GUNZIP_CONF: ConfKey<GunzipConf> = ConfKey::new(Level::Location);

settings! {
    struct GunzipConf {
        enable: Setting<bool> = false,
        buffers: Setting<(u64, u64)> = (32, 4096),
    }
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let (number, size) = *request.conf(&GUNZIP_CONF).buffers;
    let head = filtering.head();
    if !head.content_encoding.as_ref()?.eq_ignore_ascii_case(b"gzip") {
        return None;
    }
    mark_varying(request, head);
    if is_accepted(request, head) {
        return None;
    }
    head.content_encoding = None;
    head.content_length = None;
    head.ranges = Ranges::Refused;
    head.weaken_etag();
    let out_bytes = number.saturating_mul(size).clamp(64, OUT_MAX_BYTES) as usize;
    Some(Box::new(Inflate { out_bytes, ..Inflate::default() }))
}

/// The body filter.
#[derive(Default)]
struct Inflate {
    /// None before the first byte.
    decompress: Option<Decompress>,
    /// Size of the buffers that are passed on, bytes.
    out_bytes: usize,
    out: Vec<u8>,
    /// Input to be decompressed in later turns, each with its mark.
    compressed: VecDeque<(Bytes, Mark)>,
    member: Member,
    progress: Progress,
}

/// Where in the file it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Member {
    #[default]
    Inside,
    /// Another one begins with the next byte, if there is one.
    Ended,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Going,
    /// The end was passed on, or found to be missing.
    Ended,
}

/// How far an input was decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worked {
    /// The output is complete.
    Whole,
    /// A part of so many bytes; further parts of the same output may follow.
    Part(usize),
    /// The data are not valid.
    Broken,
}

impl Inflate {
    /// Decompresses, making about `budget` bytes.
    fn work(&mut self, input: &[u8], mark: Mark, budget: &mut usize, next: &mut Next<'_, '_>) -> Worked {
        let mut at = 0;
        loop {
            if self.member == Member::Ended && at < input.len() {
                (self.decompress, self.member) = (None, Member::Inside);
                *budget = budget.saturating_sub(MEMBER_COST_BYTES);
            }
            if self.out.capacity() == 0 {
                self.out.reserve_exact(self.out_bytes);
            }
            let decompress = self.decompress.get_or_insert_with(|| Decompress::new_gzip(WINDOW_BITS));
            let (before, from) = ((decompress.total_in(), self.out.len()), at);
            let status = match self.member {
                Member::Ended => Ok(Status::StreamEnd),
                Member::Inside => {
                    decompress.decompress_vec(&input[at..], &mut self.out, FlushDecompress::None)
                }
            };
            at += (decompress.total_in() - before.0) as usize;
            *budget = budget.saturating_sub(self.out.len() - before.1);
            match status {
                Err(_) => {
                    let flush = flush_code(mark);
                    let message = format_args!("inflate() failed: {flush}, -3");
                    next.request().log(LogLevel::Error, message);
                    return Worked::Broken;
                }
                Ok(Status::StreamEnd) => self.member = Member::Ended,
                Ok(Status::Ok | Status::BufError) => {}
            }
            let is_full = self.out.len() == self.out.capacity();
            let has_moved = self.member == Member::Ended || at > from || self.out.len() > before.1;
            if at < input.len() && !has_moved && !is_full {
                return Worked::Broken;
            }
            if is_full {
                next.push(Chunk::Owned(std::mem::take(&mut self.out)), Mark::More);
            }
            let is_over = at == input.len() && (!is_full || self.member == Member::Ended);
            if is_over {
                return Worked::Whole;
            }
            if *budget == 0 {
                return Worked::Part(at);
            }
        }
    }

    /// Handles the end of an input that was decompressed.
    fn end(&mut self, mark: Mark, next: &mut Next<'_, '_>) {
        match mark {
            Mark::More => {}
            Mark::Last if self.member == Member::Inside => {
                let message = format_args!("inflate() returned -5 on response end");
                next.request().log(LogLevel::Error, message);
                self.give_up(next);
            }
            Mark::Last | Mark::Flush => {
                if mark == Mark::Last {
                    self.progress = Progress::Ended;
                }
                next.push(Chunk::Owned(std::mem::take(&mut self.out)), mark);
            }
        }
    }

    fn give_up(&mut self, next: &mut Next<'_, '_>) {
        self.progress = Progress::Ended;
        self.compressed.clear();
        next.terminate();
    }

    fn go_on(&mut self, next: &mut Next<'_, '_>) {
        let mut budget = TURN_BYTES;
        while budget > 0
            && let Some((bytes, mark)) = self.compressed.pop_front()
        {
            match self.work(&bytes, mark, &mut budget, next) {
                Worked::Whole => self.end(mark, next),
                Worked::Part(done) => self.compressed.push_front((bytes.slice(done..), mark)),
                Worked::Broken => self.give_up(next),
            }
        }
    }
}

/// zlib's, as it stands in messages.
fn flush_code(mark: Mark) -> u8 {
    match mark {
        Mark::More => 0,
        Mark::Flush => 2,
        Mark::Last => 4,
    }
}

impl BodyFilter for Inflate {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if self.progress == Progress::Ended || (chunk.is_empty() && mark == Mark::More) {
            return;
        }
        let is_busy = self.is_busy();
        self.compressed.push_back((chunk.into_bytes(), mark));
        if !is_busy {
            self.go_on(next);
        }
    }

    fn is_busy(&self) -> bool {
        !self.compressed.is_empty()
    }

    fn resume(&mut self, next: &mut Next<'_, '_>) {
        self.go_on(next);
    }
}
