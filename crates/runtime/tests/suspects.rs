//! Suspects that wait: for a spare carrier, for their turn. None is forgotten, each still hears of all else
//! that it waits for, and those that give up leave the line.
#![expect(clippy::disallowed_methods, reason = "these tests block on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::{Future, poll_fn};
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use clearway_runtime::{Config, Entering, LoopRef, Runtime, Socket, Tag, Timer, Token, enter, within};
use clearway_testkit::{chaos_lend, expect_soon, wait_until};

const PATIENCE: Duration = Duration::from_secs(30);

/// How long a poll that was lent goes on until it is a suspect for certain.
const AFTERWARDS: Duration = Duration::from_millis(100);

/// Where every poll is lent on purpose nothing is caught holding its loop, so that there are no suspects.
fn has_no_suspects() -> bool {
    chaos_lend().is_some()
}

fn start(handover_after_ms: u64, carriers: usize) -> Runtime {
    let config = Config {
        handover_after: Some(Duration::from_millis(handover_after_ms)),
        handover_carriers: carriers,
        ..Config::default()
    };
    Runtime::start(&config).unwrap()
}

async fn sleep(home: LoopRef, ms: u64) {
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + ms);
    poll_fn(|cx| timer.poll_expired(cx)).await;
}

/// Holds the thread under `tag` until another task of the loop has run, which needs a hand-over, and for a
/// while longer: what was lent while it had no processor is not blamed before it has used one.
fn make_suspect(home: LoopRef, tag: Tag, hold: fn()) {
    let (caught, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (seen, end) = (Arc::clone(&caught), Arc::clone(&over));
    home.spawn(Tag::NONE, async move {
        within(tag, async {
            home.spawn(Tag::NONE, async move { seen.store(true, Ordering::Relaxed) });
            while !caught.load(Ordering::Relaxed) {
                hold();
            }
            let end = Instant::now() + AFTERWARDS;
            while Instant::now() < end {
                hold();
            }
        })
        .await;
        end.store(true, Ordering::Relaxed);
    });
    expect_soon("it loses its loop", || over.load(Ordering::Relaxed));
}

fn doze() {
    std::thread::sleep(Duration::from_millis(1));
}

/// A poll that holds a carrier under a tag until it is told to end.
struct Blocker {
    may_end: Arc<AtomicBool>,
    ended: mpsc::Receiver<()>,
}

impl Blocker {
    fn start(home: LoopRef, tag: Tag, hold: fn()) -> Self {
        let may_end = Arc::new(AtomicBool::new(false));
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let told = Arc::clone(&may_end);
        home.spawn(Tag::NONE, async move {
            within(tag, async {
                begin.send(()).unwrap();
                while !told.load(Ordering::Relaxed) {
                    hold();
                }
            })
            .await;
            end.send(()).unwrap();
        });
        begun.recv_timeout(PATIENCE).unwrap();
        Self { may_end, ended }
    }

    fn end(self) {
        self.may_end.store(true, Ordering::Relaxed);
        self.ended.recv_timeout(PATIENCE).unwrap();
    }
}

/// They hold a carrier for so short a time that their tag is trusted again while others of it wait.
#[test]
fn waiting_suspects_are_not_forgotten_when_their_tag_is_trusted_again() {
    const TASKS: usize = 100;
    // Open: later polls as a whole are suspect. Scoped: a part of a poll is.
    let spawn_open = |home: LoopRef, tag, done: Arc<AtomicUsize>| {
        home.spawn(Tag::NONE, async move {
            enter(tag).await;
            std::thread::sleep(Duration::from_micros(300));
            enter(Tag::NONE).await;
            done.fetch_add(1, Ordering::Relaxed);
        });
    };
    let spawn_scoped = |home: LoopRef, tag, done: Arc<AtomicUsize>| {
        home.spawn(Tag::NONE, async move {
            within(tag, async { std::thread::sleep(Duration::from_micros(300)) }).await;
            done.fetch_add(1, Ordering::Relaxed);
        });
    };
    for round in 0..5_u8 {
        for spawn in [spawn_open, spawn_scoped] {
            let runtime = start(20, 4);
            let tag = Tag::of(&[round]);
            make_suspect(runtime.at(0), tag, doze);
            let done = Arc::new(AtomicUsize::new(0));
            for _ in 0..TASKS {
                spawn(runtime.at(0), tag, Arc::clone(&done));
            }
            expect_soon("all are served", || done.load(Ordering::Relaxed) == TASKS);
            runtime.stop();
        }
    }
}

/// Suspect from the beginning of its next poll, and waiting for that.
#[test]
fn a_task_that_was_suspended_under_a_tag_is_not_forgotten() {
    const TASKS: usize = 60;
    let runtime = start(10, 2);
    let (home, tag) = (runtime.at(0), Tag::of(b"open"));
    make_suspect(home, tag, doze);
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..TASKS {
        let done = Arc::clone(&done);
        home.spawn(Tag::NONE, async move {
            enter(tag).await;
            for _ in 0..3 {
                sleep(home, 1).await;
                std::thread::sleep(Duration::from_micros(200));
            }
            enter(Tag::NONE).await;
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("all are served", || done.load(Ordering::Relaxed) == TASKS);
    runtime.stop();
}

/// What comes first: the future has ended, or so much time is over.
async fn limited<R>(home: LoopRef, ms: u64, future: impl Future<Output = R>) -> bool {
    let mut future = pin!(future);
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + ms);
    poll_fn(|cx| match timer.poll_expired(cx) {
        Poll::Ready(()) => Poll::Ready(false),
        Poll::Pending => future.as_mut().poll(cx).map(|_| true),
    })
    .await
}

/// A poll that could not do what it was for, as another one held the token, tells nothing.
#[test]
fn waiting_for_a_token_earns_no_trust() {
    const TASKS: usize = 30;
    if has_no_suspects() {
        return;
    }
    let runtime = start(10, 4);
    let (home, tag) = (runtime.at(0), Tag::of(b"enters"));
    let token = Arc::new(Token::new());
    let (may_end, has_begun) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (held, told, begun) = (Arc::clone(&token), Arc::clone(&may_end), Arc::clone(&has_begun));
    home.spawn(Tag::NONE, async move {
        let hold = poll_fn(|cx| {
            let held = held.try_enter(cx);
            begun.store(true, Ordering::Relaxed);
            while !told.load(Ordering::Relaxed) {
                doze();
            }
            drop(held);
            Poll::Ready(())
        });
        within(Tag::of(b"holds"), hold).await;
    });
    expect_soon("it is held", || has_begun.load(Ordering::Relaxed));
    make_suspect(home, tag, doze);
    let (waiting, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..TASKS {
        let (token, waiting, entered) = (Arc::clone(&token), Arc::clone(&waiting), Arc::clone(&entered));
        home.spawn(Tag::NONE, async move {
            let mut entering = Entering::new(token);
            let mut has_waited = false;
            let enter = poll_fn(|cx| {
                let polled = entering.poll(cx).map(drop);
                if polled.is_pending() && !std::mem::replace(&mut has_waited, true) {
                    waiting.fetch_add(1, Ordering::Relaxed);
                }
                polled
            });
            within(tag, enter).await;
            entered.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("all wait", || waiting.load(Ordering::Relaxed) == TASKS);
    let (answer, answered) = mpsc::channel();
    home.spawn(Tag::NONE, async move {
        let look = poll_fn(|cx| Poll::Ready(Token::poll_of(cx).is_some_and(|poll| home.is_away(poll))));
        answer.send(within(tag, look).await).unwrap();
    });
    assert_eq!(answered.recv_timeout(PATIENCE), Ok(true), "it is still a suspect");
    may_end.store(true, Ordering::Relaxed);
    expect_soon("all have entered", || entered.load(Ordering::Relaxed) == TASKS);
    runtime.stop();
}

#[test]
fn those_that_give_up_do_not_keep_others_waiting() {
    const TASKS: usize = 30;
    let runtime = start(10, 2);
    let (home, tag) = (runtime.at(0), Tag::of(b"gives up"));
    let done = Arc::new(AtomicUsize::new(0));
    for number in 0..TASKS {
        let done = Arc::clone(&done);
        home.spawn(Tag::NONE, async move {
            let blocks = async {
                within(tag, async { std::thread::sleep(Duration::from_millis(30)) }).await;
            };
            match number % 2 {
                0 => blocks.await,
                _ => drop(limited(home, 50, blocks).await),
            }
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("all are served or have given up", || done.load(Ordering::Relaxed) == TASKS);
    runtime.stop();
}

/// In the line for a spare (all are taken) or for a turn: timers and sockets of the task are heard.
#[test]
fn a_task_in_line_hears_of_its_timers_and_its_client() {
    if has_no_suspects() {
        return;
    }
    for hold in [doze as fn(), std::hint::spin_loop] {
        let runtime = start(2, 1);
        let (home, tag) = (runtime.at(0), Tag::of(b"in line"));
        make_suspect(home, tag, hold);
        let blocker = Blocker::start(home, tag, hold);
        let ran = Arc::new(AtomicUsize::new(0));
        let enters = || {
            let ran = Arc::clone(&ran);
            within(tag, async move { ran.fetch_add(1, Ordering::Relaxed) })
        };

        let (sender, receiver) = mpsc::channel();
        let future = enters();
        home.spawn(Tag::NONE, async move { sender.send(limited(home, 30, future).await).unwrap() });
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(false), "its time was over");

        let (near, far) = UnixStream::pair().unwrap();
        far.set_nonblocking(true).unwrap();
        let (sender, receiver) = mpsc::channel();
        let future = enters();
        home.spawn(Tag::NONE, async move {
            let socket = Socket::new(home, far.into());
            let mut future = pin!(future);
            let left = poll_fn(|cx| match socket.poll_closed(cx) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => future.as_mut().poll(cx).map(|_| false),
            });
            sender.send(left.await).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err(), "it waits");
        drop(near);
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(true), "its client has left");
        assert_eq!(ran.load(Ordering::Relaxed), 0);

        // Both have left the line: the next one in it is served.
        let (sender, receiver) = mpsc::channel();
        let future = enters();
        home.spawn(Tag::NONE, async move {
            future.await;
            sender.send(()).unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(30)).is_err(), "it waits");
        blocker.end();
        receiver.recv_timeout(PATIENCE).unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 1);
        runtime.stop();
    }
}

/// Thousands come, wait, and leave while nobody goes on: nothing of their tasks stays.
#[test]
fn a_task_that_leaves_the_line_is_not_kept_by_it() {
    const TASKS: usize = 2000;
    if has_no_suspects() {
        return;
    }
    let runtime = start(2, 1);
    let (home, tag) = (runtime.at(0), Tag::of(b"leaves"));
    make_suspect(home, tag, doze);
    let blocker = Blocker::start(home, tag, doze);
    let (held, left) = (Arc::new(()), Arc::new(AtomicUsize::new(0)));
    for _ in 0..TASKS {
        let (held, left) = (Arc::clone(&held), Arc::clone(&left));
        home.spawn(Tag::NONE, async move {
            let _held = held;
            let waits = within(tag, std::future::pending::<()>());
            assert!(!limited(home, 5, waits).await);
            left.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("all have left", || left.load(Ordering::Relaxed) == TASKS);
    assert!(wait_until(PATIENCE, || Arc::strong_count(&held) == 1), "and are gone");
    blocker.end();
    runtime.stop();
}
