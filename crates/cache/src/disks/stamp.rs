//! The stamp of a file shows that it has not changed since it was written, or compared with its checksum: 22
//! bits of a hash of its inode, its length, the time of its last change and the start of the machine. A file
//! with another stamp is in doubt. So are all files after a restart of the machine: the kernel may have lost
//! writes that it had in memory, to the file or to its record. Any thread.

use std::path::Path;
use std::sync::OnceLock;

use clearway_offload::directory::Directory;
use clearway_offload::{Blocking, file};
use clearway_os::clock;
use clearway_os::stat::Stat;

/// Bits of a stamp, which the index has room for.
const BITS: u32 = 22;
/// The kernel's directory with the identifier of this start (`boot_id`).
const DIRECTORY: &str = "/proc/sys/kernel/random";
const NAME: &str = "boot_id";
const NAME_MAX_BYTES: usize = 64;

/// A hash of the identifier of this start of the machine.
static START: OnceLock<u32> = OnceLock::new();

/// Reads the identifier of this start of the machine, once. Where the kernel does not tell it, each process
/// makes one, so that files of the process before are in doubt.
pub(crate) fn learn(blocking: &Blocking) {
    START.get_or_init(|| {
        let directory = Directory::open(blocking, Path::new(DIRECTORY));
        let opened = directory.and_then(|directory| directory.open_file(blocking, Path::new(NAME)));
        let said = opened.and_then(|opened| file::read(blocking, &opened, 0, NAME_MAX_BYTES));
        match said {
            Ok(said) if !said.is_empty() => crc32fast::hash(&said),
            _ => crc32fast::hash(&clock::unix_ms().to_le_bytes()),
        }
    });
}

/// A file's stamp; `None` before [`learn`]. Never 0, which no file has.
pub(crate) fn of(stat: &Stat) -> Option<u32> {
    let mut hasher = crc32fast::Hasher::new_with_initial(*START.get()?);
    for number in [stat.inode, stat.size, stat.changed.seconds as u64, u64::from(stat.changed.nanoseconds)] {
        hasher.update(&number.to_le_bytes());
    }
    let hash = hasher.finalize();
    Some((hash >> (u32::BITS - BITS)).max(1))
}

#[cfg(test)]
mod tests {
    use clearway_os::stat::Time;

    use super::*;

    #[test]
    fn each_change_of_a_file_gives_it_another_stamp() {
        let _ = START.set(7);
        let stat = Stat { inode: 5, size: 100, ..Stat::default() };
        let changed = |nanoseconds| Time { seconds: 0, nanoseconds };
        let stamps = [
            of(&stat),
            of(&Stat { inode: 6, ..stat }),
            of(&Stat { size: 101, ..stat }),
            of(&Stat { changed: changed(1), ..stat }),
            of(&Stat { changed: changed(2), ..stat }),
        ];
        for (at, stamp) in stamps.iter().enumerate() {
            assert!(stamp.is_some_and(|stamp| stamp > 0 && stamp < 1 << BITS));
            assert!(!stamps[..at].contains(stamp), "{stamps:?}");
        }
        assert_eq!(of(&stat), of(&Stat { modified: changed(9), ..stat }));
    }
}
