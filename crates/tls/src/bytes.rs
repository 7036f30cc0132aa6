//! A cursor over bytes that a peer sent: it gives nothing that is not there, never panics, and knows where in
//! the whole it stands.
#![forbid(unsafe_code)]

use std::ops::Range;

/// The unread rest of a part of `all`.
#[derive(Clone, Copy)]
pub(crate) struct Bytes<'a> {
    all: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Bytes<'a> {
    pub(crate) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0, end: all.len() }
    }

    pub(crate) fn len(&self) -> usize {
        debug_assert!(self.at <= self.end && self.end <= self.all.len(), "a part lies within the whole");
        self.end - self.at
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Where what is left stands in the whole.
    pub(crate) fn range(&self) -> Range<usize> {
        self.at..self.end
    }

    /// The rest.
    pub(crate) fn as_slice(&self) -> &'a [u8] {
        &self.all[self.range()]
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<Self> {
        if count > self.len() {
            return None;
        }
        let taken = Self { end: self.at + count, ..*self };
        self.at = taken.end;
        debug_assert_eq!(taken.len(), count, "what is taken is as long as was asked for");
        Some(taken)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte.as_slice()[0])
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes.as_slice()[0], bytes.as_slice()[1]]))
    }

    /// Bytes behind their number, which has one byte.
    pub(crate) fn prefixed_u8(&mut self) -> Option<Self> {
        let count = self.u8()?;
        self.take(usize::from(count))
    }

    /// Bytes behind their number, which has two bytes.
    pub(crate) fn prefixed_u16(&mut self) -> Option<Self> {
        let count = self.u16()?;
        self.take(usize::from(count))
    }
}
