//! Handshakes that fail, records that are none, and hellos beside what the library thinks of them.

use std::sync::Arc;

use clearway_tls::ciphers::CipherList;
use clearway_tls::engine::{Engine, Given, Opened, Session, Step, Versions};
use clearway_tls::hello::{Hello, HelloReader};
use clearway_tls::level::Version;
use clearway_tls::{AwsLc, Context, TlsSession};

use crate::support::{ECDSA, Ends, RSA, TLS12, TLS13, client_config, context, distrustful_config, plan};

/// A server's session that has seen no hello yet.
fn session(context: &Arc<Context>) -> TlsSession {
    let ends = Ends::new(context, &Arc::new(client_config(TLS13)));
    ends.server
}

#[test]
fn no_suite_in_common() {
    let mut plan = plan(ECDSA);
    plan.versions = Versions::none().and(Version::Tls12);
    plan.ciphers = CipherList::parse("ECDHE-RSA-AES128-GCM-SHA256").unwrap();
    let mut ends = Ends::new(&context(plan), &Arc::new(client_config(TLS12)));
    let failure = ends.handshake().unwrap_err();
    assert_eq!(failure.to_string(), "(SSL: error:0A0000C1:SSL routines::no shared cipher)");
}

#[test]
fn a_client_that_trusts_nobody_says_so() {
    for (version, is_late) in [(TLS12, false), (TLS13, true)] {
        let config = distrustful_config(version);
        let mut ends = Ends::new(&context(plan(RSA)), &Arc::new(config));
        let failure = match ends.handshake() {
            Err(failure) => failure,
            Ok(()) => panic!("the client trusts nobody (late: {is_late})"),
        };
        assert_eq!(
            failure.to_string(),
            "(SSL: error:0A000418:SSL routines::tlsv1 alert unknown ca:SSL alert number 48)"
        );
    }
}

#[test]
fn plain_requests_are_told_apart() {
    let context = context(plan(ECDSA));
    let mut output = Vec::new();
    let Step::Failed(failure) = session(&context).step(&mut &b"GET / HTTP/1.1\r\n\r\n"[..], &mut output)
    else {
        panic!("no handshake begins with that")
    };
    assert_eq!(failure.to_string(), "(SSL: error:0A00009C:SSL routines::http request)");
}

#[test]
fn a_changed_record_ends_the_session() {
    let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    ends.assert_connected();
    std::io::Write::write_all(&mut ends.client.writer(), b"request").unwrap();
    ends.client.write_tls(&mut ends.to_server).unwrap();
    *ends.to_server.last_mut().unwrap() ^= 1;
    let mut plain = Vec::with_capacity(100);
    let opened = ends.server.open(&mut &ends.to_server[..], &mut plain, &mut ends.to_client);
    let Opened::Failed(failure) = opened else { panic!("{opened:?}") };
    let expected = "(SSL: error:0A000119:SSL routines::decryption failed or bad record mac)";
    assert_eq!((failure.to_string().as_str(), &plain[..]), (expected, &b""[..]));
    assert!(!ends.to_client.is_empty(), "an alert");
    assert!(ends.server.seal(&[std::io::IoSlice::new(b"x")], 16_384, &mut Vec::new()).is_err());
}

#[test]
fn updates_of_keys_are_answered_once() {
    let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    ends.assert_connected();
    for _ in 0..100 {
        ends.client.refresh_traffic_keys().unwrap();
        assert_eq!(ends.send_to_server(b"request"), b"request");
        // The answer waits for the next bytes of the server, whatever number of updates it is for.
        assert!(ends.to_client.len() < 64, "{} bytes", ends.to_client.len());
    }
    assert_eq!(ends.send_to_client(&[b"response"], 16_384), b"response");
}

#[test]
fn a_flood_of_updates_of_keys_ends_the_session() {
    let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    ends.assert_connected();
    for _ in 0..1_000 {
        ends.client.refresh_traffic_keys().unwrap();
    }
    while ends.client.wants_write() {
        ends.client.write_tls(&mut ends.to_server).unwrap();
    }
    let (mut rest, mut plain) = (&ends.to_server[..], Vec::with_capacity(100));
    let opened = ends.server.open(&mut rest, &mut plain, &mut ends.to_client);
    let Opened::Failed(failure) = opened else { panic!("{opened:?}") };
    assert_eq!(failure.to_string(), "(SSL: error:0A000084:SSL routines::too many key updates)");
    assert!(failure.reasons[0].is_of_peer() && !rest.is_empty());
    let sent = std::mem::take(&mut ends.to_client);
    ends.client.read_tls(&mut &sent[..]).unwrap();
    let told = ends.client.process_new_packets().unwrap_err().to_string();
    assert!(told.contains("UnexpectedMessage"), "{told}");
    assert!(ends.server.seal(&[std::io::IoSlice::new(b"x")], 16_384, &mut Vec::new()).is_err());
}

/// A generator whose numbers are always the same.
struct Draws(u64);

impl Draws {
    fn next(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }
}

/// What the library makes of a hello.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Answered,
    Incomplete,
    Refused(String),
}

fn library_on(context: &Arc<Context>, any: &Hello, received: &[u8]) -> Verdict {
    let mut session = AwsLc::accept(context, any, Given::default()).unwrap();
    let mut output = Vec::new();
    match session.step(&mut &received[..], &mut output) {
        Step::Need if output.is_empty() => Verdict::Incomplete,
        Step::Need => Verdict::Answered,
        Step::Failed(failure) => Verdict::Refused(failure.to_string()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_the_parser_refuses_the_library_refuses() {
    let mut with_protocols = plan(ECDSA);
    with_protocols.protocols = vec![b"http/1.1".to_vec()];
    let context = context(with_protocols);
    let mut draws = Draws(1);
    let mut counts = [0; 3];
    for version in [TLS12, TLS13] {
        let mut config = client_config(version);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let hello = Ends::new(&context, &Arc::new(config)).to_server;
        let any = HelloReader::default().read(&hello).unwrap().unwrap();
        assert_eq!(library_on(&context, &any, &hello), Verdict::Answered);
        for _ in 0..1_500 {
            let mut changed = hello.clone();
            for _ in 0..=draws.next(2) {
                let at = draws.next(changed.len());
                match draws.next(3) {
                    0 => changed[at] = changed[at].wrapping_add(1),
                    1 => changed[at] = u8::try_from(draws.next(256)).unwrap(),
                    _ => changed[at] = 0,
                }
            }
            let parsed = HelloReader::default().read(&changed);
            let verdict = library_on(&context, &any, &changed);
            match (parsed, &verdict) {
                (Err(error), Verdict::Answered) => panic!("{error} in {changed:x?}"),
                (Err(_), _) => counts[0] += 1,
                (Ok(None), Verdict::Incomplete | Verdict::Refused(_)) => {}
                (Ok(Some(_)), Verdict::Answered) => counts[1] += 1,
                (Ok(Some(_)), Verdict::Refused(why)) => {
                    assert_ne!(why, "", "{changed:x?}");
                    counts[2] += 1;
                }
                (parsed, verdict) => panic!("{parsed:?}, {verdict:?} of {changed:x?}"),
            }
        }
    }
    // Changes of each kind: refused by both, by none, by the library alone (a key, no suite in common).
    assert!(counts.iter().all(|&count| count > 50), "{counts:?}");
}
