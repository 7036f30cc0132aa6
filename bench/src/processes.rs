//! `reload`, `crash`, `upgrade`, `logs`: the scenarios of the test kit at full size, with their figures.
//! What the tests assert fails here too; besides, this machine is expected to be idle, so times count.

use std::time::Duration;

use clearway_testkit::proofs::{Burst, Crash, Reload, Reopen, Tunnels, full_device, stuck_log, upgrade};
use clearway_testkit::{Binary, Failure, Tally};

use crate::args::Args;

/// Within which a killed worker must have been replaced.
const BACK_WITHIN: Duration = Duration::from_millis(200);
/// By how much memory may grow over all reloads.
const GROWTH_PERCENT: u64 = 5;

/// `reload --rounds 100 --idle 1000`.
pub(crate) fn reload(mut args: Args) -> Result<(), String> {
    let plan = Reload { rounds: args.take("rounds", 100)?, idle: args.take("idle", 1000)? };
    args.finish()?;
    let mut report = plan.play(&Binary::under_test());
    let (early, late) = (report.rss_early, report.rss_late);
    println!("{} reloads", plan.rounds);
    tell("listener that stays", &mut report.staying);
    tell("listener that comes and goes", &mut report.coming_and_going);
    println!("idle connections: {} open, {} answered", report.idle_open, report.idle_answered);
    println!("lines: {} for {} requests", report.lines, report.staying.answered);
    println!("RSS {:.1} MiB early, {:.1} MiB late", mib(early), mib(late));
    let gone = &report.coming_and_going;
    verdict(&[
        (report.staying.failed() == 0, "requests failed on the listener that stays"),
        (gone.failed() == gone.failed_by(Failure::Refused), "requests were lost on the one that goes"),
        (report.idle_answered == plan.idle, "idle connections were lost"),
        (report.lines == report.staying.answered, "lines are missing"),
        (late <= early + early * GROWTH_PERCENT / 100, "memory grew"),
    ])
}

/// `tunnels --rounds 100 --tunnels 1000`: beside nginx, where it is there.
pub(crate) fn tunnels(mut args: Args) -> Result<(), String> {
    let plan = Tunnels { rounds: args.take("rounds", 100)?, tunnels: args.take("tunnels", 1000)? };
    args.finish()?;
    let ours = Binary::under_test();
    let others = Binary::installed_oracle().map(|nginx| ("nginx", nginx));
    let mut faults = Vec::new();
    for (name, binary) in others.into_iter().chain([("clearway", ours)]) {
        let mut report = plan.play(&binary);
        println!(
            "{name}: {} of {} tunnels are there after {} reloads",
            report.alive, plan.tunnels, plan.rounds
        );
        println!(
            "  {} processes, {:.1} -> {:.1} MiB",
            report.processes,
            mib(report.pss_before),
            mib(report.pss_after)
        );
        tell("  requests beside them", &mut report.load);
        if name == "clearway" {
            faults.push((report.alive == plan.tunnels, "tunnels were lost"));
            faults.push((report.load.failed() == 0, "requests failed"));
        }
    }
    verdict(&faults)
}

/// `crash --kills 20`.
pub(crate) fn crash(mut args: Args) -> Result<(), String> {
    let plan = Crash { kills: args.take("kills", 20)? };
    args.finish()?;
    let mut report = plan.play(&Binary::under_test());
    report.back_after.sort_unstable();
    let longest = report.back_after.last().copied().unwrap_or_default();
    let typical = report.back_after.get(plan.kills / 2).copied().unwrap_or_default();
    println!("{} kills: back after {typical:.1?}, {longest:.1?} at most", plan.kills);
    tell("load", &mut report.load);
    verdict(&[
        (longest <= BACK_WITHIN, "it took too long"),
        (report.load.failed() <= report.connections_killed, "more than the killed connections were lost"),
        (report.load.failed_by(Failure::Refused) == 0, "connections were refused"),
    ])
}

/// `upgrade`: to itself, and from and to nginx where that is installed.
pub(crate) fn upgrade_command(args: Args) -> Result<(), String> {
    args.finish()?;
    let ours = Binary::under_test();
    let mut pairs = vec![("to itself", ours.clone(), ours.clone())];
    if let Some(nginx) = Binary::installed_oracle() {
        pairs.push(("from nginx", nginx.clone(), ours.clone()));
        pairs.push(("to nginx", ours, nginx));
    }
    let mut failed = 0;
    for (what, from, to) in pairs {
        let mut tally = upgrade(&from, &to);
        tell(what, &mut tally);
        failed += tally.failed();
    }
    verdict(&[(failed == 0, "requests failed")])
}

/// `logs --lines 1000000`.
pub(crate) fn logs(mut args: Args) -> Result<(), String> {
    let plan = Burst { requests: args.take("lines", 1_000_000)? };
    args.finish()?;
    let binary = Binary::under_test();
    let burst = plan.play(&binary);
    println!(
        "burst: {} requests in {:.1?} ({:.0}/s), {} lines, {} lost; a client beside waited {:.1?} at most",
        plan.requests,
        burst.took,
        plan.requests as f64 / burst.took.as_secs_f64(),
        burst.lines,
        burst.lost,
        burst.slowest
    );
    let (mut full, _) = full_device(&binary, 20_000);
    tell("full disk", &mut full);
    let mut reopened = Reopen { rounds: 50 }.play(&binary);
    tell("50 reopens", &mut reopened.load);
    println!("lines: {} for {} requests", reopened.lines, reopened.load.answered);
    let mut faults = vec![
        (full.failed() == 0, "requests failed beside a full disk"),
        (reopened.lines == reopened.load.answered, "reopening lost lines"),
    ];
    if binary.is_clearway() {
        let mut stuck = stuck_log(&binary, 20_000);
        tell("stuck disk", &mut stuck.load);
        println!("lines: {} written, {} lost", stuck.lines, stuck.lost);
        faults.push((stuck.load.failed() == 0, "requests failed beside a stuck disk"));
        faults.push((stuck.lines + stuck.lost == stuck.load.answered, "lines are neither there nor counted"));
    }
    verdict(&faults)
}

fn tell(what: &str, tally: &mut Tally) {
    let at = |part| -> Duration { tally.clone().quantile(part) };
    let (half, most, all) = (at(0.5), at(0.99), at(1.0));
    println!("{what}: {tally}\n  latency: median {half:.2?}, 99 % {most:.2?}, longest {all:.2?}");
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn verdict(checks: &[(bool, &str)]) -> Result<(), String> {
    let faults: Vec<&str> = checks.iter().filter(|(good, _)| !good).map(|(_, fault)| *fault).collect();
    if faults.is_empty() {
        println!("good");
        return Ok(());
    }
    Err(faults.join("; "))
}
