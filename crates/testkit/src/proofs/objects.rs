//! A cache of very many objects: known at once after a start, with little memory for each, and none the
//! worse for a worker that is killed. Most objects are records of the index alone; a sample of them has
//! files and is asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use super::deployed;
use crate::server::send_signal;
use crate::{Binary, Connection, Server, Setup, expect_soon};

/// Memory of a slot of the index, bytes.
const SLOT_BYTES: u64 = 64;
/// For how long hits are counted.
const WINDOW: Duration = Duration::from_secs(1);
/// Records of a block of what is written down of an index (`cache::journal`), and their length, bytes.
const BLOCK_RECORDS: u64 = 1600;
const RECORD_BYTES: usize = 40;
/// Length of an entry of a journal, bytes.
const ENTRY_BYTES: u64 = 48;

/// The size of the proof.
#[derive(Clone, Copy, Debug)]
pub struct Objects {
    /// Objects that the index knows.
    pub objects: u64,
    /// How many of them have files.
    pub sample: u64,
    /// How often the worker is killed.
    pub kills: usize,
}

/// The outcome.
#[derive(Clone, Debug)]
pub struct ObjectsReport {
    /// Part of the requests of the first second after the start that were hits.
    pub after_start: f64,
    /// The figures after each kill.
    pub after_kills: Vec<f64>,
    /// Memory of the index for each object, bytes.
    pub bytes_each: f64,
    /// Objects that the server knew in the end.
    pub known: u64,
}

impl Objects {
    /// Plays it.
    ///
    /// # Panics
    /// If the server does not start, or what it says of its cache is not understood.
    pub fn play(self, binary: &Binary) -> ObjectsReport {
        // Seven tenths of the slots are used; the zone has a little of its own.
        let directory = Directory::new();
        let zone_bytes = (self.objects + self.sample) * SLOT_BYTES * 10 / 7 + (1 << 20);
        let config = deployed(
            "user root;",
            &format!(
                "access_log off;
                proxy_cache_path {} levels=1:2 keys_zone=one:{zone_bytes} inactive=10d \
                 use_temp_path=off;
                server {{ listen 127.0.0.1:%%PORT%%;
                    location = /metrics {{ status prometheus; }} location /origin {{ return 200 $uri; }}
                    location / {{ proxy_cache one; proxy_cache_key $uri; proxy_cache_valid 10d;
                        add_header X-Cache $upstream_cache_status;
                        proxy_pass http://127.0.0.1:%%PORT%%/origin$uri; }} }}",
                directory.0.display()
            ),
        );
        let config = config.replace("processes 2", "processes 1");
        let server = Setup::new(binary.clone(), &config).start();
        let mut client = server.connect();
        (0..self.sample).for_each(|number| _ = ask(&mut client, number));
        // Changes are written down within a moment; then the server is killed.
        expect_soon("all are written down", || directory.journal_bytes() >= self.sample * ENTRY_BYTES);
        drop((client, server));
        self.write_index(&directory.0.join(".clearway/index"));
        let server = Setup::new(binary.clone(), &config).start();
        let after_start = self.hits(&server);
        // A worker that is killed before it has read what was written down leaves the rest to the walk, which
        // finds files alone.
        let mut known = 0;
        expect_soon("all are counted", || {
            known = metric(&server, "clearway_cache_objects{");
            known >= self.objects
        });
        let after_kills = (0..self.kills)
            .map(|_| {
                let worker = server.worker();
                send_signal(worker, Signal::KILL);
                server.wait_gone(worker);
                self.hits(&server)
            })
            .collect();
        let bytes_each = zone_bytes as f64 / known as f64;
        ObjectsReport { after_start, after_kills, bytes_each, known }
    }

    /// The part of hits among the requests of a second.
    fn hits(self, server: &Server) -> f64 {
        let (mut client, since) = (server.connect(), Instant::now());
        let (mut asked, mut hits) = (0_u64, 0_u64);
        while since.elapsed() < WINDOW {
            hits += u64::from(ask(&mut client, asked.wrapping_mul(7919) % self.sample));
            asked += 1;
        }
        hits as f64 / asked.max(1) as f64
    }

    /// Writes the index of a server that knew all these objects.
    fn write_index(self, path: &Path) {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is not 1970").as_secs();
        let mut out = Vec::with_capacity(self.objects as usize * RECORD_BYTES + (1 << 20));
        out.extend_from_slice(b"cwindex\x01");
        out.extend_from_slice(&now_s.to_le_bytes());
        let mut number = 0;
        while number < self.objects {
            let block = out.len();
            for record in number..self.objects.min(number + BLOCK_RECORDS) {
                let half = (record + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                out.extend_from_slice(&half.to_le_bytes());
                out.extend_from_slice(
                    &half.rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9).to_le_bytes(),
                );
                out.extend_from_slice(&((now_s + 86_400) | (1 << 34)).to_le_bytes());
                out.extend_from_slice(&(1_u64 | (400 << 32)).to_le_bytes());
                out.extend_from_slice(&now_s.to_le_bytes());
            }
            let sum = crc32(&out[block..]);
            out.extend_from_slice(&sum.to_le_bytes());
            number += BLOCK_RECORDS;
        }
        fs::write(path, out).expect("there is room");
    }
}

/// Whether the answer is right and came from the cache.
fn ask(client: &mut Connection, number: u64) -> bool {
    let response = client.ask(&format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(response.text(), format!("/origin/{number}"));
    response.header("X-Cache") == Some("HIT")
}

/// The cache's; removed when it is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("clearway-objects-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the temporary directory is writable");
        Self(path)
    }

    fn journal_bytes(&self) -> u64 {
        fs::metadata(self.0.join(".clearway/journal")).map_or(0, |found| found.len())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files that are left behind are in nobody's way.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn metric(server: &Server, name: &str) -> u64 {
    let text = server.get("/metrics").text();
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

/// CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}
