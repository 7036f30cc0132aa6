//! `hash … consistent`: each server has 160 points for each unit of its weight on a ring of 32-bit numbers; a
//! text belongs to the next point (ketama, as Cache::Memcached::Fast and nginx place them).

use std::sync::Arc;

use crate::peer::Peer;

/// Points for each unit of weight.
const POINTS: u32 = 160;

/// The ring of one set of servers.
#[derive(Debug)]
pub(crate) struct Ring {
    /// By their number, each of which is there once.
    points: Box<[Point]>,
}

#[derive(Clone, Debug)]
struct Point {
    hash: u32,
    server: Arc<str>,
}

impl Ring {
    pub(crate) fn new(peers: &[Arc<Peer>]) -> Self {
        let mut points: Vec<Point> = Vec::new();
        for peer in peers {
            let config = peer.config();
            let (host, port) = host_and_port(&config.server);
            let mut base = crc32fast::Hasher::new();
            base.update(host);
            base.update(b"\0");
            base.update(port);
            let mut before = 0_u32;
            for _ in 0..config.weight.saturating_mul(POINTS) {
                let mut crc = base.clone();
                crc.update(&before.to_le_bytes());
                before = crc.finalize();
                points.push(Point { hash: before, server: Arc::clone(&config.server) });
            }
        }
        points.sort_by_key(|point| point.hash);
        points.dedup_by_key(|point| point.hash);
        Self { points: points.into() }
    }

    /// The number of the point to which a hash belongs.
    pub(crate) fn find(&self, hash: u32) -> u32 {
        let at = self.points.partition_point(|point| point.hash < hash);
        at as u32
    }

    pub(crate) fn server_at(&self, number: u32) -> Option<&Arc<str>> {
        let len = self.points.len().max(1);
        self.points.get(number as usize % len).map(|point| &point.server)
    }
}

/// A name without its port, and the port; unix sockets have none.
fn host_and_port(server: &str) -> (&[u8], &[u8]) {
    let bytes = server.as_bytes();
    if bytes.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"unix:")) {
        return (&bytes[5..], b"");
    }
    match bytes.iter().rposition(|byte| !byte.is_ascii_digit()) {
        Some(at) if bytes[at] == b':' => (&bytes[..at], &bytes[at + 1..]),
        _ => (bytes, b""),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_as_in_nginx() {
        let told = |server| {
            let (host, port) = host_and_port(server);
            [host, port].map(|part| String::from_utf8_lossy(part).into_owned())
        };
        assert_eq!(told("a.example:80"), ["a.example", "80"]);
        assert_eq!(told("a.example"), ["a.example", ""]);
        assert_eq!(told("[::1]:80"), ["[::1]", "80"]);
        assert_eq!(told("UNIX:/a:1"), ["/a:1", ""]);
        assert_eq!(told("127.0.0.1:"), ["127.0.0.1", ""]);
    }
}
