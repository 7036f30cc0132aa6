//! Loops that each have a socket of their own, and one that is held: connections to its socket are
//! accepted and served by others.
#![expect(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use clearway_base::log::Discard;
use clearway_net::accept::{AcceptPolicy, AcceptStop, Accepted, Acceptor, MultiAccept};
use clearway_net::bind::{Options, bind};
use clearway_net::listen::ListenAddr;
use clearway_net::on_loop::LoopSource;
use clearway_net::reuse::address_of;
use clearway_runtime::{Config, Listener, LoopRef, Runtime, Socket, Tag};
use clearway_testkit::{chaos_lend, expect_soon};

/// Far above what is right, also on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const LOOPS: usize = 3;

fn start() -> Runtime {
    let config = Config { loops: LOOPS, handover_after: None, handover_carriers: 0, ..Config::default() };
    Runtime::start(&config).unwrap()
}

/// A socket for each loop, all with one address.
fn sockets() -> (Vec<Arc<OwnedFd>>, SocketAddr) {
    let options = Options { reuseport: true, ..Options::default() };
    let mut address = ListenAddr::Inet("127.0.0.1:0".parse().unwrap());
    let mut sockets = Vec::new();
    for _ in 0..LOOPS {
        let socket = bind(&address, &options, &Discard).unwrap();
        address = address_of(&socket).unwrap();
        sockets.push(Arc::new(socket));
    }
    let ListenAddr::Inet(address) = address else { panic!("{address}") };
    (sockets, address)
}

/// Each connection is sent the number of its loop.
async fn answer(home: LoopRef, accepted: Accepted) {
    let socket = Socket::new(home, accepted.socket);
    let number = [home.index() as u8];
    let _ = poll_fn(|cx| socket.poll_write(cx, &number)).await;
}

fn serve(runtime: Runtime, sockets: &[Arc<OwnedFd>], stop: &Arc<AcceptStop>) {
    let policies = AcceptPolicy::for_loops(LOOPS, 10_000, MultiAccept::Off);
    let watch = |home: LoopRef, distance: usize| {
        Listener::new(home, Arc::clone(&sockets[(home.index() + distance) % LOOPS])).unwrap()
    };
    let own: Vec<_> = runtime.loops().map(|home| watch(home, 0)).collect();
    for (home, own) in runtime.loops().zip(own) {
        let others = (1..LOOPS).map(|distance| watch(home, distance)).collect();
        let acceptor = Acceptor {
            source: LoopSource::new(own).with_others(others),
            policy: &policies[home.index()],
            log: Arc::new(Discard),
            stop: Arc::clone(stop),
        };
        home.spawn_bound(
            Tag::NONE,
            acceptor.run(move |accepted| {
                let place = home.sibling(accepted.slot.loop_index());
                place.spawn(Tag::NONE, answer(place, accepted));
            }),
        );
    }
}

/// Connects and says which loop has answered.
fn ask(address: SocketAddr) -> usize {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut number = [0];
    stream.read_exact(&mut number).unwrap();
    let _ = stream.write_all(&number);
    usize::from(number[0])
}

#[test]
fn others_accept_from_the_socket_of_a_loop_that_is_held() {
    if chaos_lend().is_some() {
        // No loop is ever held.
        return;
    }
    let runtime = start();
    let (sockets, address) = sockets();
    let stop = AcceptStop::new();
    serve(runtime, &sockets, &stop);
    assert!(ask(address) < LOOPS);
    let (held, free) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (says, ends) = (Arc::clone(&held), Arc::clone(&free));
    runtime.at(0).spawn_bound(Tag::NONE, async move {
        says.store(1, Ordering::Relaxed);
        while !ends.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    expect_soon("it is held", || held.load(Ordering::Relaxed) == 1);
    // About a third of them go to its socket, where the first waits until the loop is known to be held.
    for _ in 0..60 {
        assert_ne!(ask(address), 0, "who is held serves nobody");
    }
    free.store(true, Ordering::Relaxed);
    stop.leave();
    runtime.wake_all();
    expect_soon("all let go", || stop.is_over());
}
