//! Free ports for servers under test. They lie below the range that the kernel gives to clients, so that
//! no connection takes one before its server does. A test program reserves them a block at a time: a block
//! belongs to the process that holds the abstract unix socket of its name, so that programs which run at once
//! never meet, and a program that ends, however it ends, gives its blocks back.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::{Mutex, PoisonError};

/// The first port that is given out.
const FIRST: u16 = 10_000;
/// Ports in a block.
const BLOCK_PORTS: u16 = 50;
/// How many blocks there are: the last port is below 32768, where the ports of clients begin.
const BLOCKS: u16 = 450;

/// The ports that this process has reserved.
struct Reserved {
    /// The socket of every block, held to the end of the process.
    held: Vec<UnixListener>,
    /// The rest of the latest block.
    left: std::ops::Range<u16>,
    /// Where the search for the next block begins.
    next_block: u16,
}

static RESERVED: Mutex<Reserved> = Mutex::new(Reserved { held: Vec::new(), left: 0..0, next_block: 0 });

/// A port that nothing listens on. Each is given out once per process, and to one process at a time.
///
/// # Panics
/// If there is none.
pub fn free_port() -> u16 {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        for port in reserved.left.by_ref() {
            if is_free(port) {
                return port;
            }
        }
        reserved.reserve_block();
    }
}

impl Reserved {
    fn reserve_block(&mut self) {
        if self.held.is_empty() {
            // Programs that run one after the other begin at different places: the last one's
            // connections may still occupy its ports for a while.
            self.next_block = u16::try_from(std::process::id() % u32::from(BLOCKS)).expect("below BLOCKS");
        }
        for _ in 0..BLOCKS {
            let block = self.next_block;
            self.next_block = (block + 1) % BLOCKS;
            let name = SocketAddr::from_abstract_name(format!("clearway-test-ports-{block}"))
                .expect("a short name without NUL");
            if let Ok(socket) = UnixListener::bind_addr(&name) {
                self.held.push(socket);
                let first = FIRST + block * BLOCK_PORTS;
                self.left = first..first + BLOCK_PORTS;
                return;
            }
        }
        panic!("no block of free ports is left");
    }
}

/// Only "in use" counts: a machine without IPv6 has the port free there.
fn is_free(port: u16) -> bool {
    let addresses: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    !addresses
        .iter()
        .any(|ip| TcpListener::bind((*ip, port)).is_err_and(|error| error.kind() == ErrorKind::AddrInUse))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_lie_below_those_of_clients() {
        let mut ports: Vec<u16> = (0..BLOCK_PORTS + 10).map(|_| free_port()).collect();
        ports.sort_unstable();
        assert!(ports.windows(2).all(|pair| pair[0] < pair[1]), "{ports:?}");
        assert!(ports.iter().all(|port| (FIRST..32768).contains(port)));
    }

    #[test]
    fn a_reserved_block_is_nobody_elses() {
        let block = (free_port() - FIRST) / BLOCK_PORTS;
        let name = SocketAddr::from_abstract_name(format!("clearway-test-ports-{block}")).unwrap();
        assert!(UnixListener::bind_addr(&name).is_err());
    }
}
