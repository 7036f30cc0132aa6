//! The parts of a request line beside its target: the method, the version, and the form of the target. Pure
//! values; any thread.

/// Request method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the methods")]
pub enum Method {
    /// Any other method; see `RequestHead::method_name`.
    #[default]
    Other,
    Get,
    Head,
    Post,
    Put,
    Delete,
    Mkcol,
    Copy,
    Move,
    Options,
    Propfind,
    Proppatch,
    Lock,
    Unlock,
    Patch,
    Trace,
    Connect,
}

impl Method {
    /// The method that is spelled so; methods are case sensitive.
    pub fn find(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"MKCOL" => Method::Mkcol,
            b"COPY" => Method::Copy,
            b"MOVE" => Method::Move,
            b"OPTIONS" => Method::Options,
            b"PROPFIND" => Method::Propfind,
            b"PROPPATCH" => Method::Proppatch,
            b"LOCK" => Method::Lock,
            b"UNLOCK" => Method::Unlock,
            b"PATCH" => Method::Patch,
            b"TRACE" => Method::Trace,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        }
    }

    /// How it is spelled; `Other` as nothing.
    pub fn name(self) -> &'static [u8] {
        match self {
            Method::Other => b"",
            Method::Get => b"GET",
            Method::Head => b"HEAD",
            Method::Post => b"POST",
            Method::Put => b"PUT",
            Method::Delete => b"DELETE",
            Method::Mkcol => b"MKCOL",
            Method::Copy => b"COPY",
            Method::Move => b"MOVE",
            Method::Options => b"OPTIONS",
            Method::Propfind => b"PROPFIND",
            Method::Proppatch => b"PROPPATCH",
            Method::Lock => b"LOCK",
            Method::Unlock => b"UNLOCK",
            Method::Patch => b"PATCH",
            Method::Trace => b"TRACE",
            Method::Connect => b"CONNECT",
        }
    }
}

/// Protocol version: major × 1000 + minor, as it compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u16);

impl Version {
    /// A request line without version: the answer has no head.
    pub const HTTP_09: Version = Version(9);
    /// HTTP/1.0; also what a request counts as whose version was not reached.
    pub const HTTP_10: Version = Version(1000);
    /// HTTP/1.1. A higher minor version is treated alike.
    pub const HTTP_11: Version = Version(1001);

    /// Whether a response has a head: in HTTP/0.9 there is only the body.
    pub fn has_response_head(self) -> bool {
        self >= Version::HTTP_10
    }
}

/// Form of the request target (RFC 9112 §3.2). The asterisk form is refused, as in nginx.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TargetForm {
    /// A path.
    #[default]
    Origin,
    /// A scheme, a host and perhaps a path.
    Absolute,
    /// Host and port of CONNECT.
    Authority,
}
