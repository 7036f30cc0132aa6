//! The zone of local times in logs. The data base is read where blocking is allowed, at start and by
//! the writer thread every minute (so a zone that changes takes effect without a restart), and loops
//! read one atomic.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tz::TimeZone;

/// Minutes that local time is ahead of UTC, for [`clearway_base::date`]. Clones share the value.
#[derive(Clone, Debug, Default)]
pub struct UtcOffset(Arc<AtomicI32>);

impl UtcOffset {
    /// The offset as of the last look, negative west of Greenwich.
    #[must_use]
    pub fn minutes(&self) -> i32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Reads the time zone again. **Blocks** (files).
    pub(crate) fn refresh(&self, unix_seconds: i64) {
        let minutes = read_minutes(std::env::var("TZ").ok().as_deref(), unix_seconds);
        self.0.store(minutes, Ordering::Relaxed);
    }
}

/// The offset that `TZ`, or without it `/etc/localtime`, gives for this moment. What cannot be read
/// is UTC, as in the C library.
fn read_minutes(tz: Option<&str>, unix_seconds: i64) -> i32 {
    let zone = match tz {
        None => TimeZone::local(),
        Some(name) => TimeZone::from_posix_tz(name),
    };
    let offset = zone.ok().and_then(|zone| Some(zone.find_local_time_type(unix_seconds).ok()?.ut_offset()));
    offset.map_or(0, |seconds| seconds.div_euclid(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_by_rule_by_name_and_broken_ones() {
        let (winter, summer) = (1_706_700_000, 1_720_000_000);
        assert_eq!(read_minutes(Some("CET-1CEST,M3.5.0,M10.5.0/3"), winter), 60);
        assert_eq!(read_minutes(Some("CET-1CEST,M3.5.0,M10.5.0/3"), summer), 120);
        assert_eq!(read_minutes(Some("NST3:30"), winter), -210);
        assert_eq!(read_minutes(Some("no such zone"), winter), 0);
        assert_eq!(read_minutes(Some(""), winter), 0);
        if std::path::Path::new("/usr/share/zoneinfo/Asia/Kathmandu").exists() {
            assert_eq!(read_minutes(Some(":Asia/Kathmandu"), winter), 345);
            assert_eq!(read_minutes(Some("America/New_York"), summer), -240);
        }
    }
}
