//! A short bad day; `clearway-bench day` is a long one.

use std::time::Duration;

use clearway_testkit::proofs::Day;

#[test]
#[cfg_attr(not_root, ignore = "only root may mount")]
fn a_bad_day_costs_what_it_breaks_and_nothing_else() {
    let report = Day { length: Duration::from_secs(12), visitors: 4, seed: 23 }.play();
    assert_eq!(report.wrong, 0, "{report}");
    assert!(report.failed.is_empty() && report.answered > 0, "{report}");
    assert!(report.alerts.is_empty(), "{report}");
}
