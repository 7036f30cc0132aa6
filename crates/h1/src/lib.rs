//! Sans-I/O codec for both sides of HTTP/1.0 and 1.1 (RFC 9110, RFC 9112) and what is left of
//! HTTP/0.9. It sees bytes: no socket, no clock, no thread, no allocation for a typical request.
//!
//! [`HeadParser`] parses heads and [`BodyReader`] decodes bodies as they come; [`HeadWriter`], [`Framing`]
//! and the chunk functions make responses. Towards upstream servers [`begin_request`] makes requests;
//! [`ResponseParser`] and [`ResponseBody`] read the answers. What is accepted and how the rest is refused
//! follows nginx; where nginx is silent, the stricter reading of RFC 9112 §6, §11.
//!
//! Invariants: the same bytes give the same events however they were split; no byte is scanned twice;
//! everything a peer can make their owner hold is bounded by [`Options`] or a named constant.
//!
//! See [`BodyReader`] for an example.
#![forbid(unsafe_code)]

mod body;
mod body_reader;
mod encode;
mod fault;
mod head;
mod header_line;
mod options;
mod request_line;
mod request_writer;
mod response;
mod scan;

pub use body::{BodyDecoder, BodyEvent, CHUNK_OVERHEAD_MAX_BYTES, Decoded, TRAILERS_MAX_BYTES};
pub use body_reader::BodyReader;
pub use encode::{
    CHUNK_END, CHUNK_SIZE_MAX_BYTES, CONTINUE, ChunkedEncoding, ConnectionHeader, Framing, HeadWriter,
    LAST_CHUNK, chunk_size, closes_connection, push_chunk_size, push_last_chunk,
};
pub use fault::Fault;
pub use head::{ConnectionOption, HeadParser, HeadProgress};
pub use options::{InvalidHeaders, Options, Underscores};
pub use request_writer::begin_request;
pub use response::{
    Asked, Beginning, Eof, INTERIM_HEADS_MAX, ResponseBody, ResponseFault, ResponseFraming, ResponseParser,
    ResponseProgress, Trailers,
};
