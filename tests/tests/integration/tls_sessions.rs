//! Sessions that are taken up again, and those that are not: data that comes with the handshake, sessions of
//! other servers, keys that change under load, workers that are killed. The clients are rustls's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::http2::{Frames, Settings};
use clearway_testkit::server::send_signal;
use clearway_testkit::{Binary, Connection, Server, Setup, expect_soon, wait_until};
use rustix::process::Signal;
use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, NamedGroup, StreamOwned, SupportedProtocolVersion};

use crate::deployed;
use crate::tls::{TLS12, TLS13, Trusting, ask, body, client, config, connect, socket};

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

fn with_files(setup: Setup) -> Setup {
    let setup = setup.file("example.pem", data!("ecdsa.pem")).file("example.key", data!("ecdsa.key"));
    setup.file("other.pem", data!("rsa.pem")).file("other.key", data!("rsa.key"))
}

fn start(http: &str) -> Server {
    with_files(deployed("events { }", http)).start()
}

/// Whether a session was taken up for a request that was answered, as the server says.
fn is_resumed(server: &Server, config: &Arc<ClientConfig>) -> bool {
    let answer = ask(&mut connect(server, config), "/");
    match body(&answer) {
        b"resumed" => true,
        b"full" => false,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

const KINDS: &str = "map $ssl_session_reused $kind { r resumed; . full; }";

const EARLY: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate example.pem;
        ssl_certificate_key example.key;
        ssl_early_data on;
        location / { return 200 'early [$ssl_early_data]'; }
        location /once { if ($ssl_early_data) { return 425; } return 200 once; }
        location /passed {
            proxy_pass http://127.0.0.1:%%PORT2%%;
            proxy_set_header Early-Data $ssl_early_data;
        }
    }
    server {
        listen 127.0.0.1:%%PORT2%%;
        location / { if ($http_early_data) { return 425; } return 200 passed; }
    }";

/// Reads until the end of a body.
fn answer(stream: &mut impl Read, end: &str) -> String {
    let (mut answer, mut buf) = (Vec::new(), [0; 4_096]);
    while !answer.ends_with(end.as_bytes()) {
        let count = stream.read(&mut buf).expect("it goes on");
        assert!(count > 0, "{} and not {end}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buf[..count]);
    }
    String::from_utf8(answer).expect("text")
}

/// A request before the end of the handshake is told apart from one behind it, also by what is asked for it;
/// one that must not be done twice is answered with 425 and repeated.
#[test]
fn early_data() {
    let server = start(EARLY);
    let mut early = ClientConfig::clone(&config(TLS13));
    early.enable_early_data = true;
    let early = Arc::new(early);
    assert_eq!(body(&ask(&mut connect(&server, &early), "/")), b"early []");
    for (target, first, second) in
        [("/", "early [1]", "early []"), ("/once", "\r\n\r\n", "once"), ("/passed", "\r\n\r\n", "passed")]
    {
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut client = client(&early);
        client.early_data().expect("there is a ticket").write_all(request.as_bytes()).expect("it has room");
        let mut records = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut records).expect("memory");
        }
        let mut socket = socket(&server);
        socket.write_all(&records).expect("it is taken");
        // What ends the client's handshake stays here until the request is answered.
        let said = early_answer(&mut client, &mut socket, first);
        let status = if first == "early [1]" { "HTTP/1.1 200 " } else { "HTTP/1.1 425 " };
        assert!(said.starts_with(status), "{target}: {said}");
        assert!(client.is_early_data_accepted());
        let mut stream = StreamOwned::new(client, socket);
        stream.write_all(request.as_bytes()).expect("it is taken");
        let said = answer(&mut stream, second);
        assert!(said.contains("HTTP/1.1 200 "), "{target}: {said}");
        // The ticket that came with that is the next round's.
        assert_eq!(body(&ask(&mut connect(&server, &early), "/")), b"early []");
    }
}

/// Reads until a stream is answered: the text of its body.
fn answer_of(frames: &mut Frames, stream: u32, mut read: impl FnMut(&mut Vec<u8>)) -> String {
    while frames.answers.get(&stream).is_none_or(|answer| answer.end.is_none()) {
        let mut bytes = Vec::new();
        read(&mut bytes);
        frames.receive(&bytes);
    }
    frames.answers[&stream].text()
}

/// What comes on a connection, at least a byte.
fn receive(stream: &mut impl Read, bytes: &mut Vec<u8>) {
    let mut buf = [0; 4_096];
    let count = stream.read(&mut buf).expect("it goes on");
    assert!(count > 0, "it has ended");
    bytes.extend_from_slice(&buf[..count]);
}

/// A stream that begins before the end of the handshake is told apart from one behind it, of the same
/// connection.
#[test]
fn early_data_of_streams() {
    let server = start(&EARLY.replacen(" ssl;", " ssl; http2 on;", 1));
    let mut early = ClientConfig::clone(&config(TLS13));
    (early.enable_early_data, early.alpn_protocols) = (true, vec![b"h2".to_vec()]);
    let early = Arc::new(early);
    let first = [Frames::hello(Settings::default()), Frames::get(1, "/")].concat();
    let (mut stream, mut frames) = (connect(&server, &early), Frames::default());
    stream.write_all(&first).expect("it is taken");
    assert_eq!(answer_of(&mut frames, 1, |bytes| receive(&mut stream, bytes)), "early []");
    drop(stream);

    let (mut client, mut socket, mut frames) = (client(&early), socket(&server), Frames::default());
    client.early_data().expect("there is a ticket").write_all(&first).expect("it has room");
    let mut records = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut records).expect("memory");
    }
    socket.write_all(&records).expect("it is taken");
    let text = answer_of(&mut frames, 1, |bytes| {
        assert!(client.read_tls(&mut socket).expect("it comes") > 0, "it has ended");
        client.process_new_packets().expect("it is sound");
        // It ends with an error, since no more is there now.
        let _ = client.reader().read_to_end(bytes);
    });
    assert_eq!(text, "early [1]");
    let mut stream = StreamOwned::new(client, socket);
    stream.write_all(&Frames::get(3, "/")).expect("it is taken");
    assert_eq!(answer_of(&mut frames, 3, |bytes| receive(&mut stream, bytes)), "early []");
}

/// What is received while nothing is sent.
fn early_answer(client: &mut ClientConnection, socket: &mut TcpStream, end: &str) -> String {
    let mut said = Vec::new();
    while !said.windows(end.len()).any(|part| part == end.as_bytes()) {
        assert!(client.read_tls(socket).expect("it comes") > 0, "{}", String::from_utf8_lossy(&said));
        client.process_new_packets().expect("it is sound");
        // It ends with an error, since no more is there now.
        let _ = client.reader().read_to_end(&mut said);
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// Has one session for all names.
#[derive(Debug)]
struct Nameless(ClientSessionMemoryCache);

fn any_name() -> ServerName<'static> {
    "any.example.com".try_into().expect("a name")
}

impl ClientSessionStore for Nameless {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(any_name(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&any_name())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(any_name(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&any_name())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&any_name());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(any_name(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&any_name())
    }
}

/// Two servers at one address that have all but their certificates in common.
const TWO: &str = "
    ssl_session_ticket_key tickets;
    ssl_session_cache shared:SSL:1m;
    map $ssl_session_reused $kind { r resumed; . full; }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name www.example.com;
        ssl_certificate example.pem;
        ssl_certificate_key example.key;
        return 200 $kind;
    }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        server_name other.example.com;
        ssl_certificate other.pem;
        ssl_certificate_key other.key;
        return 200 $kind;
    }";

/// A client that offers what it has of one server to any other.
fn nameless(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_protocol_versions(&[version]).expect("it is spoken").dangerous();
    let builder = builder.with_custom_certificate_verifier(Arc::new(Trusting(provider)));
    let mut config = builder.with_no_client_auth();
    let sessions = Nameless(ClientSessionMemoryCache::new(8));
    config.resumption = Resumption::store(Arc::new(sessions));
    Arc::new(config)
}

fn kind_at(server: &Server, config: &Arc<ClientConfig>, name: &'static str) -> String {
    let server_name = name.try_into().expect("a name");
    let client = ClientConnection::new(Arc::clone(config), server_name).expect("it is configured");
    let mut stream = StreamOwned::new(client, socket(server));
    let request = format!("GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends in order");
    String::from_utf8_lossy(body(&answer)).into_owned()
}

/// A session is good for its own server, whether it is a ticket that the other one can open or a session that
/// the other one can find; the handshake is a full one then.
#[test]
fn sessions_of_another_server_are_refused() {
    for tickets in ["", "ssl_session_tickets off;"] {
        let server = with_files(deployed("events { }", &format!("{tickets}{TWO}")));
        let server = server.file("tickets", [7; 80]).start();
        for version in [TLS12, TLS13] {
            let config = nameless(version);
            for (name, expected) in [
                ("www.example.com", "full"),
                ("www.example.com", "resumed"),
                ("other.example.com", "full"),
                ("other.example.com", "resumed"),
                ("www.example.com", "full"),
            ] {
                assert_eq!(kind_at(&server, &config, name), expected, "{name} {tickets:?}");
            }
        }
    }
}

/// Jobs that the pool for handshakes has done.
fn jobs(server: &Server) -> u64 {
    const NAME: &str = r#"clearway_pool_service_seconds_count{pool="crypto"} "#;
    let mut plain = Connection::open(&server.address_of("127.0.0.1:%%PORT2%%")).expect("it listens");
    let page = plain.ask("GET /status HTTP/1.1\r\nHost: a\r\n\r\n").text();
    let line = page.lines().find_map(|line| line.strip_prefix(NAME));
    line.map_or(0, |number| number.trim().parse().expect("a number"))
}

/// A client that says it takes up a session, and does not, has the loop make one heavy step: those that say
/// so behind it are the pool's for a while.
#[test]
fn empty_claims_are_no_way_around_the_pool() {
    let status = "server { listen 127.0.0.1:%%PORT2%%; location = /status { status prometheus; } }";
    let server = with_files(deployed("events { }", &format!("{TWO} {status}")));
    let server = server.file("tickets", [7; 80]).start();
    expect_soon("claims that the pool looks at", || {
        let claim = || {
            let config = nameless(TLS13);
            assert_eq!(kind_at(&server, &config, "www.example.com"), "full");
            assert_eq!(kind_at(&server, &config, "other.example.com"), "full");
        };
        claim();
        let before = jobs(&server);
        claim();
        jobs(&server) > before
    });
}

/// Tickets of a server with other keys are no tickets.
#[test]
fn foreign_tickets_are_full_handshakes() {
    let servers = [1, 2].map(|byte: u8| {
        let setup = with_files(deployed("events { }", TWO));
        setup.file("tickets", [byte; 48]).start()
    });
    for version in [TLS12, TLS13] {
        let config = nameless(version);
        let kinds = [0, 0, 1, 1, 0].map(|at: usize| kind_at(&servers[at], &config, "www.example.com"));
        assert_eq!(kinds, ["full", "resumed", "full", "resumed", "full"]);
    }
}

/// A server whose keys of tickets are in files, and one whose keys are those of a zone.
fn rotating(number: u8) -> String {
    let keys = (0..2).filter_map(|back| Some(format!("keys{} ", number.checked_sub(back)?)));
    let keys: String = keys.map(|file| format!("ssl_session_ticket_key {file};")).collect();
    format!(
        "{KINDS}
         ssl_certificate example.pem;
         ssl_certificate_key example.key;
         server {{ listen 127.0.0.1:%%PORT%% ssl; {keys} return 200 $kind; }}
         server {{ listen 127.0.0.1:%%PORT2%% ssl; ssl_session_cache shared:SSL:1m;
             ssl_session_timeout 1s; return 200 $kind; }}
         server {{ listen 127.0.0.1:%%PORT3%%; return 200 {number}; }}"
    )
}

/// Connects anew for each request until it is told to end. How many sessions were taken up.
fn connect_on(port: u16, version: &'static SupportedProtocolVersion, over: &AtomicBool) -> u64 {
    let (config, mut resumed) = (config(version), 0);
    while !over.load(Ordering::Relaxed) {
        let socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let answer = ask(&mut StreamOwned::new(client(&config), socket), "/");
        match body(&answer) {
            b"resumed" => resumed += 1,
            b"full" => {}
            other => panic!("{}", String::from_utf8_lossy(other)),
        }
    }
    resumed
}

/// Ends the load, also where a test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn generation(server: &Server) -> String {
    let address = server.address_of("127.0.0.1:%%PORT3%%");
    let mut plain = Connection::open(&address).expect("it listens");
    plain.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").text()
}

/// Keys of tickets change with each reload, and by themselves every second: nobody's handshake fails.
#[test]
fn keys_change_under_load() {
    const RELOADS: u8 = 6;
    const ROTATIONS_S: u64 = 4;
    let frame = |number| {
        let http = rotating(number);
        format!(
            "daemon off;\nuser root;\nworker_processes 1;\npid nginx.pid;\nerror_log logs/error.log info;\n\
             events {{ }}\nhttp {{\n%%TEMP%%\naccess_log off;\n{http}\n}}\n"
        )
    };
    let keys = |setup: Setup, number: u8| setup.file(&format!("keys{number}"), [number; 80]);
    let setup = with_files(Setup::new(Binary::under_test(), &frame(0)));
    let mut server = (0..=RELOADS).fold(setup, keys).start();
    let ports = [server.port(), server.port_of("PORT2")];
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let resumed: Vec<u64> = thread::scope(|scope| {
        let load = |(port, version)| {
            let over = &over;
            scope.spawn(move || connect_on(port, version, over))
        };
        let each = ports.into_iter().flat_map(|port| [(port, TLS12), (port, TLS13)]);
        let loads: Vec<_> = each.map(load).collect();
        let ending = Ending(&over);
        for number in 1..=RELOADS {
            server.configure(&frame(number));
            server.signal(Signal::HUP);
            expect_soon("the next generation", || generation(&server) == number.to_string());
        }
        wait_until(Duration::from_secs(ROTATIONS_S), || begun.elapsed().as_secs() >= ROTATIONS_S);
        drop(ending);
        loads.into_iter().map(|load| load.join().expect("nobody's handshake fails")).collect()
    });
    assert!(resumed.iter().all(|&count| count > 0), "{resumed:?}");
    assert!(!server.error_log().contains("[crit]"), "{}", server.error_log());
}

/// What a worker has given out is taken up by the next one, however the first has ended: sessions that the
/// server keeps, and tickets, lie in the zone with their keys.
#[test]
fn sessions_survive_a_worker_that_is_killed() {
    for tickets in ["on", "off"] {
        let server = start(&format!(
            "{KINDS}
             server {{
                 listen 127.0.0.1:%%PORT%% ssl;
                 ssl_certificate example.pem;
                 ssl_certificate_key example.key;
                 ssl_session_cache shared:SSL:1m;
                 ssl_session_tickets {tickets};
                 return 200 $kind;
             }}"
        ));
        let configs = [config(TLS12), config(TLS13)];
        for config in &configs {
            assert!(!is_resumed(&server, config));
        }
        for _ in 0..2 {
            let worker = server.worker();
            send_signal(worker, Signal::KILL);
            server.worker_after(worker);
            for config in &configs {
                assert!(is_resumed(&server, config), "tickets {tickets}");
            }
        }
    }
}
