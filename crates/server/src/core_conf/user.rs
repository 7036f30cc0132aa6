//! `user`: whom the worker runs as.

use clearway_conf::{Directive, Error, Scope};

use super::{CoreConf, Reader};

pub(super) fn read(scope: &mut Scope<'_, CoreConf>, d: &Directive) -> Result<(), Error> {
    if scope.conf.reader == Reader::Worker {
        return Ok(());
    }
    if !clearway_os::process::is_root() {
        let message = "the \"user\" directive makes sense only if the master process runs with super-user \
                       privileges, ignored";
        scope.warn(d.error(message));
        return Ok(());
    }
    let user = d.value(0)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    if !clearway_os::process::user_exists(&user) {
        return Err(d.error(format!("getpwnam(\"{}\") failed", text(&user))));
    }
    let group = d.args.get(1).unwrap_or(&user);
    if !clearway_os::process::group_exists(group) {
        return Err(d.error(format!("getgrnam(\"{}\") failed", text(group))));
    }
    Ok(())
}
