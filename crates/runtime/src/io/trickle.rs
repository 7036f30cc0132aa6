//! Sockets of tests, over which bytes trickle: one for each event, as OpenResty's `mockeagain` has it, which
//! is told by the same variables of the environment. Without the feature `chaos` these are the calls of the
//! system, at no cost. The task that reads, or writes, the socket.
//!
//! 1. `MOCKEAGAIN=r`: a read takes one byte, and the next one finds nothing before the task was woken again.
//! 2. `MOCKEAGAIN=w`: a write takes one byte, and the next one finds no room before the task was woken again.
//! 3. `MOCKEAGAIN_WRITE_TIMEOUT_PATTERN`: behind these bytes there is never room again (with `w`).
//! 4. Files that the kernel sends, and datagrams, go as ever.

#[cfg(not(feature = "chaos"))]
pub(crate) use fast::Trickle;
#[cfg(feature = "chaos")]
pub(crate) use slow::Trickle;

/// Bytes that builds for tests add to a socket; 0 in others.
pub const TRICKLE_BYTES: usize = size_of::<Trickle>();

#[cfg(not(feature = "chaos"))]
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

#[cfg(feature = "chaos")]
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

    /// The trickle of one socket, if a test wishes for one: the box keeps other connections small.
    pub(crate) struct Trickle(Option<Box<Dripping>>);

    struct Dripping {
        mode: &'static Mode,
        has_read: AtomicBool,
        has_written: AtomicBool,
        /// The last bytes that were written.
        tail: Mutex<Vec<u8>>,
    }

    impl Trickle {
        pub(crate) fn new() -> Self {
            Self(MODE.as_ref().map(|mode| {
                Box::new(Dripping {
                    mode,
                    has_read: AtomicBool::new(false),
                    has_written: AtomicBool::new(false),
                    tail: Mutex::default(),
                })
            }))
        }

        pub(crate) fn poll_read(&self, cx: &Context<'_>) -> Poll<()> {
            self.poll_next(|dripping| &dripping.has_read, cx)
        }

        pub(crate) fn poll_write(&self, cx: &Context<'_>) -> Poll<()> {
            if let Some(Dripping { mode, tail, .. }) = self.0.as_deref()
                && !mode.pattern.is_empty()
                && *tail.lock().unwrap_or_else(PoisonError::into_inner) == mode.pattern
            {
                return Poll::Pending;
            }
            self.poll_next(|dripping| &dripping.has_written, cx)
        }

        /// Rules 1 and 2.
        fn poll_next(&self, has_moved: fn(&Dripping) -> &AtomicBool, cx: &Context<'_>) -> Poll<()> {
            if let Some(dripping) = self.0.as_deref()
                && has_moved(dripping).swap(false, Ordering::Relaxed)
            {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        }

        /// How much a read takes where there is so much room.
        pub(crate) fn room(&self, room: usize) -> usize {
            if self.reader().is_some() { room.min(1) } else { room }
        }

        /// The reader byte by byte, if it is on.
        fn reader(&self) -> Option<&Dripping> {
            self.0.as_deref().filter(|dripping| dripping.mode.reads)
        }

        /// The writer byte by byte, if it is on.
        fn writer(&self) -> Option<&Dripping> {
            self.0.as_deref().filter(|dripping| dripping.mode.writes)
        }

        pub(crate) fn recv_into(&self, fd: BorrowedFd<'_>, buf: &mut Vec<u8>) -> io::Result<usize> {
            let Some(reader) = self.reader() else { return sys::recv_into(fd, buf) };
            let mut byte = [0_u8; 1];
            let size = reader.note_read(sys::recv(fd, &mut byte))?;
            buf.extend_from_slice(&byte[..size]);
            Ok(size)
        }

        pub(crate) fn readv(&self, fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
            match (self.reader(), bufs.iter_mut().find(|buf| !buf.is_empty())) {
                (Some(reader), Some(first)) => reader.note_read(sys::recv(fd, &mut first[..1])),
                _ => sys::readv(fd, bufs),
            }
        }

        pub(crate) fn send(&self, fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
            match self.writer().zip(buf.first()) {
                Some((writer, &byte)) => writer.note_written(sys::send(fd, &buf[..1]), byte),
                None => sys::send(fd, buf),
            }
        }

        pub(crate) fn send_more(&self, fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
            if self.writer().is_some() { self.send(fd, buf) } else { sys::send_more(fd, buf) }
        }

        pub(crate) fn writev(&self, fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
            match bufs.iter().find(|buf| !buf.is_empty()) {
                Some(first) if self.writer().is_some() => self.send(fd, first),
                _ => sys::writev(fd, bufs),
            }
        }
    }

    impl Dripping {
        fn note_read(&self, done: io::Result<usize>) -> io::Result<usize> {
            self.has_read.store(done.is_ok(), Ordering::Relaxed);
            done
        }

        fn note_written(&self, sent: io::Result<usize>, byte: u8) -> io::Result<usize> {
            self.has_written.store(sent.is_ok(), Ordering::Relaxed);
            let most = self.mode.pattern.len();
            if sent.is_ok() && most > 0 {
                let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
                if tail.len() == most {
                    tail.remove(0);
                }
                tail.push(byte);
            }
            sent
        }
    }
}
