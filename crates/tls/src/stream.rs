//! The common part of streams over a session, those of clients and those of servers. Plain data.

use std::error::Error;
use std::fmt;
use std::io;

use crate::engine::Failure;

/// Whether a session has bytes to read without receiving any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It has none.
    Nothing,
    /// Its buffer was full.
    Perhaps,
}

/// Whether something may follow the received bytes.
#[derive(Debug)]
pub enum End {
    /// It may.
    Open,
    /// The peer has said that nothing follows.
    Closed,
    /// The session broke.
    Failed(Failure),
}

/// Why a session broke, as an error of reading and writing.
#[derive(Debug)]
pub struct TlsError {
    call: &'static str,
    failure: Failure,
}

impl TlsError {
    /// That of a call, by OpenSSL's name for it.
    #[must_use]
    pub fn of(call: &'static str, failure: Failure) -> io::Error {
        io::Error::other(Self { call, failure })
    }

    /// The reason for which a connection broke, where it was TLS.
    #[must_use]
    pub fn find(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// Why the session is over.
    #[must_use]
    pub fn failure(&self) -> &Failure {
        &self.failure
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed {}", self.call, self.failure)
    }
}

impl Error for TlsError {}
