//! The answer in a handler's place, and the path that answers instead. Plain data.

/// How the engine is to answer in a handler's place.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// With this status: the `error_page` for it, or the built-in page.
    Status(u16),
    /// With what another path gives.
    Redirect(Box<Redirect>),
    /// With what the named location (`@name`) gives.
    Named(Box<[u8]>),
    /// Ends by closing the connection.
    Close,
    /// Ends by closing the connection: the client has gone; the status is for the log.
    Abandon(u16),
}

/// Where an internal redirect leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The new path, decoded.
    pub path: Vec<u8>,
    /// The new arguments, as they would be sent; `None`: there are none, and `$args` is not found.
    pub args: Option<Vec<u8>>,
}

/// The purpose for which the path of a request is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Nothing: it stays where it is.
    Nothing,
    /// Its location.
    Location,
}
