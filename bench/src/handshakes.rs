//! `handshakes`: full handshakes of TLS, more of them each second than the server can make, and beside them
//! cheap requests and handshakes that take up a session. Clients of the flood send a hello that was made once
//! and leave when the server has answered: the server has done all its work by then, and the client none.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::{Binary, Server, Setup};
use rustix::process::setpriority_process;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, Stream};

use crate::args::Args;
use crate::closed::Next;
use crate::connection::request;
use crate::open_loop::{self, Requests, Schedule};
use crate::poller::Poller;
use crate::servers::{self, Named, config_with};
use crate::stats::Latencies;

const CHEAP_CONNECTIONS: usize = 32;
const CHEAP_PER_SECOND: f64 = 1000.0;
/// Between two handshakes that take up a session.
const RESUMED_EVERY: Duration = Duration::from_millis(20);
/// Handshakes at once while it is found out how many a server can make.
const AT_ONCE: usize = 64;
const CAPACITY_TIME: Duration = Duration::from_secs(2);
/// Clients that wait at once at most; beyond that they count as failed.
const WAITING_MAX: usize = 15_000;
/// Answers that come later are lost.
const GRACE: Duration = Duration::from_secs(3);
/// The bars: cheap requests at p99 above those alone, and later than 10 ms; resumptions at p99; what is
/// answered of what is when all handshakes are the loops'.
const BESIDE_MS: f64 = 3.0;
const LATE_PERCENT: f64 = 0.1;
const RESUMED_MS: f64 = 20.0;
const RATIO: f64 = 0.93;
/// What a record with a message of a handshake begins with (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;
/// A flood of which less was begun than this part says nothing.
const BEGUN: f64 = 0.95;
/// What measures must not be what is late.
const CLIENT_NICE: i32 = -10;
/// What floods takes no processor from the server that it would not have given in turn: it competes as it
/// did while it was found out how many handshakes a server can make.
const FLOOD_NICE: i32 = 0;
/// Says to a build with the `testing` feature that it is to make all handshakes on its loops.
const INLINE: &str = "CLEARWAY_TESTING_INLINE_HANDSHAKES";

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../crates/tls/tests/data/", $name))
    };
}

/// Certificates by their kind: name, port, and the two files.
pub(crate) const PAIRS: [(&str, &str, &[u8], &[u8]); 3] = [
    ("ecdsa", "PORT2", data!("ecdsa.pem"), data!("ecdsa.key")),
    ("rsa-2048", "PORT3", data!("rsa.pem"), data!("rsa.key")),
    ("rsa-4096", "PORT4", data!("rsa-4096.pem"), data!("rsa-4096.key")),
];

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let kinds = args.list("kinds", "ecdsa,rsa-2048,rsa-4096,mixed");
    let loops = args.list("loops", "1,2");
    let length = Duration::from_secs_f64(args.take("secs", 5.0)?);
    let over: f64 = args.take("over", 500.0)?;
    let with_inline: bool = args.take("inline", true)?;
    let subjects = servers::named(&args.words())?;
    args.finish()?;
    println!("floods of {over}/s above what the server can do, {length:?} each; times in milliseconds");
    println!(
        "{:<9} {:<5} {:<16} | {:>9} | {:>9} {:>9} {:>6} | {:>15} | {:>22} {:>6} | {:>15} | lost",
        "kind",
        "loops",
        "server",
        "capacity",
        "flood/s",
        "answered",
        "ratio",
        "cheap alone p99",
        "beside p50  p99    max",
        "late %",
        "resumed p50 p99"
    );
    let mut broken = Vec::new();
    for loops in &loops {
        let loops = loops.parse().map_err(|_| format!("--loops {loops}: not understood"))?;
        for kind in &kinds {
            let mut inline_rate = None;
            for (subject, way) in subjects.iter().flat_map(|subject| ways(subject, with_inline)) {
                let plan = Plan { kind, loops, length, over, way };
                let row = measure(&subject.binary, &plan).map_err(|e| format!("{}: {e}", subject.name))?;
                if way == Way::Inline {
                    inline_rate = Some(row.per_second);
                }
                let name = if way == Way::Inline { "all inline" } else { subject.name.as_str() };
                let ratio = inline_rate.filter(|_| subject.binary.is_clearway());
                println!("{kind:<9} {loops:<5} {name:<16} | {}", row.line(ratio));
                if way == Way::AsConfigured && subject.binary.is_clearway() {
                    let of_row = |what| format!("{kind} with {loops}: {what}");
                    broken.extend(row.broken(ratio).into_iter().map(of_row));
                }
            }
        }
    }
    if broken.is_empty() { Ok(()) } else { Err(format!("above the bar: {}", broken.join(", "))) }
}

/// Where handshakes are computed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    AsConfigured,
    /// On loops alone.
    Inline,
}

fn ways(subject: &Named, with_inline: bool) -> Vec<(&Named, Way)> {
    let inline = with_inline && subject.binary.is_clearway();
    let first = inline.then_some((subject, Way::Inline));
    first.into_iter().chain([(subject, Way::AsConfigured)]).collect()
}

struct Plan<'a> {
    kind: &'a str,
    loops: usize,
    length: Duration,
    /// Handshakes a second above capacity.
    over: f64,
    way: Way,
}

struct Row {
    capacity: f64,
    /// Handshakes that clients were to begin, and what they came to.
    wanted_per_second: f64,
    begun_per_second: f64,
    per_second: f64,
    alone: Latencies,
    beside: Latencies,
    due: usize,
    resumed: Latencies,
    lost: usize,
}

impl Row {
    /// Which bars it misses. What was not seen at all is no better than what was late.
    fn broken(&self, inline: Option<f64>) -> Vec<&'static str> {
        let beside_ms = self.beside.quantile_ms(0.99) - self.alone.quantile_ms(0.99);
        let bars = [
            (beside_ms <= BESIDE_MS, "cheap requests"),
            (self.beside.late_percent(self.due) <= LATE_PERCENT, "late ones"),
            (self.resumed.quantile_ms(0.99) <= RESUMED_MS, "resumptions"),
            (inline.is_none_or(|inline| self.per_second >= RATIO * inline), "throughput"),
            (self.begun_per_second >= BEGUN * self.wanted_per_second, "the client"),
        ];
        bars.into_iter().filter(|(is_kept, _)| !is_kept).map(|(_, what)| what).collect()
    }

    fn line(&self, inline: Option<f64>) -> String {
        let ratio =
            inline.map_or_else(|| "-".to_owned(), |inline| format!("{:.2}", self.per_second / inline));
        format!(
            "{:>9.0} | {:>9.0} {:>9.0} {ratio:>6} | {:>15.2} | {:>8.2} {:>6.2} {:>6.1} {:>6.2} | {:>7.2} \
             {:>7.2} | {}",
            self.capacity,
            self.begun_per_second,
            self.per_second,
            self.alone.quantile_ms(0.99),
            self.beside.quantile_ms(0.5),
            self.beside.quantile_ms(0.99),
            self.beside.max_ms(),
            self.beside.late_percent(self.due),
            self.resumed.quantile_ms(0.5),
            self.resumed.quantile_ms(0.99),
            self.lost,
        )
    }
}

fn start(binary: &Binary, plan: &Plan<'_>) -> Server {
    let server = |(name, port, _, _): &(&str, &str, &[u8], &[u8])| {
        format!(
            "server {{ listen 127.0.0.1:%%{port}%% ssl backlog=4096; ssl_protocols TLSv1.2 TLSv1.3; \
             ssl_certificate {name}.pem; \
             ssl_certificate_key {name}.key; return 200; }}\n"
        )
    };
    let http: String = PAIRS.iter().map(server).collect();
    let main = if plan.way == Way::Inline { format!("env {INLINE}=1;") } else { String::new() };
    let mut setup = Setup::new(binary.clone(), &config_with(plan.loops, &main, &http, ""));
    for (name, _, certificate, key) in PAIRS {
        setup = setup.file(&format!("{name}.pem"), certificate).file(&format!("{name}.key"), key);
    }
    if plan.loops == 1 {
        setup = setup.through(&["taskset", "-c", "0"]);
    }
    setup.start()
}

fn measure(binary: &Binary, plan: &Plan<'_>) -> Result<Row, String> {
    let server = start(binary, plan);
    let local = |port: &str| SocketAddr::from(([127, 0, 0, 1], server.port_of(port)));
    let meant = PAIRS.iter().filter(|pair| plan.kind == "mixed" || pair.0 == plan.kind);
    let to: Vec<SocketAddr> = meant.map(|pair| local(pair.1)).collect();
    if to.is_empty() {
        return Err(format!("{}: no such kind", plan.kind));
    }
    let failed = |e: std::io::Error| e.to_string();
    let capacity = flood(&to, Pace::AtOnce(AT_ONCE), CAPACITY_TIME).map_err(failed)?;
    let capacity = capacity.answered as f64 / CAPACITY_TIME.as_secs_f64();
    let alone = cheap(local("PORT"), plan.length.min(CAPACITY_TIME)).map_err(failed)?;
    let stop = AtomicBool::new(false);
    let pace = Pace::PerSecond(capacity + plan.over);
    let (flooded, beside, resumed) = thread::scope(|scope| {
        let flood = scope.spawn(|| {
            // Of a thread, on Linux. To stand back is always permitted.
            let _ = setpriority_process(None, FLOOD_NICE);
            flood(&to, pace, plan.length)
        });
        let resumed = scope.spawn(|| resume(local(PAIRS[0].1), &stop));
        let beside = cheap(local("PORT"), plan.length);
        stop.store(true, Ordering::Relaxed);
        let joined = "the client does not panic";
        (flood.join().expect(joined), beside, resumed.join().expect(joined))
    });
    let (flooded, beside) = (flooded.map_err(failed)?, beside.map_err(failed)?);
    let latencies = |outcome: &open_loop::ScheduleOutcome| {
        Latencies::new(outcome.answered.iter().map(|(_, latency)| *latency).collect())
    };
    let due = beside.answered.len() + beside.failed.len();
    Ok(Row {
        capacity,
        wanted_per_second: capacity + plan.over,
        begun_per_second: flooded.begun as f64 / plan.length.as_secs_f64(),
        per_second: flooded.answered as f64 / plan.length.as_secs_f64(),
        alone: latencies(&alone),
        beside: latencies(&beside),
        due,
        resumed: resumed?,
        lost: beside.failed.len(),
    })
}

pub(crate) fn cheap(to: SocketAddr, duration: Duration) -> std::io::Result<open_loop::ScheduleOutcome> {
    let schedule = Schedule {
        to,
        requests: Requests::Same(request("/cheap", "keep-alive")),
        connections: CHEAP_CONNECTIONS,
        requests_per_second: CHEAP_PER_SECOND,
        duration,
        grace: GRACE,
        next: Next::SameConnection,
    };
    // Without the permission the client stays as it is, and the row shows what it shows.
    let _ = setpriority_process(None, CLIENT_NICE);
    open_loop::run(&schedule, |_| ())
}

/// How handshakes follow each other.
#[derive(Clone, Copy)]
enum Pace {
    AtOnce(usize),
    PerSecond(f64),
}

#[derive(Default)]
struct Flooded {
    answered: u64,
    begun: u64,
}

/// Begins handshakes, at these addresses in turn, and counts those that were answered in time.
fn flood(to: &[SocketAddr], pace: Pace, length: Duration) -> std::io::Result<Flooded> {
    let hello = hello();
    let mut poller = Poller::new()?;
    let (mut clients, mut free): (Vec<Option<TcpStream>>, Vec<usize>) = (Vec::new(), Vec::new());
    let (mut flooded, start) = (Flooded::default(), Instant::now());
    while start.elapsed() < length {
        let wanted = match pace {
            Pace::AtOnce(count) => count.saturating_sub(clients.len() - free.len()),
            Pace::PerSecond(rate) => {
                let due = (start.elapsed().as_secs_f64() * rate) as u64;
                let waiting = clients.len() - free.len();
                usize::try_from(due.saturating_sub(flooded.begun)).unwrap_or(0).min(WAITING_MAX - waiting)
            }
        };
        for _ in 0..wanted.min(AT_ONCE) {
            let address = to[usize::try_from(flooded.begun).unwrap_or(0) % to.len()];
            flooded.begun += 1;
            let mut client = TcpStream::connect(address)?;
            client.set_nonblocking(true)?;
            client.write_all(&hello)?;
            let index = free.pop().unwrap_or(clients.len());
            poller.add(&client, index)?;
            if index == clients.len() { clients.push(Some(client)) } else { clients[index] = Some(client) }
        }
        let ready: Vec<usize> = poller.wait(Duration::from_micros(500))?.collect();
        for index in ready {
            let Some(client) = clients[index].as_mut() else { continue };
            let mut answer = [0; 8192];
            match client.read(&mut answer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                // An alert costs its server nothing, so it is no answer.
                Ok(1..) if answer[0] == HANDSHAKE => flooded.answered += 1,
                _ => {}
            }
            clients[index] = None;
            free.push(index);
        }
    }
    Ok(flooded)
}

/// A ClientHello of TLS 1.3 with a key of X25519 (RFC 8446 §4.1.2): any 32 bytes are one.
fn hello() -> Vec<u8> {
    let extensions: [(u16, &[u8]); 4] = [
        // Groups: X25519.
        (10, &[0, 2, 0, 29]),
        // Signatures: ecdsa_secp256r1_sha256, rsa_pss_rsae_sha256.
        (13, &[0, 4, 4, 3, 8, 4]),
        // Versions: TLS 1.3.
        (43, &[2, 3, 4]),
        (51, &[&[0, 36, 0, 29, 0, 32][..], &[9; 32]].concat()),
    ];
    let extensions: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, content)| [&kind.to_be_bytes()[..], &prefixed(content)].concat())
        .collect();
    // TLS_AES_128_GCM_SHA256, no compression.
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0x13, 1], &[1, 0], &prefixed(&extensions)].concat();
    let message = [&[1, 0][..], &prefixed(&body)].concat();
    [&[22, 3, 1][..], &prefixed(&message)].concat()
}

/// Bytes behind their number, which has two bytes.
fn prefixed(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("it is short");
    [&length.to_be_bytes()[..], content].concat()
}

/// A server with one loop for [`answered`].
pub(crate) fn start_one(binary: &Binary) -> Server {
    let plan = Plan { kind: "", loops: 1, length: Duration::ZERO, over: 0.0, way: Way::AsConfigured };
    start(binary, &plan)
}

/// A connection with TLS that has had one answer and says nothing more.
pub(crate) fn answered(server: &Server) -> std::io::Result<TcpStream> {
    let name = "www.example.com".try_into().expect("a name");
    let mut tls = ClientConnection::new(client_config(), name).map_err(std::io::Error::other)?;
    let mut socket = TcpStream::connect(("127.0.0.1", server.port_of(PAIRS[0].1)))?;
    socket.set_read_timeout(Some(GRACE))?;
    let mut stream = Stream::new(&mut tls, &mut socket);
    stream.write_all(&request("/", "keep-alive"))?;
    let count = stream.read(&mut [0; 4096])?;
    if count == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(socket) }
}

pub(crate) fn client_config() -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(data!("ca.pem")).expect("it is one");
    roots.add(authority).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("there are some");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Takes up a session again and again; the times from the connection to the answer of a request.
fn resume(to: SocketAddr, stop: &AtomicBool) -> Result<Latencies, String> {
    let config = client_config();
    let mut times = Vec::new();
    let mut is_first = true;
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let name = "www.example.com".try_into().expect("a name");
        let mut tls = ClientConnection::new(Arc::clone(&config), name).map_err(|e| e.to_string())?;
        let answered = TcpStream::connect(to).and_then(|mut socket| {
            socket.set_read_timeout(Some(GRACE))?;
            let mut stream = Stream::new(&mut tls, &mut socket);
            stream.write_all(&request("/", "close"))?;
            stream.read_to_end(&mut Vec::new())
        });
        let is_resumed = tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        // The first one has nothing to take up; one that fails took as long as that.
        if !is_first && (is_resumed || answered.is_err()) {
            times.push(begun.elapsed());
        }
        is_first = false;
        thread::sleep(RESUMED_EVERY);
    }
    Ok(Latencies::new(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_judged() {
        let all_ms = |ms| Latencies::new(vec![Duration::from_millis(ms); 10]);
        let row = |beside_ms, resumed_ms| Row {
            capacity: 100.0,
            wanted_per_second: 600.0,
            begun_per_second: 570.0,
            per_second: 93.0,
            alone: all_ms(1),
            beside: all_ms(beside_ms),
            due: 10,
            resumed: all_ms(resumed_ms),
            lost: 0,
        };
        assert!(row(4, 20).broken(Some(100.0)).is_empty());
        assert_eq!(row(5, 21).broken(Some(101.0)), ["cheap requests", "resumptions", "throughput"]);
        assert_eq!(row(11, 0).broken(None), ["cheap requests", "late ones"]);
        let idle = Row { begun_per_second: 569.0, ..row(4, 20) };
        assert_eq!(idle.broken(None), ["the client"]);
        let unseen = Row { resumed: Latencies::default(), ..row(4, 0) };
        assert_eq!(unseen.broken(None), ["resumptions"]);
    }

    #[test]
    fn the_hello_has_its_lengths() {
        let hello = hello();
        assert_eq!(hello.len(), 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]])));
        assert_eq!(hello.len(), 9 + usize::from(u16::from_be_bytes([hello[7], hello[8]])));
    }
}
