//! A clock that a test moves, alone in its process.
#![cfg(feature = "testing")]

use clearway_os::clock::{self, testing};

#[test]
fn all_clocks_show_what_a_test_says() {
    let before = clock::monotonic_ns();
    testing::set_ns(5_000_000_007);
    assert_eq!((clock::monotonic_ns(), clock::monotonic_ms()), (5_000_000_007, 5_000));
    assert_eq!((clock::coarse_ms(), clock::thread_cpu_ns()), (5_000, 5_000_000_007));
    let wall_ms = clock::unix_ms();
    testing::set_ns(6_000_000_007);
    assert_eq!(clock::unix_ms(), wall_ms + 1_000);
    testing::begin_wall_at(6_000_000_007);
    assert_eq!(clock::unix_ms(), wall_ms - 5_000);
    assert_ne!(before, clock::monotonic_ns(), "it is not the machine's");
}
