//! Connections that this side makes, and datagrams.
#![expect(clippy::disallowed_methods, reason = "tests block, and remove what they have made")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use clearway_os::outgoing::{self, Carries, Remote};
use clearway_os::tcp;
use clearway_runtime::{Config, Datagrams, LoopRef, Runtime, Socket, Tag, Timer};
use clearway_testkit::expect_soon;

/// How long anything may take before a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn home() -> LoopRef {
    let config = Config { ..Config::default() };
    Runtime::start(&config).unwrap().at(0)
}

fn run<R: Send + 'static>(home: LoopRef, future: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move { sender.send(future.await).unwrap() });
    receiver.recv_timeout(PATIENCE).unwrap()
}

async fn connect(home: LoopRef, remote: Remote) -> io::Result<Socket> {
    let fd = outgoing::open(&remote, Carries::Stream)?;
    Socket::connect(home, fd, &remote)?.await
}

/// Asks over a new connection, and returns the answer up to its end.
async fn ask(home: LoopRef, remote: Remote) -> Vec<u8> {
    let socket = connect(home, remote).await.unwrap();
    assert_eq!(poll_fn(|cx| socket.poll_write(cx, b"question")).await.unwrap(), 8);
    let mut answer = Vec::with_capacity(64);
    while poll_fn(|cx| socket.poll_read_vec(cx, &mut answer)).await.unwrap() > 0 {}
    answer
}

fn answer(mut stream: impl Read + Write) {
    let mut question = [0; 8];
    stream.read_exact(&mut question).unwrap();
    assert_eq!(&question, b"question");
    stream.write_all(b"answer").unwrap();
}

fn remote_of(listener: &TcpListener) -> Remote {
    Remote::Inet(listener.local_addr().unwrap())
}

/// A path for a unix socket, where nothing is.
fn path(name: &str) -> Box<[u8]> {
    let path = std::env::temp_dir().join(format!("clearway-connect-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path.as_os_str().as_bytes().into()
}

fn remove(path: &[u8]) {
    std::fs::remove_file(std::ffi::OsStr::from_bytes(path)).unwrap();
}

#[test]
fn connections_are_made_and_carry_both_directions() {
    let home = home();
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let remote = remote_of(&listener);
        let peer = std::thread::spawn(move || answer(listener.accept().unwrap().0));
        assert_eq!(run(home, ask(home, remote)), b"answer");
        peer.join().unwrap();
    }
    let path = path("stream");
    let listener = UnixListener::bind(std::ffi::OsStr::from_bytes(&path)).unwrap();
    let peer = std::thread::spawn(move || answer(listener.accept().unwrap().0));
    assert_eq!(run(home, ask(home, Remote::Unix(path.clone()))), b"answer");
    peer.join().unwrap();
    remove(&path);
}

#[test]
fn what_is_refused_says_so() {
    let home = home();
    let gone = remote_of(&TcpListener::bind("127.0.0.1:0").unwrap());
    let refused = run(home, async move { connect(home, gone).await.map(drop) });
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let path = path("nobody");
    let absent = run(home, async move { connect(home, Remote::Unix(path)).await.map(drop) });
    assert_eq!(absent.unwrap_err().kind(), io::ErrorKind::NotFound);
    let long = Remote::Unix(vec![b'x'; outgoing::UNIX_PATH_MAX_BYTES + 1].into());
    assert!(run(home, async move { connect(home, long).await.map(drop) }).is_err());
}

/// A handshake that nobody completes is waited for until the task has had enough, and goes on where the peer
/// does.
#[test]
fn a_connection_under_way_can_be_waited_for_and_given_up() {
    let home = home();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let remote = remote_of(&listener);
    // One connection fills a queue of this length; the kernel drops what the next ones send.
    let mut made = Vec::new();
    let under_way = loop {
        let there = remote.clone();
        let result = run(home, async move {
            let timer = Timer::new(home);
            timer.arm(home.now_ms() + 200);
            let fd = outgoing::open(&there, Carries::Stream).unwrap();
            let mut connecting = Socket::connect(home, fd, &there).unwrap();
            poll_fn(|cx| match std::pin::Pin::new(&mut connecting).poll(cx) {
                Poll::Ready(socket) => Poll::Ready(Ok(socket.unwrap())),
                Poll::Pending => timer.poll_expired(cx).map(|()| Err(())),
            })
            .await
            .map_err(|()| connecting)
        });
        match result {
            Ok(socket) => made.push(socket),
            Err(connecting) => break connecting,
        }
        assert!(made.len() < 10, "the queue never fills");
    };
    let is_made = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&is_made);
    home.spawn(Tag::NONE, async move {
        let socket = under_way.await.unwrap();
        noted.store(socket.is_writable(), Ordering::SeqCst);
    });
    listener.set_nonblocking(true).unwrap();
    expect_soon("it is made once there is room", || {
        let _ = listener.accept();
        is_made.load(Ordering::SeqCst)
    });
}

#[test]
fn a_connection_comes_from_the_address_that_was_asked_for() {
    let home = home();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = remote_of(&listener);
    let local: SocketAddr = "127.0.0.7:0".parse().unwrap();
    let fd = outgoing::open(&remote, Carries::Stream).unwrap();
    tcp::set_bind_address_no_port(&fd).unwrap();
    outgoing::bind(fd.as_fd(), local).unwrap();
    outgoing::set_keepalive(fd.as_fd()).unwrap();
    outgoing::set_receive_buffer(fd.as_fd(), 32 << 10).unwrap();
    outgoing::set_send_buffer(fd.as_fd(), 32 << 10).unwrap();
    let socket = run(home, async move { Socket::connect(home, fd, &remote).unwrap().await.unwrap() });
    assert_eq!(listener.accept().unwrap().1.ip(), local.ip());
    drop(socket);
}

#[test]
fn datagrams_are_sent_and_received() {
    let home = home();
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let there = peer.local_addr().unwrap();
    let remote = Remote::Inet(there);
    let connected = outgoing::open(&remote, Carries::Datagrams).unwrap();
    outgoing::connect(connected.as_fd(), &remote).unwrap();
    let answering = std::thread::spawn(move || {
        for _ in 0..2 {
            let mut buf = [0; 64];
            let (size, from) = peer.recv_from(&mut buf).unwrap();
            peer.send_to(&buf[..size], from).unwrap();
        }
        peer.send_to(b"", peer.local_addr().unwrap()).unwrap();
    });
    let unconnected = outgoing::open(&remote, Carries::Datagrams).unwrap();
    run(home, async move {
        let socket = Datagrams::new(home, connected);
        poll_fn(|cx| socket.poll_send(cx, b"a question")).await.unwrap();
        let mut buf = [0; 64];
        let received = poll_fn(|cx| socket.poll_receive(cx, &mut buf)).await.unwrap();
        assert_eq!((&buf[..received.0], received.1), (&b"a question"[..], Some(there)));
        let socket = Datagrams::new(home, unconnected);
        poll_fn(|cx| socket.poll_send_to(cx, b"too long for it", there)).await.unwrap();
        let mut short = [0; 3];
        let received = poll_fn(|cx| socket.poll_receive(cx, &mut short)).await.unwrap();
        assert_eq!((received.0, &short), (15, b"too"), "its end is lost, and that is known");
    });
    answering.join().unwrap();
}

#[test]
fn a_datagram_that_nobody_takes_is_an_error_later() {
    let home = home();
    let remote = Remote::Inet(UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let fd = outgoing::open(&remote, Carries::Datagrams).unwrap();
    outgoing::connect(fd.as_fd(), &remote).unwrap();
    let error = run(home, async move {
        let socket = Datagrams::new(home, fd);
        poll_fn(|cx| socket.poll_send(cx, b"anybody?")).await.unwrap();
        poll_fn(|cx| socket.poll_receive(cx, &mut [0; 8])).await.unwrap_err()
    });
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

/// A unix datagram socket takes as much as its reader leaves room for; then a sender waits.
#[test]
fn a_sender_waits_for_room() {
    const COUNT: usize = 2000;
    let home = home();
    let path = path("datagrams");
    let peer = UnixDatagram::bind(std::ffi::OsStr::from_bytes(&path)).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    let remote = Remote::Unix(path.clone());
    let fd = outgoing::open(&remote, Carries::Datagrams).unwrap();
    outgoing::connect(fd.as_fd(), &remote).unwrap();
    home.spawn(Tag::NONE, async move {
        let socket = Datagrams::new(home, fd);
        for number in 0..COUNT {
            poll_fn(|cx| socket.poll_send(cx, &number.to_le_bytes())).await.unwrap();
        }
    });
    for number in 0..COUNT {
        let mut buf = [0; 8];
        assert_eq!(peer.recv(&mut buf).unwrap(), 8);
        assert_eq!(usize::from_le_bytes(buf), number);
    }
    remove(&path);
}
