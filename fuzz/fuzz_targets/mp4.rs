//! MP4 files: no bytes panic, and the part that is cut lies in the file and is not larger than it can be.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| clearway_modules::content::mp4::fuzzing::check(input));
