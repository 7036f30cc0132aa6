//! Words of cipher strings that stand for several suites, and names of suites.
#![forbid(unsafe_code)]

use super::Version;
use super::table::{
    A_DSS, A_ECDSA, A_NONE, A_PSK, A_RSA, A_SRP, AES128, AES128_CCM, AES128_CCM8, AES128_GCM, AES256,
    AES256_CCM, AES256_CCM8, AES256_GCM, ARIA128_GCM, ARIA256_GCM, CAMELLIA128, CAMELLIA256, CHACHA20,
    DEFAULT, FIPS, K_DHE, K_DHE_PSK, K_ECDHE, K_ECDHE_PSK, K_PSK, K_RSA, K_RSA_PSK, K_SRP, MD5, NULL, SHA1,
    SHA256, SHA384, Suite,
};

/// The meaning of a word for suites; a part that it leaves open is 0 or `None`.
#[derive(Clone, Copy, Default)]
pub(super) struct Alias {
    /// The name of one suite.
    pub(super) number: Option<u16>,
    /// As in [`Suite::parts`].
    pub(super) parts: [u16; 4],
    pub(super) since: Option<Version>,
    pub(super) strength: Option<Strength>,
    pub(super) default: Option<OfDefault>,
}

/// `HIGH` and `FIPS`; of suites that would be `MEDIUM` or `LOW` a default build of OpenSSL 3 has none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Strength {
    High,
    Medium,
    Low,
    Fips,
}

impl Strength {
    pub(super) fn has(self, suite: &Suite) -> bool {
        match self {
            Self::High => suite.parts[2] != NULL,
            Self::Fips => suite.marks & FIPS != 0,
            Self::Medium | Self::Low => false,
        }
    }
}

/// Whether suites are among those that are used if nothing is said.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OfDefault {
    Complement,
}

impl OfDefault {
    pub(super) fn has(self, suite: &Suite) -> bool {
        match self {
            Self::Complement => suite.marks & DEFAULT == 0,
        }
    }
}

/// The meaning of a word, if it is known.
pub(super) fn find(word: &str) -> Option<Alias> {
    if let Some(suite) = Suite::named(word) {
        let Suite { number, parts, .. } = *suite;
        return Some(Alias { number: Some(number), parts, ..Alias::default() });
    }
    PARTS
        .iter()
        .find(|(name, _)| *name == word)
        .map_or_else(|| of_properties(word), |&(_, parts)| Some(Alias { parts, ..Alias::default() }))
}

fn of_properties(word: &str) -> Option<Alias> {
    let since = |since| Alias { since: Some(since), ..Alias::default() };
    let strength = |strength| Alias { strength: Some(strength), ..Alias::default() };
    Some(match word {
        "SSLv3" => since(Version::Ssl3),
        "TLSv1" | "TLSv1.0" => since(Version::Tls10),
        "TLSv1.2" => since(Version::Tls12),
        "HIGH" => strength(Strength::High),
        "MEDIUM" => strength(Strength::Medium),
        "LOW" => strength(Strength::Low),
        "FIPS" => strength(Strength::Fips),
        "COMPLEMENTOFDEFAULT" => Alias { default: Some(OfDefault::Complement), ..Alias::default() },
        _ => return None,
    })
}

const AES_GCM: u16 = AES128_GCM | AES256_GCM;
const AES_CCM8: u16 = AES128_CCM8 | AES256_CCM8;
const AES_CCM: u16 = AES128_CCM | AES256_CCM | AES_CCM8;
const CAMELLIA: u16 = CAMELLIA128 | CAMELLIA256;
const ARIA: u16 = ARIA128_GCM | ARIA256_GCM;
const NOT_NULL: u16 = !NULL;
const NOT_NONE: u16 = !A_NONE;
const ANY_PSK: u16 = K_PSK | K_RSA_PSK | K_DHE_PSK | K_ECDHE_PSK;

/// Key exchange, authentication, cipher, integrity.
#[rustfmt::skip]
const PARTS: [(&str, [u16; 4]); 53] = [
    ("ALL", [0, 0, NOT_NULL, 0]),
    ("COMPLEMENTOFALL", [0, 0, NULL, 0]),
    ("kRSA", [K_RSA, 0, 0, 0]),
    ("kEDH", [K_DHE, 0, 0, 0]),
    ("kDHE", [K_DHE, 0, 0, 0]),
    ("DH", [K_DHE, 0, 0, 0]),
    ("kEECDH", [K_ECDHE, 0, 0, 0]),
    ("kECDHE", [K_ECDHE, 0, 0, 0]),
    ("ECDH", [K_ECDHE, 0, 0, 0]),
    ("kPSK", [K_PSK, 0, 0, 0]),
    ("kRSAPSK", [K_RSA_PSK, 0, 0, 0]),
    ("kECDHEPSK", [K_ECDHE_PSK, 0, 0, 0]),
    ("kDHEPSK", [K_DHE_PSK, 0, 0, 0]),
    ("kSRP", [K_SRP, 0, 0, 0]),
    ("aRSA", [0, A_RSA, 0, 0]),
    ("aDSS", [0, A_DSS, 0, 0]),
    ("DSS", [0, A_DSS, 0, 0]),
    ("aNULL", [0, A_NONE, 0, 0]),
    ("aECDSA", [0, A_ECDSA, 0, 0]),
    ("ECDSA", [0, A_ECDSA, 0, 0]),
    ("aPSK", [0, A_PSK, 0, 0]),
    ("aSRP", [0, A_SRP, 0, 0]),
    ("EDH", [K_DHE, NOT_NONE, 0, 0]),
    ("DHE", [K_DHE, NOT_NONE, 0, 0]),
    ("EECDH", [K_ECDHE, NOT_NONE, 0, 0]),
    ("ECDHE", [K_ECDHE, NOT_NONE, 0, 0]),
    ("NULL", [0, 0, NULL, 0]),
    ("RSA", [K_RSA, A_RSA, 0, 0]),
    ("ADH", [K_DHE, A_NONE, 0, 0]),
    ("AECDH", [K_ECDHE, A_NONE, 0, 0]),
    ("PSK", [ANY_PSK, 0, 0, 0]),
    ("SRP", [K_SRP, 0, 0, 0]),
    ("eNULL", [0, 0, NULL, 0]),
    ("AES128", [0, 0, AES128 | AES128_GCM | AES128_CCM | AES128_CCM8, 0]),
    ("AES256", [0, 0, AES256 | AES256_GCM | AES256_CCM | AES256_CCM8, 0]),
    ("AES", [0, 0, AES128 | AES256 | AES_GCM | AES_CCM, 0]),
    ("AESGCM", [0, 0, AES_GCM, 0]),
    ("AESCCM", [0, 0, AES_CCM, 0]),
    ("AESCCM8", [0, 0, AES_CCM8, 0]),
    ("CAMELLIA128", [0, 0, CAMELLIA128, 0]),
    ("CAMELLIA256", [0, 0, CAMELLIA256, 0]),
    ("CAMELLIA", [0, 0, CAMELLIA, 0]),
    ("CHACHA20", [0, 0, CHACHA20, 0]),
    ("ARIA", [0, 0, ARIA, 0]),
    ("ARIAGCM", [0, 0, ARIA, 0]),
    ("ARIA128", [0, 0, ARIA128_GCM, 0]),
    ("ARIA256", [0, 0, ARIA256_GCM, 0]),
    ("CBC", [0, 0, AES128 | AES256 | CAMELLIA, 0]),
    ("MD5", [0, 0, 0, MD5]),
    ("SHA1", [0, 0, 0, SHA1]),
    ("SHA", [0, 0, 0, SHA1]),
    ("SHA256", [0, 0, 0, SHA256]),
    ("SHA384", [0, 0, 0, SHA384]),
];
