//! poll(2), for the threads that wait for a few descriptors now and then and run no loop.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// Waits until one of `fds` can be read or has been hung up, at most `limit` (none: for ever). Tells of
/// each whether it is so: none of them when the time is over. A signal ends no wait. **Blocks.**
///
/// # Errors
/// As poll(2), except EINTR; `InvalidInput` for a descriptor that is not open.
pub fn wait(fds: &[BorrowedFd<'_>], limit: Option<Duration>) -> io::Result<Vec<bool>> {
    // A limit beyond what the clock can tell is none.
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    loop {
        let left = end.map(|end| timespec(end.saturating_duration_since(Instant::now())));
        match rustix::event::poll(&mut polled, left.as_ref()) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if polled.iter().any(|fd| fd.revents().contains(PollFlags::NVAL)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor that is not open"));
    }
    Ok(polled.iter().map(|fd| !fd.revents().is_empty()).collect())
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn tells_what_can_be_read_and_what_was_hung_up() {
        let ((quiet, _other), (mut from, to)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let fds = [quiet.as_fd(), to.as_fd()];
        assert_eq!(wait(&fds, Some(Duration::ZERO)).unwrap(), [false, false]);
        from.write_all(b"x").unwrap();
        assert_eq!(wait(&fds, None).unwrap(), [false, true]);
        let (from, to) = UnixStream::pair().unwrap();
        drop(from);
        assert_eq!(wait(&[to.as_fd()], Some(Duration::MAX)).unwrap(), [true]);
    }

    #[test]
    fn the_limit_is_a_lower_bound() {
        let (before, limit) = (Instant::now(), Duration::from_millis(20));
        assert_eq!(wait(&[], Some(limit)).unwrap(), []);
        assert!(before.elapsed() >= limit);
    }
}
