//! The parts of an HTTP message, for all versions of the protocol: spans of received bytes, header lines,
//! methods, hosts, paths, status codes, the heads of requests and responses. Codecs fill them, requests are
//! made of them; they know no socket, no configuration and no version of the protocol.
#![forbid(unsafe_code)]

mod decimal;
mod header;
mod header_lines;
mod host;
mod line_text;
mod method;
mod request_head;
mod response_head;
pub mod status;
pub mod uri;

pub use decimal::{put_decimal, put_ipv4};
pub use header::{HEAD_MAX_BYTES, Header, Known, Span, name_hash, offset};
pub use header_lines::{HeaderLine, HeaderLines, HeaderName, Headers, Piece};
pub use host::{Host, LatestHost, validate_host};
pub use line_text::push_line_text;
pub use method::{Method, TargetForm, Version};
pub use request_head::{BodyLength, RequestHead, RequestLine};
pub use response_head::{Conditions, Ranges, ResponseHead, StatusLine, Text, Varies};
