//! Faults in the head of a request, the status to answer, and nginx's words for the error log.

use std::fmt;

use clearway_message::status::internal as status;

/// A head that is refused. Its stream is answered, and the connection goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadFault {
    /// A byte in a name that no name has.
    InvalidName(Box<[u8]>),
    /// A byte in a value that would end its line.
    InvalidValue(Box<[u8]>, Box<[u8]>),
    /// A pseudo-header field behind other ones.
    OutOfOrder,
    /// A pseudo-header field that requests do not have.
    UnknownPseudo(Box<[u8]>),
    /// A pseudo-header field occurs twice.
    Duplicate(&'static str),
    /// A pseudo-header field is empty.
    Empty(&'static str),
    /// A method that is none.
    InvalidMethod(Box<[u8]>),
    /// A scheme or a path that is none.
    Invalid(&'static str, Box<[u8]>),
    /// `:authority` is no host.
    InvalidAuthority,
    /// `Host` is no host.
    InvalidHost,
    /// A pseudo-header field is missing.
    Missing(&'static str),
    /// More fields than there may be.
    TooManyFields,
    /// A field that only concerns a connection of HTTP/1.
    OfConnection(&'static str),
    /// `TE` with something else than `trailers`.
    InvalidTe,
    /// A second field of a name that may be there only once.
    DuplicateField(Box<[u8]>, Box<[u8]>),
    /// `Host` and `:authority` do not say the same.
    OtherHost,
    /// Neither of them is there.
    NoHost,
    /// `Content-Length` is no number below 2^63.
    InvalidLength,
    /// A body was announced, and the stream ends without it.
    ClosedEarly,
    /// The method is CONNECT.
    Connect,
    /// The method is TRACE.
    Trace,
}

impl HeadFault {
    /// Whether the request is malformed, and its stream to be reset behind the answer (RFC 9113 §8.1.1).
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        !matches!(self, Self::Connect | Self::Trace | Self::TooManyFields)
    }

    /// The code that error pages go by.
    #[must_use]
    pub fn page(&self) -> u16 {
        match self {
            Self::Connect | Self::Trace => 405,
            Self::TooManyFields => status::REQUEST_HEADER_TOO_LARGE,
            _ => 400,
        }
    }
}

/// Received bytes as the log has them.
struct Shown<'a>(&'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0))
    }
}

impl fmt::Display for HeadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName(name) => write!(f, "client sent invalid header name: \"{}\"", Shown(name)),
            Self::InvalidValue(name, value) => {
                write!(f, "client sent header \"{}\" with invalid value: \"{}\"", Shown(name), Shown(value))
            }
            Self::OutOfOrder => f.write_str("client sent out of order pseudo-headers"),
            Self::UnknownPseudo(name) => {
                write!(f, "client sent unknown pseudo-header \":{}\"", Shown(name))
            }
            Self::Duplicate(name) => write!(f, "client sent duplicate {name} header"),
            Self::Empty(name) => write!(f, "client sent empty {name} header"),
            Self::InvalidMethod(name) => write!(f, "client sent invalid method: \"{}\"", Shown(name)),
            Self::Invalid(name, value) => {
                write!(f, "client sent invalid {name} header: \"{}\"", Shown(value))
            }
            Self::InvalidAuthority => f.write_str("client sent invalid \":authority\" header"),
            Self::InvalidHost => f.write_str("client sent invalid host header"),
            Self::Missing(name) => write!(f, "client sent no {name} header"),
            Self::TooManyFields => f.write_str("client sent too many header lines"),
            Self::OfConnection(name) => write!(f, "client sent \"{name}\" header"),
            Self::InvalidTe => f.write_str("client sent invalid \"TE\" header"),
            Self::DuplicateField(name, value) => {
                write!(f, "client sent duplicate header line: \"{}: {}\"", Shown(name), Shown(value))
            }
            Self::OtherHost => {
                f.write_str("client sent \":authority\" and \"Host\" headers with different values")
            }
            Self::NoHost => f.write_str("client sent neither \":authority\" nor \"Host\" header"),
            Self::InvalidLength => f.write_str("client sent invalid \"Content-Length\" header"),
            Self::ClosedEarly => f.write_str("client prematurely closed stream"),
            Self::Connect => f.write_str("client sent CONNECT method"),
            Self::Trace => f.write_str("client sent TRACE method"),
        }
    }
}

impl std::error::Error for HeadFault {}
