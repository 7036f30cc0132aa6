//! Common to all of these functions: codes of nginx's, the run that they are called in, replies.

use clearway_luajit::Reply;
use clearway_luajit::core::CoreCall;

use crate::current::{Current, Run};

/// `NGX_OK`, `NGX_ERROR`, `NGX_AGAIN`, `NGX_DONE`, `NGX_DECLINED`; no request; not in this phase.
pub(super) const OK: i32 = 0;
pub(super) const ERROR: i32 = -1;
pub(super) const AGAIN: i32 = -2;
pub(super) const DONE: i32 = -4;
pub(super) const DECLINED: i32 = -5;
pub(super) const NO_REQUEST: i32 = -100;
pub(super) const BAD_CONTEXT: i32 = -101;

/// Upstream's message for a function in the wrong phase.
pub(super) const WRONG_PHASE: &str = "API disabled in the current context";

/// Does it with what Lua runs for.
pub(super) fn with(
    call: &CoreCall<'_>,
    reply: &mut Reply,
    work: impl for<'a> FnOnce(&mut Current<'a>, &mut Reply) -> i32,
) -> i32 {
    call.with_context::<Run, i32>(reply, work).unwrap_or(NO_REQUEST)
}

/// -1 with words.
pub(super) fn failed(reply: &mut Reply, words: &str) -> i32 {
    debug_assert!(!words.is_empty(), "a failure has words");
    reply.text.clear();
    reply.text.extend_from_slice(words.as_bytes());
    ERROR
}

/// Appends a text to the reply, and where it is.
pub(super) fn put_piece(reply: &mut Reply, text: &[u8]) {
    let from = reply.text.len();
    reply.text.extend_from_slice(text);
    reply.places.extend([from as i32, reply.text.len() as i32]);
}

/// Said of TLS where there is none.
#[cfg(not(feature = "tls"))]
pub(super) fn no_tls(_: &CoreCall<'_>, reply: &mut Reply) -> i32 {
    failed(reply, "no TLS support")
}
