//! Certificates of clients: what is wrong with one is found, and the handshake goes on.

use std::sync::Arc;

use clearway_tls::Chain;
use clearway_tls::engine::{Asking, ClientCheck, Given, Session, Tickets, Verification, Verified};
use clearway_tls::tickets::{KeyRing, TicketKey};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::support::{
    CA, CLIENT, ECDSA, Ends, TLS12, TLS13, client_config, client_config_with_certificate, context, plan,
};

const OTHER: &[u8] = include_bytes!("../data/other.pem");
const REVOKED: &[u8] = include_bytes!("../data/revoked.pem");

fn verification(authorities: &[u8]) -> Verification {
    Verification {
        asking: Asking::On,
        authorities: authorities.to_vec(),
        depth: 1,
        ..Verification::default()
    }
}

fn verified(verification: Verification, config: rustls::ClientConfig) -> (Verified, Option<Vec<u8>>) {
    let mut plan = plan(ECDSA);
    plan.verification = verification;
    let mut ends = Ends::new(&context(plan), &Arc::new(config));
    ends.handshake().unwrap();
    ends.assert_connected();
    (ends.server.info().verification, ends.server.peer_certificate())
}

#[test]
fn certificates_are_checked() {
    for version in [TLS12, TLS13] {
        let (found, certificate) = verified(verification(CA), client_config_with_certificate(version));
        assert_eq!(found, Verified::Sound);
        assert_eq!(certificate.unwrap(), CertificateDer::from_pem_slice(CLIENT.0).unwrap().as_ref());
        let (found, certificate) = verified(verification(CA), client_config(version));
        assert_eq!((found, certificate), (Verified::None, None));
    }
}

#[test]
fn what_is_wrong_is_said_in_openssls_words() {
    for version in [TLS12, TLS13] {
        let mut strangers = verification(OTHER);
        // The server names no issuers, so the client sends its certificate, whatever its issuer is.
        strangers.trusted = std::mem::take(&mut strangers.authorities);
        let (found, _) = verified(strangers, client_config_with_certificate(version));
        assert_eq!(found, Verified::Failed(21, "unable to verify the first certificate"));
        let mut revoking = verification(CA);
        revoking.revoked = REVOKED.to_vec();
        let (found, _) = verified(revoking, client_config_with_certificate(version));
        assert_eq!(found, Verified::Failed(23, "certificate revoked"));
    }
}

#[test]
fn a_session_that_is_taken_up_has_its_certificate() {
    for version in [TLS12, TLS13] {
        let mut plan = plan(ECDSA);
        plan.verification = verification(CA);
        let key = TicketKey::from_file(&[1; 48]).unwrap();
        plan.tickets = Tickets::Ring(Arc::new(KeyRing::new(vec![key]).unwrap()));
        let (context, config) = (context(plan), Arc::new(client_config_with_certificate(version)));
        for is_resumed in [false, true] {
            let mut ends = Ends::new(&context, &config);
            ends.handshake().unwrap();
            ends.assert_connected();
            let info = ends.server.info();
            assert_eq!((info.is_resumed, info.verification), (is_resumed, Verified::Sound));
            assert!(ends.server.peer_certificate().is_some());
        }
    }
}

/// In place of what the context says, which is nothing.
#[test]
fn one_client_may_be_checked_otherwise() {
    let chain = |pem: &[u8]| -> Option<Arc<dyn std::any::Any + Send + Sync>> {
        Some(Arc::new(Chain::read(pem).unwrap()))
    };
    let check = |authorities, trusted| ClientCheck { authorities, trusted, depth: Some(1) };
    for version in [TLS12, TLS13] {
        let verified = |check: Option<ClientCheck>, config: rustls::ClientConfig| {
            let given = |_: &_| Given { check, ..Given::default() };
            let mut ends = Ends::with(&context(plan(ECDSA)), &Arc::new(config), given);
            ends.handshake().unwrap();
            ends.assert_connected();
            ends.server.info().verification
        };
        let with_certificate = || client_config_with_certificate(version);
        assert_eq!(verified(None, with_certificate()), Verified::None);
        assert_eq!(verified(Some(check(chain(CA), None)), with_certificate()), Verified::Sound);
        assert_eq!(verified(Some(check(None, chain(CA))), with_certificate()), Verified::Sound);
        assert_eq!(verified(Some(check(chain(CA), None)), client_config(version)), Verified::None);
        let unknown = Verified::Failed(21, "unable to verify the first certificate");
        assert_eq!(verified(Some(check(None, chain(OTHER))), with_certificate()), unknown);
        assert_eq!(verified(Some(ClientCheck::default()), with_certificate()), unknown);
    }
}

#[test]
fn files_that_hold_no_certificate_are_refused() {
    let refused = |change: fn(&mut Verification)| {
        let mut plan = plan(ECDSA);
        plan.verification = verification(CA);
        change(&mut plan.verification);
        clearway_tls::Context::new(&plan).map(|_| ()).unwrap_err().call
    };
    assert_eq!(refused(|one| one.authorities = b"none".to_vec()), "PEM_read_bio_X509_AUX()");
    assert_eq!(refused(|one| one.revoked = b"none".to_vec()), "PEM_read_bio_X509_CRL()");
}
