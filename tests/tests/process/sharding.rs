//! Loops and sockets that come and go while clients connect: nobody is reset, and what waits in a queue is
//! served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Address, Binary, Server, Setup, wait_until};
use rustix::process::Signal;

use crate::config;

/// Clients that connect all the time.
const CLIENTS: usize = 24;

/// So many of their requests are answered before and after each change.
const REQUESTS: usize = 300;

/// What has come of the clients so far.
#[derive(Default)]
struct Tally {
    answered: AtomicUsize,
    broken: Mutex<Vec<String>>,
    done: AtomicBool,
}

/// One connection, one request.
fn ask(address: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(answer)
}

impl Tally {
    fn play(&self, address: &str) {
        while !self.done.load(Ordering::Relaxed) {
            match ask(address) {
                Ok(answer) if answer.starts_with(b"HTTP/1.1 200 ") => {
                    self.answered.fetch_add(1, Ordering::Relaxed);
                }
                Ok(answer) => self.note(format!("{:?}", String::from_utf8_lossy(&answer))),
                Err(error) => self.note(error.to_string()),
            }
        }
    }

    fn note(&self, what: String) {
        self.broken.lock().expect("no client panics").push(what);
    }

    /// Waits until some more requests were answered.
    fn wait_for_more(&self) {
        let before = self.answered.load(Ordering::Relaxed);
        assert!(wait_until(PATIENCE, || self.answered.load(Ordering::Relaxed) >= before + REQUESTS));
    }
}

/// A configuration of so many loops that answers with its number.
fn sharded(loops: usize, listen: &str, number: usize) -> String {
    let http =
        format!("server {{ listen 127.0.0.1:%%PORT%% {listen}; location / {{ return 200 n{number}; }} }}");
    config("", &http).replace("worker_processes 1;", &format!("worker_processes {loops};"))
}

fn reload(server: &mut Server, config: &str, number: usize) {
    server.configure(config);
    server.signal(Signal::HUP);
    let wanted = format!("n{number}");
    assert!(wait_until(PATIENCE, || server.get("/").text() == wanted), "{}", server.described());
}

/// Goes through these numbers of loops and options of `listen` while clients connect.
fn play(steps: &[(usize, &str)]) {
    let (loops, listen) = steps[0];
    let mut server = Setup::new(Binary::under_test(), &sharded(loops, listen, 0)).start();
    let Address::Tcp(address) = server.address() else { panic!("it listens on TCP") };
    let (tally, address) = (Tally::default(), address.to_string());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| tally.play(&address));
        }
        for (number, (loops, listen)) in steps.iter().enumerate().skip(1) {
            tally.wait_for_more();
            reload(&mut server, &sharded(*loops, listen, number), number);
        }
        tally.wait_for_more();
        tally.done.store(true, Ordering::Relaxed);
    });
    let broken = tally.broken.into_inner().expect("no client panics");
    assert!(broken.is_empty(), "{} broken: {:?}", broken.len(), &broken[..broken.len().min(5)]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx resets those who wait in the queue of a socket that it closes")]
fn fewer_and_more_loops_with_a_socket_each_lose_nobody() {
    play(&[(8, "reuseport"), (2, "reuseport"), (8, "reuseport"), (1, "reuseport"), (4, "reuseport")]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx resets those who wait in the queue of a socket that it closes")]
fn fewer_and_more_loops_with_one_socket_lose_nobody() {
    play(&[(8, ""), (2, ""), (8, "")]);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx resets those who wait in the queue of a socket that it closes")]
fn sockets_of_their_own_come_and_go_and_lose_nobody() {
    play(&[(4, ""), (4, "reuseport"), (4, ""), (4, "reuseport"), (2, "")]);
}
