//! The messages of a master and a worker process over their socket pair: orders one way, reports the other.
//! Both ends block and belong to main threads, which run no loop.
//!
//! A frame is its length, the number of descriptors that ride on it, and its content. Both ends are
//! the same program; a frame that cannot be read all the same ends the connection.

use std::ffi::{CString, OsString};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use bytes::{Buf, Bytes};
use clearway_base::log::Level;
use clearway_os::channel::{self, FDS_PER_MESSAGE_MAX};
use clearway_os::users::User;

use crate::core_conf::Duty;
use crate::options::{DefaultErrorLog, Options};

/// Bytes before the content of a frame: its length and its descriptors, 32 bits each.
const HEAD_BYTES: usize = 8;

/// A listening socket on its way to a worker, in the order of the snapshot's sockets.
#[derive(Debug)]
pub(crate) struct HandedSocket {
    /// The address as in messages, to be compared with what the worker reads in the configuration.
    pub(crate) address: String,
    /// Changes when the descriptors are of other sockets than before.
    pub(crate) serial: u64,
    /// A socket for each loop of the worker, or one for all of them.
    pub(crate) kind: SocketKind,
    /// The sockets.
    pub(crate) fds: Vec<OwnedFd>,
}

/// How loops share the sockets of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// All accept from one.
    Shared,
    /// Each has its own (`reuseport`).
    PerLoop,
}

/// A shared zone on its way to a worker.
#[derive(Debug)]
pub(crate) struct HandedZone {
    pub(crate) name: Vec<u8>,
    pub(crate) module: String,
    pub(crate) bytes: u64,
    pub(crate) fd: OwnedFd,
}

/// A configuration that the master has read and checked, with all that it has opened for it.
#[derive(Debug)]
pub(crate) struct Handover {
    /// Counts configurations from 1 on, over the life of the master.
    pub(crate) number: u64,
    /// What the process is there for.
    pub(crate) duty: Duty,
    /// The command line of the master.
    pub(crate) options: Options,
    /// The same by its words, the program's name first.
    pub(crate) words: Vec<Vec<u8>>,
    /// The user that the worker runs as; absent where it keeps its own.
    pub(crate) user: Option<User>,
    /// The port of a server without `listen`.
    pub(crate) default_port: u16,
    /// The configuration file and what it includes.
    pub(crate) files: Vec<(PathBuf, Bytes)>,
    pub(crate) sockets: Vec<HandedSocket>,
    pub(crate) logs: Vec<(PathBuf, OwnedFd)>,
    pub(crate) zones: Vec<HandedZone>,
    /// Names of the configuration, with what the system has said of them.
    pub(crate) names: Vec<(String, Vec<SocketAddr>)>,
    /// Files that directives name, as they were read.
    pub(crate) kept_files: Vec<(PathBuf, Bytes)>,
    /// The key for tickets of TLS, if no file has one.
    pub(crate) ticket_key: Vec<u8>,
}

/// An order of the master.
#[derive(Debug)]
pub(crate) enum Order {
    /// Build this configuration and say `Ready` or `Failed`.
    Load(Box<Handover>),
    /// Run the code of this configuration that runs when it comes into use, say `Ready` or `Failed`, and end.
    Try(Box<Handover>),
    /// Use the configuration that was built last.
    Commit,
    /// Forget it.
    Abort,
    /// Write to these files from now on.
    Reopen(Vec<(PathBuf, OwnedFd)>),
    /// Finish what is under way, and end.
    Quit {
        /// Serial numbers of the sockets that nobody will listen on any more.
        removed: Vec<u64>,
    },
    /// End at once.
    Terminate,
}

/// A report of a worker.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The configuration is built.
    Ready {
        /// The identities of its loops.
        identities: Vec<u32>,
        /// Its code wants a privileged agent, which may have so many connections.
        agent: Option<u32>,
    },
    /// The configuration cannot be built.
    Failed { level: Level, text: Vec<u8> },
    /// The loops of a configuration with these identities are not used any more.
    Gone { identities: Vec<u32> },
}

impl Order {
    const LOAD: u8 = 1;
    const COMMIT: u8 = 2;
    const ABORT: u8 = 3;
    const REOPEN: u8 = 4;
    const QUIT: u8 = 5;
    const TERMINATE: u8 = 6;
    const TRY: u8 = 7;

    /// Sends it. **Blocks** while the worker reads nothing.
    ///
    /// # Errors
    /// As sendmsg(2): the worker is gone.
    pub(crate) fn send(&self, to: BorrowedFd<'_>) -> io::Result<()> {
        let mut frame = Frame::default();
        match self {
            Self::Load(handover) => {
                frame.tag(Self::LOAD);
                handover.put(&mut frame);
            }
            Self::Try(handover) => {
                frame.tag(Self::TRY);
                handover.put(&mut frame);
            }
            Self::Commit => frame.tag(Self::COMMIT),
            Self::Abort => frame.tag(Self::ABORT),
            Self::Reopen(logs) => {
                frame.tag(Self::REOPEN);
                frame.list(logs, put_log);
            }
            Self::Quit { removed } => {
                frame.tag(Self::QUIT);
                frame.list(removed, |frame, serial| frame.number(*serial));
            }
            Self::Terminate => frame.tag(Self::TERMINATE),
        }
        frame.send(to)
    }

    fn read(content: Content) -> Option<Self> {
        let mut content = content;
        Some(match content.tag()? {
            Self::LOAD => Self::Load(Box::new(Handover::read(&mut content)?)),
            Self::TRY => Self::Try(Box::new(Handover::read(&mut content)?)),
            Self::COMMIT => Self::Commit,
            Self::ABORT => Self::Abort,
            Self::REOPEN => Self::Reopen(content.list(read_log)?),
            Self::QUIT => Self::Quit { removed: content.list(Content::number)? },
            Self::TERMINATE => Self::Terminate,
            _ => return None,
        })
    }
}

impl Report {
    const READY: u8 = 1;
    const FAILED: u8 = 2;
    const GONE: u8 = 3;

    /// Sends it. **Blocks** while the master reads nothing.
    ///
    /// # Errors
    /// As sendmsg(2): the master is gone.
    pub(crate) fn send(&self, to: BorrowedFd<'_>) -> io::Result<()> {
        let mut frame = Frame::default();
        let identity = |frame: &mut Frame<'_>, number: &u32| frame.number(u64::from(*number));
        match self {
            Self::Ready { identities, agent } => {
                frame.tag(Self::READY);
                frame.list(identities, identity);
                frame.list(agent.as_slice(), identity);
            }
            Self::Failed { level, text } => {
                frame.tag(Self::FAILED);
                frame.bytes(level.as_str().as_bytes());
                frame.bytes(text);
            }
            Self::Gone { identities } => {
                frame.tag(Self::GONE);
                frame.list(identities, identity);
            }
        }
        frame.send(to)
    }

    fn read(content: Content) -> Option<Self> {
        let mut content = content;
        let identity = |content: &mut Content| u32::try_from(content.number()?).ok();
        Some(match content.tag()? {
            Self::READY => {
                Self::Ready { identities: content.list(identity)?, agent: content.list(identity)?.pop() }
            }
            Self::FAILED => {
                Self::Failed { level: Level::from_name(&content.bytes()?)?, text: content.bytes()? }
            }
            Self::GONE => Self::Gone { identities: content.list(identity)? },
            _ => return None,
        })
    }
}

impl Handover {
    fn put<'a>(&'a self, frame: &mut Frame<'a>) {
        debug_assert!(self.number > 0, "configurations are counted from 1 on");
        frame.number(self.number);
        match self.duty {
            Duty::Group(group) => {
                frame.tag(0);
                frame.number(group as u64);
            }
            Duty::Agent { connections } => {
                frame.tag(1);
                frame.number(u64::from(connections));
            }
        }
        frame.path(&self.options.prefix);
        frame.path(&self.options.conf);
        frame.path(match &self.options.error_log {
            DefaultErrorLog::Stderr => Path::new(""),
            DefaultErrorLog::File(path) => path,
        });
        frame.bytes(&self.options.params);
        frame.list(&self.words, |frame, word| frame.bytes(word));
        frame.list(self.user.as_slice(), |frame, user| {
            frame.bytes(user.name.to_bytes());
            frame.number(u64::from(user.uid));
            frame.number(u64::from(user.gid));
        });
        frame.number(u64::from(self.default_port));
        frame.list(&self.files, put_file);
        frame.list(&self.sockets, |frame, socket| {
            frame.bytes(socket.address.as_bytes());
            frame.number(socket.serial);
            debug_assert!(!socket.fds.is_empty(), "an address has a socket");
            debug_assert!(
                socket.kind == SocketKind::PerLoop || socket.fds.len() == 1,
                "loops that share have one socket"
            );
            frame.tag(u8::from(socket.kind == SocketKind::PerLoop));
            frame.list(&socket.fds, Frame::fd);
        });
        frame.list(&self.logs, put_log);
        frame.list(&self.zones, |frame, zone| {
            frame.bytes(&zone.name);
            frame.bytes(zone.module.as_bytes());
            frame.number(zone.bytes);
            frame.fd(&zone.fd);
        });
        frame.list(&self.names, |frame, (name, addresses)| {
            frame.bytes(name.as_bytes());
            frame.list(addresses, |frame, address| frame.bytes(address.to_string().as_bytes()));
        });
        frame.list(&self.kept_files, put_file);
        frame.bytes(&self.ticket_key);
    }

    fn read(content: &mut Content) -> Option<Self> {
        Some(Self {
            number: content.number()?,
            duty: match (content.tag()?, content.number()?) {
                (0, group) => Duty::Group(usize::try_from(group).ok()?),
                (_, connections) => Duty::Agent { connections: u32::try_from(connections).ok()? },
            },
            options: Options {
                prefix: content.path()?,
                conf: content.path()?,
                error_log: match content.path()? {
                    path if path.as_os_str().is_empty() => DefaultErrorLog::Stderr,
                    path => DefaultErrorLog::File(path),
                },
                params: content.bytes()?,
            },
            words: content.list(Content::bytes)?,
            user: content.list(read_user)?.pop(),
            default_port: u16::try_from(content.number()?).ok()?,
            files: content.list(read_file)?,
            sockets: content.list(|content| {
                Some(HandedSocket {
                    address: String::from_utf8(content.bytes()?).ok()?,
                    serial: content.number()?,
                    kind: if content.tag()? == 0 { SocketKind::Shared } else { SocketKind::PerLoop },
                    fds: content.list(Content::fd)?,
                })
            })?,
            logs: content.list(read_log)?,
            zones: content.list(|content| {
                Some(HandedZone {
                    name: content.bytes()?,
                    module: String::from_utf8(content.bytes()?).ok()?,
                    bytes: content.number()?,
                    fd: content.fd()?,
                })
            })?,
            names: content.list(|content| {
                let name = String::from_utf8(content.bytes()?).ok()?;
                let address = |content: &mut Content| String::from_utf8(content.bytes()?).ok()?.parse().ok();
                Some((name, content.list(address)?))
            })?,
            kept_files: content.list(read_file)?,
            ticket_key: content.bytes()?,
        })
    }
}

fn read_user(content: &mut Content) -> Option<User> {
    let id = |content: &mut Content| u32::try_from(content.number()?).ok();
    Some(User { name: CString::new(content.bytes()?).ok()?, uid: id(content)?, gid: id(content)? })
}

fn put_file<'a>(frame: &mut Frame<'a>, (path, content): &'a (PathBuf, Bytes)) {
    frame.path(path);
    frame.bytes(content);
}

fn read_file(content: &mut Content) -> Option<(PathBuf, Bytes)> {
    Some((content.path()?, content.slice()?))
}

fn put_log<'a>(frame: &mut Frame<'a>, (path, file): &'a (PathBuf, OwnedFd)) {
    frame.path(path);
    frame.fd(file);
}

fn read_log(content: &mut Content) -> Option<(PathBuf, OwnedFd)> {
    Some((content.path()?, content.fd()?))
}

/// A frame being written.
struct Frame<'a> {
    /// With room for the head.
    bytes: Vec<u8>,
    fds: Vec<BorrowedFd<'a>>,
}

impl Default for Frame<'_> {
    fn default() -> Self {
        Self { bytes: vec![0; HEAD_BYTES], fds: Vec::new() }
    }
}

impl<'a> Frame<'a> {
    fn tag(&mut self, tag: u8) {
        self.bytes.push(tag);
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn path(&mut self, path: &Path) {
        self.bytes(path.as_os_str().as_bytes());
    }

    /// Leaves a byte in the content, so that there are never more descriptors than bytes.
    fn fd(&mut self, fd: &'a OwnedFd) {
        self.bytes.push(0);
        self.fds.push(fd.as_fd());
        debug_assert!(self.fds.len() <= self.bytes.len() - HEAD_BYTES, "each descriptor has a byte");
    }

    fn list<T>(&mut self, list: &'a [T], put: impl Fn(&mut Self, &'a T)) {
        self.number(list.len() as u64);
        list.iter().for_each(|item| put(self, item));
    }

    fn send(mut self, to: BorrowedFd<'_>) -> io::Result<()> {
        assert!(self.bytes.len() > HEAD_BYTES, "a frame has a content");
        assert!(self.fds.len() <= self.bytes.len() - HEAD_BYTES, "each descriptor has a byte in the content");
        let length = |n: usize| u32::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
        let content = length(self.bytes.len() - HEAD_BYTES)?;
        self.bytes[..4].copy_from_slice(&content.to_le_bytes());
        self.bytes[4..HEAD_BYTES].copy_from_slice(&length(self.fds.len())?.to_le_bytes());
        // Descriptors ride on first bytes; where there are many of them, on several.
        let mut rest = &self.bytes[..];
        let mut groups = self.fds.chunks(FDS_PER_MESSAGE_MAX).peekable();
        while let Some(group) = groups.next() {
            let (now, later) = rest.split_at(if groups.peek().is_some() { 1 } else { rest.len() });
            debug_assert!(!now.is_empty(), "descriptors ride on bytes");
            channel::send(to, now, group)?;
            rest = later;
        }
        if rest.is_empty() { Ok(()) } else { channel::send(to, rest, &[]) }
    }
}

/// A frame being read.
struct Content {
    bytes: Bytes,
    fds: std::vec::IntoIter<OwnedFd>,
}

impl Content {
    fn tag(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(*self.take(8)?.first_chunk()?))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        Some(self.slice()?.into())
    }

    /// Bytes that stay where they are: the text of a configuration may be long.
    fn slice(&mut self) -> Option<Bytes> {
        let length = usize::try_from(self.number()?).ok()?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Option<Bytes> {
        (length <= self.bytes.len()).then(|| self.bytes.split_to(length))
    }

    fn path(&mut self) -> Option<PathBuf> {
        Some(PathBuf::from(OsString::from_vec(self.bytes()?)))
    }

    fn fd(&mut self) -> Option<OwnedFd> {
        self.take(1)?;
        self.fds.next()
    }

    fn list<T>(&mut self, read: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        (0..count).map(|_| read(self)).collect()
    }
}

/// The receiving side of a channel: what has arrived and is no frame yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Inbox {
    /// Reads what is there. **Blocks** if that is nothing. `false`: the other side is gone.
    ///
    /// # Errors
    /// As recvmsg(2).
    pub(crate) fn fill(&mut self, from: BorrowedFd<'_>) -> io::Result<bool> {
        let before = self.bytes.len();
        match channel::receive(from, &mut self.bytes, &mut self.fds) {
            Ok(received) => {
                debug_assert_eq!(self.bytes.len(), before + received, "what has come is behind the rest");
                Ok(received > 0)
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The next order, if it has arrived whole.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn order(&mut self) -> io::Result<Option<Order>> {
        self.next(Order::read)
    }

    /// The next report, if it has arrived whole.
    ///
    /// # Errors
    /// When it is none.
    pub(crate) fn report(&mut self) -> io::Result<Option<Report>> {
        self.next(Report::read)
    }

    fn next<T>(&mut self, read: impl FnOnce(Content) -> Option<T>) -> io::Result<Option<T>> {
        let Some((head, content)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, fds) = (number(0) as usize, number(4) as usize);
        if content.len() < length || self.fds.len() < fds {
            // Room for all of it, once.
            let missing = length.saturating_sub(content.len());
            self.bytes.reserve(missing + channel::RECEIVE_BYTES_MAX);
            return Ok(None);
        }
        let behind = self.bytes.split_off(HEAD_BYTES + length);
        let mut bytes = Bytes::from(std::mem::replace(&mut self.bytes, behind));
        bytes.advance(HEAD_BYTES);
        debug_assert_eq!(bytes.len(), length, "a frame is read as a whole");
        let before = self.fds.len();
        let fds: Vec<OwnedFd> = self.fds.drain(..fds).collect();
        debug_assert_eq!(self.fds.len() + fds.len(), before, "each descriptor belongs to one frame");
        let content = Content { bytes, fds: fds.into_iter() };
        read(content).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};

    /// A file that holds one number.
    fn file(number: usize) -> OwnedFd {
        let (_, fd) = clearway_os::shared_memory::SharedMemory::create("test", 8).unwrap();
        let mut file = std::fs::File::from(fd);
        file.write_all(&number.to_le_bytes()).unwrap();
        file.into()
    }

    fn number_in(fd: OwnedFd) -> usize {
        let mut file = std::fs::File::from(fd);
        let mut bytes = [0; 8];
        file.rewind().unwrap();
        file.read_exact(&mut bytes).unwrap();
        usize::from_le_bytes(bytes)
    }

    fn handover() -> Handover {
        let shared = HandedSocket {
            address: "127.0.0.1:80".to_owned(),
            serial: 7,
            kind: SocketKind::Shared,
            fds: vec![file(0)],
        };
        let per_loop = HandedSocket {
            address: "[::1]:80".to_owned(),
            serial: 8,
            kind: SocketKind::PerLoop,
            fds: (1..=600).map(file).collect(),
        };
        Handover {
            number: 3,
            duty: Duty::Agent { connections: 2 },
            options: Options {
                prefix: "/p/".into(),
                conf: "/p/c".into(),
                error_log: DefaultErrorLog::File("/p/e".into()),
                params: b"daemon off;".to_vec(),
            },
            words: vec![b"clearway".to_vec(), b"-c".to_vec(), Vec::new()],
            user: Some(User { name: c"nobody".into(), uid: 65_534, gid: 1 }),
            default_port: 8000,
            files: vec![("/p/c".into(), vec![b'x'; 300_000].into()), ("/p/d\n".into(), Bytes::new())],
            sockets: vec![shared, per_loop],
            logs: vec![("/l".into(), file(601))],
            zones: vec![HandedZone { name: b"z".to_vec(), module: "m".to_owned(), bytes: 8, fd: file(602) }],
            names: vec![(
                "a.example".to_owned(),
                vec![([10, 0, 0, 1], 0).into(), "[::1]:0".parse().unwrap()],
            )],
            kept_files: vec![("/k".into(), b"secret".to_vec().into())],
            ticket_key: b"key".to_vec(),
        }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test with two sides")]
    fn a_handover_arrives_whole_with_all_descriptors_in_order() {
        let (ours, theirs) = channel::pair().unwrap();
        // The message is larger than a socket's buffer: both sides have to be at work.
        let sender = std::thread::spawn(move || {
            Order::Load(Box::new(handover())).send(ours.as_fd()).unwrap();
            Order::Commit.send(ours.as_fd()).unwrap();
        });
        let mut inbox = Inbox::default();
        let mut next = || loop {
            if let Some(order) = inbox.order().unwrap() {
                return order;
            }
            assert!(inbox.fill(theirs.as_fd()).unwrap(), "the channel ends too early");
        };
        let Order::Load(got) = next() else { panic!("not a configuration") };
        assert!(matches!(next(), Order::Commit));
        sender.join().unwrap();
        assert!(!inbox.fill(theirs.as_fd()).unwrap());
        let sent = handover();
        assert_eq!((got.number, got.options, got.user), (sent.number, sent.options, sent.user));
        assert_eq!((got.default_port, got.files), (sent.default_port, sent.files));
        assert_eq!((got.names, got.kept_files), (sent.names, sent.kept_files));
        assert_eq!(got.words, sent.words);
        assert_eq!((got.duty, got.ticket_key), (sent.duty, sent.ticket_key));
        let kinds: Vec<_> = got.sockets.iter().map(|s| (&*s.address, s.serial, s.kind)).collect();
        assert_eq!(kinds, [("127.0.0.1:80", 7, SocketKind::Shared), ("[::1]:80", 8, SocketKind::PerLoop)]);
        let zones: Vec<_> = got.zones.iter().map(|z| (&z.name[..], &*z.module, z.bytes)).collect();
        assert_eq!(zones, [(&b"z"[..], "m", 8)]);
        let fds = got.sockets.into_iter().flat_map(|socket| socket.fds);
        let fds =
            fds.chain(got.logs.into_iter().map(|(_, fd)| fd)).chain(got.zones.into_iter().map(|z| z.fd));
        assert!(fds.map(number_in).eq(0..=602));
    }

    #[test]
    fn reports_arrive_as_they_were() {
        let (ours, theirs) = channel::pair().unwrap();
        let reports = [
            Report::Ready { identities: vec![1, 2, u32::MAX], agent: Some(0) },
            Report::Ready { identities: Vec::new(), agent: None },
            Report::Failed { level: Level::Crit, text: b"\xff".to_vec() },
            Report::Gone { identities: Vec::new() },
        ];
        reports.iter().for_each(|report| report.send(ours.as_fd()).unwrap());
        let mut inbox = Inbox::default();
        for report in reports {
            let got = loop {
                if let Some(got) = inbox.report().unwrap() {
                    break got;
                }
                assert!(inbox.fill(theirs.as_fd()).unwrap());
            };
            assert_eq!(got, report);
        }
    }

    #[test]
    fn what_is_no_frame_is_an_error() {
        let (ours, theirs) = channel::pair().unwrap();
        channel::send(ours.as_fd(), &[1, 0, 0, 0, 0, 0, 0, 0, 99], &[]).unwrap();
        let mut inbox = Inbox::default();
        assert!(inbox.fill(theirs.as_fd()).unwrap());
        assert_eq!(inbox.order().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
