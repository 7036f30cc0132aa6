//! Settings of locations for TLS with upstream servers (`…_ssl_…`), and the contexts that are made of them
//! when a configuration is loaded: one for each set of equal settings.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clearway_conf::KeptFiles;
use clearway_http::{Own, Setting, Value, settings};
use clearway_tls::Context;
use clearway_tls::engine::{Asking, Versions};
use clearway_tls::files::{PairName, full_name};
use clearway_tls::level::Version;
use clearway_tls::objects::ObjectCache;
use clearway_tls::outgoing::{Checks, Outgoing};

use crate::settings::masks::Mask;
use crate::settings::proxy::Passed;

settings! {
    /// The settings of a location for TLS with upstream servers.
    pub(crate) struct TlsConf {
        pub(crate) session_reuse: Setting<bool> = true,
        pub(crate) protocols: Setting<Protocols>,
        pub(crate) ciphers: Setting<Bytes> = Bytes::from_static(b"DEFAULT"),
        pub(crate) name: Setting<Option<Value>>,
        pub(crate) server_name: Setting<bool> = false,
        pub(crate) verify: Setting<bool> = false,
        pub(crate) depth: Setting<u64> = 1,
        pub(crate) trusted: Setting<Bytes>,
        pub(crate) revoked: Setting<Bytes>,
        pub(crate) certificate: Setting<Option<Value>>,
        pub(crate) key: Setting<Option<Value>>,
        pub(crate) cache: Setting<Option<Arc<ObjectCache>>>,
        pub(crate) passwords: Setting<Option<Passwords>>,
        pub(crate) commands: Setting<Vec<(Bytes, Bytes)>>,
        /// Whether requests are passed to servers with TLS, or may be.
        pub(crate) used: Passed<()>,
        /// The context of TLS with upstream servers.
        pub(crate) context: Own<Option<Arc<ServerTls>>>,
    }
}

/// The passwords of encrypted keys.
pub(crate) type Passwords = Arc<Vec<Vec<u8>>>;

/// `…_ssl_protocols`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Protocols(u16);

impl Mask for Protocols {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("SSLv2", Self(1)),
        ("SSLv3", Self(1 << 1)),
        ("TLSv1", Self(1 << 2)),
        ("TLSv1.1", Self(1 << 3)),
        ("TLSv1.2", Self(1 << 4)),
        ("TLSv1.3", Self(1 << 5)),
    ];

    fn bits(self) -> u16 {
        self.0
    }

    fn of_bits(bits: u16) -> Self {
        Self(bits)
    }
}

impl Protocols {
    fn versions(self) -> Versions {
        if self.0 == 0 {
            return Versions::default();
        }
        let spoken = Self::WORDS.iter().filter(|(_, one)| self.has(*one));
        let named = spoken.filter_map(|(name, _)| Version::ALL.into_iter().find(|one| one.name() == *name));
        named.fold(Versions::none(), Versions::and)
    }
}

/// The state that connections with equal settings share.
pub(crate) struct ServerTls {
    pub(crate) context: Arc<Context>,
    /// Tells it from all others that this process had: what belongs to one is never used with another.
    pub(crate) id: u64,
    /// Where relative names of files begin.
    pub(crate) prefix: Vec<u8>,
}

/// Where files of a configuration are.
pub(crate) struct Places {
    pub(crate) files: Arc<KeptFiles>,
    /// Where relative paths begin.
    pub(crate) prefix: Vec<u8>,
}

impl Places {
    /// A name as it is looked for.
    pub(crate) fn full(&self, name: &[u8]) -> Vec<u8> {
        full_name(&self.prefix, name)
    }

    fn read(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(std::ffi::OsStr::from_bytes(path));
        self.files.read_object(path).map(|content| content.to_vec())
    }
}

impl TlsConf {
    /// Whether the certificate has to be looked for when a request is there.
    pub(crate) fn has_evaluated_pair(&self) -> bool {
        let literal = |value: Option<&Value>| value.map(|value| value.as_literal().map(<[u8]>::is_empty));
        match (literal(self.certificate.as_ref()), literal(self.key.as_ref())) {
            (Some(Some(true)) | None, _) | (_, None) => false,
            (Some(certificate), Some(key)) => certificate.is_none() || key.is_none(),
        }
    }

    /// The identity of its context among those of the configuration.
    ///
    /// # Errors
    /// If something is missing, in nginx's words.
    pub(crate) fn key(&self, prefix: &str, places: &Places) -> Result<Outgoing, String> {
        let certificate = self.certificate.as_ref().and_then(Value::as_literal);
        let is_said = self.certificate.is_some() && certificate != Some(b"");
        if is_said && self.key.is_none() {
            let name = String::from_utf8_lossy(certificate.unwrap_or_default());
            return Err(format!("no \"{prefix}_ssl_certificate_key\" is defined for certificate \"{name}\""));
        }
        if *self.verify && self.trusted.is_empty() {
            return Err(format!("no {prefix}_ssl_trusted_certificate for {prefix}_ssl_verify"));
        }
        let key = self.key.as_ref().and_then(Value::as_literal);
        let pair = certificate.filter(|name| !name.is_empty()).zip(key);
        let full = |name: &Bytes| if name.is_empty() { Vec::new() } else { places.full(name) };
        Ok(Outgoing {
            versions: self.protocols.versions(),
            ciphers: self.ciphers.to_vec(),
            keeps_sessions: *self.session_reuse,
            verify: self.verify.then(|| Checks {
                asking: Asking::On,
                depth: *self.depth,
                trusted: full(&self.trusted),
                revoked: full(&self.revoked),
            }),
            pair: pair.map(|(certificate, key)| PairName {
                certificate: places.full(certificate),
                key: places.full(key),
            }),
            passwords: Option::clone(&self.passwords),
            commands: self.commands.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        })
    }
}

/// Makes a context.
///
/// # Errors
/// nginx's message.
pub(crate) fn build(said: &Outgoing, places: &Places) -> Result<Arc<ServerTls>, String> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let context = said.build(&|name| places.full(name), &mut |path| places.read(path))?;
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    Ok(Arc::new(ServerTls { context, id, prefix: places.prefix.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places { files: Arc::default(), prefix: b"/etc/".to_vec() }
    }

    fn built(change: impl FnOnce(&mut TlsConf)) -> Result<Arc<ServerTls>, String> {
        let mut conf = TlsConf::default();
        change(&mut conf);
        build(&conf.key("p", &places())?, &places())
    }

    fn literal(text: &'static str) -> Option<Value> {
        Some(Value::literal(Bytes::from_static(text.as_bytes())))
    }

    #[test]
    fn contexts_are_made_of_what_is_said() {
        let first = built(|_| ()).unwrap();
        let second = built(|conf| conf.protocols.set(Protocols(1 << 4))).unwrap();
        assert_ne!(first.id, second.id);
        let speaks = |tls: &ServerTls, version: Version| {
            tls.context.version_with(std::iter::once(version.number())).is_some()
        };
        assert!(speaks(&first, Version::Tls13) && speaks(&second, Version::Tls12));
        assert!(!speaks(&first, Version::Tls11) && !speaks(&second, Version::Tls13));
    }

    #[test]
    fn what_is_missing_is_said_as_nginx_does() {
        let said = |change: fn(&mut TlsConf)| built(change).err().unwrap();
        assert_eq!(said(|conf| conf.verify.set(true)), "no p_ssl_trusted_certificate for p_ssl_verify");
        assert_eq!(
            said(|conf| conf.certificate.set(literal("one.pem"))),
            "no \"p_ssl_certificate_key\" is defined for certificate \"one.pem\""
        );
        assert_eq!(
            said(|conf| conf.ciphers.set(Bytes::from_static(b"NONE"))),
            "SSL_CTX_set_cipher_list(\"NONE\") failed (SSL: error:0A0000B9:SSL routines::no cipher match)"
        );
        let text = said(|conf| {
            conf.certificate.set(literal("none.pem"));
            conf.key.set(literal("none.key"));
        });
        assert!(
            text.starts_with("cannot load certificate \"/etc/none.pem\": BIO_new_file() failed"),
            "{text}"
        );
        let text = said(|conf| conf.commands.set(vec![("Protocol".into(), "x".into())]));
        assert!(text.starts_with("SSL_CONF_cmd(\"Protocol\", \"x\") failed (SSL: error:"), "{text}");
    }

    #[test]
    fn a_certificate_is_evaluated_where_it_has_variables() {
        let mut conf = TlsConf::default();
        assert!(!conf.has_evaluated_pair());
        conf.certificate.set(literal("one.pem"));
        conf.key.set(literal("one.key"));
        assert!(!conf.has_evaluated_pair());
    }
}
