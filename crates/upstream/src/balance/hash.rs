//! `ip_hash` and `hash`: a number made of the client's address or of a text names a server; where that cannot
//! be used the number goes on (`ngx_http_upstream_ip_hash_module.c`, `…_hash_module.c`, which is compatible
//! with Cache::Memcached).

use std::net::IpAddr;

use crate::balance::{Look, Progress, TRIES_MAX};

/// Where the number for an address begins.
pub(crate) const IP_HASH_SEED: u32 = 89;

/// By the client's address: of IPv4 the first three bytes count.
pub(crate) fn by_address(look: &Look<'_>, client: Option<IpAddr>, progress: &mut Progress) -> Option<usize> {
    if progress.tries > TRIES_MAX || look.peers.list.len() < 2 {
        return None;
    }
    let mut buf = [0; 16];
    let address: &[u8] = match client {
        Some(IpAddr::V4(address)) => {
            buf[..4].copy_from_slice(&address.octets());
            &buf[..3]
        }
        Some(IpAddr::V6(address)) => {
            buf = address.octets();
            &buf
        }
        None => &buf[..3],
    };
    // Only a server that is used moves the number for the attempts to come.
    let mut hash = progress.hash;
    loop {
        hash = address.iter().fold(hash, |hash, &byte| (hash * 113 + u32::from(byte)) % 6271);
        let at = look.peers.at_weight(hash.into());
        if look.is_usable(at) {
            progress.hash = hash;
            return Some(at);
        }
        progress.tries += 1;
        if progress.tries > TRIES_MAX {
            return None;
        }
    }
}

/// By a text.
pub(crate) fn by_text(look: &Look<'_>, text: &[u8], progress: &mut Progress) -> Option<usize> {
    if progress.tries > TRIES_MAX || look.peers.list.len() < 2 || text.is_empty() {
        return None;
    }
    loop {
        let mut crc = crc32fast::Hasher::new();
        if progress.rehash > 0 {
            crc.update(progress.rehash.to_string().as_bytes());
        }
        crc.update(text);
        let part = (crc.finalize() >> 16) & 0x7fff;
        progress.hash = progress.hash.wrapping_add(part);
        progress.rehash += 1;
        let at = look.peers.at_weight(progress.hash.into());
        if look.is_usable(at) {
            return Some(at);
        }
        progress.tries += 1;
        if progress.tries > TRIES_MAX {
            return None;
        }
    }
}
