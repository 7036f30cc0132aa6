//! Heads that come from another server and are passed on. What filters look at and change is lifted out of
//! the lines into the places of the head (type, length, date, tag, encoding), as in nginx; the lines stay
//! where they were and leave in one piece with their neighbours, unless a filter has changed what they say.
//! Owned by the request's task.

use std::borrow::Cow;

use bytes::Bytes;
use clearway_base::date;
use clearway_message::{Header, HeaderName, Known, Ranges, ResponseHead, status};

use super::passed::Passed;
use super::{Output, OutputState, Progress};

const ETAG: HeaderName<'_> = HeaderName::new(b"ETag");
const CONTENT_ENCODING: HeaderName<'_> = HeaderName::new(b"Content-Encoding");
const ACCEPT_RANGES: HeaderName<'_> = HeaderName::new(b"Accept-Ranges");
const LAST_MODIFIED: HeaderName<'_> = HeaderName::new(b"Last-Modified");

impl Output<'_, '_> {
    /// Has lines that were added so far, or will be, stay when a head is passed on: a script's, which are
    /// there first.
    pub fn keep_lines(&mut self) {
        self.state.unusual().keeps_lines = true;
    }

    /// Takes the head that another server has sent in place of all lines so far, but for those that
    /// [`keep_lines`](Self::keep_lines) has spoken for: `lines` are spans of `received`, without those that
    /// concern that connection alone, or are hidden. `status_line` begins with the status. The length of
    /// the body is to be said by [`ResponseHead::content_length`].
    pub fn pass_head(
        &mut self,
        status_line: &[u8],
        received: impl Into<Bytes>,
        lines: impl IntoIterator<Item = Header>,
    ) {
        let state = &mut *self.state;
        debug_assert!(state.progress == Progress::HeadOpen, "a head that is sent cannot be exchanged");
        let keeps_lines = state.unusual.as_ref().is_some_and(|unusual| unusual.keeps_lines);
        let (received, mut passed): (Bytes, _) = (received.into(), Passed::default());
        let head = &mut state.head;
        let ResponseHead { headers, content_type, charset, .. } = head;
        let bytes = received.clone();
        let lines = lines.into_iter().filter(|line| match line.known {
            Known::ContentLength => false,
            Known::ContentType => {
                (*content_type, *charset) = passed.take_content_type(line.value.of(&bytes));
                false
            }
            _ => true,
        });
        if keeps_lines {
            headers.pass_behind(received, lines);
        } else {
            headers.pass(received, lines);
        }
        lift(head);
        head.status = status_line.get(..3).map_or(0, |code| code.iter().fold(0, digits));
        if status::status_line(head.status).is_none_or(|own| own.as_bytes() != status_line) {
            passed.status_line = Some(status_line.into());
        }
        state.passed = Some(Box::new(passed));
    }

    /// Has `Server` or `Date` not be written but where it stands among the lines.
    pub fn leave_out_own_line(&mut self, known: Known) {
        self.state.unusual().replaced |= known.bit();
    }
}

fn digits(number: u16, digit: &u8) -> u16 {
    number * 10 + u16::from(digit.wrapping_sub(b'0') % 10)
}

/// Puts what lines say into the places where filters look.
fn lift(head: &mut ResponseHead<'_>) {
    let headers = &head.headers;
    let value = |known| headers.first_known(known).map(|value| Cow::Owned(value.to_vec()));
    let (etag, encoding) = (value(Known::ETag), value(Known::ContentEncoding));
    head.last_modified = headers.first_known(Known::LastModified).and_then(date::parse_http_date);
    head.ranges = match headers.first_known(Known::AcceptRanges) {
        Some(_) => Ranges::Passed,
        None => Ranges::Refused,
    };
    (head.etag, head.content_encoding) = (etag, encoding);
}

impl OutputState<'_> {
    /// Has lines say what filters have made of the head, before it is written.
    #[inline]
    pub(super) fn settle_passed(&mut self) {
        if self.passed.is_some() {
            self.settle();
        }
    }

    fn settle(&mut self) {
        let ResponseHead { headers, etag, content_encoding, ranges, .. } = &mut self.head;
        for (name, known, value) in
            [(ETAG, Known::ETag, etag), (CONTENT_ENCODING, Known::ContentEncoding, content_encoding)]
        {
            let Some(line) = headers.first_known(known) else { continue };
            match value.as_deref() {
                Some(value) if value == line => {}
                Some(value) => headers.set(name, value),
                None => {
                    headers.remove(name);
                }
            }
        }
        if *ranges != Ranges::Passed {
            headers.remove(ACCEPT_RANGES);
        }
    }

    /// A page takes the place of the body, and lines of the head that do not describe that stay, as in nginx.
    pub(super) fn keep_passed_lines(&mut self) {
        if self.passed.take().is_some() {
            for name in [LAST_MODIFIED, ETAG, CONTENT_ENCODING, ACCEPT_RANGES] {
                self.head.headers.remove(name);
            }
        }
    }

    /// The head of another response takes its place, of which nothing is passed.
    pub(super) fn drop_passed(&mut self) {
        if self.passed.take().is_some() {
            self.head.headers.drop_passed();
        }
    }
}
