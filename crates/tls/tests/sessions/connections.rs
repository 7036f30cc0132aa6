//! The client's side: to servers of rustls, and to this crate's own.

use std::io::{IoSlice, Read, Write};
use std::sync::Arc;

use clearway_tls::ciphers::CipherList;
use clearway_tls::engine::{
    Asking, Engine, Given, Keeping, Opened, Plan, Session, Side, Step, Target, Tickets, Verification,
    Verified, Versions,
};
use clearway_tls::hello::HelloReader;
use clearway_tls::level::Version;
use clearway_tls::tickets::{KeyRing, TicketKey};
use clearway_tls::{AwsLc, Certificate, Context, Pair, TlsSession};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use crate::support::{CA, ECDSA, TLS12, TLS13, context, plan};

const NAME: Target<'static> = Target { name: Some("www.example.com"), session: None };

fn client_plan() -> Plan<Pair> {
    let mut plan = Plan::new(CipherList::parse("DEFAULT").unwrap(), Vec::new());
    plan.side = Side::Client;
    plan.keeping = Keeping::Kept;
    plan.protocols = vec![b"http/1.1".to_vec()];
    plan.verification =
        Verification { asking: Asking::On, trusted: CA.to_vec(), depth: 1, ..Verification::default() };
    plan
}

#[test]
fn servers_of_another_library() {
    for version in [TLS12, TLS13] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let chain = CertificateDer::pem_slice_iter(ECDSA.0).map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_slice(ECDSA.1).unwrap();
        let mut config = builder.with_no_client_auth().with_single_cert(chain, key).unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut server = ServerConnection::new(Arc::new(config)).unwrap();
        let mut client = AwsLc::connect(&context(client_plan()), NAME).unwrap();
        let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
        while client.step(&mut &std::mem::take(&mut to_client)[..], &mut to_server) == Step::Need {
            server.read_tls(&mut &std::mem::take(&mut to_server)[..]).unwrap();
            server.process_new_packets().unwrap();
            while server.wants_write() {
                server.write_tls(&mut to_client).unwrap();
            }
        }
        client.seal(&[IoSlice::new(b"request")], 16_384, &mut to_server).unwrap();
        server.read_tls(&mut &to_server[..]).unwrap();
        server.process_new_packets().unwrap();
        let mut request = [0; 7];
        server.reader().read_exact(&mut request).unwrap();
        assert_eq!(&request, b"request");
        assert_eq!(server.server_name(), Some("www.example.com"));
        server.writer().write_all(b"response").unwrap();
        while server.wants_write() {
            server.write_tls(&mut to_client).unwrap();
        }
        let mut plain = Vec::with_capacity(100);
        assert_eq!(client.open(&mut &to_client[..], &mut plain, &mut Vec::new()), Opened::Need);
        assert_eq!(plain, b"response");
        let info = client.info();
        assert_eq!(info.verification, Verified::Sound);
        assert_eq!(info.protocol.as_deref(), Some(&b"http/1.1"[..]));
        let certificate = Certificate::from_der(&client.peer_certificate().unwrap()).unwrap();
        assert!(certificate.is_for("www.example.com"));
    }
}

/// Both sides of this crate, connected; the server has sent something.
fn connected(
    server: &Arc<Context>,
    client: &Arc<Context>,
    session: Option<&[u8]>,
) -> (TlsSession, TlsSession) {
    let mut client = AwsLc::connect(client, Target { session, ..NAME }).unwrap();
    let mut to_server = Vec::new();
    assert_eq!(client.step(&mut &[][..], &mut to_server), Step::Need);
    let hello = HelloReader::default().read(&to_server).unwrap().unwrap();
    let mut server = AwsLc::accept(server, &hello, Given::default()).unwrap();
    let mut to_client = Vec::new();
    let (mut at_server, mut at_client) = (Step::Need, Step::Need);
    while at_server == Step::Need || at_client == Step::Need {
        at_server = server.step(&mut &std::mem::take(&mut to_server)[..], &mut to_client);
        if at_client == Step::Need {
            at_client = client.step(&mut &std::mem::take(&mut to_client)[..], &mut to_server);
        }
    }
    assert_eq!((at_server, at_client), (Step::Done, Step::Done));
    server.seal(&[IoSlice::new(b"response")], 16_384, &mut to_client).unwrap();
    let mut plain = Vec::with_capacity(100);
    assert_eq!(client.open(&mut &to_client[..], &mut plain, &mut to_server), Opened::Need);
    assert_eq!(plain, b"response");
    (server, client)
}

/// A server that gives tickets under a known key, and a client.
fn with_tickets(version: Version) -> (Arc<Context>, Arc<Context>) {
    let key = TicketKey::from_file(&[1; 80]).unwrap();
    let tickets = Tickets::Ring(Arc::new(KeyRing::new(vec![key]).unwrap()));
    let plan = Plan { tickets, versions: Versions::none().and(version), ..plan(ECDSA) };
    (context(plan), context(client_plan()))
}

#[test]
fn sessions_are_taken_up_by_clients() {
    for version in [Version::Tls12, Version::Tls13] {
        let (server, client) = with_tickets(version);
        let (_, mut first) = connected(&server, &client, None);
        assert!(!first.info().is_resumed);
        let kept = first.take_kept();
        let (at_server, again) = connected(&server, &client, Some(&kept[0].content));
        assert!(again.info().is_resumed && at_server.info().is_resumed);
        let (_, without) = connected(&server, &client, Some(b"none"));
        assert!(!without.info().is_resumed);
    }
}

/// Wherever a ticket was changed: it is none, and the handshake a full one.
#[test]
fn changed_tickets_are_full_handshakes() {
    const NAME: [u8; 16] = [1; 16];
    for version in [Version::Tls12, Version::Tls13] {
        let (server, client) = with_tickets(version);
        let (_, mut first) = connected(&server, &client, None);
        let content = first.take_kept().remove(0).content;
        let at = content.windows(NAME.len()).position(|part| part == NAME).expect("the key's name");
        for place in (0..120).step_by(7) {
            let mut changed = content.clone();
            changed[at + place] ^= 0x10;
            let (at_server, again) = connected(&server, &client, Some(&changed));
            assert!(!again.info().is_resumed && !at_server.info().is_resumed, "{version:?}, {place}");
        }
        let (_, again) = connected(&server, &client, Some(&content));
        assert!(again.info().is_resumed);
    }
}

#[test]
fn a_server_that_nobody_has_vouched_for_is_told() {
    let mut distrustful = client_plan();
    distrustful.verification.trusted.clear();
    let (_, client) = connected(&context(plan(ECDSA)), &context(distrustful), None);
    assert_eq!(client.info().verification, Verified::Failed(21, "unable to verify the first certificate"));
}
