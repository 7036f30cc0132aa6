//! The settings of one server of a group, from the configuration or changed while serving. Never changes.

use std::sync::Arc;

use clearway_os::outgoing::Remote;

/// The settings of `server` for one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Where it is.
    pub remote: Remote,
    /// The address as logs and `$upstream_addr` show it.
    pub name: Box<str>,
    /// Its name in the configuration: the addresses of a name have one.
    pub server: Arc<str>,
    /// `weight=`, at least 1.
    pub weight: u32,
    /// `max_conns=`; 0 is no limit.
    pub max_conns: u32,
    /// `max_fails=` and `fail_timeout=`.
    pub fails: FailRule,
    /// `slow_start=`, milliseconds: for so long its weight rises when it is there again; 0 is not at all.
    pub slow_start_ms: u64,
    /// `down` or `drain`.
    pub state: ServerState,
    /// By what sticky sessions know it: `route=`, else a hash of the address.
    pub sid: Arc<[u8]>,
    /// Which `server` of the group it is of, counted from 0.
    pub source: u32,
}

/// When a server counts as one that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailRule {
    /// After so many failures; 0 is never.
    pub max: u32,
    /// Within so many seconds, and for so long.
    pub timeout_s: u64,
}

impl Default for FailRule {
    /// nginx's: one within ten seconds.
    fn default() -> Self {
        Self { max: 1, timeout_s: 10 }
    }
}

/// Whether a server takes part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerState {
    /// The server gets requests.
    #[default]
    Up,
    /// The server gets only requests of sessions that it has (`drain`).
    Draining,
    /// The server is marked as `down`.
    Down,
}
