//! Takes the ClientHello out of the records that it comes in. Received bytes stay where they are, since the
//! library is given them all later; each is looked at once, however few come at a time.
#![forbid(unsafe_code)]

use super::{Hello, HelloError};

/// Longest message, bytes: the library takes no longer one.
pub const HELLO_MAX: usize = 16_384;

/// Bytes that a hello may take with the heads of its records. Of one whose records hold a byte each this
/// leaves 5,461 bytes, three times of what clients send.
pub const RECEIVED_MAX: usize = 32 * 1024;

/// Records without a byte of content that may follow each other: as many as the library takes.
pub const EMPTY_RECORDS_MAX: u8 = 32;

/// A record's content, bytes, while nothing is encrypted.
const CONTENT_MAX: usize = 16_384;
const HEAD_LENGTH: usize = 5;
/// A message's type and length.
const MESSAGE_HEAD_LENGTH: usize = 4;

const CLIENT_HELLO: u8 = 1;
const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const MAJOR_VERSION: u8 = 3;

/// Where the reading of a hello is.
#[derive(Default)]
pub struct HelloReader {
    /// Received bytes that were looked at: whole records.
    done: usize,
    empty_records: u8,
    /// The message, if it comes in several records.
    message: Vec<u8>,
}

impl HelloReader {
    /// Whether the first byte of a connection begins a handshake. Others are a plain request, or SSL 2.0,
    /// whose hello has the highest bit set.
    #[must_use]
    pub fn begins_handshake(first: u8) -> bool {
        first == HANDSHAKE
    }

    /// Looks at all that was `received` of the connection, the same bytes each time and maybe more. Nothing
    /// if the hello is not there as a whole.
    ///
    /// # Errors
    /// If it will not become a hello, whatever follows.
    pub fn read(&mut self, received: &[u8]) -> Result<Option<Hello>, HelloError> {
        debug_assert!(self.done <= received.len(), "what was received is there each time");
        while let Some(content) = self.next_record(received)? {
            if let Some(hello) = self.add(content)? {
                return Ok(Some(hello));
            }
        }
        if received.len() >= RECEIVED_MAX { Err(HelloError::TooLong) } else { Ok(None) }
    }

    /// The content of the next record that is there as a whole.
    fn next_record<'a>(&mut self, received: &'a [u8]) -> Result<Option<&'a [u8]>, HelloError> {
        let rest = received.get(self.done..).unwrap_or_default();
        let Some((head, rest)) = rest.split_first_chunk::<HEAD_LENGTH>() else {
            return Ok(None);
        };
        let [kind, major, _, high, low] = *head;
        if major != MAJOR_VERSION {
            return Err(HelloError::RecordVersion);
        }
        match kind {
            HANDSHAKE => {}
            ALERT => return Err(HelloError::Alert),
            _ => return Err(HelloError::UnexpectedRecord),
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length > CONTENT_MAX {
            return Err(HelloError::RecordTooLong);
        }
        let Some(content) = rest.get(..length) else {
            return Ok(None);
        };
        self.done += HEAD_LENGTH + length;
        debug_assert!(self.done <= received.len(), "whole records were looked at");
        self.empty_records = if content.is_empty() { self.empty_records + 1 } else { 0 };
        if self.empty_records > EMPTY_RECORDS_MAX {
            return Err(HelloError::EmptyRecords);
        }
        Ok(Some(content))
    }

    /// Adds a record's content to the message. The hello, if that is all of it.
    fn add(&mut self, content: &[u8]) -> Result<Option<Hello>, HelloError> {
        if self.message.is_empty()
            && let Some(body) = body(content)?
        {
            return Hello::parse(body).map(Some);
        }
        self.message.extend_from_slice(content);
        debug_assert!(self.message.len() <= self.done, "the message is part of what was looked at");
        let hello = match body(&self.message)? {
            Some(body) => Hello::parse(body)?,
            None => return Ok(None),
        };
        self.message = Vec::new();
        Ok(Some(hello))
    }
}

/// The body of the message that begins there, if it is there as a whole.
fn body(message: &[u8]) -> Result<Option<&[u8]>, HelloError> {
    if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
        return Err(HelloError::UnexpectedMessage);
    }
    let Some((&[_, high, middle, low], rest)) = message.split_first_chunk::<MESSAGE_HEAD_LENGTH>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes([0, high, middle, low])).unwrap_or(usize::MAX);
    if length > HELLO_MAX {
        return Err(HelloError::TooLong);
    }
    Ok(rest.get(..length))
}
