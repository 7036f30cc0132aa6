//! Directories on file systems of different kinds, which are mounted for a test where that is permitted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of its own, removed with what is mounted there when it is dropped.
pub struct MountedDirectory {
    base: PathBuf,
    /// Where files are put before anything is mounted.
    seeded: PathBuf,
    dir: PathBuf,
    mount: Mount,
}

/// On what a place lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mount {
    /// On what the temporary directory lies.
    Nothing,
    /// On a tmpfs of its own.
    Tmpfs,
    /// On an overlayfs whose lower and upper directories lie where the temporary directory does. What is put
    /// there first is below, and is copied up when it is changed.
    Overlay,
}

impl MountedDirectory {
    /// A place, seeded with `seed`. `None` where such a file system may not be mounted.
    ///
    /// # Panics
    /// If the temporary directory is not writable.
    pub fn new(mount: Mount, seed: impl FnOnce(&Path)) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::temp_dir().join(format!("clearway-place-{}-{number}", std::process::id()));
        let sub = |name: &str| base.join(name);
        let dirs = ["lower", "upper", "work", "dir"].map(sub);
        for dir in [&base].into_iter().chain(&dirs) {
            fs::create_dir_all(dir).expect("the temporary directory is writable");
            fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("the directory is ours");
        }
        let [lower, upper, work, dir] = dirs;
        let seeded = if mount == Mount::Overlay { lower.clone() } else { dir.clone() };
        let place = Self { base, seeded, dir, mount: Mount::Nothing };
        let kind = match mount {
            Mount::Nothing => None,
            Mount::Tmpfs => Some(("tmpfs", "mode=755".to_owned())),
            Mount::Overlay => {
                let [lower, upper, work] = [lower, upper, work].map(|dir| dir.display().to_string());
                Some(("overlay", format!("lowerdir={lower},upperdir={upper},workdir={work}")))
            }
        };
        if mount != Mount::Tmpfs {
            seed(&place.seeded);
            return place.mounted(mount, kind);
        }
        let place = place.mounted(mount, kind)?;
        seed(&place.dir);
        Some(place)
    }

    fn mounted(mut self, mount: Mount, kind: Option<(&str, String)>) -> Option<Self> {
        let Some((kind, options)) = kind else { return Some(self) };
        let mut command = Command::new("mount");
        command.args(["-t", kind, kind, "-o", &options]).arg(&self.dir).stderr(Stdio::null());
        let is_mounted = command.status().is_ok_and(|status| status.success());
        if is_mounted {
            self.mount = mount;
        }
        is_mounted.then_some(self)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for MountedDirectory {
    fn drop(&mut self) {
        if self.mount != Mount::Nothing {
            drop(Command::new("umount").arg("-l").arg(&self.dir).status());
        }
        drop(fs::remove_dir_all(&self.base));
    }
}
