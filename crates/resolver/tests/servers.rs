//! A resolver asks name servers on real sockets.
#![expect(clippy::disallowed_methods, reason = "name servers of a test have threads")]
#![expect(clippy::unwrap_used, reason = "tests")]

use std::future::Future;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use clearway_base::log::{Discard, Level, Record, Sink};
use clearway_resolver::{Answer, Config, Failure, Families, Resolver};
use clearway_runtime::{Config as RuntimeConfig, LoopRef, Runtime, Tag};
use clearway_testkit::expect_soon;

/// How long anything may take before a test has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn start(loops: usize) -> Runtime {
    let config = RuntimeConfig { loops, ..RuntimeConfig::default() };
    Runtime::start(&config).unwrap()
}

fn run<R: Send + 'static>(home: LoopRef, future: impl Future<Output = R> + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    home.spawn(Tag::NONE, async move { sender.send(future.await).unwrap() });
    receiver.recv_timeout(PATIENCE).unwrap()
}

#[derive(Default)]
struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Error
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(record.message.to_string());
    }
}

/// A name server whose answers `reply` makes of queries, and how often it was asked.
struct NameServer {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl NameServer {
    /// By UDP, and by TCP at the same port.
    fn start(reply: impl Fn(&[u8], Transport) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let (udp, tcp) = sockets();
        let (address, asked, reply) =
            (udp.local_addr().unwrap(), Arc::<AtomicUsize>::default(), Arc::new(reply));
        let (count, answer) = (Arc::clone(&asked), Arc::clone(&reply));
        std::thread::spawn(move || {
            let mut buf = [0; 512];
            while let Ok((len, from)) = udp.recv_from(&mut buf) {
                count.fetch_add(1, Ordering::Relaxed);
                if let Some(message) = answer(&buf[..len], Transport::Udp) {
                    udp.send_to(&message, from).unwrap();
                }
            }
        });
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = tcp.accept() {
                let mut len = [0; 2];
                while stream.read_exact(&mut len).is_ok() {
                    let mut query = vec![0; u16::from_be_bytes(len).into()];
                    stream.read_exact(&mut query).unwrap();
                    if let Some(message) = reply(&query, Transport::Tcp) {
                        let len = (message.len() as u16).to_be_bytes();
                        // In pieces, as they may come.
                        let whole = [&len[..], &message].concat();
                        for piece in whole.chunks(7) {
                            stream.write_all(piece).unwrap();
                            stream.flush().unwrap();
                        }
                    }
                }
            }
        });
        Self { address, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

/// Two of the same port.
fn sockets() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()) {
            return (udp, tcp);
        }
    }
}

/// The labels of a question, in lower case.
fn name_of(query: &[u8]) -> String {
    let (mut at, mut labels) = (12, Vec::new());
    while query[at] > 0 {
        let end = at + 1 + usize::from(query[at]);
        labels.push(String::from_utf8_lossy(&query[at + 1..end]).to_lowercase());
        at = end;
    }
    labels.join(".")
}

fn kind_of(query: &[u8]) -> u8 {
    query[query.len() - 3]
}

const OK: u16 = 0x8180;
const CUT: u16 = 0x8380;
const NO_SUCH_NAME: u16 = 0x8183;

fn respond(query: &[u8], flags: u16, ttl: u8, records: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let mut message = query.to_vec();
    message[2..4].copy_from_slice(&flags.to_be_bytes());
    message[7] = records.len() as u8;
    for (kind, data) in records {
        message.extend([0xc0, 12, 0, *kind, 0, 1, 0, 0, 0, ttl, 0, data.len() as u8]);
        message.extend(data);
    }
    message
}

fn local(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

fn only_v4(servers: &[&NameServer]) -> Config {
    let servers = servers.iter().map(|server| server.address).collect();
    Config { families: Families::V4, ..Config::new(servers) }
}

fn resolve(resolver: &Resolver, home: LoopRef, name: &str) -> Result<Answer, Failure> {
    run(home, resolver.resolve(home, name.as_bytes(), PATIENCE))
}

#[test]
fn names_become_addresses_on_every_loop() {
    let runtime = start(2);
    let server = NameServer::start(|query, _| {
        let records: &[_] = match (name_of(query).as_str(), kind_of(query)) {
            ("www.example.com", 1) => &[(1, vec![127, 0, 0, 1]), (1, vec![127, 0, 0, 2])],
            ("www.example.com", 28) => &[(28, [&[0; 15][..], &[1]].concat())],
            _ => return Some(respond(query, NO_SUCH_NAME, 0, &[])),
        };
        Some(respond(query, OK, 60, records))
    });
    let resolver = Resolver::start(&Config::new(vec![server.address]), runtime.at(1), Arc::new(Discard));
    let expected = [local(1), local(2), "::1".parse().unwrap()];
    for (home, name) in [(0, "www.example.com"), (1, "WWW.Example.com."), (0, "www.example.com.")] {
        let answer = resolve(&resolver, runtime.at(home), name).unwrap();
        assert_eq!(*answer.addresses, expected, "{name}");
    }
    assert_eq!(server.asked(), 2, "once for either family");
    assert_eq!(*resolver.find(runtime.at(0), b"WWW.example.com").unwrap().addresses, expected);
    assert_eq!(resolve(&resolver, runtime.at(0), "no.such"), Err(Failure::Code(3)));
    assert_eq!(
        *resolve(&resolver, runtime.at(0), "192.0.2.1").unwrap().addresses,
        ["192.0.2.1".parse::<IpAddr>().unwrap()]
    );
    assert_eq!(
        *resolve(&resolver, runtime.at(0), "::1").unwrap().addresses,
        ["::1".parse::<IpAddr>().unwrap()]
    );
}

#[test]
fn a_server_that_is_not_there_costs_no_time() {
    let runtime = start(1);
    let server = NameServer::start(|query, _| Some(respond(query, OK, 60, &[(1, vec![127, 0, 0, 9])])));
    let lines = Arc::new(Lines::default());
    // Nobody listens there.
    let (udp, _) = sockets();
    let nobody = udp.local_addr().unwrap();
    drop(udp);
    let config = Config { servers: vec![nobody, server.address], ..only_v4(&[&server]) };
    let resolver = Resolver::start(&config, runtime.at(0), Arc::clone(&lines) as Arc<dyn Sink>);
    let begun = Instant::now();
    for number in 0..4 {
        let answer = resolve(&resolver, runtime.at(0), &format!("n{number}.example")).unwrap();
        assert_eq!(*answer.addresses, [local(9)]);
    }
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let expected = format!("failed (111: Connection refused) while resolving, resolver: {nobody}");
    expect_soon("it is told of", || lines.0.lock().unwrap().iter().any(|line| line.ends_with(&expected)));
}

#[test]
fn a_silent_server_is_followed_by_the_next() {
    let runtime = start(1);
    let silent = NameServer::start(|_, _| None);
    let server = NameServer::start(|query, _| Some(respond(query, OK, 60, &[(1, vec![127, 0, 0, 9])])));
    let resolver = Resolver::start(&only_v4(&[&silent, &server]), runtime.at(0), Arc::new(Discard));
    let begun = Instant::now();
    assert_eq!(*resolve(&resolver, runtime.at(0), "a.example").unwrap().addresses, [local(9)]);
    assert!(begun.elapsed() >= Duration::from_millis(4900), "{:?}", begun.elapsed());
    assert_eq!((silent.asked(), server.asked()), (1, 1));
    // A task that waits less long is told so.
    let resolver = Resolver::start(&only_v4(&[&silent]), runtime.at(0), Arc::new(Discard));
    let (home, limit) = (runtime.at(0), Duration::from_millis(50));
    assert_eq!(run(home, resolver.resolve(home, b"a.example", limit)), Err(Failure::TimedOut));
}

#[test]
fn what_is_too_long_comes_by_tcp() {
    let runtime = start(1);
    let server = NameServer::start(|query, transport| {
        let many: Vec<_> = (0..200).map(|last| (1, vec![127, 0, 0, last])).collect();
        Some(match transport {
            Transport::Udp => respond(query, CUT, 60, &[]),
            Transport::Tcp => respond(query, OK, 60, &many),
        })
    });
    let resolver = Resolver::start(&only_v4(&[&server]), runtime.at(0), Arc::new(Discard));
    for name in ["a.example", "b.example"] {
        let answer = resolve(&resolver, runtime.at(0), name).unwrap();
        assert_eq!(answer.addresses.len(), 200);
        assert_eq!(answer.addresses[199], local(199));
    }
}

#[test]
fn services_have_hosts_with_addresses() {
    let runtime = start(1);
    let server = NameServer::start(|query, _| {
        let target = |priority: u8, name: &str| {
            let labels = name.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
            (33, [0, priority, 0, 3, 0, 80].into_iter().chain(labels).chain([0]).collect())
        };
        let records: Vec<(u8, Vec<u8>)> = match (name_of(query).as_str(), kind_of(query)) {
            ("_http._tcp.example.com", 33) => vec![target(5, "far.example"), target(1, "near.example")],
            ("near.example", 1) => vec![(1, vec![127, 0, 0, 1])],
            _ => return Some(respond(query, NO_SUCH_NAME, 0, &[])),
        };
        Some(respond(query, OK, 60, &records))
    });
    let resolver = Arc::new(Resolver::start(&only_v4(&[&server]), runtime.at(0), Arc::new(Discard)));
    for service in ["http", "_http._tcp"] {
        let (home, asking) = (runtime.at(0), Arc::clone(&resolver));
        let service = service.to_owned();
        let hosts = run(home, async move {
            asking.resolve_service(home, service.as_bytes(), b"example.com", PATIENCE).await
        });
        let hosts = hosts.unwrap().hosts;
        assert_eq!(
            hosts.iter().map(|host| (host.priority, host.weight, host.port)).collect::<Vec<_>>(),
            [(1, 3, 80), (5, 3, 80)]
        );
        assert_eq!(*hosts[0].addresses.clone().unwrap().addresses, [local(1)]);
        assert_eq!(hosts[1].addresses, Err(Failure::Code(3)));
    }
}

#[test]
fn many_names_at_once_from_changing_ports() {
    let runtime = start(2);
    let ports = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (udp.local_addr().unwrap(), Arc::clone(&ports));
    std::thread::spawn(move || {
        let mut buf = [0; 512];
        while let Ok((len, from)) = udp.recv_from(&mut buf) {
            seen.lock().unwrap().insert(from.port());
            let number: u8 =
                name_of(&buf[..len])[1..].split('.').next().unwrap().parse::<u32>().unwrap() as u8;
            udp.send_to(&respond(&buf[..len], OK, 60, &[(1, vec![127, 0, 0, number])]), from).unwrap();
        }
    });
    let config = Config { families: Families::V4, ..Config::new(vec![address]) };
    let resolver = Arc::new(Resolver::start(&config, runtime.at(0), Arc::new(Discard)));
    let (sender, receiver) = mpsc::channel();
    for task in 0..32_u32 {
        let (home, resolver, sender) = (runtime.at(task as usize % 2), Arc::clone(&resolver), sender.clone());
        home.spawn(Tag::NONE, async move {
            for number in (task..6400).step_by(32) {
                let name = format!("n{number}.example");
                let answer = resolver.resolve(home, name.as_bytes(), PATIENCE).await;
                sender.send((number, answer)).unwrap();
            }
        });
    }
    drop(sender);
    let mut count = 0;
    while let Ok((number, answer)) = receiver.recv_timeout(PATIENCE) {
        assert_eq!(*answer.unwrap().addresses, [local(number as u8)], "{number}");
        count += 1;
    }
    assert_eq!(count, 6400, "each is answered");
    assert!(ports.lock().unwrap().len() > 4, "ports are given up");
}

#[test]
fn a_resolver_that_is_dropped_ends() {
    let runtime = start(1);
    let server = NameServer::start(|query, _| Some(respond(query, OK, 60, &[(1, vec![127, 0, 0, 9])])));
    let lines: Arc<dyn Sink> = Arc::new(Lines::default());
    for asks in [false, true] {
        let resolver = Resolver::start(&only_v4(&[&server]), runtime.at(0), Arc::clone(&lines));
        if asks {
            resolve(&resolver, runtime.at(0), "a.example").unwrap();
        }
        drop(resolver);
    }
    expect_soon("its task has let go of everything", || Arc::strong_count(&lines) == 1);
}

/// A forger is faster than the name server, again and again.
#[test]
fn lies_are_told_of_and_not_believed() {
    let runtime = start(1);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = udp.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buf = [0; 512];
        while let Ok((len, from)) = udp.recv_from(&mut buf) {
            let query = &buf[..len];
            let right = respond(query, OK, 60, &[(1, vec![127, 0, 0, 1])]);
            let edited = |edit: &dyn Fn(&mut Vec<u8>)| {
                let mut message = respond(query, OK, 60, &[(1, vec![127, 0, 0, 66])]);
                edit(&mut message);
                message
            };
            let lies = [
                edited(&|message| message[0] ^= 1),
                edited(&|message| message[13] ^= 1),
                edited(&|message| message[len - 3] = 28),
                edited(&|message| message[7] = 200),
                edited(&|message| message.truncate(message.len() - 1)),
                edited(&|message| message[len + 11] = 255),
                edited(&|message| message[12] = 63),
                vec![0xff; 512],
                Vec::new(),
                query.to_vec(),
            ];
            for message in lies.iter().chain([&right]) {
                udp.send_to(message, from).unwrap();
            }
        }
    });
    let lines = Arc::new(Lines::default());
    let config = Config { families: Families::V4, ..Config::new(vec![address]) };
    let resolver = Resolver::start(&config, runtime.at(0), Arc::clone(&lines) as Arc<dyn Sink>);
    for name in ["a.example", "b.example"] {
        assert_eq!(*resolve(&resolver, runtime.at(0), name).unwrap().addresses, [local(1)]);
    }
    let lines = lines.0.lock().unwrap();
    for said in
        ["wrong ident", "unexpected DNS response for", "short DNS response", "invalid UDP DNS response"]
    {
        assert!(lines.iter().any(|line| line.contains(said)), "{said} is not in {lines:?}");
    }
}

/// An answer that says that it does not hold is believed to the end of the second.
#[test]
fn what_does_not_hold_is_asked_for_again() {
    let runtime = start(1);
    let count = Arc::<AtomicUsize>::default();
    let asked = Arc::clone(&count);
    let server = NameServer::start(move |query, _| {
        let last = asked.fetch_add(1, Ordering::SeqCst) as u8 + 1;
        Some(respond(query, OK, 0, &[(1, vec![127, 0, 0, last])]))
    });
    let resolver = Resolver::start(&only_v4(&[&server]), runtime.at(0), Arc::new(Discard));
    let begun = Instant::now();
    assert_eq!(*resolve(&resolver, runtime.at(0), "a.example").unwrap().addresses, [local(1)]);
    expect_soon("another answer", || {
        *resolve(&resolver, runtime.at(0), "a.example").unwrap().addresses == [local(2)]
    });
    let seconds = begun.elapsed().as_secs() as usize + 2;
    assert!(server.asked() <= seconds, "{} in {seconds} s", server.asked());
}

/// A name server whose answer is too long and whose TCP port is of no use: the next one is asked.
#[test]
fn a_stream_that_hangs_or_is_refused_is_left() {
    let runtime = start(1);
    let hangs = NameServer::start(|query, transport| match transport {
        Transport::Udp => Some(respond(query, CUT, 60, &[])),
        Transport::Tcp => None,
    });
    let refuses = {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = udp.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buf = [0; 512];
            while let Ok((len, from)) = udp.recv_from(&mut buf) {
                udp.send_to(&respond(&buf[..len], CUT, 60, &[]), from).unwrap();
            }
        });
        address
    };
    let works = NameServer::start(|query, transport| match transport {
        Transport::Udp => Some(respond(query, CUT, 60, &[])),
        Transport::Tcp => Some(respond(query, OK, 60, &[(1, vec![127, 0, 0, 1])])),
    });
    for (first, limit) in [(hangs.address, Duration::from_secs(20)), (refuses, Duration::from_secs(4))] {
        let config = Config { servers: vec![first, works.address], ..only_v4(&[&works]) };
        let resolver = Resolver::start(&config, runtime.at(0), Arc::new(Discard));
        let begun = Instant::now();
        assert_eq!(*resolve(&resolver, runtime.at(0), "a.example").unwrap().addresses, [local(1)]);
        assert!(begun.elapsed() < limit, "{:?}", begun.elapsed());
    }
}

/// A name that leads to itself by way of another one, and one that leads on and on.
#[test]
fn aliases_without_an_end_are_given_up() {
    let runtime = start(1);
    let server = NameServer::start(|query, _| {
        let name = name_of(query);
        let next = match name.as_str() {
            "a.example" => "b.example".to_owned(),
            "b.example" => "a.example".to_owned(),
            _ => format!("n{}.example", name[1..].split('.').next()?.parse::<u32>().ok()? + 1),
        };
        let labels = next.split('.').flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat());
        Some(respond(query, OK, 60, &[(5, labels.chain([0]).collect())]))
    });
    let resolver = Resolver::start(&only_v4(&[&server]), runtime.at(0), Arc::new(Discard));
    for name in ["a.example", "n1.example"] {
        assert_eq!(resolve(&resolver, runtime.at(0), name), Err(Failure::Code(3)), "{name}");
    }
    // On a busy machine a question is asked again before its answer is read.
    assert!(server.asked() <= 2 * (2 + 52), "{}", server.asked());
}
