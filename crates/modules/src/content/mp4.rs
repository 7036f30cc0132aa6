//! `mp4`: a part of an MP4 file that begins and ends at given times, as a file of its own. Its description
//! is read and made anew by a thread of a pool; the data are sent as they are in the file.

mod atoms;
mod crop;
mod cut;
#[cfg(fuzzing)]
pub mod fuzzing;
mod track;

use std::sync::Arc;

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Scope, Spec};
use clearway_http::{
    Answers, ConfKey, Cost, Exchange, FileAccess, FilePart, Level, Load, Module, OpenFile, Phase,
    PhaseHandler, Ranges, Request, Setting, Step, Verbatim, context, set, settings,
};
use clearway_offload::Blocking;

use crate::content::files::on_pool_at;
use crate::content::media::{self, Asked, Body};
use atoms::{Beginning, Fault, MediaSource, Wanted};
use cut::{Cut, cut};

/// The module. Its locations are answered before files are looked for, so it comes before `index`.
pub static MP4: Module =
    Module { name: "mp4", directives: DIRECTIVES, confs: &[&MP4_CONF], phases: PHASES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "mp4",
        contexts: context::LOCATION,
        args: Args::NOARGS,
        syntax: "mp4",
        default: "",
        doc: "Sends parts of MP4 files: from the second on that the argument `start` of the request names, \
              up to the one that `end` names.",
        example: EXAMPLE_OF_VIDEO,
        see: &["mp4_buffer_size", "mp4_max_buffer_size", "mp4_start_key_frame", "flv"],
        handler: |scope, _| {
            conf(scope).answers.set(true);
            Ok(())
        },
    },
    Spec {
        name: "mp4_buffer_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "mp4_buffer_size SIZE",
        default: "mp4_buffer_size 512k;",
        doc: "How much of a file is read at once to find its description.",
        example: EXAMPLE_OF_VIDEO,
        see: &["mp4", "mp4_max_buffer_size", "mp4_start_key_frame", "flv"],
        handler: |scope, d| set(d, &mut conf(scope).buffer_bytes, |d| d.size(0)),
    },
    Spec {
        name: "mp4_max_buffer_size",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "mp4_max_buffer_size SIZE",
        default: "mp4_max_buffer_size 10m;",
        doc: "The largest description of a movie (its `moov` atom) that is read into memory.",
        example: EXAMPLE_OF_VIDEO,
        see: &["mp4", "mp4_buffer_size", "mp4_start_key_frame", "flv"],
        handler: |scope, d| set(d, &mut conf(scope).buffer_max_bytes, |d| d.size(0)),
    },
    Spec {
        name: "mp4_start_key_frame",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "mp4_start_key_frame on | off",
        default: "mp4_start_key_frame off;",
        doc: "Whether a part begins with the key frame before its start; players are told not to show what \
              is before that.",
        example: EXAMPLE_OF_VIDEO,
        see: &["mp4", "mp4_buffer_size", "mp4_max_buffer_size", "flv"],
        handler: |scope, d| set(d, &mut conf(scope).start_key_frame, |d| d.flag(0)),
    },
];

/// The example of `mp4`, `mp4_buffer_size`, `mp4_max_buffer_size` and `mp4_start_key_frame`.
const EXAMPLE_OF_VIDEO: &str = "
    location /video/ {
        mp4;
        mp4_buffer_size 1m;
        mp4_max_buffer_size 20m;
        mp4_start_key_frame on;
    }";

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| *enabling.confs.of(&MP4_CONF).answers,
    handler,
}];

static MP4_CONF: ConfKey<Mp4Conf> = ConfKey::new(Level::Location);

settings! {
    struct Mp4Conf {
        answers: Answers<bool>,
        buffer_bytes: Setting<u64> = 512 << 10,
        buffer_max_bytes: Setting<u64> = 10 << 20,
        start_key_frame: Setting<bool> = false,
    }
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut Mp4Conf {
    scope.conf.location(&MP4_CONF)
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    match media::ask(&mut exchange) {
        Ok(asked) => Step::Wait(Box::pin(answer(exchange, asked))),
        Err(step) => step,
    }
}

async fn answer(exchange: Exchange<'_, '_>, asked: Asked) -> Step<'static> {
    send(exchange, asked).await.unwrap_or_else(|refused| refused)
}

/// Sends the file, or the part of it that is wanted; what is answered where that cannot be.
async fn send(exchange: Exchange<'_, '_>, asked: Asked) -> Result<Step<'static>, Step<'static>> {
    let file = asked.open(exchange.request).await?;
    let mut found = None;
    let mut ranges = Ranges::Allowed;
    if let Some(wanted) = wanted(exchange.request) {
        ranges = Ranges::OnePart;
        let source = Arc::clone(&file);
        let job = move |blocking: &Blocking| cut(&mut FileSource { file: &source, blocking }, &wanted);
        let cut = on_pool_at(exchange.request, file.opened().at(), job).await.map_err(Step::status)?;
        found = cut.map_err(|fault| {
            log_fault(exchange.request, &file, &fault);
            Step::status(500)
        })?;
    }
    exchange.request.set_action("sending mp4 to client");
    let size = file.opened().stat().size;
    let Cut { front, data } = found.unwrap_or(Cut { front: Vec::new(), data: 0..size });
    Ok(media::send(exchange, Body { front, part: FilePart::new(file, data) }, ranges).await)
}

/// The part that a request asks for, if it does.
fn wanted(request: &Request<'_>) -> Option<Wanted> {
    let start_ms = request.arg(b"start").and_then(milliseconds);
    let end_ms = request.arg(b"end").and_then(milliseconds).filter(|&end| end > 0);
    let start_ms = start_ms.or(end_ms.map(|_| 0))?;
    let conf = request.conf(&MP4_CONF);
    Some(Wanted {
        start_ms,
        length_ms: end_ms.map_or(0, |end| end.saturating_sub(start_ms)),
        buffer_bytes: *conf.buffer_bytes,
        buffer_max_bytes: *conf.buffer_max_bytes,
        beginning: if *conf.start_key_frame { Beginning::KeyFrame } else { Beginning::Sample },
    })
}

/// A number of seconds with any number of decimals, of which three count.
fn milliseconds(text: &[u8]) -> Option<u64> {
    let (whole, decimals) = match text.iter().position(|&byte| byte == b'.') {
        Some(dot) => (&text[..dot], &text[dot + 1..]),
        None => (text, &[][..]),
    };
    if text.is_empty() || !whole.iter().chain(decimals).all(u8::is_ascii_digit) {
        return None;
    }
    let decimals = decimals.iter().chain(b"000").take(3);
    let digits = whole.iter().chain(decimals).map(|&digit| u64::from(digit - b'0'));
    let number = |number: u64, digit| number.checked_mul(10)?.checked_add(digit);
    digits.into_iter().try_fold(0, number).filter(|&number| number <= i64::MAX as u64)
}

/// A file, read by a thread that may wait.
struct FileSource<'a> {
    file: &'a OpenFile,
    blocking: &'a Blocking,
}

impl MediaSource for FileSource<'_> {
    fn size(&self) -> u64 {
        self.file.opened().stat().size
    }

    fn read(&mut self, offset: u64, count: usize) -> Result<Vec<u8>, Fault> {
        let opened = self.file.opened();
        let data = match self.file.access() {
            FileAccess::Cached => opened.read(self.blocking, offset, count),
            FileAccess::Direct { alignment } => opened.read_direct(self.blocking, offset, count, alignment),
        };
        match data {
            Ok(data) if data.len() == count => Ok(data),
            Ok(data) => Err(Fault::Short { read: data.len(), of: count }),
            Err(error) => Err(Fault::Read(error)),
        }
    }
}

fn log_fault(request: &Request<'_>, file: &OpenFile, fault: &Fault) {
    let path = Verbatim(file.path());
    match fault {
        Fault::Wrong(before, behind) => {
            request.log(LogLevel::Error, format_args!("{before}\"{path}\"{behind}"));
        }
        Fault::Read(error) => {
            request.log(LogLevel::Crit, format_args!("pread() \"{path}\" failed {}", Errno(error)));
        }
        Fault::Short { read, of } => {
            let message = format_args!("pread() read only {read} of {of} from \"{path}\"");
            request.log(LogLevel::Crit, message);
        }
        Fault::EmptyTrack => unreachable!("a track that is empty is left out"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let all = ["1", "1.5", "0.0019", ".5", "2.", "12.3456789"].map(|text| milliseconds(text.as_bytes()));
        assert_eq!(all, [Some(1000), Some(1500), Some(1), Some(500), Some(2000), Some(12_345)]);
        for text in ["", "x", "1.2.3", "-1", "1,5", "99999999999999999999", "9223372036854775807"] {
            assert_eq!(milliseconds(text.as_bytes()), None, "{text:?}");
        }
    }
}
