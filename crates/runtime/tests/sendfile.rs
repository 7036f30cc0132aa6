//! A file that is larger than the buffers goes out by sendfile, woken by room in the socket.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests")]

use std::fs::File;
use std::future::poll_fn;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use clearway_runtime::{Config, LoopRef, Runtime, Socket, Tag};

const PATIENCE: Duration = Duration::from_secs(30);
const SIZE: usize = 8 << 20;

/// A file without a name, whose contents are the same from no two offsets nearby.
fn file() -> (File, Vec<u8>) {
    static FILES: AtomicU32 = AtomicU32::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("clearway-sendfile-{}-{number}", std::process::id()));
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let contents: Vec<u8> = (0..SIZE as u32).map(|i| (i % 251) as u8).collect();
    file.write_all(&contents).unwrap();
    file.rewind().unwrap();
    (file, contents)
}

fn one_loop() -> LoopRef {
    let config = Config { handover_after: None, handover_carriers: 4, ..Config::default() };
    Runtime::start(&config).unwrap().loops().next().unwrap()
}

/// Sends from `offset` to the end, returns how often it was asked.
async fn send(socket: Socket, file: File, mut offset: u64) -> std::io::Result<u32> {
    let mut calls = 0;
    loop {
        calls += 1;
        match poll_fn(|cx| socket.poll_sendfile(cx, file.as_fd(), offset, 1 << 20)).await? {
            0 => return Ok(calls),
            sent => offset += sent as u64,
        }
    }
}

#[test]
fn a_file_passes_a_reader_that_is_slow_to_begin() {
    let home = one_loop();
    let (file, contents) = file();
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let (tell, told) = mpsc::channel();
    let start = 12_345;
    home.spawn(Tag::NONE, async move {
        tell.send(send(Socket::new(home, OwnedFd::from(ours)), file, start).await).unwrap();
    });
    theirs.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut first = [0];
    theirs.read_exact(&mut first).unwrap();
    // The buffers are full by now or will be: either way the rest needs room that reading makes.
    let mut rest = Vec::new();
    theirs.read_to_end(&mut rest).unwrap();
    let calls = told.recv_timeout(PATIENCE).unwrap().unwrap();
    assert!(calls > (SIZE >> 20) as u32, "{calls} calls");
    assert!(first == contents[start as usize..][..1] && rest == contents[start as usize + 1..]);
}

#[test]
fn a_reader_that_went_away_is_an_error() {
    let home = one_loop();
    let (file, _) = file();
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    drop(theirs);
    let (tell, told) = mpsc::channel();
    home.spawn(Tag::NONE, async move {
        tell.send(send(Socket::new(home, OwnedFd::from(ours)), file, 0).await).unwrap();
    });
    let error = told.recv_timeout(PATIENCE).unwrap().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
}
