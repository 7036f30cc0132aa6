//! loom models of this crate's protocols: every interleaving that loom finds with bounded preemptions.
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p clearway-offload --release models`.

use std::sync::Arc as StdArc;
use std::sync::Mutex as StdMutex;

use clearway_base::log::Discard;
use loom::future::block_on;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::Blocking;
use crate::bell::{Bell, Slept};
use crate::lanes::Lanes;
use crate::pool::{Lane, Order, PoolConfig, Shared, Ticket, Whose};
use crate::receipts::{Promptness, Receipts, is_quiet};
use crate::ring::Ring;
use crate::task::{self, Error, Ran};

fn model(preemptions: usize, check: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(check);
}

/// Takes `count` entries as a consumer does: rules 5 of `bell` and 4 of `ring`. A lost wake-up is a
/// deadlock, which loom reports.
fn consume(ring: &Ring<usize>, bell: &Bell, left: &AtomicUsize) {
    let blocking = Blocking::on_this_thread();
    while left.load(Ordering::SeqCst) > 0 {
        match ring.pop() {
            Some(_) => {
                left.fetch_sub(1, Ordering::SeqCst);
                if ring.is_ready() || left.load(Ordering::SeqCst) == 0 {
                    bell.ring();
                }
            }
            None => bell.sleep(&blocking, None, || ring.is_ready() || left.load(Ordering::SeqCst) == 0),
        }
    }
    bell.ring();
}

#[test]
fn two_producers_and_a_sleeper() {
    model(3, || {
        let shared = Arc::new((Ring::new(2), Bell::new(), AtomicUsize::new(2)));
        for n in 0..2 {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.0.push(n).expect("room for both");
                shared.1.ring();
            });
        }
        consume(&shared.0, &shared.1, &shared.2);
    });
}

/// A producer of two, a consumer, and this thread, which consumes after `first`.
fn producer_and_two_sleepers(first: fn(&Ring<usize>, &Bell)) {
    model(2, move || {
        let shared = Arc::new((Ring::new(2), Bell::new(), AtomicUsize::new(2)));
        let other = Arc::clone(&shared);
        thread::spawn(move || consume(&other.0, &other.1, &other.2));
        let producer = Arc::clone(&shared);
        thread::spawn(move || {
            for n in 0..2 {
                producer.0.push(n).expect("room for both");
                producer.1.ring();
            }
        });
        first(&shared.0, &shared.1);
        consume(&shared.0, &shared.1, &shared.2);
    });
}

#[test]
fn a_producer_and_two_sleepers() {
    producer_and_two_sleepers(|_, _| ());
}

/// Rule 7 of `bell`: while one looks nobody is woken, and nothing is left lying.
#[test]
fn what_comes_during_a_look_is_taken() {
    producer_and_two_sleepers(|ring, bell| {
        bell.look(|| ring.is_ready());
    });
}

/// Rule 6 of `bell`: of those whose time is over at once one stays, and takes what comes.
#[test]
fn who_sleeps_last_stays() {
    model(3, || {
        let shared = Arc::new((Ring::new(2), Bell::new(), AtomicUsize::new(1)));
        let work = |shared: &(Ring<usize>, Bell, AtomicUsize)| {
            let (ring, bell, left) = shared;
            let has_work = || ring.is_ready() || left.load(Ordering::SeqCst) == 0;
            let mut limit = Some(std::time::Duration::ZERO);
            while left.load(Ordering::SeqCst) > 0 {
                if ring.pop().is_some() {
                    left.fetch_sub(1, Ordering::SeqCst);
                    continue;
                }
                if bell.rest(&Blocking::on_this_thread(), limit, has_work) == Slept::BesideOthers {
                    return;
                }
                limit = None;
            }
            bell.ring();
        };
        let (other, producer) = (Arc::clone(&shared), Arc::clone(&shared));
        let other = thread::spawn(move || work(&other));
        thread::spawn(move || {
            producer.0.push(1).expect("room for it");
            producer.1.ring();
        });
        work(&shared);
        other.join().expect("it does not panic");
        assert_eq!(shared.2.load(Ordering::SeqCst), 0, "somebody took it");
    });
}

/// A server with its queue, and what became of the work.
struct Served {
    queue: Ring<usize>,
    bell: Bell,
    receipts: Receipts,
    written: AtomicUsize,
    left: AtomicUsize,
}

impl Served {
    fn new(left: usize) -> Arc<Self> {
        let receipts = Receipts::new(4);
        receipts.set(Promptness::Prompt);
        Arc::new(Self {
            queue: Ring::new(2),
            bell: Bell::new(),
            receipts,
            written: AtomicUsize::new(0),
            left: AtomicUsize::new(left),
        })
    }

    /// Serves until all producers have gone.
    fn serve(&self) {
        let blocking = Blocking::on_this_thread();
        while self.left.load(Ordering::SeqCst) > 0 {
            let (asked, mark) = (self.receipts.asked(), self.queue.mark());
            while let Some(work) = self.queue.pop() {
                self.written.fetch_add(work, Ordering::Relaxed);
            }
            if self.queue.is_past(mark) {
                self.receipts.settle(asked);
            }
            let more = || {
                self.queue.is_ready()
                    || self.receipts.asked() != asked
                    || self.left.load(Ordering::SeqCst) == 0
            };
            self.bell.sleep(&blocking, None, more);
        }
    }

    fn hand_over(&self, work: usize) {
        self.queue.push(work).expect("room for all");
        self.bell.ring();
    }

    fn leave(&self) {
        self.left.fetch_sub(1, Ordering::SeqCst);
        self.bell.ring();
    }
}

#[test]
fn a_receipt_says_that_the_work_is_done() {
    model(2, || {
        let served = Served::new(2);
        let (other, asking) = (Arc::clone(&served), Arc::clone(&served));
        thread::spawn(move || {
            other.hand_over(1);
            other.leave();
        });
        thread::spawn(move || {
            asking.queue.push(2).expect("room for all");
            let receipt = asking.receipts.ask();
            asking.bell.ring();
            block_on(std::future::poll_fn(|cx| asking.receipts.poll(receipt, cx)));
            assert_ne!(asking.written.load(Ordering::Relaxed) & 2, 0, "done before it says so");
            asking.leave();
        });
        served.serve();
    });
}

#[test]
fn every_task_that_waits_is_woken() {
    model(2, || {
        let receipts = Arc::new(Receipts::new(8));
        receipts.set(Promptness::Prompt);
        let asked = [receipts.ask(), receipts.ask()];
        let tasks = asked.map(|receipt| {
            let receipts = Arc::clone(&receipts);
            thread::spawn(move || {
                block_on(std::future::poll_fn(|cx| receipts.poll(receipt, cx)));
                assert!(receipts.is_done(receipt), "there was room for both, and the server was prompt");
            })
        });
        asked.into_iter().for_each(|receipt| receipts.settle(receipt));
        tasks.into_iter().for_each(|task| task.join().expect("no panic"));
    });
}

#[test]
fn a_server_that_is_slow_lets_tasks_go() {
    model(3, || {
        let served = Served::new(1);
        let other = Arc::clone(&served);
        let task = thread::spawn(move || {
            let receipt = other.receipts.ask();
            block_on(std::future::poll_fn(|cx| other.receipts.poll(receipt, cx)));
        });
        served.receipts.set(Promptness::Slow);
        task.join().expect("no panic");
    });
}

#[test]
fn a_quiet_server_has_done_what_was_handed_over() {
    model(2, || {
        let served = Served::new(2);
        for work in [1, 2] {
            let served = Arc::clone(&served);
            thread::spawn(move || {
                served.hand_over(work);
                if is_quiet(&served.queue, &served.bell) {
                    assert_ne!(served.written.load(Ordering::Relaxed) & work, 0, "nothing of it is left");
                }
                served.leave();
            });
        }
        served.serve();
    });
}

#[test]
fn a_ring_loses_and_doubles_nothing_when_it_wraps() {
    model(3, || {
        let ring = Arc::new(Ring::new(2));
        ring.push(1_usize).expect("empty");
        ring.push(2).expect("one free");
        let producer = Arc::clone(&ring);
        let pushed = thread::spawn(move || producer.push(4).is_ok());
        let consumer = Arc::clone(&ring);
        let popped = thread::spawn(move || consumer.pop().unwrap_or(0));
        let here = ring.pop().unwrap_or(0);
        let pushed = pushed.join().expect("no panic");
        let there = popped.join().expect("no panic");
        let rest: usize = std::iter::from_fn(|| ring.pop()).sum();
        assert!(here != there || here == 0, "one entry, one owner");
        assert_eq!(here + there + rest, if pushed { 7 } else { 3 });
        assert!(ring.is_empty());
    });
}

/// Three entries of one producer, of which the short lap holds two: they come out in their order, and none is
/// left behind where consumers ask again as they are rung for.
#[test]
fn a_ring_keeps_the_order_of_its_laps() {
    model(3, || {
        let ring = Arc::new(Ring::with_short(4, 2));
        let producer = Arc::clone(&ring);
        let pushed = thread::spawn(move || (1..=3_usize).for_each(|n| producer.push(n).expect("room")));
        let here: Vec<usize> = (0..2).filter_map(|_| ring.pop()).collect();
        pushed.join().expect("no panic");
        assert!(here.len() == 3 || ring.is_ready(), "nothing is out of reach");
        let rest = std::iter::from_fn(|| ring.pop());
        assert_eq!(here.into_iter().chain(rest).collect::<Vec<_>>(), [1, 2, 3]);
        assert!(ring.is_empty());
    });
}

#[test]
fn a_result_always_wakes_its_future() {
    model(4, || {
        let (run, task) = task::new(|_| 7);
        let worker = thread::spawn(move || run.run(&Blocking::on_this_thread(), &|| ()));
        assert_eq!(block_on(task), Ok(7));
        assert_eq!(worker.join().expect("no panic"), Ran::Finished);
    });
}

#[test]
fn a_dropped_future_and_its_thread_agree_on_the_job() {
    model(4, || {
        let ran = StdArc::new(StdMutex::new(0));
        let count = StdArc::clone(&ran);
        let (run, task) = task::new(move |_| *count.lock().expect("no panic") += 1);
        let worker = thread::spawn(move || run.run(&Blocking::on_this_thread(), &|| ()));
        let cancelled = task.cancel();
        drop(task);
        let end = worker.join().expect("no panic");
        assert_eq!(end, if cancelled { Ran::Cancelled } else { Ran::Finished });
        let ran = *ran.lock().expect("no panic");
        assert_eq!(ran, u32::from(!cancelled), "run or cancelled, never both");
    });
}

#[test]
fn a_job_that_races_with_shutdown_runs_or_is_refused() {
    model(2, || {
        let config = PoolConfig { max_queue: 2, threads: 1, ..PoolConfig::new("model") };
        let pool = Arc::new(Shared::new(config, StdArc::new(Discard)));
        let worker = Arc::clone(&pool);
        let worker = thread::spawn(move || worker.work(&Blocking::on_this_thread(), &|| ()));
        let closer = Arc::clone(&pool);
        let closer = thread::spawn(move || closer.close());
        let result = block_on(pool.submit(Ticket::default(), |_| 7));
        assert!(matches!(result, Ok(7) | Err(Error::Closed)), "{result:?}");
        closer.join().expect("no panic");
        worker.join().expect("no panic");
    });
}

#[test]
fn all_threads_of_a_closed_pool_end() {
    model(2, || {
        let config = PoolConfig { max_queue: 2, threads: 2, ..PoolConfig::new("model") };
        let pool = Arc::new(Shared::new(config, StdArc::new(Discard)));
        let workers = [(); 2].map(|()| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.work(&Blocking::on_this_thread(), &|| ()))
        });
        let task = pool.submit(Ticket::default(), |_| 7);
        pool.close();
        for worker in workers {
            worker.join().expect("no panic");
        }
        assert_eq!(block_on(task), Ok(7), "taken before the closing");
    });
}

/// The hash of one whose first lane, of two, is this.
fn in_lane(lane: u64) -> u64 {
    lane << 32
}

/// An entry in a lane whose turn it is not: the consumer finds it, or does not fall asleep.
#[test]
fn lanes_and_a_sleeper() {
    model(3, || {
        let shared = Arc::new((Lanes::new(2, 1), Bell::new()));
        let producing = Arc::clone(&shared);
        thread::spawn(move || {
            producing.0.push(in_lane(1), 0).expect("room for it");
            producing.1.ring();
        });
        let (lanes, bell) = &*shared;
        let blocking = Blocking::on_this_thread();
        while lanes.pop().is_none() {
            bell.sleep(&blocking, None, || lanes.is_ready());
        }
    });
}

/// Two that take at once find what is there, each entry once, whatever turn they have seen.
#[test]
fn lanes_and_two_who_take() {
    model(3, || {
        let lanes = Arc::new(Lanes::new(2, 1));
        for lane in [0, 1] {
            lanes.push(in_lane(lane), lane as usize).expect("room for both");
        }
        let theirs = Arc::clone(&lanes);
        let other = thread::spawn(move || theirs.pop());
        let mut all: Vec<usize> = lanes.pop().into_iter().collect();
        all.extend(other.join().unwrap());
        all.sort_unstable();
        assert_eq!((all, lanes.is_ready()), (vec![0, 1], false));
    });
}

/// Two of one client at once that choose the same lane have room in the other one; a third one is refused.
#[test]
fn lanes_that_fill_refuse_and_lose_nothing() {
    model(3, || {
        let lanes = Arc::new(Lanes::new(2, 1));
        let theirs = Arc::clone(&lanes);
        let other = thread::spawn(move || theirs.push(in_lane(1), 1));
        assert_eq!((lanes.push(in_lane(1), 2), other.join().unwrap()), (Ok(()), Ok(())));
        assert_eq!(lanes.push(in_lane(1), 3), Err(3));
        let mut taken: Vec<usize> = std::iter::from_fn(|| lanes.pop()).collect();
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
    });
}

/// Two kinds at once in a pool with lanes: a full lane refuses its own kind alone, and each job that was
/// taken is run although its lane has no turn.
#[test]
fn a_full_lane_leaves_the_others_alone() {
    static LANES: [Lane; 2] = [Lane { max_queue: 1, share: 2 }, Lane { max_queue: 1, share: 1 }];
    let config =
        || PoolConfig { threads: 1, max_queue: 2, order: Order::Lanes(&LANES), ..PoolConfig::new("m") };
    model(2, move || {
        let shared = StdArc::new(Shared::new(config(), StdArc::new(Discard)));
        let theirs = StdArc::clone(&shared);
        let in_lane = |lane| Ticket { whose: Whose::Lane(lane), ..Ticket::default() };
        let other = thread::spawn(move || theirs.submit(in_lane(1), |_| 1));
        let first = shared.submit(in_lane(0), |_| 0);
        let full = shared.submit(in_lane(0), |_| 2);
        assert_eq!(block_on(full), Err(Error::Overflow));
        let second = other.join().unwrap();
        shared.close();
        shared.work(&Blocking::on_this_thread(), &|| ());
        assert_eq!((block_on(first), block_on(second)), (Ok(0), Ok(1)));
    });
}
