//! Heads of responses (RFC 9113 §8.3.2): the fields of a header block become the lines that responses over
//! HTTP/1 have, and the text that their spans refer to. A fault ends the stream, and the block is read on for
//! the sake of those that follow.

use std::ops::ControlFlow;

use clearway_message::{Header, Known, Span, name_hash};

use super::Limits;
use super::failure::{Failure, HeadFault, Reason};
use crate::hpack::{Decoder, ENTRY_OVERHEAD_BYTES, Field};
use crate::request::decimal;

/// Length of a status, digits.
const STATUS_DIGITS: usize = 3;

/// Text that is kept for the next head, bytes.
const KEPT_TEXT_BYTES: usize = 16 * 1024;

/// The head of a response, or its trailers, whose status is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// Its status, 100 to 999 without 101.
    pub status: u16,
    /// Its fields, in their order; names are in lower case.
    pub lines: Vec<Header>,
    /// The length of its body as it says it, bytes.
    pub content_length: Option<u64>,
}

impl ResponseHead {
    /// Whether another head follows.
    #[must_use]
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }
}

/// Which kind of block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Head,
    Trailers,
}

/// Reads heads, and keeps the last one. Its room is used again.
#[derive(Debug, Default)]
pub(super) struct HeadReader {
    text: Vec<u8>,
    head: ResponseHead,
    left_bytes: usize,
}

impl HeadReader {
    /// The head that was read last.
    pub(super) fn last(&self) -> &ResponseHead {
        &self.head
    }

    /// The head that was read last, and its text.
    pub(super) fn read_last(&self) -> (&[u8], &ResponseHead) {
        (&self.text, &self.head)
    }

    /// Reads a whole block; the response is malformed where the inner result says so.
    ///
    /// # Errors
    /// The connection has to end.
    pub(super) fn read(
        &mut self,
        (decoder, block): (&mut Decoder, &[u8]),
        wanted: Wanted,
        limits: &Limits,
    ) -> Result<Result<(), HeadFault>, Failure> {
        self.text.clear();
        self.text.shrink_to(KEPT_TEXT_BYTES);
        self.head.lines.clear();
        (self.head.status, self.head.content_length) = (0, None);
        self.left_bytes = limits.head_bytes;
        let mut fault = None;
        let mut take = |field: Field<'_>| {
            if fault.is_none() {
                fault = self.take(field, wanted, limits).err();
            }
            ControlFlow::Continue(())
        };
        decoder.decode(block, &mut take).map_err(Reason::Compression)?;
        if fault.is_none() && wanted == Wanted::Head && self.head.status == 0 {
            fault = Some(HeadFault::NoStatus);
        }
        Ok(fault.map_or(Ok(()), Err))
    }

    fn take(&mut self, field: Field<'_>, wanted: Wanted, limits: &Limits) -> Result<(), HeadFault> {
        let Field { name, value, .. } = field;
        let bytes = name.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        self.left_bytes = self.left_bytes.checked_sub(bytes).ok_or(HeadFault::Large)?;
        if name == b":status" && wanted == Wanted::Head {
            return self.take_status(value);
        }
        if name.first() == Some(&b':') {
            return Err(HeadFault::UnknownPseudo);
        }
        if wanted == Wanted::Head && self.head.status == 0 {
            return Err(HeadFault::NoStatus);
        }
        if name.is_empty() || !name.iter().all(|&byte| is_name_byte(byte)) {
            return Err(HeadFault::InvalidName);
        }
        if value.iter().any(|&byte| matches!(byte, b'\0' | b'\n' | b'\r')) {
            return Err(HeadFault::InvalidValue);
        }
        let hash = name_hash(name);
        let known = Known::find_hashed(name, hash);
        match known {
            // These fields have no meaning in HTTP/2, though some servers send them.
            Known::Connection | Known::KeepAlive | Known::TransferEncoding | Known::Upgrade => return Ok(()),
            Known::ContentLength if wanted == Wanted::Trailers => return Ok(()),
            Known::ContentLength => {
                let bytes = decimal(value).ok_or(HeadFault::InvalidLength)?;
                if self.head.content_length.replace(bytes).is_some() {
                    return Err(HeadFault::InvalidLength);
                }
            }
            _ => {}
        }
        if self.head.lines.len() >= limits.fields {
            return Err(HeadFault::Large);
        }
        self.put_line(name, value, (hash, known));
        Ok(())
    }

    fn take_status(&mut self, value: &[u8]) -> Result<(), HeadFault> {
        if self.head.status != 0 {
            return Err(HeadFault::DuplicateStatus);
        }
        if !self.head.lines.is_empty() || value.len() != STATUS_DIGITS {
            return Err(HeadFault::InvalidStatus);
        }
        let status = decimal(value).and_then(|status| u16::try_from(status).ok());
        match status.ok_or(HeadFault::InvalidStatus)? {
            0..=99 => Err(HeadFault::InvalidStatus),
            101 => Err(HeadFault::UnexpectedStatus),
            status => {
                self.head.status = status;
                Ok(())
            }
        }
    }

    fn put_line(&mut self, name: &[u8], value: &[u8], (hash, known): (u32, Known)) {
        let name_at = self.text.len();
        let value_at = name_at + name.len() + 2;
        for piece in [name, b": ", value, b"\r\n"] {
            self.text.extend_from_slice(piece);
        }
        let name = Span::new(name_at, name_at + name.len());
        let value = Span::new(value_at, value_at + value.len());
        self.head.lines.push(Header { name, value, hash, known });
    }
}

/// Whether a byte belongs to a name, and is not in upper case.
fn is_name_byte(byte: u8) -> bool {
    byte > b' ' && byte != b':' && byte != 0x7f && !byte.is_ascii_uppercase()
}
