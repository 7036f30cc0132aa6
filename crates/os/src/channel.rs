//! The connection between master and worker: a stream of bytes on which descriptors can travel. Its
//! calls block, so that it belongs to threads that run no loop. What a message is, and which of them
//! carry descriptors, is for the ends to agree on.
//!
//! Descriptors stay attached to the byte with which they were sent: the kernel ends a read before the next
//! byte that carries some. They arrive in order, never later than that byte.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors in one call of [`send`]. The kernel takes at most 253 (SCM_MAX_FD).
pub const FDS_PER_MESSAGE_MAX: usize = 250;

/// Bytes that one call of [`receive`] takes at most.
pub const RECEIVE_BYTES_MAX: usize = 64 * 1024;

/// Room for the control message of one read; the kernel lets more than SCM_MAX_FD into none.
const CONTROL_BYTES: usize = rustix::cmsg_space!(ScmRights(253));

/// The two ends of a new connection, blocking and close-on-exec.
///
/// # Errors
/// As socketpair(2).
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Sends all of `bytes`, and copies of `fds` with the first of them. A closed peer is EPIPE, never a
/// signal. **Blocks** until the peer has made room.
///
/// # Errors
/// As sendmsg(2), except EINTR; ETOOMANYREFS where as many descriptors travel as this process could open
/// files. `InvalidInput` for more than [`FDS_PER_MESSAGE_MAX`] descriptors, or some without a byte.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > FDS_PER_MESSAGE_MAX || (bytes.is_empty() && !fds.is_empty()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors for these bytes"));
    }
    let (mut rest, mut fds) = (bytes, fds);
    while !rest.is_empty() {
        let sent = rustix::io::retry_on_intr(|| send_once(fd, rest, fds))?;
        assert!(sent > 0 && sent <= rest.len(), "sendmsg() took {sent} of {} bytes", rest.len());
        rest = &rest[sent..];
        fds = &[];
    }
    Ok(())
}

fn send_once(to: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let fits = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(fits, "there is room for {FDS_PER_MESSAGE_MAX} descriptors");
    }
    rustix::net::sendmsg(to, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

/// Receives what is there, waiting for the first byte: appends at most [`RECEIVE_BYTES_MAX`] bytes and the
/// descriptors that came with them (close-on-exec), and returns the number of bytes; 0 is the end.
/// **Blocks.**
///
/// # Errors
/// As recvmsg(2), except EINTR. Where descriptors were lost on the way (this process may open no
/// more): `Other`; those that came are closed, and the connection is of no use any more.
pub fn receive(fd: BorrowedFd<'_>, bytes: &mut Vec<u8>, fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let old = bytes.len();
    bytes.resize(old + RECEIVE_BYTES_MAX, 0);
    let received = rustix::io::retry_on_intr(|| {
        let room = &mut [IoSliceMut::new(&mut bytes[old..])];
        rustix::net::recvmsg(fd, room, &mut control, RecvFlags::CMSG_CLOEXEC)
    });
    bytes.truncate(old + received.as_ref().map_or(0, |received| received.bytes));
    let received = received?;
    let before = fds.len();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        fds.truncate(before);
        bytes.truncate(old);
        return Err(io::Error::other("descriptors were lost: too many open files"));
    }
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd;

    use super::*;

    /// A descriptor whose file holds `text`.
    fn file_with(text: &str) -> OwnedFd {
        let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&fd, text.as_bytes()).unwrap();
        fd
    }

    fn text_of(fd: &OwnedFd) -> String {
        let mut text = [0; 64];
        let size = rustix::io::pread(fd, &mut text, 0).unwrap();
        String::from_utf8_lossy(&text[..size]).into_owned()
    }

    #[test]
    fn six_hundred_descriptors_arrive_in_order() {
        let (from, to) = pair().unwrap();
        let sent: Vec<OwnedFd> = (0..6).map(|i| file_with(&i.to_string())).collect();
        let list: Vec<BorrowedFd<'_>> = (0..600).map(|i| sent[i % 6].as_fd()).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for (part, byte) in list.chunks(FDS_PER_MESSAGE_MAX).zip(b'a'..) {
                    send(from.as_fd(), &[byte, b'.'], part).unwrap();
                }
            });
            let (mut bytes, mut fds) = (Vec::new(), Vec::new());
            while bytes.len() < 6 {
                assert!(receive(to.as_fd(), &mut bytes, &mut fds).unwrap() > 0);
                // The descriptors of a message are there as soon as its first byte is.
                let messages = bytes.len().div_ceil(2);
                assert_eq!(fds.len(), (messages * FDS_PER_MESSAGE_MAX).min(600));
            }
            assert_eq!(bytes, b"a.b.c.");
            for (i, fd) in fds.iter().enumerate() {
                assert_eq!(text_of(fd), (i % 6).to_string());
                assert!(rustix::io::fcntl_getfd(fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
            }
        });
    }

    #[test]
    fn more_bytes_than_the_socket_holds_arrive_whole() {
        let (from, to) = pair().unwrap();
        let file = file_with("here");
        let message: Vec<u8> = (0..3_000_000_u32).map(|i| (i % 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                send(from.as_fd(), &message, &[file.as_fd()]).unwrap();
                send(from.as_fd(), b"", &[]).unwrap();
                drop(from);
            });
            let (mut bytes, mut fds) = (Vec::new(), Vec::new());
            while receive(to.as_fd(), &mut bytes, &mut fds).unwrap() > 0 {
                assert_eq!(fds.len(), 1);
            }
            assert!(bytes == message);
            assert_eq!(text_of(&fds[0]), "here");
        });
    }

    #[test]
    fn a_closed_peer_is_an_error_for_one_side_and_the_end_for_the_other() {
        let (one, two) = pair().unwrap();
        drop(two);
        assert_eq!(send(one.as_fd(), b"x", &[]).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        let (mut bytes, mut fds) = (b"kept".to_vec(), Vec::new());
        assert_eq!(receive(one.as_fd(), &mut bytes, &mut fds).unwrap(), 0);
        assert_eq!((bytes.as_slice(), fds.len()), (&b"kept"[..], 0));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_anything_is() {
        let (one, two) = pair().unwrap();
        let many = vec![one.as_fd(); FDS_PER_MESSAGE_MAX + 1];
        for (bytes, fds) in [(&b"x"[..], &many[..]), (&b""[..], &many[..1])] {
            assert_eq!(send(one.as_fd(), bytes, fds).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(crate::poll::wait(&[two.as_fd()], Some(std::time::Duration::ZERO)).unwrap(), [false]);
        std::os::unix::net::UnixStream::from(one).write_all(b"y").unwrap();
        let (mut bytes, mut fds) = (Vec::new(), Vec::new());
        assert_eq!(receive(two.as_fd(), &mut bytes, &mut fds).unwrap(), 1);
    }
}
