//! The sampler: looks at stuck threads until their polls are over. It sleeps while there are none. A thread
//! of its own; everything it does is bounded, and it takes no lock that a carrier can hold.

use std::time::Duration;

use clearway_luajit::registry;
use clearway_os::{clock, sampling, thread};

use crate::metrics;
use crate::observer::Desk;
use crate::report::End;
use crate::stall::{Now, Purpose, Stall};

/// Stalls that are looked at at the same time; more are counted only.
const STALLS_MAX: usize = sampling::CELLS;

/// Runs as long as the process.
pub(crate) fn run(desk: &Desk) {
    thread::sleep_exactly();
    let mut stalls: Vec<Stall> = Vec::with_capacity(STALLS_MAX);
    loop {
        while let Some(poll) = desk.arrivals.pop() {
            if stalls.len() < STALLS_MAX {
                stalls.push(Stall::begin(poll));
            } else {
                metrics::STALLS_UNSAMPLED.increment();
            }
        }
        look_at_all(desk, &mut stalls);
        let next_ns = stalls.iter().map(|stall| stall.due_ns).min();
        let now_ns = clock::monotonic_ns();
        desk.sampler.wait(next_ns.map(|at| Duration::from_nanos(at.saturating_sub(now_ns))));
    }
}

fn look_at_all(desk: &Desk, stalls: &mut Vec<Stall>) {
    let count = u32::try_from(stalls.len()).unwrap_or(u32::MAX);
    let mut index = 0;
    while index < stalls.len() {
        if stalls[index].due_ns > clock::monotonic_ns() {
            index += 1;
            continue;
        }
        match stalls[index].look(count) {
            Now::GoesOn => index += 1,
            Now::Done(end) => {
                // Before it was over it had given its account.
                take_accounts(desk, stalls);
                let stall = stalls.swap_remove(index);
                if end == End::StillHeld && registry::least_limit_ns() < u64::MAX {
                    stalls.push(stall.begin_again());
                }
                if stall.purpose() == Purpose::Limit {
                    continue;
                }
                let finished = stall.finish(end);
                if desk.finished.push(finished).is_err() {
                    metrics::STALLS_UNSAMPLED.increment();
                }
                desk.reporter.ring();
            }
        }
    }
    take_accounts(desk, stalls);
}

fn take_accounts(desk: &Desk, stalls: &mut [Stall]) {
    while let Some((poll, account)) = desk.accounts.pop() {
        if let Some(stall) = stalls.iter_mut().find(|stall| stall.id() == poll) {
            stall.explain(account);
        }
    }
}
