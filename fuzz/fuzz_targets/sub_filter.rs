//! Texts to be replaced: what is found is what a search without tables finds.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| clearway_modules::filters::sub_filter::fuzzing::check(input));
