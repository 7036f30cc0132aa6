//! Listening sockets that are let go of while clients connect: real loops, real sockets.
#![expect(clippy::disallowed_methods, reason = "a test's own thread may block")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clearway_base::log::Discard;
use clearway_net::accept::{AcceptPolicy, AcceptStop, Accepted, Acceptor, MultiAccept};
use clearway_net::on_loop::LoopSource;
use clearway_runtime::{Config, Listener, LoopRef, Runtime, Socket, Tag};
use clearway_testkit::expect_soon;

fn runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    *RUNTIME.get_or_init(|| {
        Runtime::start(&Config { loops: 2, handover_after: None, handover_carriers: 8, ..Config::default() })
            .unwrap()
    })
}

/// Accepts on all loops; each connection is sent one byte for each that it sends.
fn serve(socket: OwnedFd, stop: &Arc<AcceptStop>) {
    let socket = Arc::new(socket);
    for home in runtime().loops() {
        let acceptor = Acceptor {
            source: LoopSource::new(Listener::new(home, Arc::clone(&socket)).unwrap()),
            policy: AcceptPolicy::new(100_000, MultiAccept::Off),
            log: Arc::new(Discard),
            stop: Arc::clone(stop),
        };
        home.spawn(Tag::NONE, acceptor.run(move |accepted| home.spawn(Tag::NONE, answer(home, accepted))));
    }
}

async fn answer(home: LoopRef, accepted: Accepted) {
    let socket = Socket::new(home, accepted.socket);
    let mut buf = Vec::with_capacity(1);
    while let Ok(1..) = poll_fn(|cx| socket.poll_read_vec(cx, &mut buf)).await {
        if poll_fn(|cx| socket.poll_write(cx, &buf)).await.is_err() {
            break;
        }
        buf.clear();
    }
}

fn is_answered(mut stream: impl Read + Write) -> bool {
    let mut byte = [b'x'];
    stream.write_all(&byte).is_ok() && matches!(stream.read(&mut byte), Ok(1))
}

fn wait_over(stop: &Arc<AcceptStop>) {
    expect_soon("the socket is in use by nobody", || stop.is_over());
}

fn listen() -> (OwnedFd, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener.into(), address)
}

#[test]
fn what_is_in_the_queue_is_served() {
    let path = std::env::temp_dir().join(format!("clearway-net-queue-{}.sock", std::process::id()));
    for end in [AcceptStop::stop, AcceptStop::remove, AcceptStop::leave] {
        let (tcp, address) = listen();
        let unix = UnixListener::bind(&path).unwrap();
        unix.set_nonblocking(true).unwrap();
        let tcp_clients: Vec<_> = (0..60).map(|_| TcpStream::connect(address).unwrap()).collect();
        let unix_clients: Vec<_> = (0..60).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let stop = AcceptStop::new();
        end(&stop);
        serve(tcp, &stop);
        serve(unix.into(), &stop);
        assert!(tcp_clients.into_iter().all(is_answered));
        assert!(unix_clients.into_iter().all(is_answered));
        wait_over(&stop);
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert_eq!(UnixStream::connect(&path).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        std::fs::remove_file(&path).unwrap();
    }
}

/// With `stop` instead of `remove` about one round in ten breaks a connection.
#[test]
fn who_connects_while_a_socket_is_removed_is_served_or_refused() {
    let (broken, served) = (AtomicUsize::new(0), AtomicUsize::new(0));
    for _ in 0..20 {
        let (socket, address) = listen();
        let (stop, done) = (AcceptStop::new(), AtomicBool::new(false));
        serve(socket, &stop);
        let before = served.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        // A client that is not answered at first would have to wait for a second.
                        if let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(30)) {
                            let count = if is_answered(&stream) { &served } else { &broken };
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            expect_soon("twenty are served", || served.load(Ordering::Relaxed) >= before + 20);
            stop.remove();
            runtime().wake_all();
            wait_over(&stop);
            done.store(true, Ordering::Relaxed);
        });
    }
    assert_eq!(broken.load(Ordering::Relaxed), 0, "of {served:?}");
}
