//! Whatever lies in a cache directory, a file is read as what it says, or refused; what was read is written
//! as the same.
#![no_main]

use clearway_cache::{Key, StoredHeader};

libfuzzer_sys::fuzz_target!(|input: (&[u8], &[u8])| {
    let (key, file) = (Key::new(input.0.to_vec()), input.1);
    let Ok(header) = StoredHeader::read(file, &key, 65_535) else { return };
    let mut again = Vec::new();
    header.write(&key, &mut again);
    let read = StoredHeader::read(&again, &key, 65_535).expect("it was written here");
    let said = |header: &StoredHeader<'_>| (header.valid_sec, header.body_start, header.etag.to_vec());
    assert_eq!(said(&read), said(&header));
});
