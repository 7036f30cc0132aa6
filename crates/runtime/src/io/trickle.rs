//! Sockets of tests, over which bytes trickle: one for each event, as OpenResty's `mockeagain` has it, which
//! is told by the same variables of the environment. Without the feature `trickle` these are the calls of the
//! system, at no cost. The task that reads, or writes, the socket.
//!
//! 1. `MOCKEAGAIN=r`: a read takes one byte, and the next one finds nothing before the task was woken again.
//! 2. `MOCKEAGAIN=w`: a write takes one byte, and the next one finds no room before the task was woken again.
//! 3. `MOCKEAGAIN_WRITE_TIMEOUT_PATTERN`: behind these bytes there is never room again (with `w`).
//! 4. Files that the kernel sends, and datagrams, go as ever.

#[cfg(not(feature = "trickle"))]
pub(crate) use fast::Trickle;
#[cfg(feature = "trickle")]
pub(crate) use slow::Trickle;

#[cfg(not(feature = "trickle"))]
mod fast {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::os::fd::BorrowedFd;
    use std::task::{Context, Poll};

    use clearway_os::socket as sys;

    #[derive(Clone, Copy)]
    pub(crate) struct Trickle;

    impl Trickle {
        pub(crate) fn new() -> Self {
            Self
        }

        #[inline]
        pub(crate) fn poll_read(self, _: &Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        #[inline]
        pub(crate) fn poll_write(self, _: &Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }

        #[inline]
        pub(crate) fn room(self, room: usize) -> usize {
            room
        }

        #[inline]
        pub(crate) fn recv_into(self, fd: BorrowedFd<'_>, buf: &mut Vec<u8>) -> io::Result<usize> {
            sys::recv_into(fd, buf)
        }

        #[inline]
        pub(crate) fn readv(self, fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            sys::readv(fd, bufs)
        }

        #[inline]
        pub(crate) fn send(self, fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
            sys::send(fd, buf)
        }

        #[inline]
        pub(crate) fn send_more(self, fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
            sys::send_more(fd, buf)
        }

        #[inline]
        pub(crate) fn writev(self, fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
            sys::writev(fd, bufs)
        }
    }
}

#[cfg(feature = "trickle")]
mod slow {
    use std::io::{self, IoSlice, IoSliceMut};
    use std::os::fd::BorrowedFd;
    use std::os::unix::ffi::OsStringExt;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{LazyLock, Mutex, PoisonError};
    use std::task::{Context, Poll};

    use clearway_os::socket as sys;

    /// The environment's wishes.
    struct Mode {
        reads: bool,
        writes: bool,
        /// Rule 3; empty: nothing.
        pattern: Vec<u8>,
    }

    static MODE: LazyLock<Option<Mode>> = LazyLock::new(|| {
        let value = |name| std::env::var_os(name).map(OsStringExt::into_vec).unwrap_or_default();
        let asked = value("MOCKEAGAIN").to_ascii_lowercase();
        let (reads, writes) = (asked.contains(&b'r'), asked.contains(&b'w'));
        let pattern = value("MOCKEAGAIN_WRITE_TIMEOUT_PATTERN");
        (reads || writes).then_some(Mode { reads, writes, pattern })
    });

    /// See the file's head.
    pub(crate) struct Trickle {
        mode: Option<&'static Mode>,
        has_read: AtomicBool,
        has_written: AtomicBool,
        /// The last bytes that were written.
        tail: Mutex<Vec<u8>>,
    }

    impl Trickle {
        pub(crate) fn new() -> Self {
            Self {
                mode: MODE.as_ref(),
                has_read: AtomicBool::new(false),
                has_written: AtomicBool::new(false),
                tail: Mutex::default(),
            }
        }

        pub(crate) fn poll_read(&self, cx: &Context<'_>) -> Poll<()> {
            self.poll_next(&self.has_read, cx)
        }

        pub(crate) fn poll_write(&self, cx: &Context<'_>) -> Poll<()> {
            if let Some(mode) = self.mode
                && !mode.pattern.is_empty()
                && *self.tail.lock().unwrap_or_else(PoisonError::into_inner) == mode.pattern
            {
                return Poll::Pending;
            }
            self.poll_next(&self.has_written, cx)
        }

        /// Rules 1 and 2.
        fn poll_next(&self, has_moved: &AtomicBool, cx: &Context<'_>) -> Poll<()> {
            if self.mode.is_some() && has_moved.swap(false, Ordering::Relaxed) {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        }

        /// How much a read takes where there is so much room.
        pub(crate) fn room(&self, room: usize) -> usize {
            if self.has(|mode| mode.reads) { room.min(1) } else { room }
        }

        fn has(&self, what: impl Fn(&Mode) -> bool) -> bool {
            self.mode.is_some_and(what)
        }

        pub(crate) fn recv_into(&self, fd: BorrowedFd<'_>, buf: &mut Vec<u8>) -> io::Result<usize> {
            if !self.has(|mode| mode.reads) {
                return sys::recv_into(fd, buf);
            }
            let mut byte = [0_u8; 1];
            let size = self.read(sys::recv(fd, &mut byte))?;
            buf.extend_from_slice(&byte[..size]);
            Ok(size)
        }

        pub(crate) fn readv(&self, fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            match bufs.iter_mut().find(|buf| !buf.is_empty()) {
                Some(first) if self.has(|mode| mode.reads) => self.read(sys::recv(fd, &mut first[..1])),
                _ => sys::readv(fd, bufs),
            }
        }

        fn read(&self, done: io::Result<usize>) -> io::Result<usize> {
            self.has_read.store(done.is_ok(), Ordering::Relaxed);
            done
        }

        pub(crate) fn send(&self, fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
            if !self.has(|mode| mode.writes) || buf.is_empty() {
                return sys::send(fd, buf);
            }
            let sent = sys::send(fd, &buf[..1]);
            self.has_written.store(sent.is_ok(), Ordering::Relaxed);
            let most = self.mode.map_or(0, |mode| mode.pattern.len());
            if sent.is_ok() && most > 0 {
                let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
                if tail.len() == most {
                    tail.remove(0);
                }
                tail.push(buf[0]);
            }
            sent
        }

        pub(crate) fn send_more(&self, fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
            if self.has(|mode| mode.writes) { self.send(fd, buf) } else { sys::send_more(fd, buf) }
        }

        pub(crate) fn writev(&self, fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
            match bufs.iter().find(|buf| !buf.is_empty()) {
                Some(first) if self.has(|mode| mode.writes) => self.send(fd, first),
                _ => sys::writev(fd, bufs),
            }
        }
    }
}
