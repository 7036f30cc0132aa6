//! Payloads that are handed on, or skipped, as they come: no frame of a body is waited for.

use crate::frame::Rest;

/// A payload under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passing {
    /// The stream whose body passes; 0 while a body is skipped.
    pub(crate) stream: u32,
    /// Bytes that are still to come.
    pub(crate) left: u32,
    /// And behind that, bytes.
    pub(crate) padding: u32,
    pub(crate) rest: Rest,
}

/// A part of a body: its stream, its bytes and whether it is the last.
pub(crate) type Part<'i> = (u32, &'i [u8], Rest);

impl Passing {
    /// A payload of `left` bytes that means nothing.
    pub(crate) fn skip(left: u32) -> Self {
        Self { stream: 0, left, padding: 0, rest: Rest::Open }
    }

    /// Takes what has come from the front of `input`: the part to be told, if there is one, and what is still
    /// to come, if anything is.
    pub(crate) fn take<'i>(mut self, input: &mut &'i [u8]) -> (Option<Part<'i>>, Option<Self>) {
        let count = input.len().min(self.left as usize);
        let (bytes, rest) = input.split_at(count);
        let padding = rest.len().min(self.padding as usize);
        *input = &rest[padding..];
        // Neither is longer than what it is a part of.
        self.left -= count as u32;
        if self.left == 0 {
            self.padding -= padding as u32;
        }
        let is_over = self.left == 0 && self.padding == 0;
        let end = if is_over { self.rest } else { Rest::Open };
        let is_told = self.stream != 0 && !(bytes.is_empty() && end == Rest::Open);
        (is_told.then_some((self.stream, bytes, end)), (!is_over).then_some(self))
    }
}
