//! Answers of authorities that clients are told with the handshake (OCSP stapling): from a file, from a
//! responder that answers, refuses, hangs or says nonsense. The clients are rustls's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Address, Server, wait_until};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::deployed;

macro_rules! data {
    ($name:literal) => {
        include_bytes!(concat!("../../../crates/tls/tests/data/", $name)).as_slice()
    };
}

/// Keeps what came with the certificate.
#[derive(Debug)]
struct Witness {
    staple: Mutex<Vec<u8>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Witness {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.staple.lock().expect("nobody panics") = staple.to_vec();
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// What a client is told that asks the server for an answer.
fn staple(server: &Server) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let witness = Arc::new(Witness { staple: Mutex::default(), provider: Arc::clone(&provider) });
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("they are spoken");
    let verifier: Arc<dyn ServerCertVerifier> = Arc::clone(&witness) as _;
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    let name = "www.example.com".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("it is configured");
    let Address::Tcp(address) = server.address() else { panic!("not a port") };
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut stream = StreamOwned::new(client, socket);
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends in order");
    assert!(answer.starts_with(b"HTTP/1.1 200 "));
    witness.staple.lock().expect("nobody panics").clone()
}

fn server(said: &str) -> Server {
    let http = format!(
        "ssl_certificate example.pem; ssl_certificate_key example.key; ssl_stapling on; {said}
        server {{ listen 127.0.0.1:%%PORT%% ssl; location / {{ return 200 ok; }} }}"
    );
    deployed("events { }", &http)
        .file("example.pem", data!("ocsp.pem"))
        .file("example.key", data!("ocsp.key"))
        .file("answer.der", data!("ocsp-revoked.der"))
        .start()
}

/// A responder that gives this answer to each question, and where it is.
fn responder(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/ocsp", listener.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let Ok(mut socket) = socket else { continue };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if socket.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                head.push(byte[0]);
            }
            assert!(head.starts_with(b"GET /ocsp/M"), "{}", String::from_utf8_lossy(&head));
            let _ = socket.write_all(&answer);
        }
    });
    url
}

fn response(body: &[u8]) -> Vec<u8> {
    let head = b"HTTP/1.0 200 OK\r\nContent-Type: application/ocsp-response\r\n\r\n";
    [&head[..], body].concat()
}

#[test]
fn a_file_says_it() {
    let server = server("ssl_stapling_file answer.der;");
    assert_eq!(staple(&server), data!("ocsp-revoked.der"));
}

/// The first client gets nothing, those behind the answer do, and it is asked for once.
#[test]
fn a_responder_says_it() {
    for verified in ["", "ssl_stapling_verify on; ssl_trusted_certificate example.pem;"] {
        let url = responder(response(data!("ocsp-good.der")));
        let server = server(&format!("{verified} ssl_stapling_responder {url};"));
        assert_eq!(staple(&server), b"");
        assert!(wait_until(PATIENCE, || staple(&server) == data!("ocsp-good.der")));
    }
}

/// What the responder says of the certificate is not good, or nothing at all: clients are served without.
#[test]
fn responders_that_are_of_no_use() {
    let context = " while requesting certificate status, responder: 127.0.0.1, peer: 127.0.0.1:";
    let cases = [
        (response(data!("ocsp-revoked.der")), "certificate status \"revoked\" in the OCSP response"),
        (response(data!("ocsp-other.der")), "certificate status not found in the OCSP response"),
        (response(b"no answer"), "d2i_OCSP_RESPONSE() failed (SSL: error:"),
        (
            b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n".to_vec(),
            "OCSP responder sent invalid \"Content-Type\" header: \"text/html\"",
        ),
        (b"hello\r\n\r\n".to_vec(), "OCSP responder sent invalid response"),
        (Vec::new(), "OCSP responder prematurely closed connection"),
        (vec![b'x'; 40_000], "OCSP responder sent invalid response"),
    ];
    for (answer, line) in cases {
        let server = server(&format!("ssl_stapling_responder {};", responder(answer)));
        assert_eq!(staple(&server), b"");
        server.wait_lines("logs/error.log", line, 1);
        server.wait_lines("logs/error.log", context, 1);
        assert_eq!(staple(&server), b"");
    }
}

#[test]
fn a_responder_that_is_not_there() {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|bound| bound.local_addr()).expect("a port").port();
    let server = server(&format!("ssl_stapling_responder http://127.0.0.1:{port}/;"));
    assert_eq!(staple(&server), b"");
    server.wait_lines("logs/error.log", "connect() failed (111: Connection refused) while requesting", 1);
}

/// A responder that takes the question and says nothing holds up neither clients nor the end of the server.
#[test]
fn a_responder_that_hangs_holds_nobody() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("it is bound"));
    let server = server(&format!("ssl_stapling_responder {url};"));
    for _ in 0..5 {
        assert_eq!(staple(&server), b"");
    }
    let asked = silent.accept().expect("it is asked");
    assert_eq!(staple(&server), b"");
    drop(asked);
}
