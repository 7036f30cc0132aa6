//! Options that the owner of a connection sets: limits on everything that a peer controls, and how strict
//! header names are taken. Plain data, frozen with the configuration; any thread.

/// Limits and options of the head parser, of a listener's default server.
///
/// The defaults are those of the directives with the same names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `client_header_buffer_size`, in bytes: how much of a head is read before the large buffers are
    /// taken into use. A line that fits here may be longer than a large buffer.
    pub client_header_buffer_size: usize,
    /// First argument of `large_client_header_buffers`: how many large buffers one head may use.
    pub large_client_header_buffers: usize,
    /// Second argument of `large_client_header_buffers`, in bytes. The request line must fit in one
    /// buffer (else 414), and so must each header line (else 494, which is 400 to the peer).
    pub large_client_header_buffer_size: usize,
    /// `max_headers`: how many header lines a head may have (else 494).
    pub max_headers: usize,
    /// `ignore_invalid_headers`.
    pub invalid_headers: InvalidHeaders,
    /// `underscores_in_headers`.
    pub underscores: Underscores,
}

/// The fate of a header line whose name has bytes other than letters, digits and `-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidHeaders {
    /// `ignore_invalid_headers on`: the line is skipped; see `RequestHead::ignored`.
    Ignore,
    /// `ignore_invalid_headers off`: the line is an ordinary header.
    Pass,
}

/// Whether `_` is a valid byte of a header name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Underscores {
    /// `underscores_in_headers off`.
    Invalid,
    /// `underscores_in_headers on`.
    Valid,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            client_header_buffer_size: 1024,
            large_client_header_buffers: 4,
            large_client_header_buffer_size: 8192,
            max_headers: 1000,
            invalid_headers: InvalidHeaders::Ignore,
            underscores: Underscores::Invalid,
        }
    }
}

impl Options {
    /// The most bytes that one head can make its owner hold.
    pub fn head_max_bytes(&self) -> usize {
        self.client_header_buffer_size.saturating_add(
            self.large_client_header_buffers.saturating_mul(self.large_client_header_buffer_size),
        )
    }
}
