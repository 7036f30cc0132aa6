//! Types that both kinds of TLS streams use: those of the server's side (clients) and those to upstream
//! servers. Plain data.

use std::error::Error;
use std::fmt;
use std::io;

use crate::engine::Failure;

/// Whether a session may have decrypted bytes left to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// There are none.
    Nothing,
    /// There may be some: the buffer of the last read was full.
    Perhaps,
}

/// The state of the peer's direction of a session.
#[derive(Debug)]
pub enum End {
    /// More bytes may come.
    Open,
    /// The peer has ended it in order.
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
    /// The error of a call; `call` is OpenSSL's name of it.
    #[must_use]
    pub fn of(call: &'static str, failure: Failure) -> io::Error {
        io::Error::other(Self { call, failure })
    }

    /// The TLS error inside an error of a connection, if it is one.
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
