//! `h2 PROOF`: what is promised of HTTP/2. `streams`: a hundred streams of a connection of which one holds
//! its thread; `attacks`: cheap requests beside each attack, with what it costs both sides; `idle`: memory of
//! idle connections with TLS.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clearway_testkit::http2::{Frames, Settings};
use clearway_testkit::process::{cpu_time_of_threads, pss_bytes, rss_bytes};
use clearway_testkit::proofs::{ATTACKS, Attack, HeldStream, Hold};
use clearway_testkit::{Binary, Server, Setup};
use rustls::{ClientConnection, Stream};

use crate::args::Args;
use crate::handshakes::{PAIRS, cheap, client_config};
use crate::idle::{SETTLE, raise_descriptor_limit};
use crate::open_loop::ScheduleOutcome;
use crate::servers::{self, User, config_with, socket_address, total};
use crate::stats::Latencies;

const USAGE: &str = "h2 streams | attacks | idle";
/// What a stream that holds its thread may add to the others' 99th percentile, ms.
const HELD_MAX_MS: f64 = 3.0;
/// What an attack may add to that of cheap requests, ms.
const ATTACKED_MAX_MS: f64 = 5.0;
/// What an idle connection may take, KiB.
const IDLE_MAX_KIB: f64 = 8.0;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The frame that says that a connection ends.
const GO_AWAY: u8 = 7;
const FRAME_HEAD_BYTES: usize = 9;

pub(crate) fn command(mut args: Args) -> Result<(), String> {
    let words = args.words();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["streams"] => streams(args),
        ["attacks"] => attacks(args),
        ["idle"] => idle(args),
        _ => Err(USAGE.to_owned()),
    }
}

/// `h2 streams --streams 100 --rounds 100 --hold 200 --pause 0`.
fn streams(mut args: Args) -> Result<(), String> {
    let plan = HeldStream {
        streams: args.take("streams", 100)?,
        rounds: args.take("rounds", 100)?,
        hold: Hold::Not,
        time: Duration::from_millis(args.take("hold", 200)?),
        pause: Duration::from_millis(args.take("pause", 0)?),
    };
    args.finish()?;
    println!(
        "{} streams of a connection, begun at once, {} rounds: ms until each of the others is answered, \
         while one holds its thread for {:?} in a location where none has before",
        plan.streams, plan.rounds, plan.time
    );
    let (mut alone_ms, mut broken) = (f64::NAN, Vec::new());
    for (name, hold) in [("none holds", Hold::Not), ("one sleeps", Hold::Sleeps), ("one spins", Hold::Spins)]
    {
        let report = HeldStream { hold, ..plan }.play(&Binary::under_test());
        let slowest = slowest_rounds(&report.others, plan.streams);
        let others = Latencies::new(report.others);
        let p99_ms = others.quantile_ms(0.99);
        println!(
            "{name:<12} p50 {:>7.2}  p99 {p99_ms:>7.2}  max {:>7.2}  of {}, slowest rounds {slowest}",
            others.quantile_ms(0.5),
            others.max_ms(),
            others.count()
        );
        match hold {
            Hold::Not => alone_ms = p99_ms,
            Hold::Sleeps | Hold::Spins if p99_ms > alone_ms + HELD_MAX_MS => broken.push(name),
            Hold::Sleeps | Hold::Spins => {}
        }
        if report.wrong > 0 {
            broken.push("answers without a 200");
        }
    }
    verdict(&broken)
}

/// The slowest answers of the three slowest rounds, in ms, each with its number from 0.
fn slowest_rounds(others: &[Duration], streams: u32) -> String {
    let others_of_round = (streams as usize).saturating_sub(1).max(1);
    let rounds = others.chunks(others_of_round).map(|round| round.iter().max().copied().unwrap_or_default());
    let mut rounds: Vec<(Duration, usize)> =
        rounds.enumerate().map(|(nth, slowest)| (slowest, nth)).collect();
    rounds.sort_unstable_by(|a, b| b.cmp(a));
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    let texts = rounds.iter().take(3).map(|&(slowest, nth)| format!("{nth}: {:.2}", ms(slowest)));
    texts.collect::<Vec<_>>().join(", ")
}

fn verdict(broken: &[&str]) -> Result<(), String> {
    if broken.is_empty() { Ok(()) } else { Err(format!("not as promised: {}", broken.join(", "))) }
}

/// What an attack was.
#[derive(Default)]
struct Attacked {
    connections: u64,
    sent_bytes: u64,
    /// CPU of the attacker.
    cpu: Duration,
}

/// `h2 attacks --secs 4 --only TEXT`.
fn attacks(mut args: Args) -> Result<(), String> {
    let length = Duration::from_secs_f64(args.take("secs", 4.0)?);
    let only: String = args.take("only", String::new())?;
    args.finish()?;
    println!(
        "cheap requests (HTTP/1, 1,000/s) alone and beside one attacker that does what it can, on one loop\n\
         {:<28} | connections/s |   MB/s | CPU attacker  server \
         | p99 ms alone  beside    max | lost | MiB more",
        "attack"
    );
    let mut broken = Vec::new();
    for attack in ATTACKS.iter().filter(|attack| attack.0.contains(&only)) {
        if !row(attack, length).map_err(|e| format!("{}: {e}", attack.0))? {
            broken.push(attack.0);
        }
    }
    verdict(&broken)
}

/// Whether it is as it was promised.
fn row(attack: &Attack, length: Duration) -> io::Result<bool> {
    let locations = "location /slow { echo_sleep 5; echo slow; }\n\
                     location /body { echo_read_request_body; echo_request_body; }\n";
    let http = "http2 on; http2_max_concurrent_streams 64;\n";
    let server =
        servers::start(&Binary::under_test(), &config_with(1, "", http, locations), User::Same, Some("0"));
    let to = socket_address(&server);
    let alone = cheap(to, length)?;
    let (cpu_before, rss_before) = (total(&server, cpu_time_of_threads), total(&server, rss_bytes));
    let stop = AtomicBool::new(false);
    let (attacked, beside) = thread::scope(|scope| {
        let attacker = scope.spawn(|| flood(to, attack, &stop));
        let beside = cheap(to, length);
        stop.store(true, Ordering::Relaxed);
        (attacker.join().expect("the attacker does not panic"), beside)
    });
    let (attacked, beside) = (attacked?, beside?);
    let cpu = total(&server, cpu_time_of_threads).saturating_sub(cpu_before);
    let growth = total(&server, rss_bytes).saturating_sub(rss_before);
    let [p99_alone, p99_beside] = [&alone, &beside].map(|outcome| latencies(outcome).quantile_ms(0.99));
    let (seconds, percent) = (length.as_secs_f64(), 100.0 / length.as_secs_f64());
    println!(
        "{:<28} | {:>13.0} | {:>6.1} | {:>10.0} % {:>5.0} % | {p99_alone:>12.2} {p99_beside:>7.2} {:>6.1} | \
         {:>4} | {:.1}",
        attack.0,
        attacked.connections as f64 / seconds,
        attacked.sent_bytes as f64 / seconds / 1e6,
        attacked.cpu.as_secs_f64() * percent,
        cpu.as_secs_f64() * percent,
        latencies(&beside).max_ms(),
        beside.failed.len(),
        growth as f64 / f64::from(1 << 20),
    );
    Ok(p99_beside <= p99_alone + ATTACKED_MAX_MS && beside.failed.is_empty())
}

fn latencies(outcome: &ScheduleOutcome) -> Latencies {
    Latencies::new(outcome.answered.iter().map(|(_, latency)| *latency).collect())
}

/// Attacks until it is told to stop, with a new connection whenever the server has had enough of one. What is
/// sent is made once: making it is no cost of attackers.
fn flood(to: SocketAddr, (_, _, batch): &Attack, stop: &AtomicBool) -> io::Result<Attacked> {
    let mut batches: Vec<Vec<u8>> = Vec::new();
    let mut attacked = Attacked::default();
    let begun = thread_cpu()?;
    while !stop.load(Ordering::Relaxed) {
        let mut victim = Victim::open(to)?;
        attacked.connections += 1;
        let mut is_open = victim.send(&Frames::hello(Settings::default()), stop);
        for nth in 0.. {
            if !is_open || stop.load(Ordering::Relaxed) {
                break;
            }
            let at = nth as usize;
            if at == batches.len() {
                batches.push(batch(nth));
            }
            is_open = victim.send(&batches[at], stop);
        }
        attacked.sent_bytes += victim.sent_bytes;
    }
    attacked.cpu = thread_cpu()?.saturating_sub(begun);
    Ok(attacked)
}

/// A connection that is attacked.
struct Victim {
    socket: TcpStream,
    received: Vec<u8>,
    sent_bytes: u64,
}

impl Victim {
    fn open(to: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(to)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, received: Vec::new(), sent_bytes: 0 })
    }

    /// Sends as fast as the server takes it, and takes what comes. Whether the server goes on.
    fn send(&mut self, mut bytes: &[u8], stop: &AtomicBool) -> bool {
        while !bytes.is_empty() && !stop.load(Ordering::Relaxed) {
            match self.socket.write(bytes) {
                Ok(count) => {
                    self.sent_bytes += count as u64;
                    bytes = &bytes[count..];
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::sleep(Duration::from_micros(50));
                }
                Err(_) => return false,
            }
            if !self.receive() {
                return false;
            }
        }
        true
    }

    fn receive(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => self.received.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return false,
            }
        }
        let mut rest = &self.received[..];
        while let [a, b, c, kind, ..] = *rest {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if kind == GO_AWAY {
                return false;
            }
            let Some(behind) = rest.get(FRAME_HEAD_BYTES + length..) else { break };
            rest = behind;
        }
        self.received = rest.to_vec();
        true
    }
}

/// How long this thread has run.
fn thread_cpu() -> io::Result<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let first = text.split(' ').next().and_then(|number| number.parse().ok());
    first.map(Duration::from_nanos).ok_or_else(|| io::Error::other("schedstat without a number"))
}

/// `h2 idle [NAME=PATH …] --connections 10000`.
fn idle(mut args: Args) -> Result<(), String> {
    let count: usize = args.take("connections", 10_000)?;
    let mut named = args.list("servers", "");
    named.retain(|name| !name.is_empty());
    let servers = servers::named(&named)?;
    args.finish()?;
    raise_descriptor_limit().map_err(|e| format!("RLIMIT_NOFILE: {e}"))?;
    println!("{count} idle connections with TLS and HTTP/2: PSS in KiB for each, and of the server in MiB");
    let mut broken = Vec::new();
    for server in &servers {
        let failed = |e: io::Error| format!("{}: {e}", server.name);
        let running = start_with_tls(&server.binary);
        let open = |count: usize| (0..count).map(|_| answered(&running)).collect::<io::Result<Vec<_>>>();
        drop(open(64).map_err(failed)?);
        thread::sleep(SETTLE);
        let before = total(&running, pss_bytes);
        let connections = open(count).map_err(failed)?;
        thread::sleep(SETTLE);
        let after = total(&running, pss_bytes);
        let each = after.saturating_sub(before) as f64 / connections.len() as f64 / 1024.0;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!("{:<12} {each:>6.3}   {:.1} -> {:.1}", server.name, mib(before), mib(after));
        if server.binary.is_clearway() && each > IDLE_MAX_KIB {
            broken.push("the memory of an idle connection");
        }
    }
    verdict(&broken)
}

fn start_with_tls(binary: &Binary) -> Server {
    let (name, port, certificate, key) = PAIRS[0];
    let http = format!(
        "server {{ listen 127.0.0.1:%%{port}%% ssl http2 backlog=4096; ssl_certificate {name}.pem; \
         ssl_certificate_key {name}.key; return 200; }}\n"
    );
    Setup::new(binary.clone(), &config_with(1, "", &http, ""))
        .file(&format!("{name}.pem"), certificate)
        .file(&format!("{name}.key"), key)
        .start()
}

/// A connection that has had one answer and says nothing more. The client keeps its socket and nothing else.
fn answered(server: &Server) -> io::Result<TcpStream> {
    let mut config = client_config();
    Arc::make_mut(&mut config).alpn_protocols = vec![b"h2".to_vec()];
    let name = "www.example.com".try_into().expect("a name");
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut socket = TcpStream::connect(("127.0.0.1", server.port_of(PAIRS[0].1)))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = Stream::new(&mut tls, &mut socket);
    let mut bytes = Frames::hello(Settings::default());
    bytes.extend(Frames::get(1, "/"));
    stream.write_all(&bytes)?;
    let (mut frames, mut chunk) = (Frames::default(), [0; 4096]);
    while frames.answers.get(&1).is_none_or(|answer| answer.end.is_none()) {
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => frames.receive(&chunk[..count]),
        }
    }
    Ok(socket)
}
