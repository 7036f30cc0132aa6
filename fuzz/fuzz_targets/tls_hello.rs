//! Whatever a client begins with: a hello is the same in whatever pieces and records it comes, and gives
//! nothing that does not stand in it.
#![no_main]

use clearway_tls::hello::{Hello, HelloReader};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    read_in_pieces(input);
    if let Ok(hello) = Hello::parse(input) {
        let lists = [hello.versions().count(), hello.suites().count(), hello.groups().count()];
        let more = [hello.signatures().count(), hello.key_shares().count(), hello.compressions().count()];
        assert!(lists.iter().chain(&more).sum::<usize>() <= input.len());
        let names = [hello.server_name(), hello.ticket(), hello.identity(), Some(hello.session_id())];
        for name in hello.protocols().chain(names.into_iter().flatten()) {
            assert!(name.is_empty() || input.windows(name.len()).any(|part| part == name));
        }
    }
});

/// Records as they are, whole and byte by byte.
fn read_in_pieces(input: &[u8]) {
    let whole = HelloReader::default().read(input);
    let mut reader = HelloReader::default();
    for end in 0..=input.len() {
        match (reader.read(&input[..end]), &whole) {
            (Ok(None), _) => continue,
            (Ok(Some(hello)), Ok(Some(same))) => assert_eq!(hello.session_id(), same.session_id()),
            (Err(error), Err(same)) => assert_eq!(error, *same),
            (now, later) => panic!("{now:?} after {end} bytes, {later:?} of all"),
        }
        return;
    }
    assert!(matches!(whole, Ok(None)));
}
