//! TLS: what clients offer, what configurations say about it, and sessions. No socket, no clock of its own:
//! bytes go in and come out.
//!
//! [`hello`] reads the ClientHello before a library sees anything of a connection; [`ciphers`], [`level`] and
//! [`command`] are what configurations say in OpenSSL's terms, whatever library is used. [`engine`] is what
//! is asked of a library, and with the feature `aws-lc` [`AwsLc`] is one. [`cache`] keeps sessions in a zone.
//!
//! Where tickets are off and sessions are kept, those of TLS 1.3 are tickets that hold a key of what is kept,
//! and nothing else. A compressed certificate is made once for each message that a context sends, and kept.

mod bytes;
#[cfg(feature = "aws-lc")]
pub mod cache;
pub mod ciphers;
pub mod command;
#[cfg(feature = "aws-lc")]
mod compression;
#[cfg(feature = "aws-lc")]
mod context;
pub mod engine;
#[cfg(feature = "aws-lc")]
pub mod files;
pub mod hello;
pub mod level;
#[cfg(feature = "aws-lc")]
pub mod objects;
#[cfg(feature = "aws-lc")]
pub mod ocsp;
#[cfg(feature = "aws-lc")]
pub mod outgoing;
#[cfg(feature = "aws-lc")]
mod pair;
pub mod reason;
#[cfg(feature = "aws-lc")]
mod refusal;
#[cfg(feature = "aws-lc")]
pub mod self_signed;
#[cfg(feature = "aws-lc")]
mod session;
pub mod stream;
#[cfg(feature = "aws-lc")]
mod sys;
pub mod tickets;

#[cfg(feature = "aws-lc")]
pub use context::{Context, verified};
#[cfg(feature = "aws-lc")]
pub use pair::{Chain, Pair};
#[cfg(feature = "aws-lc")]
pub use session::{AwsLc, TlsSession, is_session};
#[cfg(feature = "aws-lc")]
pub use sys::{Certificate, NameOf, PrivateKey, random};
