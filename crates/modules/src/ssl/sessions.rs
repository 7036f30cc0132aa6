//! Sessions that a server keeps (`ssl_session_cache`), of the whole process. Read and written by handshakes,
//! on loops and in pools: whichever finds another one at work goes on without, as if the session were not
//! there.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clearway_tls::engine::Kept;

/// A bounded number of sessions, of which the oldest go first.
pub(crate) struct Sessions {
    max: usize,
    timeout: Duration,
    kept: Mutex<KeptSessions>,
}

#[derive(Default)]
struct KeptSessions {
    by_key: HashMap<Vec<u8>, (Instant, Vec<u8>)>,
    /// The oldest first. One that was taken may stand here still.
    order: VecDeque<Vec<u8>>,
}

impl Sessions {
    /// None yet.
    pub(crate) fn new(max: usize, timeout: Duration) -> Self {
        Self { max: max.max(1), timeout, kept: Mutex::default() }
    }

    /// The session under a key, if it is not too old.
    pub(crate) fn find(&self, key: &[u8]) -> Option<Kept> {
        let mut kept = self.kept.try_lock().ok()?;
        let (since, content) = kept.by_key.get(key)?;
        if since.elapsed() >= self.timeout {
            kept.by_key.remove(key);
            return None;
        }
        Some(Kept { key: key.to_vec(), content: content.clone() })
    }

    /// Keeps sessions.
    pub(crate) fn keep(&self, sessions: Vec<Kept>) {
        let Ok(mut kept) = self.kept.try_lock() else { return };
        for Kept { key, content } in sessions {
            while kept.order.len() >= self.max {
                let oldest = kept.order.pop_front().expect("there are as many as fit");
                kept.by_key.remove(&oldest);
            }
            kept.order.push_back(key.clone());
            kept.by_key.insert(key, (Instant::now(), content));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(key: u8) -> Kept {
        Kept { key: vec![key], content: vec![key; 3] }
    }

    #[test]
    fn the_oldest_go_and_the_old_are_none() {
        let sessions = Sessions::new(2, Duration::from_secs(60));
        sessions.keep(vec![session(1), session(2), session(3)]);
        assert_eq!([1, 2, 3].map(|key| sessions.find(&[key]).is_some()), [false, true, true]);
        let short = Sessions::new(2, Duration::ZERO);
        short.keep(vec![session(1)]);
        assert!(short.find(&[1]).is_none());
    }
}
