//! Texts of UTF-8: characters are those of the standard library, and no byte is lost.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| clearway_modules::filters::charset::fuzzing::check(input));
