//! OpenSSL's numbers and texts for what a handshake, a record or a file is refused for: lines of the log are
//! searched for them. Another library's reasons are found by their names; one that OpenSSL does not have
//! keeps its name, and has the number 0.
#![forbid(unsafe_code)]

use std::fmt;

use crate::hello::HelloError;

/// A part of OpenSSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "names say it")]
pub enum Library {
    System,
    Rsa,
    Evp,
    Pem,
    X509,
    Asn1,
    Ssl,
    Bio,
    Ocsp,
    Provider,
    Other,
}

impl Library {
    fn number(self) -> u32 {
        match self {
            Self::Other => 0,
            Self::System => 2,
            Self::Rsa => 4,
            Self::Evp => 6,
            Self::Pem => 9,
            Self::X509 => 11,
            Self::Asn1 => 13,
            Self::Ssl => 20,
            Self::Bio => 32,
            Self::Ocsp => 39,
            Self::Provider => 57,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Other => "unknown library",
            Self::System => "system library",
            Self::Rsa => "rsa routines",
            Self::Evp => "digital envelope routines",
            Self::Pem => "PEM routines",
            Self::X509 => "x509 certificate routines",
            Self::Asn1 => "asn1 encoding routines",
            Self::Ssl => "SSL routines",
            Self::Bio => "BIO routines",
            Self::Ocsp => "OCSP routines",
            Self::Provider => "Provider routines",
        }
    }
}

/// A reason, as OpenSSL 3.0 says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    library: Library,
    number: u32,
    text: String,
    /// The detail, if OpenSSL has one.
    detail: Option<String>,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error:{:08X}:{}::{}", self.code(), self.library.text(), self.text)?;
        self.detail.iter().try_for_each(|detail| write!(f, ":{detail}"))
    }
}

/// Why a file cannot be read.
#[cfg(feature = "aws-lc")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileFault {
    /// The file does not exist.
    Missing,
    Other,
}

impl Reason {
    /// The reason that another library gives this name, in capitals with underscores.
    #[must_use]
    pub fn named(library: Library, name: &str) -> Self {
        let known = match library {
            Library::Ssl => ssl_reason(name),
            _ => OF_OTHERS.iter().find(|row| (row.0, row.1) == (library, name)).map(|row| row.2),
        };
        if let Some((library, number, text)) = known {
            let text = text.map_or_else(|| spelled(name), str::to_owned);
            return Self { library, number, text, detail: None };
        }
        Self { library, number: 0, text: spelled(name), detail: None }
    }

    /// A reason of TLS, by OpenSSL's number.
    pub(crate) fn of_tls(number: u32, text: &str) -> Self {
        Self { library: Library::Ssl, number, text: text.to_owned(), detail: None }
    }

    /// An alert of the peer.
    #[must_use]
    pub fn of_alert(alert: u8) -> Self {
        let number = ALERTS_FROM + u32::from(alert);
        let same = SAME.iter().find(|row| row.1 == number).map(|row| spelled(row.0));
        let renamed = || RENAMED.iter().find(|row| row.1 == number).map(|row| row.2.to_owned());
        let text = same.or_else(renamed).unwrap_or_else(|| format!("reason({number})"));
        let detail = Some(format!("SSL alert number {alert}"));
        Self { library: Library::Ssl, number, text, detail }
    }

    /// An error of the system, by its number.
    #[cfg(feature = "aws-lc")]
    #[must_use]
    pub(crate) fn of_system(number: u32, text: &str) -> Self {
        Self { library: Library::System, number, text: text.to_owned(), detail: None }
    }

    /// The reason for a file, behind the error of the system.
    #[cfg(feature = "aws-lc")]
    #[must_use]
    pub(crate) fn of_file(fault: FileFault) -> Self {
        let (number, text) = match fault {
            FileFault::Missing => (128, "no such file"),
            FileFault::Other => (0x8_0002, "system lib"),
        };
        Self { library: Library::Bio, number, text: text.to_owned(), detail: None }
    }

    /// Says what it is about.
    #[must_use]
    pub fn with_detail(self, detail: String) -> Self {
        Self { detail: Some(detail), ..self }
    }

    /// Library and reason in one number, as OpenSSL 3 packs them.
    #[must_use]
    pub fn code(&self) -> u32 {
        const REASON_BITS: u32 = 23;
        const OF_SYSTEM: u32 = 1 << 31;
        match self.library {
            Library::System => OF_SYSTEM | self.number,
            library => library.number() << REASON_BITS | self.number,
        }
    }

    /// The part of OpenSSL that would say it.
    #[must_use]
    pub fn library(&self) -> Library {
        self.library
    }

    /// OpenSSL's number of it in its library, or 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The mistake.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Reason {
    /// Whether peers bring it about: such lines are logged at `info`, as nginx does.
    #[must_use]
    pub fn is_of_peer(&self) -> bool {
        const ALERTS: std::ops::RangeInclusive<u32> = ALERTS_FROM..=ALERTS_FROM + u8::MAX as u32;
        OF_PEERS.binary_search(&self.number).is_ok() || ALERTS.contains(&self.number)
    }
}

/// The number of the reason that stands for the alert 0.
pub(crate) const ALERTS_FROM: u32 = 1_000;

/// OpenSSL's numbers of what peers bring about, besides their alerts: nginx's list, and 132, too many updates
/// of keys, which OpenSSL does not count.
#[rustfmt::skip]
const OF_PEERS: [u32; 61] = [
    101, 103, 108, 110, 111, 112, 115, 118, 122, 129, 132, 133, 145, 146, 149, 150, 151, 152, 154, 155, 156,
    159, 160, 183, 186, 187, 193, 198, 205, 213, 226, 227, 234, 235, 244, 245, 246, 252, 258, 267, 271, 281,
    291, 292, 293, 298, 300, 306, 313, 335, 336, 337, 338, 339, 345, 373, 376, 377, 396, 409, 443,
];

impl From<HelloError> for Reason {
    fn from(error: HelloError) -> Self {
        let (number, text) = match error {
            HelloError::UnexpectedRecord => (245, "unexpected record"),
            HelloError::Alert | HelloError::UnexpectedMessage => (244, "unexpected message"),
            HelloError::RecordVersion => (267, "wrong version number"),
            HelloError::RecordTooLong => (198, "packet length too long"),
            HelloError::EmptyRecords => (298, "record too small"),
            HelloError::TooLong => (152, "excessive message size"),
            HelloError::TooShort => (160, "length too short"),
            HelloError::Malformed => (159, "length mismatch"),
            HelloError::NoSuites => (183, "no ciphers specified"),
            HelloError::OddSuites => (151, "error in received cipher list"),
            HelloError::NoCompression => (187, "no compression specified"),
            HelloError::Version => (396, "version too low"),
            HelloError::NoVersion => (258, "unsupported protocol"),
            HelloError::Extensions | HelloError::Extension(_) => (110, "bad extension"),
            HelloError::ServerNames | HelloError::ServerName => (234, "callback failed"),
        };
        Self::of_tls(number, text)
    }
}

fn spelled(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', " ")
}

/// Where a reason stands in OpenSSL, and its text if that is not its name.
type Known = (Library, u32, Option<&'static str>);

fn ssl_reason(name: &str) -> Option<Known> {
    if let Ok(at) = SAME.binary_search_by_key(&name, |row| row.0) {
        return Some((Library::Ssl, SAME[at].1, None));
    }
    let at = RENAMED.binary_search_by_key(&name, |row| row.0).ok()?;
    Some((Library::Ssl, RENAMED[at].1, Some(RENAMED[at].2)))
}

/// Reasons of other parts that files are refused for.
const OF_OTHERS: [(Library, &str, Known); 16] = [
    (Library::Pem, "NO_START_LINE", (Library::Pem, 108, None)),
    (Library::Pem, "BAD_PASSWORD_READ", (Library::Pem, 104, None)),
    (Library::Pem, "BAD_DECRYPT", (Library::Pem, 101, None)),
    (Library::Evp, "BAD_DECRYPT", (Library::Provider, 100, None)),
    (Library::X509, "KEY_VALUES_MISMATCH", (Library::X509, 116, None)),
    (Library::X509, "KEY_TYPE_MISMATCH", (Library::X509, 115, None)),
    (Library::Ocsp, "CERTIFICATE_VERIFY_ERROR", (Library::Ocsp, 101, None)),
    (Library::Ocsp, "MISSING_OCSPSIGNING_USAGE", (Library::Ocsp, 103, None)),
    (Library::Ocsp, "NOT_BASIC_RESPONSE", (Library::Ocsp, 104, None)),
    (Library::Ocsp, "NO_RESPONSE_DATA", (Library::Ocsp, 108, None)),
    (Library::Ocsp, "ROOT_CA_NOT_TRUSTED", (Library::Ocsp, 112, None)),
    (Library::Ocsp, "SIGNATURE_FAILURE", (Library::Ocsp, 117, None)),
    (Library::Ocsp, "SIGNER_CERTIFICATE_NOT_FOUND", (Library::Ocsp, 118, None)),
    (Library::Ocsp, "NEXTUPDATE_BEFORE_THISUPDATE", (Library::Ocsp, 124, None)),
    (Library::Ocsp, "STATUS_EXPIRED", (Library::Ocsp, 125, None)),
    (Library::Ocsp, "STATUS_NOT_YET_VALID", (Library::Ocsp, 126, None)),
];

/// Reasons of the handshake and of records that have one name, and another number in OpenSSL. By name.
#[rustfmt::skip]
const SAME: [(&str, u32); 144] = [
    ("APP_DATA_IN_HANDSHAKE", 100), ("ATTEMPT_TO_REUSE_SESSION_IN_DIFFERENT_CONTEXT", 272),
    ("BAD_CHANGE_CIPHER_SPEC", 103), ("BAD_DATA_RETURNED_BY_CALLBACK", 106), ("BAD_DIGEST_LENGTH", 111),
    ("BAD_ECC_CERT", 304), ("BAD_ECPOINT", 306), ("BAD_HELLO_REQUEST", 105), ("BAD_LENGTH", 271),
    ("BAD_PACKET_LENGTH", 115), ("BAD_RSA_ENCRYPT", 119), ("BAD_SIGNATURE", 123),
    ("BAD_SRTP_MKI_VALUE", 352), ("BAD_SRTP_PROTECTION_PROFILE_LIST", 353), ("BAD_SSL_FILETYPE", 124),
    ("BAD_VALUE", 384), ("BAD_WRITE_RETRY", 127), ("BIO_NOT_SET", 128), ("BLOCK_CIPHER_PAD_IS_WRONG", 129),
    ("BN_LIB", 130), ("CA_DN_LENGTH_MISMATCH", 131), ("CA_KEY_TOO_SMALL", 397), ("CA_MD_TOO_WEAK", 398),
    ("CCS_RECEIVED_EARLY", 133), ("CERTIFICATE_VERIFY_FAILED", 134), ("CERT_CB_ERROR", 377),
    ("CERT_LENGTH_MISMATCH", 135), ("CLIENTHELLO_TLSEXT", 226), ("CONNECTION_TYPE_NOT_SET", 144),
    ("DATA_LENGTH_TOO_LONG", 146), ("DECRYPTION_FAILED", 147), ("DECRYPTION_FAILED_OR_BAD_RECORD_MAC", 281),
    ("DH_PUBLIC_VALUE_LENGTH_IS_WRONG", 148), ("DIGEST_CHECK_FAILED", 149), ("DTLS_MESSAGE_TOO_BIG", 334),
    ("ECC_CERT_NOT_FOR_SIGNING", 318), ("EE_KEY_TOO_SMALL", 399), ("ENCRYPTED_LENGTH_TOO_LONG", 150),
    ("ERROR_IN_RECEIVED_CIPHER_LIST", 151), ("EXCESSIVE_MESSAGE_SIZE", 152), ("EXTRA_DATA_IN_MESSAGE", 153),
    ("HTTPS_PROXY_REQUEST", 155), ("HTTP_REQUEST", 156), ("INAPPROPRIATE_FALLBACK", 373),
    ("INVALID_COMMAND", 280), ("INVALID_TICKET_KEYS_LENGTH", 325), ("LENGTH_MISMATCH", 159),
    ("MISSING_RSA_CERTIFICATE", 168), ("MISSING_TMP_DH_KEY", 171), ("MISSING_TMP_ECDH_KEY", 311),
    ("NOT_REPLACING_CERTIFICATE", 289), ("NO_APPLICATION_PROTOCOL", 235), ("NO_CERTIFICATES_RETURNED", 176),
    ("NO_CERTIFICATE_ASSIGNED", 177), ("NO_CERTIFICATE_SET", 179), ("NO_CIPHERS_AVAILABLE", 181),
    ("NO_CIPHERS_SPECIFIED", 183), ("NO_CIPHER_MATCH", 185), ("NO_COMPRESSION_SPECIFIED", 187),
    ("NO_METHOD_SPECIFIED", 188), ("NO_PRIVATE_KEY_ASSIGNED", 190), ("NO_RENEGOTIATION", 339),
    ("NO_REQUIRED_DIGEST", 324), ("NO_SHARED_CIPHER", 193), ("NULL_SSL_CTX", 195),
    ("NULL_SSL_METHOD_PASSED", 196), ("OLD_SESSION_CIPHER_NOT_RETURNED", 197), ("PARSE_TLSEXT", 227),
    ("PATH_TOO_LONG", 270), ("PEER_DID_NOT_RETURN_A_CERTIFICATE", 199), ("PROTOCOL_IS_SHUTDOWN", 207),
    ("PSK_IDENTITY_NOT_FOUND", 223), ("PSK_NO_CLIENT_CB", 224), ("PSK_NO_SERVER_CB", 225),
    ("READ_TIMEOUT_EXPIRED", 312), ("RECORD_LENGTH_MISMATCH", 213), ("RENEGOTIATION_ENCODING_ERR", 336),
    ("RENEGOTIATION_MISMATCH", 337), ("REQUIRED_CIPHER_MISSING", 215),
    ("SCSV_RECEIVED_WHEN_RENEGOTIATING", 345), ("SERVERHELLO_TLSEXT", 275),
    ("SESSION_ID_CONTEXT_UNINITIALIZED", 277), ("SHUTDOWN_WHILE_IN_INIT", 407),
    ("SRTP_COULD_NOT_ALLOCATE_PROFILES", 362), ("SRTP_UNKNOWN_PROTECTION_PROFILE", 364),
    ("SSL3_EXT_INVALID_SERVERNAME", 319), ("SSLV3_ALERT_BAD_CERTIFICATE", 1042),
    ("SSLV3_ALERT_BAD_RECORD_MAC", 1020), ("SSLV3_ALERT_CERTIFICATE_EXPIRED", 1045),
    ("SSLV3_ALERT_CERTIFICATE_REVOKED", 1044), ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", 1046),
    ("SSLV3_ALERT_DECOMPRESSION_FAILURE", 1030), ("SSLV3_ALERT_HANDSHAKE_FAILURE", 1040),
    ("SSLV3_ALERT_ILLEGAL_PARAMETER", 1047), ("SSLV3_ALERT_NO_CERTIFICATE", 1041),
    ("SSLV3_ALERT_UNEXPECTED_MESSAGE", 1010), ("SSLV3_ALERT_UNSUPPORTED_CERTIFICATE", 1043),
    ("SSL_CTX_HAS_NO_DEFAULT_SSL_VERSION", 228), ("SSL_HANDSHAKE_FAILURE", 229),
    ("SSL_SESSION_ID_CONTEXT_TOO_LONG", 273), ("SSL_SESSION_ID_TOO_LONG", 408),
    ("TLSV1_ALERT_ACCESS_DENIED", 1049), ("TLSV1_ALERT_DECODE_ERROR", 1050),
    ("TLSV1_ALERT_DECRYPTION_FAILED", 1021), ("TLSV1_ALERT_DECRYPT_ERROR", 1051),
    ("TLSV1_ALERT_EXPORT_RESTRICTION", 1060), ("TLSV1_ALERT_INAPPROPRIATE_FALLBACK", 1086),
    ("TLSV1_ALERT_INSUFFICIENT_SECURITY", 1071), ("TLSV1_ALERT_INTERNAL_ERROR", 1080),
    ("TLSV1_ALERT_NO_APPLICATION_PROTOCOL", 1120), ("TLSV1_ALERT_NO_RENEGOTIATION", 1100),
    ("TLSV1_ALERT_PROTOCOL_VERSION", 1070), ("TLSV1_ALERT_RECORD_OVERFLOW", 1022),
    ("TLSV1_ALERT_UNKNOWN_CA", 1048), ("TLSV1_ALERT_UNKNOWN_PSK_IDENTITY", 1115),
    ("TLSV1_ALERT_USER_CANCELLED", 1090), ("TOO_MANY_KEY_UPDATES", 132),
    ("UNABLE_TO_FIND_ECDH_PARAMETERS", 314), ("UNEXPECTED_EOF_WHILE_READING", 294),
    ("UNEXPECTED_MESSAGE", 244), ("UNEXPECTED_RECORD", 245), ("UNINITIALIZED", 276),
    ("UNKNOWN_ALERT_TYPE", 246), ("UNKNOWN_CERTIFICATE_TYPE", 247), ("UNKNOWN_CIPHER_RETURNED", 248),
    ("UNKNOWN_CIPHER_TYPE", 249), ("UNKNOWN_CMD_NAME", 386), ("UNKNOWN_DIGEST", 368),
    ("UNKNOWN_KEY_EXCHANGE_TYPE", 250), ("UNKNOWN_PROTOCOL", 252), ("UNKNOWN_SSL_VERSION", 254),
    ("UNKNOWN_STATE", 255), ("UNSAFE_LEGACY_RENEGOTIATION_DISABLED", 338),
    ("UNSUPPORTED_COMPRESSION_ALGORITHM", 257), ("UNSUPPORTED_ELLIPTIC_CURVE", 315),
    ("UNSUPPORTED_PROTOCOL", 258), ("WRONG_CERTIFICATE_TYPE", 383), ("WRONG_CIPHER_RETURNED", 261),
    ("WRONG_CURVE", 378), ("WRONG_SIGNATURE_TYPE", 370), ("WRONG_SSL_VERSION", 266),
    ("WRONG_VERSION_NUMBER", 267), ("X509_LIB", 268), ("X509_VERIFICATION_SETUP_PROBLEMS", 269),
];

/// Reasons that OpenSSL calls otherwise. By name.
#[rustfmt::skip]
const RENAMED: [(&str, u32, &str); 37] = [
    ("APPLICATION_DATA_INSTEAD_OF_HANDSHAKE", 245, "unexpected record"),
    ("APPLICATION_DATA_ON_SHUTDOWN", 291, "application data after close notify"),
    ("BAD_ALERT", 205, "invalid alert"),
    ("BAD_HANDSHAKE_RECORD", 244, "unexpected message"),
    ("CLIENTHELLO_PARSE_FAILED", 159, "length mismatch"),
    ("DECODE_ERROR", 159, "length mismatch"),
    ("DUPLICATE_EXTENSION", 110, "bad extension"),
    ("DUPLICATE_KEY_SHARE", 108, "bad key share"),
    ("DUPLICATE_SIGNATURE_ALGORITHM", 370, "wrong signature type"),
    ("EMS_STATE_INCONSISTENT", 104, "inconsistent extms"),
    ("ERROR_PARSING_EXTENSION", 110, "bad extension"),
    ("EXCESS_HANDSHAKE_DATA", 182, "not on record boundary"),
    ("INVALID_ALPN_PROTOCOL", 235, "no application protocol"),
    ("INVALID_COMPRESSION_LIST", 341, "invalid compression algorithm"),
    ("INVALID_OUTER_RECORD_TYPE", 443, "bad record type"),
    ("INVALID_SIGNATURE_ALGORITHM", 370, "wrong signature type"),
    ("MISSING_EXTENSION", 310, "missing psk kex modes extension"),
    ("MISSING_KEY_SHARE", 101, "no suitable key share"),
    ("NO_COMMON_SIGNATURE_ALGORITHMS", 118, "no suitable signature algorithm"),
    ("NO_SHARED_GROUP", 101, "no suitable key share"),
    ("PRE_SHARED_KEY_MUST_BE_LAST", 110, "bad extension"),
    ("PSK_IDENTITY_BINDER_COUNT_MISMATCH", 110, "bad extension"),
    ("RESUMED_EMS_SESSION_WITHOUT_EMS_EXTENSION", 104, "inconsistent extms"),
    ("RESUMED_NON_EMS_SESSION_WITH_EMS_EXTENSION", 104, "inconsistent extms"),
    ("TLSV1_ALERT_BAD_CERTIFICATE_HASH_VALUE", 1114, "tlsv1 bad certificate hash value"),
    ("TLSV1_ALERT_BAD_CERTIFICATE_STATUS_RESPONSE", 1113, "tlsv1 bad certificate status response"),
    ("TLSV1_ALERT_CERTIFICATE_REQUIRED", 1116, "tlsv13 alert certificate required"),
    ("TLSV1_ALERT_CERTIFICATE_UNOBTAINABLE", 1111, "tlsv1 certificate unobtainable"),
    ("TLSV1_ALERT_UNRECOGNIZED_NAME", 1112, "tlsv1 unrecognized name"),
    ("TLSV1_ALERT_UNSUPPORTED_EXTENSION", 1110, "tlsv1 unsupported extension"),
    ("TLS_RSA_ENCRYPTED_VALUE_LENGTH_IS_WRONG", 159, "length mismatch"),
    ("TOO_MANY_EMPTY_FRAGMENTS", 298, "record too small"),
    ("TOO_MANY_WARNING_ALERTS", 409, "too many warn alerts"),
    ("TOO_MUCH_READ_EARLY_DATA", 164, "too much early data"),
    ("TOO_MUCH_SKIPPED_EARLY_DATA", 164, "too much early data"),
    ("UNEXPECTED_EXTENSION", 217, "unsolicited extension"),
    ("WRONG_MESSAGE_TYPE", 244, "unexpected message"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_those_of_openssl() {
        let text = |library, name| Reason::named(library, name).to_string();
        assert_eq!(text(Library::Ssl, "NO_SHARED_CIPHER"), "error:0A0000C1:SSL routines::no shared cipher");
        let old = "error:0A000102:SSL routines::unsupported protocol";
        assert_eq!(text(Library::Ssl, "UNSUPPORTED_PROTOCOL"), old);
        let unknown_authority = "error:0A000418:SSL routines::tlsv1 alert unknown ca";
        assert_eq!(text(Library::Ssl, "TLSV1_ALERT_UNKNOWN_CA"), unknown_authority);
        let renamed = "error:0A000076:SSL routines::no suitable signature algorithm";
        assert_eq!(text(Library::Ssl, "NO_COMMON_SIGNATURE_ALGORITHMS"), renamed);
        let mismatch = "error:05800074:x509 certificate routines::key values mismatch";
        assert_eq!(text(Library::X509, "KEY_VALUES_MISMATCH"), mismatch);
        assert_eq!(text(Library::Ssl, "GREASE_IT"), "error:0A000000:SSL routines::grease it");
    }

    #[test]
    fn tables_are_sorted() {
        assert!(SAME.is_sorted_by_key(|row| row.0));
        assert!(RENAMED.is_sorted_by_key(|row| row.0));
        assert!(OF_PEERS.is_sorted());
        assert!(RENAMED.iter().all(|row| SAME.binary_search_by_key(&row.0, |same| same.0).is_err()));
    }

    #[test]
    fn what_is_no_hello_has_a_reason() {
        let reason = Reason::from(HelloError::RecordVersion);
        assert_eq!(reason.to_string(), "error:0A00010B:SSL routines::wrong version number");
        assert_ne!(Reason::from(HelloError::EmptyRecords).code(), 0x0A00_0000);
    }
}
