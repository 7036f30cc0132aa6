//! A certificate with those behind it, and its key: what one side of a connection shows. Both are read once
//! and shared, by contexts, sessions and caches alike.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::engine::LoadError;
use crate::level::{ChainPlace, Level};
use crate::reason::{Library, Reason};
use crate::sys::{Certificate, PrivateKey};

/// A certificate and those of the authorities behind it, in the order of their file.
pub struct Chain {
    certificate: Certificate,
    rest: Vec<Certificate>,
}

impl Chain {
    /// Reads what `ssl_certificate` names.
    ///
    /// # Errors
    /// If there is no certificate, or one is broken.
    pub fn read(pem: &[u8]) -> Result<Self, LoadError> {
        let mut rest = Certificate::read_all(pem)?;
        let certificate = rest.remove(0);
        Ok(Self { certificate, rest })
    }
}

impl Chain {
    /// Certificates in DER, one behind the other.
    #[must_use]
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let mut all = Vec::new();
        let mut rest = der;
        while !rest.is_empty() {
            let (one, behind) = first_element(rest)?;
            all.push(Certificate::from_der(one)?);
            rest = behind;
        }
        if all.is_empty() {
            return None;
        }
        let certificate = all.remove(0);
        Some(Self { certificate, rest: all })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Certificate> {
        std::iter::once(&self.certificate).chain(&self.rest)
    }

    /// In DER, one behind the other.
    #[must_use]
    pub fn to_der(&self) -> Option<Vec<u8>> {
        self.all().map(Certificate::to_der).collect::<Option<Vec<_>>>().map(|all| all.concat())
    }

    /// In PEM.
    #[must_use]
    pub fn to_pem(&self) -> Option<Vec<u8>> {
        self.all().map(Certificate::to_pem).collect::<Option<Vec<_>>>().map(|all| all.concat())
    }

    /// Whether the key is that of its first certificate.
    #[must_use]
    pub fn has_key(&self, key: &PrivateKey) -> bool {
        self.certificate.has_key(key)
    }
}

/// The first element in DER, and what is behind it.
pub(crate) fn first_element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    der.split_at_checked(element_length(der)?)
}

/// How long an element in DER is, with its head.
fn element_length(der: &[u8]) -> Option<usize> {
    const LONG: u8 = 0x80;
    let first = *der.get(1)?;
    if first < LONG {
        return Some(2 + usize::from(first));
    }
    let digits = der.get(2..2 + usize::from(first - LONG))?;
    if digits.len() > 4 {
        return None;
    }
    let length = digits.iter().fold(0_usize, |length, &digit| length << 8 | usize::from(digit));
    length.checked_add(2 + digits.len())
}

/// A certificate with its chain and key.
pub struct Pair {
    chain: Arc<Chain>,
    key: Arc<PrivateKey>,
}

impl Pair {
    /// The pair of a chain and a key that were read before.
    #[must_use]
    pub fn new(chain: Arc<Chain>, key: Arc<PrivateKey>) -> Self {
        Self { chain, key }
    }

    /// Reads what `ssl_certificate` and `ssl_certificate_key` name, and tries `passwords` in their order.
    ///
    /// # Errors
    /// If one of them is broken, or no password opens the key.
    pub fn read(certificates: &[u8], key: &[u8], passwords: &[Vec<u8>]) -> Result<Self, LoadError> {
        let chain = Arc::new(Chain::read(certificates)?);
        Ok(Self { chain, key: Arc::new(PrivateKey::read(key, passwords)?) })
    }

    /// The certificate.
    #[must_use]
    pub fn certificate(&self) -> &Certificate {
        &self.chain.certificate
    }

    /// Certificates behind it, which peers are sent as well.
    pub(crate) fn signers(&self) -> &[Certificate] {
        &self.chain.rest
    }

    pub(crate) fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Whether the key is that of the certificate. One of them may have been changed before the other one.
    #[must_use]
    pub fn is_matched(&self) -> bool {
        self.certificate().has_key(&self.key)
    }

    /// Refuses what is weaker than the level allows.
    pub(crate) fn check(&self, level: Level) -> Result<(), LoadError> {
        let own = std::iter::once((ChainPlace::Own, self.certificate()));
        for (place, certificate) in own.chain(self.signers().iter().map(|one| (ChainPlace::Signer, one))) {
            let found = level.check_certificate(place, certificate.key(), certificate.signature());
            if let Err(weak) = found {
                let name = weak.text().to_ascii_uppercase().replace(' ', "_");
                let reasons = vec![Reason::named(Library::Ssl, &name)];
                return Err(LoadError { call: "SSL_CTX_use_certificate()", reasons });
            }
        }
        Ok(())
    }
}
