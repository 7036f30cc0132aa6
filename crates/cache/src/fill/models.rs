//! Models of the rules in `fill`: loom runs them in all orders of the threads' steps.

use std::future::poll_fn;

use loom::future::block_on;
use loom::thread;

use super::*;

/// Reads until the end. Returns how many bytes were readable, and how the fill ended.
fn read(mut follower: Follower<u8>) -> (u64, Progress) {
    let mut position = 0;
    loop {
        match block_on(poll_fn(|cx| follower.poll_beyond(cx, position))) {
            Progress::Readable(to) => position = to,
            Progress::Complete(to) => return (to, Progress::Complete(to)),
            Progress::Failed => return (position, Progress::Failed),
        }
    }
}

/// A follower sees every byte and the end, in any order of steps.
#[test]
fn a_follower_that_waits_is_woken() {
    loom::model(|| {
        let leader = Leader::<u8>::new();
        let follower = leader.follow();
        let reader = thread::spawn(move || read(follower));
        leader.grown(1);
        leader.grown(2);
        leader.finish(End::Complete);
        assert_eq!(reader.join().expect("it ends"), (2, Progress::Complete(2)));
    });
}

/// A leader that is dropped wakes both of two waiting followers.
#[test]
fn all_followers_learn_that_the_leader_has_failed() {
    loom::model(|| {
        let leader = Leader::<u8>::new();
        let readers =
            [leader.follow(), leader.follow()].map(|follower| thread::spawn(move || read(follower)));
        drop(leader);
        for reader in readers {
            assert_eq!(reader.join().expect("it ends"), (0, Progress::Failed));
        }
    });
}

/// A queued follower that is polled again with another waker is woken by the new one.
#[test]
fn the_newest_waker_is_woken() {
    loom::model(|| {
        let leader = Leader::<u8>::new();
        let mut follower = leader.follow();
        let reader = thread::spawn(move || {
            let noop = std::task::Waker::noop();
            let first = follower.poll_verdict(&mut Context::from_waker(noop));
            if let Poll::Ready(verdict) = first {
                return verdict;
            }
            block_on(poll_fn(|cx| follower.poll_verdict(cx)))
        });
        leader.decide(Verdict::Stored(7));
        assert_eq!(reader.join().expect("it ends"), Some(Verdict::Stored(7)));
        drop(leader);
    });
}
