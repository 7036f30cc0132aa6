//! Where a test has calls on files fail, or the kernel remember nothing of them: each call asks here first.
//! In a build without the feature `testing` the answer is a constant, and nothing is left of the question.

/// The call, as far as tests tell calls apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "testing"), allow(dead_code, reason = "only a test looks at it"))]
pub enum Call {
    /// A file is opened, or looked at.
    Open,
    /// A file is made.
    Create,
    /// A part of a file is read.
    Read,
    /// A part of a file is written.
    Write,
    /// A file gets another name.
    Rename,
    /// A name is removed.
    Remove,
    /// A loop opens or reads what may be in the kernel's memory. An error stands for: it is not.
    Attempt,
}

#[cfg(not(feature = "testing"))]
pub(crate) use absent::ask;
#[cfg(feature = "testing")]
pub(crate) use script::ask;
#[cfg(feature = "testing")]
pub use script::follow;

#[cfg(not(feature = "testing"))]
mod absent {
    use rustix::io::Errno;

    /// Without a test no call fails.
    #[inline(always)]
    pub(crate) const fn ask(_: super::Call) -> Result<(), Errno> {
        Ok(())
    }
}

#[cfg(feature = "testing")]
mod script {
    use std::sync::{Mutex, PoisonError};

    use rustix::io::Errno;

    use super::Call;

    type Script = dyn FnMut(Call) -> Option<i32> + Send;

    static SCRIPT: Mutex<Option<Box<Script>>> = Mutex::new(None);

    /// From now on each call fails with the error number that `script` returns, in the whole process.
    pub fn follow(script: impl FnMut(Call) -> Option<i32> + Send + 'static) {
        *SCRIPT.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(script));
    }

    pub(crate) fn ask(call: Call) -> Result<(), Errno> {
        let mut script = SCRIPT.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = script.as_mut().and_then(|script| script(call));
        fault.map_or(Ok(()), |number| Err(Errno::from_raw_os_error(number)))
    }
}
