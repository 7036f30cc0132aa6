//! `load_module`: satisfied by what is built in. A file with code for another server cannot be loaded, and is
//! refused in the words that nginx has for a file that it cannot load.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use clearway_base::Errno;
use clearway_conf::error::message;
use clearway_conf::{Directive, Error, Scope};

use super::{CoreConf, Reader};
use crate::nginx_modules::BuiltIn;

/// Bytes of the head of an object file (ELF, 64 bits).
const HEAD_BYTES: usize = 64;

pub(super) fn read(scope: &mut Scope<'_, CoreConf>, d: &Directive) -> Result<(), Error> {
    let conf = &mut *scope.conf;
    if conf.events.is_some() || conf.http.is_some() {
        return Err(d.reject("is specified too late"));
    }
    if conf.reader != Reader::Master {
        return Ok(());
    }
    let path = conf.full_name(&d.value(0)?);
    let name = Bytes::copy_from_slice(path.file_name().unwrap_or_default().as_bytes());
    if !BuiltIn::new().has_module(&name) {
        return Err(d.error(why_not(&path)));
    }
    if conf.modules.contains(&name) {
        let module = name.strip_suffix(b".so").unwrap_or(&name);
        return Err(d.error(message(&[&"module \"", &module, &"\" is already loaded"])));
    }
    conf.modules.push(name);
    Ok(())
}

/// nginx's message for a file that is no module of its own.
fn why_not(path: &Path) -> Vec<u8> {
    let name = path.as_os_str().as_bytes();
    let failed = |why: &str| message(&[&"dlopen() \"", &name, &"\" failed (", &name, &": ", &why, &")"]);
    let reason = |error: &io::Error| {
        let text = Errno(error).to_string();
        text.split_once(": ").map_or(text.as_str(), |(_, text)| text).trim_end_matches(')').to_owned()
    };
    match head(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            failed(&format!("cannot read file data: {}", reason(&error)))
        }
        Err(error) => failed(&format!("cannot open shared object file: {}", reason(&error))),
        Ok(head) if head.len() < HEAD_BYTES => failed("file too short"),
        Ok(head) if !head.starts_with(b"\x7fELF") => failed("invalid ELF header"),
        Ok(_) => message(&[&"module \"", &name, &"\" is not binary compatible"]),
    }
}

/// The first [`HEAD_BYTES`] of a file, or as many as there are.
#[expect(clippy::disallowed_methods, reason = "the master reads a configuration, on its main thread")]
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}
