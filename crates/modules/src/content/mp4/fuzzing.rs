//! Invariants for any bytes of a file, checked by the fuzz target `mp4`.

use super::atoms::{Beginning, Fault, MediaSource, Wanted};
use super::cut::{Cut, cut};

/// A file in memory. What is read of it is there.
struct Memory<'a>(&'a [u8]);

impl MediaSource for Memory<'_> {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&mut self, offset: u64, count: usize) -> Result<Vec<u8>, Fault> {
        Ok(self.0[offset as usize..][..count].to_vec())
    }
}

/// The first six bytes say which part is wanted, the others are the file.
///
/// # Panics
/// If what is made of a file is not in it, or is more than it could be.
pub fn check(input: &[u8]) {
    let Some((&[s0, s1, l0, l1, scale, buffer], file)) = input.split_first_chunk::<6>() else { return };
    let milliseconds = |number: [u8; 2]| u64::from(u16::from_be_bytes(number)) << (scale & 0x1f);
    let wanted = Wanted {
        start_ms: milliseconds([s0, s1]),
        length_ms: milliseconds([l0, l1]),
        buffer_bytes: u64::from(buffer) * 4,
        buffer_max_bytes: 1 << 20,
        beginning: if scale & 0x80 == 0 { Beginning::Sample } else { Beginning::KeyFrame },
    };
    let Ok(Some(Cut { front, data })) = cut(&mut Memory(file), &wanted) else { return };
    assert!(data.start < data.end && data.end <= file.len() as u64);
    // Headers of atoms, an edit list and two chunks for each track are all that is new.
    assert!(front.len() <= 32 * file.len() + 1024, "{} bytes of {}", front.len(), file.len());
    let part = [&front[..], &file[data.start as usize..data.end as usize]].concat();
    let _ = cut(&mut Memory(&part), &wanted);
}
