//! No answer is older than its request. The same with a thousand files of each kind is `clearway-bench
//! never-old`.

use clearway_testkit::Binary;
use clearway_testkit::place::Mount;
use clearway_testkit::proofs::NeverOld;

const ROUNDS: usize = 30;

fn never_old(mount: Mount) {
    match (NeverOld { rounds: ROUNDS, mount }).play(&Binary::under_test()) {
        Some(report) => {
            assert_eq!(report.old, 0, "{report}");
            assert!(report.beside > 0, "{report}");
        }
        None => println!("skipped: {mount:?} may not be mounted here"),
    }
}

#[test]
fn on_the_disk() {
    never_old(Mount::Nothing);
}

#[test]
fn on_tmpfs() {
    never_old(Mount::Tmpfs);
}

#[test]
fn on_overlayfs() {
    never_old(Mount::Overlay);
}
