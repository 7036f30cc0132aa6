//! Responses of upstream servers: their heads, their bodies, and what can be wrong with them. The leniencies
//! are those of nginx's proxy module; where two framings contradict each other the response is refused.
//!
//! [`ResponseParser`] parses heads, [`ResponseBody`] decodes bodies as they come.

mod body;
mod fault;
mod head;
mod status_line;

pub use body::{Eof, ResponseBody, Trailers};
pub use fault::ResponseFault;
pub use head::{Asked, Beginning, INTERIM_HEADS_MAX, ResponseFraming, ResponseParser, ResponseProgress};
