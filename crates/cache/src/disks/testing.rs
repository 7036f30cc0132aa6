//! A cache in a directory of a test's own, and functions that wait for its jobs.
#![expect(clippy::disallowed_methods, reason = "tests look at the files themselves")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use clearway_base::log::{Level, Record, Sink};
use clearway_offload::Task;
use clearway_zone::Zones;

use super::*;
use crate::header::StoredHeader;
use crate::key::{Digest, Key};
use crate::levels::Levels;

pub(super) const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a job and returns its result.
pub(super) fn wait<T>(task: Task<T>) -> T {
    let mut task = pin!(task);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let cx = &mut Context::from_waker(&waker);
    loop {
        match task.as_mut().poll(cx) {
            Poll::Ready(done) => return done.expect("the pool has room and does not panic"),
            Poll::Pending => std::thread::park(),
        }
    }
}

/// Waits until a condition holds; `what` names it in the failure.
pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// Collects the lines of the log.
#[derive(Default)]
pub(super) struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn enabled(&self, level: Level) -> bool {
        level <= Level::Notice
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().expect("no test panics in here").push(record.message.to_string());
    }
}

impl Lines {
    pub(super) fn has(&self, part: &str) -> bool {
        self.0.lock().expect("no test panics in here").iter().any(|line| line.contains(part))
    }
}

/// Directories, removed in the end, with a cache in them.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
    pub(super) zones: Arc<Zones>,
    pub(super) caches: Arc<Caches>,
    pub(super) cache: Arc<Cache>,
    /// Where files are written before they are complete.
    pub(super) temp: Arc<TempPlace>,
    pub(super) lines: Arc<Lines>,
}

impl Scratch {
    pub(super) fn new(name: &str) -> Self {
        Self::with(name, |_, _| {})
    }

    /// With changes to its configuration, which is told where its directories are.
    pub(super) fn with(name: &str, change: impl Fn(&Path, &mut CacheConf)) -> Self {
        let path = std::env::temp_dir().join(format!("clearway-disks-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        for directory in ["d1", "d2", "d3", "temp"] {
            std::fs::create_dir_all(path.join(directory)).expect("writable");
        }
        let lines = Arc::<Lines>::default();
        let (zones, caches) =
            (Arc::new(Zones::create(None)), Caches::new(&(Arc::clone(&lines) as _), Role::Alone));
        let cache = declare(&path, &zones, &caches, change);
        Self { path, zones, caches, cache, temp: Arc::new(TempPlace::Beside), lines }
    }

    /// Restarts the caches with the same directory: only its files are left.
    pub(super) fn restart(&mut self, change: impl Fn(&Path, &mut CacheConf)) {
        self.zones = Arc::new(Zones::create(None));
        self.caches = Caches::new(&(Arc::clone(&self.lines) as _), Role::Alone);
        self.cache = declare(&self.path, &self.zones, &self.caches, change);
    }

    /// Stores a response.
    pub(super) fn store(&self, key: &Key, body: &[u8]) -> Result<Identity, DiskError> {
        store(&self.cache, &self.temp, key, body)
    }

    pub(super) fn begin(&self, key: &Key) -> Filling {
        begin(&self.cache, &self.temp, key).expect("a short head")
    }

    pub(super) fn open(&self, key: &Key) -> Result<Found, Miss> {
        open(&self.cache, key)
    }

    /// Where the file of a key lies.
    pub(super) fn file(&self, key: &Key) -> PathBuf {
        self.path.join("d1").join(self.cache.conf().levels.relative(key.digest()))
    }

    /// All files below a directory, without those of the cache itself.
    pub(super) fn files(&self, directory: &str) -> Vec<PathBuf> {
        files_below(&self.path.join(directory))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub(super) fn declare(
    path: &Path,
    zones: &Arc<Zones>,
    caches: &Arc<Caches>,
    change: impl Fn(&Path, &mut CacheConf),
) -> Arc<Cache> {
    let zone = zones.declare(b"one", 1 << 20, "proxy_cache").expect("the only one");
    let mut conf = CacheConf {
        zone,
        disks: vec![DiskConf { path: path.join("d1"), weight: 1 }],
        levels: Levels::parse(b"1:2").expect("levels"),
        inactive_s: 600,
        max_bytes: u64::MAX,
        min_free_bytes: 0,
        loader: Pace::default(),
        manager: Pace::default(),
    };
    change(path, &mut conf);
    let cache = caches.declare(conf);
    zones.open().expect("memory");
    caches.launch().expect("threads");
    caches.begin();
    cache
}

pub(super) fn key(text: &str) -> Key {
    Key::new(text.as_bytes().to_vec())
}

pub(super) fn header(valid_sec: i64) -> StoredHeader<'static> {
    StoredHeader {
        valid_sec,
        updating_sec: 0,
        error_sec: 0,
        last_modified: -1,
        date: 1_795_000_000,
        valid_msec: 0,
        body_start: 0,
        etag: b"",
        vary: b"",
        variant: Digest([0; 16]),
    }
}

pub(super) fn begin(cache: &Arc<Cache>, temp: &Arc<TempPlace>, key: &Key) -> Option<Filling> {
    let what = NewFile { key, digest: key.digest(), header: header(1_795_000_600), head: HEAD, temp };
    cache.begin(&what, None)
}

pub(super) fn store(
    cache: &Arc<Cache>,
    temp: &Arc<TempPlace>,
    key: &Key,
    body: &[u8],
) -> Result<Identity, DiskError> {
    let Some(mut filling) = begin(cache, temp, key) else {
        return Err(DiskError::Out(cache.conf.disks[0].path.clone()));
    };
    for piece in body.chunks(40_000) {
        filling = wait(filling.add(vec![Bytes::copy_from_slice(piece)], Part::Some))?;
    }
    wait(filling.add(Vec::new(), Part::Last))
        .map(|filling| filling.published().expect("it was the last part"))
}

pub(super) fn open(cache: &Arc<Cache>, key: &Key) -> Result<Found, Miss> {
    let wanted = Wanted { key: Arc::new(key.clone()), digest: key.digest(), head_max_bytes: 4096 };
    wait(cache.open(wanted, None))
}

/// The body as it is read from the file.
pub(super) fn body(found: &Found) -> Vec<u8> {
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;
    if let Some(body) = found.body() {
        return body.to_vec();
    }
    let opened = found.file().expect("it was not read as a whole");
    let file = std::fs::File::from(opened.as_fd().try_clone_to_owned().expect("a descriptor"));
    let mut body = vec![0; usize::try_from(found.body_bytes()).expect("small")];
    file.read_exact_at(&mut body, found.body_start()).expect("all of it");
    body
}

/// All files of a cache's directory.
pub(super) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true if path.ends_with(".clearway") => {}
            true => found.append(&mut files_below(&path)),
            false => found.push(path),
        }
    }
    found
}
