//! The common state of sessions, made from a [`Plan`]: an SSL_CTX of AWS-LC with its callbacks. Security
//! levels and cipher strings, which the library does not know, are applied here.
//!
//! Callbacks find what they need by two pointers that are hung on the library's objects: [`Shared`] of the
//! context and [`Lookups`] of the session. A session holds its context, and gives its own back last, so both
//! outlive every callback. No callback waits: what they need was given before.
#![expect(unsafe_code, reason = "callbacks of a C library")]

use std::ffi::{CString, c_int, c_long, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use aws_lc_sys as ffi;

use crate::compression::{CompressedCertificates, ZLIB};
use crate::engine::{
    Asking, Compression, EarlyData, KEPT_KEY_LENGTH, Keeping, Kept, LoadError, Plan, Preference, Side,
    Staple, Stapling, Tickets, Verification, Verified, Versions,
};
use crate::level::{Level, Version};
use crate::pair::Pair;
use crate::refusal::Circumstances;
use crate::sys::{self, Certificate, Owned, TICKET_OVERHEAD, TicketCipher};
use crate::tickets::KeyRing;

/// The data for callbacks of a context.
pub(crate) struct Shared {
    compressed: CompressedCertificates,
    protocols: Vec<Vec<u8>>,
    ciphers: ArcSwap<Vec<TicketCipher>>,
}

/// The data for callbacks of one session, and their results.
#[derive(Default)]
pub(crate) struct Lookups {
    pub(crate) kept: Option<Kept>,
    pub(crate) staples: Vec<Staple<Pair>>,
    /// Whether the session has an answer that fits any certificate.
    pub(crate) has_answer: bool,
    pub(crate) fresh: Vec<Kept>,
    /// The algorithm of this side's signature, by number; 0 before there is one.
    pub(crate) signature: u16,
    /// A protocol that the client is not to have.
    pub(crate) withheld: Option<&'static [u8]>,
    /// The facts that tell why a handshake is refused.
    pub(crate) circumstances: Circumstances,
    /// The answer for a server that asks for a certificate.
    pub(crate) question: Question,
}

/// Whether a server's question for a certificate is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Question {
    /// The question was answered, or is answered as the context says.
    #[default]
    Answered,
    Open,
}

/// State that sessions have in common.
pub struct Context {
    ssl: Owned<ffi::SSL_CTX>,
    shared: Box<Shared>,
    versions: Versions,
    level: Level,
    has_handles: HasHandles,
}

// SAFETY: the library says of SSL_CTX that sessions of any thread use it at once after it was configured, and
// it is configured before it is shared; what callbacks read of `Shared` is behind an atomic pointer.
unsafe impl Sync for Context {}

/// Whether tickets of TLS 1.3 are nothing but keys of sessions that the server keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HasHandles {
    No,
    Yes,
}

impl Context {
    /// Makes a context.
    ///
    /// # Errors
    /// If the library refuses a part of the plan.
    pub fn new(plan: &Plan<Pair>) -> Result<Arc<Self>, LoadError> {
        sys::clear_reasons();
        // SAFETY: no memory of ours; what comes back is ours.
        let ssl = unsafe { Owned::take(ffi::SSL_CTX_new(ffi::TLS_method())) };
        let ssl = ssl.ok_or_else(|| sys::load_error("SSL_CTX_new()"))?;
        let ciphers = match &plan.tickets {
            Tickets::Ring(ring) => ciphers(ring)?,
            Tickets::Off => Vec::new(),
        };
        let mut context = Self {
            ssl,
            shared: Box::new(Shared {
                compressed: CompressedCertificates::default(),
                protocols: plan.protocols.clone(),
                ciphers: ArcSwap::from_pointee(ciphers),
            }),
            versions: plan.versions,
            level: plan.level,
            has_handles: HasHandles::No,
        };
        context.set_suites(plan)?;
        context.set_groups(plan)?;
        for pair in &plan.pairs {
            context.add_pair(pair)?;
        }
        match plan.side {
            Side::Server => context.set_sessions(plan)?,
            Side::Client => context.set_own_sessions(plan.keeping),
        }
        context.set_verification(&plan.verification)?;
        context.set_callbacks(plan)?;
        debug_assert!(
            context.has_handles == HasHandles::No || plan.keeping == Keeping::Kept,
            "a ticket stands for a session that is kept"
        );
        debug_assert!(
            context.has_handles == HasHandles::No || plan.side == Side::Server,
            "tickets are the server's"
        );
        Ok(Arc::new(context))
    }

    pub(crate) fn as_ptr(&self) -> *mut ffi::SSL_CTX {
        self.ssl.as_ptr()
    }

    pub(crate) fn level(&self) -> Level {
        self.level
    }

    /// Those that are spoken.
    pub(crate) fn versions(&self) -> Versions {
        self.versions
    }

    /// The version that a session will have with a client that speaks these.
    #[must_use]
    pub fn version_with(&self, spoken: impl Iterator<Item = u16>) -> Option<Version> {
        self.versions.newest_of(spoken)
    }

    /// Those that a session speaks: its own, or others that are wanted, as far as the level allows.
    #[must_use]
    pub fn spoken(&self, wanted: Option<Versions>) -> Versions {
        let Some(wanted) = wanted else { return self.versions };
        let are_allowed = wanted.iter().filter(|&version| self.level().allows_version(version));
        are_allowed.fold(Versions::none(), Versions::and)
    }

    /// Whether a session of that version gets no tickets although the context has them.
    pub(crate) fn refuses_tickets(&self, version: Option<Version>) -> bool {
        self.has_handles == HasHandles::Yes && version != Some(Version::Tls13)
    }

    /// Has tickets encrypted with another ring from now on.
    ///
    /// # Errors
    /// If the library cannot use a key.
    pub fn rotate(&self, ring: &KeyRing) -> Result<(), LoadError> {
        self.shared.ciphers.store(Arc::new(ciphers(ring)?));
        Ok(())
    }

    /// Versions, and suites in the order of the string.
    fn set_suites(&mut self, plan: &Plan<Pair>) -> Result<(), LoadError> {
        let suites = plan.ciphers.suites().iter().filter(|s| s.is_served() && plan.level.allows_suite(s));
        let names: Vec<&str> = suites.map(|suite| suite.name).collect();
        let is_usable = |version: &Version| {
            let has_suites = *version == Version::Tls13 || !names.is_empty();
            has_suites && plan.level.allows_version(*version)
        };
        self.versions = plan.versions.iter().filter(is_usable).fold(Versions::none(), Versions::and);
        let refused = refusals(self.versions);
        let order = match plan.preference {
            Preference::Server => ffi::SSL_OP_CIPHER_SERVER_PREFERENCE.cast_unsigned(),
            Preference::Client => 0,
        };
        let context = self.as_ptr();
        // SAFETY: the context is alive and nobody else's yet.
        unsafe {
            ffi::SSL_CTX_set_min_proto_version(context, Version::Tls10.number());
            ffi::SSL_CTX_set_max_proto_version(context, Version::Tls13.number());
            ffi::SSL_CTX_set_options(context, refused | order);
        }
        if !names.is_empty() {
            let names = names.join(":");
            self.with_text("SSL_CTX_set_cipher_list()", &names, ffi::SSL_CTX_set_strict_cipher_list)?;
        }
        match &plan.suites_of_13 {
            Some(names) => self.with_text("SSL_CTX_set_ciphersuites()", names, ffi::SSL_CTX_set_ciphersuites),
            None => Ok(()),
        }
    }

    /// Groups, and digests that the level allows.
    fn set_groups(&mut self, plan: &Plan<Pair>) -> Result<(), LoadError> {
        /// ECDSA, Ed25519, PSS and PKCS #1, each with SHA-256, 384 and 512.
        const STRONG: [u16; 10] =
            [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0603, 0x0806, 0x0601, 0x0807];
        if let Some(names) = &plan.signatures {
            self.with_text("SSL_CTX_set1_sigalgs_list()", names, ffi::SSL_CTX_set1_sigalgs_list)?;
        } else if plan.level.number() > 0 {
            // SAFETY: the array is as long as is said, and copied.
            let is_set = unsafe {
                ffi::SSL_CTX_set_signing_algorithm_prefs(self.as_ptr(), STRONG.as_ptr(), STRONG.len())
            };
            succeeded(is_set, "SSL_CTX_set1_sigalgs()")?;
        }
        match &plan.groups {
            Some(names) => self.with_text("SSL_CTX_set1_curves_list()", names, ffi::SSL_CTX_set1_groups_list),
            None => Ok(()),
        }
    }

    fn add_pair(&mut self, pair: &Pair) -> Result<(), LoadError> {
        pair.check(self.level)?;
        let context = self.as_ptr();
        // SAFETY: all objects are alive; the library counts its references.
        unsafe {
            let is_set = ffi::SSL_CTX_use_certificate(context, pair.certificate().as_ptr());
            succeeded(is_set, "SSL_CTX_use_certificate()")?;
            succeeded(ffi::SSL_CTX_clear_chain_certs(context), "SSL_CTX_set0_chain()")?;
            for one in pair.signers() {
                succeeded(ffi::SSL_CTX_add1_chain_cert(context, one.as_ptr()), "SSL_CTX_set0_chain()")?;
            }
            succeeded(ffi::SSL_CTX_use_PrivateKey(context, pair.key().as_ptr()), "SSL_CTX_use_PrivateKey()")
        }
    }

    /// How sessions are taken up again.
    fn set_sessions(&mut self, plan: &Plan<Pair>) -> Result<(), LoadError> {
        let context = self.as_ptr();
        let has_tickets = matches!(plan.tickets, Tickets::Ring(_)) && plan.level.allows_tickets();
        let mode = match plan.keeping {
            Keeping::Off => ffi::SSL_SESS_CACHE_OFF,
            Keeping::None | Keeping::Kept => ffi::SSL_SESS_CACHE_SERVER | ffi::SSL_SESS_CACHE_NO_INTERNAL,
        };
        // SAFETY: the context is alive and nobody else's yet; the scope is copied.
        unsafe {
            ffi::SSL_CTX_set_session_cache_mode(context, mode);
            ffi::SSL_CTX_set_timeout(context, plan.timeout_s);
            ffi::SSL_CTX_set_session_psk_dhe_timeout(context, plan.timeout_s);
            let is_set = ffi::SSL_CTX_set_session_id_context(context, plan.scope.as_ptr(), plan.scope.len());
            succeeded(is_set, "SSL_CTX_set_session_id_context()")?;
            if plan.keeping == Keeping::Kept {
                ffi::SSL_CTX_sess_set_new_cb(context, Some(keep_session));
                ffi::SSL_CTX_sess_set_get_cb(context, Some(find_session));
            }
            if let Some(count) = plan.tickets_count {
                let is_set = ffi::SSL_CTX_set_num_tickets(context, count as usize);
                succeeded(is_set, "SSL_CTX_set_num_tickets()")?;
            }
            match (has_tickets, plan.keeping) {
                (true, _) => ffi::SSL_CTX_set_ticket_aead_method(context, &raw const TICKETS.0),
                (false, Keeping::Kept) => {
                    self.has_handles = HasHandles::Yes;
                    ffi::SSL_CTX_set_ticket_aead_method(context, &raw const HANDLES.0);
                }
                (false, _) => {
                    ffi::SSL_CTX_set_options(context, ffi::SSL_OP_NO_TICKET.cast_unsigned());
                }
            }
        }
        Ok(())
    }

    /// Whether sessions of a client are handed out.
    fn set_own_sessions(&mut self, keeping: Keeping) {
        if keeping == Keeping::Kept {
            let mode = ffi::SSL_SESS_CACHE_CLIENT | ffi::SSL_SESS_CACHE_NO_INTERNAL;
            // SAFETY: the context is alive and nobody else's yet.
            unsafe {
                ffi::SSL_CTX_set_session_cache_mode(self.as_ptr(), mode);
                ffi::SSL_CTX_sess_set_new_cb(self.as_ptr(), Some(keep_own_session));
            }
        }
    }

    fn set_verification(&mut self, plan: &Verification) -> Result<(), LoadError> {
        let context = self.as_ptr();
        let depth = c_int::try_from(plan.depth).unwrap_or(c_int::MAX);
        // SAFETY: the context is alive and nobody else's yet; its store lives as long.
        let store = unsafe {
            if plan.asking == Asking::On {
                ffi::SSL_CTX_set_verify(context, ffi::SSL_VERIFY_PEER, Some(go_on));
            }
            ffi::SSL_CTX_set_verify_depth(context, depth);
            ffi::SSL_CTX_get_cert_store(context)
        };
        for (certificates, is_told) in [(&plan.authorities, true), (&plan.trusted, false)] {
            if certificates.is_empty() {
                continue;
            }
            let mut told = Vec::new();
            for one in Certificate::read_all(certificates)? {
                let name = one.legacy_name(sys::NameOf::Subject);
                // Clients are told each name once.
                let is_told = is_told && !told.contains(&name);
                told.push(name);
                // SAFETY: all objects are alive; the library counts and copies.
                unsafe {
                    succeeded(ffi::X509_STORE_add_cert(store, one.as_ptr()), "X509_STORE_add_cert()")?;
                    if is_told {
                        succeeded(
                            ffi::SSL_CTX_add_client_CA(context, one.as_ptr()),
                            "SSL_CTX_add_client_CA()",
                        )?;
                    }
                }
            }
        }
        if plan.revoked.is_empty() {
            return Ok(());
        }
        const ALL: i32 = ffi::X509_V_FLAG_CRL_CHECK | ffi::X509_V_FLAG_CRL_CHECK_ALL;
        for list in sys::read_revoked(&plan.revoked)? {
            // SAFETY: both are alive; the library counts.
            succeeded(unsafe { ffi::X509_STORE_add_crl(store, list.as_ptr()) }, "X509_STORE_add_crl()")?;
        }
        // SAFETY: the store is alive.
        succeeded(unsafe { ffi::X509_STORE_set_flags(store, ALL as _) }, "X509_STORE_set_flags()")
    }

    fn set_callbacks(&mut self, plan: &Plan<Pair>) -> Result<(), LoadError> {
        let context = self.as_ptr();
        let shared: *const Shared = &raw const *self.shared;
        // SAFETY: the context is alive. What is hung on it is in a box of its owner, which sessions hold.
        unsafe {
            let is_hung = ffi::SSL_CTX_set_ex_data(context, context_index(), shared.cast_mut().cast());
            succeeded(is_hung, "SSL_CTX_set_ex_data()")?;
            match plan.side {
                _ if plan.protocols.is_empty() => {}
                Side::Server => {
                    ffi::SSL_CTX_set_alpn_select_cb(context, Some(choose_protocol), ptr::null_mut())
                }
                Side::Client => {
                    let list = protocol_list(&plan.protocols);
                    // Unlike the library's other functions this one returns 0 on success.
                    let refused = ffi::SSL_CTX_set_alpn_protos(context, list.as_ptr(), list.len());
                    succeeded(1 - refused, "SSL_CTX_set_alpn_protos()")?;
                }
            }
            let takes = plan.side == Side::Server && plan.early_data == EarlyData::Taken;
            if plan.stapling == Stapling::On {
                ffi::SSL_CTX_set_tlsext_status_cb(context, Some(staple));
            }
            ffi::SSL_CTX_set_early_data_enabled(context, c_int::from(takes));
            if plan.compression == Compression::Zlib {
                let is_added =
                    ffi::SSL_CTX_add_cert_compression_alg(context, ZLIB, Some(compress_certificate), None);
                succeeded(is_added, "SSL_CTX_add_cert_compression_alg()")?;
            }
        }
        Ok(())
    }

    fn with_text(
        &mut self,
        call: &'static str,
        value: &str,
        set: unsafe extern "C" fn(*mut ffi::SSL_CTX, *const std::ffi::c_char) -> c_int,
    ) -> Result<(), LoadError> {
        let Ok(value) = CString::new(value) else {
            return Err(LoadError { call, reasons: Vec::new() });
        };
        // SAFETY: the context is alive and nobody else's yet; the text is copied.
        succeeded(unsafe { set(self.as_ptr(), value.as_ptr()) }, call)
    }
}

/// As they stand in a hello: each behind its length. Those that no hello could hold are left out.
fn protocol_list(protocols: &[Vec<u8>]) -> Vec<u8> {
    let sized = protocols.iter().filter_map(|name| Some((u8::try_from(name.len()).ok()?, name)));
    sized.flat_map(|(length, name)| std::iter::once(length).chain(name.iter().copied())).collect()
}

/// Options that refuse all versions but these.
pub(crate) fn refusals(spoken: Versions) -> u32 {
    let refused = Version::ALL.into_iter().filter(|&version| !spoken.has(version));
    refused.fold(0, |all, version| all | refusal(version).cast_unsigned())
}

fn refusal(version: Version) -> i32 {
    match version {
        Version::Tls10 => ffi::SSL_OP_NO_TLSv1,
        Version::Tls11 => ffi::SSL_OP_NO_TLSv1_1,
        Version::Tls12 => ffi::SSL_OP_NO_TLSv1_2,
        Version::Tls13 => ffi::SSL_OP_NO_TLSv1_3,
    }
}

/// The result of a function of the library that returns 1.
pub(crate) fn succeeded(result: c_int, call: &'static str) -> Result<(), LoadError> {
    if result == 1 { Ok(()) } else { Err(sys::load_error(call)) }
}

fn ciphers(ring: &KeyRing) -> Result<Vec<TicketCipher>, LoadError> {
    debug_assert!(!ring.keys().is_empty(), "a ring has a key that encrypts");
    let all: Option<Vec<_>> = ring.keys().iter().map(TicketCipher::new).collect();
    all.ok_or_else(|| sys::load_error("EVP_AEAD_CTX_new()"))
}

/// Under which number [`Shared`] hangs on contexts.
fn context_index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the library does nothing with what hangs there.
    let index = *INDEX.get_or_init(|| unsafe {
        ffi::SSL_CTX_get_ex_new_index(0, ptr::null_mut(), ptr::null_mut(), None, None)
    });
    assert!(index >= 0, "the library has a number for what hangs on contexts");
    index
}

/// Under which number [`Lookups`] hang on sessions.
pub(crate) fn session_index() -> c_int {
    static INDEX: OnceLock<c_int> = OnceLock::new();
    // SAFETY: the library does nothing with what hangs there.
    let index = *INDEX.get_or_init(|| unsafe {
        ffi::SSL_get_ex_new_index(0, ptr::null_mut(), ptr::null_mut(), None, None)
    });
    assert!(index >= 0, "the library has a number for what hangs on sessions");
    index
}

/// The data of the context of a session.
///
/// # Safety
/// `ssl` is a session of a [`Context`], inside a callback.
unsafe fn shared<'a>(ssl: *const ffi::SSL) -> Option<&'a Shared> {
    // SAFETY: only contexts of this file have that number, and a session holds its context.
    unsafe {
        let context = ffi::SSL_get_SSL_CTX(ssl);
        ffi::SSL_CTX_get_ex_data(context, context_index()).cast::<Shared>().as_ref()
    }
}

/// The data of a session.
///
/// # Safety
/// `ssl` is a session that has [`Lookups`], inside a callback; nothing else refers to them meanwhile.
unsafe fn lookups<'a>(ssl: *const ffi::SSL) -> Option<&'a mut Lookups> {
    // SAFETY: as the caller says.
    let lookups = unsafe { ffi::SSL_get_ex_data(ssl, session_index()).cast::<Lookups>().as_mut() };
    debug_assert!(lookups.is_some(), "they hang on a session before its callbacks run");
    lookups
}

/// Bytes that the library shows, which may be none.
///
/// # Safety
/// They are there until the callback returns.
unsafe fn shown<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if length == 0 || start.is_null() {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { std::slice::from_raw_parts(start, length) }
}

/// A server asks for a certificate: the library waits where one is to be said.
pub(crate) unsafe extern "C" fn ask_for_certificate(ssl: *mut ffi::SSL, _: *mut c_void) -> c_int {
    // SAFETY: called by the library, for a session that has its lookups.
    let question = unsafe { lookups(ssl) }.map(|lookups| lookups.question);
    if question == Some(Question::Open) { -1 } else { 1 }
}

/// Goes on whatever is wrong with a certificate: what it is stands in the session, and it is the request that
/// is answered accordingly.
pub(crate) unsafe extern "C" fn go_on(_: c_int, _: *mut ffi::X509_STORE_CTX) -> c_int {
    1
}

/// Takes the first protocol of the server's that the client speaks; without one the handshake fails.
unsafe extern "C" fn choose_protocol(
    ssl: *mut ffi::SSL,
    chosen: *mut *const u8,
    chosen_length: *mut u8,
    offered: *const u8,
    offered_length: c_uint,
    _: *mut c_void,
) -> c_int {
    // SAFETY: called by the library, with a list that it has checked and results of its own.
    unsafe {
        let Some(shared) = shared(ssl) else { return ffi::SSL_TLSEXT_ERR_ALERT_FATAL };
        let offered = shown(offered, offered_length as usize);
        let withheld = lookups(ssl).and_then(|lookups| lookups.withheld);
        for protocol in shared.protocols.iter().filter(|&protocol| Some(&protocol[..]) != withheld) {
            let mut rest = offered;
            while let Some((&length, behind)) = rest.split_first() {
                let Some((name, behind)) = behind.split_at_checked(usize::from(length)) else { break };
                if name == protocol.as_slice() {
                    debug_assert!(!name.is_empty(), "a protocol has a name");
                    *chosen = name.as_ptr();
                    *chosen_length = length;
                    return ffi::SSL_TLSEXT_ERR_OK;
                }
                rest = behind;
            }
        }
    }
    ffi::SSL_TLSEXT_ERR_ALERT_FATAL
}

/// Notes kinds of received records, that there is an answer, and the algorithm of this side's signature, from
/// the message that has it, which is shown as it is before it is encrypted (RFC 8446 §4.4.3,
/// RFC 5246 §7.4.3).
pub(crate) unsafe extern "C" fn note_message(
    is_sent: c_int,
    version: c_int,
    kind: c_int,
    message: *const c_void,
    length: usize,
    ssl: *mut ffi::SSL,
    _: *mut c_void,
) {
    // SAFETY: called by the library with a message of that length, for a session that has its lookups.
    unsafe {
        let Some(lookups) = lookups(ssl) else { return };
        let message = shown(message.cast(), length);
        match (is_sent, kind) {
            (0, ffi::SSL3_RT_HEADER) => {
                lookups.circumstances.record = message.first().copied().unwrap_or_default();
            }
            (1, ffi::SSL3_RT_HANDSHAKE) => {
                lookups.circumstances.is_answered = true;
                lookups.signature = signature_of(message, version).unwrap_or(lookups.signature);
            }
            _ => {}
        }
    }
}

/// The signature algorithm of a handshake message with its head; nothing if it has none.
fn signature_of(message: &[u8], version: c_int) -> Option<u16> {
    const HEAD_LENGTH: usize = 4;
    const SERVER_KEY_EXCHANGE: u8 = 12;
    const CERTIFICATE_VERIFY: u8 = 15;
    const NAMED_CURVE: u8 = 3;
    let body = message.get(HEAD_LENGTH..)?;
    let at = match message[0] {
        CERTIFICATE_VERIFY => 0,
        SERVER_KEY_EXCHANGE if version == c_int::from(Version::Tls12.number()) => {
            let [NAMED_CURVE, _, _, point_length] = body.first_chunk()? else { return None };
            HEAD_LENGTH + usize::from(*point_length)
        }
        _ => return None,
    };
    let number: [u8; 2] = *body.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(number))
}

/// Adds what is known of the certificate that was chosen for the client.
unsafe extern "C" fn staple(ssl: *mut ffi::SSL, _: *mut c_void) -> c_int {
    // SAFETY: called by the library with a session whose certificate is alive; the answer is copied.
    unsafe {
        if lookups(ssl).is_some_and(|lookups| lookups.has_answer) {
            return ffi::SSL_TLSEXT_ERR_OK;
        }
        let chosen = ffi::SSL_get_certificate(ssl);
        let found = lookups(ssl).and_then(|lookups| {
            lookups.staples.iter().find(|staple| staple.pair.certificate().is_same(chosen))
        });
        match found {
            Some(staple)
                if ffi::SSL_set_ocsp_response(ssl, staple.answer.as_ptr(), staple.answer.len()) == 1 =>
            {
                ffi::SSL_TLSEXT_ERR_OK
            }
            _ => ffi::SSL_TLSEXT_ERR_NOACK,
        }
    }
}

/// Writes a certificate message as zlib makes it; without it the message is sent as it is.
unsafe extern "C" fn compress_certificate(
    ssl: *mut ffi::SSL,
    out: *mut ffi::CBB,
    message: *const u8,
    length: usize,
) -> c_int {
    // SAFETY: called by the library, with a message of that length and a buffer that grows.
    unsafe {
        match shared(ssl).and_then(|shared| shared.compressed.of(shown(message, length))) {
            Some(compressed) => ffi::CBB_add_bytes(out, compressed.as_ptr(), compressed.len()),
            None => 0,
        }
    }
}

/// A table of functions.
struct Method(ffi::SSL_TICKET_AEAD_METHOD);

// SAFETY: it is never written.
unsafe impl Sync for Method {}

static TICKETS: Method = Method(ffi::SSL_TICKET_AEAD_METHOD {
    max_overhead: Some(ticket_overhead),
    seal: Some(seal_ticket),
    open: Some(open_ticket),
});

static HANDLES: Method = Method(ffi::SSL_TICKET_AEAD_METHOD {
    max_overhead: Some(handle_overhead),
    seal: Some(seal_handle),
    open: Some(open_handle),
});

unsafe extern "C" fn ticket_overhead(_: *mut ffi::SSL) -> usize {
    TICKET_OVERHEAD
}

unsafe extern "C" fn seal_ticket(
    ssl: *mut ffi::SSL,
    out: *mut u8,
    out_length: *mut usize,
    out_max: usize,
    content: *const u8,
    content_length: usize,
) -> c_int {
    // SAFETY: the library has room for `out_max` bytes. `content` may be the same memory, so it is copied.
    let sealed = unsafe {
        let content = shown(content, content_length).to_vec();
        let ticket = std::slice::from_raw_parts_mut(out, out_max);
        ticket.fill(0);
        shared(ssl).and_then(|shared| shared.ciphers.load().first()?.seal(&content, ticket))
    };
    debug_assert!(sealed.is_none_or(|length| length >= TICKET_OVERHEAD), "a ticket has its name and tag");
    assert!(sealed.is_none_or(|length| length <= out_max), "the library has that much room");
    // SAFETY: the result is the library's.
    sealed.map_or(0, |length| unsafe {
        *out_length = length;
        1
    })
}

unsafe extern "C" fn open_ticket(
    ssl: *mut ffi::SSL,
    out: *mut u8,
    out_length: *mut usize,
    out_max: usize,
    ticket: *const u8,
    ticket_length: usize,
) -> ffi::ssl_ticket_aead_result_t {
    // SAFETY: the library has room for `out_max` bytes. `ticket` may be the same memory, so it is copied.
    let opened = unsafe {
        let ticket = shown(ticket, ticket_length).to_vec();
        if out_max == 0 {
            return ffi::ssl_ticket_aead_result_t_ssl_ticket_aead_ignore_ticket;
        }
        let content = std::slice::from_raw_parts_mut(out, out_max);
        shared(ssl).and_then(|shared| {
            let ciphers = shared.ciphers.load();
            let cipher = ciphers.iter().find(|cipher| ticket.starts_with(cipher.name()))?;
            cipher.open(&ticket, content)
        })
    };
    assert!(opened.is_none_or(|length| length <= out_max), "the library has that much room");
    // SAFETY: the result is the library's.
    opened.map_or(ffi::ssl_ticket_aead_result_t_ssl_ticket_aead_ignore_ticket, |length| unsafe {
        *out_length = length;
        ffi::ssl_ticket_aead_result_t_ssl_ticket_aead_success
    })
}

unsafe extern "C" fn handle_overhead(_: *mut ffi::SSL) -> usize {
    KEPT_KEY_LENGTH
}

/// Has the session kept and gives the client its key, with as many bytes as the session behind it: what is
/// opened later may not be longer than the ticket.
unsafe extern "C" fn seal_handle(
    ssl: *mut ffi::SSL,
    out: *mut u8,
    out_length: *mut usize,
    out_max: usize,
    content: *const u8,
    content_length: usize,
) -> c_int {
    let length = content_length.max(KEPT_KEY_LENGTH);
    if out_max < length {
        return 0;
    }
    let key: [u8; KEPT_KEY_LENGTH] = sys::random();
    // SAFETY: the library has room for `out_max` bytes; `content` is copied before they are written.
    unsafe {
        let Some(lookups) = lookups(ssl) else { return 0 };
        lookups.fresh.push(Kept { key: key.to_vec(), content: shown(content, content_length).to_vec() });
        assert!(KEPT_KEY_LENGTH <= length && length <= out_max, "the library has that much room");
        ptr::write_bytes(out, 0, length);
        ptr::copy_nonoverlapping(key.as_ptr(), out, KEPT_KEY_LENGTH);
        *out_length = length;
    }
    1
}

unsafe extern "C" fn open_handle(
    ssl: *mut ffi::SSL,
    out: *mut u8,
    out_length: *mut usize,
    out_max: usize,
    ticket: *const u8,
    ticket_length: usize,
) -> ffi::ssl_ticket_aead_result_t {
    // SAFETY: called by the library, which has room for `out_max` bytes; what was looked up is ours.
    unsafe {
        let key = shown(ticket, ticket_length).get(..KEPT_KEY_LENGTH);
        let kept = lookups(ssl).and_then(|lookups| lookups.kept.take());
        match kept.filter(|kept| Some(kept.key.as_slice()) == key && kept.content.len() <= out_max) {
            Some(kept) => {
                assert!(kept.content.len() <= out_max, "the library has that much room");
                ptr::copy_nonoverlapping(kept.content.as_ptr(), out, kept.content.len());
                *out_length = kept.content.len();
                ffi::ssl_ticket_aead_result_t_ssl_ticket_aead_success
            }
            None => ffi::ssl_ticket_aead_result_t_ssl_ticket_aead_ignore_ticket,
        }
    }
}

/// Has a session of TLS 1.2 kept under its id.
unsafe extern "C" fn keep_session(ssl: *mut ffi::SSL, session: *mut ffi::SSL_SESSION) -> c_int {
    let mut length = 0;
    // SAFETY: called by the library with a session that lives.
    unsafe {
        let id = ffi::SSL_SESSION_get_id(session, &raw mut length);
        let key = shown(id, length as usize).to_vec();
        debug_assert!(key.len() <= KEPT_KEY_LENGTH, "an id is no longer than a key of what is kept");
        if !key.is_empty() {
            keep(ssl, session, key);
        }
    }
    // The library does not give its reference away.
    0
}

/// Has a session of a client's kept.
unsafe extern "C" fn keep_own_session(ssl: *mut ffi::SSL, session: *mut ffi::SSL_SESSION) -> c_int {
    // SAFETY: called by the library with a session that lives.
    unsafe { keep(ssl, session, Vec::new()) };
    0
}

/// Has a session kept in the library's form.
///
/// # Safety
/// Both are alive, and this is a callback.
unsafe fn keep(ssl: *const ffi::SSL, session: *const ffi::SSL_SESSION, key: Vec<u8>) {
    let (mut content, mut length) = (ptr::null_mut(), 0);
    // SAFETY: as the caller says; what the library writes is copied and freed.
    unsafe {
        if ffi::SSL_SESSION_to_bytes(session, &raw mut content, &raw mut length) == 1 {
            let bytes = shown(content, length).to_vec();
            debug_assert!(!bytes.is_empty(), "a session has a form");
            ffi::OPENSSL_free(content.cast());
            if let Some(lookups) = lookups(ssl) {
                lookups.fresh.push(Kept { key, content: bytes });
            }
        }
    }
}

/// The session of TLS 1.2 that was looked up before, if it is the one.
unsafe extern "C" fn find_session(
    ssl: *mut ffi::SSL,
    id: *const u8,
    id_length: c_int,
    is_counted: *mut c_int,
) -> *mut ffi::SSL_SESSION {
    // SAFETY: called by the library with an id of that length; what is returned is the library's.
    unsafe {
        *is_counted = 0;
        let id = shown(id, usize::try_from(id_length).unwrap_or_default());
        let kept = lookups(ssl).and_then(|lookups| lookups.kept.take());
        match kept.filter(|kept| kept.key == id) {
            Some(Kept { content, .. }) => {
                let context = ffi::SSL_get_SSL_CTX(ssl);
                let session = ffi::SSL_SESSION_from_bytes(content.as_ptr(), content.len(), context);
                // One that is broken is none: the handshake does not fail for it.
                sys::clear_reasons();
                session
            }
            None => ptr::null_mut(),
        }
    }
}

/// The result of checking a certificate, by its number (X509_V_ERR).
#[must_use]
pub fn verified(number: c_long) -> Verified {
    if number == 0 { Verified::Sound } else { Verified::Failed(number, sys::verification_text(number)) }
}
