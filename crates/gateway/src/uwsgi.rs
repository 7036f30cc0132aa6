//! uwsgi: the parameters as one packet of lengths and texts, little-endian; then the body. The response is an
//! HTTP/1 one, or has a head in CGI style.

use crate::param::TooBig;

/// Length of what is in front of the parameters, bytes.
const HEADER_BYTES: usize = 4;

/// The parameters of a request on their way into a buffer.
pub struct Request<'o> {
    out: &'o mut Vec<u8>,
    /// The index at which they begin.
    content: usize,
    modifiers: [u8; 2],
}

impl<'o> Request<'o> {
    /// Begins a request behind what `out` holds (`uwsgi_modifier1`, `uwsgi_modifier2`).
    pub fn begin(out: &'o mut Vec<u8>, modifiers: [u8; 2]) -> Self {
        out.extend_from_slice(&[0; HEADER_BYTES]);
        let content = out.len();
        Self { out, content, modifiers }
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &[u8], value: &[u8]) {
        for text in [name, value] {
            // Where a text is too long for this, so is the packet, which is refused.
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            self.out.extend_from_slice(&length.to_le_bytes());
            self.out.extend_from_slice(text);
        }
    }

    /// The parameters are complete, with `string` behind them (`uwsgi_string`); the body follows.
    ///
    /// # Errors
    /// They do not fit into a packet.
    pub fn finish(self, string: &[u8]) -> Result<(), TooBig> {
        self.out.extend_from_slice(string);
        let bytes = self.out.len() - self.content;
        let length = u16::try_from(bytes).map_err(|_| TooBig { what: "uwsgi request", bytes })?;
        let [low, high] = length.to_le_bytes();
        let [first, second] = self.modifiers;
        self.out[self.content - HEADER_BYTES..self.content].copy_from_slice(&[first, low, high, second]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_packet() {
        let mut out = b"x".to_vec();
        let mut request = Request::begin(&mut out, [5, 9]);
        request.param(b"A", b"bc");
        request.param(b"DEFG", b"");
        request.finish(b"!").expect("it fits");
        assert_eq!(out, b"x\x05\x10\0\x09\x01\0A\x02\0bc\x04\0DEFG\0\0!");
    }

    #[test]
    fn parameters_that_do_not_fit_are_refused_as_nginx_refuses_them() {
        for (value_bytes, fits) in [(65_535 - 5, true), (65_535 - 4, false), (70_000, false)] {
            let mut out = Vec::new();
            let mut request = Request::begin(&mut out, [0, 0]);
            request.param(b"A", &vec![b'v'; value_bytes]);
            let said = request.finish(b"").map_err(|error| error.to_string());
            let text = format!("uwsgi request is too big: {}", value_bytes + 5);
            assert_eq!(said, if fits { Ok(()) } else { Err(text) });
        }
    }
}
