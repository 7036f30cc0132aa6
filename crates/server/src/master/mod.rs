//! The master: the part of a server that keeps the rights it was started with. It reads configurations, opens
//! sockets, logs and zones, supervises workers, acts on signals. One thread, which may block, so that it can
//! go to the background (fork) at any time and nothing it does can hold a loop up.

mod configuration;
mod cycle;
mod listening;
mod pid_file;
mod single;
mod supervisor;
mod trial;
mod upgrade;
mod wanted;
mod workers;

use std::io;
use std::os::fd::AsFd;

use clearway_base::Errno;
use clearway_base::log::{Level, Sink};
use clearway_conf::Source;
use clearway_net::bind;
use clearway_os::child::{self, Forked, Standard};

use configuration::Configuration;
use cycle::{Descent, Master, Parts};
use listening::Listening;

pub(crate) use pid_file::PID_FILE_MODE;

pub use crate::start::{Failed, is_worker};

use crate::early_log::EarlyLog;
use crate::invocation::Invocation;
use crate::messages::say_emerg;
use crate::options::Options;
use crate::start::signals;

/// Runs a server until a signal ends it; as a daemon, until it serves. `ready` is called when it does.
///
/// # Errors
/// When it cannot start: the message is on standard error, and in the error log if that is open.
pub fn run(source: &dyn Source, invocation: &Invocation, ready: impl FnOnce()) -> Result<(), Failed> {
    let parent = child::parent_id();
    let signals = signals().map_err(|error| {
        say_emerg("signalfd()", &error);
        Failed
    })?;
    let early = EarlyLog::open(&invocation.options.error_log, Level::Notice);
    let variable = std::env::var(upgrade::VARIABLE).ok();
    let inherited = variable.map(|value| upgrade::inherit(&value, &early));
    let is_heir = inherited.is_some();
    let old = Listening::inherited(inherited.unwrap_or_default());
    let mut config = Configuration::read(source, &invocation.options, None, &early)?;
    // The early log may be standard error, whose reader waits for its end.
    drop(early);
    let listening = old.open(&config.requests, config.core.all_loops(), &config.boot(&invocation.options))?;
    config.announce_events(&config.boot(&invocation.options));
    announce(&config);
    let launcher = match config.core.daemon() && !is_heir {
        true => Some(to_background(&mut config, &invocation.options)?),
        false => None,
    };
    let descent = Descent { parent, inherited: is_heir, daemon: is_heir || launcher.is_some() };
    let (log, master_process) = (config.log.clone(), config.core.master_process());
    let boot = config.boot(&invocation.options);
    let addresses = listening.addresses();
    let parts = Parts { source, invocation, config, listening, signals, descent };
    let started = || {
        if let Some(launcher) = launcher {
            launcher.tell();
        }
        ready();
    };
    let result = match master_process {
        true => run_master(parts, &boot, started),
        false => single::run(parts, &boot, started),
    };
    if result.is_err() && !is_heir {
        addresses.iter().for_each(|address| bind::close_unix(address, &log));
    }
    result
}

fn run_master(parts: Parts<'_>, boot: &dyn Sink, started: impl FnOnce()) -> Result<(), Failed> {
    parts.invocation.show(&parts.invocation.master_title());
    let mut master = Master::new(parts);
    if let Err(failed) = master.start(boot) {
        if master.is_told_to_end() {
            // A process that waits for the server learns that there is none; it has done what it was told.
            master.end();
            return Ok(());
        }
        return Err(failed);
    }
    started();
    master.run();
    Ok(())
}

/// nginx's lines at a start.
fn announce(config: &Configuration) {
    let nginx = clearway_http::NGINX_VERSION;
    config.notice(format_args!("clearway/{} (nginx/{nginx})", env!("CARGO_PKG_VERSION")));
    let system = clearway_os::process::system();
    config.notice(format_args!("OS: {system}"));
    if let Some((soft, hard)) = clearway_os::process::descriptor_limits() {
        config.notice(format_args!("getrlimit(RLIMIT_NOFILE): {soft}:{hard}"));
    }
}

/// The process that was started from a terminal or a script and waits there until the server serves.
struct Launcher(std::io::PipeWriter);

impl Launcher {
    /// Lets it end well. Where it ends otherwise the server has failed to start.
    fn tell(mut self) {
        use std::io::Write;
        // The reader may be gone.
        let _ = self.0.write_all(b"1");
    }
}

/// Goes on in a process of its own, away from the terminal. The process that was started waits, and
/// ends with the news from here.
fn to_background(config: &mut Configuration, options: &Options) -> Result<Launcher, Failed> {
    let boot = config.boot(options);
    let failed = |call: &'static str| {
        let boot = &boot;
        move |error: io::Error| {
            boot.log(Level::Emerg, format_args!("{call} failed {}", Errno(&error)));
            Failed
        }
    };
    config.clear_up();
    let (mut news, launcher) = io::pipe().map_err(failed("pipe()"))?;
    match child::fork().map_err(failed("fork()"))? {
        Forked::Parent(_) => {
            drop(launcher);
            let mut word = [0];
            let served = io::Read::read_exact(&mut news, &mut word).is_ok();
            std::process::exit(i32::from(!served));
        }
        Forked::Child => {}
    }
    config.renew_log(options)?;
    child::set_sid().map_err(failed("setsid()"))?;
    child::set_umask(0);
    let null = clearway_os::child::null_device().map_err(failed("open(\"/dev/null\")"))?;
    child::redirect(null.as_fd(), Standard::Input).map_err(failed("dup2(STDIN)"))?;
    child::redirect(null.as_fd(), Standard::Output).map_err(failed("dup2(STDOUT)"))?;
    Ok(Launcher(launcher))
}
