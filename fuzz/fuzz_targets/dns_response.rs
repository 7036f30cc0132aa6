//! Whatever a name server says, nothing breaks, and no answer is empty.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| clearway_resolver::fuzzing::check_response(input));
