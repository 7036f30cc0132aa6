//! Names of files as a location looks them up: on the loop where the kernel has them in memory, else on a
//! thread of a pool; with symbolic links or without (`disable_symlinks`).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clearway_http::View;
use clearway_offload::Blocking;
use clearway_offload::files::{Attempt, Files, Opened};
use clearway_os::open::{Access, How, Links};
use clearway_os::stat::Stat;
use rustix::io::Errno as Code;

use crate::content::disable_symlinks::{LinkRule, rule};

/// How a location looks up one name.
#[derive(Clone, Copy)]
pub(crate) struct Lookup {
    files: Files,
    links: LinkRule,
}

/// A call on a name that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// As nginx writes it.
    pub(crate) call: &'static str,
    pub(crate) error: io::Error,
}

/// The calls that fail, as nginx writes them.
const OPEN: &str = "open()";
const OPENAT: &str = "openat()";
const STAT: &str = "stat()";

type Answer<T> = Result<T, Failed>;

impl Lookup {
    /// How the location of the request looks up `path`.
    pub(crate) fn of(view: &View<'_, '_>, path: &[u8]) -> Self {
        let files = Files::new(view.request.location().core.sending.files_mode());
        Self { files, links: rule(view, path) }
    }

    /// How symbolic links are treated.
    pub(crate) fn rule(self) -> LinkRule {
        self.links
    }

    /// Whether symbolic links are followed, so that nothing but the name decides what is found.
    pub(crate) fn follows_links(self) -> bool {
        matches!(self.links, LinkRule::Follow)
    }

    /// Opens a file for reading, unless that may wait.
    pub(crate) fn open(self, path: &[u8]) -> Attempt<Answer<Opened>> {
        self.walk(path, &mut OnLoop(self.files))
    }

    /// Opens a file for reading. **Blocks.**
    pub(crate) fn open_blocking(self, blocking: &Blocking, path: &[u8]) -> Answer<Opened> {
        match self.walk(path, &mut OnPool(self.files, blocking)) {
            Attempt::Done(found) => found,
            Attempt::Cold => unreachable!("a pool thread waits"),
        }
    }

    /// The status of the file with this name, unless finding it may wait.
    pub(crate) fn stat(self, path: &[u8]) -> Attempt<Answer<Stat>> {
        if !self.follows_links() {
            return match self.open(path) {
                Attempt::Cold => Attempt::Cold,
                Attempt::Done(opened) => Attempt::Done(opened.map(|opened| *opened.stat())),
            };
        }
        match self.files.stat(as_path(path), Links::Follow) {
            Attempt::Cold => Attempt::Cold,
            Attempt::Done(found) => Attempt::Done(found.map_err(|error| Failed { call: STAT, error })),
        }
    }

    /// The status of the file with this name. **Blocks.**
    pub(crate) fn stat_blocking(self, blocking: &Blocking, path: &[u8]) -> Answer<Stat> {
        if !self.follows_links() {
            return self.open_blocking(blocking, path).map(|opened| *opened.stat());
        }
        let found = self.files.stat_blocking(blocking, as_path(path), Links::Follow);
        found.map_err(|error| Failed { call: STAT, error })
    }

    fn walk(self, path: &[u8], opener: &mut dyn Opener) -> Attempt<Answer<Opened>> {
        match self.links {
            LinkRule::Follow => named(OPEN, opener.open(None, path, How::default())),
            LinkRule::Never { from } => walk_without_links(path, from, opener),
            LinkRule::SameOwner { from } => walk_as_owners(path, from, opener),
        }
    }
}

/// Opens names one way or the other.
trait Opener {
    fn open(&mut self, at: Option<&Opened>, path: &[u8], how: How) -> Attempt<io::Result<Opened>>;
}

struct OnLoop(Files);

impl Opener for OnLoop {
    fn open(&mut self, at: Option<&Opened>, path: &[u8], how: How) -> Attempt<io::Result<Opened>> {
        match at {
            Some(at) => self.0.open_at(at, as_path(path), how),
            None => self.0.open(as_path(path), how),
        }
    }
}

struct OnPool<'a>(Files, &'a Blocking);

impl Opener for OnPool<'_> {
    fn open(&mut self, at: Option<&Opened>, path: &[u8], how: How) -> Attempt<io::Result<Opened>> {
        Attempt::Done(match at {
            Some(at) => self.0.open_at_blocking(self.1, at, as_path(path), how),
            None => self.0.open_blocking(self.1, as_path(path), how),
        })
    }
}

fn named<T>(call: &'static str, attempt: Attempt<io::Result<T>>) -> Attempt<Answer<T>> {
    match attempt {
        Attempt::Cold => Attempt::Cold,
        Attempt::Done(result) => Attempt::Done(result.map_err(|error| Failed { call, error })),
    }
}

/// The result, or returns what is none.
macro_rules! done {
    ($attempt:expr) => {
        match $attempt {
            Attempt::Done(Ok(value)) => value,
            Attempt::Done(Err(failed)) => return Attempt::Done(Err(failed)),
            Attempt::Cold => return Attempt::Cold,
        }
    };
}

const PLACE: How = How { access: Access::Path, links: Links::Follow };

/// The directory up to which links are followed, and what comes behind it.
fn open_start<'p>(
    path: &'p [u8],
    from: usize,
    opener: &mut dyn Opener,
) -> Attempt<Answer<(Opened, &'p [u8])>> {
    let (start, call) = if from > 0 { (&path[..from], OPEN) } else { (&b"/"[..], OPENAT) };
    let start = done!(named(call, opener.open(None, start, PLACE)));
    let rest = &path[from..];
    let slashes = rest.iter().take_while(|&&byte| byte == b'/').count();
    Attempt::Done(Ok((start, &rest[slashes..])))
}

/// No link in what follows the first `from` bytes.
fn walk_without_links(path: &[u8], from: usize, opener: &mut dyn Opener) -> Attempt<Answer<Opened>> {
    let (start, rest) = done!(open_start(path, from, opener));
    if rest.is_empty() {
        return named(OPENAT, opener.open(Some(&start), b".", How::default()));
    }
    let how = How { links: Links::Never, ..How::default() };
    let found = opener.open(Some(&start), rest, how);
    let is_link = |error: &io::Error| Code::from_io_error(error) == Some(Code::LOOP);
    let Attempt::Done(Err(error)) = &found else { return named(OPENAT, found) };
    if !is_link(error) {
        return named(OPENAT, found);
    }
    // As in nginx a link that a directory should be is none.
    let Some(end) = rest.iter().rposition(|&byte| byte == b'/') else { return named(OPENAT, found) };
    let parent = match opener.open(Some(&start), &rest[..end], How { access: Access::Path, ..how }) {
        Attempt::Cold => return Attempt::Cold,
        Attempt::Done(parent) => parent,
    };
    match parent.is_err_and(|error| is_link(&error)) || end + 1 == rest.len() {
        true => Attempt::Done(Err(Failed { call: OPENAT, error: Code::NOTDIR.into() })),
        false => named(OPENAT, found),
    }
}

/// A link in what follows the first `from` bytes has the owner of what it points to.
fn walk_as_owners(path: &[u8], from: usize, opener: &mut dyn Opener) -> Attempt<Answer<Opened>> {
    let (mut at, mut rest) = done!(open_start(path, from, opener));
    while let Some(slash) = rest.iter().position(|&byte| byte == b'/') {
        let (name, behind) = (&rest[..slash], &rest[slash + 1..]);
        if !name.is_empty() {
            let directory = How { access: Access::Path, links: Links::Follow };
            at = done!(open_as_owner(&at, name, directory, opener));
        }
        rest = behind;
    }
    if rest.is_empty() {
        return named(OPENAT, opener.open(Some(&at), b".", How::default()));
    }
    open_as_owner(&at, rest, How::default(), opener)
}

fn open_as_owner(at: &Opened, name: &[u8], how: How, opener: &mut dyn Opener) -> Attempt<Answer<Opened>> {
    let found = done!(named(OPENAT, opener.open(Some(at), name, how)));
    let itself = How { access: Access::Path, links: Links::NotLast };
    let itself = done!(named(OPENAT, opener.open(Some(at), name, itself)));
    // It may have been exchanged in between, so this is asked of what is no link, too.
    if itself.stat().uid != found.stat().uid {
        return Attempt::Done(Err(Failed { call: OPENAT, error: Code::LOOP.into() }));
    }
    Attempt::Done(Ok(found))
}

/// The bytes of a path as a path.
pub(crate) fn as_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}
