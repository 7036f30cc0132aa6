//! Configurations: no text panics, and what a message complains about can be printed.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Err(error) = clearway_conf::parse_bytes(text) {
        assert!(!error.to_string().is_empty());
    }
});
