//! A server of which only the address is known: what `server` says otherwise is as by default.

use std::sync::Arc;

use clearway_net::url::RemoteText;
use clearway_os::outgoing::Remote;
use clearway_upstream::{FailRule, PeerConfig, ServerState};
use md5::{Digest as _, Md5};

/// A server about which nothing is said.
pub(crate) fn plain(address: Remote, server: &[u8]) -> PeerConfig {
    let name = RemoteText(&address).to_string();
    PeerConfig {
        sid: hash_of(&name),
        name: name.into(),
        remote: address,
        server: String::from_utf8_lossy(server).into(),
        weight: 1,
        max_conns: 0,
        fails: FailRule::default(),
        slow_start_ms: 0,
        state: ServerState::Up,
        source: 0,
    }
}

/// The id by which sticky sessions know a server that has no `route`.
fn hash_of(name: &str) -> Arc<[u8]> {
    let hash = Md5::digest(name.as_bytes());
    let digits = hash.iter().flat_map(|byte| format!("{byte:02x}").into_bytes());
    digits.collect::<Vec<u8>>().into()
}
