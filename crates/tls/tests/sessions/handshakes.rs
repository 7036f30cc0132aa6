//! Full handshakes, and bytes behind them.

use std::sync::Arc;

use clearway_tls::AwsLc;
use clearway_tls::engine::{Compression, Engine, Given, Preference, Session, Step, Verified, Versions};
use clearway_tls::hello::HelloReader;
use clearway_tls::level::{Level, Version};

use rustls::crypto::ring::cipher_suite;

use crate::support::{
    ECDSA, Ends, Pieces, RSA, TLS12, TLS13, client_config, client_config_with_suite, context, pair, plan,
};

#[test]
fn versions_and_certificates() {
    for (version, name) in [(TLS12, Version::Tls12), (TLS13, Version::Tls13)] {
        for files in [ECDSA, RSA] {
            let context = context(plan(files));
            let mut ends = Ends::new(&context, &Arc::new(client_config(version)));
            ends.handshake().unwrap();
            ends.assert_connected();
            let info = ends.server.info();
            assert_eq!(info.version, Some(name));
            assert_ne!(info.group, 0);
            assert_eq!((info.verification, info.is_resumed), (Verified::None, false));
            let suite = info.suite.unwrap();
            let kind = if files == RSA { "ECDHE-RSA-" } else { "ECDHE-ECDSA-" };
            assert!(
                suite.starts_with(if version.version == TLS13.version { "TLS_" } else { kind }),
                "{suite}"
            );
        }
    }
}

#[test]
fn of_two_certificates_clients_get_one_that_they_can_check() {
    let mut plan = plan(RSA);
    plan.pairs.push(pair(ECDSA));
    plan.versions = Versions::none().and(Version::Tls12);
    let context = context(plan);
    let of_rsa = cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
    let of_ecdsa = cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    let names = ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    for (suite, name) in [of_rsa, of_ecdsa].into_iter().zip(names) {
        let config = client_config_with_suite(TLS12, suite);
        let mut ends = Ends::new(&context, &Arc::new(config));
        ends.handshake().unwrap();
        ends.assert_connected();
        assert_eq!(ends.server.info().suite, Some(name));
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    for version in [TLS12, TLS13] {
        let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(version)));
        ends.pieces = Pieces::Bytes;
        ends.handshake().unwrap();
        ends.assert_connected();
    }
}

#[test]
fn a_hello_may_come_in_records_of_a_byte() {
    for version in [TLS12, TLS13] {
        let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(version)));
        let content = ends.to_server.split_off(5);
        ends.to_server = content.iter().flat_map(|&byte| [22, 3, 1, 0, 1, byte]).collect();
        assert!(HelloReader::default().read(&ends.to_server).unwrap().is_some());
        ends.handshake().unwrap();
        ends.assert_connected();
    }
}

#[test]
fn sessions_go_from_thread_to_thread() {
    let mut ends = Ends::new(&context(plan(RSA)), &Arc::new(client_config(TLS13)));
    for _ in 0..2 {
        // A scope joins its threads: each step is on another one.
        ends = std::thread::scope(|scope| {
            let step = scope.spawn(move || {
                let sent = std::mem::take(&mut ends.to_server);
                ends.server.step(&mut &sent[..], &mut ends.to_client);
                ends
            });
            step.join().unwrap()
        });
        ends.deliver();
        ends.client.write_tls(&mut ends.to_server).unwrap();
    }
    ends.assert_connected();
}

#[test]
fn large_bodies_and_small_records() {
    let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    let body: Vec<u8> = (0..300_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    assert_eq!(ends.send_to_server(&body), body);
    for record in [1, 512, 4_096, 16_384, usize::MAX] {
        let (one, other) = body.split_at(1_000);
        assert_eq!(ends.send_to_client(&[b"head", b"", one, other, b"end"], record), {
            [b"head", one, other, b"end"].concat()
        });
    }
}

#[test]
fn records_are_as_long_as_is_said() {
    let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    ends.to_client.clear();
    let parts = [&[1_u8; 100][..], &[2; 3_900], &[3; 8_192], &[4; 10]].map(std::io::IoSlice::new);
    ends.server.seal(&parts, 4_096, &mut ends.to_client).unwrap();
    let mut lengths = Vec::new();
    let mut rest = &ends.to_client[..];
    while let Some((head, behind)) = rest.split_first_chunk::<5>() {
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        // Type and tag.
        lengths.push(length - 17);
        rest = &behind[length..];
    }
    assert_eq!(lengths.iter().sum::<usize>(), 12_202);
    assert!(lengths.iter().all(|&length| length <= 4_096), "{lengths:?}");
    assert_eq!(lengths.len(), 3);
}

#[test]
fn protocols_are_the_servers_choice() {
    let mut plan = plan(ECDSA);
    plan.protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let context = context(plan);
    let mut config = client_config(TLS13);
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let mut ends = Ends::new(&context, &Arc::new(config.clone()));
    ends.handshake().unwrap();
    assert_eq!(ends.server.info().protocol.as_deref(), Some(&b"h2"[..]));
    config.alpn_protocols = vec![b"gopher".to_vec()];
    let failure = Ends::new(&context, &Arc::new(config)).handshake().unwrap_err();
    assert_eq!(failure.to_string(), "(SSL: error:0A0000EB:SSL routines::no application protocol)");
}

#[test]
fn the_order_of_suites_is_the_strings() {
    let mut plan = plan(ECDSA);
    plan.preference = Preference::Server;
    plan.versions = Versions::none().and(Version::Tls12);
    for string in ["ECDHE-ECDSA-CHACHA20-POLY1305:HIGH", "ECDHE-ECDSA-AES128-GCM-SHA256:HIGH"] {
        plan.ciphers = clearway_tls::ciphers::CipherList::parse(string).unwrap();
        let mut ends = Ends::new(&context(&plan), &Arc::new(client_config(TLS12)));
        ends.handshake().unwrap();
        assert_eq!(ends.server.info().suite, string.split(':').next());
    }
}

#[test]
fn certificates_of_one_connection() {
    let config = Arc::new(client_config(TLS13));
    let given = |_: &_| Given { pairs: vec![pair(RSA)], ..Given::default() };
    let mut ends = Ends::with(&context(plan(ECDSA)), &config, given);
    ends.handshake().unwrap();
    ends.assert_connected();
    let mut without = plan(ECDSA);
    without.pairs.clear();
    let mut ends = Ends::with(&context(without), &config, given);
    ends.handshake().unwrap();
    ends.assert_connected();
}

#[test]
fn versions_that_the_level_refuses_are_not_spoken() {
    let mut plan = plan(ECDSA);
    plan.versions = Versions::none().and(Version::Tls10).and(Version::Tls12);
    let strict = context(&plan);
    assert_eq!(strict.version_with([0x0301].into_iter()), None);
    plan.level = Level::new(0);
    let lax = context(plan);
    assert_eq!(lax.version_with([0x0301].into_iter()), Some(Version::Tls10));
    let failure = Ends::new(&strict, &Arc::new(client_config(TLS13))).handshake().unwrap_err();
    assert_eq!(failure.to_string(), "(SSL: error:0A000102:SSL routines::unsupported protocol)");
}

#[test]
fn names_that_the_library_does_not_know_are_refused() {
    let mut plan = plan(ECDSA);
    plan.signatures = Some("nonsense".to_owned());
    assert_eq!(AwsLc::context(&plan).map(|_| ()).unwrap_err().call, "SSL_CTX_set1_sigalgs_list()");
    plan.signatures = Some("ECDSA+SHA256:RSA-PSS+SHA256".to_owned());
    plan.groups = Some("P-256:X25519".to_owned());
    let mut ends = Ends::new(&context(&plan), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    plan.groups = Some("prime256v1:nonsense".to_owned());
    assert_eq!(AwsLc::context(&plan).map(|_| ()).unwrap_err().call, "SSL_CTX_set1_curves_list()");
}

#[test]
fn certificates_may_be_compressed() {
    let mut plan = plan(RSA);
    // The same one, several times: a chain.
    plan.pairs = vec![pair((&RSA.0.repeat(4), RSA.1))];
    let sent = |plan: &_| {
        let context = context(plan);
        let lengths = [(); 2].map(|()| {
            // This client takes zlib.
            let mut ends = Ends::new(&context, &Arc::new(client_config(TLS13)));
            let hello = std::mem::take(&mut ends.to_server);
            ends.server.step(&mut &hello[..], &mut ends.to_client);
            let length = ends.to_client.len();
            ends.deliver();
            ends.client.write_tls(&mut ends.to_server).unwrap();
            ends.handshake().unwrap();
            ends.assert_connected();
            length
        });
        assert!(lengths[0].abs_diff(lengths[1]) < 16);
        lengths[0]
    };
    let plain = sent(&plan);
    plan.compression = Compression::Zlib;
    let compressed = sent(&plan);
    assert!(compressed + 1_500 < plain, "{compressed} of {plain} bytes");
}

#[test]
fn a_client_that_closes_has_closed() {
    let mut ends = Ends::new(&context(plan(ECDSA)), &Arc::new(client_config(TLS13)));
    ends.handshake().unwrap();
    ends.assert_connected();
    ends.client.send_close_notify();
    ends.client.write_tls(&mut ends.to_server).unwrap();
    let mut plain = Vec::with_capacity(100);
    let opened = ends.server.open(&mut &ends.to_server[..], &mut plain, &mut ends.to_client);
    assert_eq!(opened, clearway_tls::engine::Opened::Closed);
    ends.server.close(&mut ends.to_client);
    assert!(!ends.to_client.is_empty());
    let sent = std::mem::take(&mut ends.to_client);
    ends.client.read_tls(&mut &sent[..]).unwrap();
    assert!(ends.client.process_new_packets().unwrap().peer_has_closed());
    let mut session = ends.server;
    assert!(matches!(session.step(&mut &[][..], &mut Vec::new()), Step::Done | Step::Closed));
}

#[test]
fn both_sides_have_secrets_in_common() {
    let suites = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256";
    for (version, own) in [(TLS12, Version::Tls12), (TLS13, Version::Tls13)] {
        let mut plan = plan(ECDSA);
        plan.ciphers = clearway_tls::ciphers::CipherList::parse(suites).unwrap();
        plan.versions = Versions::none().and(own);
        let mut random = Vec::new();
        let mut ends = Ends::with(&context(plan), &Arc::new(client_config(version)), |hello| {
            random = hello.random().to_vec();
            Given::default()
        });
        ends.handshake().unwrap();
        ends.assert_connected();
        for context in [None, Some(&b"for whom"[..]), Some(b"")] {
            let known = ends.client.export_keying_material([0; 40], b"EXPORTER-what", context).unwrap();
            assert_eq!(ends.server.export(b"EXPORTER-what", context, 40).as_deref(), Some(&known[..]));
            assert_ne!(ends.server.export(b"EXPORTER-other", context, 40).as_deref(), Some(&known[..]));
        }
        // What HKDF gives is bounded.
        assert_eq!(ends.server.export(b"EXPORTER-what", None, 1 << 20).is_some(), own == Version::Tls12);
        let secrets = ends.server.secrets();
        assert_eq!(secrets.client_random, random);
        assert_eq!(secrets.server_random.len(), 32);
        assert!(secrets.server_random != random && secrets.master_key.len() >= 32);
        let suites = ends.server.suites();
        match own {
            Version::Tls12 => assert_eq!(suites, [0xc02b, 0xc02f]),
            _ => assert!(suites.iter().all(|suite| suite >> 8 == 0x13) && suites.len() == 3, "{suites:x?}"),
        }
    }
}
