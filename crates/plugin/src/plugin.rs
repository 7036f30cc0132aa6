//! A plugin of the configuration: its desk, and the threads that load it or look after the process it runs
//! in. They begin with the first call, so that a process which only reads the configuration loads nothing;
//! the calls that are made meanwhile wait at the desk.
//!
//! A plugin lives as long as some configuration names it with the same words: a reload leaves it alone. Where
//! it runs in this process its library stays when it ends, and with it one desk.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use clearway_base::Errno;
use clearway_base::log::{Level, Sink, Verbatim};
use clearway_offload::{Bell, Blocking, Service, Stop};
use clearway_os::child::{self, Exit};
use clearway_os::signal;

use crate::board::Board;
use crate::child::Environment;
use crate::desk::{Call, Desk, NotMade};
use crate::host::{self, Seat};
use crate::metrics;

/// A process that ended sooner is not started anew before this has passed.
const RESTART_PAUSE: Duration = Duration::from_secs(1);

/// How long a thread sleeps that something else wakes.
const LONG: Duration = Duration::from_secs(3600);

/// Where a plugin runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PluginPlace {
    /// In this process.
    Here,
    /// In a process of its own (`process`).
    Beside,
}

/// The parameters of a plugin in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) name: CString,
    pub(crate) library: CString,
    pub(crate) config: CString,
    pub(crate) place: PluginPlace,
    /// Calls under way at a time, a power of two.
    pub(crate) calls: u32,
    /// The longest message, bytes.
    pub(crate) message_bytes: u32,
}

impl Wanted {
    fn new_desk(&self) -> io::Result<Desk> {
        Desk::new(self.calls, self.message_bytes)
    }
}

/// The state that its threads share.
struct Shared {
    wanted: Wanted,
    desk: ArcSwap<Desk>,
    log: Arc<dyn Sink>,
}

/// A plugin of the configuration.
pub(crate) struct Plugin {
    shared: Arc<Shared>,
    has_begun: AtomicBool,
    threads: Mutex<Vec<Service>>,
}

/// The plugins that are loaded.
static KNOWN: LazyLock<Mutex<Vec<Weak<Plugin>>>> = LazyLock::new(Mutex::default);

impl Seat for Desk {
    fn board(&self) -> &Board {
        Self::board(self)
    }

    fn answered(&self, slot: u32) {
        self.deliver(slot);
    }
}

impl Plugin {
    /// The one that is wanted: of this process, if it is there. At boot and when a configuration is read.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(crate) fn find_or_make(wanted: Wanted, log: &Arc<dyn Sink>) -> io::Result<Arc<Self>> {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|plugin| plugin.strong_count() > 0);
        let mut there = known.iter().filter_map(Weak::upgrade);
        if let Some(same) = there.find(|plugin| plugin.shared.wanted == wanted) {
            return Ok(same);
        }
        let desk = ArcSwap::from_pointee(wanted.new_desk()?);
        let shared = Arc::new(Shared { wanted, desk, log: Arc::clone(log) });
        let new = Arc::new(Self { shared, has_begun: AtomicBool::new(false), threads: Mutex::default() });
        known.push(Arc::downgrade(&new));
        Ok(new)
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.shared.wanted.name.as_bytes()
    }

    /// The longest message, bytes.
    pub(crate) fn message_bytes(&self) -> usize {
        self.shared.wanted.message_bytes as usize
    }

    /// Asks it. Any loop.
    ///
    /// # Errors
    /// Why it was not asked, which is counted.
    pub(crate) fn ask(&self, message: &[u8]) -> Result<Call, NotMade> {
        self.begin();
        metrics::counted(self.shared.desk.load().ask(message))
    }

    /// Tells it of something. Any loop.
    ///
    /// # Errors
    /// Why it was not told, which is counted.
    pub(crate) fn tell(&self, message: &[u8]) -> Result<(), NotMade> {
        self.begin();
        metrics::counted(self.shared.desk.load().tell(message))
    }

    fn begin(&self) {
        if !self.has_begun.load(Ordering::Relaxed) && !self.has_begun.swap(true, Ordering::AcqRel) {
            self.start_threads();
        }
    }

    #[cold]
    fn start_threads(&self) {
        let started = match self.shared.wanted.place {
            PluginPlace::Here => vec![self.start("plugin", Shared::load)],
            PluginPlace::Beside => vec![
                self.start("plugin process", Shared::supervise),
                self.start("plugin answers", Shared::deliver),
            ],
        };
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in started {
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    self.shared.say(Level::Alert, format_args!("has no thread {}", Errno(&error)));
                    self.shared.desk.load().end();
                }
            }
        }
    }

    fn start(&self, name: &str, body: fn(&Shared, &Blocking, &Bell, &Stop)) -> io::Result<Service> {
        let (shared, bell) = (Arc::clone(&self.shared), Arc::new(Bell::new()));
        let heard = Arc::clone(&bell);
        Service::start(name, bell, move |blocking, stop| body(&shared, blocking, &heard, stop))
    }
}

impl Drop for Plugin {
    fn drop(&mut self) {
        // Before the close, which wakes them.
        let threads = self.threads.get_mut().unwrap_or_else(PoisonError::into_inner);
        threads.iter().for_each(Service::stop);
        self.shared.desk.load().board().close();
    }
}

impl Shared {
    fn say(&self, level: Level, text: std::fmt::Arguments<'_>) {
        self.log.log(level, format_args!("plugin \"{}\" {text}", Verbatim(self.wanted.name.as_bytes())));
    }

    /// Loads the library into this process.
    fn load(&self, _: &Blocking, _: &Bell, _: &Stop) {
        let desk = self.desk.load_full();
        let Wanted { library, name, config, .. } = &self.wanted;
        // Runtimes of languages bring handlers of signals along, and threads that take them.
        signal::pass_on();
        let started = host::start(library, name, config, Box::new(Arc::clone(&desk)));
        signal::pass_on();
        if let Err(why) = started {
            self.say(Level::Emerg, format_args!("was not loaded: {}", Verbatim(why.as_bytes())));
            let failed = desk.end();
            metrics::FAILED.add(failed as u64);
        }
    }

    /// Has the library loaded by a process beside this one, again and again where that ends. What it had to
    /// do fails then, and the next one gets memory of its own.
    fn supervise(&self, blocking: &Blocking, bell: &Bell, stop: &Stop) {
        loop {
            let (desk, begun) = (self.desk.load_full(), Instant::now());
            let ended = self.spawn(&desk).and_then(child::wait_for);
            while let Some(slot) = desk.board().next_answered(Duration::ZERO) {
                desk.deliver(slot);
            }
            let failed = desk.end();
            metrics::FAILED.add(failed as u64);
            if stop.is_requested() {
                return;
            }
            self.tell_end(&ended, failed);
            if begun.elapsed() < RESTART_PAUSE {
                bell.sleep(blocking, Some(RESTART_PAUSE), || stop.is_requested());
            }
            match self.wanted.new_desk() {
                Ok(new) => self.desk.store(Arc::new(new)),
                Err(error) => return self.say(Level::Emerg, format_args!("has no memory {}", Errno(&error))),
            }
            metrics::RESTARTS.increment();
            // Has the other thread look at the new one; what is stopped meanwhile finds it closed.
            desk.board().close();
            if stop.is_requested() {
                self.desk.load().board().close();
            }
        }
    }

    fn tell_end(&self, ended: &io::Result<Exit>, failed: usize) {
        let calls = format_args!("{failed} calls failed");
        match ended {
            Ok(Exit::Signal { number, .. }) => {
                self.say(Level::Alert, format_args!("exited on signal {number}: {calls}"));
            }
            Ok(Exit::Code(code)) => self.say(Level::Alert, format_args!("exited with code {code}: {calls}")),
            Err(error) => self.say(Level::Alert, format_args!("was not started {}: {calls}", Errno(error))),
        }
    }

    /// Starts a process that is told of the library. Its number.
    fn spawn(&self, desk: &Desk) -> io::Result<u32> {
        let Wanted { library, name, config, .. } = &self.wanted;
        let text = |text: &CString| OsStr::from_bytes(text.as_bytes()).to_owned();
        let environment = Environment { library: text(library), name: text(name), config: text(config) };
        // Not by its name: under that name there may be another file by now, or none.
        let mut command = child::program("/proc/self/exe");
        environment.set(&mut command);
        let spawned = command.stdin(Stdio::from(desk.memory().try_clone_to_owned()?)).spawn()?;
        Ok(spawned.id())
    }

    /// Wakes those that the other process has answered.
    fn deliver(&self, _: &Blocking, _: &Bell, stop: &Stop) {
        while !stop.is_requested() {
            let desk = self.desk.load_full();
            while let Some(slot) = desk.board().next_answered(LONG) {
                desk.deliver(slot);
            }
        }
    }
}
