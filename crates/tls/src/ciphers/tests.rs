//! What strings mean, beside what OpenSSL 3.0 said of them: recorded, and asked where it is installed.

use std::process::Command;

use super::*;

/// A string in a line, and in the next one what `openssl ciphers` said: numbers of suites, or `!` and why it
/// refused.
const RECORDED: &str = include_str!("../../tests/recorded/ciphers.txt");

/// Words and signs of which strings are made up.
const WORDS: [&str; 34] = [
    "ALL",
    "HIGH",
    "FIPS",
    "kRSA",
    "aRSA",
    "ECDHE",
    "EECDH",
    "DHE",
    "EDH",
    "AES",
    "AES128",
    "AES256",
    "AESGCM",
    "AESCCM",
    "CHACHA20",
    "CAMELLIA",
    "SHA",
    "SHA256",
    "SHA384",
    "MD5",
    "aNULL",
    "eNULL",
    "PSK",
    "SRP",
    "DSS",
    "ECDSA",
    "SSLv3",
    "TLSv1",
    "TLSv1.2",
    "AES128-SHA",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "COMPLEMENTOFDEFAULT",
    "CBC",
    "unknown",
];
const SIGNS: [&str; 7] = ["", "", "", "+", "-", "!", "@STRENGTH:"];

fn numbers(text: &str) -> Result<Vec<u16>, CipherError> {
    CipherList::parse(text).map(|list| list.suites().iter().map(|suite| suite.number).collect())
}

#[test]
fn recorded_strings_mean_what_they_mean_to_openssl() {
    let mut lines = RECORDED.lines();
    let mut count = 0;
    while let (Some(text), Some(answer)) = (lines.next(), lines.next()) {
        let answer = answer.trim();
        let expected = match answer.strip_prefix("! ") {
            Some(why) => Err(why.to_owned()),
            None => Ok(answer.split(' ').map(|number| u16::from_str_radix(number, 16).unwrap()).collect()),
        };
        assert_eq!(numbers(text).map_err(|error| error.to_string()), expected, "{text}");
        count += 1;
    }
    assert!(count > 70, "{count} strings");
}

/// What the program says, if it is installed.
#[expect(clippy::disallowed_methods, reason = "a test, on a thread of its own")]
fn openssl(arguments: &[&str]) -> Option<String> {
    let output = Command::new("openssl").args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[test]
fn random_strings_mean_what_they_mean_to_openssl() {
    if !openssl(&["version"]).is_some_and(|version| version.starts_with("OpenSSL 3.0.")) {
        return;
    }
    // Always the same ones: a linear congruential generator.
    let mut state = 20_260_101_u64;
    let mut draw = |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % count
    };
    for _ in 0..60 {
        let rules = (0..=draw(7)).map(|_| {
            let joined: Vec<_> = (0..=draw(2)).map(|_| WORDS[draw(WORDS.len())]).collect();
            format!("{}{}", SIGNS[draw(SIGNS.len())], joined.join("+"))
        });
        // Not a sign first: that would be an option of the program.
        let text = format!(":{}", rules.collect::<Vec<_>>().join(":"));
        let expected = openssl(&["ciphers", "-ciphersuites", "", &text]);
        let found = CipherList::parse(&text).ok().map(|list| {
            let names: Vec<_> = list.suites().iter().map(|suite| suite.name).collect();
            names.join(":")
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn levels_are_kept() {
    assert_eq!(CipherList::parse("HIGH:@SECLEVEL=0").unwrap().level(), Some(0));
    assert_eq!(CipherList::parse("DEFAULT@SECLEVEL=2").unwrap().level(), Some(2));
    assert_eq!(CipherList::parse("HIGH").unwrap().level(), None);
}

#[test]
fn suites_by_number_and_name() {
    assert!(SUITES.is_sorted_by_key(|suite| suite.number));
    for suite in &SUITES {
        assert_eq!(Suite::numbered(suite.number), Some(suite));
        assert_eq!(Suite::named(suite.name), Some(suite));
    }
    assert_eq!(Suite::numbered(0x1301), None, "TLS 1.3 is not for strings");
    assert_eq!(SUITES.iter().filter(|suite| suite.is_served()).count(), SERVED.len());
    assert!(Suite::named("DHE-RSA-AES128-SHA").unwrap().wants_dh_parameters());
}

#[test]
fn suites_are_described_as_by_openssl() {
    for recorded in [
        "TLS_AES_128_GCM_SHA256 TLSv1.3 Kx=any Au=any Enc=AESGCM(128) Mac=AEAD",
        "ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 Kx=ECDH Au=RSA Enc=AESGCM(128) Mac=AEAD",
        "ECDHE-ECDSA-CHACHA20-POLY1305 TLSv1.2 Kx=ECDH Au=ECDSA Enc=CHACHA20/POLY1305(256) Mac=AEAD",
        "ECDHE-RSA-AES256-SHA384 TLSv1.2 Kx=ECDH Au=RSA Enc=AES(256) Mac=SHA384",
        "AES128-SHA SSLv3 Kx=RSA Au=RSA Enc=AES(128) Mac=SHA1",
    ] {
        assert_eq!(description(recorded.split(' ').next().unwrap()).as_deref(), Some(recorded));
    }
    assert_eq!(description("DHE-RSA-AES128-SHA256"), None, "sessions do not use it");
    let Some(said) = openssl(&["ciphers", "-v", "ALL:@SECLEVEL=0"]) else { return };
    let lines = said.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let described = lines.filter(|line| {
        let ours = description(line.split(' ').next().unwrap());
        assert!(ours.is_none() || ours.as_ref() == Some(line), "{line}: {ours:?}");
        ours.is_some()
    });
    assert!(described.count() >= 17, "{said}");
}
