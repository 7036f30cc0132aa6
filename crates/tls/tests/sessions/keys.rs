//! Certificates and keys as files hold them, and what is said of those that cannot be used.

use clearway_tls::engine::{Engine, LoadError};
use clearway_tls::level::{Digest, Key, Level};
use clearway_tls::{AwsLc, Certificate, NameOf, Pair};

use crate::support::{CA, CLIENT, ECDSA, RSA, pair, plan};

const TRADITIONAL: &[u8] = include_bytes!("../data/rsa-traditional.key");
const PKCS8: &[u8] = include_bytes!("../data/rsa-pkcs8.key");
const WITH_PARAMETERS: &[u8] = include_bytes!("../data/ecdsa-with-parameters.key");
const WEAK: (&[u8], &[u8]) = (include_bytes!("../data/weak.pem"), include_bytes!("../data/weak.key"));

/// What `openssl x509` says of the client's certificate.
const SERIAL: &[u8] = b"21113E31C684EBE93CCC62A4DE27681EA75B4973";
const FINGERPRINT: &str = "de54480ec6ba78ae6406c71ef56a771a4055d636";
const BEGINS: &str = "Jan  1 00:00:00 2020 GMT";
const ENDS: &str = "Jan  1 00:00:00 2120 GMT";
const ENDS_AT_S: i64 = 4733510400;

fn refused(certificates: &[u8], key: &[u8], passwords: &[Vec<u8>]) -> LoadError {
    Pair::read(certificates, key, passwords).map(|_| ()).unwrap_err()
}

#[test]
fn passwords_are_tried_in_their_order() {
    let passwords = [b"first".to_vec(), b"second".to_vec()];
    for key in [TRADITIONAL, PKCS8] {
        assert!(Pair::read(RSA.0, key, &passwords).is_ok());
        assert!(Pair::read(RSA.0, key, &passwords[1..]).is_ok());
        let error = refused(RSA.0, key, &passwords[..1]);
        assert_eq!(error.call, "PEM_read_bio_PrivateKey()");
        assert!(error.to_string().contains("::bad decrypt"), "{error}");
        let error = refused(RSA.0, key, &[]);
        assert!(!error.reasons.is_empty(), "{error}");
    }
}

#[test]
fn files_may_hold_more_than_the_key() {
    assert!(Pair::read(ECDSA.0, WITH_PARAMETERS, &[]).is_ok());
    let with_text = [b"Bag Attributes\n  any\n", ECDSA.0].concat();
    assert!(Pair::read(&with_text, ECDSA.1, &[]).is_ok());
    let both = [ECDSA.0, ECDSA.1].concat();
    assert!(Pair::read(&both, &both, &[]).is_ok());
    let trusted =
        String::from_utf8(ECDSA.0.to_vec()).unwrap().replace(" CERTIFICATE", " TRUSTED CERTIFICATE");
    assert!(Pair::read(trusted.as_bytes(), ECDSA.1, &[]).is_ok());
}

#[test]
fn what_is_none_is_refused_in_openssls_words() {
    let error = refused(b"", ECDSA.1, &[]);
    assert_eq!(
        error.to_string(),
        "PEM_read_bio_X509_AUX() failed (SSL: error:0480006C:PEM routines::no start line)"
    );
    let error = refused(ECDSA.0, b"", &[]);
    assert_eq!(error.call, "PEM_read_bio_PrivateKey()");
    let broken = [ECDSA.0, b"-----BEGIN CERTIFICATE-----\nnone\n-----END CERTIFICATE-----\n"].concat();
    assert_eq!(refused(&broken, ECDSA.1, &[]).call, "PEM_read_bio_X509()");
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let mut plan = plan(ECDSA);
    plan.pairs = vec![pair((ECDSA.0, CLIENT.1))];
    let error = AwsLc::context(&plan).map(|_| ()).unwrap_err();
    let reason = "error:05800074:x509 certificate routines::key values mismatch";
    assert_eq!(error.to_string(), format!("SSL_CTX_use_PrivateKey() failed (SSL: {reason})"));
}

#[test]
fn weak_keys_are_refused_by_level() {
    let mut plan = plan(WEAK);
    let error = AwsLc::context(&plan).map(|_| ()).unwrap_err();
    let expected = "SSL_CTX_use_certificate() failed (SSL: error:0A00018F:SSL routines::ee key too small)";
    assert_eq!(error.to_string(), expected);
    plan.level = Level::new(0);
    assert!(AwsLc::context(&plan).is_ok());
}

#[test]
fn a_certificate_says_what_it_is() {
    let certificate = &Certificate::read_all(CLIENT.0).unwrap()[0];
    let name = certificate.distinguished_name(NameOf::Issuer).unwrap();
    assert_eq!(String::from_utf8(name).unwrap(), "CN=Test CA,O=Clearway tests,C=DE");
    let legacy = certificate.legacy_name(NameOf::Issuer).unwrap();
    assert_eq!(String::from_utf8(legacy).unwrap(), "/C=DE/O=Clearway tests/CN=Test CA");
    let name = certificate.distinguished_name(NameOf::Subject).unwrap();
    let name = String::from_utf8(name).unwrap();
    assert!(name.starts_with("CN=client 1,O=Gr\\C3") && name.ends_with("\\, Inc.,C=DE"), "{name}");
    assert_eq!((certificate.key(), certificate.signature()), (Key::Curve(256), Some(Digest::Sha256)));
    assert_eq!(certificate.to_pem().unwrap(), CLIENT.0);
    assert_eq!(certificate.serial().unwrap(), SERIAL);
    let fingerprint: String = certificate.fingerprint().unwrap().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(fingerprint, FINGERPRINT);
    assert_eq!(String::from_utf8(certificate.begins().unwrap()).unwrap(), BEGINS);
    assert_eq!(String::from_utf8(certificate.ends().unwrap()).unwrap(), ENDS);
    assert_eq!(certificate.ends_at_s(), Some(ENDS_AT_S));
    let again = Certificate::from_der(&certificate.to_der().unwrap()).unwrap();
    assert_eq!(again.to_pem().unwrap(), CLIENT.0);
    assert!(Certificate::from_der(b"none").is_none());
    assert!(certificate.is_for("www.example.com") && !certificate.is_for("example.com"));
    assert!(!certificate.is_for("") && !certificate.is_for("client 1"), "it has an alternative name");
    assert_eq!(Certificate::read_all(CA).unwrap()[0].signature(), None, "it has signed itself");
}

#[test]
fn several_certificates_of_a_file() {
    let both = [ECDSA.0, CA].concat();
    assert_eq!(Certificate::read_all(&both).unwrap().len(), 2);
}
