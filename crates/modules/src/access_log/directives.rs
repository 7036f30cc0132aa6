//! The directives of access logs, with nginx's checks in nginx's order. Boot.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error, Scope};
use clearway_http::Load;
use clearway_log::{Buffering, FileCacheConfig, syslog};

use super::format::Format;
use super::{Destination, File, KNOWN, LOG_CONF, Log, LogsState, writer};
use crate::content::files::to_path;

/// `buffer=` where only `gzip` is given, bytes.
const BUFFER_BYTES_DEFAULT: u64 = 64 * 1024;
/// `gzip` without a level.
const GZIP_LEVEL_DEFAULT: u32 = 1;
/// Defaults of `open_log_file_cache`.
const CACHE_DEFAULT: FileCacheConfig = FileCacheConfig { max: 0, inactive_s: 10, valid_s: 60, min_uses: 1 };

pub(super) fn read_log_format(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = &directive.args[0];
    if scope.conf.main(&KNOWN).formats.iter().any(|format| format.name == *name) {
        return Err(directive.error(message(&[&"duplicate \"log_format\" name \"", name, &"\""])));
    }
    let format = Format::parse(scope.conf, directive)?;
    scope.conf.main(&KNOWN).formats.push(Arc::new(format));
    Ok(())
}

pub(super) fn read_access_log(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let args = &directive.args;
    if &args[0][..] == b"off" {
        scope.conf.location(&LOG_CONF).logs.here().state = LogsState::Off;
        return match args.get(1) {
            Some(more) => Err(directive.error(message(&[&"invalid parameter \"", more, &"\""]))),
            None => Ok(()),
        };
    }
    let load = &mut *scope.conf;
    let to = destination(load, directive)?;
    let name = args.get(1).cloned().unwrap_or_else(|| Bytes::from_static(b"combined"));
    let known = load.main(&KNOWN).formats.iter().find(|format| format.name.eq_ignore_ascii_case(&name));
    let Some(format) = known.cloned() else {
        return Err(directive.error(message(&[&"unknown log format \"", &name, &"\""])));
    };
    let mut options = Options::default();
    args.iter().skip(2).try_for_each(|option| options.take(load, directive, option))?;
    if let Some(buffering) = options.buffering(directive, &to)?
        && let Destination::Unopened(index) = to
    {
        set_buffering(load, directive, index, buffering)?;
    }
    let log = Log { to, format, condition: options.condition };
    load.location(&LOG_CONF).logs.here().logs.push(log);
    Ok(())
}

fn destination(load: &mut Load, directive: &Directive) -> Result<Destination, Error> {
    let first = &directive.args[0];
    if first.starts_with(b"syslog:") {
        let config = syslog::Config::parse(first).map_err(|text| directive.error(text))?;
        return Ok(Destination::Syslog(writer(load)?.syslog(config)));
    }
    let path = Bytes::from(load.full_name(first));
    if path.contains(&b'$') {
        return Ok(Destination::Named(load.variables.compile(&path, &directive.pos)?));
    }
    // nginx opens no file without a name.
    let path = if first.is_empty() { PathBuf::from("/dev/stderr") } else { to_path(&path) };
    let files = &mut load.main(&KNOWN).files;
    let index = files.iter().position(|file| file.path == path).unwrap_or_else(|| {
        files.push(File { path, buffering: None, log: None });
        files.len() - 1
    });
    Ok(Destination::Unopened(index))
}

fn set_buffering(
    load: &mut Load,
    directive: &Directive,
    index: usize,
    buffering: Buffering,
) -> Result<(), Error> {
    let file = &mut load.main(&KNOWN).files[index];
    if file.buffering.replace(buffering).is_some_and(|other| other != buffering) {
        let text = [
            &"access_log \"" as &dyn AsRef<[u8]>,
            &directive.args[0],
            &"\" already defined with \
            conflicting parameters",
        ];
        return Err(directive.error(message(&text)));
    }
    Ok(())
}

/// The parameters behind the format.
#[derive(Default)]
struct Options {
    size: u64,
    flush_ms: Option<u64>,
    gzip: Option<u32>,
    condition: Option<clearway_http::Value>,
}

impl Options {
    fn take(&mut self, load: &mut Load, directive: &Directive, option: &Bytes) -> Result<(), Error> {
        let invalid =
            |what: &str, value: &[u8]| directive.error(message(&[&"invalid ", &what, &" \"", &value, &"\""]));
        if let Some(value) = option.strip_prefix(b"buffer=") {
            let size = units::parse_size(value).filter(|&size| size > 0);
            self.size = size.ok_or_else(|| invalid("buffer size", value))?;
        } else if let Some(value) = option.strip_prefix(b"flush=") {
            let time = units::parse_msec(value).filter(|time| !time.is_zero());
            let time = time.ok_or_else(|| invalid("flush time", value))?;
            self.flush_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        } else if &option[..] == b"gzip" || option.starts_with(b"gzip=") {
            if self.size == 0 {
                self.size = BUFFER_BYTES_DEFAULT;
            }
            let level = match option.strip_prefix(b"gzip=") {
                None => GZIP_LEVEL_DEFAULT,
                Some(value) => {
                    let level = units::parse_number(value).and_then(|level| u32::try_from(level).ok());
                    let level = level.filter(|level| (1..=9).contains(level));
                    level.ok_or_else(|| invalid("compression level", value))?
                }
            };
            self.gzip = Some(level);
        } else if option.starts_with(b"if=") {
            self.condition = Some(load.variables.compile(&option.slice(3..), &directive.pos)?);
        } else {
            return Err(invalid("parameter", option));
        }
        Ok(())
    }

    fn buffering(&self, directive: &Directive, to: &Destination) -> Result<Option<Buffering>, Error> {
        if self.size == 0 {
            if self.flush_ms.is_none() {
                return Ok(None);
            }
            let path = &directive.args[0];
            let text = message(&[&"no buffer is defined for access_log \"", path, &"\""]);
            return Err(directive.error(text));
        }
        match to {
            Destination::Named(_) => {
                return Err(directive.error("buffered logs cannot have variables in name"));
            }
            Destination::Syslog(_) => return Err(directive.error("logs to syslog cannot be buffered")),
            Destination::Unopened(_) | Destination::File(_) => {}
        }
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        Ok(Some(Buffering { size, flush_ms: self.flush_ms, gzip: self.gzip }))
    }
}

pub(super) fn read_open_log_file_cache(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
) -> Result<(), Error> {
    if scope.conf.location(&LOG_CONF).cache.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let (mut config, mut off) = (CACHE_DEFAULT, false);
    for option in &directive.args {
        if &option[..] == b"off" {
            off = true;
        } else if !take_cache_option(&mut config, option) {
            let text = message(&[&"invalid \"open_log_file_cache\" parameter \"", option, &"\""]);
            return Err(directive.error(text));
        }
    }
    if !off && config.max == 0 {
        return Err(directive.error("\"open_log_file_cache\" must have \"max\" parameter"));
    }
    scope.conf.location(&LOG_CONF).cache.set((!off).then(|| Arc::new(config)));
    Ok(())
}

fn take_cache_option(config: &mut FileCacheConfig, option: &[u8]) -> bool {
    let Some(equals) = option.iter().position(|&byte| byte == b'=') else { return false };
    let (name, value) = (&option[..equals], &option[equals + 1..]);
    let number = || units::parse_number(value);
    let seconds = || units::parse_sec(value).map(|time| time.as_secs());
    match name {
        b"max" => number().map(|max| config.max = usize::try_from(max).unwrap_or(usize::MAX)),
        b"min_uses" => number().map(|uses| config.min_uses = uses),
        b"inactive" => seconds().map(|time| config.inactive_s = time),
        b"valid" => seconds().map(|time| config.valid_s = time),
        _ => None,
    }
    .is_some()
}
