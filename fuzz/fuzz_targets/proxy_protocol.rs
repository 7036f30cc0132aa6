//! Headers of the PROXY protocol: no bytes panic, what is complete lies inside of what was received and
//! was not before its last byte, and typed values can be asked for whatever they are.
#![no_main]

use clearway_net::proxy_protocol::{Progress, parse};
use libfuzzer_sys::fuzz_target;

const MAX_BYTES: usize = 1024;

fuzz_target!(|input: &[u8]| {
    match parse(input, MAX_BYTES) {
        Ok(Progress::Complete { proxied, length }) => {
            assert!(length <= input.len());
            let shorter = parse(&input[..length - 1], MAX_BYTES);
            assert!(!matches!(shorter, Ok(Progress::Complete { .. })));
            for name in ["alpn", "ssl_cn", "ssl_verify", "0x2", "0x", "x"] {
                let _ = proxied.as_ref().map(|proxied| proxied.tlv(name.as_bytes()).is_ok());
            }
        }
        Ok(Progress::Incomplete) => assert!(input.len() < MAX_BYTES),
        Err(broken) => assert!(!broken.to_string().is_empty()),
    }
});
