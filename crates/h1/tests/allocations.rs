//! What a received head allocates: nothing for each of its lines, and nothing at all once its memory has been
//! used before. The same for a head that is passed on.
#![expect(unsafe_code, reason = "an allocator that counts")]
#![expect(clippy::disallowed_macros, reason = "counts for each test's own thread, on which no task runs")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use clearway_h1::{HeadParser, HeadProgress, Options};
use clearway_message::{Header, HeaderName, Headers, Known, Piece, RequestHead, Span, name_hash};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: `System` does it all, and is asked for exactly what was asked of this; the counter is a `Cell` that
// is made at compile time and has no destructor, so that counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about `layout` is the one that `System` wants.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count();
        // SAFETY: `ptr` is from `System`, as all of this allocator is; the rest is the caller's promise.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as for `realloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATIONS.get();
    let done = work();
    (ALLOCATIONS.get() - before, done)
}

fn lines(count: usize) -> String {
    let line = |number| format!("X-Name-{number}: value {number}\r\n");
    (0..count).map(line).collect()
}

#[test]
fn a_received_head_allocates_nothing_per_line() {
    let options = Options::default();
    let (mut parser, mut head) = (HeadParser::new(), RequestHead::new());
    let mut parse = |count: usize| {
        let input = format!("GET / HTTP/1.1\r\nHost: h\r\n{}\r\n", lines(count));
        parser.clear();
        head.clear();
        let (allocated, parsed) = allocations(|| parser.parse(&mut head, input.as_bytes(), &options));
        assert_eq!(parsed, Ok(HeadProgress::Complete));
        assert_eq!(head.headers.len(), count + 1);
        allocated
    };
    assert_eq!(parse(15), 0, "as many as a head has as a rule");
    let of_many = parse(255);
    assert!(of_many <= 5, "the list of lines doubles: {of_many}");
    assert_eq!(parse(255), 0, "the list is used again");
}

#[test]
fn a_passed_head_allocates_nothing_per_line() {
    // Without spare room, as what is copied out of a buffer is.
    let received = lines(15).as_bytes().to_vec();
    let spans: Vec<Header> = spans(&received);
    let (allocated, mut headers) = allocations(|| {
        let mut headers = Headers::default();
        headers.pass(received, spans);
        headers
    });
    assert_eq!(allocated, 1, "the list of lines");
    let mut out = Vec::with_capacity(1024);
    let (allocated, ()) = allocations(|| {
        assert!(headers.remove(HeaderName::new(b"x-name-3")));
        put(&headers, &mut out);
    });
    assert_eq!((allocated, headers.pieces().count()), (0, 2));
    let (allocated, ()) = allocations(|| {
        headers.set(HeaderName::new(b"X-Name-5"), b"another");
        headers.add(b"Via", b"1.1 clearway");
    });
    assert_eq!((allocated, headers.pieces().count()), (1, 5), "one buffer for all that is edited");
}

fn put(headers: &Headers, out: &mut Vec<u8>) {
    for piece in headers.pieces() {
        match piece {
            Piece::Lines(lines) => out.extend_from_slice(lines),
            Piece::Line(..) => panic!("all lines stand as they are sent"),
        }
    }
}

/// The lines of a head in which all are written in the usual form.
fn spans(head: &[u8]) -> Vec<Header> {
    let mut start = 0;
    let lines = head.split_inclusive(|&byte| byte == b'\n').map(|line| {
        let name = line.iter().position(|&byte| byte == b':').expect("a colon");
        let header = Header {
            name: Span::new(start, start + name),
            value: Span::new(start + name + 2, start + line.len() - 2),
            hash: name_hash(&line[..name]),
            known: Known::find(&line[..name]),
        };
        start += line.len();
        header
    });
    lines.collect()
}
