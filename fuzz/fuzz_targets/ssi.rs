//! Documents with SSI commands: they are the same in whatever pieces they come, and nothing is made up.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| clearway_modules::filters::ssi::fuzzing::check(input));
