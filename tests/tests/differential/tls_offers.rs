//! Which versions, suites and groups a server takes of a client that offers one alone: nginx's answer is
//! Clearway's, but for what docs/tls.md names. Clients are hellos; what is looked at is the kind of the
//! answer.
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![allow(clippy::disallowed_macros, reason = "test programs talk to their terminal")]

use std::io::{Read, Write};
use std::net::TcpStream;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::recorded::compare;
use clearway_testkit::{Binary, Server, Setup};

use crate::handshakes::{offer_12, offer_13};

const HTTP: &str = "
    ssl_certificate ecdsa.pem;
    ssl_certificate_key ecdsa.key;
    ssl_certificate rsa.pem;
    ssl_certificate_key rsa.key;
    server { listen 127.0.0.1:%%PORT%% ssl; return 200; }
    server {
        listen 127.0.0.1:%%PORT2%% ssl;
        ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3;
        ssl_ciphers ALL:@SECLEVEL=0;
        return 200;
    }";

/// With what a configuration says of them, and with all there is.
const SERVERS: [(&str, &str); 2] = [("nginx's defaults", "PORT"), ("everything", "PORT2")];

const VERSIONS: [(&str, &str); 4] =
    [("TLSv1", "0301"), ("TLSv1.1", "0302"), ("TLSv1.2", "0303"), ("TLSv1.3", "0304")];

/// A suite a line, number and name: those of OpenSSL 3.0 for certificates with RSA, ECDSA or none.
const SUITES: &str = include_str!("tls_suites.txt");

/// Numbers and names of groups.
const GROUPS: [(&str, &str); 15] = [
    ("0013", "secp192r1"),
    ("0015", "secp224r1"),
    ("0016", "secp256k1"),
    ("0017", "prime256v1"),
    ("0018", "secp384r1"),
    ("0019", "secp521r1"),
    ("001a", "brainpoolP256r1"),
    ("001b", "brainpoolP384r1"),
    ("001c", "brainpoolP512r1"),
    ("001d", "X25519"),
    ("001e", "X448"),
    ("0100", "ffdhe2048"),
    ("0101", "ffdhe3072"),
    ("11ec", "X25519MLKEM768"),
    ("11eb", "SecP256r1MLKEM768"),
];

/// What Clearway's library does not have, as docs/tls.md says.
const LACKED_EXCHANGES: [&str; 3] = ["DHE-", "ADH-", "AECDH-"];
const LACKED_CIPHERS: [&str; 7] = [
    "CCM",
    "ARIA",
    "CAMELLIA",
    "NULL",
    "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE-ECDSA-AES256-SHA384",
    "AES256-SHA256",
];

/// The same of groups, for which OpenSSL 3.0 has an answer of its own.
const OTHER_GROUPS: [&str; 5] = ["X448", "ffdhe2048", "ffdhe3072", "X25519MLKEM768", "SecP256r1MLKEM768"];

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../../../crates/tls/tests/data/", $name))[..]
    };
}

fn start(binary: &Binary) -> Server {
    let setup = Setup::http(binary.clone(), HTTP);
    let setup = setup.file("ecdsa.pem", data!("ecdsa.pem")).file("ecdsa.key", data!("ecdsa.key"));
    setup.file("rsa.pem", data!("rsa.pem")).file("rsa.key", data!("rsa.key")).start()
}

/// Whether the server goes on with this hello.
fn is_taken(server: &Server, port: &str, version: &str, changes: &[String]) -> bool {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port_of(port))).expect("it listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let changes = changes.iter().map(String::as_str);
    let hello = if version == "0304" { offer_13(changes) } else { offer_12(changes) };
    socket.write_all(&hello).expect("it is taken");
    let mut head = [0; 6];
    // A server that refuses it sends an alert, or nothing.
    socket.read_exact(&mut head).is_ok() && head[0] == 22 && head[5] == 2
}

fn suites(server: &Server, port: &str, version: &str) -> Vec<(&'static str, bool)> {
    let rows = SUITES.lines().map(|row| row.split_once(' ').expect("number and name"));
    let taken = rows.map(|(number, name)| {
        let mut changes = vec![format!("suites={number}")];
        if version != "0304" {
            changes.push(format!("version={version}"));
        }
        (name, is_taken(server, port, version, &changes))
    });
    taken.collect()
}

fn groups(server: &Server, port: &str, version: &str) -> Vec<(&'static str, bool)> {
    let taken = GROUPS.into_iter().map(|(number, name)| {
        // A client of TLS 1.3 that sends no key is asked for one of a group that both have.
        let rest = if version == "0304" { "51=0000" } else { "suites=c02bc02f" };
        let changes = [format!("10=0002{number}"), rest.to_owned()];
        (name, is_taken(server, port, version, &changes))
    });
    taken.collect()
}

/// Names of what is taken, a line each.
fn listed(rows: &[(&str, bool)], is_compared: impl Fn(&str) -> bool) -> String {
    let rows = rows.iter().filter(|(name, is_taken)| *is_taken && is_compared(name));
    rows.map(|(name, _)| format!("{name}\n")).collect()
}

fn is_lacked(suite: &str) -> bool {
    LACKED_EXCHANGES.iter().any(|exchange| suite.starts_with(exchange))
        || LACKED_CIPHERS.iter().any(|cipher| suite.contains(cipher))
}

#[test]
fn suites_and_versions() {
    for (what, port) in SERVERS {
        for (name, version) in VERSIONS {
            compare(&format!("{what}, {name}\n{HTTP}\n{SUITES}"), |binary| {
                let found = suites(&start(binary), port, version);
                let lacked = listed(&found, is_lacked);
                assert!(!binary.is_clearway() || lacked.is_empty(), "docs/tls.md says other: {lacked}");
                listed(&found, |suite| !is_lacked(suite))
            });
        }
    }
}

#[test]
fn groups_and_versions() {
    for (what, port) in SERVERS {
        for (name, version) in &VERSIONS[2..] {
            compare(&format!("{what}, {name}\n{HTTP}\n{GROUPS:?}"), |binary| {
                let found = groups(&start(binary), port, version);
                listed(&found, |group| !OTHER_GROUPS.contains(&group))
            });
        }
    }
}

/// For docs/tls.md: everything that the server takes.
#[test]
#[ignore = "prints what the server under test takes"]
fn the_table() {
    let server = start(&Binary::under_test());
    for (what, port) in SERVERS {
        for (name, version) in VERSIONS {
            let mut found = suites(&server, port, version);
            if version != "0301" && version != "0302" {
                found.extend(groups(&server, port, version));
            }
            println!("{what}, {name}: {}", listed(&found, |_| true).replace('\n', " "));
        }
    }
}
