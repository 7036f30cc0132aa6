//! Clients with TLS that do what no honest one does: floods of what costs a server something and the client
//! nothing, records of a byte, no reading; and more handshakes than their pool has room for. Records that no
//! library makes are encrypted here with the keys of a handshake of rustls's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use clearway_testkit::{Connection, Server, Setup, expect_soon};
use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion, StreamOwned,
    SupportedCipherSuite, SupportedProtocolVersion,
};

use crate::deployed;
use crate::tls::{TLS12, TLS13, ask, body, client, config, connect, socket};

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

const HTTP: &str = "
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate example.pem;
        ssl_certificate_key example.key;
        location / { return 200 fine; }
        location /unread { alias %%PREFIX%%/large; send_timeout 1s; }
    }
    server { listen 127.0.0.1:%%PORT2%%; location = /status { status prometheus; } }";

/// More than sockets of both sides take of a client that does not read.
const FILE_BYTES: usize = 24 << 20;

fn setup(main: &str) -> Setup {
    let setup = deployed(&format!("{main} events {{ }}"), HTTP);
    setup.file("example.pem", data!("ecdsa.pem")).file("example.key", data!("ecdsa.key"))
}

fn counter(server: &Server, name: &str) -> u64 {
    let name = format!("clearway_{name} ");
    let mut plain = Connection::open(&server.address_of("127.0.0.1:%%PORT2%%")).expect("it listens");
    let page = plain.ask("GET /status HTTP/1.1\r\nHost: a\r\n\r\n").text();
    let line = page.lines().find_map(|line| line.strip_prefix(&name));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or_else(|| panic!("no {name} in {page}"))
}

/// The server is there for everybody else.
fn assert_serving(server: &Server) {
    assert_eq!(body(&ask(&mut connect(server, &config(TLS13)), "/")), b"fine");
}

/// A connection that was made by a library and goes on without one.
struct Bare {
    socket: TcpStream,
    encrypter: Box<dyn MessageEncrypter>,
    number: u64,
}

impl Bare {
    /// Makes the handshake.
    fn connect(server: &Server, version: &'static SupportedProtocolVersion) -> Self {
        let mut config = ClientConfig::clone(&config(version));
        config.enable_secret_extraction = true;
        let mut stream = connect(server, &Arc::new(config));
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).expect("a handshake");
        }
        let StreamOwned { conn, sock } = stream;
        let suite = conn.negotiated_cipher_suite().expect("there is one");
        let (number, secrets) = conn.dangerous_extract_secrets().expect("they are there").tx;
        Self { socket: sock, encrypter: encrypter(suite, secrets), number }
    }

    fn record(&mut self, kind: ContentType, content: &[u8]) -> Vec<u8> {
        let message = OutboundPlainMessage {
            typ: kind,
            version: ProtocolVersion::TLSv1_2,
            payload: OutboundChunks::Single(content),
        };
        let sealed = self.encrypter.encrypt(message, self.number).expect("it is encrypted");
        self.number += 1;
        sealed.encode()
    }

    /// Sends a record many times, and waits until the server has closed.
    fn flood(mut self, kind: ContentType, content: &[u8], count: usize) {
        let records: Vec<u8> = (0..count).flat_map(|_| self.record(kind, content)).collect();
        // The server may have had enough before the last.
        drop(self.socket.write_all(&records));
        drop(self.socket.read_to_end(&mut Vec::new()));
    }
}

fn encrypter(suite: SupportedCipherSuite, secrets: ConnectionTrafficSecrets) -> Box<dyn MessageEncrypter> {
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv } | ConnectionTrafficSecrets::Aes256Gcm { key, iv }) =
        secrets
    else {
        panic!("{suite:?} is not AES-GCM")
    };
    match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, iv),
        SupportedCipherSuite::Tls12(suite) => {
            let (fixed, explicit) = iv.as_ref().split_at(4);
            suite.aead_alg.encrypter(key, fixed, explicit)
        }
    }
}

/// The message that a client of TLS 1.2 begins with, without the head of its record.
fn hello() -> Vec<u8> {
    let mut record = Vec::new();
    client(&config(TLS12)).write_tls(&mut record).expect("memory");
    record.split_off(5)
}

#[test]
fn floods_of_records_end_their_connection() {
    let server = setup("").start();
    let warning = [1, 100];
    let (hello, nothing) = (hello(), Vec::new());
    let floods: [(_, _, &[u8], _); 5] = [
        (TLS12, ContentType::Handshake, &hello, "0A000153:SSL routines::no renegotiation"),
        (TLS12, ContentType::Alert, &warning, "0A000199:SSL routines::too many warn alerts"),
        (TLS12, ContentType::ApplicationData, &nothing, "0A00012A:SSL routines::record too small"),
        (TLS13, ContentType::ApplicationData, &nothing, "0A00012A:SSL routines::record too small"),
        // A client of TLS 1.3 has no hello to send once it has been answered.
        (TLS13, ContentType::Handshake, &hello, "0A0000F4:SSL routines::unexpected message"),
    ];
    for (number, (version, kind, content, reason)) in floods.into_iter().enumerate() {
        Bare::connect(&server, version).flood(kind, content, 100);
        let log = server.wait_lines("logs/error.log", &format!("SSL_read() failed (SSL: error:{reason}"), {
            // The third reason comes twice.
            1 + usize::from(number == 3)
        });
        let line = log.lines().rfind(|line| line.contains(reason)).expect("it was waited for");
        assert!(line.contains("[info]"), "{line}");
        assert_eq!(counter(&server, "tls_connections_broken_total"), number as u64 + 1);
        assert_serving(&server);
    }
}

#[test]
fn a_flood_of_updates_of_keys_ends_its_connection() {
    let server = setup("").start();
    let mut stream = connect(&server, &config(TLS13));
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
    assert!(stream.read(&mut [0; 1_024]).expect("an answer") > 0);
    for _ in 0..1_000 {
        stream.conn.refresh_traffic_keys().expect("it is encrypted");
    }
    let mut records = Vec::new();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut records).expect("memory");
    }
    // The server may have had enough before the last.
    drop(stream.sock.write_all(&records));
    drop(stream.sock.read_to_end(&mut Vec::new()));
    let line = "SSL_read() failed (SSL: error:0A000084:SSL routines::too many key updates)";
    let log = server.wait_log("logs/error.log", line);
    assert!(log.lines().any(|all| all.contains(line) && all.contains("[info]")), "{log}");
    assert_eq!(counter(&server, "tls_connections_broken_total"), 1);
    assert_serving(&server);
}

/// Updates of keys between requests are nobody's flood, and are answered.
#[test]
fn updates_of_keys_between_requests() {
    let server = setup("").start();
    let mut stream = connect(&server, &config(TLS13));
    for number in 0..50 {
        if number > 0 {
            stream.conn.refresh_traffic_keys().expect("it is encrypted");
        }
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("it is taken");
        let mut answer = Vec::new();
        while !answer.ends_with(b"fine") {
            let mut buf = [0; 1_024];
            let count = stream.read(&mut buf).expect("an answer");
            answer.extend_from_slice(&buf[..count]);
        }
    }
    assert_eq!(counter(&server, "tls_connections_broken_total"), 0);
}

#[test]
fn requests_in_records_of_a_byte() {
    let server = setup("").start();
    for version in [TLS12, TLS13] {
        let mut stream = connect(&server, &config(version));
        stream.sock.set_nodelay(true).expect("a socket");
        for byte in b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" {
            stream.write_all(&[*byte]).expect("it is taken");
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it ends in order");
        assert_eq!(body(&answer), b"fine");
    }
}

/// One that begins a handshake and reads nothing of it, and one that asks and does not read: both are closed
/// in their time, and hold up nobody.
#[test]
fn clients_that_never_read() {
    let server = setup("").file("large", vec![b'x'; FILE_BYTES]).start();
    for version in [TLS12, TLS13] {
        let mut silent = socket(&server);
        let mut records = Vec::new();
        client(&config(version)).write_tls(&mut records).expect("memory");
        silent.write_all(&records).expect("it is taken");
        let mut lazy = connect(&server, &config(version));
        let request = b"GET /unread HTTP/1.1\r\nHost: a\r\n\r\n";
        lazy.write_all(request).expect("it is taken");
        assert_serving(&server);
        let line = "client timed out (110: Connection timed out) while sending response to client";
        server.wait_lines("logs/error.log", line, if version.version == TLS12.version { 1 } else { 2 });
        assert_serving(&server);
    }
}

/// Opens connections whose handshakes all want the pool, and does not wait for any.
fn crowd(server: &Server, count: usize) -> Vec<TcpStream> {
    let mut records = Vec::new();
    client(&config(TLS12)).write_tls(&mut records).expect("memory");
    let mut sockets: Vec<TcpStream> = (0..count).map(|_| socket(server)).collect();
    for socket in &mut sockets {
        socket.write_all(&records).expect("it is taken");
    }
    sockets
}

/// Handshakes beyond the room of their pool are closed, counted and logged; those behind them are made.
#[test]
fn a_full_pool_closes_what_comes() {
    let http = HTTP.replace("example.pem", "heavy.pem").replace("example.key", "heavy.key");
    let server = deployed("thread_pool crypto threads=1 max_queue=2; events { }", &http)
        .file("heavy.pem", data!("rsa-4096.pem"))
        .file("heavy.key", data!("rsa-4096.key"))
        .start();
    expect_soon("a full pool", || {
        drop(crowd(&server, 60));
        counter(&server, "tls_handshakes_refused_total") > 0
    });
    server.wait_log("logs/error.log", "thread pool \"crypto\" queue overflow");
    expect_soon("room in the pool", || {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusting = crate::tls::Trusting(provider);
        is_served(&server, trusting)
    });
}

fn is_served(server: &Server, verifier: crate::tls::Trusting) -> bool {
    let builder = ClientConfig::builder_with_provider(Arc::clone(&verifier.0));
    let builder = builder.with_safe_default_protocol_versions().expect("there are some").dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    let name = "www.example.com".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("it is configured");
    let mut stream = StreamOwned::new(client, socket(server));
    let mut answer = Vec::new();
    let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream.write_all(request).is_ok()
        && stream.read_to_end(&mut answer).is_ok()
        && answer.starts_with(b"HTTP/1.1 200 ")
}
