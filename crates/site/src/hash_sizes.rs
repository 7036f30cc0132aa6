//! Sizes that nginx gives to its tables (`variables_hash_max_size` and its kin). The tables here are as large
//! as they need to be; what no table could have is refused, as nginx does when it builds one. Runs at boot.

use clearway_conf::Error;

use crate::levels::{ConfKey, Level};
use crate::setting::Setting;
use crate::settings;

/// Sizes of buckets are rounded up to this, and nginx keeps as much free of the largest, bytes.
const LINE_BYTES: u64 = 64;
/// The largest bucket, bytes.
const BUCKET_MAX_BYTES: u64 = 65_536 - LINE_BYTES;

/// Sizes that the configuration gives.
pub static HASHES: ConfKey<HashConf> = ConfKey::new(Level::Main);

settings! {
    /// Sizes of nginx's tables: the most buckets, and bytes of one.
    pub struct HashConf {
        /// `server_names_hash_…`
        pub names: [Setting<u64>; 2] = [Setting::new(512), Setting::new(64)],
        /// `variables_hash_…`
        pub variables: [Setting<u64>; 2] = [Setting::new(1024), Setting::new(64)],
    }
}

/// Refuses sizes of the table with that name.
///
/// # Errors
/// There is no room in it, or too much in one bucket.
pub(crate) fn check(table: &str, max_size: u64, bucket_size: u64) -> Result<(), Error> {
    let bucket_size = bucket_size.checked_next_multiple_of(LINE_BYTES).unwrap_or(u64::MAX);
    let problem = if max_size == 0 {
        format!("you should increase {table}_max_size: 0")
    } else if bucket_size > BUCKET_MAX_BYTES {
        format!("too large {table}_bucket_size: {bucket_size}")
    } else if bucket_size == 0 {
        format!("you should increase {table}_bucket_size: 0")
    } else {
        return Ok(());
    };
    Err(Error::unplaced(format!("could not build {table}, {problem}")))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn what_no_table_can_have_is_refused() {
        let said = |max, bucket| check("t_hash", max, bucket).map_err(|error| error.to_string());
        for (max, bucket) in [(1, 1), (3, 63), (u64::MAX, 64), (1, 65_472)] {
            assert_eq!(said(max, bucket), Ok(()), "{max} {bucket}");
        }
        let refused = |text: &str| Err(format!("could not build t_hash, {text}"));
        assert_eq!(said(0, 0), refused("you should increase t_hash_max_size: 0"));
        assert_eq!(said(1, 0), refused("you should increase t_hash_bucket_size: 0"));
        assert_eq!(said(1, 65_473), refused("too large t_hash_bucket_size: 65536"));
    }
}
