//! Requests as they are sent: BEGIN_REQUEST, the parameters, the body.

use super::{HEADER_BYTES, REQUEST_ID, VERSION, kind};
use crate::param::TooBig;

/// The longest piece of a body that one record is made for, bytes: a multiple of eight, so that nothing has
/// to be filled up behind it.
pub const STDIN_MAX_BYTES: usize = 65_528;

/// The record that ends the body.
pub const END_OF_STDIN: [u8; HEADER_BYTES] = header(kind::STDIN, 0, 0);

/// The application is an ordinary one that answers (FastCGI §6.2).
const RESPONDER: u8 = 1;

/// Whether the application is to close the connection behind its answer (`fastcgi_keep_conn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepConnection {
    /// The application keeps the connection open.
    No,
    /// The application leaves closing to us.
    Yes,
}

/// Lengths of this size and more take four bytes.
const LONG_MIN: usize = 128;

/// The parameters of a request on their way into a buffer.
pub struct Request<'o> {
    out: &'o mut Vec<u8>,
    /// Where the content of the record with the parameters begins.
    content: usize,
}

impl<'o> Request<'o> {
    /// Begins a request behind what `out` holds.
    pub fn begin(out: &'o mut Vec<u8>, keep: KeepConnection) -> Self {
        out.extend_from_slice(&header(kind::BEGIN_REQUEST, HEADER_BYTES as u16, 0));
        let flags = u8::from(keep == KeepConnection::Yes);
        out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
        out.extend_from_slice(&header(kind::PARAMS, 0, 0));
        let content = out.len();
        Self { out, content }
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &[u8], value: &[u8]) {
        push_length(self.out, name.len());
        push_length(self.out, value.len());
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(value);
    }

    /// The parameters are complete; the body follows, if there is one, and then [`END_OF_STDIN`].
    ///
    /// # Errors
    /// They do not fit into a record.
    pub fn finish(self) -> Result<(), TooBig> {
        let bytes = self.out.len() - self.content;
        let what = "fastcgi request record";
        let length = u16::try_from(bytes).map_err(|_| TooBig { what, bytes })?;
        let padding = padding(bytes);
        let begin = self.content - HEADER_BYTES;
        self.out[begin..self.content].copy_from_slice(&header(kind::PARAMS, length, padding));
        self.out.resize(self.out.len() + usize::from(padding), 0);
        self.out.extend_from_slice(&header(kind::PARAMS, 0, 0));
        Ok(())
    }
}

/// Puts the beginning of a record in front of a piece of the body, and says how many zeros have to stand
/// behind the piece. It has 1 to [`STDIN_MAX_BYTES`] bytes.
pub fn push_stdin(out: &mut Vec<u8>, piece_bytes: usize) -> usize {
    let length = u16::try_from(piece_bytes).expect("pieces are cut to STDIN_MAX_BYTES");
    let padding = padding(piece_bytes);
    out.extend_from_slice(&header(kind::STDIN, length, padding));
    usize::from(padding)
}

const fn header(kind: u8, length: u16, padding: u8) -> [u8; HEADER_BYTES] {
    let [high, low] = length.to_be_bytes();
    [VERSION, kind, 0, REQUEST_ID, high, low, padding, 0]
}

/// Zeros that make a record's content end at a multiple of eight bytes: 0 to 7.
fn padding(bytes: usize) -> u8 {
    (bytes.wrapping_neg() % 8) as u8
}

fn push_length(out: &mut Vec<u8>, length: usize) {
    if length < LONG_MIN {
        out.push(length as u8);
    } else {
        let length = u32::try_from(length).unwrap_or(u32::MAX) | 1 << 31;
        out.extend_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_what_the_specification_says() {
        let mut out = b"before".to_vec();
        let mut request = Request::begin(&mut out, KeepConnection::Yes);
        request.param(b"A", b"bc");
        request.param(b"LONG", &[b'x'; 200]);
        request.param(b"", b"");
        request.finish().expect("it fits");
        let mut expected = b"before".to_vec();
        expected.extend_from_slice(&[1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        let content = 2 + 1 + 2 + 1 + 4 + 4 + 200 + 2;
        expected.extend_from_slice(&[1, 4, 0, 1, 0, content as u8, 0, 0]);
        expected.extend_from_slice(b"\x01\x02Abc\x04\x80\0\0\xc8LONG");
        expected.extend_from_slice(&[b'x'; 200]);
        expected.extend_from_slice(&[0, 0]);
        assert_eq!(content % 8, 0);
        expected.extend_from_slice(&[1, 4, 0, 1, 0, 0, 0, 0]);
        assert_eq!(out, expected);
    }

    #[test]
    fn records_are_filled_up_to_eight_bytes() {
        let mut out = Vec::new();
        let request = Request::begin(&mut out, KeepConnection::No);
        request.finish().expect("it fits");
        assert_eq!(out[10], 0, "the application closes");
        let mut one = Vec::new();
        let mut request = Request::begin(&mut one, KeepConnection::No);
        request.param(b"A", b"");
        request.finish().expect("it fits");
        assert_eq!(one[16..], [1, 4, 0, 1, 0, 3, 5, 0, 1, 0, b'A', 0, 0, 0, 0, 0, 1, 4, 0, 1, 0, 0, 0, 0]);
        let mut stdin = Vec::new();
        assert_eq!(push_stdin(&mut stdin, STDIN_MAX_BYTES), 0);
        assert_eq!(push_stdin(&mut stdin, 1), 7);
        assert_eq!(stdin, [1, 5, 0, 1, 0xff, 0xf8, 0, 0, 1, 5, 0, 1, 0, 1, 7, 0]);
        assert_eq!(END_OF_STDIN, [1, 5, 0, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn parameters_that_do_not_fit_are_refused_as_nginx_refuses_them() {
        for (value_bytes, fits) in [(65_535 - 6, true), (65_535 - 5, false)] {
            let mut out = Vec::new();
            let mut request = Request::begin(&mut out, KeepConnection::No);
            request.param(b"A", &vec![b'v'; value_bytes]);
            let said = request.finish().map_err(|error| error.to_string());
            let expected = if fits { Ok(()) } else { Err("fastcgi request record is too big: 65536".into()) };
            assert_eq!(said, expected);
        }
    }
}
