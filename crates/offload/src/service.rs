//! `Service`: a thread of its own for work that blocks all the time, such as writing logs. It sleeps
//! on a bell that its clients ring; stopping is a flag and one more ring.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::Blocking;
use crate::bell::Bell;
use crate::pool::{Ending, start_named, wait_for_zero};
use crate::sync::{AtomicBool, Futex, Ordering};

/// A thread that runs one long job. Dropping the handle asks it to stop.
#[derive(Debug)]
pub struct Service {
    stop: Stop,
    bell: Arc<Bell>,
    running: Arc<Futex>,
}

/// Tells a service that it should finish what it has and return.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether the service should end. True before the ring that tells of it.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Service {
    /// Starts a thread called `name` (15 bytes are kept) that runs `body` until it returns. `bell` is
    /// the one that `body` sleeps on; all signals are blocked in the thread.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start<F>(name: &str, bell: Arc<Bell>, body: F) -> io::Result<Self>
    where
        F: FnOnce(&Blocking, &Stop) + Send + 'static,
    {
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let running = Arc::new(Futex::new(1));
        let (seen, count) = (stop.clone(), Arc::clone(&running));
        start_named(name, move || {
            clearway_os::signal::block_all();
            let _end = Ending(Some(&count));
            body(&Blocking::on_this_thread(), &seen);
        })?;
        Ok(Self { stop, bell, running })
    }

    /// Asks the thread to finish. Does not wait for it.
    pub fn stop(&self) {
        self.stop.0.store(true, Ordering::SeqCst);
        self.bell.ring();
    }

    /// Asks the thread to finish and waits until it has, `limit` at most; `false` if it has not.
    /// **Blocks**: for the main thread at exit.
    #[must_use]
    pub fn stop_and_wait(&self, limit: Duration) -> bool {
        self.stop();
        wait_for_zero(&self.running, limit)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn runs_until_it_is_told_to_stop() {
        let bell = Arc::new(Bell::new());
        let rounds = Arc::new(AtomicU32::new(0));
        let (heard, counted) = (Arc::clone(&bell), Arc::clone(&rounds));
        let service = Service::start("test", bell, move |blocking, stop| {
            while !stop.is_requested() {
                heard.sleep(blocking, None, || stop.is_requested());
                counted.fetch_add(1, Ordering::Relaxed);
            }
        })
        .unwrap();
        assert!(service.stop_and_wait(Duration::from_secs(10)));
        assert!(rounds.load(Ordering::Relaxed) <= 1);
    }
}
