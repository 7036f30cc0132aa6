//! The process in which a plugin with `process` runs: this program, executed anew, with the board as its
//! standard input. It ends with the thread that has started it, when the board is closed, or as the plugin
//! likes.

use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use clearway_os::child::parent_id;
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::board::Board;
use crate::host::{self, Seat};

/// The process that has started it; that it is there says what this process is for.
const PARENT: &str = "CLEARWAY_PLUGIN_PARENT";
const LIBRARY: &str = "CLEARWAY_PLUGIN_LIBRARY";
const NAME: &str = "CLEARWAY_PLUGIN_NAME";
const CONFIG: &str = "CLEARWAY_PLUGIN_CONFIG";

/// How long what was posted before the board was closed may take.
const LINGER: Duration = Duration::from_secs(5);

/// The environment of the process.
pub(crate) struct Environment {
    pub(crate) library: OsString,
    pub(crate) name: OsString,
    pub(crate) config: OsString,
}

impl Environment {
    pub(crate) fn set(&self, command: &mut Command) {
        command
            .env(PARENT, std::process::id().to_string())
            .env(LIBRARY, &self.library)
            .env(NAME, &self.name)
            .env(CONFIG, &self.config);
    }
}

/// Whether this process is to be one of a plugin. On the main thread.
#[must_use]
pub fn is_wanted() -> bool {
    std::env::var_os(PARENT).is_some()
}

/// Is one until it ends.
#[must_use]
pub fn run() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // The reader of standard error may be gone.
            let _ = writeln!(std::io::stderr(), "plugin: {why}");
            ExitCode::FAILURE
        }
    }
}

/// A plugin in a process of its own.
struct Beside(Arc<Board>);

impl Seat for Beside {
    fn board(&self) -> &Board {
        &self.0
    }

    fn answered(&self, slot: u32) {
        self.0.tell_answered(slot);
    }
}

fn serve() -> Result<(), String> {
    let text = |name: &str| std::env::var_os(name).unwrap_or_default();
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|error| format!("prctl: {error}"))?;
    if text(PARENT) != *OsStr::new(&parent_id().to_string()) {
        return Ok(());
    }
    let c_text = |name| CString::new(text(name).as_bytes()).map_err(|_| format!("{name} has a zero byte"));
    let board = Board::open(std::io::stdin().as_fd()).map_err(|error| format!("no board: {error}"))?;
    let board = Arc::new(board);
    let (library, name, config) = (c_text(LIBRARY)?, c_text(NAME)?, c_text(CONFIG)?);
    host::start(&library, &name, &config, Box::new(Beside(Arc::clone(&board))))?;
    board.wait_closed(LINGER);
    Ok(())
}
