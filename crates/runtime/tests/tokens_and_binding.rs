//! What languages and protocols on top ask of the runtime: tokens that belong to a poll, binding at run time,
//! hooks and values for each loop.
#![expect(clippy::disallowed_methods, reason = "these tests block on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use clearway_runtime::{
    Config, Entering, LoopRef, PerLoop, PollId, Runtime, Tag, Timer, Token, bind, unbind, yield_now,
};
use clearway_testkit::{chaos_lend, expect_soon};

const PATIENCE: Duration = Duration::from_secs(30);

/// Polls are lent on purpose, so that threads tell nothing about loops.
fn is_chaotic() -> bool {
    chaos_lend().is_some()
}

fn start(loops: usize, handover_after_ms: Option<u64>) -> Runtime {
    let config =
        Config { loops, handover_after: handover_after_ms.map(Duration::from_millis), ..Config::default() };
    Runtime::start(&config).unwrap()
}

async fn sleep(home: LoopRef, ms: u64) {
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + ms);
    poll_fn(|cx| timer.poll_expired(cx)).await;
}

/// What only one poll at a time may touch.
#[derive(Default)]
struct Machine {
    token: Token,
    is_entered: AtomicBool,
    entries: AtomicUsize,
}

impl AsRef<Token> for Machine {
    fn as_ref(&self) -> &Token {
        &self.token
    }
}

/// Marks the machine as entered, and would find out if somebody else were in it.
struct Inside<'a>(&'a Machine);

impl<'a> Inside<'a> {
    fn new(machine: &'a Machine) -> Self {
        assert!(!machine.is_entered.swap(true, Ordering::Relaxed), "two polls in it");
        machine.entries.fetch_add(1, Ordering::Relaxed);
        Self(machine)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.is_entered.store(false, Ordering::Relaxed);
    }
}

/// Enters the machine and does `work` in it, in one poll.
async fn use_machine<R>(machine: &Arc<Machine>, work: impl FnOnce() -> R) -> R {
    let mut entering = Entering::new(Arc::clone(machine));
    let mut work = Some(work);
    poll_fn(|cx| {
        entering.poll(cx).map(|_held| {
            let _inside = Inside::new(machine);
            (work.take().expect("it is ready once"))()
        })
    })
    .await
}

/// Many tasks of all loops use it, block in it, panic in it, and are dropped on their way into it.
#[test]
fn a_token_lets_one_poll_in_and_is_left_whatever_happens() {
    const TASKS: usize = 400;
    let runtime = start(3, Some(2));
    let machine = Arc::new(Machine::default());
    let gone = Arc::new(());
    for number in 0..TASKS {
        let (machine, gone, home) = (Arc::clone(&machine), Arc::clone(&gone), runtime.at(number % 3));
        home.spawn(Tag::NONE, async move {
            let _gone = gone;
            for _ in 0..number % 3 {
                yield_now().await;
            }
            match number % 50 {
                0 => use_machine(&machine, || thread::sleep(Duration::from_millis(8))).await,
                1 => use_machine(&machine, || panic!("on purpose")).await,
                2..6 => {
                    // Gives up after a moment, wherever it stands.
                    let mut entering = Box::pin(use_machine(&machine, || ()));
                    let timer = Timer::new(home);
                    timer.arm(home.now_ms() + 3);
                    poll_fn(|cx| match timer.poll_expired(cx) {
                        Poll::Ready(()) => Poll::Ready(()),
                        Poll::Pending => entering.as_mut().poll(cx),
                    })
                    .await;
                }
                _ => use_machine(&machine, || ()).await,
            }
        });
    }
    expect_soon("all have ended", || Arc::strong_count(&gone) == 1);
    assert!(machine.token.holder().is_none());
    assert!(machine.entries.load(Ordering::Relaxed) >= TASKS - TASKS / 50 * 4);
    runtime.stop();
}

/// A task that waits for a machine whose holder is stuck can tell that, and still hears of its timers.
#[test]
fn a_holder_that_is_away_is_known_and_its_waiters_are_polled() {
    let runtime = start(1, Some(2));
    let (home, machine) = (runtime.at(0), Arc::new(Machine::default()));
    let may_end = Arc::new(AtomicBool::new(false));
    let (theirs, told) = (Arc::clone(&machine), Arc::clone(&may_end));
    home.spawn(Tag::NONE, async move {
        use_machine(&theirs, || expect_soon("it may end", || told.load(Ordering::Relaxed))).await;
    });
    expect_soon("it is held", || machine.token.holder().is_some());
    expect_soon("its holder loses the loop", || {
        machine.token.holder().is_some_and(|poll| home.is_away(poll))
    });
    let (sender, receiver) = mpsc::channel();
    let theirs = Arc::clone(&machine);
    home.spawn(Tag::NONE, async move {
        let mut waiting = Box::pin(use_machine(&theirs, || ()));
        let timer = Timer::new(home);
        timer.arm(home.now_ms() + 10);
        let mut timed_out = false;
        poll_fn(|cx| {
            if timer.poll_expired(cx).is_ready() && !std::mem::replace(&mut timed_out, true) {
                sender.send("its time is over").unwrap();
            }
            waiting.as_mut().poll(cx)
        })
        .await;
        sender.send("it has entered").unwrap();
    });
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("its time is over"));
    may_end.store(true, Ordering::Relaxed);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok("it has entered"));
    expect_soon("it is free", || machine.token.holder().is_none());
    runtime.stop();
}

/// Two loops hand their carriers on all the time; no two of their polls ever have the same name.
#[test]
fn polls_of_all_loops_have_names_of_their_own() {
    const POLLS: usize = 300;
    let runtime = start(2, Some(1));
    let names = Arc::new(Mutex::new(Vec::<PollId>::new()));
    let ended = Arc::new(AtomicUsize::new(0));
    for home in runtime.loops() {
        let (names, ended) = (Arc::clone(&names), Arc::clone(&ended));
        home.spawn_bound(Tag::NONE, async move {
            let token = Token::new();
            for number in 0..POLLS {
                let name = poll_fn(|cx| {
                    let held = token.try_enter(cx).unwrap();
                    if number % 20 == 0 {
                        thread::sleep(Duration::from_millis(5));
                    }
                    let name = token.holder().unwrap();
                    drop(held);
                    Poll::Ready(name)
                })
                .await;
                names.lock().unwrap().push(name);
                yield_now().await;
            }
            ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("both have ended", || ended.load(Ordering::Relaxed) == 2);
    let mut names = names.lock().unwrap().clone();
    let all = names.len();
    names.sort_by_key(|name| format!("{name:?}"));
    names.dedup();
    assert_eq!((names.len(), all), (2 * POLLS, 2 * POLLS));
    runtime.stop();
}

/// Tasks that bind themselves on a crowded loop end where they belong, also where another one has taken them.
#[test]
fn a_task_that_binds_itself_is_polled_at_home() {
    const TASKS: usize = 200;
    if is_chaotic() {
        return;
    }
    let runtime = start(2, None);
    // Loops are not handed over: a thread is a loop.
    let (sender, receiver) = mpsc::channel();
    runtime.at(0).spawn_bound(Tag::NONE, async move { sender.send(thread::current().id()).unwrap() });
    let home_thread = receiver.recv_timeout(PATIENCE).unwrap();
    let elsewhere = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    expect_soon("another loop has taken some", || {
        let home = runtime.at(0);
        ended.store(0, Ordering::Relaxed);
        let (taken, done) = (Arc::clone(&elsewhere), Arc::clone(&ended));
        // Spawned from a task, so that all of them are ready in one turn.
        home.spawn_bound(Tag::NONE, async move {
            for _ in 0..TASKS {
                let (taken, done) = (Arc::clone(&taken), Arc::clone(&done));
                home.spawn(Tag::NONE, async move {
                    thread::sleep(Duration::from_micros(200));
                    if thread::current().id() != home_thread {
                        taken.fetch_add(1, Ordering::Relaxed);
                    }
                    bind().await;
                    for _ in 0..3 {
                        assert_eq!(thread::current().id(), home_thread, "it is bound");
                        yield_now().await;
                    }
                    unbind().await;
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        expect_soon("all have ended", || ended.load(Ordering::Relaxed) == TASKS);
        elsewhere.load(Ordering::Relaxed) > 0
    });
    runtime.stop();
}

/// A hook runs on its loop, before what is spawned after it. One that panics has ended.
#[test]
fn hooks_run_on_each_loop_and_can_be_waited_for() {
    // A hook whose poll is lent goes on beside the next task.
    let is_lent = chaos_lend().is_some();
    let runtime = start(3, None);
    let values = Arc::new(PerLoop::new(runtime, |_| AtomicUsize::new(0)));
    let theirs = Arc::clone(&values);
    let mut hooks = runtime.on_each_loop(move |home| {
        let values = Arc::clone(&theirs);
        async move {
            values[home].store(home.index() + 10, Ordering::Relaxed);
            sleep(home, 5).await;
            values[home].fetch_add(10, Ordering::Relaxed);
        }
    });
    let (sender, receiver) = mpsc::channel();
    for home in runtime.loops() {
        let (sender, values) = (sender.clone(), Arc::clone(&values));
        home.spawn_bound(
            Tag::NONE,
            async move { sender.send(values[home].load(Ordering::Relaxed)).unwrap() },
        );
    }
    for _ in 0..3 {
        let value = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(value >= 10 || is_lent, "the hook came first");
    }
    assert!(hooks.wait(PATIENCE));
    let seen: Vec<usize> = values.iter().map(|value| value.load(Ordering::Relaxed)).collect();
    assert_eq!(seen, [20, 21, 22]);

    let mut hooks = runtime.on_each_loop(|home| async move {
        assert_ne!(home.index(), 1, "on purpose");
    });
    assert!(hooks.wait(PATIENCE), "one that panics has ended");
    let mut hooks = runtime.on_each_loop(|home| sleep(home, 100_000));
    assert!(!hooks.wait(Duration::from_millis(20)));
    runtime.stop();
}
