//! Numbers for the names (`sid`) by which sticky sessions know the servers of a group, of which no two are
//! the same: short enough to be kept with each session, and the same in every process that has the same
//! servers.

use std::collections::HashMap;
use std::sync::Arc;

use crate::peer::Peer;

/// Numbers have this many bits.
pub const SID_BITS: u32 = 24;

/// The numbers of the `sid`s of one set of servers, made once.
#[derive(Debug)]
pub(crate) struct Sids {
    salt: u8,
    /// The first server of each number.
    servers: HashMap<u64, Arc<Peer>>,
}

impl Sids {
    pub(crate) fn new<'a>(peers: impl Iterator<Item = &'a Arc<Peer>> + Clone) -> Self {
        let with_salt = |salt| {
            let mut servers = HashMap::new();
            let mut are_distinct = true;
            for peer in peers.clone() {
                let sid = &peer.config().sid;
                let known = servers.entry(code(salt, sid)).or_insert_with(|| Arc::clone(peer));
                are_distinct &= known.config().sid == *sid;
            }
            (Self { salt, servers }, are_distinct)
        };
        // With 1,000 servers the first one will do 97 times in 100.
        let distinct = (0..u8::MAX).map(with_salt).find(|(_, are_distinct)| *are_distinct);
        distinct.unwrap_or_else(|| with_salt(0)).0
    }

    pub(crate) fn code(&self, sid: &[u8]) -> u64 {
        code(self.salt, sid)
    }

    pub(crate) fn server(&self, code: u64) -> Option<&Arc<Peer>> {
        self.servers.get(&code)
    }
}

/// FNV-1a, folded.
fn code(salt: u8, sid: &[u8]) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64 ^ u64::from(salt);
    let hash =
        sid.iter().fold(start, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash ^ hash >> SID_BITS ^ hash >> (2 * SID_BITS)) & ((1 << SID_BITS) - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::peer::samples::config;
    use crate::peer_config::PeerConfig;

    fn peers(sids: impl Iterator<Item = String>) -> Vec<Arc<Peer>> {
        let peer = |sid: String| Peer::new(PeerConfig { sid: sid.into_bytes().into(), ..config(1, 1) });
        sids.map(peer).collect()
    }

    #[test]
    fn servers_are_found_by_their_numbers() {
        let peers = peers((0..4000).map(|number| format!("s{number}")));
        let sids = Sids::new(peers.iter());
        for peer in &peers {
            let code = sids.code(&peer.config().sid);
            assert!(code < 1 << SID_BITS);
            assert!(Arc::ptr_eq(sids.server(code).expect("it is known"), peer));
        }
    }

    #[test]
    fn two_that_have_one_number_get_others() {
        let mut known = HashMap::new();
        let mut names = (0..).map(|number: u32| (number.wrapping_mul(0x9e37_79b9)).to_string());
        let pair = names.find_map(|name| Some([known.insert(code(0, name.as_bytes()), name.clone())?, name]));
        let peers = peers(pair.expect("there are so many").into_iter());
        let sids = Sids::new(peers.iter());
        assert_ne!(sids.salt, 0);
        for peer in &peers {
            let found = sids.server(sids.code(&peer.config().sid)).expect("it is known");
            assert!(Arc::ptr_eq(found, peer));
        }
    }

    #[test]
    fn of_two_with_one_name_the_first_is_meant() {
        let peers = peers(["a", "b", "a"].map(str::to_owned).into_iter());
        let sids = Sids::new(peers.iter());
        assert!(Arc::ptr_eq(sids.server(sids.code(b"a")).expect("it is known"), &peers[0]));
        assert!(sids.server(sids.code(b"c")).is_none());
    }
}
