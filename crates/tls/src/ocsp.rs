//! OCSP (RFC 6960): questions to an authority about a certificate, and whether an answer is valid. The
//! responder's address is not known here. Judging an answer computes a signature or two: to be called by
//! pools.
#![expect(unsafe_code, reason = "objects of a C library")]

use std::ffi::{CStr, c_int, c_long};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use aws_lc_sys as ffi;

use crate::context::Context;
use crate::engine::LoadError;
use crate::pair::{Pair, first_element};
use crate::sys::{self, Certificate, Owned};

/// How far the clocks of the authority and of this machine may be apart, seconds.
const DRIFT_S: c_long = 300;

/// A certificate of which an authority can be asked.
pub struct Subject {
    pair: Arc<Pair>,
    issuer: Certificate,
    /// The context with the trusted certificates that a signer's has to lead to.
    context: Arc<Context>,
    trust: Trust,
}

/// Whether the signer of an answer is checked (`ssl_stapling_verify`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Any signer.
    Any,
    /// The signer's certificate is verified by trusted certificates.
    Verified,
}

/// An authority's answer about a certificate that is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Good {
    /// Until when that holds, seconds since 1970; nothing if it does not say.
    pub until_s: Option<i64>,
}

/// Why an answer is of no use, in nginx's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OcspError {
    /// The library refuses it.
    Library(LoadError),
    /// The responder has none: its number and text.
    Unsuccessful(c_int, &'static str),
    /// The answer is about other certificates.
    NotFound,
    /// When it ends is no time.
    NextUpdate,
    /// The certificate is not good.
    Status(&'static str),
}

impl From<LoadError> for OcspError {
    fn from(error: LoadError) -> Self {
        Self::Library(error)
    }
}

impl fmt::Display for OcspError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Library(error) => error.fmt(f),
            Self::Unsuccessful(number, text) => {
                write!(f, "OCSP response not successful ({number}: {text})")
            }
            Self::NotFound => f.write_str("certificate status not found in the OCSP response"),
            Self::NextUpdate => f.write_str("invalid nextUpdate time in certificate status"),
            Self::Status(text) => write!(f, "certificate status \"{text}\" in the OCSP response"),
        }
    }
}

impl Subject {
    /// Finds the certificate that has signed that of a pair: behind it, or among those that the context
    /// trusts. Nothing if it is nowhere.
    #[must_use]
    pub fn find(pair: &Arc<Pair>, context: &Arc<Context>, trust: Trust) -> Option<Self> {
        let certificate = pair.certificate();
        // SAFETY: both certificates are alive during the call.
        let has_signed = |one: &&Certificate| unsafe {
            ffi::X509_check_issued(one.as_ptr(), certificate.as_ptr()) == ffi::X509_V_OK
        };
        let behind = pair.signers().iter().find(has_signed).and_then(Certificate::counted);
        let issuer = behind.or_else(|| issuer_in_store(context, certificate));
        sys::clear_reasons();
        Some(Self { pair: Arc::clone(pair), issuer: issuer?, context: Arc::clone(context), trust })
    }

    /// The certificate.
    #[must_use]
    pub fn pair(&self) -> &Arc<Pair> {
        &self.pair
    }

    /// The question, in DER.
    ///
    /// # Errors
    /// If the library cannot make it.
    pub fn question(&self) -> Result<Vec<u8>, LoadError> {
        question_about(self.pair.certificate(), &self.issuer)
    }

    /// Checks an answer: its signer, its certificate and its times.
    ///
    /// # Errors
    /// Why it is of no use.
    pub fn judge(&self, answer: &[u8]) -> Result<Good, OcspError> {
        judge_about(answer, (self.pair.certificate(), &self.issuer), |basic| self.check_signer(basic))
    }

    fn check_signer(&self, basic: &Owned<ffi::OCSP_BASICRESP>) -> Result<(), LoadError> {
        let failed = || sys::load_error("OCSP_basic_verify()");
        let flags = match self.trust {
            Trust::Any => ffi::OCSP_NOVERIFY,
            Trust::Verified => ffi::OCSP_TRUSTOTHER,
        };
        // SAFETY: the stack holds certificates of the pair's, which outlive it, and does not own them; the
        // store belongs to the context and is not changed.
        let verified = unsafe {
            let stack = Owned::take(ffi::OPENSSL_sk_new_null()).ok_or_else(failed)?;
            for one in self.pair.signers() {
                ffi::OPENSSL_sk_push(stack.as_ptr(), one.as_ptr().cast());
            }
            let store = ffi::SSL_CTX_get_cert_store(self.context.as_ptr());
            let flags = flags.cast_unsigned().into();
            ffi::OCSP_basic_verify(basic.as_ptr(), stack.as_ptr().cast(), store, flags)
        };
        if verified == 1 { Ok(()) } else { Err(failed()) }
    }
}

/// A certificate and the one that has signed it, the first two of a chain.
pub struct Followed {
    certificate: Certificate,
    issuer: Certificate,
}

impl Followed {
    /// The first two of certificates in DER, one behind the other.
    ///
    /// # Errors
    /// What is missing, in OpenResty's words.
    pub fn from_der(chain: &[u8]) -> Result<Self, &'static str> {
        const BROKEN: &str = "d2i_X509_bio() failed";
        let (first, rest) = first_element(chain).ok_or(BROKEN)?;
        let certificate = Certificate::from_der(first).ok_or(BROKEN)?;
        if rest.is_empty() {
            return Err("no issuer certificate in chain");
        }
        let (second, _) = first_element(rest).ok_or(BROKEN)?;
        let issuer = Certificate::from_der(second).ok_or(BROKEN)?;
        Ok(Self { certificate, issuer })
    }

    /// Whether the second one has signed the first.
    #[must_use]
    pub fn is_issued(&self) -> bool {
        // SAFETY: both certificates are alive during the call.
        unsafe { ffi::X509_check_issued(self.issuer.as_ptr(), self.certificate.as_ptr()) == ffi::X509_V_OK }
    }

    /// See [`Subject::question`].
    ///
    /// # Errors
    /// If the library cannot make it.
    pub fn question(&self) -> Result<Vec<u8>, LoadError> {
        question_about(&self.certificate, &self.issuer)
    }

    /// See [`Subject::judge`]; its signer is the issuer, or one that it has signed.
    ///
    /// # Errors
    /// Why it is of no use.
    pub fn judge(&self, answer: &[u8]) -> Result<Good, OcspError> {
        judge_about(answer, (&self.certificate, &self.issuer), |basic| {
            let failed = || sys::load_error("OCSP_basic_verify()");
            // SAFETY: the stack holds the issuer, which outlives it, and does not own it; the store, in which
            // nothing is trusted, is ours.
            let verified = unsafe {
                let stack = Owned::take(ffi::OPENSSL_sk_new_null()).ok_or_else(failed)?;
                let store = Owned::take(ffi::X509_STORE_new()).ok_or_else(failed)?;
                ffi::OPENSSL_sk_push(stack.as_ptr(), self.issuer.as_ptr().cast());
                let flags = ffi::OCSP_NOVERIFY.cast_unsigned().into();
                ffi::OCSP_basic_verify(basic.as_ptr(), stack.as_ptr().cast(), store.as_ptr(), flags)
            };
            if verified == 1 { Ok(()) } else { Err(failed()) }
        })
    }
}

/// Where the authority of the first of certificates in DER says that it answers.
#[must_use]
pub fn responder_in(chain: &[u8]) -> Option<Vec<u8>> {
    let (first, _) = first_element(chain)?;
    responder_of(&Certificate::from_der(first)?)
}

fn id_of(certificate: &Certificate, issuer: &Certificate) -> Result<Owned<ffi::OCSP_CERTID>, LoadError> {
    // SAFETY: both certificates are alive; what comes back is ours.
    let id = unsafe { Owned::take(ffi::OCSP_cert_to_id(ptr::null(), certificate.as_ptr(), issuer.as_ptr())) };
    id.ok_or_else(|| sys::load_error("OCSP_cert_to_id()"))
}

fn question_about(certificate: &Certificate, issuer: &Certificate) -> Result<Vec<u8>, LoadError> {
    sys::clear_reasons();
    let failed = || sys::load_error("OCSP_REQUEST_new()");
    let id = id_of(certificate, issuer)?;
    // SAFETY: the request takes the id over where that succeeds; what is written is copied and freed.
    unsafe {
        let request = Owned::take(ffi::OCSP_REQUEST_new()).ok_or_else(failed)?;
        let id = std::mem::ManuallyDrop::new(id);
        if ffi::OCSP_request_add0_id(request.as_ptr(), id.as_ptr()).is_null() {
            drop(std::mem::ManuallyDrop::into_inner(id));
            return Err(sys::load_error("OCSP_request_add0_id()"));
        }
        let mut start = ptr::null_mut();
        let length = ffi::i2d_OCSP_REQUEST(request.as_ptr(), &raw mut start);
        written(start, length).ok_or_else(|| sys::load_error("i2d_OCSP_REQUEST()"))
    }
}

fn judge_about(
    answer: &[u8],
    (certificate, issuer): (&Certificate, &Certificate),
    check_signer: impl FnOnce(&Owned<ffi::OCSP_BASICRESP>) -> Result<(), LoadError>,
) -> Result<Good, OcspError> {
    sys::clear_reasons();
    let response = parse(answer, "d2i_OCSP_RESPONSE()")?;
    // SAFETY: all objects are alive during the calls; texts of the library are never freed, and the two times
    // belong to the answer, which outlives their use.
    unsafe {
        let status = ffi::OCSP_response_status(response.as_ptr());
        if status != ffi::OCSP_RESPONSE_STATUS_SUCCESSFUL {
            let text = sys::text(ffi::OCSP_response_status_str(c_long::from(status)));
            return Err(OcspError::Unsuccessful(status, text.unwrap_or("unknown")));
        }
        let basic = Owned::take(ffi::OCSP_response_get1_basic(response.as_ptr()));
        let basic = basic.ok_or_else(|| sys::load_error("OCSP_response_get1_basic()"))?;
        check_signer(&basic)?;
        let id = id_of(certificate, issuer)?;
        let (mut status, mut this, mut next) = (0, ptr::null_mut(), ptr::null_mut());
        let found = ffi::OCSP_resp_find_status(
            basic.as_ptr(),
            id.as_ptr(),
            &raw mut status,
            ptr::null_mut(),
            ptr::null_mut(),
            &raw mut this,
            &raw mut next,
        );
        if found != 1 {
            return Err(OcspError::NotFound);
        }
        debug_assert!(!this.is_null(), "an answer says from when on it holds");
        if ffi::OCSP_check_validity(this, next, DRIFT_S, -1) != 1 {
            return Err(sys::load_error("OCSP_check_validity()").into());
        }
        let mut until_s = 0;
        if !next.is_null() && ffi::ASN1_TIME_to_posix(next, &raw mut until_s) != 1 {
            return Err(OcspError::NextUpdate);
        }
        if status != ffi::V_OCSP_CERTSTATUS_GOOD {
            let text = sys::text(ffi::OCSP_cert_status_str(c_long::from(status)));
            return Err(OcspError::Status(text.unwrap_or("unknown")));
        }
        Ok(Good { until_s: (!next.is_null()).then_some(until_s) })
    }
}

impl Certificate {
    /// Another reference to the same certificate.
    pub(crate) fn counted(&self) -> Option<Self> {
        // SAFETY: the certificate is alive; the reference that is counted here is the one that is taken.
        unsafe {
            ffi::X509_up_ref(self.as_ptr());
            Owned::take(self.as_ptr()).map(Self::from_owned)
        }
    }

    /// Whether it is the same certificate as another one.
    ///
    /// # Safety
    /// The pointer is null or that of a certificate that is alive.
    pub(crate) unsafe fn is_same(&self, other: *const ffi::X509) -> bool {
        // SAFETY: as the caller says.
        !other.is_null() && unsafe { ffi::X509_cmp(self.as_ptr(), other) == 0 }
    }
}

/// The certificate of an issuer, among those that the context trusts.
fn issuer_in_store(context: &Context, certificate: &Certificate) -> Option<Certificate> {
    let mut issuer = ptr::null_mut();
    // SAFETY: the store belongs to the context, which is alive; what is found was counted for us.
    unsafe {
        let look = Owned::take(ffi::X509_STORE_CTX_new())?;
        let store = ffi::SSL_CTX_get_cert_store(context.as_ptr());
        if ffi::X509_STORE_CTX_init(look.as_ptr(), store, ptr::null_mut(), ptr::null_mut()) != 1 {
            return None;
        }
        let found =
            ffi::X509_STORE_CTX_get1_issuer(&raw mut issuer, look.as_ptr(), certificate.as_ptr()) == 1;
        Owned::take(issuer).filter(|_| found).map(Certificate::from_owned)
    }
}

/// An answer as a file holds it (`ssl_stapling_file`), in the form in which it is sent. It is not checked, as
/// nginx does not.
///
/// # Errors
/// If it is none; the library's function stands without its brackets, as nginx puts the file there.
pub fn read_answer(content: &[u8]) -> Result<Vec<u8>, LoadError> {
    sys::clear_reasons();
    let response = parse(content, "d2i_OCSP_RESPONSE_bio")?;
    let mut start = ptr::null_mut();
    // SAFETY: the response is alive; what is written is copied and freed.
    unsafe {
        let length = ffi::i2d_OCSP_RESPONSE(response.as_ptr(), &raw mut start);
        written(start, length).ok_or_else(|| sys::load_error("i2d_OCSP_RESPONSE"))
    }
}

/// Where the authority of a certificate says that it answers: the first URL that the certificate names.
#[must_use]
pub fn responder_of(certificate: &Certificate) -> Option<Vec<u8>> {
    // SAFETY: the certificate is alive; the list is ours, and its texts are copied before it is freed.
    unsafe {
        let list = Owned::take(ffi::X509_get1_ocsp(certificate.as_ptr()))?;
        let stack = list.as_ptr().cast();
        if ffi::OPENSSL_sk_num(stack) == 0 {
            return None;
        }
        let first: *const std::ffi::c_char = ffi::OPENSSL_sk_value(stack, 0).cast();
        (!first.is_null()).then(|| CStr::from_ptr(first).to_bytes().to_vec())
    }
}

fn parse(answer: &[u8], call: &'static str) -> Result<Owned<ffi::OCSP_RESPONSE>, LoadError> {
    let mut start = answer.as_ptr();
    let length = c_long::try_from(answer.len()).unwrap_or(c_long::MAX);
    // SAFETY: the bytes are there for the length of the call; what comes back is ours.
    let response = unsafe { Owned::take(ffi::d2i_OCSP_RESPONSE(ptr::null_mut(), &raw mut start, length)) };
    debug_assert!((answer.as_ptr()..=answer.as_ptr_range().end).contains(&start), "it reads what it is lent");
    response.ok_or_else(|| sys::load_error(call))
}

/// A copy of what the library has written, which is freed.
///
/// # Safety
/// Nobody else frees it, and it has that many bytes.
unsafe fn written(start: *mut u8, length: c_int) -> Option<Vec<u8>> {
    let length = usize::try_from(length).ok().filter(|&length| length > 0 && !start.is_null())?;
    // SAFETY: as the caller says.
    unsafe {
        let bytes = std::slice::from_raw_parts(start, length).to_vec();
        ffi::OPENSSL_free(start.cast());
        Some(bytes)
    }
}
