//! Settings for connections to servers (`proxy_ssl_…`, `lua_ssl_…`), and the context that is made of them.
//! Made while a configuration is loaded.
#![forbid(unsafe_code)]

use std::sync::Arc;

use crate::ciphers::{CipherError, CipherList};
use crate::command::{self, Applied, CommandError};
use crate::engine::{Asking, Engine, Keeping, LoadError, Plan, Reasons, Side, Verification, Versions};
use crate::files::{self, PairName, PairNames, ReadFile};
use crate::reason::{Library, Reason};
use crate::{AwsLc, Context, Pair};

/// The parameters of a context: equal ones make contexts that are good for each other's connections. Names of
/// files are as they are looked for, except for those in commands.
#[derive(Clone, PartialEq, Eq)]
pub struct Outgoing {
    /// `…_ssl_protocols`
    pub versions: Versions,
    /// `…_ssl_ciphers`
    pub ciphers: Vec<u8>,
    /// Whether sessions are handed out.
    pub keeps_sessions: bool,
    /// How servers' certificates are checked, if they are.
    pub verify: Option<Checks>,
    /// The certificate for servers that ask for one.
    pub pair: Option<PairName>,
    /// The passwords of encrypted keys.
    pub passwords: Option<Arc<Vec<Vec<u8>>>>,
    /// `…_ssl_conf_command`, in their order.
    pub commands: Vec<(Vec<u8>, Vec<u8>)>,
}

/// How certificates are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Whether all that is wrong is looked at, of which the last is found in the end (`On`, as nginx does it
    /// of servers that requests are passed to), or the first thing alone (`Off`). No handshake fails for it.
    pub asking: Asking,
    /// `…_ssl_verify_depth`
    pub depth: u64,
    /// `…_ssl_trusted_certificate`; empty: none is trusted.
    pub trusted: Vec<u8>,
    /// `…_ssl_crl`; empty: there is none.
    pub revoked: Vec<u8>,
}

impl Outgoing {
    /// Makes the context. `full` makes names in commands those of files.
    ///
    /// # Errors
    /// nginx's message.
    pub fn build(&self, full: &dyn Fn(&[u8]) -> Vec<u8>, read: ReadFile<'_>) -> Result<Arc<Context>, String> {
        let text = String::from_utf8_lossy(&self.ciphers);
        let ciphers = CipherList::parse(&text).map_err(|error| refused_ciphers(&text, error))?;
        let mut plan = Plan::<Pair>::new(ciphers, Vec::new());
        plan.side = Side::Client;
        plan.versions = self.versions;
        plan.keeping = if self.keeps_sessions { Keeping::Kept } else { Keeping::None };
        let passwords = self.passwords.as_ref().map_or(&[][..], |all| &all[..]);
        if let Some(names) = &self.pair {
            plan.pairs.push(Arc::new(names.names().load(passwords, read)?));
        }
        if let Some(checks) = &self.verify {
            plan.verification = Verification {
                asking: checks.asking,
                depth: u32::try_from(checks.depth).unwrap_or(u32::MAX),
                ..Verification::default()
            };
            if !checks.trusted.is_empty() {
                plan.verification.trusted = files::load_trusted(&checks.trusted, read)?;
            }
            if !checks.revoked.is_empty() {
                plan.verification.revoked = files::load_revoked(&checks.revoked, read)?;
            }
        }
        self.apply_commands(&mut plan, passwords, full, read)?;
        AwsLc::context(&plan).map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &LoadError) -> String {
        let is_of_pair = error.call.starts_with("SSL_CTX_use_");
        match self.pair.as_ref().filter(|_| is_of_pair) {
            Some(names) => names.names().refusal(error),
            None => error.to_string(),
        }
    }

    fn apply_commands(
        &self,
        plan: &mut Plan<Pair>,
        passwords: &[Vec<u8>],
        full: &dyn Fn(&[u8]) -> Vec<u8>,
        read: ReadFile<'_>,
    ) -> Result<(), String> {
        let mut certificate = None;
        for (name, value) in &self.commands {
            match apply(plan, name, value)? {
                Applied::Planned | Applied::Tickets | Applied::WithoutEffect(_) => {}
                Applied::Certificate => certificate = Some(full(value)),
                Applied::PrivateKey => {
                    let Some(certificate) = certificate.take() else { continue };
                    let key = full(value);
                    let names = PairNames { certificate: &certificate, key: &key };
                    plan.pairs.push(Arc::new(names.load(passwords, read)?));
                }
            }
        }
        Ok(())
    }
}

/// Applies one `…_ssl_conf_command`.
///
/// # Errors
/// nginx's message.
pub fn apply(plan: &mut Plan<Pair>, name: &[u8], value: &[u8]) -> Result<Applied, String> {
    let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    command::apply(plan, &name, &value).map_err(|error| {
        let said = match error {
            CommandError::Refused(reasons) => format!("SSL:{}", Reasons(&reasons)),
            CommandError::NotHere(reason) => reason.to_owned(),
        };
        format!("SSL_CONF_cmd(\"{name}\", \"{value}\") failed ({said})")
    })
}

/// Why a command of a configuration is without effect, if it is.
#[must_use]
pub fn without_effect(name: &[u8], value: &[u8]) -> Option<&'static str> {
    let ciphers = CipherList::parse("DEFAULT").ok()?;
    match apply(&mut Plan::new(ciphers, Vec::new()), name, value) {
        Ok(Applied::WithoutEffect(reason)) => Some(reason),
        Ok(Applied::Tickets) => Some("tickets are the server's"),
        _ => None,
    }
}

fn refused_ciphers(text: &str, error: CipherError) -> String {
    let name = match error {
        CipherError::InvalidCommand => "INVALID_COMMAND",
        CipherError::NoMatch => "NO_CIPHER_MATCH",
    };
    let reason = Reason::named(Library::Ssl, name);
    format!("SSL_CTX_set_cipher_list(\"{text}\") failed (SSL: {reason})")
}
