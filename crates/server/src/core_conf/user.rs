//! `user`: the user that the worker runs as.

use clearway_base::Errno;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Scope};
use clearway_os::process;
use clearway_os::users::{User, find_group, find_user};

use super::{CoreConf, Reader};

/// The user of a configuration that names none.
const USER_DEFAULT: &[u8] = b"nobody";

/// His group: the first that exists. nginx's `configure` chooses in the same way.
const GROUPS_DEFAULT: [&[u8]; 2] = [b"nobody", b"nogroup"];

pub(super) fn read(scope: &mut Scope<'_, CoreConf>, d: &Directive) -> Result<(), Error> {
    if scope.conf.reader != Reader::Master {
        return Ok(());
    }
    if scope.conf.user.is_some() {
        return Err(d.reject("is duplicate"));
    }
    if !process::is_root() {
        let message = "the \"user\" directive makes sense only if the master process runs with super-user \
                       privileges, ignored";
        scope.warn(d.error(message));
        return Ok(());
    }
    let name = d.value(0)?;
    let place = |text: Vec<u8>| d.error(text);
    let user = user(&name).map_err(place)?;
    let gid = group(d.args.get(1).unwrap_or(&name)).map_err(place)?;
    scope.conf.user = Some(User { gid, ..user });
    Ok(())
}

/// The user that the worker of a configuration without `user` runs as, where it may change its user.
pub(super) fn default_user() -> Result<User, Error> {
    let user = user(USER_DEFAULT).map_err(Error::unplaced)?;
    let group_of = |name: &&[u8]| group(name).ok();
    let gid = GROUPS_DEFAULT.iter().find_map(group_of);
    let gid = gid.map_or_else(|| group(GROUPS_DEFAULT[1]), Ok).map_err(Error::unplaced)?;
    Ok(User { gid, ..user })
}

fn user(name: &[u8]) -> Result<User, Vec<u8>> {
    let name = printed(name);
    find_user(name)
        .map_err(Some)
        .and_then(|found| found.ok_or(None))
        .map_err(|error| failed("getpwnam", name, error))
}

fn group(name: &[u8]) -> Result<u32, Vec<u8>> {
    let name = printed(name);
    find_group(name)
        .map_err(Some)
        .and_then(|found| found.ok_or(None))
        .map_err(|error| failed("getgrnam", name, error))
}

/// There is no such name, or the database says why it does not know.
fn failed(call: &str, name: &[u8], error: Option<std::io::Error>) -> Vec<u8> {
    let reason = error.map_or_else(String::new, |error| format!(" {}", Errno(&error)));
    message(&[&call, &"(\"", &name, &"\") failed", &reason])
}
