//! A cache whose files are cut, changed and removed, whose disk is full, hangs and fails, and whose server is
//! killed, while clients ask for objects whose content follows from their names: not a byte is wrong, and no
//! request fails but those that were cut in the middle. To be played as root, since it mounts.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::deployed;
use super::random::Random;
use crate::client::PATIENCE;
use crate::hung::HungMount;
use crate::server::send_signal;
use crate::{Address, Binary, Server, Setup};

const CLIENTS: u64 = 6;
/// The least room on the disk of the cache, KiB.
const ROOM_MIN_KIB: u64 = 16 * 1024;
/// The room for each object, KiB: a third of it.
const ROOM_EACH_KIB: u64 = 8;
/// Files up to this size are changed in place; of a larger one a part may be on its way, bytes.
const SMALL_BYTES: u64 = 32 * 1024;
/// How long a disk hangs before it fails.
const HANGS: Duration = Duration::from_millis(300);
/// For how long no request may bring a fault on.
const STEP_MAX: Duration = Duration::from_secs(20);

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Torn {
    /// Objects that are asked for.
    pub objects: u64,
    /// How often something is done to the cache.
    pub faults: u64,
    /// Requests between two faults.
    pub requests_between: u64,
    /// Faults and objects follow from it.
    pub seed: u64,
}

/// The outcome.
#[derive(Clone, Debug, Default)]
pub struct TornReport {
    /// Answers that were right.
    pub right: u64,
    /// How many of them came from the cache.
    pub hits: u64,
    /// Answers with another byte than there should be.
    pub wrong: u64,
    /// Requests without an answer, or with another one than 200, though nothing was sent yet.
    pub failed: u64,
    /// Answers that were cut in the middle, right up to there.
    pub cut: u64,
    /// Requests whose server was killed.
    pub killed: u64,
}

#[derive(Default)]
struct Counts {
    right: AtomicU64,
    hits: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
    cut: AtomicU64,
    killed: AtomicU64,
    kills: AtomicU64,
    is_over: AtomicBool,
}

/// A hash of the object's number again and again; one in twenty objects is large.
fn content(number: u64) -> Vec<u8> {
    let mut random = Random(number);
    let line = format!("{:016x} {number}\n", random.below(u64::MAX));
    let length = if random.below(20) == 0 { 100_000 + random.below(400_000) } else { random.below(20_000) };
    line.bytes().cycle().take(length as usize).collect()
}

/// A file system of its own for the cache; unmounted when it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(room_kib: u64) -> Self {
        let path = std::env::temp_dir().join(format!("clearway-torn-{}", std::process::id()));
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        let options = format!("size={room_kib}k,mode=777");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).status();
        assert!(mount.is_ok_and(|status| status.success()), "may not mount here: this is for root");
        Self(path)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

fn origin() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    port
}

fn serve(mut stream: TcpStream) {
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            received.drain(..end + 4);
            let target = head.split(' ').nth(1).unwrap_or_default();
            let body = content(target.trim_start_matches('/').parse().unwrap_or_default());
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nCache-Control: max-age=600\r\n\r\n",
                body.len()
            );
            if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                return;
            }
        }
        match stream.read(&mut piece) {
            Ok(size @ 1..) => received.extend_from_slice(&piece[..size]),
            _ => return,
        }
    }
}

impl Torn {
    /// Plays it.
    ///
    /// # Panics
    /// Where this process may not mount, or the server stops.
    pub fn play(self, binary: &Binary) -> TornReport {
        let room_kib = ROOM_MIN_KIB.max(self.objects * ROOM_EACH_KIB);
        let disk = Disk::mount(room_kib);
        let config = deployed(
            "user root;",
            &format!(
                "access_log off; proxy_cache_path {}/cache levels=1 keys_zone=one:4m use_temp_path=off;
                server {{ listen 127.0.0.1:%%PORT%%; proxy_cache one; proxy_cache_key $uri;
                    add_header X-Cache $upstream_cache_status;
                    location / {{ proxy_pass http://127.0.0.1:{}; }} }}",
                disk.0.display(),
                origin()
            ),
        );
        let server = Setup::new(binary.clone(), &config.replace("processes 2", "processes 1")).start();
        let Address::Tcp(address) = server.address() else { panic!("it listens on TCP") };
        let counts = Arc::<Counts>::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (counts, random) = (Arc::clone(&counts), Random(self.seed ^ (client << 32)));
                thread::spawn(move || ask(address, random, self.objects, &counts))
            })
            .collect();
        self.break_things(&server, (&disk.0, room_kib), &counts);
        counts.is_over.store(true, Ordering::SeqCst);
        clients.into_iter().for_each(|client| client.join().expect("it does not panic"));
        let of = |count: &AtomicU64| count.load(Ordering::SeqCst);
        TornReport {
            right: of(&counts.right),
            hits: of(&counts.hits),
            wrong: of(&counts.wrong),
            failed: of(&counts.failed),
            cut: of(&counts.cut),
            killed: of(&counts.killed),
        }
    }

    fn break_things(self, server: &Server, (disk, room_kib): (&Path, u64), counts: &Counts) {
        let mut random = Random(self.seed);
        let filler = disk.join("filler");
        for _ in 0..self.faults {
            let before = counts.right.load(Ordering::SeqCst);
            let has_asked = || counts.right.load(Ordering::SeqCst) >= before + self.requests_between;
            crate::wait_until(STEP_MAX, has_asked);
            match random.below(16) {
                0 => {
                    let worker = server.worker();
                    counts.kills.fetch_add(1, Ordering::SeqCst);
                    send_signal(worker, Signal::KILL);
                    server.wait_gone(worker);
                    server.worker_after(worker);
                    counts.kills.fetch_add(1, Ordering::SeqCst);
                }
                1 => {
                    // It takes what is there, and is gone at the next fault.
                    let _ = fs::write(&filler, vec![0; room_kib as usize * 1024]);
                }
                2 => {
                    let directory = disk.join(format!("cache/{:x}", random.below(16)));
                    let _ = fs::create_dir_all(&directory);
                    let mut mount = HungMount::over(&directory);
                    thread::sleep(HANGS);
                    mount.give_up();
                    thread::sleep(HANGS);
                }
                _ => {
                    let _ = fs::remove_file(&filler);
                    harm(&disk.join("cache"), &mut random);
                }
            }
        }
    }
}

/// Does something to a file that nobody of the cache's would do.
fn harm(cache: &Path, random: &mut Random) {
    let Ok(entries) = fs::read_dir(cache.join(format!("{:x}", random.below(16)))) else { return };
    let files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    if files.is_empty() {
        return;
    }
    let path = &files[random.below(files.len() as u64) as usize];
    // A file that does not exist was removed by another turn, or the cache itself.
    let Ok(length) = fs::metadata(path).map(|found| found.len()) else { return };
    let open = || fs::File::options().write(true).open(path);
    let _ = match random.below(3) {
        0 => fs::remove_file(path),
        1 if length <= SMALL_BYTES => open().and_then(|mut file| file.write_all(b"noise")),
        _ => open().and_then(|file| file.set_len(random.below(length + 1))),
    };
}

/// Asks for objects until it is over.
fn ask(address: SocketAddr, mut random: Random, objects: u64, counts: &Counts) {
    let mut connection = None;
    while !counts.is_over.load(Ordering::SeqCst) {
        let number = random.below(objects);
        let kills = counts.kills.load(Ordering::SeqCst);
        let stream = connection.take().or_else(|| TcpStream::connect_timeout(&address, PATIENCE).ok());
        let answer = stream.map(|stream| exchange(stream, number));
        let count = match answer {
            Some(Ok((stream, is_hit))) => {
                connection = Some(stream);
                counts.hits.fetch_add(u64::from(is_hit), Ordering::SeqCst);
                &counts.right
            }
            Some(Err(Fault::Wrong)) => &counts.wrong,
            // A kill has begun or ended since.
            _ if kills % 2 == 1 || counts.kills.load(Ordering::SeqCst) != kills => &counts.killed,
            Some(Err(Fault::Cut)) => &counts.cut,
            Some(Err(Fault::Failed)) | None => &counts.failed,
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

enum Fault {
    Wrong,
    Cut,
    Failed,
}

/// Sends one request. Returns whether it was a hit.
fn exchange(mut stream: TcpStream, number: u64) -> Result<(TcpStream, bool), Fault> {
    let expected = content(number);
    let request = format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n");
    let patience = stream.set_read_timeout(Some(PATIENCE));
    patience.and_then(|()| stream.write_all(request.as_bytes())).map_err(|_| Fault::Failed)?;
    let (mut received, mut piece) = (Vec::new(), vec![0; 64 * 1024]);
    let mut body_start = None;
    loop {
        body_start = body_start
            .or_else(|| received.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|end| end + 4));
        if let Some(start) = body_start {
            if !received.starts_with(b"HTTP/1.1 200") {
                return Err(Fault::Failed);
            }
            let body = &received[start..];
            if !expected.starts_with(body) {
                return Err(Fault::Wrong);
            }
            if body.len() == expected.len() {
                let is_hit = received[..start].windows(12).any(|bytes| bytes == b"X-Cache: HIT");
                return Ok((stream, is_hit));
            }
        }
        match stream.read(&mut piece) {
            Ok(size @ 1..) => received.extend_from_slice(&piece[..size]),
            _ if body_start.is_some() => return Err(Fault::Cut),
            _ => return Err(Fault::Failed),
        }
    }
}
