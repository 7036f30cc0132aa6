//! From what a server says of TLS to a context of the library, in nginx's order and words. Boot and reload:
//! what is computed here may take milliseconds for each server.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;
use clearway_base::log::Sink;
use clearway_conf::{Error, KeptFiles};
use clearway_http::{
    Accept, HANDSHAKE_CODE, Load, RecordSize, ServerTls, SniHandling, ThreadPools, TlsConf, Verify,
};
use clearway_net::listen::HostNames;
use clearway_offload::{CRYPTO_POOL, Pool};
use clearway_tls::cache::{SessionCache as Sessions, SharedKeys, ZONE_MODULE};
use clearway_tls::ciphers::CipherList;
use clearway_tls::command::{self, Applied, CommandError};
use clearway_tls::engine::{
    Asking, Compression, EarlyData, Engine, Keeping, LoadError, Plan, Preference, Reasons, Stapling, Tickets,
    Verification, Versions,
};
use clearway_tls::level::{Key, Version};
use clearway_tls::reason::{Library, Reason};
use clearway_tls::tickets::{FILE_LENGTHS, KeyRing, TicketKey};
use clearway_tls::{AwsLc, Certificate, Context, Pair};
use clearway_zone::Zones;
use sha1::{Digest, Sha1};

use super::acceptor::{Acceptor, Keys};
use super::named::Named;
use super::settings::{SessionCache, SslConf};
use super::staples::{ShownPair, Staples};
use super::stapling::Stapling as StaplingOfServer;

/// Sessions that OpenSSL keeps where nobody says how many.
pub(crate) const BUILTIN_SESSIONS: u64 = 20_480;

/// The state that contexts are made with.
pub(crate) struct Maker {
    files: Arc<KeptFiles>,
    /// Where relative paths begin.
    prefix: Vec<u8>,
    pool: Option<Arc<Pool>>,
    zones: Option<Arc<Zones>>,
    /// Looks up names of responders.
    names: Arc<HostNames>,
    /// Where is said what goes wrong without a connection.
    log: Arc<dyn Sink>,
    warnings: RefCell<Vec<Error>>,
    /// Whether code keeps sessions.
    has_session_code: bool,
    /// Whether code chooses certificates, of any server.
    has_certificate_code: bool,
}

impl Maker {
    pub(crate) fn new(load: &mut Load) -> Self {
        let codes = load.server(&HANDSHAKE_CODE);
        let has_session_code = codes.session_fetch.is_some() || codes.session_store.is_some();
        let has_certificate_code =
            load.server_ids().any(|id| load.of_server(id, &HANDSHAKE_CODE).certificate.is_some());
        let pools = load.environment().services.find::<ThreadPools>();
        Self {
            files: load.kept_files(),
            prefix: load.conf_prefix(),
            zones: load.environment().services.find::<Arc<Zones>>().cloned(),
            pool: pools.and_then(|pools| pools.find(CRYPTO_POOL.as_bytes()).cloned()).filter(|_| has_pool()),
            names: load.resolver(),
            log: Arc::clone(&load.environment().error_log),
            warnings: RefCell::default(),
            has_session_code,
            has_certificate_code,
        }
    }

    /// The warnings.
    pub(crate) fn into_warnings(self) -> Vec<Error> {
        self.warnings.into_inner()
    }

    /// The TLS settings of a server; `None` if it does not speak TLS.
    pub(crate) fn make(&self, conf: &SslConf) -> Result<Option<TlsConf>, Error> {
        if conf.certificates.len() > conf.keys.len() {
            let last = &conf.certificates[conf.certificates.len() - 1];
            let name = String::from_utf8_lossy(last);
            let message = format!("no \"ssl_certificate_key\" is defined for certificate \"{name}\"");
            return Err(Error::unplaced(message));
        }
        let is_spoken = !conf.certificates.is_empty() || *conf.reject_handshake;
        if !is_spoken && *conf.verify_client == Verify::Off {
            return Ok(None);
        }
        // Also for a server that has no certificate: the default one's may answer for it.
        let acceptor = if is_spoken { Some(self.acceptor(conf)?) } else { None };
        let tls = ServerTls {
            acceptor: acceptor.filter(|_| !conf.certificates.is_empty()),
            handling: if *conf.reject_handshake { SniHandling::Rejected } else { SniHandling::Served },
            verify: *conf.verify_client,
            records: match conf.buffer_size.is_set() {
                true => RecordSize::Fixed(usize::try_from(*conf.buffer_size).unwrap_or(usize::MAX)),
                false => RecordSize::Adaptive,
            },
            pool: self.pool.clone(),
        };
        let mut made = TlsConf::default();
        *made.server = Some(Arc::new(tls));
        Ok(Some(made))
    }

    fn acceptor(&self, conf: &SslConf) -> Result<Arc<dyn Accept>, Error> {
        let mut seal = Seal::default();
        let ciphers = ciphers(&conf.ciphers)?;
        let named = self.named(conf, &mut seal);
        let shown = if named.is_some() { Vec::new() } else { self.pairs(conf, &mut seal)? };
        let pairs = shown.iter().map(|shown| Arc::clone(&shown.pair)).collect();
        let verification = self.verification(conf, &mut seal)?;
        self.check_dhparam(&conf.dhparam)?;
        self.check_unsupported(conf)?;
        seal.scope = seal.digest();
        let (keeping, sessions) = self.sessions(conf)?;
        let ring = self.ring(conf, &mut seal)?;
        let has_tickets = *conf.session_tickets;
        let mut plan = Plan::<Pair> {
            versions: versions(&*conf.protocols),
            preference: match *conf.prefer_server_ciphers {
                true => Preference::Server,
                false => Preference::Client,
            },
            groups: Some(groups(&conf.ecdh_curve)),
            protocols: [super::HTTP2, b"http/1.1", b"http/1.0", b"http/0.9"].map(<[u8]>::to_vec).to_vec(),
            tickets: if has_tickets { Tickets::Ring(Arc::clone(&ring)) } else { Tickets::Off },
            keeping,
            scope: seal.scope,
            timeout_s: u32::try_from(*conf.session_timeout).unwrap_or(u32::MAX),
            verification,
            early_data: if *conf.early_data { EarlyData::Taken } else { EarlyData::Refused },
            // As in nginx, not of certificates that depend on the client.
            compression: match *conf.certificate_compression && named.is_none() {
                true => Compression::Zlib,
                false => Compression::Off,
            },
            stapling: if *conf.stapling { Stapling::On } else { Stapling::Off },
            ..Plan::new(ciphers, pairs)
        };
        if *conf.stapling && *conf.certificate_compression {
            let message = "\"ssl_stapling\" is incompatible with \"ssl_certificate_compression\"";
            return Err(Error::unplaced(message));
        }
        for command in &*conf.conf_commands {
            self.apply(&mut plan, command, &ring, &mut seal)?;
        }
        seal.add(&[u8::from(self.has_session_code)]);
        seal.add(format!("{:?}", Described(conf)).as_bytes());
        let keys = Keys::of(plan.pairs.iter().map(|pair| &**pair));
        let context = self.context(conf, &plan, &seal)?;
        let bare = self.bare(conf, &mut plan, &mut seal)?;
        let stapling = if *conf.stapling { Some(self.stapling(conf, &context, &shown)?) } else { None };
        let timeout_s = plan.timeout_s;
        let is_shared = matches!(&*conf.session_cache, SessionCache::Shared(..));
        let shared = sessions.clone().filter(|_| is_shared && conf.session_ticket_keys.is_empty());
        let shared_keys = shared.map(|cache| SharedKeys::new(cache, timeout_s));
        let ring = Some(ring).filter(|_| has_tickets && shared_keys.is_none());
        Ok(Arc::new(Acceptor {
            context,
            bare,
            keys,
            named,
            stapling,
            sessions,
            timeout_s,
            ring,
            shared_keys,
        }))
    }

    /// Refuses options that nginx with OpenSSL 3.0 does not have either.
    fn check_unsupported(&self, conf: &SslConf) -> Result<(), Error> {
        super::ocsp::check(conf)?;
        if *conf.ech_files {
            self.warn(&["\"ssl_ech_file\" is not supported on this platform, ignored".to_owned()]);
        }
        Ok(())
    }

    /// The context without certificates of handshakes whose code takes them away.
    fn bare(
        &self,
        conf: &SslConf,
        plan: &mut Plan<Pair>,
        seal: &mut Seal,
    ) -> Result<Option<Arc<Context>>, Error> {
        if !self.has_certificate_code {
            return Ok(None);
        }
        plan.pairs.clear();
        seal.add(b"bare");
        Ok(Some(self.context(conf, plan, seal)?))
    }

    /// A context of the library, made unless there is one that is sealed alike.
    fn context(&self, conf: &SslConf, plan: &Plan<Pair>, seal: &Seal) -> Result<Arc<Context>, Error> {
        if let Some(context) = CONTEXTS.find(seal.digest()) {
            return Ok(context);
        }
        let made = AwsLc::context(plan).map_err(|error| self.refused(conf, plan, &error))?;
        CONTEXTS.keep(seal.digest(), &made);
        Ok(made)
    }

    /// Certificates that depend on the client. For sessions, servers that name them alike are one.
    fn named(&self, conf: &SslConf, seal: &mut Seal) -> Option<Named> {
        if !conf.has_variables() {
            return None;
        }
        conf.certificates.iter().for_each(|name| seal.add(name));
        let values = conf.certificate_values.iter().cloned().zip(conf.key_values.iter().cloned());
        Some(Named {
            values: values.collect(),
            cache: Option::clone(&conf.certificate_cache),
            passwords: Arc::new(conf.passwords.to_vec()),
            prefix: self.prefix.clone(),
        })
    }

    /// Reads certificates and keys.
    fn pairs(&self, conf: &SslConf, seal: &mut Seal) -> Result<Vec<ShownPair>, Error> {
        let mut pairs: Vec<ShownPair> = Vec::new();
        for (certificate, key) in conf.certificates.iter().zip(&*conf.keys) {
            let pair = self.pair(certificate, key, &conf.passwords, seal)?;
            pairs.retain(|shown| !is_same_kind(&shown.pair, &pair));
            pairs.push(ShownPair { name: self.shown(certificate), pair: Arc::new(pair) });
        }
        Ok(pairs)
    }

    /// The OCSP answers of the certificates. A reload that changes nothing keeps those that are known.
    fn stapling(
        &self,
        conf: &SslConf,
        context: &Arc<Context>,
        pairs: &[ShownPair],
    ) -> Result<Arc<StaplingOfServer>, Error> {
        let mut seal = Seal::default();
        seal.add(&(Arc::as_ptr(context) as usize).to_le_bytes());
        let said = [&conf.stapling_file, &conf.stapling_responder];
        said.into_iter().for_each(|text| seal.add(text));
        seal.add(&[u8::from(*conf.stapling_verify)]);
        let is_file = !conf.stapling_file.is_empty();
        if let Some(known) = STAPLINGS.find(seal.digest()).filter(|_| !is_file) {
            self.warn(&known.warnings);
            return Ok(known);
        }
        let staples = Staples {
            conf,
            context,
            pairs,
            files: &self.files,
            prefix: &self.prefix,
            names: &self.names,
            pool: self.pool.clone(),
            log: Arc::clone(&self.log),
        };
        let made = Arc::new(staples.make()?);
        self.warn(&made.warnings);
        STAPLINGS.keep(seal.digest(), &made);
        Ok(made)
    }

    fn warn(&self, warnings: &[String]) {
        self.warnings.borrow_mut().extend(warnings.iter().map(|text| Error::unplaced(text.as_str())));
    }

    fn pair(
        &self,
        certificate: &[u8],
        key: &[u8],
        passwords: &[Vec<u8>],
        seal: &mut Seal,
    ) -> Result<Pair, Error> {
        let failed = |what: &str, of: &[u8], why: String| {
            Error::unplaced(format!("cannot load {what} \"{}\": {why}", self.shown(of)))
        };
        let chain = self.read(certificate).map_err(|why| failed("certificate", certificate, why))?;
        if let Some(kind) = ["engine:", "store:"].iter().find(|kind| key.starts_with(kind.as_bytes())) {
            let why = format!("loading \"{kind}...\" certificate keys is not supported");
            return Err(failed("certificate key", key, why));
        }
        seal.add(&chain);
        let own = self.read(key);
        let content = own.as_deref().unwrap_or_default();
        match (Pair::read(&chain, content, passwords), own) {
            (Err(error), _) if error.call.starts_with("PEM_read_bio_X509") => {
                Err(failed("certificate", certificate, error.expecting("TRUSTED CERTIFICATE").to_string()))
            }
            (_, Err(why)) => Err(failed("certificate key", key, why)),
            (Err(error), _) => Err(failed("certificate key", key, undecoded(&error))),
            (Ok(pair), Ok(content)) => {
                seal.add_secret(&content);
                Ok(pair)
            }
        }
    }

    fn verification(&self, conf: &SslConf, seal: &mut Seal) -> Result<Verification, Error> {
        let verify = *conf.verify_client;
        let is_unknown = conf.client_certificate.is_empty() && conf.trusted_certificate.is_empty();
        if matches!(verify, Verify::On | Verify::Optional) && is_unknown {
            let message = "no ssl_client_certificate or ssl_trusted_certificate for ssl_verify_client";
            return Err(Error::unplaced(message));
        }
        let mut content = |name: &[u8], what: &str| -> Result<Vec<u8>, Error> {
            if name.is_empty() {
                return Ok(Vec::new());
            }
            let content = self.read(name).map_err(|why| {
                Error::unplaced(format!("cannot load {what} \"{}\": {why}", self.shown(name)))
            })?;
            seal.add(&content);
            Ok(content.to_vec())
        };
        let authorities = match verify {
            Verify::Off => Vec::new(),
            _ => content(&conf.client_certificate, "certificate")?,
        };
        Ok(Verification {
            asking: if verify == Verify::Off { Asking::Off } else { Asking::On },
            authorities,
            trusted: content(&conf.trusted_certificate, "certificate")?,
            revoked: content(&conf.crl, "CRL")?,
            depth: u32::try_from(*conf.verify_depth).unwrap_or(u32::MAX),
        })
    }

    /// Parameters for key exchanges that are not made have to be some all the same.
    fn check_dhparam(&self, name: &[u8]) -> Result<(), Error> {
        const FORMS: [&[u8]; 2] = [b"-----BEGIN DH PARAMETERS-----", b"-----BEGIN X9.42 DH PARAMETERS-----"];
        if name.is_empty() {
            return Ok(());
        }
        let shown = self.shown(name);
        let content = self.read(name).map_err(|why| {
            Error::unplaced(why.replacen("BIO_new_file()", &format!("BIO_new_file(\"{shown}\")"), 1))
        })?;
        let mut lines = content.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii_end);
        if lines.any(|line| FORMS.contains(&line)) {
            return Ok(());
        }
        let reason =
            Reason::named(Library::Pem, "NO_START_LINE").with_detail("Expecting: DH PARAMETERS".into());
        Err(failed(&format!("PEM_read_bio_DHparams(\"{shown}\")"), &[reason]))
    }

    /// Where sessions are kept.
    fn sessions(&self, conf: &SslConf) -> Result<(Keeping, Option<Arc<Sessions>>), Error> {
        let sessions = match (&*conf.session_cache, &self.zones) {
            (SessionCache::Off, _) => return Ok((Keeping::Off, None)),
            (SessionCache::Builtin(max), _) => Sessions::builtin(u32::try_from(*max).unwrap_or(u32::MAX)),
            (SessionCache::Shared(name, bytes), Some(zones)) => {
                zones.declare(name, *bytes, ZONE_MODULE).map(Sessions::shared)
            }
            (SessionCache::None, _) if self.has_session_code => return Ok((Keeping::Kept, None)),
            (SessionCache::None | SessionCache::Shared(..), _) => return Ok((Keeping::None, None)),
        };
        Ok((Keeping::Kept, Some(Arc::new(sessions.map_err(Error::unplaced)?))))
    }

    /// Keys of tickets: those of files, or one that all servers share.
    fn ring(&self, conf: &SslConf, seal: &mut Seal) -> Result<Arc<KeyRing>, Error> {
        if conf.session_ticket_keys.is_empty() {
            return Ok(super::shared_key::ring());
        }
        let mut keys = Vec::new();
        for name in conf.session_ticket_keys.iter() {
            let path = self.full_name(name);
            let shown = String::from_utf8_lossy(&path).into_owned();
            let content = self.files.read(Path::new(OsStr::from_bytes(&path))).map_err(|error| {
                Error::unplaced(format!("open() \"{shown}\" failed {}", clearway_base::Errno(&error)))
            })?;
            seal.add_secret(&content);
            let key = TicketKey::from_file(&content).ok_or_else(|| {
                let [short, long] = FILE_LENGTHS;
                Error::unplaced(format!("\"{shown}\" must be {short} or {long} bytes"))
            })?;
            keys.push(key);
        }
        Ok(Arc::new(KeyRing::new(keys).expect("a file is named")))
    }

    fn apply(
        &self,
        plan: &mut Plan<Pair>,
        (name, value): &(Bytes, Bytes),
        ring: &Arc<KeyRing>,
        seal: &mut Seal,
    ) -> Result<(), Error> {
        let [name_text, value_text] = [name, value].map(|text| String::from_utf8_lossy(text));
        let call = call_of((name, value));
        match command::apply(plan, &name_text, &value_text) {
            Ok(Applied::Planned | Applied::WithoutEffect(_)) => Ok(()),
            Ok(Applied::Tickets) => {
                plan.tickets = Tickets::Ring(Arc::clone(ring));
                Ok(())
            }
            // The certificate is read with the key that follows it.
            Ok(Applied::Certificate) => {
                seal.pending_certificate = Some(value.to_vec());
                Ok(())
            }
            Ok(Applied::PrivateKey) => {
                let Some(certificate) = seal.pending_certificate.take() else {
                    return Err(failed(&call, &[Reason::named(Library::Ssl, "NO_CERTIFICATE_ASSIGNED")]));
                };
                let pair = self.pair(&certificate, value, &[], seal)?;
                replace(&mut plan.pairs, pair);
                Ok(())
            }
            Err(CommandError::Refused(reasons)) => Err(failed(&call, &reasons)),
            Err(CommandError::NotHere(why)) => Err(Error::unplaced(format!("{call} failed: {why}"))),
        }
    }

    /// Says what the library has refused, with the file that it is about.
    fn refused(&self, conf: &SslConf, plan: &Plan<Pair>, error: &LoadError) -> Error {
        let names = match error.call {
            "SSL_CTX_use_certificate()" | "SSL_CTX_set0_chain()" => &conf.certificates,
            "SSL_CTX_use_PrivateKey()" => &conf.keys,
            "SSL_CTX_set1_curves_list()" => {
                let command = said_by(conf, &["groups", "curves"]);
                return no_group(&String::from_utf8_lossy(&conf.ecdh_curve), plan, command);
            }
            "SSL_CTX_set1_sigalgs_list()" => {
                let command = said_by(conf, &["signaturealgorithms"]);
                return command.map_or_else(
                    || Error::unplaced(error.to_string()),
                    |command| failed(&call_of(command), &[bad_value(command)]),
                );
            }
            "PEM_read_bio_X509_CRL()" => {
                let (name, why) = (self.shown(&conf.crl), error.clone().expecting("X509 CRL"));
                return Error::unplaced(format!("cannot load CRL \"{name}\": {why}"));
            }
            call if call.starts_with("PEM_read_bio_X509") => {
                let both = [&conf.client_certificate, &conf.trusted_certificate];
                let is_broken = |name: &[u8]| {
                    let content = self.read(name).unwrap_or_default();
                    !name.is_empty() && Certificate::read_all(&content).is_err()
                };
                let name = both.into_iter().find(|name| is_broken(name));
                let name = name.map(|name| self.shown(name)).unwrap_or_default();
                let why = error.clone().expecting("TRUSTED CERTIFICATE");
                return Error::unplaced(format!("cannot load certificate \"{name}\": {why}"));
            }
            _ => return Error::unplaced(error.to_string()),
        };
        // Each by itself shows which it is.
        let is_wrong = |pair: &Arc<Pair>| {
            AwsLc::context(&Plan::new(plan.ciphers.clone(), vec![Arc::clone(pair)])).is_err()
        };
        let at = plan.pairs.iter().position(is_wrong).unwrap_or(0);
        let name = names.get(at).map(|named| self.shown(named)).unwrap_or_default();
        failed(&error.call.replace("()", &format!("(\"{name}\")")), &error.reasons)
    }

    /// The content of a file, or what stands for one.
    fn read(&self, name: &[u8]) -> Result<Bytes, String> {
        if let Some(text) = name.strip_prefix(b"data:") {
            return Ok(Bytes::copy_from_slice(text));
        }
        let path = self.full_name(name);
        let path = Path::new(OsStr::from_bytes(&path));
        self.files.read_object(path).map_err(|error| bio_error(path, &error))
    }

    fn full_name(&self, name: &[u8]) -> Vec<u8> {
        if name.starts_with(b"/") { name.to_vec() } else { [&self.prefix, name].concat() }
    }

    /// A name as messages have it.
    fn shown(&self, name: &[u8]) -> String {
        let is_no_file = ["data:", "engine:", "store:"].iter().any(|kind| name.starts_with(kind.as_bytes()));
        let name = if is_no_file { name.to_vec() } else { self.full_name(name) };
        String::from_utf8_lossy(&name).into_owned()
    }
}

/// Measurements compare with a server that makes all handshakes on its loops.
fn has_pool() -> bool {
    const INLINE: &str = "CLEARWAY_TESTING_INLINE_HANDSHAKES";
    !cfg!(feature = "testing") || std::env::var_os(INLINE).is_none()
}

/// OpenSSL's message for a text in which there is no key.
fn undecoded(error: &LoadError) -> String {
    const NO_START_LINE: &str = "no start line";
    const REASON: &str = "error:1E08010C:DECODER routines::unsupported";
    match &error.reasons[..] {
        [reason] if reason.text() == NO_START_LINE => {
            format!("{} failed (SSL: {REASON}:No supported data to decode. Input type: PEM)", error.call)
        }
        _ => error.to_string(),
    }
}

/// A command of OpenSSL's configuration and its value.
type Command<'a> = (&'a Bytes, &'a Bytes);

/// The last of the commands with one of these names, in lower case.
fn said_by<'a>(conf: &'a SslConf, names: &[&str]) -> Option<Command<'a>> {
    let is_meant = |name: &[u8]| names.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()));
    conf.conf_commands.iter().rev().find(|(name, _)| is_meant(name)).map(|(name, value)| (name, value))
}

fn call_of((name, value): Command<'_>) -> String {
    let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text));
    format!("SSL_CONF_cmd(\"{name}\", \"{value}\")")
}

fn bad_value((name, value): Command<'_>) -> Reason {
    let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text));
    Reason::named(Library::Ssl, "BAD_VALUE").with_detail(format!("cmd={name}, value={value}"))
}

/// OpenSSL's message for the first group of a list that it cannot use: that of a command, or of
/// `ssl_ecdh_curve`.
fn no_group(curve: &str, plan: &Plan<Pair>, command: Option<Command<'_>>) -> Error {
    let names = plan.groups.as_deref().unwrap_or(curve);
    let is_unknown = |name: &&str| {
        let alone = Plan { groups: Some((*name).to_owned()), ..Plan::new(plan.ciphers.clone(), Vec::new()) };
        AwsLc::context(&alone).is_err()
    };
    let name = names.split(':').find(is_unknown).unwrap_or(names);
    let reason = "error:0A080106:SSL routines::passed invalid argument";
    let (call, more) = match command {
        Some(command) => (call_of(command), format!(" {}", bad_value(command))),
        None => (format!("SSL_CTX_set1_curves_list(\"{names}\")"), String::new()),
    };
    Error::unplaced(format!("{call} failed (SSL: {reason}:group '{name}' cannot be set{more})"))
}

/// Why OpenSSL opens no file.
fn bio_error(path: &Path, error: &std::io::Error) -> String {
    const ENOENT: i32 = 2;
    let errno = error.raw_os_error().unwrap_or_default();
    let text = clearway_base::Errno(error).to_string();
    let text = text.trim_start_matches('(').trim_end_matches(')');
    let text = text.split_once(": ").map_or(text, |(_, text)| text);
    let code = 0x8000_0000_u32 | errno.cast_unsigned();
    let reason = match errno {
        ENOENT => "error:10000080:BIO routines::no such file",
        _ => "error:10080002:BIO routines::system lib",
    };
    let call = format_args!("calling fopen({}, r)", path.display());
    format!("BIO_new_file() failed (SSL: error:{code:08X}:system library::{text}:{call} {reason})")
}

fn failed(call: &str, reasons: &[Reason]) -> Error {
    if reasons.is_empty() {
        return Error::unplaced(format!("{call} failed"));
    }
    Error::unplaced(format!("{call} failed (SSL:{})", Reasons(reasons)))
}

fn ciphers(text: &[u8]) -> Result<CipherList, Error> {
    let text = String::from_utf8_lossy(text);
    CipherList::parse(&text).map_err(|error| {
        let name = error.to_string().to_ascii_uppercase().replace(' ', "_");
        failed(&format!("SSL_CTX_set_cipher_list(\"{text}\")"), &[Reason::named(Library::Ssl, &name)])
    })
}

fn versions(named: &[bool]) -> Versions {
    let numbers =
        [None, None, Some(Version::Tls10), Some(Version::Tls11), Some(Version::Tls12), Some(Version::Tls13)];
    let chosen = numbers.into_iter().zip(named).filter(|(_, is_named)| **is_named);
    chosen.filter_map(|(version, _)| version).fold(Versions::none(), Versions::and)
}

fn groups(curve: &[u8]) -> String {
    /// The library's, and the one of nginx's that it leaves out.
    const AUTO: &str = "X25519MLKEM768:SecP256r1MLKEM768:SecP384r1MLKEM1024:X25519:P-256:P-384:P-521";
    if curve == b"auto" { AUTO.to_owned() } else { String::from_utf8_lossy(curve).into_owned() }
}

/// Adds a certificate in the place of one with the same kind of key, as the library has one of each.
fn replace(pairs: &mut Vec<Arc<Pair>>, pair: Pair) {
    pairs.retain(|other| !is_same_kind(other, &pair));
    pairs.push(Arc::new(pair));
}

fn is_same_kind(one: &Pair, other: &Pair) -> bool {
    let kind = |pair: &Pair| std::mem::discriminant::<Key>(&pair.certificate().key());
    kind(one) == kind(other)
}

/// The identity of a context: a hash of all that it was made from.
#[derive(Default)]
struct Seal {
    sha1: Sha1,
    /// The servers for which a session is good.
    scope: [u8; 32],
    /// The certificate of `ssl_conf_command Certificate`, until its key is named.
    pending_certificate: Option<Vec<u8>>,
}

impl Seal {
    fn add(&mut self, content: &[u8]) {
        self.sha1.update((content.len() as u64).to_le_bytes());
        self.sha1.update(content);
    }

    fn add_secret(&mut self, content: &[u8]) {
        self.add(content);
    }

    fn digest(&self) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..20].copy_from_slice(&self.sha1.clone().finalize());
        digest
    }
}

/// The settings of a server beside the contents of files.
struct Described<'a>(&'a SslConf);

impl std::fmt::Debug for Described<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let conf = self.0;
        write!(
            f,
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
            *conf.certificate_compression,
            *conf.ecdh_curve,
            *conf.protocols,
            *conf.ciphers,
            *conf.verify_client,
            *conf.verify_depth,
            *conf.prefer_server_ciphers,
            *conf.session_cache,
            *conf.session_tickets,
            *conf.session_timeout,
            *conf.early_data,
            *conf.stapling,
            *conf.conf_commands,
        )
    }
}

/// The objects that a configuration has made, by a hash of their sources. A reload with the same sources
/// keeps them, with their state.
struct Made<T>(Mutex<Vec<([u8; 32], Weak<T>)>>);

static CONTEXTS: Made<Context> = Made(Mutex::new(Vec::new()));
static STAPLINGS: Made<StaplingOfServer> = Made(Mutex::new(Vec::new()));

impl<T> Made<T> {
    fn find(&self, digest: [u8; 32]) -> Option<Arc<T>> {
        let made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.iter().find(|(known, _)| *known == digest)?.1.upgrade()
    }

    fn keep(&self, digest: [u8; 32], one: &Arc<T>) {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(known, one)| one.strong_count() > 0 && *known != digest);
        made.push((digest, Arc::downgrade(one)));
    }
}
