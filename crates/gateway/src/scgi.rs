//! SCGI: the parameters as one netstring, each name and value with a NUL behind it; then the body. The
//! response has a head in CGI style and ends with the connection.

use std::fmt;

/// Something cannot be said in SCGI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HasNul;

impl fmt::Display for HasNul {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("scgi parameter has a null character")
    }
}

impl std::error::Error for HasNul {}

/// The parameters of a request on their way into a buffer.
pub struct Request<'o> {
    out: &'o mut Vec<u8>,
    /// The index at which they begin.
    begin: usize,
    /// The first one that could not be said.
    wrong: Option<HasNul>,
}

impl<'o> Request<'o> {
    /// Begins a request behind what `out` holds. The length of its body comes first, as the protocol wants.
    pub fn begin(out: &'o mut Vec<u8>, body_bytes: u64) -> Self {
        let begin = out.len();
        let mut request = Self { out, begin, wrong: None };
        request.param(b"CONTENT_LENGTH", body_bytes.to_string().as_bytes());
        request
    }

    /// Adds a parameter.
    pub fn param(&mut self, name: &[u8], value: &[u8]) {
        if name.contains(&0) || value.contains(&0) {
            self.wrong = Some(HasNul);
        }
        for text in [name, value] {
            self.out.extend_from_slice(text);
            self.out.push(0);
        }
    }

    /// The parameters are complete; the body follows.
    ///
    /// # Errors
    /// A NUL in one of them would have made another parameter of what stands behind it.
    pub fn finish(self) -> Result<(), HasNul> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let length = format!("{}:", self.out.len() - self.begin);
        self.out.splice(self.begin..self.begin, length.into_bytes());
        self.out.push(b',');
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_netstring() {
        let mut out = b"x".to_vec();
        let mut request = Request::begin(&mut out, 27);
        request.param(b"SCGI", b"1");
        request.param(b"REQUEST_METHOD", b"POST");
        request.param(b"REQUEST_URI", b"/deepthought");
        request.finish().expect("no NUL");
        // The example of the specification.
        let expected: &[u8] =
            b"x70:CONTENT_LENGTH\x0027\0SCGI\x001\0REQUEST_METHOD\0POST\0REQUEST_URI\0/deepthought\0,";
        assert_eq!(out, expected);
    }

    #[test]
    fn a_null_character_makes_no_further_parameter() {
        for (name, value) in [(&b"A\0B"[..], &b"c"[..]), (b"A", b"b\0HTTP_HOST\0evil")] {
            let mut out = Vec::new();
            let mut request = Request::begin(&mut out, 0);
            request.param(name, value);
            assert_eq!(request.finish(), Err(HasNul));
        }
    }
}
