//! Numbers of servers and locations within a configuration.

/// Number of a server within a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerId(pub u32);

/// Number of a location within a snapshot. Each `http` and `server` block has one too, which holds
/// what applies where no location matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocationId(pub u32);
