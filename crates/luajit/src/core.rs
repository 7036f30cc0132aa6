//! Functions that lua-resty-core calls through the FFI, under the names and with the signatures that
//! upstream's C has them: `plain` what needs no request, `regex` expressions, `request` what is a request's,
//! `shared` dictionaries, `balancer` the server of an attempt, `tls` handshakes, `certificates` and keys,
//! `tcp` sockets, `semaphore` and `pipe`. They turn pointers into texts and numbers, ask the server
//! (`asking`), which is safe code, and put the reply where C wants it. exports.list names each.
//!
//! 1. The caller is lua-resty-core: a pointer is null or leads to what upstream's header says, there are as
//!    many bytes as the length beside it tells, and room where one is written to. Code that forges FFI calls
//!    can do anything anyway.
//! 2. A request's pointer is not looked at: what is meant is what the code runs for on this thread.
//! 3. A text that a call leaves behind a pointer stays until the next call on the same thread; Lua copies it
//!    at once. No call is inside another: none reaches a VM.

mod asking;
mod balancer;
mod certificates;
mod held;
mod pipe;
mod plain;
mod regex;
mod request;
mod semaphore;
mod shared;
mod tcp;
mod tls;

pub use asking::{CoreCall, CoreFunction, CoreFunctions, provide};
pub use certificates::{ocsp, reading};
pub use pipe::programs;
pub use semaphore::semaphores;
pub use tcp::sockets;
pub use tls::handshake;
