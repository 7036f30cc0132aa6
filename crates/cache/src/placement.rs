//! Chooses the disk of an object among several: weighted rendezvous hashing (Thaler and Ravishankar 1998;
//! weights as of Schindelhauer and Schomaker 2005). Each disk gets a score for the object, and the best score
//! wins. When a disk is added or removed, or its weight changes, only those objects move that have to.

use crate::key::Digest;

/// A disk that objects can be put on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk<'p> {
    /// The identity of the disk: its path as it is configured.
    pub name: &'p [u8],
    /// Its share of objects in proportion to the other weights; 0 takes none.
    pub weight: u32,
}

/// The disks for an object by their index, best first, without those of weight 0. The caller skips disks that
/// are left out, and the next one has the object meanwhile.
#[must_use]
pub fn order(digest: Digest, disks: &[Disk<'_>]) -> Vec<usize> {
    let mut drawn: Vec<(f64, usize)> = disks
        .iter()
        .enumerate()
        .filter(|(_, disk)| disk.weight > 0)
        .map(|(index, disk)| (score(digest, disk), index))
        .collect();
    drawn.sort_by(|(a, i), (b, j)| b.total_cmp(a).then(i.cmp(j)));
    drawn.into_iter().map(|(_, index)| index).collect()
}

/// The score of a disk for an object: −weight / ln(u), where u is between 0 and 1 and is a hash of both.
fn score(digest: Digest, disk: &Disk<'_>) -> f64 {
    let mut state = FNV_OFFSET;
    for &byte in digest.0.iter().chain(disk.name) {
        state = (state ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
    }
    // A double holds 53 bits. The result is never 0 and never 1.
    let unit = ((mix(state) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -f64::from(disk.weight) / unit.ln()
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Spreads a difference in few bits over all 64 (the finalizer of SplitMix64, Steele et al. 2014).
fn mix(state: u64) -> u64 {
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;

    const OBJECTS: usize = 30_000;

    fn digests() -> impl Iterator<Item = Digest> {
        (0..OBJECTS).map(|n| Key::new(n.to_string().into_bytes()).digest())
    }

    fn disks<'p>(weights: &[(&'p str, u32)]) -> Vec<Disk<'p>> {
        weights.iter().map(|&(name, weight)| Disk { name: name.as_bytes(), weight }).collect()
    }

    fn first(digest: Digest, disks: &[Disk<'_>]) -> usize {
        order(digest, disks)[0]
    }

    #[test]
    fn each_disk_has_its_part() {
        let disks = disks(&[("/d1", 1), ("/d2", 2), ("/d3", 5), ("/none", 0)]);
        let mut counts = [0_usize; 4];
        digests().for_each(|digest| counts[first(digest, &disks)] += 1);
        for (count, part) in counts.into_iter().zip([1, 2, 5, 0]) {
            let expected = OBJECTS * part / 8;
            assert!(count.abs_diff(expected) * 20 <= expected, "{counts:?}");
        }
    }

    #[test]
    fn only_what_has_to_move_moves() {
        let before = disks(&[("/d1", 1), ("/d2", 1), ("/d3", 1)]);
        let (without, heavier) = (&before[..2], disks(&[("/d1", 1), ("/d2", 3), ("/d3", 1)]));
        for digest in digests() {
            let all = order(digest, &before);
            assert_eq!(all.len(), 3);
            let fallback = all.iter().copied().find(|&disk| disk != 2);
            assert_eq!(Some(first(digest, without)), fallback, "the next one has what the lost one had");
            let now = first(digest, &heavier);
            assert!(now == all[0] || now == 1, "objects move to the disk that wants more, and nowhere else");
        }
    }
}
