//! How OpenSSL names what a handshake is refused for where AWS-LC says less: what the client has asked for,
//! and the record that came last, tell the rest.
#![forbid(unsafe_code)]

use crate::engine::Step;
use crate::hello::Hello;
use crate::level::Version;
use crate::reason::{Library, Reason};

/// Kinds of records.
const CHANGE_CIPHER_SPEC: u8 = 20;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// OpenSSL's numbers.
const NO_SUITABLE_KEY_SHARE: u32 = 101;
const BAD_PACKET_LENGTH: u32 = 115;
const NO_SUITABLE_SIGNATURE_ALGORITHM: u32 = 118;
const PARSE_TLSEXT: u32 = 227;
const UNEXPECTED_RECORD: u32 = 245;
const DECRYPTION_FAILED: u32 = 281;
const RECORD_TOO_SMALL: u32 = 298;
const BAD_ECPOINT: u32 = 306;
const WRONG_CURVE: u32 = 378;

/// The signatures that a client can check, by its hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Signatures {
    /// Nothing.
    #[default]
    Unsaid,
    /// Only such that OpenSSL does not know.
    Unknown,
    Known,
}

/// The groups that a client knows, by its hello.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Groups {
    /// Nothing, and it sends no key.
    #[default]
    Unsaid,
    /// Nothing, but it sends a key.
    KeyAlone,
    Said,
}

/// The facts about a hello that matter when its handshake is refused, and how far that handshake is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances {
    signatures: Signatures,
    groups: Groups,
    /// The kind of the record that came last; 0 before there is one.
    pub(crate) record: u8,
    /// The server's first message has been written.
    pub(crate) is_answered: bool,
}

impl Circumstances {
    pub(crate) fn of(hello: &Hello) -> Self {
        let signatures = match hello.has_signatures() {
            false => Signatures::Unsaid,
            true if hello.signatures().any(is_known_signature) => Signatures::Known,
            true => Signatures::Unknown,
        };
        let groups = match hello.has_groups() {
            true => Groups::Said,
            false if hello.key_shares().next().is_some() => Groups::KeyAlone,
            false => Groups::Unsaid,
        };
        Self { signatures, groups, ..Self::default() }
    }

    /// The alert that a client of TLS 1.3 sends unencrypted, as one does which cannot read the answer.
    /// OpenSSL takes it until there is an encrypted record. `None` if the front of `input` is something else.
    pub(crate) fn take_plain_alert(&self, version: Option<Version>, input: &mut &[u8]) -> Option<Step> {
        const CLOSE_NOTIFY: u8 = 0;
        const USER_CANCELED: u8 = 90;
        let is_awaited = self.is_answered && self.record != APPLICATION_DATA;
        if !is_awaited || version != Some(Version::Tls13) {
            return None;
        }
        let (head, rest) = input.split_first_chunk::<5>().filter(|(head, _)| head[0] == ALERT)?;
        let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
        let (content, rest) = rest.split_at_checked(length)?;
        let failed = |reason| Some(Step::Failed(crate::engine::Failure { reasons: vec![reason] }));
        let &[_, alert] = content else {
            return failed(Reason::of_tls(205, "invalid alert"));
        };
        *input = rest;
        match alert {
            CLOSE_NOTIFY => Some(Step::Closed),
            USER_CANCELED if input.is_empty() => Some(Step::Need),
            USER_CANCELED => None,
            alert => failed(Reason::of_alert(alert)),
        }
    }

    /// Says as OpenSSL does what AWS-LC has said.
    pub(crate) fn refine(&self, version: Option<Version>, mut reasons: Vec<Reason>) -> Vec<Reason> {
        match reasons.last().map(Reason::number) {
            Some(PARSE_TLSEXT) => reasons.truncate(1),
            Some(DECRYPTION_FAILED) => reasons.retain(|reason| reason.number() != BAD_PACKET_LENGTH),
            _ => {}
        }
        let [reason] = &mut reasons[..] else { return reasons };
        let is_13 = version == Some(Version::Tls13);
        let (number, text) = match (reason.library(), reason.number()) {
            // A secret that is not as long as the key is a wrong one, which the next record shows.
            (Library::Rsa, _) => (DECRYPTION_FAILED, "decryption failed or bad record mac"),
            (Library::Ssl, NO_SUITABLE_SIGNATURE_ALGORITHM) => match self.signatures {
                Signatures::Unsaid if is_13 => (112, "missing sigalgs extension"),
                Signatures::Unknown => (376, "no shared signature algorithms"),
                _ if !is_13 => (193, "no shared cipher"),
                _ => return reasons,
            },
            (Library::Ssl, NO_SUITABLE_KEY_SHARE) if is_13 && self.groups == Groups::KeyAlone => {
                (209, "missing supported groups extension")
            }
            (Library::Ssl, BAD_ECPOINT) if !is_13 => (108, "bad key share"),
            (Library::Ssl, WRONG_CURVE) => (108, "bad key share"),
            (Library::Ssl, UNEXPECTED_RECORD) if matches!(self.record, CHANGE_CIPHER_SPEC | HANDSHAKE) => {
                (244, "unexpected message")
            }
            (Library::Ssl, DECRYPTION_FAILED) if is_13 => match self.record {
                APPLICATION_DATA => return reasons,
                CHANGE_CIPHER_SPEC => (260, "invalid ccs message"),
                _ => (443, "bad record type"),
            },
            (Library::Ssl, RECORD_TOO_SMALL) if is_13 && self.record == CHANGE_CIPHER_SPEC => {
                (262, "unexpected ccs message")
            }
            _ => return reasons,
        };
        *reason = Reason::of_tls(number, text);
        reasons
    }
}

/// Whether OpenSSL 3.0 has an algorithm by this number (RFC 8446 §4.2.3) at its default level.
fn is_known_signature(number: u16) -> bool {
    matches!(number, 0x0301 | 0x0303 | 0x0401 | 0x0403 | 0x0501 | 0x0503 | 0x0601 | 0x0603 | 0x0804..=0x080b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TLS13: Option<Version> = Some(Version::Tls13);

    fn answered(record: u8) -> Circumstances {
        Circumstances { record, is_answered: true, ..Circumstances::default() }
    }

    #[test]
    fn alerts_are_taken_until_there_is_an_encrypted_record() {
        let take = |circumstances: Circumstances, version, input: &[u8]| {
            let mut rest = input;
            let step = circumstances.take_plain_alert(version, &mut rest)?;
            Some((format!("{step:?}"), rest.len()))
        };
        let alert = [ALERT, 3, 3, 0, 2, 2, 48, 23];
        let (step, left) = take(answered(HANDSHAKE), TLS13, &alert).unwrap();
        assert!(step.contains("tlsv1 alert unknown ca") && left == 1, "{step} {left}");
        assert_eq!(take(answered(APPLICATION_DATA), TLS13, &alert), None);
        assert_eq!(take(Circumstances::default(), TLS13, &alert), None);
        assert_eq!(take(answered(HANDSHAKE), Some(Version::Tls12), &alert), None);
        assert_eq!(take(answered(HANDSHAKE), TLS13, &alert[..6]), None);
        let closed = [ALERT, 3, 3, 0, 2, 1, 0];
        assert_eq!(take(answered(HANDSHAKE), TLS13, &closed), Some(("Closed".to_owned(), 0)));
        let half = [ALERT, 3, 3, 0, 1, 2];
        assert!(take(answered(HANDSHAKE), TLS13, &half).unwrap().0.contains("invalid alert"));
    }

    #[test]
    fn the_last_record_tells_what_was_wrong() {
        let refined = |record, version, number| {
            let reasons = vec![Reason::of_tls(BAD_PACKET_LENGTH, ""), Reason::of_tls(number, "")];
            let reasons = answered(record).refine(version, reasons);
            reasons.last().map(Reason::number)
        };
        assert_eq!(refined(APPLICATION_DATA, TLS13, DECRYPTION_FAILED), Some(DECRYPTION_FAILED));
        assert_eq!(refined(HANDSHAKE, TLS13, DECRYPTION_FAILED), Some(443));
        let unexpected = vec![Reason::of_tls(UNEXPECTED_RECORD, "")];
        let unexpected = answered(CHANGE_CIPHER_SPEC).refine(None, unexpected);
        assert_eq!(unexpected[0].text(), "unexpected message");
    }
}
