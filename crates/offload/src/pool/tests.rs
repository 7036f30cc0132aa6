//! Tests of pools of real threads.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use clearway_base::log::{Discard, Record};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Error
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(format!("{} {}", record.level.as_str(), record.message));
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits as a loop would, through the waker alone.
fn block_on<T>(mut task: Task<T>) -> Result<T, Error> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let end = Instant::now() + PATIENCE;
    loop {
        let pinned = std::pin::Pin::new(&mut task);
        match std::future::Future::poll(pinned, &mut Context::from_waker(&waker)) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::park_timeout(PATIENCE),
        }
        assert!(Instant::now() < end, "woken in time");
    }
}

fn pool(threads: u32, max_queue: u32, sink: Arc<dyn Sink>) -> Pool {
    let config = PoolConfig { threads, max_queue, ..PoolConfig::new("disk") };
    Pool::start(config, sink).unwrap()
}

/// A job that reports when it runs, and then waits until the sender is dropped.
fn hold(pool: &Pool) -> (Task<()>, Sender<()>) {
    let (release, held): (_, Receiver<()>) = channel();
    let (started, running) = channel();
    let task = pool.submit(move |_| {
        started.send(()).unwrap();
        let _ = held.recv_timeout(PATIENCE);
    });
    running.recv_timeout(PATIENCE).unwrap();
    (task, release)
}

#[test]
fn jobs_run_on_named_threads_with_signals_blocked() {
    let pool = pool(2, 16, Arc::new(Discard));
    let status = pool.submit(|_| {
        let name = std::thread::current().name().map(str::to_owned);
        #[expect(clippy::disallowed_methods, reason = "a pool thread")]
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        (name, status)
    });
    let (name, status) = block_on(status).unwrap();
    assert_eq!(name.as_deref(), Some("pool disk"));
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:\t")).unwrap();
    let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
    let (hup, usr1, term) = (1 << 0, 1 << 9, 1 << 14);
    assert_eq!(blocked & (hup | usr1 | term), hup | usr1 | term);
}

#[test]
fn as_many_jobs_run_at_once_as_there_are_threads() {
    let pool = pool(4, 64, Arc::new(Discard));
    let meeting = Arc::new(Barrier::new(4));
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let meeting = Arc::clone(&meeting);
            #[expect(clippy::disallowed_methods, reason = "pool threads may block")]
            pool.submit(move |_| _ = meeting.wait())
        })
        .collect();
    for task in tasks {
        assert_eq!(block_on(task), Ok(()));
    }
    assert!(pool.0.threads.word().load(Ordering::Relaxed) <= 4);
}

#[test]
fn overflow_is_an_error_and_a_line() {
    let (lines, before) = (Arc::new(Lines::default()), OVERFLOWS.value());
    let pool = pool(1, 2, Arc::clone(&lines) as Arc<dyn Sink>);
    let (first, release) = hold(&pool);
    let (second, third) = (pool.submit(|_| 2), pool.submit(|_| 3));
    assert_eq!((pool.waiting(), pool.stats().pending), (2, 3));
    assert_eq!(block_on(pool.submit(|_| 4)), Err(Error::Overflow));
    assert_eq!(*lines.0.lock().unwrap(), ["error thread pool \"disk\" queue overflow: 2 tasks waiting"]);
    assert!(OVERFLOWS.value() > before && pool.stats().overflows == 1);
    drop(release);
    assert_eq!(block_on(first), Ok(()));
    assert_eq!((block_on(second), block_on(third)), (Ok(2), Ok(3)));
    assert_eq!(block_on(pool.submit(|_| 5)), Ok(5), "and goes on");
    assert_eq!(pool.stats().pending, 0);
}

#[test]
fn without_a_queue_only_free_threads_take_jobs() {
    let pool = pool(2, 0, Arc::new(Discard));
    // Threads that were not started yet are free as well.
    let (first, release) = hold(&pool);
    let second = pool.submit(|_| 2);
    let third = block_on(pool.submit(|_| 3));
    assert!(matches!(third, Ok(3) | Err(Error::Overflow)), "the second may have ended: {third:?}");
    assert_eq!(block_on(second), Ok(2));
    for n in 0..1000 {
        assert_eq!(block_on(pool.submit(move |_| n)), Ok(n), "a thread is free when a result is there");
    }
    let (fourth, held) = hold(&pool);
    assert_eq!(block_on(pool.submit(|_| 5)), Err(Error::Overflow));
    drop((release, held));
    assert_eq!((block_on(first), block_on(fourth)), (Ok(()), Ok(())));
}

#[test]
fn waiting_and_working_are_timed() {
    let pool = pool(1, 8, Arc::new(Discard));
    let (first, release) = hold(&pool);
    let (second, third) = (pool.submit(|_| 2), pool.submit(|_| 3));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(20) {
        std::thread::yield_now();
    }
    drop(third);
    drop(release);
    assert_eq!((block_on(first), block_on(second)), (Ok(()), Ok(2)));
    assert!(pool.shutdown_and_wait(PATIENCE));
    let stats = pool.stats();
    assert_eq!((stats.queue_wait.count(), stats.service.count(), stats.pending), (3, 2, 0));
    assert!(stats.queue_wait.sum_ns >= 40_000_000, "two of them waited: {stats:?}");
    assert!(stats.service.sum_ns >= 20_000_000 && stats.threads == 0, "{stats:?}");
}

#[test]
fn a_dropped_task_never_runs() {
    let pool = pool(1, 16, Arc::new(Discard));
    let (first, release) = hold(&pool);
    let (tell, told) = channel::<()>();
    drop(pool.submit(move |_| tell.send(())));
    assert!(told.recv_timeout(PATIENCE).is_err(), "its sender is gone while the pool is busy");
    drop(release);
    assert_eq!(block_on(first), Ok(()));
}

#[test]
fn a_panic_costs_no_thread() {
    let lines = Arc::new(Lines::default());
    let pool = pool(1, 16, Arc::clone(&lines) as Arc<dyn Sink>);
    for _ in 0..3 {
        assert_eq!(block_on(pool.submit(|_| -> u8 { panic!("planned") })), Err(Error::Panicked));
    }
    assert_eq!(block_on(pool.submit(|_| 1)), Ok(1));
    assert!(pool.shutdown_and_wait(PATIENCE));
    let expected = "alert thread pool \"disk\": a job panicked: planned";
    assert_eq!(*lines.0.lock().unwrap(), [expected; 3]);
}

#[test]
fn shutdown_runs_what_was_taken_and_refuses_the_rest() {
    let pool = pool(2, 256, Arc::new(Discard));
    let (first, release) = hold(&pool);
    let tasks: Vec<_> = (0..100).map(|n| pool.submit(move |_| n)).collect();
    pool.shutdown();
    assert_eq!(block_on(pool.submit(|_| 0)), Err(Error::Closed));
    assert!(!pool.shutdown_and_wait(Duration::from_millis(1)), "one is held");
    drop(release);
    assert!(pool.shutdown_and_wait(PATIENCE));
    assert_eq!(block_on(first), Ok(()));
    for (n, task) in tasks.into_iter().enumerate() {
        assert_eq!(block_on(task), Ok(n));
    }
}

#[test]
fn many_submitters_get_every_result() {
    let pool = pool(3, 1024, Arc::new(Discard));
    std::thread::scope(|scope| {
        for first in [0_u64, 1 << 32, 2 << 32] {
            let pool = &pool;
            scope.spawn(move || {
                for n in first..first + 5000 {
                    assert_eq!(block_on(pool.submit(move |_| n)), Ok(n));
                }
            });
        }
    });
}

/// Light jobs and heavy ones.
static LANES: [Lane; 2] = [Lane { max_queue: 64, share: 3 }, Lane { max_queue: 2, share: 1 }];

#[test]
fn a_kind_that_fills_its_lane_neither_delays_nor_refuses_the_other() {
    let lines = Arc::new(Lines::default());
    let config =
        PoolConfig { threads: 1, max_queue: 66, order: Order::Lanes(&LANES), ..PoolConfig::new("crypto") };
    let pool = Pool::start(config, Arc::clone(&lines) as Arc<dyn Sink>).unwrap();
    let (first, release) = hold(&pool);
    let order = Arc::new(Mutex::new(Vec::new()));
    let job = |kind: &'static str| {
        let order = Arc::clone(&order);
        move |_: &Blocking| order.lock().unwrap().push(kind)
    };
    let mut tasks: Vec<_> = (0..2).map(|_| pool.submit_in(1, job("heavy"))).collect();
    assert_eq!(block_on(pool.submit_in(1, job("heavy"))), Err(Error::Overflow));
    tasks.extend((0..8).map(|_| pool.submit_in(0, job("light"))));
    drop(release);
    assert_eq!(block_on(first), Ok(()));
    tasks.into_iter().for_each(|task| assert_eq!(block_on(task), Ok(())));
    let order = order.lock().unwrap();
    let last_heavy = order.iter().rposition(|&kind| kind == "heavy").unwrap();
    assert!((order.len(), last_heavy <= 5) == (10, true), "{order:?}");
    assert_eq!((lines.0.lock().unwrap().len(), pool.stats().overflows), (1, 1));
}

#[test]
fn threads_stand_back_as_far_as_the_pool_says() {
    for nice in [0, 5] {
        let config = PoolConfig { threads: 1, nice, ..PoolConfig::new("crypto") };
        let pool = Pool::start(config, Arc::new(Discard)).unwrap();
        let stat = pool.submit(|_| {
            #[expect(clippy::disallowed_methods, reason = "a pool thread")]
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            stat
        });
        let stat = block_on(stat).unwrap();
        // Behind the name in brackets: state, and 15 numbers before the nice value.
        let (_, behind) = stat.rsplit_once(')').unwrap();
        let found: i32 = behind.split_whitespace().nth(16).unwrap().parse().unwrap();
        #[expect(clippy::disallowed_methods, reason = "a test's own thread")]
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let (_, behind) = own.rsplit_once(')').unwrap();
        let usual: i32 = behind.split_whitespace().nth(16).unwrap().parse().unwrap();
        assert_eq!(found, if nice == 0 { usual } else { nice });
    }
}
