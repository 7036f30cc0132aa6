//! What of the program's file is mapped, and how its pages are let go of: a start runs much code that serving
//! does not, and its pages would count as this process's for good. Any thread.
#![expect(unsafe_code, reason = "program headers, which the kernel names by address; madvise(2)")]

use std::ops::Range;

use rustix::mm::Advice;

/// Lets go of the pages of the program's code and constants, which nobody has changed: what is needed again
/// is taken from the page cache at the first use (from the disk, if the kernel has dropped it there
/// meanwhile). Data stays.
pub fn release_pages() {
    let page = rustix::param::page_size();
    for part in parts().filter(|part| part.is_constant) {
        // Whole pages: a neighbour may begin on the last one.
        let (start, end) = (part.addresses.start.next_multiple_of(page), part.addresses.end / page * page);
        let length = end.saturating_sub(start);
        if length > 0 {
            let start = std::ptr::with_exposed_provenance_mut(start);
            // SAFETY: the pages are a private mapping of a file that is not written while it is executed, and
            // that nothing has permission to write: they come back as they are. Where they do not (locked
            // memory), the call does nothing.
            let _ = unsafe { rustix::mm::madvise(start, length, Advice::LinuxDontNeed) };
        }
    }
}

/// The code of this program: what its program headers say is mapped to be executed, and nothing of the data
/// before it, behind which linkers leave pages out. Signal handlers may ask.
#[must_use]
pub fn text() -> Range<usize> {
    parts().find(|part| part.is_code).map_or(0..0, |part| part.addresses)
}

/// A part of the program's file that is mapped.
struct Part {
    addresses: Range<usize>,
    is_code: bool,
    /// The file says that it is never written, not even while the program is made ready to run.
    is_constant: bool,
}

/// What the program headers say is mapped. Async-signal-safe.
fn parts() -> impl Iterator<Item = Part> {
    // SAFETY: reads the auxiliary vector, which the kernel has left on the first stack.
    let (start, count) = unsafe { (libc::getauxval(libc::AT_PHDR), libc::getauxval(libc::AT_PHNUM)) };
    let start = usize::try_from(start).expect("an address");
    let first = std::ptr::with_exposed_provenance::<libc::Elf64_Phdr>(start);
    let headers = match start {
        0 => &[][..],
        // SAFETY: the kernel has mapped so many of them there, aligned, and nobody ever writes to them.
        _ => unsafe { std::slice::from_raw_parts(first, count as usize) },
    };
    let own = headers.iter().find(|header| header.p_type == libc::PT_PHDR);
    // What was linked to be anywhere has been moved by so much.
    let moved = own.map_or(0, |own| start.wrapping_sub(own.p_vaddr as usize));
    headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(move |header| {
        let begin = moved.wrapping_add(header.p_vaddr as usize);
        let has = |flag| header.p_flags & flag != 0;
        let (is_code, is_constant) = (has(libc::PF_X), !has(libc::PF_W));
        Part { addresses: begin..begin + header.p_memsz as usize, is_code, is_constant }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of the mapping that begins there is in memory for this process, KiB.
    #[expect(clippy::disallowed_methods, reason = "a test's own thread may block")]
    fn resident_kib(start: usize) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").expect("a Linux");
        let start = format!("{start:x}-");
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let rss = lines.find_map(|line| line.strip_prefix("Rss:")).expect("it is mapped");
        rss.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    #[test]
    fn pages_go_and_come_back() {
        let text = text();
        assert!(text.contains(&(release_pages as *const ()).addr()));
        // All code is looked at, so all of it is in memory.
        let first = std::ptr::with_exposed_provenance::<u8>(text.start);
        // SAFETY: the program's own code, which stays mapped and is never written.
        let code = unsafe { std::slice::from_raw_parts(first, text.len()) };
        let sum =
            || code.iter().step_by(512).fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        let mapped = text.start / rustix::param::page_size() * rustix::param::page_size();
        let (before, full) = (sum(), resident_kib(mapped));
        assert!(full >= text.len() as u64 / 1024, "{full} KiB");
        release_pages();
        let left = resident_kib(mapped);
        assert!(left < full, "{left} of {full} KiB");
        assert_eq!(sum(), before);
    }
}
