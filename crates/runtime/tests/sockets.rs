//! Registrations: those that fail, those that two tasks make at once, sockets that are gone or move.
#![expect(clippy::disallowed_methods, reason = "a test opens files")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Poll, Waker};
use std::time::Duration;

use clearway_runtime::{Config, Listener, LoopRef, Probe, Runtime, Socket, Tag, Timer, Woken};
use clearway_testkit::expect_soon;

/// How long anything may take before a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(loops: usize) -> Runtime {
    let config = Config { loops, ..Config::default() };
    Runtime::start(&config).unwrap()
}

fn run<R: Send + 'static>(home: LoopRef, future: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move { sender.send(future.await).unwrap() });
    receiver.recv_timeout(PATIENCE).unwrap()
}

fn pair(home: LoopRef) -> (UnixStream, Socket) {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    (near, Socket::new(home, far.into()))
}

/// Fills the buffers of a socket, so that the next write to it would block.
fn fill(mut stream: &UnixStream) {
    stream.set_nonblocking(true).unwrap();
    for size in [65536, 1] {
        while stream.write(&vec![0; size]).is_ok() {}
    }
}

#[test]
fn a_registration_that_failed_is_told_and_tried_again() {
    let home = start(1).at(0);
    // epoll watches no regular files: one stands for whatever epoll_ctl(2) refuses.
    let socket = Arc::new(Socket::new(home, std::fs::File::open("/proc/self/exe").unwrap().into()));
    for _ in 0..2 {
        let socket = Arc::clone(&socket);
        let (closed, read) = run(home, async move {
            poll_fn(|cx| socket.poll_readable(cx)).await;
            let closed = poll_fn(|cx| socket.poll_closed(cx)).await;
            let mut buf = Vec::with_capacity(16);
            (closed, poll_fn(|cx| socket.poll_read_vec(cx, &mut buf)).await)
        });
        assert_eq!(closed.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        assert!(read.is_err(), "reading says what is wrong");
    }
}

#[test]
fn a_reader_and_a_writer_register_at_once() {
    const ROUNDS: usize = 300;
    let runtime = start(2);
    for round in 0..ROUNDS {
        let (near, far) = UnixStream::pair().unwrap();
        fill(&far);
        let socket = Arc::new(Socket::new(runtime.at(0), far.into()));
        let there = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = mpsc::channel();
        for side in 0..2 {
            let (socket, there, sender) = (Arc::clone(&socket), Arc::clone(&there), sender.clone());
            runtime.at(side).spawn_bound(Tag::NONE, async move {
                there.fetch_add(1, Ordering::SeqCst);
                // Where the machine has one processor the other side comes later, which is no failure.
                for _ in 0..100_000 {
                    if there.load(Ordering::SeqCst) == 2 {
                        break;
                    }
                    std::hint::spin_loop();
                }
                let mut buf = Vec::with_capacity(16);
                let result = match side {
                    0 => poll_fn(|cx| socket.poll_read_vec(cx, &mut buf)).await,
                    _ => poll_fn(|cx| socket.poll_write(cx, b"x")).await,
                };
                sender.send((side, result)).unwrap();
            });
        }
        expect_soon("both have begun", || there.load(Ordering::SeqCst) == 2);
        (&near).write_all(b"hi").unwrap();
        near.set_nonblocking(true).unwrap();
        let mut drained = vec![0; 1 << 20];
        while (&near).read(&mut drained).is_ok() {}
        for _ in 0..2 {
            let (side, result) = receiver.recv_timeout(PATIENCE).expect("a side waits for ever");
            assert_eq!(result.unwrap(), [2, 1][side], "side {side} in round {round}");
        }
    }
}

#[test]
fn a_listener_that_is_refused_is_an_error() {
    let home = start(1).at(0);
    let fd = listening();
    let _first = Listener::new(home, Arc::clone(&fd)).unwrap();
    let refused = Listener::new(home, fd).map(drop);
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
}

#[test]
fn a_listener_that_could_not_be_watched_is_watched_later() {
    let home = start(1).at(0);
    let fd = listening();
    let address = clearway_os::socket::local_address(&fd).unwrap();
    let listener = Listener::new(home, Arc::clone(&fd)).unwrap();
    listener.unwatch();
    let in_the_way = Listener::new(home, Arc::clone(&fd)).unwrap();
    assert!(listener.watch().is_err(), "its place is taken");
    assert!(listener.let_others_first().is_ok(), "it is not watched, so there is nothing to do");
    drop(in_the_way);
    listener.watch().unwrap();
    let _client = TcpStream::connect(address).unwrap();
    run(home, async move {
        poll_fn(|cx| listener.poll_acceptable(cx)).await;
        listener.accept().unwrap();
    });
}

fn listening() -> Arc<OwnedFd> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    Arc::new(listener.into())
}

#[test]
fn sockets_that_are_gone_are_not_reclaimed() {
    const EACH: usize = 100;
    let home = start(1).at(0);
    let (begun, gone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut peers = Vec::new();
    for number in 0..2 * EACH {
        let (near, socket) = pair(home);
        peers.push(near);
        let (begun, gone) = (Arc::clone(&begun), Arc::clone(&gone));
        home.spawn(Tag::NONE, async move {
            let (timer, now) = (Timer::new(home), home.now_ms());
            // The first half ends by itself, while it is offered.
            timer.arm(now + if number < EACH { 50 } else { 1_000_000 });
            begun.fetch_add(1, Ordering::SeqCst);
            let woken = poll_fn(|cx| match timer.poll_expired(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => socket.poll_readable_or_reclaimed(cx, now).map(Some),
            });
            assert_ne!(woken.await, Some(Woken::Readable));
            drop(socket);
            gone.fetch_add(1, Ordering::SeqCst);
        });
    }
    let is_gone = |count| begun.load(Ordering::SeqCst) == 2 * EACH && gone.load(Ordering::SeqCst) == count;
    expect_soon("half of them are gone", || is_gone(EACH));
    let reclaim = move || run(home, async move { home.reclaim(8, 32) });
    assert_eq!(reclaim(), EACH / 8);
    expect_soon("they are closed", || is_gone(EACH + EACH / 8));
    assert_eq!(reclaim(), (EACH - EACH / 8) / 8);
}

#[test]
fn an_idle_socket_is_watched_where_it_is_moved_to() {
    let runtime = start(2);
    let (mut near, mut socket) = pair(runtime.at(0));
    assert_eq!(socket.probe(), Probe::Quiet);
    socket.watch().unwrap();
    for home in [runtime.at(1), runtime.at(0), runtime.at(1)] {
        socket.move_to(home).unwrap();
        socket.watch_idle(Waker::noop()).unwrap();
        assert_eq!(socket.home().index(), home.index());
        assert!(!socket.has_unread() && !socket.has_ended());
    }
    near.write_all(b"late").unwrap();
    expect_soon("its new loop learns of it", || socket.has_unread());
    assert_eq!((socket.probe(), socket.has_ended()), (Probe::Unread, false));
    // What has come and was not read goes with it.
    socket.move_to(runtime.at(0)).unwrap();
    socket.watch().unwrap();
    expect_soon("so does the next one", || socket.has_unread());
    let socket = run(runtime.at(0), async move {
        let (mut first, mut rest) = ([0; 3], [0; 5]);
        let mut bufs = [std::io::IoSliceMut::new(&mut first), std::io::IoSliceMut::new(&mut rest)];
        assert_eq!(poll_fn(|cx| socket.poll_read_vectored(cx, &mut bufs)).await.unwrap(), 4);
        assert_eq!((&first, rest[0]), (b"lat", b'e'));
        socket
    });
    drop(near);
    expect_soon("the end is noticed", || socket.has_ended());
    assert_eq!(socket.probe(), Probe::Ended);
}

#[test]
fn a_task_that_looks_after_idle_sockets_is_woken() {
    let runtime = start(2);
    let (near, mut socket) = pair(runtime.at(0));
    socket.move_to(runtime.at(1)).unwrap();
    let (sender, receiver) = mpsc::channel();
    runtime.at(0).spawn(Tag::NONE, async move {
        poll_fn(|cx| {
            socket.watch_idle(cx.waker()).unwrap();
            if socket.has_ended() {
                return Poll::Ready(());
            }
            sender.send(false).unwrap();
            Poll::Pending
        })
        .await;
        sender.send(true).unwrap();
    });
    assert!(!receiver.recv_timeout(PATIENCE).unwrap(), "nothing has come");
    drop(near);
    while !receiver.recv_timeout(PATIENCE).unwrap() {}
}
