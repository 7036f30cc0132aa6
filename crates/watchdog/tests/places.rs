//! What a report says of a task that gives no account of itself.
#![allow(clippy::unwrap_used, reason = "what goes wrong is a failed test")]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clearway_base::log::Discard;
use clearway_runtime::{Config, Runtime, Tag, enter};
use clearway_watchdog::{REPORT_RATE_DEFAULT, Settings, Watchdog, WorkPlace};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_mins(3);

#[test]
fn a_task_that_says_nothing_is_where_its_tag_says() {
    let config = Config { handover_carriers: 8, ..Config::default() };
    let runtime = Runtime::start(&config).unwrap();
    let report_after = Some(Duration::from_millis(50));
    let settings = Settings { report_after, report_rate: REPORT_RATE_DEFAULT };
    let watchdog = Watchdog::start(runtime, 0, settings, Arc::new(Discard)).unwrap();
    let known = Tag::of(b"known");
    let place = WorkPlace { name: "/known".to_owned(), step: "testing" };
    watchdog.name_places(move |tag| (tag == known).then(|| place.clone()));
    for tag in [known, Tag::of(b"unknown")] {
        runtime.at(0).spawn(Tag::NONE, async move {
            enter(tag).await;
            sleep(Duration::from_millis(300));
            enter(Tag::NONE).await;
        });
        let begun = Instant::now();
        let is_here = |count: usize| watchdog.status().reports.len() >= count;
        while !is_here(if tag == known { 1 } else { 2 }) {
            assert!(begun.elapsed() < PATIENCE, "no report was made");
            sleep(Duration::from_millis(5));
        }
    }
    let status = watchdog.status();
    let whereabouts: Vec<_> = status.reports.iter().map(|report| report.whereabouts()).collect();
    assert_eq!(whereabouts, [Some(("/known", "testing")), None]);
    assert!(status.reports.iter().all(|report| report.account.is_none()));
    let row = status.summary.iter().find(|row| row.place == "/known").unwrap();
    assert_eq!((&*row.step, row.stalls), ("testing", 1));
    let mut json = String::new();
    status.put_json(&mut json);
    assert!(json.contains(r#""location":"/known","phase":"testing""#), "{json}");
    runtime.stop();
}
