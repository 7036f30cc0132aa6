//! Programs beside the server whose standard input, output and errors are pipes to it, and hearing of
//! their end by a descriptor. Any thread, loops as well: to start one takes the time of a vfork(2) and an
//! execve(2), however much memory this process has.
#![expect(unsafe_code, reason = "posix_spawn, and signals by any number")]

use std::ffi::{CStr, CString, OsStr, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, PidfdFlags, WaitId, WaitIdOptions};

use crate::child::Exit;

/// A program that was started.
#[derive(Debug)]
pub struct Piped {
    /// Its number, which no other process gets before its end was asked for by [`end_of`].
    pub pid: u32,
    /// Stands for the process: readable when that has ended.
    pub end: OwnedFd,
    /// The standard input of the program, nonblocking.
    pub input: OwnedFd,
    /// The standard output of the program, nonblocking.
    pub output: OwnedFd,
    /// Its errors, nonblocking; `None` where they go with the output.
    pub errors: Option<OwnedFd>,
}

/// Where the errors of a program go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errors {
    /// Standard error goes to a pipe of its own.
    Apart,
    /// Standard error goes to the pipe of the output.
    WithOutput,
}

/// Starts a program, which is looked for in `PATH`, with these arguments (the first is its name) and this
/// environment, or that of this process. No signal is blocked, ignored or handled in it.
///
/// # Errors
/// As pipe2(2), fork(2), execve(2) and pidfd_open(2).
pub fn spawn(
    program: &CStr,
    arguments: &[CString],
    environment: Option<&[CString]>,
    errors: Errors,
) -> io::Result<Piped> {
    let (input, output) = (pipe()?, pipe()?);
    let own = match errors {
        Errors::Apart => Some(pipe()?),
        Errors::WithOutput => None,
    };
    let theirs = [
        input.0.as_fd(),
        output.1.as_fd(),
        own.as_ref().map_or_else(|| output.1.as_fd(), |own| own.1.as_fd()),
    ];
    let pid = start(program, arguments, environment, theirs)?;
    let piped = || {
        let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
        let end = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        let ours = |fd: OwnedFd| rustix::io::ioctl_fionbio(&fd, true).map(|()| fd);
        let errors = own.map(|own| ours(own.0)).transpose()?;
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        Ok(Piped { pid, end, input: ours(input.1)?, output: ours(output.0)?, errors })
    };
    piped()
}

/// Reads the beginnings of the files that starting a program needs: its own, and that of its interpreter.
/// They are looked for as [`spawn`] looks, which then waits for no disk. Those that were read; none is no
/// error. **Blocks.**
pub fn read_ahead(program: &CStr) -> Vec<PathBuf> {
    let mut read = Vec::new();
    let name = Path::new(OsStr::from_bytes(program.to_bytes()));
    let found = match name.components().count() {
        1 if !program.to_bytes().contains(&b'/') => {
            let path = std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into());
            std::env::split_paths(&path).find_map(|directory| beginning_of(directory.join(name)))
        }
        _ => beginning_of(name.to_path_buf()),
    };
    let Some((path, beginning)) = found else { return read };
    read.push(path);
    if let Some(line) = beginning.strip_prefix(b"#!") {
        let words = line.split(|byte| byte.is_ascii_whitespace());
        let interpreter = words.into_iter().find(|word| !word.is_empty()).unwrap_or_default();
        let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
        read.extend(beginning_of(interpreter).map(|(path, _)| path));
    }
    read
}

/// The first page of a file, if it is one that can be read.
fn beginning_of(path: PathBuf) -> Option<(PathBuf, Vec<u8>)> {
    const PAGE_BYTES: usize = 4096;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(&path, flags, Mode::empty()).ok()?;
    let mut beginning = vec![0; PAGE_BYTES];
    let count = rustix::io::read(&file, &mut beginning).ok()?;
    beginning.truncate(count);
    Some((path, beginning))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// posix_spawnp(3) with these descriptors as the standard ones.
fn start(
    program: &CStr,
    arguments: &[CString],
    environment: Option<&[CString]>,
    standard: [BorrowedFd<'_>; 3],
) -> io::Result<i32> {
    let arguments = pointers(arguments);
    let environment = environment.map(pointers);
    let mut pid = 0;
    let (mut actions, mut attributes) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both are initialised before anything else is done with them, and destroyed once, whatever comes
    // in between; the set of signals is initialised by sigfillset or sigemptyset before it is passed. The
    // lists end with a null pointer, and what they point at lives until posix_spawnp has returned.
    let code = unsafe {
        libc::posix_spawn_file_actions_init(actions.as_mut_ptr());
        libc::posix_spawnattr_init(attributes.as_mut_ptr());
        let mut code = 0;
        for (number, fd) in (0..).zip(standard) {
            let added = libc::posix_spawn_file_actions_adddup2(actions.as_mut_ptr(), fd.as_raw_fd(), number);
            code = if code == 0 { added } else { code };
        }
        let mut signals = MaybeUninit::uninit();
        libc::sigfillset(signals.as_mut_ptr());
        libc::posix_spawnattr_setsigdefault(attributes.as_mut_ptr(), signals.as_ptr());
        libc::sigemptyset(signals.as_mut_ptr());
        libc::posix_spawnattr_setsigmask(attributes.as_mut_ptr(), signals.as_ptr());
        let flags = (libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK) as libc::c_short;
        libc::posix_spawnattr_setflags(attributes.as_mut_ptr(), flags);
        if code == 0 {
            code = libc::posix_spawnp(
                &raw mut pid,
                program.as_ptr(),
                actions.as_ptr(),
                attributes.as_ptr(),
                arguments.as_ptr(),
                environment.as_ref().map_or(environ.cast_const(), Vec::as_ptr),
            );
        }
        libc::posix_spawn_file_actions_destroy(actions.as_mut_ptr());
        libc::posix_spawnattr_destroy(attributes.as_mut_ptr());
        code
    };
    if code == 0 { Ok(pid) } else { Err(io::Error::from_raw_os_error(code)) }
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

/// As C has lists of texts; to be used while those live.
fn pointers(texts: &[CString]) -> Vec<*mut c_char> {
    texts.iter().map(|text| text.as_ptr().cast_mut()).chain([std::ptr::null_mut()]).collect()
}

/// How the process ended that `end` stands for, which is forgotten with that; `None`: it has not yet.
///
/// # Errors
/// As waitid(2): ECHILD if it was asked before.
pub fn end_of(end: BorrowedFd<'_>) -> io::Result<Option<Exit>> {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let Some(status) = rustix::process::waitid(WaitId::PidFd(end), options)? else { return Ok(None) };
    Ok(Some(match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, number) => Exit::Signal { number: number.unwrap_or(0), dumped: status.dumped() },
    }))
}

/// Sends a signal, by its number, to the process that `end` stands for.
///
/// # Errors
/// As pidfd_send_signal(2): ESRCH if it has ended, EINVAL if there is no such signal.
pub fn send_signal(end: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    let info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: takes integers, and no pointer that is not null.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, end.as_raw_fd(), number, info, 0) };
    if sent == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// read(2) of a nonblocking descriptor.
///
/// # Errors
/// As read(2).
pub fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(fd, buf)?)
}

/// write(2) to a nonblocking descriptor.
///
/// # Errors
/// As write(2): EPIPE if nothing reads it.
pub fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(fd, buf)?)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts a thread and waits for it")]
mod tests {
    use super::*;

    fn texts(words: &[&str]) -> Vec<CString> {
        words.iter().map(|word| CString::new(*word).unwrap()).collect()
    }

    fn shell(code: &str, environment: Option<&[CString]>, errors: Errors) -> Piped {
        spawn(c"sh", &texts(&["sh", "-c", code]), environment, errors).unwrap()
    }

    fn wait(piped: &Piped) -> Exit {
        crate::poll::wait(&[piped.end.as_fd()], None).unwrap();
        end_of(piped.end.as_fd()).unwrap().expect("it has ended")
    }

    fn all(fd: &OwnedFd) -> String {
        rustix::io::ioctl_fionbio(fd, false).unwrap();
        let mut buf = [0; 256];
        let mut read_bytes = Vec::new();
        while let Ok(count @ 1..) = read(fd.as_fd(), &mut buf) {
            read_bytes.extend_from_slice(&buf[..count]);
        }
        String::from_utf8(read_bytes).unwrap()
    }

    #[test]
    fn files_of_programs_are_read_ahead() {
        let directory = std::env::temp_dir().join(format!("clearway-piped-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let script = directory.join("script");
        std::fs::write(&script, "#! /bin/sh -e\n").unwrap();
        let name = CString::new(script.as_os_str().as_bytes()).unwrap();
        assert_eq!(read_ahead(&name), [script, PathBuf::from("/bin/sh")]);
        let found = read_ahead(c"sh");
        assert!(found.len() == 1 && found[0].ends_with("sh") && found[0].is_absolute(), "{found:?}");
        assert!(read_ahead(c"/no/such/program").is_empty());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn three_pipes_and_an_end() {
        let piped = shell("read x; echo out $x; echo err >&2; exit 3", None, Errors::Apart);
        assert_eq!(write(piped.input.as_fd(), b"word\n").unwrap(), 5);
        assert_eq!(wait(&piped), Exit::Code(3));
        assert_eq!(
            (all(&piped.output), all(piped.errors.as_ref().unwrap())),
            ("out word\n".into(), "err\n".into())
        );
        assert!(end_of(piped.end.as_fd()).is_err(), "it is forgotten");
        assert_eq!(send_signal(piped.end.as_fd(), 15).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }

    #[test]
    fn errors_may_go_with_the_output_and_the_environment_may_be_another() {
        let piped = shell("echo $A-$HOME >&2", Some(&texts(&["A=1"])), Errors::WithOutput);
        assert!(piped.errors.is_none());
        assert_eq!((wait(&piped), all(&piped.output)), (Exit::Code(0), "1-\n".to_owned()));
    }

    #[test]
    fn signals_are_as_a_shell_would_leave_them() {
        crate::signal::ignore_sigpipe();
        let blocked = std::thread::spawn(|| {
            crate::signal::block_all();
            let piped = shell("grep -E '^Sig(Blk|Ign)' /proc/self/status", None, Errors::Apart);
            (wait(&piped), all(&piped.output))
        });
        let (end, status) = blocked.join().unwrap();
        assert_eq!(end, Exit::Code(0));
        assert!(status.contains("SigBlk:\t0000000000000000\n"), "{status}");
        let ignored = status.split_once("SigIgn:\t").unwrap().1.trim_end();
        // Signals 32 and 33 are the C library's own.
        assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x7fff_ffff, 0, "{status}");
        let piped = shell("kill -TERM $$; sleep 100", None, Errors::Apart);
        assert!(matches!(wait(&piped), Exit::Signal { number: 15, .. }));
    }

    #[test]
    fn what_cannot_be_executed_says_so() {
        let refused = spawn(c"/no/such/program", &texts(&["x"]), None, Errors::Apart).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        let piped = shell("sleep 100", None, Errors::Apart);
        assert_eq!(send_signal(piped.end.as_fd(), 999).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(end_of(piped.end.as_fd()).unwrap(), None);
        send_signal(piped.end.as_fd(), 9).unwrap();
        assert!(matches!(wait(&piped), Exit::Signal { number: 9, .. }));
    }
}
