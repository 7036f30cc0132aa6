//! Buffers, logs whose lines name their file, syslog servers.

use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;

use super::*;
use crate::{Buffering, FileCacheConfig, syslog};

fn buffering(size: usize) -> Buffering {
    Buffering { size, flush_ms: None, gzip: None }
}

#[test]
fn a_buffer_writes_what_does_not_fit_with_the_next_line() {
    let (scratch, writer) = (Scratch::new("buffer"), started(QUEUE_LINES, QUEUE_BYTES));
    let path = scratch.file("access.log");
    let file = writer.open(&path).unwrap();
    let buffer = writer.buffer(&file, buffering(10));
    let write = |line: &[u8]| {
        buffer.write(line.to_vec());
        assert!(writer.flush(PATIENCE));
        text(&path)
    };
    assert_eq!(write(b"1234\n"), "");
    assert_eq!(write(b"5678\n"), "", "as many as fit");
    assert_eq!(write(b"9\n"), "1234\n5678\n");
    assert_eq!(write(b"longer than the buffer\n"), "1234\n5678\n9\nlonger than the buffer\n");
    file.write(b"direct\n".to_vec());
    assert_eq!(write(b"last\n"), "1234\n5678\n9\nlonger than the buffer\ndirect\n");
    writer.reopen();
    assert!(writer.flush(PATIENCE));
    assert!(text(&path).ends_with("direct\nlast\n"), "reopening empties it");
    buffer.write(b"dropped\n".to_vec());
    drop((buffer, file));
    wait_text(&path, |text| text.ends_with("last\ndropped\n"));
    let (file, other) = (writer.open(&path).unwrap(), writer.open(&path).unwrap());
    let (one, two) = (writer.buffer(&file, buffering(100)), writer.buffer(&other, buffering(100)));
    one.write(b"one\n".to_vec());
    two.write(b"two\n".to_vec());
    assert!(writer.shutdown(PATIENCE), "the end empties buffers");
    assert!(text(&path).ends_with("dropped\none\ntwo\n"), "{}", text(&path));
}

#[test]
fn a_buffer_is_flushed_when_its_first_line_has_waited_long_enough() {
    let (scratch, writer) = (Scratch::new("flush"), started(QUEUE_LINES, QUEUE_BYTES));
    let path = scratch.file("access.log");
    let file = writer.open(&path).unwrap();
    let buffer = writer.buffer(&file, Buffering { flush_ms: Some(50), ..buffering(1000) });
    for n in 0..3 {
        buffer.write(format!("{n}\n").into_bytes());
        wait_text(&path, |text| text.ends_with(&format!("{n}\n")));
    }
}

#[test]
fn a_buffer_with_gzip_writes_members_of_a_gzip_file() {
    let (scratch, writer) = (Scratch::new("gzip"), started(QUEUE_LINES, QUEUE_BYTES));
    let path = scratch.file("access.log.gz");
    let file = writer.open(&path).unwrap();
    let buffer = writer.buffer(&file, Buffering { gzip: Some(9), ..buffering(100) });
    let line = |n| format!("{n:09}\n");
    (0..1000).for_each(|n| buffer.write(line(n).into_bytes()));
    assert!(writer.shutdown(PATIENCE));
    #[expect(clippy::disallowed_methods, reason = "a test")]
    let packed = fs::read(&path).unwrap();
    let mut text = String::new();
    flate2::read::MultiGzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text, (0..1000).map(line).collect::<String>());
    assert_eq!(packed.windows(3).filter(|window| window == b"\x1f\x8b\x08").count(), 100, "one per buffer");
}

#[test]
fn lines_go_to_the_files_that_they_name() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("named"), started(QUEUE_LINES, QUEUE_BYTES));
    let log = error_log(&writer, &scratch.file("error.log"), Level::Error);
    let named = writer.named(None);
    let root = scratch.0.to_str().unwrap().as_bytes();
    let path = |name: &str| scratch.file(name).to_str().unwrap().as_bytes().to_vec();
    let write = |name: &str, root: &[u8], text: &[u8]| {
        let mut line = named.begin(&path(name), Some(root), text.len());
        line.extend_from_slice(text);
        named.write(line);
    };
    let unwritten = LINES_UNWRITTEN.value();
    write("a", root, b"1\n");
    write("b", root, b"2\n");
    write("a", root, b"3\n");
    write("c", b"/nonexistent", b"4\n");
    assert!(writer.flush(PATIENCE));
    assert_eq!((text(&scratch.file("a")), text(&scratch.file("b"))), ("1\n3\n".to_owned(), "2\n".to_owned()));
    assert!(!scratch.file("c").exists(), "no file for a host that does not exist");
    assert_eq!(LINES_UNWRITTEN.value(), unwritten, "what goes nowhere as intended is not lost");
    let told = wait_text(&scratch.file("error.log"), |text| !text.is_empty());
    let message = "testing \"/nonexistent\" existence failed (2: No such file or directory)\n";
    assert!(told.contains("[error] ") && told.ends_with(message), "{told}");
    let second = told[..19].to_owned();
    // The next failure is told of in another second.
    while clearway_base::date::error_log_time(unix_s(), writer.utc_offset().minutes()) == second.as_bytes() {
        std::thread::yield_now();
    }
    write("none/x", root, b"5\n");
    let told = wait_text(&scratch.file("error.log"), |text| text.lines().count() > 1);
    let message = "none/x\" failed (2: No such file or directory)\n";
    assert!(told.contains("[crit] ") && told.contains("open() \"") && told.ends_with(message), "{told}");
    assert_eq!(LINES_UNWRITTEN.value(), unwritten + 1);
    drop(log);
}

fn unix_s() -> i64 {
    (clearway_os::clock::unix_ms() / 1000).cast_signed()
}

/// What nginx's own test of `open_log_file_cache` does.
#[test]
fn a_cache_keeps_the_files_that_are_used() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("cache"), started(QUEUE_LINES, QUEUE_BYTES));
    let (here, moved) = (scratch.file("dir"), scratch.file("moved"));
    #[expect(clippy::disallowed_methods, reason = "a test")]
    fs::create_dir_all(&here).unwrap();
    let config = FileCacheConfig { max: 3, inactive_s: 20, valid_s: 60, min_uses: 2 };
    let named = writer.named(Some(config));
    let write = |name: &str| {
        let mut line = named.begin(here.join(name).to_str().unwrap().as_bytes(), None, 8);
        line.extend_from_slice(b"line\n");
        named.write(line);
        assert!(writer.flush(PATIENCE));
    };
    ["lru", "lru", "once", "first", "first", "second", "second"].iter().for_each(|name| write(name));
    rename(&here, &moved);
    ["lru", "once", "first", "second"].iter().for_each(|name| write(name));
    let lines = ["lru", "once", "first", "second"].map(|name| text(&moved.join(name)).lines().count());
    assert_eq!(lines, [2, 1, 3, 3]);
}

#[test]
fn a_cache_looks_whether_a_name_still_means_the_same_file() {
    let (scratch, writer) = (Scratch::new("valid"), started(QUEUE_LINES, QUEUE_BYTES));
    let (path, moved) = (scratch.file("a"), scratch.file("b"));
    let named = writer.named(Some(FileCacheConfig { max: 3, inactive_s: 20, valid_s: 0, min_uses: 1 }));
    let write = || {
        let mut line = named.begin(path.to_str().unwrap().as_bytes(), None, 8);
        line.extend_from_slice(b"line\n");
        named.write(line);
        assert!(writer.flush(PATIENCE));
    };
    write();
    rename(&path, &moved);
    #[expect(clippy::disallowed_methods, reason = "a test")]
    fs::write(&path, "").unwrap();
    write();
    assert_eq!((text(&moved), text(&path)), ("line\n".to_owned(), "line\n".to_owned()));
}

#[test]
fn datagrams_to_a_server_that_goes_and_comes_back() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("syslog"), started(QUEUE_LINES, QUEUE_BYTES));
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let address = server.local_addr().unwrap();
    let config =
        |more: &str| syslog::Config::parse(format!("syslog:server={address}{more}").as_bytes()).unwrap();
    let received = |server: &UdpSocket| {
        let mut buffer = [0; 4096];
        let size = server.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..size].to_vec()).unwrap()
    };
    let access = writer.syslog(config(",tag=web,facility=local0,nohostname"));
    let say = |text: &[u8]| {
        let mut message = access.begin(None, 1_706_745_599, 0, text.len());
        message.extend_from_slice(text);
        access.write(message);
        assert!(writer.flush(PATIENCE));
    };
    say(b"hello");
    assert_eq!(received(&server), "<134>Jan 31 23:59:59 web: hello");

    let file = writer.open(&scratch.file("error.log")).unwrap();
    let targets = vec![
        ErrorTarget { to: Destination::File(file), level: Level::Error },
        ErrorTarget { to: Destination::Syslog(writer.syslog(config(",nohostname"))), level: Level::Warn },
    ];
    let log = Arc::new(ErrorLog::new(&writer, targets));
    writer.report_to(&log);
    log.log(Level::Warn, format_args!("watch out"));
    let line = received(&server);
    let pid = std::process::id();
    assert!(
        line.starts_with("<188>") && line.ends_with(&format!(" [warn] {pid}#{pid}: watch out")),
        "{line}"
    );
    assert!(line.contains(" nginx: 20"), "{line}");

    drop(server);
    // The first is refused after it was sent, which the second is told.
    [b"1", b"2", b"3", b"4"].iter().for_each(|text| say(&text[..]));
    let told = wait_text(&scratch.file("error.log"), |text| !text.is_empty());
    let message =
        format!("send() failed (111: Connection refused) while logging to syslog, server: {address}\n");
    assert!(told.contains("[error] ") && told.ends_with(&message), "{told}");
    let server = UdpSocket::bind(address).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    say(b"5");
    say(b"6");
    let line = received(&server);
    assert!(line.ends_with(": 5") || line.ends_with(": 6") || line.contains("[error]"), "{line}");
    drop(log);
}

#[test]
fn a_unix_socket_that_is_not_there() {
    let _counters = crate::writer::lock(&COUNTERS);
    let (scratch, writer) = (Scratch::new("unix"), started(QUEUE_LINES, QUEUE_BYTES));
    let path = scratch.file("log");
    let log = error_log(&writer, &scratch.file("error.log"), Level::Error);
    let text = format!("syslog:server=unix:{},nohostname", path.display());
    let syslog = writer.syslog(syslog::Config::parse(text.as_bytes()).unwrap());
    let say = |text: &[u8]| {
        let mut message = syslog.begin(Some(Level::Crit), 0, 0, text.len());
        message.extend_from_slice(text);
        syslog.write(message);
        assert!(writer.flush(PATIENCE));
    };
    let unwritten = LINES_UNWRITTEN.value();
    say(b"lost");
    assert_eq!(LINES_UNWRITTEN.value(), unwritten + 1);
    let told = wait_text(&scratch.file("error.log"), |text| !text.is_empty());
    let server = path.display();
    let message = format!(
        "connect() failed (2: No such file or directory) while logging to syslog, server: unix:{server}\n"
    );
    assert!(told.contains("[alert] ") && told.ends_with(&message), "{told}");
    let server = UnixDatagram::bind(&path).unwrap();
    say(b"found");
    let mut buffer = [0; 100];
    let size = server.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..size], b"<186>Jan  1 00:00:00 nginx: found");
    drop(log);
}
