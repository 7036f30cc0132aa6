//! Tickets and kept sessions, whatever a client or a zone makes of them: a session is taken up if it is what
//! the server gave, and else the handshake is a full one.
#![no_main]

use std::sync::OnceLock;

use clearway_fuzz::tls::{Contexts, KEY_NAME};
use clearway_tls::engine::{Kept, Session};
use clearway_tls::level::Version;
use clearway_tls::tickets::{KeyRing, TicketKey};

/// A server with what a client of it has, and where the ticket is in that.
struct Known {
    contexts: Contexts,
    content: Vec<u8>,
    ticket: usize,
}

impl Known {
    fn new(version: Version) -> Self {
        let contexts = Contexts::new(version);
        let content = contexts.connect(None).client.take_kept().remove(0).content;
        let ticket = content.windows(KEY_NAME.len()).position(|part| part == KEY_NAME).expect("a ticket");
        Self { contexts, content, ticket }
    }
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    static KNOWN: OnceLock<[Known; 2]> = OnceLock::new();
    let known = KNOWN.get_or_init(|| [Version::Tls12, Version::Tls13].map(Known::new));
    let Some((&first, rest)) = input.split_first() else { return };
    let Known { contexts, content, ticket } = &known[usize::from(first & 1)];
    if first & 2 != 0 {
        // What a zone has under the key that the client shows.
        contexts.accept_kept(|key| Kept { key: key.to_vec(), content: rest.to_vec() });
        if let Some(key) = TicketKey::from_file(rest) {
            assert_eq!([key.name(), key.secret()].concat(), rest);
            assert!(KeyRing::new(vec![key]).is_some());
        }
        return;
    }
    // A ticket and what seals it are behind the key's name; a change of anything else is the client's own.
    const CHANGED_MAX: usize = 100;
    let mut changed = content.clone();
    for (place, by) in rest.iter().take(CHANGED_MAX).enumerate() {
        changed[ticket + place] ^= by;
    }
    let peers = contexts.connect(Some(&changed));
    assert_eq!(peers.server.info().is_resumed, changed == *content);
    assert_eq!(peers.client.info().is_resumed, changed == *content);
});
