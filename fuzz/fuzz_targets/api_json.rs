//! Whatever a client of the API says of a server, nothing breaks, and no more than a server gets into a
//! `state` file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| clearway_proxy::fuzzing::check_api_body(input));
