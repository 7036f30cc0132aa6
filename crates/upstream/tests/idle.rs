//! Idle connections on real loops: reused, taken by other loops, closed by their server or for others.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use clearway_base::log::Discard;
use clearway_net::accept::{AcceptPolicy, MultiAccept};
use clearway_net::connect::{ConnectOptions, Connector};
use clearway_os::outgoing::Remote;
use clearway_runtime::{Config, LoopRef, Runtime, Tag};
use clearway_testkit::expect_soon;
use clearway_upstream::{Connection, Identity, Pool, PoolConfig, PoolCounts, Repeat};

/// How long anything may take before a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const LOOPS: usize = 2;

const CONFIG: PoolConfig =
    PoolConfig { connections_max: 64, requests_max: 1000, time_ms: 3_600_000, timeout_ms: 60_000 };

struct Bench {
    runtime: Runtime,
    connector: Connector,
    pool: Arc<Pool>,
    listener: TcpListener,
    remote: Remote,
}

impl Bench {
    fn new(config: PoolConfig) -> Self {
        Self::with_places(config, 100)
    }

    /// Each loop may have so many connections.
    fn with_places(config: PoolConfig, places: u32) -> Self {
        let runtime =
            Config { loops: LOOPS, handover_after: None, handover_carriers: 0, ..Config::default() };
        let runtime = Runtime::start(&runtime).unwrap();
        let connector = Connector::new(AcceptPolicy::for_loops(LOOPS, places, MultiAccept::Off));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = Remote::Inet(listener.local_addr().unwrap());
        Self { runtime, connector, pool: Pool::new(config, LOOPS, connector), listener, remote }
    }

    /// Runs something on a loop.
    fn on<R: Send + 'static, F: Future<Output = R> + Send + 'static>(
        &self,
        at: usize,
        make: impl FnOnce(LoopRef) -> F,
    ) -> R {
        let (home, (sender, receiver)) = (self.runtime.at(at), mpsc::channel());
        let future = make(home);
        home.spawn(Tag::NONE, async move { sender.send(future.await).unwrap() });
        receiver.recv_timeout(PATIENCE).unwrap()
    }

    /// A new connection of a loop, and the server's end.
    fn connect(&self, at: usize) -> (Box<Connection>, TcpStream) {
        let (connector, remote) = (self.connector, self.remote.clone());
        let connection = self.on(at, |home| async move {
            let made = connector.connect(home, &remote, &ConnectOptions::default(), &Discard).await;
            let made = made.map_err(|fault| fault.describe("").to_string()).unwrap();
            Connection::new(made, Identity { remote: &remote, local: None, scope: 0 }, home.now_ms())
        });
        (connection, self.listener.accept().unwrap().0)
    }

    fn put(&self, at: usize, connection: Box<Connection>) {
        let pool = Arc::clone(&self.pool);
        self.on(at, |home| async move { pool.put(home, connection) });
    }

    fn take(&self, at: usize, scope: u64) -> Option<Box<Connection>> {
        self.take_for(at, scope, Repeat::Possible)
    }

    fn take_for(&self, at: usize, scope: u64, repeat: Repeat) -> Option<Box<Connection>> {
        let (pool, remote) = (Arc::clone(&self.pool), self.remote.clone());
        self.on(at, |home| async move {
            pool.take(home, Identity { remote: &remote, local: None, scope }, repeat)
        })
    }

    /// A connection for what cannot be repeated, once there is one; and the server's ends of those tried.
    fn take_trusted(&self) -> (Box<Connection>, Vec<TcpStream>) {
        let (mut found, mut servers) = (None, Vec::new());
        expect_soon("the server is trusted", || {
            let (connection, server) = self.connect(0);
            self.put(0, connection);
            servers.push(server);
            found = self.take_for(0, 0, Repeat::Impossible);
            found.is_some()
        });
        (found.expect("it was waited for"), servers)
    }

    fn connections(&self, at: usize) -> u32 {
        self.connector.policy(self.runtime.at(at)).connections()
    }

    fn expect_counts(&self, expected: PoolCounts) {
        expect_soon(&format!("{expected:?}"), || self.pool.counts() == expected);
    }
}

/// Both ends hear each other.
fn talk(
    bench: &Bench,
    at: usize,
    mut connection: Box<Connection>,
    server: &mut TcpStream,
) -> Box<Connection> {
    server.write_all(b"hello").unwrap();
    let connection = bench.on(at, |_| async move {
        let mut answer = Vec::with_capacity(16);
        while answer.len() < 5 {
            poll_fn(|cx| connection.transport.poll_read_vec(cx, &mut answer)).await.unwrap();
        }
        poll_fn(|cx| connection.transport.poll_write(cx, &answer)).await.unwrap();
        connection
    });
    let mut heard = [0; 5];
    server.read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    connection
}

#[test]
fn a_connection_is_used_again_by_those_that_may() {
    let bench = Bench::new(CONFIG);
    let (connection, mut server) = bench.connect(0);
    assert!(!connection.is_reused());
    let connection = talk(&bench, 0, connection, &mut server);
    bench.put(0, connection);
    assert!(bench.take(0, 1).is_none(), "it is another location's");
    let connection = bench.take(0, 0).expect("it is there");
    assert!(connection.is_reused() && bench.take(0, 0).is_none());
    let connection = talk(&bench, 0, connection, &mut server);
    bench.put(0, connection);
    bench.expect_counts(PoolCounts { idle: 1, reused: 1, missed: 2, ..PoolCounts::default() });
}

#[test]
fn another_loop_takes_it_along_with_its_place() {
    let bench = Bench::new(CONFIG);
    let (connection, mut server) = bench.connect(0);
    bench.put(0, connection);
    assert_eq!([bench.connections(0), bench.connections(1)], [1, 0]);
    let connection = bench.take(1, 0).expect("it is there");
    assert_eq!([bench.connections(0), bench.connections(1)], [0, 1]);
    let connection = talk(&bench, 1, connection, &mut server);
    bench.put(1, connection);
    let connection = bench.take(0, 0).expect("it is there");
    drop(talk(&bench, 0, connection, &mut server));
    assert_eq!([bench.connections(0), bench.connections(1)], [0, 0]);
    assert_eq!(bench.pool.counts().moved, 2);
}

#[test]
fn what_the_server_has_closed_goes_without_a_request() {
    let bench = Bench::new(CONFIG);
    let mut servers = Vec::new();
    for _ in 0..3 {
        let (connection, server) = bench.connect(1);
        bench.put(1, connection);
        servers.push(server);
    }
    drop(servers.pop());
    bench.expect_counts(PoolCounts { idle: 2, gone: 1, ..PoolCounts::default() });
    // One that speaks before it is asked is of no use either.
    servers[0].write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").unwrap();
    bench.expect_counts(PoolCounts { idle: 1, gone: 2, ..PoolCounts::default() });
    // A connection ends after it has left the pool.
    expect_soon("one connection", || bench.connections(1) == 1);
    // The keeper has nothing to do by and by, and is called again.
    drop(servers);
    bench.expect_counts(PoolCounts { idle: 0, gone: 3, ..PoolCounts::default() });
    let (connection, server) = bench.connect(1);
    bench.put(1, connection);
    drop(server);
    bench.expect_counts(PoolCounts { idle: 0, gone: 4, ..PoolCounts::default() });
}

#[test]
fn a_request_takes_none_that_has_ended() {
    let bench = Bench::new(CONFIG);
    let (connection, server) = bench.connect(0);
    bench.put(0, connection);
    drop(server);
    // Whether the keeper was faster or not.
    bench.expect_counts(PoolCounts { gone: 1, ..PoolCounts::default() });
    assert!(bench.take(0, 0).is_none());
    let (mut connection, server) = bench.connect(0);
    drop(server);
    let pool = Arc::clone(&bench.pool);
    bench.on(0, |home| async move {
        assert!(connection.transport.watch().is_ok());
        poll_fn(|cx| connection.transport.poll_closed(cx)).await.unwrap();
        pool.put(home, connection);
    });
    assert_eq!(bench.pool.counts().idle, 0, "it is not even put there");
}

#[test]
fn there_are_no_more_than_the_limit() {
    let bench = Bench::new(PoolConfig { connections_max: 2, ..CONFIG });
    let mut servers = Vec::new();
    let mut connections = Vec::new();
    for at in [0, 1, 0, 1, 1] {
        let (connection, server) = bench.connect(at);
        connections.push((at, connection));
        servers.push(server);
    }
    for (at, connection) in connections {
        bench.put(at, connection);
    }
    bench.expect_counts(PoolCounts { idle: 2, displaced: 3, ..PoolCounts::default() });
    expect_soon("their places are free", || bench.connections(0) + bench.connections(1) == 2);
}

/// Places for connections are for those that are used: idle ones go, the oldest first.
#[test]
fn idle_connections_make_room_for_others() {
    let bench = Bench::with_places(CONFIG, 3);
    let mut servers = Vec::new();
    let mut idle = Vec::new();
    for _ in 0..3 {
        let (connection, server) = bench.connect(0);
        idle.push(connection);
        servers.push(server);
    }
    for connection in idle {
        bench.put(0, connection);
    }
    let used: Vec<_> = (0..3).map(|_| bench.connect(0)).collect();
    bench.expect_counts(PoolCounts { reclaimed: 3, ..PoolCounts::default() });
    assert_eq!(bench.connections(0), 3);
    for mut server in servers {
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0, "it is closed");
    }
    // There is nothing left that could go.
    let (connector, remote) = (bench.connector, bench.remote.clone());
    let refused = bench.on(0, |home| async move {
        let made = connector.connect(home, &remote, &ConnectOptions::default(), &Discard).await;
        made.err().map(|fault| fault.describe("").to_string())
    });
    assert_eq!(refused.as_deref(), Some("3 worker_connections are not enough"));
    drop(used);
    assert!(bench.take(0, 0).is_none());
}

/// Behind a wave of requests there are more than the limit for a moment, for the next wave.
#[test]
fn what_is_above_the_limit_stays_for_a_moment() {
    let bench = Bench::new(PoolConfig { connections_max: 3, ..CONFIG });
    let (connections, _servers): (Vec<_>, Vec<_>) = (0..7).map(|_| bench.connect(0)).unzip();
    let pool = Arc::clone(&bench.pool);
    let idle = bench.on(0, |home| async move {
        connections.into_iter().for_each(|connection| pool.put(home, connection));
        pool.counts().idle
    });
    assert_eq!(idle, 6, "twice the limit, and no more");
    bench.expect_counts(PoolCounts { idle: 3, displaced: 4, ..PoolCounts::default() });
    expect_soon("their places are free", || bench.connections(0) == 3);
}

/// A reload may allow more than there were places for at first.
#[test]
fn a_limit_can_be_raised() {
    let bench = Bench::new(PoolConfig { connections_max: 1, ..CONFIG });
    let connections: Vec<_> = (0..90).map(|_| bench.connect(0)).collect();
    let mut servers = Vec::new();
    for (number, (connection, server)) in connections.into_iter().enumerate() {
        if number == 10 {
            bench.pool.adapt(PoolConfig { connections_max: 80, ..CONFIG });
        }
        bench.put(0, connection);
        servers.push(server);
    }
    bench.expect_counts(PoolCounts { idle: 80, displaced: 10, ..PoolCounts::default() });
    expect_soon("their places are free", || bench.connections(0) == 80);
}

#[test]
fn old_and_used_ones_go() {
    let bench = Bench::new(PoolConfig { requests_max: 2, timeout_ms: 80, ..CONFIG });
    let (connection, _server) = bench.connect(0);
    bench.put(0, connection);
    let connection = bench.take(0, 0).expect("it is there");
    bench.put(0, connection);
    assert_eq!(bench.pool.counts().idle, 0, "two requests are enough");
    let (connection, _server) = bench.connect(0);
    bench.put(0, connection);
    bench.expect_counts(PoolCounts { reused: 1, ..PoolCounts::default() });
    let bench = Bench::new(PoolConfig { connections_max: 0, ..CONFIG });
    let (connection, _server) = bench.connect(0);
    bench.put(0, connection);
    assert_eq!(bench.connections(0), 0, "nothing is kept");
}

#[test]
fn with_the_pool_its_connections_go() {
    let bench = Bench::new(CONFIG);
    let (connection, mut server) = bench.connect(0);
    bench.put(0, connection);
    let Bench { pool, runtime, connector, .. } = bench;
    // The keeper holds on to it only while it is polled.
    drop(pool);
    assert_eq!(server.read(&mut [0]).unwrap(), 0);
    expect_soon("no connection is left", || connector.policy(runtime.at(0)).connections() == 0);
}

/// A request that cannot be repeated has idle connections of servers that keep them: nothing is known of one
/// at first, and one that closes behind an answer is left alone for a while. What such a request leaves is
/// closed, as it makes one itself, and the server may have no place for both.
#[test]
fn what_cannot_be_repeated_waits_until_a_server_is_trusted() {
    let bench = Bench::new(CONFIG);
    let (connection, mut server) = bench.connect(0);
    // In one poll, for which the loop's clock stands still.
    let (pool, remote) = (Arc::clone(&bench.pool), bench.remote.clone());
    let taken = bench.on(0, |home| async move {
        pool.put(home, connection);
        pool.take(home, Identity { remote: &remote, local: None, scope: 0 }, Repeat::Impossible)
    });
    assert!(taken.is_none(), "nothing is known of the server");
    assert_eq!(server.read(&mut [0]).unwrap(), 0, "there is room for another one");
    let (found, mut servers) = bench.take_trusted();
    bench.put(0, found);
    let (hasty, server) = bench.connect(0);
    bench.put(0, hasty);
    drop(server);
    bench.expect_counts(PoolCounts { idle: 1, reused: 1, gone: 1, ..bench.pool.counts() });
    assert!(bench.take_for(0, 0, Repeat::Impossible).is_none(), "one was closed early");
    let (usual, server) = bench.connect(0);
    servers.push(server);
    bench.put(0, usual);
    let usual = bench.take_for(0, 0, Repeat::Possible);
    assert!(usual.is_some(), "others may try");
    bench.put(0, usual.unwrap());
    bench.take_trusted();
}
