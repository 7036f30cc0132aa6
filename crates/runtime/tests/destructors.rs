//! Destructors that panic or block, and panics outside polls: a loop goes on, or the process ends.
#![expect(clippy::disallowed_methods, reason = "these tests block on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::{pending, poll_fn};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use clearway_base::log::{Discard, Level, Record, Sink};
use clearway_runtime::{Config, LoopRef, Runtime, Socket, Tag, Timer};
use clearway_testkit::expect_soon;

const PATIENCE: Duration = Duration::from_secs(30);

/// Set in the process that is to end itself.
const DIES: &str = "CLEARWAY_TEST_DIES";

fn start(sink: Arc<dyn Sink>) -> Runtime {
    let config = Config {
        handover_after: Some(Duration::from_millis(5)),
        handover_carriers: 4,
        sink,
        ..Config::default()
    };
    Runtime::start(&config).unwrap()
}

/// Waits until a task that is spawned now has been polled.
fn expect_alive(home: LoopRef) {
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move { sender.send(()).unwrap() });
    receiver.recv_timeout(PATIENCE).expect("the loop runs");
}

/// Says that it is dropped, then panics.
struct PanicsOnDrop(Arc<AtomicBool>);

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        panic!("a destructor, on purpose");
    }
}

/// Runs `spawn` with what panics when it is dropped; the loop must survive that.
fn survives(spawn: impl FnOnce(LoopRef, PanicsOnDrop)) {
    let runtime = start(Arc::new(Discard));
    let panics = clearway_runtime::metrics::TASK_PANICS.value();
    let dropped = Arc::new(AtomicBool::new(false));
    spawn(runtime.at(0), PanicsOnDrop(Arc::clone(&dropped)));
    expect_soon("it is dropped", || dropped.load(Ordering::Relaxed));
    expect_soon("it is counted", || clearway_runtime::metrics::TASK_PANICS.value() > panics);
    expect_alive(runtime.at(0));
    runtime.stop();
}

#[test]
fn a_destructor_that_panics_ends_its_task_alone() {
    // The future of a task that has ended, of one that nothing can wake, and what a panic has thrown.
    survives(|home, held| home.spawn(Tag::NONE, async move { drop(held) }));
    survives(|home, held| {
        home.spawn(Tag::NONE, async move {
            let _held = held;
            pending::<()>().await;
        });
    });
    survives(|home, held| home.spawn(Tag::NONE, async move { std::panic::panic_any(held) }));
}

/// The last waker is dropped by a thread that is none of the runtime's.
#[test]
fn a_destructor_never_runs_where_the_last_waker_is_dropped() {
    survives(|home, held| {
        let (sender, receiver) = mpsc::channel();
        home.spawn(Tag::NONE, async move {
            let _held = held;
            poll_fn(|cx| {
                sender.send(cx.waker().clone()).unwrap();
                Poll::<()>::Pending
            })
            .await;
        });
        drop(receiver.recv_timeout(PATIENCE).unwrap());
    });
}

/// Tells when its destructor has begun, which ends when it is told to.
struct BlocksOnDrop {
    begun: Arc<AtomicBool>,
    may_end: Arc<AtomicBool>,
}

impl Drop for BlocksOnDrop {
    fn drop(&mut self) {
        self.begun.store(true, Ordering::Relaxed);
        expect_soon("others have run", || self.may_end.load(Ordering::Relaxed));
    }
}

/// A task whose last waker was in a timer is dropped in a poll, which can be handed over.
#[test]
fn a_destructor_that_blocks_does_not_hold_the_loop() {
    let runtime = start(Arc::new(Discard));
    let home = runtime.at(0);
    let (begun, may_end) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let held = BlocksOnDrop { begun: Arc::clone(&begun), may_end: Arc::clone(&may_end) };
    home.spawn(Tag::NONE, async move {
        let _held = held;
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + 100_000);
        let mut polls = 0;
        poll_fn(|cx| {
            polls += 1;
            assert!(timer.poll_expired(cx).is_pending());
            // Polled twice, so that the timer is in the wheel when it is dropped.
            if polls == 1 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
        drop(timer);
        pending::<()>().await;
    });
    expect_soon("it is dropped", || begun.load(Ordering::Relaxed));
    expect_alive(home);
    may_end.store(true, Ordering::Relaxed);
    runtime.stop();
}

/// Tasks that hold the last waker of the next one end one after the other, not inside each other.
#[test]
fn a_long_chain_of_tasks_does_not_nest() {
    let runtime = start(Arc::new(Discard));
    let home = runtime.at(0);
    let held = Arc::new(());
    let mut next: Option<Waker> = None;
    for _ in 0..20_000 {
        let (sender, receiver) = mpsc::channel();
        let held = (Arc::clone(&held), next.take());
        home.spawn(Tag::NONE, async move {
            let _held = held;
            poll_fn(|cx| {
                sender.send(cx.waker().clone()).unwrap();
                Poll::<()>::Pending
            })
            .await;
        });
        next = Some(receiver.recv_timeout(PATIENCE).unwrap());
    }
    drop(next);
    expect_soon("all are dropped", || Arc::strong_count(&held) == 1);
    runtime.stop();
}

/// A waker that is none of ours.
struct PanicsOnWake;

impl Wake for PanicsOnWake {
    fn wake(self: Arc<Self>) {
        panic!("a foreign waker, on purpose");
    }
}

/// Prints what is logged.
#[derive(Default)]
struct Prints(Mutex<()>);

impl Sink for Prints {
    fn enabled(&self, _: Level) -> bool {
        true
    }

    fn write(&self, record: &Record<'_>) {
        let _one = self.0.lock().unwrap();
        let line = format!("[{}] {}\n", record.level.as_str(), record.message);
        std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
    }
}

/// In a process of its own: the loop itself is unwound.
#[test]
fn dies_when_a_carrier_is_unwound() {
    if std::env::var_os(DIES).is_none() {
        return;
    }
    let runtime = start(Arc::new(Prints::default()));
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let socket = Socket::new(runtime.at(0), far.into());
    let waker = Waker::from(Arc::new(PanicsOnWake));
    assert!(socket.poll_readable(&mut Context::from_waker(&waker)).is_pending());
    drop(near);
    std::thread::sleep(PATIENCE);
}

#[test]
fn a_carrier_that_is_unwound_ends_the_process() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "dies_when_a_carrier_is_unwound", "--nocapture"])
        .env(DIES, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("[alert] carrier 0 was unwound"), "{said}");
    assert_eq!(output.status.signal(), Some(6), "it aborts: {said}");
}
