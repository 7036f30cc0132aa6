//! Invariants for any message of a name server: for the fuzz target `dns_response`.

use std::sync::Arc;

use crate::known::KnownNames;
use crate::table::{Deed, Rules, Table};
use crate::waiter::{Found, Question, Waiter};
use crate::wire::{Ask, Response, Via};

/// Reads a message as it is, and gives it to a table that has asked for its name under its ident.
///
/// # Panics
/// If somebody gets an answer without an address, or more is asked for than one message can lead to.
pub fn check_response(message: &[u8]) {
    let Ok(response) = Response::parse(message, Via::Udp) else { return };
    let rules = Rules { asks: vec![Ask::V4, Ask::V6], valid_s: None, servers: 2, names_max: 4 };
    let mut table = Table::new(rules, Arc::new(KnownNames::new()));
    let question = match response.ask {
        Ask::V4 | Ask::V6 => Question::Addresses(response.name.clone()),
        Ask::Service => Question::Service(response.name.clone()),
    };
    let waiter = Waiter::new(question);
    table.ask(Arc::clone(&waiter), 0);
    let asked: Vec<Deed> = table.deeds.drain(..).collect();
    for deed in asked {
        let Deed::Send { query, .. } = deed else { continue };
        let mut message = message.to_vec();
        message[..2].copy_from_slice(&query[..2]);
        table.receive(&message, Via::Udp, 0);
    }
    if let Some(Ok(Found::Addresses(answer))) = waiter.answer() {
        assert!(!answer.addresses.is_empty());
    }
    let sends = table.deeds.iter().filter(|deed| matches!(deed, Deed::Send { .. })).count();
    assert!(sends <= 3, "an alias leads to two queries, a cut message to one");
}
