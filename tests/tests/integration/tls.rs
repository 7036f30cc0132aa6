//! Connections with TLS: handshakes in pieces, clients that break off or never read, whole files, plain
//! requests on an address for TLS, certificates that only the master may read, reloads. The clients are
//! rustls's.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Address, Server, Setup};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};

use crate::deployed;

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

pub(crate) const TLS12: &SupportedProtocolVersion = &rustls::version::TLS12;
pub(crate) const TLS13: &SupportedProtocolVersion = &rustls::version::TLS13;

const HTTP: &str = "
    ssl_certificate example.pem;
    ssl_certificate_key example.key;
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        client_header_timeout 2s;
        location / { return 200 '$scheme $ssl_protocol $ssl_server_name $ssl_session_reused'; }
        location /files/ { alias %%PREFIX%%/; }
        location /moved { return 301 /to; }
    }";

/// What the tests are served beside answers.
const FILE_BYTES: usize = 3_000_000;

fn setup() -> Setup {
    let file: Vec<u8> = (0..FILE_BYTES).map(|at| (at % 251) as u8).collect();
    let setup = deployed("events { }", HTTP).file("large", file);
    setup.file("example.pem", data!("ecdsa.pem")).file("example.key", data!("ecdsa.key"))
}

/// A server that speaks HTTP/2 with its clients.
pub(crate) fn setup_http2() -> Setup {
    let http = HTTP.replace("client_header_timeout 2s;", "http2 on;");
    let http = http.replace(
        "'$scheme $ssl_protocol $ssl_server_name $ssl_session_reused'",
        "'$http2 $scheme $ssl_protocol'",
    );
    let setup = deployed("events { }", &http);
    setup.file("example.pem", data!("ecdsa.pem")).file("example.key", data!("ecdsa.key"))
}

/// A connection whose client speaks these protocols.
pub(crate) fn connect_with(server: &Server, protocols: &[&str]) -> StreamOwned<ClientConnection, TcpStream> {
    let mut config = ClientConfig::clone(&config(TLS13));
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    connect(server, &Arc::new(config))
}

pub(crate) fn config(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(data!("ca.pem")).expect("it is one")).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[version]).expect("it is spoken");
    Arc::new(builder.with_root_certificates(roots).with_no_client_auth())
}

pub(crate) fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    client_for(config, "www.example.com")
}

fn client_for(config: &Arc<ClientConfig>, name: &'static str) -> ClientConnection {
    let name = name.try_into().expect("a name");
    ClientConnection::new(Arc::clone(config), name).expect("it is configured")
}

pub(crate) fn socket(server: &Server) -> TcpStream {
    let Address::Tcp(address) = server.address() else { panic!("not a port") };
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    socket
}

pub(crate) fn connect(
    server: &Server,
    config: &Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    StreamOwned::new(client(config), socket(server))
}

/// Asks for a target on a connection that ends with the answer.
pub(crate) fn ask(stream: &mut (impl Read + Write), target: &str) -> Vec<u8> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends in order");
    answer
}

/// Asks a server whose certificate nobody has signed: its answer, and the certificate.
pub(crate) fn ask_unknown(server: &Address, target: &str) -> (Vec<u8>, Vec<u8>) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().expect("there are some").dangerous();
    let config = builder.with_custom_certificate_verifier(Arc::new(Trusting(provider)));
    let name = "localhost".try_into().expect("a name");
    let config = Arc::new(config.with_no_client_auth());
    let connection = ClientConnection::new(config, name).expect("it is configured");
    let Address::Tcp(address) = server else { panic!("not a port") };
    let socket = TcpStream::connect(address).expect("it listens");
    let mut stream = StreamOwned::new(connection, socket);
    let answer = ask(&mut stream, target);
    let certificates = stream.conn.peer_certificates().expect("there is one");
    (answer, certificates[0].to_vec())
}

/// Takes any certificate, but no signature that is wrong.
#[derive(Debug)]
pub(crate) struct Trusting(pub(crate) Arc<CryptoProvider>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

pub(crate) fn body(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("there is a head");
    &answer[end + 4..]
}

#[test]
fn requests_and_resumption() {
    let server = setup().start();
    for (version, name) in [(TLS12, "TLSv1.2"), (TLS13, "TLSv1.3")] {
        let config = config(version);
        for reused in [".", "r"] {
            let answer = ask(&mut connect(&server, &config), "/");
            let expected = format!("https {name} www.example.com {reused}");
            assert_eq!(String::from_utf8_lossy(body(&answer)), expected);
        }
        let moved = String::from_utf8(ask(&mut connect(&server, &config), "/moved")).expect("text");
        let port = server.port();
        assert!(moved.contains(&format!("Location: https://www.example.com:{port}/to\r\n")), "{moved}");
    }
}

#[test]
fn a_handshake_in_single_bytes() {
    let server = setup().start();
    for version in [TLS12, TLS13] {
        let mut connection = client(&config(version));
        let mut socket = socket(&server);
        socket.set_nodelay(true).expect("a socket");
        while connection.is_handshaking() {
            let mut records = Vec::new();
            while connection.wants_write() {
                connection.write_tls(&mut records).expect("memory");
            }
            for byte in records {
                socket.write_all(&[byte]).expect("it is taken");
            }
            if connection.wants_read() {
                connection.read_tls(&mut socket).expect("it comes");
                connection.process_new_packets().expect("it is sound");
            }
        }
        let answer = ask(&mut StreamOwned::new(connection, socket), "/");
        assert!(answer.starts_with(b"HTTP/1.1 200 "));
    }
}

#[test]
fn a_large_file_arrives_whole() {
    let server = setup().start();
    for version in [TLS12, TLS13] {
        let answer = ask(&mut connect(&server, &config(version)), "/files/large");
        let body = body(&answer);
        assert_eq!(body.len(), FILE_BYTES);
        assert!(body.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    }
}

/// Without a certificate of its own nobody is served, and what is no TLS is told so.
#[test]
fn plain_requests_and_nonsense() {
    let server = setup().start();
    let answer = server.connect().ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(answer.status, 400);
    server.wait_lines("logs/error.log", "client sent plain HTTP request to HTTPS port", 1);
    let mut nonsense = socket(&server);
    nonsense.write_all(&[0x16, 3, 1, 0, 4, 2, 0, 0, 0]).expect("it is taken");
    let mut alert = Vec::new();
    nonsense.read_to_end(&mut alert).expect("it ends");
    assert_eq!(alert[..1], [21], "an alert");
    server.wait_lines("logs/error.log", "SSL_do_handshake() failed (SSL: error:", 1);
}

#[test]
fn clients_that_break_off() {
    let server = setup().start();
    let mut hello = Vec::new();
    client(&config(TLS13)).write_tls(&mut hello).expect("memory");
    socket(&server).write_all(&hello[..hello.len() / 2]).expect("it is taken");
    server.wait_lines("logs/error.log", "peer closed connection in SSL handshake while SSL handshaking", 1);
    // One that says no more is closed after `client_header_timeout`.
    let mut silent = socket(&server);
    silent.write_all(&hello[..1]).expect("it is taken");
    let mut nothing = Vec::new();
    silent.read_to_end(&mut nothing).expect("it ends");
    assert_eq!(nothing, b"");
    let line = "client timed out (110: Connection timed out) while SSL handshaking";
    server.wait_lines("logs/error.log", line, 1);
}

/// A client that does not read holds up nobody, and gets the rest when it reads.
#[test]
fn a_client_that_does_not_read() {
    let server = setup().start();
    let config = config(TLS13);
    let mut lazy = connect(&server, &config);
    lazy.write_all(b"GET /files/large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("it is taken");
    for _ in 0..3 {
        assert!(ask(&mut connect(&server, &config), "/").starts_with(b"HTTP/1.1 200 "));
    }
    let mut answer = Vec::new();
    lazy.read_to_end(&mut answer).expect("it ends in order");
    assert_eq!(body(&answer).len(), FILE_BYTES);
}

/// A worker without rights has what its master has read, also after a reload; connections stay.
#[test]
fn a_reload_keeps_connections_and_sessions() {
    let server = setup().start();
    let config = config(TLS13);
    let mut kept = connect(&server, &config);
    let request = b"GET / HTTP/1.1\r\nHost: www.example.com\r\n\r\n";
    let mut answer = [0; 4096];
    kept.write_all(request).expect("it is taken");
    assert!(kept.read(&mut answer).expect("it comes") > 0);
    server.signal(rustix::process::Signal::HUP);
    server.wait_lines("logs/error.log", "reconfiguring", 1);
    std::fs::remove_file(server.prefix().join("example.key")).expect("it is there");
    kept.sock.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
    kept.write_all(request).expect("it is taken");
    assert!(kept.read(&mut answer).expect("it comes") > 0);
    assert!(ask(&mut connect(&server, &config), "/").ends_with(b" r"));
}

/// Certificates whose names the client has a say in: with and without a cache, and one that is not there.
#[test]
fn certificates_by_variables() {
    for cache in ["", "ssl_certificate_cache max=4;"] {
        let http = HTTP.replace(" example.", " $ssl_server_name.");
        let server = deployed("events { }", &format!("{cache}{http}"))
            .file("www.example.com.pem", data!("ecdsa.pem"))
            .file("www.example.com.key", data!("ecdsa.key"))
            .start();
        for version in [TLS12, TLS13] {
            let config = config(version);
            for reused in [".", "r"] {
                let answer = ask(&mut connect(&server, &config), "/");
                assert!(answer.ends_with(format!(" www.example.com {reused}").as_bytes()));
            }
        }
        let unknown = client_for(&config(TLS13), "none.example.com");
        let error = StreamOwned::new(unknown, socket(&server)).write_all(b"x").unwrap_err();
        assert!(error.to_string().contains("InternalError"), "{error}");
        let line = "none.example.com.pem\": BIO_new_file() failed (SSL: error:80000002:system library::";
        server.wait_lines("logs/error.log", line, 1);
        let line = "SSL_do_handshake() failed (SSL: error:0A000179:SSL routines::cert cb error)";
        server.wait_lines("logs/error.log", line, 1);
    }
}
