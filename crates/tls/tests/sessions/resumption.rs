//! Sessions that are taken up again: by tickets, by handles, by ids; and those that are not.

use std::sync::Arc;

use clearway_tls::engine::{
    EarlyData, Engine, Given, Keeping, Kept, Opened, Plan, Session, Step, Tickets, kept_key,
};
use clearway_tls::hello::HelloReader;
use clearway_tls::tickets::{KeyRing, TicketKey};
use clearway_tls::{AwsLc, Context, Pair};
use rustls::{ClientConfig, SupportedProtocolVersion};

use crate::support::{ECDSA, Ends, TLS12, TLS13, client, client_config, context, plan};

fn key(byte: u8) -> TicketKey {
    TicketKey::from_file(&[byte; 80]).unwrap()
}

fn ring(byte: u8) -> KeyRing {
    KeyRing::new(vec![key(byte)]).unwrap()
}

fn with_ring(byte: u8) -> Plan<Pair> {
    let mut plan = plan(ECDSA);
    plan.tickets = Tickets::Ring(Arc::new(ring(byte)));
    plan
}

/// Connects; whether a session was taken up.
fn resumes(context: &Arc<Context>, config: &Arc<ClientConfig>) -> bool {
    let mut ends = Ends::new(context, config);
    ends.handshake().unwrap();
    ends.assert_connected();
    ends.server.info().is_resumed
}

#[test]
fn tickets_are_taken_up_by_whoever_has_the_key() {
    for version in [TLS12, TLS13] {
        let config = Arc::new(client_config(version));
        let (one, another) = (context(with_ring(1)), context(with_ring(1)));
        assert!(!resumes(&one, &config));
        assert!(resumes(&one, &config));
        assert!(resumes(&another, &config), "of a context with the same ring");
    }
}

#[test]
fn foreign_tickets_are_full_handshakes() {
    for version in [TLS12, TLS13] {
        let config = Arc::new(client_config(version));
        assert!(!resumes(&context(with_ring(1)), &config));
        assert!(!resumes(&context(with_ring(2)), &config));
        assert!(resumes(&context(with_ring(2)), &config));
        assert!(!resumes(&context(plan(ECDSA)), &config), "of a server without tickets");
    }
}

#[test]
fn rotated_keys_open_and_new_ones_encrypt() {
    let config = Arc::new(client_config(TLS13));
    let context = context(with_ring(1));
    assert!(!resumes(&context, &config));
    let rotated = ring(1).rotated(key(2));
    context.rotate(&rotated).unwrap();
    assert!(resumes(&context, &config), "the ticket of the old key");
    context.rotate(&ring(2)).unwrap();
    assert!(resumes(&context, &config), "a ticket of the new key was given");
}

#[test]
fn as_many_tickets_as_is_said() {
    for count in [0, 3] {
        let mut plan = with_ring(1);
        plan.tickets_count = Some(count);
        let mut ends = Ends::new(&context(plan), &Arc::new(client_config(TLS13)));
        ends.handshake().unwrap();
        ends.assert_connected();
        assert_eq!(ends.client.tls13_tickets_received(), count);
    }
}

/// Connects with a request in the first flight. What the server read of it before the client's handshake was
/// over, and whether it knew.
fn early_request(context: &Arc<Context>, config: &Arc<ClientConfig>) -> (Vec<u8>, bool) {
    let mut client = client(config);
    std::io::Write::write_all(&mut client.early_data().unwrap(), b"early request").unwrap();
    let mut to_server = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut to_server).unwrap();
    }
    let hello = HelloReader::default().read(&to_server).unwrap().unwrap();
    assert!(hello.has_early_data() && hello.identity().is_some());
    let mut server = AwsLc::accept(context, &hello, Given::default()).unwrap();
    let (mut input, mut to_client) = (&to_server[..], Vec::new());
    let step = server.step(&mut input, &mut to_client);
    let mut plain = Vec::with_capacity(100);
    let mut is_early = false;
    if step == Step::Done {
        assert_eq!(server.open(&mut input, &mut plain, &mut to_client), Opened::Need);
        is_early = server.is_early();
    }
    // The client ends its handshake in either case, and the server then knows its certificate.
    client.read_tls(&mut &to_client[..]).unwrap();
    client.process_new_packets().unwrap();
    assert_eq!(client.is_early_data_accepted(), is_early);
    let mut rest = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut rest).unwrap();
    }
    let mut more = Vec::with_capacity(100);
    assert_eq!(server.open(&mut &rest[..], &mut more, &mut to_client), Opened::Need);
    assert_eq!((more.len(), server.is_early()), (0, false));
    (plain, is_early)
}

#[test]
fn early_data_is_taken_where_that_is_said() {
    for (early_data, expected) in [(EarlyData::Taken, &b"early request"[..]), (EarlyData::Refused, b"")] {
        let mut config = client_config(TLS13);
        config.enable_early_data = true;
        let config = Arc::new(config);
        // The ticket says that early data may be sent; the other server does not take it.
        let mut plan = with_ring(1);
        plan.early_data = EarlyData::Taken;
        assert!(!resumes(&context(&plan), &config));
        plan.early_data = early_data;
        let (plain, is_early) = early_request(&context(&plan), &config);
        assert_eq!((&plain[..], is_early), (expected, !expected.is_empty()));
    }
}

#[test]
fn a_session_is_good_for_its_server_alone() {
    for version in [TLS12, TLS13] {
        let config = Arc::new(client_config(version));
        let mut other = with_ring(1);
        other.scope = [1; 32];
        assert!(!resumes(&context(with_ring(1)), &config));
        assert!(!resumes(&context(other), &config));
    }
}

#[test]
fn a_level_without_tickets_gives_none() {
    let config = Arc::new(client_config(TLS13));
    let mut plan = with_ring(1);
    plan.level = clearway_tls::level::Level::new(3);
    let context = context(plan);
    assert!(!resumes(&context, &config));
    assert!(!resumes(&context, &config));
}

/// Connects with what is kept; whether a session was taken up. What is to be kept is added.
fn resumes_kept(context: &Arc<Context>, config: &Arc<ClientConfig>, kept: &mut Vec<Kept>) -> bool {
    let mut ends = Ends::with(context, config, |hello| {
        let asked = kept_key(hello);
        let at = kept.iter().position(|one| Some(one.key.as_slice()) == asked);
        Given { kept: at.map(|at| kept.remove(at)), ..Given::default() }
    });
    ends.handshake().unwrap();
    ends.assert_connected();
    kept.extend(ends.server.take_kept());
    assert!(ends.server.take_kept().is_empty(), "once each");
    ends.server.info().is_resumed
}

/// A server whose sessions are kept, the configuration of a client, and no session yet.
fn keeping(version: &'static SupportedProtocolVersion) -> (Arc<Context>, Arc<ClientConfig>, Vec<Kept>) {
    let plan = Plan { keeping: Keeping::Kept, ..plan(ECDSA) };
    (context(plan), Arc::new(client_config(version)), Vec::new())
}

#[test]
fn kept_sessions_are_taken_up_once() {
    for version in [TLS12, TLS13] {
        let (context, config, mut kept) = keeping(version);
        assert!(!resumes_kept(&context, &config, &mut kept));
        assert!(!kept.is_empty());
        assert!(kept.iter().all(|one| !one.key.is_empty() && !one.content.is_empty()));
        assert!(resumes_kept(&context, &config, &mut kept));
        kept.clear();
        assert!(!resumes_kept(&context, &config, &mut kept), "what is not kept any more");
    }
}

#[test]
fn a_session_under_another_key_is_not_taken_up() {
    for version in [TLS12, TLS13] {
        let (context, config, mut kept) = keeping(version);
        resumes_kept(&context, &config, &mut kept);
        let wrong = Kept { key: vec![0; 32], content: kept.remove(0).content };
        let mut ends = Ends::with(&context, &config, |_| Given { kept: Some(wrong), ..Given::default() });
        ends.handshake().unwrap();
        assert!(!ends.server.info().is_resumed);
    }
}

#[test]
fn kept_content_that_is_none_is_not_taken_up() {
    for version in [TLS12, TLS13] {
        let (context, config, mut kept) = keeping(version);
        resumes_kept(&context, &config, &mut kept);
        for one in &mut kept {
            one.content.truncate(40);
        }
        assert!(!resumes_kept(&context, &config, &mut kept));
    }
}
