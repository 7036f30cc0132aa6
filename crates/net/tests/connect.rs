//! Connections to servers: options, places among `worker_connections`, nginx's words.
#![expect(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use clearway_base::log::{Discard, Level, Record, Sink};
use clearway_net::accept::{AcceptPolicy, MultiAccept};
use clearway_net::connect::{AddressOwner, ConnectFault, ConnectOptions, Connector, Keepalive, Local};
use clearway_os::outgoing::Remote;
use clearway_runtime::{Config, LoopRef, Runtime, Socket, Tag, Woken};

/// How long anything may take before a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn home() -> LoopRef {
    let config = Config { ..Config::default() };
    Runtime::start(&config).unwrap().at(0)
}

fn connector(connections: u32) -> Connector {
    Connector::new(AcceptPolicy::for_loops(1, connections, MultiAccept::Off))
}

fn run<R: Send + 'static>(home: LoopRef, future: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move { sender.send(future.await).unwrap() });
    receiver.recv_timeout(PATIENCE).unwrap()
}

/// What is said of a connection that is not made.
fn words(remote: Remote, options: ConnectOptions) -> (Level, String, bool) {
    let (home, connector) = (home(), connector(10));
    let fault = run(home, async move {
        connector.connect(home, &remote, &options, &Discard).await.err().expect("there is nobody")
    });
    assert_eq!(connector.policy(home).connections(), 0, "its place is free again");
    (fault.level(), fault.describe("there:1").to_string(), fault.is_of_server())
}

fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn from(address: &str) -> Option<Local> {
    let ip: IpAddr = address.parse().unwrap();
    Some(Local { address: (ip, 0).into(), owner: AddressOwner::Here })
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn enabled(&self, _: Level) -> bool {
        true
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(fmt::format(record.message));
    }
}

#[test]
fn a_connection_has_its_options_and_a_place() {
    let (home, connector) = (home(), connector(10));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = Remote::Inet(listener.local_addr().unwrap());
    let options = ConnectOptions {
        local: from("127.0.0.2"),
        keepalive: Keepalive::On,
        receive_buffer_bytes: Some(8192),
        send_buffer_bytes: Some(16384),
    };
    let made = run(home, async move {
        connector.connect(home, &remote, &options, &Discard).await.map_err(|fault| fault.to_owned_text())
    });
    let made = made.unwrap();
    let (_, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), "127.0.0.2".parse::<IpAddr>().unwrap());
    let fd = made.socket.as_fd();
    assert!(rustix::net::sockopt::socket_keepalive(fd).unwrap());
    // The kernel takes twice as much, for its own use.
    assert_eq!(rustix::net::sockopt::socket_recv_buffer_size(fd).unwrap(), 2 * 8192);
    assert_eq!(rustix::net::sockopt::socket_send_buffer_size(fd).unwrap(), 2 * 16384);
    assert_eq!(connector.policy(home).connections(), 1);
    drop(made);
    assert_eq!(connector.policy(home).connections(), 0);
}

trait OwnedText {
    fn to_owned_text(&self) -> String;
}

impl OwnedText for ConnectFault {
    fn to_owned_text(&self) -> String {
        self.describe("there:1").to_string()
    }
}

#[test]
fn faults_have_the_words_of_nginx() {
    let refused = "connect() failed (111: Connection refused)";
    assert_eq!(
        words(Remote::Inet(nobody()), ConnectOptions::default()),
        (Level::Error, refused.to_owned(), true)
    );
    let path: Box<[u8]> = b"/nonexistent/socket"[..].into();
    let absent = "connect() to there:1 failed (2: No such file or directory)";
    assert_eq!(words(Remote::Unix(path), ConnectOptions::default()), (Level::Crit, absent.to_owned(), true));
    // An address for documentation, which is nobody's (RFC 5737).
    let options = ConnectOptions { local: from("192.0.2.1"), ..ConnectOptions::default() };
    let bind = "bind(192.0.2.1) failed (99: Cannot assign requested address)";
    assert_eq!(words(Remote::Inet(nobody()), options), (Level::Crit, bind.to_owned(), false));
}

#[test]
fn without_a_place_there_is_no_connection() {
    let (home, connector) = (home(), connector(1));
    let _taken = connector.policy(home).take_slot().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let remote = Remote::Inet(listener.local_addr().unwrap());
    let fault = run(home, async move {
        let options = ConnectOptions::default();
        connector.connect(home, &remote, &options, &Discard).await.err().expect("there is no place")
    });
    assert_eq!((fault.level(), fault.is_of_server()), (Level::Alert, false));
    assert_eq!(fault.describe("").to_string(), "1 worker_connections are not enough");
}

/// The connection of a client that waits for a request gives way.
#[test]
fn a_client_without_a_request_gives_way() {
    let (home, connector) = (home(), connector(1));
    let slot = connector.policy(home).take_slot().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = std::net::TcpStream::connect(address).unwrap();
    let (waiting, _) = listener.accept().unwrap();
    waiting.set_nonblocking(true).unwrap();
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move {
        let socket = Socket::new(home, waiting.into());
        let mut told = Some(sender);
        let woken = poll_fn(|cx| {
            let polled = socket.poll_readable_or_reclaimed(cx, home.now_ms());
            if let Some(told) = told.take() {
                told.send(()).unwrap();
            }
            polled
        });
        assert_eq!(woken.await, Woken::Reclaimed);
        drop((socket, slot));
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    let lines = Arc::new(Lines::default());
    let log = Arc::clone(&lines);
    let made = run(home, async move {
        let options = ConnectOptions::default();
        let made = connector.connect(home, &Remote::Inet(address), &options, &*log).await;
        made.map_err(|fault| fault.to_owned_text())
    });
    assert_eq!(made.map(|made| made.slot.loop_index()), Ok(0));
    assert_eq!(*lines.0.lock().unwrap(), ["1 worker_connections are not enough, reusing connections"]);
    drop(client);
}
