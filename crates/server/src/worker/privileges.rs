//! The changes that a worker process makes to itself before it has threads: limits, priority, user,
//! directory, in nginx's order. Its main thread, once.

use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim, bytes_of};
use clearway_os::process::{self, Limit};
use clearway_os::users::{self, Refused, User};

use crate::control::Report;
use crate::core_conf::CoreConf;
use crate::load::Loaded;

/// Descriptors for everything that is no connection: logs, epoll, files being sent.
const DESCRIPTORS_BESIDE: u64 = 512;

/// Takes the place that the configuration gives a worker.
///
/// # Errors
/// What to tell the master where the worker would have rights that it should not have, or not the
/// directory that it should be in.
pub(crate) fn give_up(loaded: &Loaded, user: Option<&User>) -> Result<(), Report> {
    let (core, log) = (&loaded.core, &*loaded.log);
    let alert = |what: std::fmt::Arguments<'_>, error: &std::io::Error| {
        log.log(Level::Alert, format_args!("{what} failed {}", Errno(error)));
    };
    if core.priority() != 0
        && let Err(error) = process::set_priority(core.priority())
    {
        alert(format_args!("setpriority({})", core.priority()), &error);
    }
    limit_descriptors(core, log);
    if let Some(bytes) = core.rlimit_core()
        && let Err(error) = process::set_limit(Limit::Core, bytes)
    {
        alert(format_args!("setrlimit(RLIMIT_CORE, {bytes})"), &error);
    }
    if process::is_root() {
        // Carriers that were demoted are to get their priority back. Without that right they are demoted
        // in a way that needs none.
        let _ = process::allow_nice();
    }
    if let Some(user) = user {
        let keeps_raw_sockets = core.keeps_raw_sockets(user);
        if keeps_raw_sockets {
            process::keep_capabilities()
                .map_err(|error| fatal(format_args!("prctl(PR_SET_KEEPCAPS, 1) failed {}", Errno(&error))))?;
        }
        let ignore = |refused: &Refused| {
            log.log(Level::Alert, format_args!("{refused} {}", Errno(refused.error())));
        };
        users::become_user(user, ignore)
            .map_err(|refused| fatal(format_args!("{refused} {}", Errno(refused.error()))))?;
        if keeps_raw_sockets {
            process::keep_raw_sockets()
                .map_err(|error| fatal(format_args!("capset() failed {}", Errno(&error))))?;
        }
        // The watchdog reads files of its own process in /proc.
        if let Err(error) = process::set_dumpable() {
            alert(format_args!("prctl(PR_SET_DUMPABLE)"), &error);
        }
    }
    if core.no_new_privileges() {
        refuse_new_privileges(log);
    }
    if let Some(directory) = core.working_directory() {
        process::change_directory(directory).map_err(|error| {
            fatal(format_args!("chdir(\"{}\") failed {}", Verbatim::path(directory), Errno(&error)))
        })?;
    }
    Ok(())
}

/// A worker whose programs would have its capabilities is not made safer by giving up others.
pub(crate) fn refuse_new_privileges(log: &dyn Sink) {
    let outcome = match process::hands_capabilities_on() {
        Ok(true) => return,
        Ok(false) => process::refuse_new_privileges(),
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        log.log(Level::Alert, format_args!("prctl(PR_SET_NO_NEW_PRIVS) failed {}", Errno(&error)));
    }
}

/// One process has the descriptors that nginx's workers have between them.
pub(crate) fn limit_descriptors(core: &CoreConf, log: &dyn Sink) {
    let loops = core.loops() as u64;
    let connections = u64::from(core.worker_connections());
    let Some(each) = core.rlimit_nofile().or_else(process::descriptors_max) else { return };
    let wanted = each.saturating_mul(loops);
    if core.rlimit_nofile().is_some() {
        if let Err(error) = process::set_limit(Limit::Files, wanted) {
            let errno = Errno(&error);
            let have = process::raise_descriptors(wanted).unwrap_or(wanted);
            let message =
                format_args!("setrlimit(RLIMIT_NOFILE, {wanted}) failed {errno}, {have} are used instead");
            log.log(Level::Warn, message);
        }
    } else {
        process::raise_descriptors(wanted);
    }
    let limit = process::descriptors_max().unwrap_or(u64::MAX);
    // The master has already warned of limits that it could foresee.
    if connections > limit / loops && limit < wanted {
        let limit = limit / loops;
        let message =
            format_args!("{connections} worker_connections exceed open file resource limit: {limit}");
        log.log(Level::Warn, message);
    }
    process::grow_descriptor_table(limit.min(connections * loops + DESCRIPTORS_BESIDE));
}

fn fatal(message: std::fmt::Arguments<'_>) -> Report {
    Report::Failed { level: Level::Emerg, text: bytes_of(&message.to_string()) }
}
