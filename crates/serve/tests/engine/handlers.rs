//! Handlers as engines of upstream servers are made: they send and receive in one poll.

use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use clearway_http::{Answer, Chunk, Exchange, HeaderName, Headers, Mark, Pushed, Step, Unsent};

use clearway_message::{Header, Known, Span, name_hash};

use crate::site::Act;

pub(crate) fn named(name: &str) -> Act {
    match name {
        "digits" => |exchange| Step::Wait(Box::pin(digits(exchange))),
        "regardless" => |exchange| Step::WaitRegardless(Box::pin(regardless(exchange))),
        "hints" => hint,
        "trailers" => trail,
        "pieces" => |exchange| Step::Wait(Box::pin(pieces(exchange))),
        "page" => page,
        "echo" => |exchange| Step::WaitRegardless(Box::pin(echo(exchange))),
        "passed" => pass,
        "words" => words,
        "fails" => fail,
        _ => panic!("no handler {name}"),
    }
}

/// What one response holds of what it receives, bytes.
const HELD_MAX: usize = 20_000;
const PIECE: usize = 6_000;
/// All that is sent: more than sockets hold.
pub(crate) const DIGITS: usize = 4_000 * PIECE;
/// What all pieces are.
static PIECE_DIGITS: [u8; PIECE] = {
    let mut digits = [0; PIECE];
    let mut at = 0;
    while at < PIECE {
        digits[at] = b'0' + (at % 10) as u8;
        at += 1;
    }
    digits
};

/// How often a handler received something, and how much it held at most.
pub(crate) static RECEIVED: AtomicUsize = AtomicUsize::new(0);
pub(crate) static MOST_HELD: AtomicUsize = AtomicUsize::new(0);

/// Receives in the poll in which it sends, and no more than fits.
async fn digits(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    exchange.output.head().status = 200;
    let mut at = 0;
    // What could not be sent is logged behind the handler.
    let _: Result<(), Unsent> = poll_fn(|cx| {
        loop {
            RECEIVED.fetch_add(1, Ordering::SeqCst);
            while at < DIGITS && exchange.output.queued_bytes() + PIECE <= HELD_MAX {
                at += PIECE;
                let piece = Chunk::Borrowed(&PIECE_DIGITS);
                let pushed = exchange.output.write(exchange.request, piece, Mark::More);
                assert_eq!(pushed == Pushed::Full, exchange.output.is_full());
                MOST_HELD.fetch_max(exchange.output.queued_bytes(), Ordering::SeqCst);
            }
            match exchange.output.poll_ready(exchange.request, cx) {
                Poll::Ready(Ok(())) if at < DIGITS => {}
                ready => return ready,
            }
        }
    })
    .await;
    Step::Done
}

/// Where a handler goes on that its client has left.
#[derive(Default)]
pub(crate) struct Further {
    waiting: Mutex<Option<Waker>>,
    steps: AtomicUsize,
}

pub(crate) static FURTHER: Further = Further { waiting: Mutex::new(None), steps: AtomicUsize::new(0) };

impl Further {
    pub(crate) fn is_reached(&self) -> bool {
        self.waiting.lock().unwrap().is_some()
    }

    pub(crate) fn step(&self) {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.waiting.lock().unwrap().take().unwrap().wake();
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        *self.waiting.lock().unwrap() = Some(cx.waker().clone());
        if self.steps.load(Ordering::SeqCst) > 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Goes on when its client has left.
async fn regardless(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let closed = poll_fn(|cx| exchange.request.poll_closed(cx)).await;
    assert!(closed.is_ok());
    exchange.output.abandon(exchange.request);
    poll_fn(|cx| FURTHER.poll(cx)).await;
    for _ in 0..100 {
        let pushed = exchange.output.write(exchange.request, Chunk::Owned(vec![b'x'; 10_000]), Mark::More);
        assert_eq!((pushed, exchange.output.queued_bytes()), (Pushed::Sent, 0));
        assert_eq!(poll_fn(|cx| exchange.output.poll_ready(exchange.request, cx)).await, Ok(()));
    }
    FURTHER.steps.fetch_add(1, Ordering::SeqCst);
    Step::Done
}

impl Further {
    pub(crate) fn is_over(&self) -> bool {
        self.steps.load(Ordering::SeqCst) == 2
    }
}

fn answer(exchange: &mut Exchange<'_, '_>, text: &'static [u8]) {
    let head = exchange.output.head();
    head.status = 200;
    head.content_length = Some(text.len() as u64);
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(text), Mark::Last);
}

fn hint<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let mut lines = Headers::default();
    exchange.output.interim(exchange.request, 103, &lines);
    lines.add(b"Link", b"</a.css>; rel=preload");
    exchange.output.interim(exchange.request, 103, &lines);
    answer(&mut exchange, b"final");
    exchange.output.interim(exchange.request, 103, &lines);
    Step::Done
}

fn push_words(exchange: &mut Exchange<'_, '_>, words: &[&'static [u8]]) {
    let head = exchange.output.head();
    (head.status, head.content_type) = (200, Some(b"text/html".into()));
    for word in words {
        let pushed = exchange.output.write(exchange.request, Chunk::Borrowed(word), Mark::More);
        assert_eq!(pushed, Pushed::Sent);
    }
}

/// Does not wait for anything.
fn words<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    push_words(&mut exchange, &[b"one ", b"two ", b"three"]);
    Step::Done
}

/// Has begun to answer when it finds that it cannot.
fn fail<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    push_words(&mut exchange, &[b"half "]);
    Step::status(502)
}

fn trail<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    exchange.output.head().status = 200;
    let _ = exchange.output.write(exchange.request, Chunk::Borrowed(b"body"), Mark::More);
    let mut lines = Headers::default();
    lines.add(b"X-Sum", b"4");
    lines.add(b"X-Other", b"5");
    lines.remove(HeaderName::new(b"x-other"));
    exchange.output.pass_trailers(&lines);
    let _ = exchange.output.write(exchange.request, Chunk::EMPTY, Mark::Last);
    Step::Done
}

/// Answers with the sizes of pieces while it receives them.
async fn pieces(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    let start = format!("{:?} {}:", exchange.body.announced(), exchange.body.is_chunked());
    exchange.output.head().status = 200;
    let _ = exchange.output.write(exchange.request, Chunk::Owned(start.into()), Mark::Flush);
    let mut piece = Vec::with_capacity(100);
    let read = poll_fn(|cx| {
        loop {
            piece.clear();
            let read = exchange.poll_body(&mut piece, cx);
            let sent = exchange.output.poll_ready(exchange.request, cx);
            match read {
                Poll::Ready(Ok(())) if !piece.is_empty() => {
                    let text = format!(" {}", String::from_utf8_lossy(&piece));
                    let _ = exchange.output.write(exchange.request, Chunk::Owned(text.into()), Mark::Flush);
                }
                Poll::Ready(read) => return Poll::Ready(read),
                Poll::Pending if sent == Poll::Ready(Err(Unsent)) => {
                    return Poll::Ready(Err(Answer::Close));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    match read {
        Ok(()) => Step::Done,
        Err(answer) => Step::Respond(answer),
    }
}

/// Says whether there are pages, and names an upstream server in the log.
fn page<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    assert!(exchange.request.has_error_page(502) && !exchange.request.has_error_page(503));
    exchange.request.set_upstream(|_, f| f.write_str("http://192.0.2.1:81/x"));
    exchange.request.set_action("reading response header from upstream");
    exchange.request.log(clearway_base::log::Level::Error, format_args!("no"));
    answer(&mut exchange, b"page");
    Step::Done
}

/// Sends back what it is sent, from behind the head on, until the client ends its direction.
async fn echo(mut exchange: Exchange<'_, '_>) -> Step<'static> {
    exchange.output.head().status = 101;
    exchange.output.head().headers.add(b"Upgrade", b"echo");
    exchange.output.send_head(exchange.request);
    let mut tunnel = exchange.into_tunnel().unwrap();
    if tunnel.begin().await.is_err() {
        return tunnel.close();
    }
    let mut held = Vec::new();
    let (mut ended, mut first) = (false, true);
    let carried: std::io::Result<()> = poll_fn(|cx| {
        loop {
            while !held.is_empty() {
                let count = std::task::ready!(tunnel.poll_write(cx, &held))?;
                held.drain(..count);
            }
            if ended {
                return Poll::Ready(Ok(()));
            }
            if !std::mem::take(&mut first) {
                std::task::ready!(tunnel.poll_readable(cx));
            }
            held.reserve(4096);
            ended = std::task::ready!(tunnel.poll_read(cx, &mut held))? == 0;
        }
    })
    .await;
    if carried.is_ok() {
        tunnel.end_writing().unwrap();
    }
    tunnel.close()
}

/// Passes on the head that stands in the arguments, in which `|` ends lines.
fn pass<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let args = String::from_utf8(exchange.request.args().to_vec()).unwrap();
    let head = args.replace('+', " ").replace('|', "\r\n") + "\r\n";
    let (status, lines) = head.split_once("\r\n").unwrap();
    let mut at = 0;
    let spans: Vec<Header> = lines
        .split_inclusive('\n')
        .map(|line| {
            let colon = line.find(':').unwrap();
            let value = line[colon + 1..].trim();
            let start = at + colon + 1 + line[colon + 1..].find(|c: char| c != ' ').unwrap();
            let header = Header {
                name: Span::new(at, at + colon),
                value: Span::new(start, start + value.len()),
                hash: name_hash(&line.as_bytes()[..colon]),
                known: Known::find(&line.as_bytes()[..colon]),
            };
            at += line.len();
            header
        })
        .collect();
    exchange.output.pass_head(status.as_bytes(), lines.as_bytes().to_vec(), spans);
    exchange.output.head().content_length = Some(300);
    let _ = exchange.output.write(exchange.request, Chunk::Owned(vec![b'x'; 300]), Mark::Last);
    Step::Done
}
