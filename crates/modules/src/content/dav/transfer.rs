//! COPY and MOVE. What the headers ask for is checked on the loop, in nginx's order; all else is done on
//! the pool.

use std::path::PathBuf;

use clearway_base::log::Level as LogLevel;
use clearway_http::{Exchange, Request, RootKind, Verbatim, paths};
use clearway_message::{Known, Method};
use clearway_offload::Blocking;
use clearway_offload::moving::{self, Copying, Failed, Journal, PathRights, directory_mode};
use rustix::fs::{FileType, Stat};
use rustix::io::Errno as Code;

use super::destination::{self, Fault};
use super::tree::{self, Refusals};
use super::{DAV_CONF, Depth, Named, Work, expect_no_body, refuse};
use crate::content::files::to_path;

/// Finds out what is to be done.
pub(super) fn begin(exchange: &Exchange<'_, '_>) -> Result<Work, u16> {
    let request = &*exchange.request;
    expect_no_body(exchange, "COPY and MOVE with body are")?;
    let Some(header) = request.header(Known::Destination) else {
        return Err(refuse(request, 400, format_args!("client sent no \"Destination\" header")));
    };
    let destination = read_destination(request, header)?;
    check_depth(request)?;
    let overwrite = Overwrite::of(request)?;
    let view = exchange.view();
    let mut from = paths::file_path(&view);
    let mut to = paths::file_path_of(&view, &destination);
    destination::merge_slashes(&mut from);
    destination::merge_slashes(&mut to);
    let to_named = Named::by(&to);
    let to_collection = to_named == Named::Collection;
    if to_collection {
        to.pop();
    }
    let words = Words::of(request, header);
    check_paths(request, &from, &to, to_named, &words)?;
    let transfer = Transfer {
        manner: if request.method() == Method::Copy { Manner::Copy } else { Manner::Move },
        from: to_path(&from),
        from_collection: request.path().ends_with(b"/"),
        to: to_path(&to),
        to_collection,
        overwrite,
        words,
        directories: directory_mode(*request.conf(&DAV_CONF).access),
    };
    Ok(Work::Job(Box::new(move |blocking, journal| transfer.run(blocking, journal))))
}

/// How messages name what is asked for.
struct Words {
    path: String,
    method: String,
    destination: String,
}

impl Words {
    fn of(request: &Request<'_>, header: &[u8]) -> Self {
        let text = |bytes: &[u8]| Verbatim(bytes).to_string();
        Self { path: text(request.path()), method: text(request.method_name()), destination: text(header) }
    }

    fn not_to_collection(&self) -> String {
        let Self { path, method, destination } = self;
        format!("\"{path}\" could not be {method}ed to collection \"{destination}\"")
    }
}

/// The path that `Destination` names.
fn read_destination(request: &Request<'_>, header: &[u8]) -> Result<Vec<u8>, u16> {
    let shown = Verbatim(header);
    let invalid =
        || refuse(request, 400, format_args!("client sent invalid \"Destination\" header: \"{shown}\""));
    let part = destination::local_part(header, request.host()).map_err(|fault| match fault {
        Fault::NoHost => refuse(request, 400, format_args!("client sent no \"Host\" header")),
        Fault::Elsewhere => refuse(
            request,
            400,
            format_args!(
                "\"Destination\" URI \"{shown}\" is handled by different repository than the source URI"
            ),
        ),
        Fault::Invalid => invalid(),
    })?;
    let path = destination::decode(part).map_err(|uri| {
        request.log(LogLevel::Error, format_args!("unsafe URI \"{}\" was detected", Verbatim(&uri)));
        invalid()
    })?;
    if request.path().ends_with(b"/") != header.ends_with(b"/") {
        let uri = Verbatim(request.path());
        let message = format_args!(
            "both URI \"{uri}\" and \"Destination\" URI \"{shown}\" should be either collections or \
             non-collections"
        );
        return Err(refuse(request, 409, message));
    }
    match request.location().root().kind {
        RootKind::Alias(name_len) if path.len() < name_len => Err(invalid()),
        _ => Ok(path),
    }
}

fn check_depth(request: &Request<'_>) -> Result<(), u16> {
    let (depth, problem) = Depth::read(request.header(Known::Depth), Depth::Infinity);
    if let Some(problem) = problem {
        request.log(LogLevel::Error, format_args!("{problem}"));
    }
    let is_copy = request.method() == Method::Copy;
    match depth {
        Depth::Infinity => Ok(()),
        Depth::Zero if is_copy => Ok(()),
        _ if is_copy => Err(refuse(request, 400, format_args!("\"Depth\" header must be 0 or infinity"))),
        _ => Err(refuse(request, 400, format_args!("\"Depth\" header must be infinity"))),
    }
}

/// The fate of an existing file at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overwrite {
    /// An existing file is replaced.
    Yes,
    /// An existing file stays, and the request is refused.
    No,
}

impl Overwrite {
    pub(super) fn read(header: &[u8]) -> Option<Self> {
        match header {
            b"T" | b"t" => Some(Self::Yes),
            b"F" | b"f" => Some(Self::No),
            _ => None,
        }
    }

    fn of(request: &Request<'_>) -> Result<Self, u16> {
        let Some(header) = request.header(Known::Overwrite) else { return Ok(Self::Yes) };
        Self::read(header).ok_or_else(|| {
            let shown = Verbatim(header);
            refuse(request, 400, format_args!("client sent invalid \"Overwrite\" header: \"{shown}\""))
        })
    }
}

/// Refuses to put something into itself.
fn check_paths(
    request: &Request<'_>,
    from: &[u8],
    to: &[u8],
    to_named: Named,
    words: &Words,
) -> Result<(), u16> {
    let from = from.strip_suffix(b"/").filter(|from| !from.is_empty()).unwrap_or(from);
    if from == to {
        let Words { path, destination, .. } = words;
        let message = format_args!(
            "both URI \"{path}\" and \"Destination\" URI \"{destination}\" point to the same location"
        );
        return Err(refuse(request, 403, message));
    }
    let is_below = |inner: &[u8], outer: &[u8]| {
        inner.strip_prefix(outer).is_some_and(|rest| rest.first() == Some(&b'/'))
    };
    if to_named == Named::Collection && (is_below(to, from) || is_below(from, to)) {
        return Err(refuse(request, 403, format_args!("{}", words.not_to_collection())));
    }
    Ok(())
}

/// Whether what was there stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Copy,
    Move,
}

/// A copy or a move as it was asked for.
struct Transfer {
    manner: Manner,
    /// With a slash at its end if the request has one there.
    from: PathBuf,
    from_collection: bool,
    /// Without one.
    to: PathBuf,
    to_collection: bool,
    overwrite: Overwrite,
    words: Words,
    /// Access rights of directories that a move makes.
    directories: u32,
}

impl Transfer {
    fn run(&self, blocking: &Blocking, journal: &mut Journal) -> u16 {
        self.try_run(blocking, journal).unwrap_or_else(|status| status)
    }

    /// The error is a status as well.
    fn try_run(&self, blocking: &Blocking, journal: &mut Journal) -> Result<u16, u16> {
        let replaced = self.look_at_destination(blocking, journal)?;
        let stat = tree::look(blocking, &self.from)
            .map_err(|error| journal.refuse("lstat()", &self.from, error, 404))?;
        if !tree::is_of(&stat, FileType::Directory) {
            return self.transfer_file(blocking, &stat, journal);
        }
        if !self.from_collection {
            return Err(journal.say(format!("\"{}\" is collection", self.words.path), 400));
        }
        match replaced {
            Some(FileType::Directory) => tree::remove_directory(blocking, &self.to, journal)?,
            Some(_) => tree::remove_file(blocking, &self.to, journal)?,
            None => {}
        }
        self.transfer_directory(blocking, &stat, journal)
    }

    /// Looks at an existing file at the destination, which will be replaced.
    fn look_at_destination(
        &self,
        blocking: &Blocking,
        journal: &mut Journal,
    ) -> Result<Option<FileType>, u16> {
        let stat = match tree::look(blocking, &self.to) {
            Ok(stat) => stat,
            Err(Code::NOENT) => return Ok(None),
            Err(error) => return Err(journal.refuse("lstat()", &self.to, error, 404)),
        };
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory && !self.to_collection {
            return Err(journal.say(self.words.not_to_collection(), 409));
        }
        if self.overwrite == Overwrite::No {
            journal.could_not_be_created(&self.to, Code::EXIST);
            return Err(412);
        }
        Ok(Some(kind))
    }

    fn transfer_file(&self, blocking: &Blocking, stat: &Stat, journal: &mut Journal) -> Result<u16, u16> {
        let done = match self.manner {
            Manner::Copy => Copying::of(stat).run(blocking, &self.from, &self.to, journal),
            Manner::Move => {
                let rights = PathRights { directories: Some(self.directories), file: None, modified: None };
                moving::rename(blocking, &self.from, &self.to, &rights, journal)
            }
        };
        done.map(|()| 204).map_err(|Failed| 500)
    }

    fn transfer_directory(
        &self,
        blocking: &Blocking,
        stat: &Stat,
        journal: &mut Journal,
    ) -> Result<u16, u16> {
        if self.manner == Manner::Move && rustix::fs::rename(&self.from, &self.to).is_ok() {
            return Ok(201);
        }
        tree::make_directory(blocking, &self.to, stat.st_mode & 0o777)
            .map_err(|error| journal.refuse("mkdir()", &self.to, error, 404))?;
        tree::copy_tree(blocking, &self.from, &self.to, journal).map_err(|Failed| 500_u16)?;
        if self.manner == Manner::Move {
            tree::remove_directory(blocking, &self.from, journal)?;
        }
        Ok(201)
    }
}
