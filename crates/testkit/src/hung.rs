//! A file system that never answers: FUSE, mounted by this process, which agrees on a version with the kernel
//! and reads none of its questions. A process that asks for a name there waits until the mount is given up.
//!
//! The kernel keeps the questions unread, so that a process which waits for an answer can still be killed;
//! and it gives the mount up by itself when the process that made it ends, however it ends.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// The smallest buffer that the kernel writes a question to, bytes.
const QUESTION_BYTES: usize = 8192;
/// The length of the answer to `FUSE_INIT` behind its head, bytes, in the version that is answered (7.31).
const INIT_BYTES: usize = 64;
/// The head of an answer, bytes.
const HEAD_BYTES: usize = 16;
/// `FUSE_INIT`.
const INIT: u32 = 26;
/// Each question about a name is asked by itself, not one after the other in a directory.
const PARALLEL_DIROPS: u32 = 1 << 18;

/// A mounted file system that does not answer; unmounted and removed when it is dropped.
#[derive(Debug)]
pub struct HungMount {
    dir: PathBuf,
    /// Closed to give up.
    device: Option<File>,
}

impl HungMount {
    /// Mounts one.
    ///
    /// # Panics
    /// Where that is not permitted: it takes root and /dev/fuse. Tests that need it are ignored where they
    /// are not run by root; where root may not mount they fail, unless they are left out by name.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("clearway-hung-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("the temporary directory is writable");
        Self::over(&dir)
    }

    /// Mounts one over a directory, which is removed in the end if it is empty.
    ///
    /// # Panics
    /// As [`HungMount::new`].
    #[must_use]
    pub fn over(dir: &Path) -> Self {
        let mounted = Self { dir: dir.to_owned(), device: None }.mounted();
        mounted.unwrap_or_else(|error| {
            panic!("may not mount FUSE here: {error}; leave these tests out with -- --skip hung_mount")
        })
    }

    fn mounted(mut self) -> std::io::Result<Self> {
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        let fd = device.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
        let options = std::ffi::CString::new(options).expect("it has no zero");
        mount(
            "clearway-hung",
            &self.dir,
            "fuse",
            MountFlags::NOSUID | MountFlags::NODEV,
            options.as_c_str(),
        )?;
        // Unmounted from here on, whatever happens.
        self.device = Some(device);
        self.agree()?;
        Ok(self)
    }

    /// Answers the one question that is answered.
    fn agree(&mut self) -> std::io::Result<()> {
        let device = self.device.as_mut().expect("it was just opened");
        let mut question = vec![0; QUESTION_BYTES];
        let size = device.read(&mut question)?;
        let word = |at: usize| u32::from_ne_bytes(question[at..at + 4].try_into().expect("four bytes"));
        assert!(size >= 56 && word(4) == INIT, "the first question is FUSE_INIT");
        let mut answer = Vec::with_capacity(HEAD_BYTES + INIT_BYTES);
        answer.extend_from_slice(&((HEAD_BYTES + INIT_BYTES) as u32).to_ne_bytes());
        answer.extend_from_slice(&0_i32.to_ne_bytes());
        answer.extend_from_slice(&question[8..16]);
        // Version 7.31, no read-ahead.
        for number in [7_u32, 31, 0, PARALLEL_DIROPS] {
            answer.extend_from_slice(&number.to_ne_bytes());
        }
        // FUSE's limits: requests in the background, the number from which on that is congestion, and the
        // largest write.
        answer.extend_from_slice(&16_u16.to_ne_bytes());
        answer.extend_from_slice(&12_u16.to_ne_bytes());
        answer.extend_from_slice(&4096_u32.to_ne_bytes());
        answer.resize(HEAD_BYTES + INIT_BYTES, 0);
        device.write_all(&answer)
    }

    /// Where it is mounted. Nothing below may be asked for by the test itself.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has all waiting processes get an error.
    pub fn give_up(&mut self) {
        self.device = None;
    }
}

impl Default for HungMount {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for HungMount {
    fn drop(&mut self) {
        // Waiting processes are let go before anybody looks at the directory.
        self.give_up();
        while unmount(&self.dir, UnmountFlags::DETACH).is_ok() {}
        drop(fs::remove_dir(&self.dir));
    }
}
