//! The user database, and taking on another user's identity. Boot only: look-ups block, and an identity
//! is for good.
#![expect(unsafe_code, reason = "the user database and the identity of all threads are libc's")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;

/// Room for the strings of one entry at first; and at most, for groups with very many members.
const ENTRY_BYTES: usize = 1024;
const ENTRY_BYTES_MAX: usize = 16 << 20;

/// A user that a process may become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name in the user database; groups that list it become supplementary ones.
    pub name: CString,
    /// The user's id.
    pub uid: u32,
    /// The id of the main group: in the user database's entry, unless the caller chooses another.
    pub gid: u32,
}

/// The part of [`become_user`] that was refused. The text is nginx's, without the reason, which is
/// [`error`](Self::error).
#[derive(Debug)]
pub enum Refused {
    /// The group: the process is what it was.
    SetGid(u32, io::Error),
    /// The supplementary groups: they are those that the process was started with.
    InitGroups(CString, u32, io::Error),
    /// The user.
    SetUid(u32, io::Error),
}

impl Refused {
    /// The reason, from errno.
    #[must_use]
    pub fn error(&self) -> &io::Error {
        match self {
            Self::SetGid(_, error) | Self::InitGroups(_, _, error) | Self::SetUid(_, error) => error,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetGid(gid, _) => write!(f, "setgid({gid}) failed"),
            Self::InitGroups(name, gid, _) => {
                write!(f, "initgroups({}, {gid}) failed", name.to_string_lossy())
            }
            Self::SetUid(uid, _) => write!(f, "setuid({uid}) failed"),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.error())
    }
}

/// Looks a user up; `None` if there is none of this name. **Blocks** (files, perhaps a directory
/// service).
///
/// # Errors
/// As getpwnam_r(3): the database could not be read.
pub fn find_user(name: &[u8]) -> io::Result<Option<User>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let found = look_up(|entry: *mut libc::passwd, room, size, found| {
        // SAFETY: a valid string, and room for the entry and `size` bytes of strings.
        unsafe { libc::getpwnam_r(name.as_ptr(), entry, room, size, found) }
    })?;
    Ok(found.map(|entry| User { name, uid: entry.pw_uid, gid: entry.pw_gid }))
}

/// Looks a group up and returns its id; `None` if there is none of this name. **Blocks** as
/// [`find_user`] does.
///
/// # Errors
/// As getgrnam_r(3): the database could not be read.
pub fn find_group(name: &[u8]) -> io::Result<Option<u32>> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let found = look_up(|entry: *mut libc::group, room, size, found| {
        // SAFETY: a valid string, and room for the entry and `size` bytes of strings.
        unsafe { libc::getgrnam_r(name.as_ptr(), entry, room, size, found) }
    })?;
    Ok(found.map(|entry| entry.gr_gid))
}

/// Calls `get` with more and more room for strings until they fit. Of the entry that it returns only
/// the numbers mean anything: its strings are gone.
fn look_up<T: Copy>(get: impl Fn(*mut T, *mut c_char, usize, *mut *mut T) -> c_int) -> io::Result<Option<T>> {
    let mut room: Vec<c_char> = vec![0; ENTRY_BYTES];
    let mut entry = MaybeUninit::<T>::uninit();
    loop {
        let mut found = std::ptr::null_mut();
        match get(entry.as_mut_ptr(), room.as_mut_ptr(), room.len(), &raw mut found) {
            0 if found.is_null() => return Ok(None),
            // SAFETY: the function that found an entry has filled in the one that it was given.
            0 => return Ok(Some(unsafe { entry.assume_init() })),
            libc::ERANGE if room.len() < ENTRY_BYTES_MAX => room.resize(room.len() * 4, 0),
            libc::EINTR => {}
            // The codes of several services for a name that they do not know, see getpwnam(3).
            libc::ENOENT | libc::ESRCH => return Ok(None),
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Takes on the identity of `user` in every thread of the process: group, supplementary groups, user.
/// Needs super-user rights, and gives them up for good unless the user has them.
///
/// As in nginx the supplementary groups are no condition (where a user namespace forbids setgroups(2) a
/// server must still start): `on_groups` is told, and the rest goes on.
///
/// # Errors
/// The call that was refused: the process should end, for it has rights that it should not have.
pub fn become_user(user: &User, on_groups: impl FnOnce(&Refused)) -> Result<(), Refused> {
    // SAFETY: takes an integer; glibc has every thread make the call.
    check(unsafe { libc::setgid(user.gid) }).map_err(|error| Refused::SetGid(user.gid, error))?;
    if let Err(error) = init_groups(&user.name, user.gid) {
        on_groups(&Refused::InitGroups(user.name.clone(), user.gid, error));
    }
    // SAFETY: as above.
    check(unsafe { libc::setuid(user.uid) }).map_err(|error| Refused::SetUid(user.uid, error))
}

fn init_groups(name: &CStr, gid: u32) -> io::Result<()> {
    // SAFETY: a valid string and an integer; the groups are looked up and given to every thread.
    check(unsafe { libc::initgroups(name.as_ptr(), gid) })
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_users_of_every_system() {
        let root = find_user(b"root").unwrap().unwrap();
        assert_eq!(root, User { name: c"root".into(), uid: 0, gid: 0 });
        assert_eq!(find_group(b"root").unwrap(), Some(0));
        for name in [&b"no such user"[..], b"", b"a\0b"] {
            assert_eq!(find_user(name).unwrap(), None);
            assert_eq!(find_group(name).unwrap(), None);
        }
    }

    #[test]
    fn an_entry_may_need_much_room() {
        let attempts = std::cell::Cell::new(0);
        let found = look_up(|entry: *mut u32, _, size, found| {
            attempts.set(attempts.get() + 1);
            if size < 100_000 {
                return libc::ERANGE;
            }
            // SAFETY: `look_up` passes places for both.
            unsafe {
                *entry = 7;
                *found = entry;
            }
            0
        });
        assert_eq!((found.unwrap(), attempts.get()), (Some(7), 5));
        let endless = look_up(|_: *mut u32, _, _, _| libc::ERANGE);
        assert_eq!(endless.unwrap_err().raw_os_error(), Some(libc::ERANGE));
    }

    #[test]
    fn what_is_refused_is_said_in_nginx_words() {
        let error = || io::Error::from_raw_os_error(libc::EPERM);
        assert_eq!(Refused::SetGid(33, error()).to_string(), "setgid(33) failed");
        let groups = Refused::InitGroups(c"www-data".into(), 33, error());
        assert_eq!(groups.to_string(), "initgroups(www-data, 33) failed");
        assert_eq!(Refused::SetUid(34, error()).to_string(), "setuid(34) failed");
    }
}
