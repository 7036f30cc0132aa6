//! What locations say of TLS with the servers that requests are passed to (`…_ssl_…`), and what comes of it
//! when a configuration is loaded: a context of the library for each set of equal settings.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use clearway_conf::KeptFiles;
use clearway_http::{Own, Setting, Value, settings};
use clearway_tls::ciphers::{CipherError, CipherList};
use clearway_tls::command::{self, Applied, CommandError};
use clearway_tls::engine::{Asking, Engine, Keeping, LoadError, Plan, Reasons, Side, Verification, Versions};
use clearway_tls::files::{self, PairNames, full_name};
use clearway_tls::level::Version;
use clearway_tls::objects::ObjectCache;
use clearway_tls::reason::{Library, Reason};
use clearway_tls::{AwsLc, Context, Pair};

use crate::settings::masks::Mask;
use crate::settings::proxy::Passed;

settings! {
    /// See the file's head.
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
        /// Where they are.
        pub(crate) context: Own<Option<Arc<ServerTls>>>,
    }
}

/// What opens encrypted keys.
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

/// What connections with equal settings have in common.
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

/// What of a configuration decides what a context is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ContextKey {
    protocols: u16,
    ciphers: Bytes,
    reuse: bool,
    verify: Option<(u64, Bytes, Bytes)>,
    pair: Option<(Vec<u8>, Vec<u8>)>,
    passwords: Option<Passwords>,
    commands: Vec<(Bytes, Bytes)>,
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

    /// What its context is known by among those of the configuration.
    ///
    /// # Errors
    /// If something is missing, in nginx's words.
    pub(crate) fn key(&self, prefix: &str, places: &Places) -> Result<ContextKey, String> {
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
        Ok(ContextKey {
            protocols: self.protocols.bits(),
            ciphers: Bytes::clone(&self.ciphers),
            reuse: *self.session_reuse,
            verify: self
                .verify
                .then(|| (*self.depth, Bytes::clone(&self.trusted), Bytes::clone(&self.revoked))),
            pair: pair.map(|(certificate, key)| (places.full(certificate), places.full(key))),
            passwords: Option::clone(&self.passwords),
            commands: self.commands.to_vec(),
        })
    }
}

impl ContextKey {
    /// Makes the context.
    ///
    /// # Errors
    /// What nginx says.
    pub(crate) fn build(&self, places: &Places) -> Result<Arc<ServerTls>, String> {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let text = String::from_utf8_lossy(&self.ciphers);
        let ciphers = CipherList::parse(&text).map_err(|error| refused_ciphers(&text, error))?;
        let mut plan = Plan::<Pair>::new(ciphers, Vec::new());
        plan.side = Side::Client;
        plan.versions = Protocols(self.protocols).versions();
        plan.keeping = if self.reuse { Keeping::Kept } else { Keeping::None };
        let mut read = |path: &[u8]| places.read(path);
        let passwords = self.passwords.as_ref().map_or(&[][..], |all| &all[..]);
        if let Some(names) = self.pair_names() {
            plan.pairs.push(Arc::new(names.load(passwords, &mut read)?));
        }
        if let Some((depth, trusted, revoked)) = &self.verify {
            plan.verification = Verification {
                asking: Asking::On,
                trusted: files::load_trusted(&places.full(trusted), &mut read)?,
                depth: u32::try_from(*depth).unwrap_or(u32::MAX),
                ..Verification::default()
            };
            if !revoked.is_empty() {
                plan.verification.revoked = files::load_revoked(&places.full(revoked), &mut read)?;
            }
        }
        self.apply_commands(&mut plan, places, passwords)?;
        let context = AwsLc::context(&plan).map_err(|error| self.refusal(&error))?;
        Ok(Arc::new(ServerTls {
            context,
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            prefix: places.prefix.clone(),
        }))
    }

    fn pair_names(&self) -> Option<PairNames<'_>> {
        self.pair.as_ref().map(|(certificate, key)| PairNames { certificate, key })
    }

    fn refusal(&self, error: &LoadError) -> String {
        let is_of_pair = error.call.starts_with("SSL_CTX_use_");
        match self.pair_names().filter(|_| is_of_pair) {
            Some(names) => names.refusal(error),
            None => error.to_string(),
        }
    }

    fn apply_commands(
        &self,
        plan: &mut Plan<Pair>,
        places: &Places,
        passwords: &[Vec<u8>],
    ) -> Result<(), String> {
        let mut certificate = None;
        for (name, value) in &self.commands {
            match apply(plan, name, value)? {
                Applied::Planned | Applied::Tickets | Applied::WithoutEffect(_) => {}
                Applied::Certificate => certificate = Some(places.full(value)),
                Applied::PrivateKey => {
                    let Some(certificate) = certificate.take() else { continue };
                    let key = places.full(value);
                    let names = PairNames { certificate: &certificate, key: &key };
                    plan.pairs.push(Arc::new(names.load(passwords, &mut |path| places.read(path))?));
                }
            }
        }
        Ok(())
    }
}

/// Applies one `…_ssl_conf_command`.
///
/// # Errors
/// What nginx says.
pub(crate) fn apply(plan: &mut Plan<Pair>, name: &[u8], value: &[u8]) -> Result<Applied, String> {
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    command::apply(plan, &name, &value).map_err(|error| {
        let said = match error {
            CommandError::Refused(reasons) => format!("SSL:{}", Reasons(&reasons)),
            CommandError::NotHere(reason) => reason.to_owned(),
        };
        format!("SSL_CONF_cmd(\"{name}\", \"{value}\") failed ({said})")
    })
}

fn refused_ciphers(text: &str, error: CipherError) -> String {
    let name = match error {
        CipherError::InvalidCommand => "INVALID_COMMAND",
        CipherError::NoMatch => "NO_CIPHER_MATCH",
    };
    let reason = Reason::named(Library::Ssl, name);
    format!("SSL_CTX_set_cipher_list(\"{text}\") failed (SSL: {reason})")
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
        conf.key("p", &places())?.build(&places())
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
