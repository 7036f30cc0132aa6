//! What authorities say of certificates: questions, answers that hold and those that do not, and clients that
//! are told.

use std::sync::Arc;

use clearway_tls::ciphers::CipherList;
use clearway_tls::engine::{Plan, Stapling};
use clearway_tls::ocsp::{self, Good, Subject, Trust};
use clearway_tls::{Context, Pair};

macro_rules! data {
    ($name:literal) => {
        &include_bytes!(concat!("../data/", $name))[..]
    };
}

/// 1 January 2150.
const FAR_S: i64 = 5_680_281_600;

fn pair(certificates: &[u8]) -> Arc<Pair> {
    Arc::new(Pair::read(certificates, data!("ocsp.key"), &[]).expect("it is sound"))
}

/// A context that trusts these certificates.
fn context(pair: &Arc<Pair>, trusted: &[u8]) -> Arc<Context> {
    let ciphers = CipherList::parse("HIGH").expect("it is one");
    let mut plan = Plan::new(ciphers, vec![Arc::clone(pair)]);
    plan.stapling = Stapling::On;
    plan.verification.trusted = trusted.to_vec();
    Context::new(&plan).expect("it is sound")
}

fn subject(trusted: &[u8], trust: Trust) -> Subject {
    let pair = pair(data!("ocsp.pem"));
    Subject::find(&pair, &context(&pair, trusted), trust).expect("its issuer is behind it")
}

#[test]
fn issuers_are_found_behind_a_certificate_or_among_trusted_ones() {
    let alone = Certificate::first(data!("ocsp.pem"));
    let pair = pair(&alone);
    assert!(Subject::find(&pair, &context(&pair, b""), Trust::Any).is_none());
    let found =
        Subject::find(&pair, &context(&pair, data!("ocsp-ca.pem")), Trust::Any).expect("it is trusted");
    // As with nginx, an answer that does not bring its signer along wants that behind the certificate.
    let said = found.judge(data!("ocsp-good.der")).unwrap_err().to_string();
    let expected =
        "OCSP_basic_verify() failed (SSL: error:13800076:OCSP routines::signer certificate not found)";
    assert_eq!(said, expected);
    let url = ocsp::responder_of(pair.certificate());
    assert_eq!(url.as_deref(), Some(&b"http://127.0.0.1:18083/ocsp"[..]));
}

struct Certificate;

impl Certificate {
    /// The first one of a text in PEM.
    fn first(pem: &[u8]) -> Vec<u8> {
        const END: &[u8] = b"-----END CERTIFICATE-----\n";
        let at = pem.windows(END.len()).position(|part| part == END).expect("it has one");
        pem[..at + END.len()].to_vec()
    }
}

#[test]
fn a_question_is_about_one_certificate() {
    let question = subject(b"", Trust::Any).question().expect("it can be asked");
    // A sequence that ends with the number of the certificate, 2.
    assert_eq!((question[0], &question[question.len() - 3..]), (0x30, &[2, 1, 2][..]));
}

#[test]
fn answers_are_judged() {
    let subject = subject(b"", Trust::Any);
    assert_eq!(subject.judge(data!("ocsp-good.der")), Ok(Good { until_s: Some(FAR_S) }));
    assert_eq!(subject.judge(data!("ocsp-lasting.der")), Ok(Good { until_s: None }));
    let said = |answer: &[u8]| subject.judge(answer).unwrap_err().to_string();
    assert_eq!(said(data!("ocsp-revoked.der")), "certificate status \"revoked\" in the OCSP response");
    assert_eq!(said(data!("ocsp-other.der")), "certificate status not found in the OCSP response");
    assert_eq!(said(data!("ocsp-later.der")), "OCSP response not successful (3: trylater)");
    assert_eq!(
        said(data!("ocsp-expired.der")),
        "OCSP_check_validity() failed (SSL: error:1380007D:OCSP routines::status expired)"
    );
    assert!(said(b"nothing").starts_with("d2i_OCSP_RESPONSE() failed (SSL: error:"));
}

#[test]
fn who_answers_is_checked_if_that_is_wanted() {
    let trusting = subject(data!("ocsp-ca.pem"), Trust::Verified);
    assert!(trusting.judge(data!("ocsp-good.der")).is_ok());
    let mut forged = data!("ocsp-good.der").to_vec();
    *forged.last_mut().expect("it has bytes") ^= 1;
    assert!(subject(b"", Trust::Any).judge(&forged).is_err());
}

#[test]
fn answers_of_files_are_sent_as_they_are() {
    assert_eq!(ocsp::read_answer(data!("ocsp-revoked.der")).as_deref(), Ok(data!("ocsp-revoked.der")));
    assert!(ocsp::read_answer(b"nothing").is_err());
}
