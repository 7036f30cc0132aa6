//! Memory that processes share: a sealed memfd and its mapping. The descriptor is what one process
//! hands to another; a holder of either keeps the contents alive, whichever process dies.
//!
//! A mapping is seen as atomic words only. Another process may change any of them at any moment and
//! may die between any two stores, so that nothing read here is more than an allegation.
//!
//! Made and mapped at boot (page tables and files are set up); the words are for any thread.
#![expect(unsafe_code, reason = "a mapping is memory that the language knows nothing of")]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

const WORD_BYTES: usize = size_of::<AtomicU64>();

/// A mapping of shared memory, unmapped when dropped.
#[derive(Debug)]
pub struct SharedMemory {
    words: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only reached as atomics.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes `bytes` bytes of zeroed memory, at least one word, and maps them. The descriptor is
    /// close-on-exec, and sealed: its size never changes again. `name` is for people reading /proc/PID/maps,
    /// at most 249 bytes. Pages come when they are first touched.
    ///
    /// # Errors
    /// As memfd_create(2), ftruncate(2) and mmap(2); `InvalidInput` for less than a word.
    pub fn create(name: &str, bytes: usize) -> io::Result<(Self, OwnedFd)> {
        let size = checked_size(bytes)?;
        let fd = sealable(name)?;
        rustix::fs::ftruncate(&fd, size)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let memory = Self::map(fd.as_fd(), bytes)?;
        Ok((memory, fd))
    }

    /// Maps the first `bytes` bytes of what [`create`](Self::create) made, in this process or in
    /// another one.
    ///
    /// # Errors
    /// As mmap(2); `InvalidInput` for less than a word, for a descriptor that is smaller than `bytes`,
    /// and for one that could become smaller: touching what is gone would be SIGBUS.
    pub fn map(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<Self> {
        let size = checked_size(bytes)?;
        let sealed = rustix::fs::fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !sealed {
            return Err(invalid("not a descriptor of sealed shared memory"));
        }
        if u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0) < size {
            return Err(invalid("the shared memory is smaller than it should be"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses; it covers no memory in use.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, fd, 0)? };
        let words = NonNull::new(address.cast()).expect("the kernel maps nothing at address 0 unasked");
        Ok(Self { words, bytes })
    }

    /// The memory as words, in the byte order of the machine. Bytes at the end that make no whole
    /// word are left out.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: a mapping is page-aligned, so many words lie within it, and it lives as long as
        // `self`. The size of what is mapped is sealed, any bits are a valid AtomicU64, and other
        // processes that follow the rules of this file touch it with atomics as well.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.bytes / WORD_BYTES) }
    }

    /// The first four bytes of a word, for a futex. A word of which this is used is never used as a whole.
    ///
    /// # Panics
    /// If there is no such word.
    #[must_use]
    pub fn half_word(&self, index: usize) -> &AtomicU32 {
        let word: *const AtomicU64 = &raw const self.words()[index];
        // SAFETY: within the mapping, as the word is, aligned for more than this needs; any bits are a valid
        // AtomicU32, and it lives as long as `self`.
        unsafe { &*word.cast::<AtomicU32>() }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping that `map` made, and no reference into it outlives `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.words.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "a whole mapping of our own: {unmapped:?}");
    }
}

/// A memfd that can be sealed and, where the kernel knows how to (6.3), never executed.
fn sealable(name: &str) -> io::Result<OwnedFd> {
    match rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        Err(rustix::io::Errno::INVAL) => {
            Ok(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?)
        }
        made => Ok(made?),
    }
}

/// `bytes` as the kernel wants it.
fn checked_size(bytes: usize) -> io::Result<u64> {
    if bytes < WORD_BYTES || isize::try_from(bytes).is_err() {
        return Err(invalid("a size that no shared memory can have"));
    }
    Ok(bytes as u64)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

    use super::*;

    #[test]
    fn two_mappings_of_one_descriptor_see_each_other() {
        let (one, fd) = SharedMemory::create("test zone", 1 << 20).unwrap();
        let two = SharedMemory::map(fd.as_fd(), 1 << 20).unwrap();
        assert_eq!(one.words().len(), 1 << 17);
        assert!(one.words().iter().all(|word| word.load(Relaxed) == 0));
        let last = one.words().len() - 1;
        one.words()[last].store(0x1122_3344_5566_7788, Release);
        assert_eq!(two.words()[last].load(Acquire), 0x1122_3344_5566_7788);
        two.words()[0].fetch_add(3, Relaxed);
        assert_eq!(one.words()[0].load(Relaxed), 3);
    }

    #[test]
    fn the_descriptor_keeps_the_contents() {
        let (one, fd) = SharedMemory::create("test zone", 4096).unwrap();
        one.words()[5].store(7, Relaxed);
        drop(one);
        assert_eq!(SharedMemory::map(fd.as_fd(), 64).unwrap().words()[5].load(Relaxed), 7);
    }

    #[test]
    fn a_size_of_no_whole_pages_works_to_its_last_word() {
        let (memory, fd) = SharedMemory::create("", 4096 + 13).unwrap();
        assert_eq!(memory.words().len(), 513);
        memory.words()[512].store(1, Relaxed);
        drop(memory);
        assert!(SharedMemory::map(fd.as_fd(), 4096 + 14).is_err());
    }

    #[test]
    fn what_could_shrink_is_refused() {
        let (_memory, fd) = SharedMemory::create("test zone", 8192).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        assert!(rustix::fs::ftruncate(&fd, 16384).is_err());
        let plain = rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&plain, 8192).unwrap();
        assert_eq!(SharedMemory::map(plain.as_fd(), 8192).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for bytes in [0, 7, usize::MAX] {
            assert_eq!(
                SharedMemory::create("no", bytes).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{bytes}"
            );
        }
    }

    #[test]
    fn threads_share_a_mapping() {
        let (memory, _fd) = SharedMemory::create("test zone", 4096).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        memory.words()[1].fetch_add(1, Relaxed);
                    }
                });
            }
        });
        assert_eq!(memory.words()[1].load(Relaxed), 4000);
    }
}
