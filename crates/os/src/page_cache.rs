//! Looks into the page cache, and fills it. A function whose comment does not say **Blocks** waits for a disk
//! only if the queue of the disk is full; [`count_cached`] never waits.
#![expect(unsafe_code, reason = "calls that rustix does not wrap, or not for uninitialised memory")]

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{Advice, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

/// `cachestat` has this number everywhere but on Alpha (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// Whether a read waits for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The read ends before the part that is not in memory (`RWF_NOWAIT`).
    Never,
    /// The read waits for the disk.
    Disk,
}

impl Wait {
    fn flags(self) -> libc::c_int {
        match self {
            Self::Never => libc::RWF_NOWAIT,
            Self::Disk => 0,
        }
    }
}

/// pread(2), appended to `buf`, `count` bytes at most: 0 is the end of the file, fewer than asked for the
/// end of the file or, with [`Wait::Never`], of what is in memory. **Blocks** with [`Wait::Disk`].
///
/// # Errors
/// As preadv2(2). With [`Wait::Never`] EAGAIN: nothing is in memory at `offset`, and a read-ahead was
/// started there, which itself waits if the queue of the disk is full. EOPNOTSUPP: the file system cannot
/// tell. ENOSYS: the kernel cannot.
#[inline]
pub fn read_into(
    file: BorrowedFd<'_>,
    buf: &mut Vec<u8>,
    offset: u64,
    count: usize,
    wait: Wait,
) -> io::Result<usize> {
    buf.reserve(count);
    let room = &mut buf.spare_capacity_mut()[..count];
    let read = match wait {
        Wait::Disk => rustix::io::pread(file, room, offset)?.0.len(),
        Wait::Never => {
            let vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            let (fd, no_wait) = (file.as_raw_fd(), libc::RWF_NOWAIT);
            // SAFETY: the one vector describes `room`, which is ours to write to until the call returns. The
            // offset is one word (the other of the two is not looked at where words have 64 bits).
            let read = unsafe {
                libc::syscall(libc::SYS_preadv2, fd, &raw const vector, 1_usize, offset, 0_usize, no_wait)
            };
            usize::try_from(read).map_err(|_| io::Error::last_os_error())?
        }
    };
    // SAFETY: the kernel has written `read` bytes, no more than `count`, behind the old length.
    unsafe { buf.set_len(buf.len() + read) };
    Ok(read)
}

/// Whether the byte at `offset` is in memory; a file that ends before it has nothing to wait for.
///
/// # Errors
/// As [`read_into`] with [`Wait::Never`], EAGAIN excepted.
#[inline]
pub fn is_cached(file: BorrowedFd<'_>, offset: u64) -> io::Result<bool> {
    let mut byte = [0];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut byte)], offset, ReadWriteFlags::NOWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// `struct cachestat_range`.
#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

/// `struct cachestat`.
#[repr(C)]
#[derive(Default)]
struct Counts {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// How many of the pages of [`pages`] are in memory, those included that are still being read. Has no
/// side effect. Some file systems that have others below them always say 0 (overlayfs).
///
/// # Errors
/// EPERM for a file that is another's and may not be written, EOPNOTSUPP on hugetlbfs, ENOSYS before
/// Linux 6.5.
#[inline]
pub fn count_cached(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<u64> {
    if length == 0 {
        // The kernel takes a length of 0 as the rest of the file.
        return Ok(0);
    }
    let range = Range { offset, length };
    let mut counts = Counts::default();
    let fd = file.as_raw_fd();
    // SAFETY: reads one range and writes one set of counts, both in the kernel's layout and alive.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, fd, &raw const range, &raw mut counts, 0_u32) };
    if result == 0 { Ok(counts.cached) } else { Err(io::Error::last_os_error()) }
}

/// The number of pages in which `length` bytes from `offset` lie.
#[must_use]
pub fn pages(offset: u64, length: u64) -> u64 {
    let size = rustix::param::page_size() as u64;
    match offset.saturating_add(length).checked_sub(1) {
        Some(last) if length > 0 => last / size - offset / size + 1,
        _ => 0,
    }
}

/// Bytes that [`read_through`] reads at most at once, far below what one call may have of vectors.
pub const READ_THROUGH_MAX: usize = 4 << 20;
/// Bytes of a file in a buffer: few enough to stay in a processor's cache.
const SINK_BYTES: usize = 16 << 10;

/// Reads a range without keeping it, so that it is in memory: as one large read, so that the disk is asked
/// for much at once, but into one small buffer over and over. Says how many bytes there were, fewer than
/// asked for at the end of the file or of what is in memory. **Blocks**, also to begin to read.
///
/// # Errors
/// As preadv2(2), see [`read_into`].
pub fn read_through(file: BorrowedFd<'_>, offset: u64, count: usize, wait: Wait) -> io::Result<usize> {
    let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let count = count.min(READ_THROUGH_MAX);
    let mut sink = [std::mem::MaybeUninit::<u8>::uninit(); SINK_BYTES];
    let base = sink.as_mut_ptr().cast();
    let mut vectors = [libc::iovec { iov_base: base, iov_len: SINK_BYTES }; READ_THROUGH_MAX / SINK_BYTES];
    let used = count.div_ceil(SINK_BYTES);
    if let Some(last) = vectors[..used].last_mut() {
        last.iov_len = count - (used - 1) * SINK_BYTES;
    }
    let vector_count = libc::c_int::try_from(used).expect("a few hundred");
    // SAFETY: each vector describes a part of `sink`, which is alive, and which nobody reads.
    let read =
        unsafe { libc::preadv2(file.as_raw_fd(), vectors.as_ptr(), vector_count, offset, wait.flags()) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

/// Drops the clean pages of a range of the file from memory: for tests and measurements. **Blocks.**
///
/// # Errors
/// As posix_fadvise(2).
pub fn forget(file: BorrowedFd<'_>, offset: u64, length: u64) -> io::Result<()> {
    match std::num::NonZero::new(length) {
        Some(length) => Ok(rustix::fs::fadvise(file, offset, Some(length), Advice::DontNeed)?),
        // The kernel takes a length of 0 as the rest of the file.
        None => Ok(()),
    }
}

/// Tells the kernel that the file will be read from its beginning to its end, so that it reads further ahead.
/// This call itself reads nothing.
///
/// # Errors
/// As posix_fadvise(2).
pub fn expect_sequential(file: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::fs::fadvise(file, 0, None, Advice::Sequential)?)
}

/// Has every read of the file pass the page cache from here on (`O_DIRECT`): by [`read_direct`] only.
///
/// # Errors
/// As fcntl(2): EINVAL where the file system cannot do that.
pub fn bypass(file: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

/// pread(2) of up to `count` bytes from `offset`, fewer only at the end of the file, where all places in
/// the file and in memory are multiples of `alignment`, a power of two. **Blocks.**
///
/// # Errors
/// As pread(2): EINVAL for an alignment that is too small for the disk.
pub fn read_direct(file: BorrowedFd<'_>, offset: u64, count: usize, alignment: u32) -> io::Result<Vec<u8>> {
    let step = u64::from(alignment.max(1));
    let start = offset / step * step;
    let skipped = (offset - start) as usize;
    let length = (skipped + count).next_multiple_of(step as usize);
    let mut buf = vec![0; length + step as usize];
    let first = buf.as_ptr().align_offset(step as usize);
    let room = &mut buf[first..first + length];
    let (wanted, mut read) = (skipped + count, 0);
    while read < wanted {
        match rustix::io::pread(file, &mut room[read..], start + read as u64) {
            Ok(0) => break,
            Ok(size) => {
                read += size;
                // A read that ends within a block has met the end of the file. No further read is possible,
                // as its offset would not be aligned.
                if !size.is_multiple_of(step as usize) {
                    break;
                }
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    buf.truncate(first + read.min(wanted));
    buf.drain(..(first + skipped).min(buf.len()));
    Ok(buf)
}

/// sendfile(2) from `offset`, `count` bytes at most; 0 is the end of the file. **Blocks** where the file
/// is not in memory. SIGPIPE must be ignored.
///
/// # Errors
/// As sendfile(2): EAGAIN when the socket takes no more, EINVAL for a file that cannot be mapped.
#[inline]
pub fn send(to: BorrowedFd<'_>, file: BorrowedFd<'_>, mut offset: u64, count: usize) -> io::Result<usize> {
    Ok(rustix::fs::sendfile(to, file, Some(&mut offset), count)?)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, clippy::disallowed_macros, reason = "tests")]
mod tests {
    use std::io::Write;
    use std::os::fd::AsFd;

    use rustix::io::Errno;

    use super::*;

    const SIZE: usize = 1 << 20;

    /// A file on a disk, synced, so that it can be forgotten.
    fn file(name: &str) -> std::fs::File {
        let path = std::env::temp_dir().join(format!("clearway-os-{name}-{}", std::process::id()));
        let mut file =
            std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&vec![7; SIZE]).unwrap();
        file.sync_all().unwrap();
        file
    }

    fn is(error: &io::Error, code: Errno) -> bool {
        error.raw_os_error() == Some(code.raw_os_error())
    }

    /// Whether `look` finds that `file` is not in memory. A look has the kernel begin to read: on a fast disk
    /// the bytes may arrive in time, so one look proves nothing.
    fn is_cold_in_time(file: &std::fs::File, mut look: impl FnMut() -> bool) -> bool {
        (0..10_000).any(|_| {
            forget(file.as_fd(), 0, SIZE as u64).unwrap();
            look()
        })
    }

    #[test]
    fn what_is_in_memory_is_read_and_the_rest_is_not() {
        let file = file("read-cached");
        let mut buf = vec![1];
        match read_into(file.as_fd(), &mut buf, SIZE as u64 - 3, 10, Wait::Never) {
            Err(error) if is(&error, Errno::OPNOTSUPP) => {
                eprintln!("skipped: this file system cannot tell what is in memory");
                return;
            }
            result => assert_eq!(result.unwrap(), 3, "to the end of the file"),
        }
        assert_eq!(buf, [1, 7, 7, 7]);
        assert_eq!(read_into(file.as_fd(), &mut buf, SIZE as u64, 10, Wait::Never).unwrap(), 0);
        assert!(is_cached(file.as_fd(), 0).unwrap());
        assert!(is_cached(file.as_fd(), SIZE as u64 + 5).unwrap());
        assert!(is_cold_in_time(&file, || !is_cached(file.as_fd(), SIZE as u64 / 2).unwrap()));
        assert!(is_cold_in_time(&file, || {
            buf.truncate(4);
            let read = read_into(file.as_fd(), &mut buf, 0, 10, Wait::Never);
            read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        }));
        assert_eq!(buf, [1, 7, 7, 7]);
        buf.reserve(100);
        assert_eq!(read_into(file.as_fd(), &mut buf, 0, 10, Wait::Disk).unwrap(), 10, "however much room");
    }

    #[test]
    fn pages_in_memory_are_counted() {
        let file = file("count-cached");
        let all = pages(0, SIZE as u64);
        match count_cached(file.as_fd(), 0, SIZE as u64) {
            Err(error) if is(&error, Errno::NOSYS) || is(&error, Errno::PERM) => {
                eprintln!("skipped: no cachestat");
                return;
            }
            result => assert_eq!(result.unwrap(), all),
        }
        assert_eq!(count_cached(file.as_fd(), 5, 0).unwrap(), 0);
        forget(file.as_fd(), 0, SIZE as u64).unwrap();
        assert!(count_cached(file.as_fd(), 0, SIZE as u64).unwrap() < all);
    }

    #[test]
    fn a_range_is_read_through() {
        let file = file("read-through");
        let read = |offset, count| read_through(file.as_fd(), offset, count, Wait::Disk).unwrap();
        assert_eq!([read(0, SIZE * 2), read(5, SIZE), read(3, 0)], [SIZE, SIZE - 5, 0]);
        assert_eq!([read(0, 20_000), read(0, 16 << 10), read(SIZE as u64, 9)], [20_000, 16 << 10, 0]);
        assert!(is_cold_in_time(&file, || read_through(file.as_fd(), 0, SIZE, Wait::Never).is_err()));
        read(0, SIZE);
        match read_through(file.as_fd(), 0, SIZE, Wait::Never) {
            Ok(size) => assert_eq!(size, SIZE),
            Err(error) => assert!(is(&error, Errno::OPNOTSUPP), "{error}"),
        }
    }

    #[test]
    fn a_file_is_read_past_the_cache_at_any_place() {
        let file = file("read-direct");
        let content: Vec<u8> = (0..10_000_u32).map(|at| (at / 7) as u8).collect();
        rustix::fs::ftruncate(&file, content.len() as u64).unwrap();
        rustix::io::pwrite(&file, &content, 0).unwrap();
        if bypass(file.as_fd()).is_err() {
            eprintln!("skipped: this file system always uses the cache");
            return;
        }
        for (offset, count) in [(0, 10_000), (0, 512), (511, 2), (4095, 4098), (9_999, 1), (512, 20_000)] {
            let read = read_direct(file.as_fd(), offset as u64, count, 4096).unwrap();
            assert_eq!(read, content[offset..content.len().min(offset + count)], "{offset} {count}");
        }
        assert!(read_direct(file.as_fd(), 10_000, 5, 4096).unwrap().is_empty());
        assert!(read_direct(file.as_fd(), 50_000, 5, 4096).unwrap().is_empty());
    }

    #[test]
    fn pages_are_counted_at_both_ends() {
        let size = rustix::param::page_size() as u64;
        assert_eq!([pages(0, 0), pages(7, 0), pages(0, 1), pages(size - 1, 1)], [0, 0, 1, 1]);
        assert_eq!([pages(size - 1, 2), pages(0, size + 1), pages(u64::MAX, 5)], [2, 2, 1]);
    }

    #[test]
    fn a_file_goes_out_from_an_offset() {
        let file = file("send");
        let (to, from) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(send(to.as_fd(), file.as_fd(), SIZE as u64 - 5, 100).unwrap(), 5);
        assert_eq!(send(to.as_fd(), file.as_fd(), SIZE as u64, 100).unwrap(), 0);
        let mut buf = Vec::with_capacity(10);
        assert_eq!(crate::socket::recv_into(from.as_fd(), &mut buf).unwrap(), 5);
    }
}
