//! Whatever follows a handshake: what a server reads is what its client has written, up to the first record
//! that was changed, and nothing behind that. An input is a list of actions: two bytes that say what is done,
//! how much and where.
#![no_main]

use std::io::IoSlice;
use std::sync::OnceLock;

use clearway_fuzz::tls::{Contexts, Peers};
use clearway_tls::engine::{Opened, Session};
use clearway_tls::level::Version;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    static CONTEXTS: OnceLock<[Contexts; 2]> = OnceLock::new();
    let contexts = CONTEXTS.get_or_init(|| [Version::Tls12, Version::Tls13].map(Contexts::new));
    let Some((&first, actions)) = input.split_first() else { return };
    let Peers { mut server, mut client } = contexts[usize::from(first & 1)].connect(None);
    let (mut written, mut read, mut sent) = (Vec::new(), Vec::new(), Vec::new());
    let mut is_changed = false;
    for action in actions.chunks(3) {
        let &[kind, at, by] = action else { break };
        match kind % 4 {
            0 | 1 => {
                let bytes = vec![at; usize::from(by) * if kind & 4 == 0 { 1 } else { 150 }];
                client.seal(&[IoSlice::new(&bytes)], 16_384, &mut sent).expect("the client is well");
                written.extend_from_slice(&bytes);
            }
            2 => sent.extend_from_slice(&[at, 3, 3, 0, by % 32]),
            _ if sent.is_empty() => {}
            _ => {
                let place = usize::from(at) * sent.len() / 256;
                sent[place] ^= by;
            }
        }
        is_changed |= kind % 4 == 2 || kind % 4 == 3 && by != 0;
        if kind & 8 != 0 && !deliver(&mut server, &mut sent, &mut read) {
            assert!(is_changed, "an honest client is read");
            // What is over stays over.
            assert!(!deliver(&mut server, &mut vec![23, 3, 3, 0, 1, 0], &mut Vec::new()));
            break;
        }
    }
    assert!(written.starts_with(&read), "{} bytes of {}", read.len(), written.len());
});

/// Whether the session goes on.
fn deliver(server: &mut impl Session, sent: &mut Vec<u8>, read: &mut Vec<u8>) -> bool {
    let bytes = std::mem::take(sent);
    let (mut rest, mut output) = (&bytes[..], Vec::new());
    loop {
        let mut plain = Vec::with_capacity(4_096);
        let opened = server.open(&mut rest, &mut plain, &mut output);
        read.extend_from_slice(&plain);
        match opened {
            Opened::Full => {}
            Opened::Need => return true,
            Opened::Closed | Opened::Failed(_) => return false,
        }
    }
}
