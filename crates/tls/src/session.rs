//! One side of a connection: an SSL of AWS-LC that reads from a buffer of the caller's and writes to another
//! one, both lent for one call. Nothing of it belongs to a thread.
#![expect(unsafe_code, reason = "a C library that reads and writes lent buffers")]

use std::any::Any;
use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::io::IoSlice;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use aws_lc_sys as ffi;

use crate::ciphers::Suite;
use crate::context::{
    Context, Lookups, Question, ask_for_certificate, go_on, note_message, refusals, session_index, succeeded,
    verified,
};
use crate::engine::{
    ClientCheck, Engine, Failure, Given, Info, Kept, LoadError, Opened, Plan, Secrets, Session, Shown, Step,
    Target, Verified, Versions,
};
use crate::hello::Hello;
use crate::level::Version;
use crate::pair::{Chain, Pair};
use crate::reason::{Library, Reason};
use crate::refusal::Circumstances;
use crate::sys::{self, Certificate, Owned};

/// Largest content of a record, bytes.
const RECORD_MAX: usize = 16_384;
/// Bytes that a peer may send without a byte to read in them: more than the beginning of a record, and less
/// than is worth the while of a peer that does nothing but update its keys (27 bytes each).
const FRUITLESS_MAX_BYTES: usize = 20 * 1024;
/// Smallest that the library makes.
const RECORD_MIN: usize = 512;
/// Random bytes of a hello.
const RANDOM_LENGTH: usize = 32;

/// AWS-LC.
pub struct AwsLc;

impl Engine for AwsLc {
    type Pair = Pair;
    type Context = Context;
    type Session = TlsSession;

    fn context(plan: &Plan<Pair>) -> Result<Arc<Context>, LoadError> {
        Context::new(plan)
    }

    fn accept(context: &Arc<Context>, hello: &Hello, given: Given<Pair>) -> Result<TlsSession, LoadError> {
        TlsSession::accept(context, hello, given)
    }

    fn connect(context: &Arc<Context>, target: Target<'_>) -> Result<TlsSession, LoadError> {
        TlsSession::connect(context, target)
    }
}

/// The caller's data that a session may touch while the library runs.
struct Lent {
    input: *const u8,
    left: usize,
    output: *mut Vec<u8>,
}

/// A value that the library has a pointer to: not behind a `Box`, which would claim it for itself.
struct Pinned<T>(NonNull<T>);

impl<T> Pinned<T> {
    fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }

    fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Drop for Pinned<T> {
    fn drop(&mut self) {
        // SAFETY: it was leaked in `new`, and is given back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// One side of a connection. Fields are given back in their order: first what has pointers to the others.
pub struct TlsSession {
    ssl: Owned<ffi::SSL>,
    lent: Pinned<Lent>,
    lookups: Pinned<Lookups>,
    /// How long records may be, as the library was told; 0 before it was.
    record: usize,
    /// Bytes that were read since there was something to read in them.
    fruitless: usize,
    context: Arc<Context>,
}

// SAFETY: the library's objects may be used by any thread, one at a time; what they point to belongs to the
// session, and `&self` changes nothing.
unsafe impl Send for TlsSession {}

impl TlsSession {
    fn accept(context: &Arc<Context>, hello: &Hello, given: Given<Pair>) -> Result<Self, LoadError> {
        let session = Self::new(
            context,
            Lookups {
                kept: given.kept,
                withheld: given.withheld,
                staples: given.staples,
                has_answer: given.answer.is_some(),
                circumstances: Circumstances::of(hello),
                ..Lookups::default()
            },
        )?;
        let ssl = session.ssl.as_ptr();
        let versions = context.spoken(given.versions);
        // SAFETY: the session is alive and nobody else's.
        unsafe {
            ffi::SSL_set_accept_state(ssl);
            ffi::SSL_set_msg_callback(ssl, Some(note_message));
            if context.refuses_tickets(versions.newest_of(hello.versions())) {
                ffi::SSL_set_options(ssl, ffi::SSL_OP_NO_TICKET.cast_unsigned());
            }
        }
        if given.versions.is_some() {
            session.speak(versions);
        }
        if let Some(check) = &given.check {
            session.check_client(check)?;
        }
        if let Some(answer) = given.answer {
            // SAFETY: the session is alive and nobody else's; the answer is copied.
            let is_set = unsafe { ffi::SSL_set_ocsp_response(ssl, answer.as_ptr(), answer.len()) };
            succeeded(is_set, "SSL_set_tlsext_status_ocsp_resp()")?;
        }
        for pair in &given.pairs {
            pair.check(context.level())?;
            session.use_pair(pair)?;
        }
        Ok(session)
    }

    fn connect(context: &Arc<Context>, target: Target<'_>) -> Result<Self, LoadError> {
        let session = Self::new(context, Lookups::default())?;
        let ssl = session.ssl.as_ptr();
        // SAFETY: the session is alive and nobody else's.
        unsafe { ffi::SSL_set_connect_state(ssl) };
        if let Some(name) = target.name {
            const CALL: &str = "SSL_set_tlsext_host_name()";
            let Ok(name) = CString::new(name) else {
                return Err(LoadError { call: CALL, reasons: Vec::new() });
            };
            // SAFETY: the session is alive; the name is copied.
            succeeded(unsafe { ffi::SSL_set_tlsext_host_name(ssl, name.as_ptr()) }, CALL)?;
        }
        if let Some(content) = target.session {
            // SAFETY: both are alive; the library counts its reference. One that is broken is none.
            unsafe {
                let earlier = ffi::SSL_SESSION_from_bytes(content.as_ptr(), content.len(), context.as_ptr());
                if let Some(earlier) = Owned::take(earlier) {
                    ffi::SSL_set_session(ssl, earlier.as_ptr());
                }
            }
        }
        Ok(session)
    }

    fn new(context: &Arc<Context>, lookups: Lookups) -> Result<Self, LoadError> {
        sys::clear_reasons();
        let lent = Pinned::new(Lent { input: ptr::null(), left: 0, output: ptr::null_mut() });
        let lookups = Pinned::new(lookups);
        // SAFETY: the context is alive; what comes back is ours. The two pointers live as long as the
        // session, which gives the library's object back first.
        let ssl = unsafe {
            let ssl = Owned::take(ffi::SSL_new(context.as_ptr()));
            let ssl = ssl.ok_or_else(|| sys::load_error("SSL_new()"))?;
            let is_hung = ffi::SSL_set_ex_data(ssl.as_ptr(), session_index(), lookups.as_ptr().cast());
            succeeded(is_hung, "SSL_set_ex_data()")?;
            let bio = ffi::BIO_new(method().0.as_ptr());
            if bio.is_null() {
                return Err(sys::load_error("BIO_new()"));
            }
            ffi::BIO_set_data(bio, lent.as_ptr().cast());
            ffi::BIO_set_init(bio, 1);
            ffi::SSL_set_bio(ssl.as_ptr(), bio, bio);
            ffi::SSL_set_shed_handshake_config(ssl.as_ptr(), 1);
            ssl
        };
        Ok(Self { ssl, lent, lookups, record: 0, fruitless: 0, context: Arc::clone(context) })
    }

    /// Shows the peer this certificate, instead of those of the context.
    ///
    /// # Errors
    /// If it is weaker than the level allows, or the library refuses it.
    pub fn present(&mut self, pair: &Pair) -> Result<(), LoadError> {
        let weak = |error| LoadError { call: "SSL_use_certificate()", ..error };
        pair.check(self.context.level()).map_err(weak)?;
        self.use_pair(pair)
    }

    /// Has a server's question for a certificate come back ([`Step::Asked`]). Before the handshake.
    pub fn hear_question(&mut self) {
        // SAFETY: the session is alive and nobody else's; callbacks look at the lookups only while the
        // library runs.
        unsafe {
            (*self.lookups.as_ptr()).question = Question::Open;
            ffi::SSL_set_cert_cb(self.ssl.as_ptr(), Some(ask_for_certificate), ptr::null_mut());
        }
    }

    /// Allows the versions of the set and no others, whatever the context says.
    fn speak(&self, versions: Versions) {
        let ssl = self.ssl.as_ptr();
        let all = Version::ALL.into_iter().fold(Versions::none(), Versions::and);
        // SAFETY: the session is alive and nobody else's.
        unsafe {
            ffi::SSL_clear_options(ssl, refusals(Versions::none()));
            debug_assert!(refusals(all) == 0, "none of them is refused");
            ffi::SSL_set_options(ssl, refusals(versions));
        }
    }

    /// Has the client asked for its certificate, which is checked by what is given in place of the context's.
    fn check_client(&self, check: &ClientCheck) -> Result<(), LoadError> {
        let ssl = self.ssl.as_ptr();
        // SAFETY: the session is alive and nobody else's.
        unsafe {
            ffi::SSL_set_verify(ssl, ffi::SSL_VERIFY_PEER, Some(go_on));
            if let Some(depth) = check.depth {
                ffi::SSL_set_verify_depth(ssl, c_int::try_from(depth).unwrap_or(c_int::MAX));
            }
        }
        let chain = |given: &Option<Arc<dyn Any + Send + Sync>>| {
            given.as_ref().and_then(|given| Arc::clone(given).downcast::<Chain>().ok())
        };
        let (authorities, trusted) = (chain(&check.authorities), chain(&check.trusted));
        if authorities.is_none() && trusted.is_none() {
            return Ok(());
        }
        // SAFETY: what comes back is ours.
        let store = unsafe { Owned::take(ffi::X509_STORE_new()) };
        let store = store.ok_or_else(|| sys::load_error("X509_STORE_new()"))?;
        for (chain, is_told) in [(authorities, true), (trusted, false)] {
            for one in chain.iter().flat_map(|chain| chain.all()) {
                // SAFETY: all objects are alive; the library counts and copies.
                unsafe {
                    let is_added = ffi::X509_STORE_add_cert(store.as_ptr(), one.as_ptr());
                    succeeded(is_added, "X509_STORE_add_cert()")?;
                    if is_told {
                        succeeded(ffi::SSL_add_client_CA(ssl, one.as_ptr()), "SSL_add_client_CA()")?;
                    }
                }
            }
        }
        // SAFETY: both are alive; the library counts its reference.
        let is_set = unsafe { ffi::SSL_set1_verify_cert_store(ssl, store.as_ptr()) };
        succeeded(is_set, "SSL_set1_verify_cert_store()")
    }

    /// Has the server asked what authorities say of its certificate. Before the handshake.
    pub fn ask_for_staple(&mut self) {
        // SAFETY: the session is alive.
        unsafe { ffi::SSL_enable_ocsp_stapling(self.ssl.as_ptr()) };
    }

    fn use_pair(&self, pair: &Pair) -> Result<(), LoadError> {
        let ssl = self.ssl.as_ptr();
        // SAFETY: all objects are alive; the library counts its references.
        unsafe {
            succeeded(ffi::SSL_use_certificate(ssl, pair.certificate().as_ptr()), "SSL_use_certificate()")?;
            succeeded(ffi::SSL_clear_chain_certs(ssl), "SSL_set0_chain()")?;
            for one in pair.signers() {
                succeeded(ffi::SSL_add1_chain_cert(ssl, one.as_ptr()), "SSL_set0_chain()")?;
            }
            succeeded(ffi::SSL_use_PrivateKey(ssl, pair.key().as_ptr()), "SSL_use_PrivateKey()")
        }
    }

    /// Lends the buffers to the library while `call` runs, and takes from the front of `input` what it used.
    fn lend(
        &mut self,
        input: &mut &[u8],
        output: &mut Vec<u8>,
        call: impl FnOnce(*mut ffi::SSL) -> c_int,
    ) -> CallOutcome {
        sys::clear_reasons();
        let before = input.len();
        let made = output.len();
        // SAFETY: only the library's calls in `call` look at what is lent, and it is taken back behind them.
        let (result, error, left) = unsafe {
            debug_assert!((*self.lent.as_ptr()).output.is_null(), "buffers are lent for one call at a time");
            self.lent.as_ptr().write(Lent { input: input.as_ptr(), left: before, output });
            let result = call(self.ssl.as_ptr());
            let error = ffi::SSL_get_error(self.ssl.as_ptr(), result);
            let left = (*self.lent.as_ptr()).left;
            self.lent.as_ptr().write(Lent { input: ptr::null(), left: 0, output: ptr::null_mut() });
            (result, error, left)
        };
        assert!(left <= before, "the library takes from the front of what it is lent");
        debug_assert!(error != ffi::SSL_ERROR_NONE || result >= 0, "a call that succeeded has a count");
        *input = &input[before - left..];
        debug_assert!(output.len() >= made, "what is to be sent is appended");
        match error {
            ffi::SSL_ERROR_NONE => CallOutcome::Done(usize::try_from(result).unwrap_or_default()),
            ffi::SSL_ERROR_WANT_READ => CallOutcome::Need,
            ffi::SSL_ERROR_WANT_X509_LOOKUP => CallOutcome::Asked,
            ffi::SSL_ERROR_ZERO_RETURN => CallOutcome::Closed,
            _ => CallOutcome::Failed(failure()),
        }
    }

    /// The version that the library has agreed on.
    fn version(&self) -> Option<Version> {
        // SAFETY: the session is alive.
        let number = unsafe { ffi::SSL_version(self.ssl.as_ptr()) };
        Version::ALL.into_iter().find(|version| c_int::from(version.number()) == number)
    }

    /// The facts that were noted of a server's handshake; a client's notes nothing.
    fn circumstances(&self) -> Circumstances {
        // SAFETY: callbacks look at it only while the library runs, which is none of this call.
        unsafe { (*self.lookups.as_ptr()).circumstances }
    }

    fn take_plain_alert(&self, input: &mut &[u8]) -> Option<Step> {
        // SAFETY: the session is alive. What the library holds back is the beginning of a record.
        let is_within_record = unsafe { ffi::SSL_has_pending(self.ssl.as_ptr()) } == 1;
        if is_within_record || !self.circumstances().is_answered {
            return None;
        }
        self.circumstances().take_plain_alert(self.version(), input)
    }

    /// Writes the tickets of TLS 1.3, which the library keeps for its first data: a client whose request
    /// waits until its last message is acknowledged (Nagle) would wait for the delay of that, 40 ms.
    fn write_tickets(&mut self, output: &mut Vec<u8>) {
        if self.is_server() && self.version() == Some(Version::Tls13) && !self.is_early() {
            // SAFETY: nothing is read of what has no bytes; the session is alive, and what it writes is lent.
            let write = |ssl| unsafe { ffi::SSL_write(ssl, NonNull::dangling().as_ptr(), 0) };
            // Nothing written is no failure.
            let _ = self.lend(&mut &[][..], output, write);
        }
    }

    /// Ends a session whose peer does nothing but update its keys.
    fn refuse_updates(&mut self, output: &mut Vec<u8>) -> Failure {
        const UNEXPECTED_MESSAGE: u8 = ffi::SSL_AD_UNEXPECTED_MESSAGE as u8;
        // SAFETY: the session is alive, and what it writes is lent.
        let alert = |ssl| unsafe { ffi::SSL_send_fatal_alert(ssl, UNEXPECTED_MESSAGE) };
        // The alert is there or not: the session is over in either case.
        let _ = self.lend(&mut &[][..], output, alert);
        Failure { reasons: vec![Reason::named(Library::Ssl, "TOO_MANY_KEY_UPDATES")] }
    }

    fn refined(&self, failure: Failure) -> Failure {
        if !self.is_server() {
            return failure;
        }
        Failure { reasons: self.circumstances().refine(self.version(), failure.reasons) }
    }

    fn is_server(&self) -> bool {
        // SAFETY: the session is alive.
        unsafe { ffi::SSL_is_server(self.ssl.as_ptr()) == 1 }
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<(), Failure> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let start = rest.as_ptr();
            let length = sys::length(rest);
            // SAFETY: `rest` has that many bytes.
            match self.lend(&mut &[][..], output, |ssl| unsafe { ffi::SSL_write(ssl, start.cast(), length) })
            {
                CallOutcome::Done(written) if written > 0 => {
                    assert!(written <= rest.len(), "the library writes no more than it is given");
                    rest = &rest[written..];
                }
                CallOutcome::Failed(failure) => return Err(failure),
                // The output takes everything, so only a handshake that is not over can be in the way.
                _ => return Err(Failure { reasons: Vec::new() }),
            }
        }
        Ok(())
    }
}

/// Why a call failed: what TLS says of it, where it says something. OpenSSL does not tell the reasons of what
/// it stands on, such as a tag that does not fit.
fn failure() -> Failure {
    let mut reasons = sys::take_reasons();
    if reasons.iter().any(|reason| reason.library() == Library::Ssl) {
        reasons.retain(|reason| reason.library() == Library::Ssl);
    }
    Failure { reasons }
}

/// The result of a call of the library.
enum CallOutcome {
    Done(usize),
    Need,
    Asked,
    Closed,
    Failed(Failure),
}

impl Session for TlsSession {
    fn step(&mut self, input: &mut &[u8], output: &mut Vec<u8>) -> Step {
        if let Some(step) = self.take_plain_alert(input) {
            return step;
        }
        // SAFETY: the session is alive, and what it reads and writes is lent.
        match self.lend(input, output, |ssl| unsafe { ffi::SSL_do_handshake(ssl) }) {
            CallOutcome::Done(_) => {
                // SAFETY: the session is alive. Records of data have nothing to note.
                unsafe { ffi::SSL_set_msg_callback(self.ssl.as_ptr(), None) };
                self.write_tickets(output);
                Step::Done
            }
            CallOutcome::Need => Step::Need,
            CallOutcome::Asked => Step::Asked,
            CallOutcome::Closed => Step::Closed,
            CallOutcome::Failed(failure) => Step::Failed(self.refined(failure)),
        }
    }

    fn open(&mut self, input: &mut &[u8], plain: &mut Vec<u8>, output: &mut Vec<u8>) -> Opened {
        loop {
            let room = plain.spare_capacity_mut();
            if room.is_empty() {
                return Opened::Full;
            }
            let start: *mut c_void = room.as_mut_ptr().cast();
            let length = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
            debug_assert!(
                self.fruitless < FRUITLESS_MAX_BYTES,
                "a session that has refused its peer is over"
            );
            let offered = input.len().min(FRUITLESS_MAX_BYTES - self.fruitless);
            let mut part = &input[..offered];
            // SAFETY: there is room for that many bytes, and the library writes only.
            let outcome = self.lend(&mut part, output, |ssl| unsafe { ffi::SSL_read(ssl, start, length) });
            assert!(part.len() <= offered, "the library takes from the front of what it is lent");
            let used = offered - part.len();
            *input = &input[used..];
            match outcome {
                CallOutcome::Done(count) => {
                    self.fruitless = 0;
                    assert!(
                        count <= plain.capacity() - plain.len(),
                        "the library writes into the room that there is"
                    );
                    // SAFETY: that many bytes behind the old end were written.
                    unsafe { plain.set_len(plain.len() + count) };
                    // SAFETY: the session is alive.
                    if input.is_empty() && unsafe { ffi::SSL_pending(self.ssl.as_ptr()) } == 0 {
                        return Opened::Need;
                    }
                }
                CallOutcome::Need => {
                    self.fruitless += used;
                    debug_assert!(self.fruitless <= FRUITLESS_MAX_BYTES, "no more was offered");
                    if self.fruitless >= FRUITLESS_MAX_BYTES {
                        return Opened::Failed(self.refuse_updates(output));
                    }
                    return Opened::Need;
                }
                CallOutcome::Closed => return Opened::Closed,
                // Only a handshake asks.
                CallOutcome::Asked => return Opened::Failed(Failure { reasons: Vec::new() }),
                CallOutcome::Failed(failure) => return Opened::Failed(failure),
            }
        }
    }

    fn seal(&mut self, parts: &[IoSlice<'_>], record: usize, output: &mut Vec<u8>) -> Result<(), Failure> {
        let record = record.clamp(RECORD_MIN, RECORD_MAX);
        if record != self.record {
            // SAFETY: the session is alive.
            unsafe { ffi::SSL_set_max_send_fragment(self.ssl.as_ptr(), record) };
            self.record = record;
        }
        debug_assert!(
            (RECORD_MIN..=RECORD_MAX).contains(&self.record),
            "records are as long as the library makes"
        );
        let mut together = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            let mut rest: &[u8] = part;
            if !together.is_empty() {
                debug_assert!(together.len() < record, "a whole record has left");
                let count = rest.len().min(record - together.len());
                together.extend_from_slice(&rest[..count]);
                rest = &rest[count..];
                if together.len() == record {
                    self.write(&together, output)?;
                    together.clear();
                }
            }
            // Whole records leave from where they lie, and so does the end if nothing follows.
            let is_last = number + 1 == parts.len();
            let whole = if is_last { rest.len() } else { rest.len() - rest.len() % record };
            if whole > 0 {
                self.write(&std::mem::take(&mut together), output)?;
                self.write(&rest[..whole], output)?;
            }
            together.extend_from_slice(&rest[whole..]);
            debug_assert!(together.len() < record, "what waits for the next part is less than a record");
        }
        self.write(&together, output)
    }

    fn close(&mut self, output: &mut Vec<u8>) {
        // SAFETY: the session is alive, and what it writes is lent.
        let _ = self.lend(&mut &[][..], output, |ssl| unsafe { ffi::SSL_shutdown(ssl) });
    }

    fn info(&self) -> Info {
        let ssl = self.ssl.as_ptr();
        let (mut protocol, mut length, mut id_length) = (ptr::null(), 0, 0);
        // SAFETY: the session is alive; what it shows is copied before anything changes it.
        unsafe {
            ffi::SSL_get0_alpn_selected(ssl, &raw mut protocol, &raw mut length);
            let session = ffi::SSL_get_session(ssl);
            let id = if session.is_null() {
                ptr::null()
            } else {
                ffi::SSL_SESSION_get_id(session, &raw mut id_length)
            };
            let version = self.version();
            let own_id = || if version == Some(Version::Tls13) { connection_id(ssl) } else { Vec::new() };
            Info {
                version,
                suite: suite_name(ssl),
                group: ffi::SSL_get_group_id(ssl),
                signature: (*self.lookups.as_ptr()).signature,
                peer_signature: ffi::SSL_get_peer_signature_algorithm(ssl),
                protocol: copied(protocol, length as usize),
                is_resumed: ffi::SSL_session_reused(ssl) == 1,
                session_id: copied(id, id_length as usize).unwrap_or_else(own_id),
                verification: if ffi::SSL_get0_peer_certificate(ssl).is_null() {
                    Verified::None
                } else {
                    verified(ffi::SSL_get_verify_result(ssl))
                },
            }
        }
    }

    fn peer_certificate(&self) -> Option<Vec<u8>> {
        // SAFETY: the session is alive; the library counts the reference for us.
        let x509 = unsafe { Owned::take(ffi::SSL_get_peer_certificate(self.ssl.as_ptr())) };
        Certificate::from_owned(x509?).to_der()
    }

    fn secrets(&self) -> Secrets {
        const MASTER_KEY_MAX: usize = 64;
        let ssl = self.ssl.as_ptr();
        let mut secrets = Secrets {
            client_random: vec![0; RANDOM_LENGTH],
            server_random: vec![0; RANDOM_LENGTH],
            master_key: vec![0; MASTER_KEY_MAX],
        };
        // SAFETY: the session is alive; every buffer is as long as is said.
        let length = unsafe {
            ffi::SSL_get_client_random(ssl, secrets.client_random.as_mut_ptr(), RANDOM_LENGTH);
            ffi::SSL_get_server_random(ssl, secrets.server_random.as_mut_ptr(), RANDOM_LENGTH);
            let session = ffi::SSL_get_session(ssl);
            if session.is_null() {
                0
            } else {
                ffi::SSL_SESSION_get_master_key(session, secrets.master_key.as_mut_ptr(), MASTER_KEY_MAX)
            }
        };
        secrets.master_key.truncate(length);
        secrets
    }

    fn export(&self, label: &[u8], context: Option<&[u8]>, bytes: usize) -> Option<Vec<u8>> {
        let mut out = vec![0; bytes];
        let (start, length) = context.map_or((ptr::null(), 0), |context| (context.as_ptr(), context.len()));
        // SAFETY: the session is alive; every buffer is as long as is said.
        let is_done = unsafe {
            ffi::SSL_export_keying_material(
                self.ssl.as_ptr(),
                out.as_mut_ptr(),
                bytes,
                label.as_ptr().cast(),
                label.len(),
                start,
                length,
                c_int::from(context.is_some()),
            )
        };
        sys::clear_reasons();
        (is_done == 1).then_some(out)
    }

    fn suites(&self) -> Vec<u16> {
        self.context.suites(self.context.versions())
    }

    fn take_kept(&mut self) -> Vec<Kept> {
        // SAFETY: callbacks look at it only while the library runs, which `&mut self` excludes.
        std::mem::take(unsafe { &mut (*self.lookups.as_ptr()).fresh })
    }

    fn is_early(&self) -> bool {
        // SAFETY: the session is alive.
        unsafe { ffi::SSL_in_early_data(self.ssl.as_ptr()) == 1 }
    }

    fn answer(&mut self, shown: &Shown) -> Result<(), LoadError> {
        if shown.is_cleared && shown.pairs.is_empty() {
            // A certificate that is presented takes the place of another one; behind this call the library
            // would take none any more.
            // SAFETY: the session is alive and nobody else's.
            unsafe { ffi::SSL_certs_clear(self.ssl.as_ptr()) };
        }
        for pair in shown.pairs.iter().filter_map(|pair| pair.downcast_ref::<Pair>()) {
            self.present(pair)?;
        }
        // SAFETY: callbacks look at it only while the library runs, which `&mut self` excludes.
        unsafe { (*self.lookups.as_ptr()).question = Question::Answered };
        Ok(())
    }
}

/// The identity of a connection.
///
/// # Safety
/// The session is alive.
unsafe fn connection_id(ssl: *const ffi::SSL) -> Vec<u8> {
    let (mut randoms, mut digest) = ([0; 2 * RANDOM_LENGTH], [0; ffi::SHA256_DIGEST_LENGTH as usize]);
    // SAFETY: every buffer is as long as is said.
    unsafe {
        ffi::SSL_get_client_random(ssl, randoms.as_mut_ptr(), RANDOM_LENGTH);
        ffi::SSL_get_server_random(ssl, randoms[RANDOM_LENGTH..].as_mut_ptr(), RANDOM_LENGTH);
        ffi::SHA256(randoms.as_ptr(), randoms.len(), digest.as_mut_ptr());
    }
    digest.to_vec()
}

/// The suite's name in OpenSSL; that of TLS 1.3 is its standard one.
///
/// # Safety
/// The session is alive.
unsafe fn suite_name(ssl: *const ffi::SSL) -> Option<&'static str> {
    // SAFETY: suites are tables of the library's that are never freed.
    unsafe {
        let suite = ffi::SSL_get_current_cipher(ssl);
        if suite.is_null() {
            return None;
        }
        let known = Suite::numbered(ffi::SSL_CIPHER_get_protocol_id(suite)).map(|suite| suite.name);
        known.or_else(|| sys::text(ffi::SSL_CIPHER_standard_name(suite)))
    }
}

/// A copy of what the library shows; nothing if it shows nothing.
///
/// # Safety
/// The bytes are there.
unsafe fn copied(start: *const u8, length: usize) -> Option<Vec<u8>> {
    if start.is_null() || length == 0 {
        return None;
    }
    // SAFETY: as the caller says.
    Some(unsafe { std::slice::from_raw_parts(start, length) }.to_vec())
}

/// The table of functions by which the library reads and writes.
struct Method(Owned<ffi::BIO_METHOD>);

// SAFETY: it is never changed after it was made.
unsafe impl Send for Method {}
// SAFETY: as above.
unsafe impl Sync for Method {}

fn method() -> &'static Method {
    static METHOD: OnceLock<Method> = OnceLock::new();
    METHOD.get_or_init(|| {
        // SAFETY: the name is never freed, and the functions are those below.
        let method = unsafe {
            let method = Owned::take(ffi::BIO_meth_new(ffi::BIO_TYPE_SOURCE_SINK, c"lent buffers".as_ptr()));
            let method = method.expect("there is memory for a table");
            ffi::BIO_meth_set_read(method.as_ptr(), Some(read_lent));
            ffi::BIO_meth_set_write(method.as_ptr(), Some(write_lent));
            ffi::BIO_meth_set_ctrl(method.as_ptr(), Some(control));
            method
        };
        Method(method)
    })
}

/// Takes from the front of the input; when that is used up more has to come.
unsafe extern "C" fn read_lent(bio: *mut ffi::BIO, to: *mut c_char, room: c_int) -> c_int {
    // SAFETY: the library calls it inside `lend`, so the pointers are those of the caller's buffers, and it
    // has room for that many bytes, which are none of ours.
    unsafe {
        ffi::BIO_clear_retry_flags(bio);
        let lent: *mut Lent = ffi::BIO_get_data(bio).cast();
        debug_assert!(!lent.is_null(), "the library reads while buffers are lent");
        let count = (*lent).left.min(usize::try_from(room).unwrap_or_default());
        debug_assert!(count == 0 || !(*lent).input.is_null(), "what is left of the input is lent");
        if count == 0 {
            ffi::BIO_set_retry_read(bio);
            return -1;
        }
        ptr::copy_nonoverlapping((*lent).input, to.cast(), count);
        (*lent).input = (*lent).input.add(count);
        (*lent).left -= count;
        c_int::try_from(count).unwrap_or(room)
    }
}

/// Appends to the output, which takes everything.
unsafe extern "C" fn write_lent(bio: *mut ffi::BIO, from: *const c_char, count: c_int) -> c_int {
    let Ok(length @ 1..) = usize::try_from(count) else { return 0 };
    // SAFETY: as for `read_lent`; the library has that many bytes, which are none of the output's.
    unsafe {
        ffi::BIO_clear_retry_flags(bio);
        let lent: *mut Lent = ffi::BIO_get_data(bio).cast();
        let Some(output) = (*lent).output.as_mut() else { return -1 };
        output.extend_from_slice(std::slice::from_raw_parts(from.cast(), length));
    }
    count
}

unsafe extern "C" fn control(_: *mut ffi::BIO, command: c_int, _: c_long, _: *mut c_void) -> c_long {
    c_long::from(command == ffi::BIO_CTRL_FLUSH)
}

impl Context {
    /// The numbers of its cipher suites that belong to these versions, in their order.
    #[must_use]
    pub fn suites(&self, versions: Versions) -> Vec<u16> {
        let mut suites = Vec::new();
        // SAFETY: the context is alive, and suites are tables of the library's that are never freed.
        unsafe {
            let list: *const ffi::OPENSSL_STACK = ffi::SSL_CTX_get_ciphers(self.as_ptr()).cast();
            for at in 0..ffi::OPENSSL_sk_num(list) {
                let suite: *const ffi::SSL_CIPHER = ffi::OPENSSL_sk_value(list, at).cast();
                let of = ffi::SSL_CIPHER_get_min_version(suite)..=ffi::SSL_CIPHER_get_max_version(suite);
                if versions.iter().any(|version| of.contains(&version.number())) {
                    suites.push(ffi::SSL_CIPHER_get_protocol_id(suite));
                }
            }
        }
        suites
    }
}

/// What sessions are read with that no context has been chosen for.
struct Reader(Owned<ffi::SSL_CTX>);

// SAFETY: nobody changes it, and what reads a session in it counts references at most, atomically.
unsafe impl Send for Reader {}
// SAFETY: as above.
unsafe impl Sync for Reader {}

/// Whether this is a session in the library's own form.
#[must_use]
pub fn is_session(content: &[u8]) -> bool {
    static READER: OnceLock<Option<Reader>> = OnceLock::new();
    // SAFETY: what comes back is ours.
    let made = || unsafe { Owned::take(ffi::SSL_CTX_new(ffi::TLS_method())) }.map(Reader);
    let Some(Reader(context)) = READER.get_or_init(made) else { return false };
    // SAFETY: the context is alive, and so are the bytes; what comes back is ours.
    let session = unsafe {
        let read = ffi::SSL_SESSION_from_bytes(content.as_ptr(), content.len(), context.as_ptr());
        Owned::take(read)
    };
    sys::clear_reasons();
    session.is_some()
}
