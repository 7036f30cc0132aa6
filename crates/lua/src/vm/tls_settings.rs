//! TLS settings for sockets (`lua_ssl_…`), and the context that is made of them at load. Written while the
//! configuration is read, read by requests and timers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::KeptFiles;
use clearway_http::{ConfKey, Level, Load, Own, Setting, settings};
use clearway_tls::Context;
use clearway_tls::engine::{Asking, Versions};
use clearway_tls::files::{PairName, full_name};
use clearway_tls::outgoing::{Checks, Outgoing};

use crate::socket::secure;

/// The settings of a location.
pub(crate) static TLS_CONF: ConfKey<TlsConf> = ConfKey::new(Level::Location);

settings! {
    pub(crate) struct TlsConf {
        pub(crate) protocols: Setting<Option<Versions>>,
        pub(crate) ciphers: Setting<Bytes> = Bytes::from_static(b"DEFAULT"),
        pub(crate) depth: Setting<u64> = 1,
        pub(crate) trusted: Setting<Bytes>,
        pub(crate) revoked: Setting<Bytes>,
        pub(crate) certificate: Setting<Bytes>,
        pub(crate) key: Setting<Bytes>,
        pub(crate) commands: Setting<Vec<(Bytes, Bytes)>>,
        /// Where something is said.
        pub(crate) context: Own<Option<Arc<Context>>>,
    }
}

impl TlsConf {
    /// The common context of sockets.
    pub(crate) fn context(&self) -> Option<Arc<Context>> {
        Option::clone(&self.context).or_else(secure::default_context)
    }

    /// The settings.
    ///
    /// # Errors
    /// That the key of a certificate is missing, in upstream's words.
    fn outgoing(&self, prefix: &[u8]) -> Result<Outgoing, String> {
        let full = |name: &Bytes| if name.is_empty() { Vec::new() } else { full_name(prefix, name) };
        if !self.certificate.is_empty() && self.key.is_empty() {
            let name = String::from_utf8_lossy(&self.certificate);
            return Err(format!("no \"lua_ssl_certificate_key\" is defined for certificate \"{name}\""));
        }
        let pair = PairName { certificate: full(&self.certificate), key: full(&self.key) };
        Ok(Outgoing {
            versions: self.protocols.unwrap_or_default(),
            ciphers: self.ciphers.to_vec(),
            verify: Some(Checks {
                asking: Asking::Off,
                depth: *self.depth,
                trusted: full(&self.trusted),
                revoked: full(&self.revoked),
            }),
            pair: Some(pair).filter(|pair| !pair.certificate.is_empty()),
            commands: self.commands.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            ..secure::settings()
        })
    }
}

fn read(files: &KeptFiles, name: &[u8]) -> io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStrExt;
    files.read_object(Path::new(std::ffi::OsStr::from_bytes(name))).map(|content| content.to_vec())
}

/// Makes a TLS context for each set of equal settings.
///
/// # Errors
/// nginx's message.
pub(crate) fn make_contexts(load: &mut Load) -> Result<(), String> {
    let (files, prefix) = (load.kept_files(), load.conf_prefix());
    let mut made: Vec<(Outgoing, Arc<Context>)> = Vec::new();
    for conf in load.all_locations(&TLS_CONF) {
        let said = conf.outgoing(&prefix)?;
        if said == secure::settings() {
            continue;
        }
        let known = made.iter().find(|(known, _)| *known == said).map(|(_, context)| Arc::clone(context));
        let context = match known {
            Some(context) => context,
            None => {
                let full = |name: &[u8]| full_name(&prefix, name);
                let context = said.build(&full, &mut |name| read(&files, name))?;
                made.push((said, Arc::clone(&context)));
                context
            }
        };
        *conf.context = Some(context);
    }
    Ok(())
}
