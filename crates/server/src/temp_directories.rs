//! Makes the directories for temporary files that a configuration needs, for the user that the worker runs
//! as. The main thread of the master, with its rights.

use std::fmt;
use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_http::temp_paths::TempPaths;
use clearway_os::users::User;

use crate::start::Failed;

/// Access rights: the owner alone.
const MODE: u32 = 0o700;

/// Access rights of the directories above: everybody may pass through.
const PARENT_MODE: u32 = 0o755;

/// Makes missing directories, and gives them to `user` if the process may. A directory that the configuration
/// does not name may fail to be made: a request that needs it will report that.
///
/// # Errors
/// After the reason has been logged.
pub(crate) fn make(paths: &TempPaths, user: Option<&User>, log: &dyn Sink) -> Result<(), Failed> {
    paths.list().iter().try_for_each(|path| {
        if path.is_default() {
            make_parents(&path.directory);
        }
        match make_one(&path.directory, user) {
            Err(refused) if !path.is_default() => {
                log.log(Level::Emerg, format_args!("{refused}"));
                Err(Failed)
            }
            _ => Ok(()),
        }
    })
}

/// Makes the directories above a default one, which packages of nginx install.
fn make_parents(path: &Path) {
    if let Some(parent) = path.parent() {
        // If this fails, making the directory itself reports the reason.
        let _ = DirBuilder::new().recursive(true).mode(PARENT_MODE).create(parent);
    }
}

fn make_one(path: &Path, user: Option<&User>) -> Result<(), Refused> {
    let refused = |call| move |error| Refused { call, path: Verbatim::path(path).to_string(), error };
    match DirBuilder::new().mode(MODE).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refused(Call::Mkdir)(error));
        }
        _ => {}
    }
    let Some(user) = user else { return Ok(()) };
    #[expect(clippy::disallowed_methods, reason = "the main thread, which runs no loop")]
    let found = std::fs::metadata(path).map_err(refused(Call::Stat))?;
    if found.uid() != user.uid {
        chown(path, Some(user.uid), None).map_err(refused(Call::Chown(user.uid)))?;
    }
    let mode = found.mode();
    if mode & MODE != MODE {
        std::fs::set_permissions(path, Permissions::from_mode(mode | MODE)).map_err(refused(Call::Chmod))?;
    }
    Ok(())
}

/// The call that failed.
#[derive(Clone, Copy)]
enum Call {
    Mkdir,
    Stat,
    Chown(u32),
    Chmod,
}

/// The call that was refused. Displays nginx's text.
struct Refused {
    call: Call,
    path: String,
    error: io::Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, errno) = (&self.path, Errno(&self.error));
        match self.call {
            Call::Mkdir => write!(f, "mkdir() \"{path}\" failed {errno}"),
            Call::Stat => write!(f, "stat() \"{path}\" failed {errno}"),
            Call::Chown(uid) => write!(f, "chown(\"{path}\", {uid}) failed {errno}"),
            Call::Chmod => write!(f, "chmod() \"{path}\" failed {errno}"),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test may")]
mod tests {
    use super::*;

    #[test]
    fn a_directory_gets_its_owner_and_his_rights() {
        let dir = std::env::temp_dir().join(format!("clearway-temp-{}", std::process::id()));
        let nobody = || clearway_os::users::find_user(b"nobody").unwrap().expect("every system has it");
        let user = clearway_os::process::is_root().then(nobody);
        for _ in 0..2 {
            assert!(make_one(&dir, user.as_ref()).is_ok());
            let made = std::fs::metadata(&dir).unwrap();
            assert_eq!(made.mode() & 0o777, MODE);
            assert!(user.as_ref().is_none_or(|user| made.uid() == user.uid));
        }
        if user.is_some() {
            std::fs::set_permissions(&dir, Permissions::from_mode(0o050)).unwrap();
            assert!(make_one(&dir, user.as_ref()).is_ok());
            assert_eq!(std::fs::metadata(&dir).unwrap().mode() & 0o777, 0o750);
        }
        std::fs::remove_dir(&dir).unwrap();
        let refused = make_one(&dir.join("none"), None).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!("mkdir() \"{}/none\" failed (2: No such file or directory)", dir.display())
        );
    }
}
