//! Security levels as OpenSSL 3 has them (`@SECLEVEL=`): what a level refuses although versions, suites and
//! certificates would allow it. The library knows no levels; contexts ask here when they are made. Tests of
//! contexts compare with what OpenSSL's manual says (SSL_CTX_set_security_level).
#![forbid(unsafe_code)]

use crate::ciphers::Suite;

/// TLS 1.0 to 1.3, as on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "names say it")]
pub enum Version {
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

impl Version {
    /// All, the oldest first.
    pub const ALL: [Self; 4] = [Self::Tls10, Self::Tls11, Self::Tls12, Self::Tls13];

    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Tls10 => 0x0301,
            Self::Tls11 => 0x0302,
            Self::Tls12 => 0x0303,
            Self::Tls13 => 0x0304,
        }
    }

    /// As `ssl_protocols` and `$ssl_protocol` have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tls10 => "TLSv1",
            Self::Tls11 => "TLSv1.1",
            Self::Tls12 => "TLSv1.2",
            Self::Tls13 => "TLSv1.3",
        }
    }
}

/// A key of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// RSA, or RSA for PSS alone, with so many bits.
    Rsa(u32),
    /// On an elliptic curve over a field of so many bits.
    Curve(u32),
    /// Ed25519 or X25519.
    Edwards25519,
    /// A key of another kind.
    Other,
}

impl Key {
    /// Against how much work it stands, as the power of two.
    #[must_use]
    pub fn strength_bits(self) -> u32 {
        match self {
            Self::Rsa(bits) => rsa_strength_bits(bits),
            Self::Curve(bits) => bits / 2,
            Self::Edwards25519 => 128,
            Self::Other => 0,
        }
    }
}

/// NIST SP 800-56B, appendix D, in whole bytes; common sizes have the values of its table.
fn rsa_strength_bits(bits: u32) -> u32 {
    match bits {
        0..8 => return 0,
        2048 => return 112,
        3072 => return 128,
        4096 => return 152,
        6144 => return 176,
        7680 => return 192,
        8192 => return 200,
        15_360 => return 256,
        _ => {}
    }
    let cap: u32 = if bits <= 7_680 { 192 } else { 256 };
    let ln2 = std::f64::consts::LN_2;
    let x = f64::from(bits) * ln2;
    let strength = (1.923 * (x * x.ln() * x.ln()).cbrt() - 4.69) / ln2;
    // Whole multiples of eight, the nearest.
    ((strength as u32 + 4) & !7).min(cap)
}

/// The digest that a certificate, or a handshake, is signed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Digest {
    Md5,
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
    /// None of its own (Ed25519), or one that is not known here.
    Other,
}

impl Digest {
    /// Against how much work it stands. Those of MD5 and SHA-1 are what attacks are known to take.
    #[must_use]
    pub fn strength_bits(self) -> u32 {
        match self {
            Self::Md5 => 39,
            Self::Sha1 => 63,
            Self::Sha224 => 112,
            Self::Sha256 | Self::Other => 128,
            Self::Sha384 => 192,
            Self::Sha512 => 256,
        }
    }
}

/// The reason for which a certificate is too weak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooWeak {
    /// The server's own key.
    Key,
    /// The key of one that signs.
    SignerKey,
    /// The digest of a signature.
    Signature,
}

impl TooWeak {
    /// In OpenSSL's words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Key => "ee key too small",
            Self::SignerKey => "ca key too small",
            Self::Signature => "ca md too weak",
        }
    }
}

/// Where in its chain a certificate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainPlace {
    /// The server's, or the client's, own.
    Own,
    /// The certificate has signed another one.
    Signer,
}

/// A level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level(u8);

impl Default for Level {
    /// The level of an OpenSSL with default options (Debian's begins at 2).
    fn default() -> Self {
        Self(1)
    }
}

impl Level {
    const MAX: u8 = 5;

    /// A level by its number. Those above 5 are 5.
    #[must_use]
    pub fn new(number: u8) -> Self {
        Self(number.min(Self::MAX))
    }

    /// Its number.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// The least work that whatever breaks something allowed takes, as the power of two.
    #[must_use]
    pub fn bits(self) -> u32 {
        match self.0 {
            0 => 0,
            1 => 80,
            2 => 112,
            3 => 128,
            4 => 192,
            _ => 256,
        }
    }

    /// Whether a suite up to TLS 1.2 may be used.
    #[must_use]
    pub fn allows_suite(self, suite: &Suite) -> bool {
        let Self(level @ 1..) = self else { return true };
        let is_strong = u32::from(suite.bits()) >= self.bits();
        // SHA-1 keys of 160 bits are enough up to level 3; MD5 is none.
        let has_integrity = match suite.weak_integrity_bits() {
            None => true,
            Some(160) => self.bits() <= 160,
            Some(_) => false,
        };
        let is_secret_later = level < 3 || suite.has_forward_secrecy();
        is_strong && has_integrity && is_secret_later && suite.is_authenticated()
    }

    /// Whether a version may be used. TLS 1.0 and 1.1 sign with SHA-1, so level 1 has no signature for them.
    #[must_use]
    pub fn allows_version(self, version: Version) -> bool {
        self.0 == 0 || version >= Version::Tls12
    }

    /// Whether a handshake may be signed with that digest.
    #[must_use]
    pub fn allows_digest(self, digest: Digest) -> bool {
        digest.strength_bits() >= self.bits()
    }

    /// Whether tickets may be given out: from level 3 on a key that becomes known later would open sessions.
    #[must_use]
    pub fn allows_tickets(self) -> bool {
        self.0 < 3
    }

    /// Looks at a certificate. `signature` is nothing for one that has signed itself: that signature says
    /// nothing.
    ///
    /// # Errors
    /// What of it is too weak.
    pub fn check_certificate(
        self,
        place: ChainPlace,
        key: Key,
        signature: Option<Digest>,
    ) -> Result<(), TooWeak> {
        // A key that is not known is not judged, as in OpenSSL.
        if key != Key::Other && key.strength_bits() < self.bits() {
            return Err(if place == ChainPlace::Own { TooWeak::Key } else { TooWeak::SignerKey });
        }
        match signature {
            Some(digest) if !self.allows_digest(digest) => Err(TooWeak::Signature),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(level: u8) -> Vec<&'static str> {
        let names = [
            "ECDHE-RSA-AES128-GCM-SHA256",
            "AES128-SHA",
            "ECDHE-RSA-AES256-SHA",
            "ADH-AES256-SHA",
            "NULL-SHA",
        ];
        let suites = names.into_iter().filter_map(Suite::named);
        suites.filter(|suite| Level::new(level).allows_suite(suite)).map(|suite| suite.name).collect()
    }

    #[test]
    fn suites_by_level() {
        assert_eq!(allowed(0).len(), 5);
        assert_eq!(allowed(1), ["ECDHE-RSA-AES128-GCM-SHA256", "AES128-SHA", "ECDHE-RSA-AES256-SHA"]);
        assert_eq!(allowed(2), allowed(1));
        assert_eq!(allowed(3), ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-SHA"]);
        assert_eq!(allowed(4), Vec::<&str>::new(), "SHA-1 has 160 bits, AES-128 has 128");
    }

    #[test]
    fn old_versions_want_level_0() {
        let allowed = |level| Version::ALL.into_iter().filter(move |&v| Level::new(level).allows_version(v));
        assert_eq!(allowed(0).count(), 4);
        assert_eq!(allowed(1).collect::<Vec<_>>(), [Version::Tls12, Version::Tls13]);
    }

    #[test]
    fn keys_are_as_strong_as_openssl_says() {
        // `openssl` prints nothing of it; these are EVP_PKEY_get_security_bits of 3.0.
        for (bits, strength) in [(512, 56), (1024, 80), (1536, 96), (2048, 112), (3072, 128), (7680, 192)] {
            assert_eq!(Key::Rsa(bits).strength_bits(), strength, "{bits}");
        }
        assert_eq!(Key::Curve(256).strength_bits(), 128);
    }

    #[test]
    fn certificates_by_level() {
        let check = |level, place, key, digest| Level::new(level).check_certificate(place, key, digest);
        let sha1 = Some(Digest::Sha1);
        assert_eq!(check(0, ChainPlace::Own, Key::Rsa(512), sha1), Ok(()));
        assert_eq!(check(1, ChainPlace::Own, Key::Rsa(512), None), Err(TooWeak::Key));
        assert_eq!(check(2, ChainPlace::Signer, Key::Rsa(1024), None), Err(TooWeak::SignerKey));
        assert_eq!(check(1, ChainPlace::Own, Key::Rsa(1024), sha1), Err(TooWeak::Signature));
        assert_eq!(check(1, ChainPlace::Signer, Key::Rsa(1024), None), Ok(()), "it has signed itself");
        assert_eq!(check(2, ChainPlace::Own, Key::Curve(256), Some(Digest::Sha256)), Ok(()));
        assert_eq!(check(5, ChainPlace::Own, Key::Other, None), Ok(()));
    }

    #[test]
    fn level_3_has_no_tickets() {
        assert!(Level::default().allows_tickets() && !Level::new(3).allows_tickets());
        assert_eq!(Level::new(9).number(), 5);
    }
}
