//! Serves a configuration inside the test's own process: a real runtime, real sockets, real files.

use std::fs;
use std::future::poll_fn;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use clearway_base::log::{Discard, Level, Record, Sink};
use clearway_conf::{Error, Loader, Memory};
use clearway_http::{
    Environment, Generation, GenerationParts, Listener, Module, Services, Snapshot, ThreadPools,
};
use clearway_log::{Disk, Writer};
use clearway_modules::access_control::limit_req;
use clearway_modules::content::{disable_symlinks, open_file_cache};
use clearway_modules::content::{files, index, realpath, static_files, try_files};
use clearway_modules::filters::{not_modified, range_filter};
use clearway_modules::{access_log, rewrite};
use clearway_net::accept::{AcceptPolicy, Accepted, MultiAccept};
use clearway_offload::{Pool, PoolConfig};
use clearway_runtime::{Config, LoopRef, Runtime, Tag};
use clearway_testkit::client::PATIENCE;
use clearway_testkit::ports::free_port;
use clearway_testkit::wait_until;
use clearway_zone::Zones;

const LOOPS: usize = 2;

/// Collects lines of the error log.
#[derive(Default)]
pub(crate) struct Lines(Mutex<Vec<String>>);

impl Sink for Lines {
    fn enabled(&self, level: Level) -> bool {
        level < Level::Debug
    }

    fn write(&self, record: &Record<'_>) {
        self.0.lock().unwrap().push(format!("[{}] {}", record.level.as_str(), record.message));
    }
}

/// A configuration that is being served.
pub(crate) struct Site {
    pub(crate) port: u16,
    pub(crate) root: PathBuf,
    pub(crate) writer: Arc<Writer>,
    lines: Arc<Lines>,
    listeners: Vec<Arc<Listener>>,
}

impl Site {
    /// Serves the content of an `http` block, in which `PORT` and `ROOT` stand for what they are.
    pub(crate) fn start(http: &str) -> Self {
        Self::start_with(http, &[])
    }

    /// The same with further modules before the usual ones.
    pub(crate) fn start_with(http: &str, extra: &[&'static Module]) -> Self {
        let (port, root) = (free_port(), scratch());
        let http = http.replace("PORT", &port.to_string()).replace("ROOT", root.to_str().unwrap());
        let writer = Arc::new(Writer::new(Box::new(Disk)));
        writer.start().unwrap();
        let lines = Arc::new(Lines::default());
        let loaded = load(&http, &root, &writer, &lines, extra).unwrap();
        let snapshot = Arc::new(loaded.0);
        let identities = runtime().identities().unwrap();
        let parts = GenerationParts { number: 1, snapshot: snapshot.clone(), identities };
        let generation = Generation::new(parts, drop);
        let listeners = (0..snapshot.sockets().len()).map(|socket| listen(&generation, socket)).collect();
        Self { port, root, writer, lines, listeners }
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> &Self {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    pub(crate) fn connect(&self) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client { stream, received: Vec::new() }
    }

    /// The answer to one request on a connection of its own.
    pub(crate) fn get(&self, target: &str) -> String {
        let mut client = self.connect();
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        String::from_utf8_lossy(&client.read_to_end()).into_owned()
    }

    /// Waits until a line of the error log has this text.
    pub(crate) fn expect_logged(&self, text: &str) {
        let seen = wait_until(PATIENCE, || self.has_logged(text));
        assert!(seen, "no {text:?} in {:#?}", self.lines.0.lock().unwrap());
    }

    /// Whether a line of the error log has this text by now.
    pub(crate) fn has_logged(&self, text: &str) -> bool {
        self.lines.0.lock().unwrap().iter().any(|line| line.contains(text))
    }

    /// Waits until a log file below `root` has so many lines, and returns it: a request's line may come
    /// later than the end of its connection.
    pub(crate) fn wait_lines(&self, path: &str, count: usize) -> String {
        let mut log = String::new();
        let whole = wait_until(PATIENCE, || {
            // Where that takes longer, or the writer has ended, the lines are looked at again soon.
            let _ = self.writer.flush(Duration::from_millis(20));
            log = fs::read_to_string(self.root.join(path)).unwrap_or_default();
            log.lines().count() >= count
        });
        assert!(whole, "fewer than {count} lines: {log}");
        log
    }

    /// Stops gracefully.
    pub(crate) fn stop(&self) {
        self.listeners.iter().for_each(|listener| listener.stop());
        runtime().wake_all();
    }
}

/// A client's connection.
pub(crate) struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    pub(crate) fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Everything up to the end of the connection.
    pub(crate) fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.received);
        self.stream.read_to_end(&mut all).unwrap();
        all
    }

    /// So many bytes.
    pub(crate) fn read_exact(&mut self, count: usize) -> String {
        let ready = self.received.len().min(count);
        let mut all: Vec<u8> = self.received.drain(..ready).collect();
        all.resize(count, 0);
        self.stream.read_exact(&mut all[ready..]).unwrap();
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Ends the direction to the server.
    pub(crate) fn end_sending(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Breaks the connection.
    pub(crate) fn reset(self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Whether nothing has come so far.
    pub(crate) fn has_nothing(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let found = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).unwrap();
        self.received.is_empty() && found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Waits until something has come, and nothing more comes, and reads none of it.
    pub(crate) fn wait_for_silence(&mut self) {
        let mut before = 0;
        let silent = wait_until(PATIENCE, || {
            std::thread::sleep(Duration::from_millis(50));
            let now = rustix::io::ioctl_fionread(&self.stream).unwrap();
            std::mem::replace(&mut before, now) == now && now > 0
        });
        assert!(silent, "more and more comes");
    }

    /// How many bytes come until the connection ends or breaks.
    pub(crate) fn read_available(&mut self) -> usize {
        let mut all = Vec::new();
        // An error tells as well as the end that nothing more comes.
        let _ = self.stream.read_to_end(&mut all);
        self.received.len() + all.len()
    }

    /// Everything up to and with this text.
    pub(crate) fn read_until(&mut self, text: &str) -> String {
        let mut buf = [0; 4096];
        loop {
            let found = self.received.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let rest = self.received.split_off(at + text.len());
                let all = std::mem::replace(&mut self.received, rest);
                return String::from_utf8_lossy(&all).into_owned();
            }
            let count = self.stream.read(&mut buf).unwrap();
            assert!(count > 0, "end before {text:?}: {:?}", String::from_utf8_lossy(&self.received));
            self.received.extend_from_slice(&buf[..count]);
        }
    }
}

/// Loads an `http` block; the snapshot and the warnings.
pub(crate) fn load(
    http: &str,
    root: &Path,
    writer: &Arc<Writer>,
    lines: &Arc<Lines>,
    extra: &[&'static Module],
) -> Result<(Snapshot, Vec<Error>), Error> {
    let path = Path::new("nginx.conf");
    let source = Memory::new().with(path, format!("http {{\n{http}\n}}"));
    let block = Loader::new(&source, path).file(path);
    let sink: Arc<dyn Sink> = lines.clone();
    let zones = Arc::new(Zones::create(None));
    let environment = Environment {
        prefix: root.join(""),
        hostname: Bytes::from_static(b"machine"),
        utc_offset: writer.utc_offset(),
        log_progress: writer.progress(),
        error_log: sink.clone(),
        open_error_log: Box::new(move |_| Ok(sink.clone())),
        default_port: 8000,
        services: Services::default()
            .with(pool())
            .with(ThreadPools::new([pool()]))
            .with(writer.clone())
            .with(zones.clone()),
    };
    let mut warnings = Vec::new();
    block.end()?;
    let snapshot = clearway_http::loader(&modules(extra)).load(
        block.directives[0].clone(),
        environment,
        &mut warnings,
    )?;
    zones.open().map_err(Error::unplaced)?;
    Ok((snapshot, warnings))
}

fn modules(extra: &[&'static Module]) -> Vec<&'static Module> {
    let mut all: Vec<&'static Module> = vec![
        &files::FILES,
        &disable_symlinks::DISABLE_SYMLINKS,
        &open_file_cache::OPEN_FILE_CACHE,
        &not_modified::NOT_MODIFIED,
        &realpath::REALPATH,
        &rewrite::REWRITE,
        &try_files::TRY_FILES,
        &limit_req::LIMIT_REQ,
    ];
    #[cfg(feature = "testing")]
    all.push(&clearway_modules::testing::TESTING);
    all.extend(extra);
    all.extend([&index::INDEX, &static_files::STATIC_FILES, &access_log::ACCESS_LOG]);
    all.push(&range_filter::RANGE_FILTER);
    all
}

fn listen(generation: &Arc<Generation>, socket: usize) -> Arc<Listener> {
    let request = generation.parts().snapshot.sockets()[socket].request();
    let fd = Arc::new(clearway_net::bind::bind(&request.address, &request.options, &Discard).unwrap());
    let listener = Arc::new(Listener::new(generation.clone(), socket));
    for home in runtime().loops() {
        let accepting = clearway_runtime::Listener::new(home, fd.clone()).unwrap();
        home.spawn(Tag::NONE, accept(home, accepting, listener.clone()));
    }
    listener
}

async fn accept(home: LoopRef, accepting: clearway_runtime::Listener, listener: Arc<Listener>) {
    let policy = AcceptPolicy::new(u32::MAX, MultiAccept::On);
    loop {
        poll_fn(|cx| accepting.poll_acceptable(cx)).await;
        while let Ok((fd, peer)) = accepting.accept() {
            let slot = policy.take_slot().unwrap();
            let accepted = Accepted { socket: fd, peer: peer.into(), slot };
            home.spawn(Tag::NONE, clearway_serve::serve(listener.clone(), home, accepted));
        }
    }
}

fn runtime() -> Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    *RUNTIME.get_or_init(|| {
        Runtime::start(&Config { loops: LOOPS, handover_carriers: 64, ..Config::default() }).unwrap()
    })
}

fn pool() -> Arc<Pool> {
    static POOL: OnceLock<Arc<Pool>> = OnceLock::new();
    POOL.get_or_init(|| Arc::new(Pool::start(PoolConfig::new("default"), Arc::new(Discard)).unwrap())).clone()
}

fn scratch() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let root = std::env::temp_dir().join(format!("clearway-modules-{}-{number}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    root
}
