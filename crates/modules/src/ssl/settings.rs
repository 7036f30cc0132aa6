//! Servers' settings for TLS, as they are written.

use std::sync::Arc;

use bytes::Bytes;
use clearway_http::{ConfKey, Level, Own, Setting, Value, Verify, settings};
use clearway_tls::objects::ObjectCache;

/// The settings of each server.
pub(crate) static SSL_CONF: ConfKey<SslConf> = ConfKey::new(Level::Server);

/// Versions in the order of their age, as `ssl_protocols` names them.
pub(crate) const PROTOCOLS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

settings! {
    /// The settings of a server.
    pub(crate) struct SslConf {
        /// `ssl_certificate`, in the order of the configuration.
        pub(crate) certificates: Setting<Vec<Bytes>>,
        /// `ssl_certificate_key`
        pub(crate) keys: Setting<Vec<Bytes>>,
        /// Both, with the variables in them.
        pub(crate) certificate_values: Setting<Vec<Value>>,
        pub(crate) key_values: Setting<Vec<Value>>,
        pub(crate) certificate_cache: Setting<Option<Arc<ObjectCache>>>,
        /// The lines of `ssl_password_file`.
        pub(crate) passwords: Setting<Vec<Vec<u8>>>,
        pub(crate) certificate_compression: Setting<bool>,
        pub(crate) dhparam: Setting<Bytes>,
        pub(crate) ecdh_curve: Setting<Bytes> = Bytes::from_static(b"auto"),
        /// The protocols by their places in [`PROTOCOLS`].
        pub(crate) protocols: Setting<[bool; PROTOCOLS.len()]> = [false, false, false, false, true, true],
        pub(crate) ciphers: Setting<Bytes> = Bytes::from_static(b"HIGH:!aNULL:!MD5"),
        /// Bytes.
        pub(crate) buffer_size: Setting<u64> = 16_384,
        pub(crate) verify_client: Setting<Verify>,
        pub(crate) verify_depth: Setting<u64> = 1,
        pub(crate) client_certificate: Setting<Bytes>,
        pub(crate) trusted_certificate: Setting<Bytes>,
        pub(crate) crl: Setting<Bytes>,
        pub(crate) prefer_server_ciphers: Setting<bool>,
        pub(crate) session_cache: Setting<SessionCache>,
        pub(crate) session_tickets: Setting<bool> = true,
        pub(crate) session_ticket_keys: Setting<Vec<Bytes>>,
        /// Seconds.
        pub(crate) session_timeout: Setting<u64> = 300_u64,
        pub(crate) early_data: Setting<bool>,
        /// Whether `ssl_ech_file` was said.
        pub(crate) ech_files: Setting<bool>,
        pub(crate) ocsp: Setting<bool>,
        pub(crate) ocsp_responder: Setting<Bytes>,
        pub(crate) ocsp_cache: Setting<()>,
        pub(crate) stapling: Setting<bool>,
        pub(crate) stapling_file: Setting<Bytes>,
        pub(crate) stapling_responder: Setting<Bytes>,
        pub(crate) stapling_verify: Setting<bool>,
        pub(crate) conf_commands: Setting<Vec<(Bytes, Bytes)>>,
        pub(crate) reject_handshake: Setting<bool>,
        /// Versions that were named here, so that none is named twice.
        pub(crate) named_protocols: Own<[bool; PROTOCOLS.len()]>,
    }
}

/// `ssl_session_cache`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionCache {
    /// Clients are told that sessions are not taken up.
    Off,
    /// Clients are not told anything.
    #[default]
    None,
    /// As many sessions at most; those of one worker.
    Builtin(u64),
    /// In a zone of this name and size in bytes.
    Shared(Bytes, u64),
}

impl SslConf {
    /// Whether certificates are looked for when a client is there. As in nginx one variable is enough to have
    /// all of them looked for then.
    pub(crate) fn has_variables(&self) -> bool {
        let mut values = self.certificate_values.iter().chain(self.key_values.iter());
        !self.certificates.is_empty() && values.any(|value| value.as_literal().is_none())
    }
}
