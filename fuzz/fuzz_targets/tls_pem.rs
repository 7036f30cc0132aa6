//! Any file for a certificate, a key, authorities or lists of revoked certificates: it is refused with a
//! reason or read, and what was read is the same when it is written and read again.
#![no_main]

use clearway_tls::files::{PairNames, load_revoked, load_trusted, passwords};
use clearway_tls::{Certificate, Chain, NameOf, Pair, PrivateKey};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    if let Ok(all) = Certificate::read_all(input) {
        all.iter().for_each(look_at);
    }
    let _ = Chain::read(input).map_err(|error| assert_ne!(error.to_string(), ""));
    let words = [b"secret".to_vec()];
    if let Ok(key) = PrivateKey::read(input, &words) {
        let _ = key.was_encrypted();
    }
    if let Ok(pair) = Pair::read(input, input, &words) {
        let _ = pair.is_matched();
    }
    let mut read = |_: &[u8]| Ok(input.to_vec());
    let _ = load_trusted(b"/file", &mut read).map_err(|said| assert!(said.starts_with("cannot load ")));
    let _ = load_revoked(b"/file", &mut read).map_err(|said| assert!(said.starts_with("cannot load ")));
    let names = PairNames { certificate: b"/file", key: b"/file" };
    let _ = names.load(&words, &mut read).map_err(|said| assert!(said.starts_with("cannot load ")));
    let _ = passwords(input).map(|all| assert!(!all.is_empty()));
});

fn look_at(one: &Certificate) {
    let _ = (one.key(), one.signature(), one.serial(), one.fingerprint());
    let _ = (one.begins(), one.ends(), one.ends_at_s(), one.is_for("www.example.com"));
    for of in [NameOf::Subject, NameOf::Issuer] {
        let _ = (one.distinguished_name(of), one.legacy_name(of));
    }
    let der = one.to_der().expect("what was read can be written");
    let again = Certificate::from_der(&der).expect("what was written can be read");
    assert_eq!(again.to_der(), Some(der));
    assert_eq!(one.to_pem(), again.to_pem());
}
