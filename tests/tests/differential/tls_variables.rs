//! `$ssl_*`: what nginx says of a connection is what Clearway says, with both versions, with a certificate of
//! the client and without, one that is trusted and one that is not, and when a session is taken up again.
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::recorded::compare;
use clearway_testkit::{Binary, Server, Setup};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

/// All of them but those whose value is another one each time, whose form a `map` tells, and those of
/// signature algorithms, for which OpenSSL has had names since 3.5 and nginx's here says numbers.
const NAMES: [&str; 24] = [
    "ssl_protocol",
    "ssl_cipher",
    "ssl_ciphers",
    "ssl_curve",
    "ssl_curves",
    "ssl_ech_status",
    "ssl_ech_outer_server_name",
    "id",
    "ssl_session_reused",
    "ssl_early_data",
    "ssl_server_name",
    "ssl_alpn_protocol",
    "ssl_client_escaped_cert",
    "ssl_client_s_dn",
    "ssl_client_i_dn",
    "ssl_client_s_dn_legacy",
    "ssl_client_i_dn_legacy",
    "ssl_client_serial",
    "ssl_client_fingerprint",
    "ssl_client_verify",
    "ssl_client_v_start",
    "ssl_client_v_end",
    "remain",
    "https",
];

const HTTP: &str = "
    ssl_certificate server.pem;
    ssl_certificate_key server.key;
    ssl_verify_depth 2;
    map $ssl_session_id $id { '' none; '~^[0-9a-f]{64}$' 64; default other; }
    map $ssl_client_v_remain $remain { '' none; '~^[0-9]+$' days; default other; }
    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_verify_client optional_no_ca;
        ssl_client_certificate ca.pem;
        server_name www.example.com;
        return 200 \"VALUES\";
    }
    server {
        listen 127.0.0.1:%%PORT2%% ssl;
        ssl_verify_client optional_no_ca;
        ssl_client_certificate server.pem;
        server_name www.example.com;
        return 200 \"VALUES\";
    }";

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    Nothing,
    Certificate,
}

fn http() -> String {
    let values: String = NAMES.iter().map(|name| format!("{name} [${name}]\n")).collect();
    HTTP.replace("VALUES", &values)
}

fn start(binary: &Binary) -> Server {
    let setup = Setup::http(binary.clone(), &http()).file("ca.pem", data!("ca.pem"));
    setup.file("server.pem", data!("ecdsa.pem")).file("server.key", data!("ecdsa.key")).start()
}

fn config(version: &'static SupportedProtocolVersion, shows: Shows) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(data!("ca.pem")).expect("it is one")).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[version]).expect("it is spoken");
    let builder = builder.with_root_certificates(roots);
    let mut config = if shows == Shows::Certificate {
        let chain = vec![CertificateDer::from_pem_slice(data!("client.pem")).expect("it is one")];
        let key = PrivateKeyDer::from_pem_slice(data!("client.key")).expect("it is one");
        builder.with_client_auth_cert(chain, key).expect("they fit")
    } else {
        builder.with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Arc::new(config)
}

fn values(server: &Server, port: &str, config: &Arc<ClientConfig>) -> String {
    let name = "www.example.com".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::clone(config), name).expect("it is configured");
    let socket = TcpStream::connect(("127.0.0.1", server.port_of(port))).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut stream = StreamOwned::new(connection, socket);
    let request = b"GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n";
    stream.write_all(request).expect("it is taken");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it ends in order");
    let answer = String::from_utf8(answer).expect("text");
    answer.split_once("\r\n\r\n").expect("there is a head").1.to_owned()
}

/// OpenSSL 3.0 does not say which groups a client knows whose session is taken up.
fn without_curves(values: &str) -> String {
    let lines = values.lines().filter(|line| !line.starts_with("ssl_curves "));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn values_are_those_of_nginx() {
    for (version, name) in [(&rustls::version::TLS12, "TLS 1.2"), (&rustls::version::TLS13, "TLS 1.3")] {
        for (shows, port, what) in [
            (Shows::Nothing, "PORT", "no certificate"),
            (Shows::Certificate, "PORT", "a certificate"),
            (Shows::Certificate, "PORT2", "a certificate of an unknown authority"),
        ] {
            for connection in ["new", "again"] {
                let question = format!("{name}, {what}, {connection}\n{}", http());
                compare(&question, |binary| {
                    let server = start(binary);
                    let config = config(version, shows);
                    let first = values(&server, port, &config);
                    if connection == "new" { first } else { without_curves(&values(&server, port, &config)) }
                });
            }
        }
    }
}

const DEPTHS: [(&str, usize); 4] = [("PORT", 0), ("PORT2", 1), ("PORT3", 2), ("PORT4", 3)];

/// A server for each depth, which tells what came of the check also where it refuses the request for that.
fn http_of_depths() -> String {
    let server = |(port, depth)| {
        format!(
            "server {{
                listen 127.0.0.1:%%{port}%% ssl;
                ssl_certificate server.pem;
                ssl_certificate_key server.key;
                ssl_verify_client on;
                ssl_client_certificate ca.pem;
                ssl_verify_depth {depth};
                error_page 495 =200 /told;
                location / {{ return 200 \"taken [$ssl_client_verify]\\n\"; }}
                location = /told {{ return 200 \"refused [$ssl_client_verify]\\n\"; }}
            }}"
        )
    };
    DEPTHS.into_iter().map(server).collect()
}

/// Chains of no, one and two certificates between the client's and the trusted one.
fn chains() -> [&'static [u8]; 3] {
    [data!("depth-0.pem"), data!("depth-1.pem"), data!("depth-2.pem")]
}

fn config_with_chain(version: &'static SupportedProtocolVersion, chain: &[u8]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(data!("ca.pem")).expect("it is one")).expect("it is sound");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(&[version]).expect("it is spoken");
    let chain = CertificateDer::pem_slice_iter(chain).map(|one| one.expect("it is one")).collect();
    let key = PrivateKeyDer::from_pem_slice(data!("depth.key")).expect("it is one");
    let builder = builder.with_root_certificates(roots);
    Arc::new(builder.with_client_auth_cert(chain, key).expect("they fit"))
}

/// `ssl_verify_depth`: how many certificates may lie between a client's and a trusted one, and what is said
/// of more.
#[test]
fn chains_are_as_long_as_is_said() {
    let http = http_of_depths();
    for (version, name) in [(&rustls::version::TLS12, "TLS 1.2"), (&rustls::version::TLS13, "TLS 1.3")] {
        compare(&format!("{name}, chains and depths\n{http}"), |binary| {
            let setup = Setup::http(binary.clone(), &http).file("ca.pem", data!("depth-ca.pem"));
            let setup = setup.file("server.pem", data!("ecdsa.pem")).file("server.key", data!("ecdsa.key"));
            let server = setup.start();
            let mut told = String::new();
            for (port, depth) in DEPTHS {
                for (between, chain) in chains().into_iter().enumerate() {
                    let said = values(&server, port, &config_with_chain(version, chain));
                    told.push_str(&format!("depth {depth}, {between} between: {said}"));
                }
            }
            told
        });
    }
}
