//! Loops with real threads and sockets: echo, timers, hand-over of sleepers and spinners, stop.
#![expect(clippy::disallowed_methods, reason = "these tests block on purpose")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clearway_runtime::{Config, Listener, LoopRef, Runtime, Socket, Tag, Timer, enter, yield_now};
use clearway_testkit::{chaos_lend, expect_soon};

/// How long anything may take before a test has failed: far above what is right, also on a slow and
/// busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(loops: usize, handover_after: Option<Duration>) -> Runtime {
    let config = Config { loops, handover_after, handover_carriers: 64, ..Config::default() };
    Runtime::start(&config).unwrap()
}

fn handing_over() -> Runtime {
    start(1, Some(Duration::from_millis(1)))
}

/// Runs a future on a loop and waits for what it returns.
fn run<R: Send + 'static>(home: LoopRef, future: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move { sender.send(future.await).unwrap() });
    receiver.recv_timeout(PATIENCE).unwrap()
}

async fn sleep(home: LoopRef, ms: u64) {
    let timer = Timer::new(home);
    timer.arm(home.now_ms() + ms);
    poll_fn(|cx| timer.poll_expired(cx)).await;
}

async fn echo(socket: Socket) {
    let mut buf = Vec::with_capacity(4096);
    loop {
        buf.clear();
        match poll_fn(|cx| socket.poll_read_vec(cx, &mut buf)).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut sent = 0;
        while sent < buf.len() {
            match poll_fn(|cx| socket.poll_write(cx, &buf[sent..])).await {
                Ok(size) => sent += size,
                Err(_) => return,
            }
        }
    }
}

/// An echo server on every loop of `runtime`, all accepting from one listener.
fn serve_echo(runtime: Runtime) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let fd = Arc::new(OwnedFd::from(listener));
    for home in runtime.loops() {
        let listener = Listener::new(home, Arc::clone(&fd)).unwrap();
        home.spawn(Tag::NONE, async move {
            loop {
                poll_fn(|cx| listener.poll_acceptable(cx)).await;
                while let Ok((fd, _)) = listener.accept() {
                    home.spawn(Tag::NONE, echo(Socket::new(home, fd)));
                }
            }
        });
    }
    address
}

fn ask(stream: &mut TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut answer = vec![0; text.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, text);
}

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn echoes_on_several_loops_also_what_fills_the_buffers() {
    let address = serve_echo(start(2, None));
    let big: Vec<u8> = (0..4 << 20).map(|i: u32| (i % 251) as u8).collect();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut stream = connect(address);
                for n in 1..200 {
                    ask(&mut stream, &big[..n]);
                }
                let mut writer = stream.try_clone().unwrap();
                std::thread::scope(|scope| {
                    scope.spawn(|| writer.write_all(&big).unwrap());
                    let mut answer = vec![0; big.len()];
                    stream.read_exact(&mut answer).unwrap();
                    assert!(answer == big);
                });
            });
        }
    });
}

#[test]
fn timers_fire_in_order_and_can_be_moved_both_ways() {
    let home = start(1, None).at(0);
    let (sender, receiver) = mpsc::channel();
    // Told apart by seconds, not by milliseconds: two that are due at the same turn may be polled at once.
    for ms in [1500_u64, 1, 700, 100_000] {
        let sender = sender.clone();
        home.spawn(Tag::NONE, async move {
            let begun = home.now_ms();
            sleep(home, ms).await;
            assert!(home.now_ms() >= begun + ms, "not before its time");
            sender.send(ms).unwrap();
        });
    }
    let fired: Vec<u64> = receiver.iter().take(3).collect();
    assert_eq!(fired, [1, 700, 1500]);
    let took = run(home, async move {
        let (timer, begun) = (Timer::new(home), home.now_ms());
        timer.arm(begun + 100_000);
        sleep(home, 5).await;
        timer.arm(begun + 30);
        timer.arm(begun + 60);
        poll_fn(|cx| timer.poll_expired(cx)).await;
        home.now_ms() - begun
    });
    assert!((60..100_000).contains(&took), "{took}");
}

/// Another thread asks all the time, while the loop sleeps and wakes.
#[test]
fn the_time_of_a_loop_never_goes_back() {
    let home = start(1, None).at(0);
    let over = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&over);
    home.spawn(Tag::NONE, async move {
        for _ in 0..60 {
            sleep(home, 40).await;
        }
        seen.store(true, Ordering::Relaxed);
    });
    let mut last = 0;
    while !over.load(Ordering::Relaxed) {
        let now = home.now_ms();
        assert!(now >= last, "{now} behind {last}");
        last = now;
    }
}

#[test]
fn a_task_that_blocks_loses_its_loop_and_the_others_go_on() {
    for spins in [false, true] {
        let runtime = handing_over();
        let address = serve_echo(runtime);
        let mut stream = connect(address);
        ask(&mut stream, b"hello");
        let (sender, receiver) = mpsc::channel();
        let (done, holding) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..4 {
            let (sender, done, holding) = (sender.clone(), Arc::clone(&done), Arc::clone(&holding));
            runtime.at(0).spawn(Tag::NONE, async move {
                holding.fetch_add(1, Ordering::Relaxed);
                while !done.load(Ordering::Relaxed) {
                    if !spins {
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
                yield_now().await;
                sender.send(()).unwrap();
            });
        }
        // Each of them holds its thread until all have been answered.
        expect_soon("four tasks hold their thread", || holding.load(Ordering::Relaxed) == 4);
        for _ in 0..100 {
            ask(&mut stream, b"still there?");
        }
        assert!(receiver.try_recv().is_err(), "the blockers are not done yet");
        done.store(true, Ordering::Relaxed);
        for _ in 0..4 {
            receiver.recv_timeout(PATIENCE).unwrap();
        }
    }
}

#[test]
fn a_suspect_is_polled_away_from_its_loop() {
    let runtime = start(2, Some(Duration::from_millis(1)));
    let home = runtime.at(1);
    let tag = Tag::of(b"sleeps");
    let before = clearway_runtime::metrics::SUSPECTS_DETACHED.value();
    let block = || {
        run(home, async move {
            enter(tag).await;
            std::thread::sleep(Duration::from_millis(30));
            enter(Tag::NONE).await;
        });
    };
    // Where every poll is lent on purpose, nothing is ever caught holding its loop.
    if chaos_lend() == Some(1) {
        return block();
    }
    // On a busy machine the watchdog may come too late to catch the first.
    expect_soon("what has blocked is detached", || {
        block();
        clearway_runtime::metrics::SUSPECTS_DETACHED.value() >= before + 2
    });
    expect_soon("its loop counts the hand-over", || home.counted().handovers > 0);
    assert_eq!(runtime.at(0).counted().handovers, 0, "nothing held the other one");
}

#[test]
fn more_blockers_than_carriers_only_wait() {
    let config = Config { handover_carriers: 4, ..Config::default() };
    let home = Runtime::start(&config).unwrap().at(0);
    let done = Arc::new(AtomicUsize::new(0));
    for _ in 0..24 {
        let done = Arc::clone(&done);
        home.spawn(Tag::NONE, async move {
            enter(Tag::of(b"blocks")).await;
            std::thread::sleep(Duration::from_millis(20));
            done.fetch_add(1, Ordering::Relaxed);
        });
    }
    expect_soon("all are done", || done.load(Ordering::Relaxed) == 24);
}

#[test]
fn a_panic_ends_its_task_alone() {
    let home = start(1, None).at(0);
    home.spawn(Tag::NONE, async { panic!("on purpose") });
    assert_eq!(run(home, async { 7 }), 7);
}

#[test]
fn a_dropped_future_of_a_task_without_wakers_is_dropped() {
    let home = start(1, None).at(0);
    let held = Arc::new(());
    let theirs = Arc::clone(&held);
    home.spawn(Tag::NONE, async move {
        let _theirs = theirs;
        std::future::pending::<()>().await;
    });
    expect_soon("it is dropped", || Arc::strong_count(&held) == 1);
}

#[test]
fn a_busy_socket_lets_others_run() {
    let runtime = start(1, None);
    let home = runtime.at(0);
    let (mut near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    near.write_all(&[1; 10_000]).unwrap();
    let socket = Socket::new(home, far.into());
    let (sender, receiver) = mpsc::channel();
    let reads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&reads);
    home.spawn(Tag::NONE, async move {
        let other = Arc::clone(&counted);
        home.spawn(Tag::NONE, async move { sender.send(other.load(Ordering::Relaxed)).unwrap() });
        for _ in 0..10_000 {
            let mut one = Vec::with_capacity(1);
            poll_fn(|cx| socket.poll_read_vec(cx, &mut one)).await.unwrap();
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let when = receiver.recv_timeout(PATIENCE).unwrap();
    assert!(when < 1000, "the other task ran after {when} of 10,000 reads");
}

#[test]
fn waking_all_reaches_idle_tasks_and_stop_ends_the_threads() {
    let runtime = start(2, Some(Duration::from_millis(1)));
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    let socket = Socket::new(runtime.at(1), far.into());
    let polls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&polls);
    runtime.at(1).spawn(Tag::NONE, async move {
        poll_fn(|cx| {
            counted.fetch_add(1, Ordering::Relaxed);
            socket.poll_readable(cx)
        })
        .await;
    });
    expect_soon("it is polled again", || {
        runtime.wake_all();
        polls.load(Ordering::Relaxed) >= 2
    });
    drop(near);
    runtime.stop();
}
