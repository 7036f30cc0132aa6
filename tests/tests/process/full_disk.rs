//! A small file system that fills up: logs, which go on when there is room again; responses that are kept.

use std::path::{Path, PathBuf};
use std::process::Command;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Load, wait_until};

use crate::setup;

/// A small file system in memory; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    /// One of so many KiB.
    ///
    /// # Panics
    /// Where this process may not mount: not even root may in some containers.
    fn mount(at: &Path, kib: u32) -> Self {
        std::fs::create_dir_all(at).expect("the directory is ours");
        let options = format!("size={kib}k,mode=777");
        let mounted = run("mount", &["-t", "tmpfs", "-o", &options, "tmpfs", &at.to_string_lossy()]);
        assert!(mounted, "may not mount here; leave these tests out with -- --skip full_disk");
        Self(at.to_owned())
    }

    fn grow(&self) {
        assert!(run("mount", &["-o", "remount,size=64m", &self.0.to_string_lossy()]));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        run("umount", &["--lazy", &self.0.to_string_lossy()]);
    }
}

fn run(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).status().is_ok_and(|status| status.success())
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
fn a_log_goes_on_when_there_is_room_again() {
    let dir = std::env::temp_dir().join(format!("clearway-small-{}", std::process::id()));
    let small = Small::mount(&dir, 64);
    let log = dir.join("access.log");
    let http = format!(
        "access_log {};\n\
         server {{ listen 127.0.0.1:%%PORT%%; root site; location = / {{ return 200 ok; }} }}",
        log.display()
    );
    let server = setup("", &http.replace("access_log logs/access.log;", "")).start();
    let load = Load::new(server.address()).bodies(&["ok"]).start();
    load.wait_answers(2000);
    // The last line that has begun is cut off; after that nothing can be written.
    server.wait_log("logs/error.log", &format!("write() to \"{}\" ", log.display()));
    small.grow();
    let bytes = || log.metadata().map(|meta| meta.len()).unwrap_or_default();
    assert!(wait_until(PATIENCE, || bytes() > 70 << 10), "{} bytes: {}", bytes(), server.described());
    let load = load.finish();
    assert_eq!(load.failed(), 0, "{load}");
    drop(server);
    drop(small);
    std::fs::remove_dir(&dir).expect("nothing but the file system was there");
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
#[cfg_attr(nginx_under_test, ignore = "nginx cuts the response")]
fn a_response_that_cannot_be_kept_is_answered() {
    let dir = std::env::temp_dir().join(format!("clearway-small-kept-{}", std::process::id()));
    let small = Small::mount(&dir, 64);
    let http = format!(
        "server {{ listen 127.0.0.1:%%PORT%%; location /origin {{ alias site; }}
             location /kept/ {{ proxy_temp_path {0}/waiting; proxy_store {0}$uri;
                 proxy_pass http://127.0.0.1:%%PORT%%/origin/; }} }}",
        dir.display()
    );
    let (large, little) = ("large".repeat(100_000), "little".repeat(1000));
    let server =
        setup("", &http).file("site/large", large.clone()).file("site/little", little.clone()).start();
    for _ in 0..3 {
        assert!(server.get("/kept/large").text() == large, "{}", server.error_log());
    }
    server.wait_log("logs/error.log", "(28: No space left on device)");
    // Nothing of them is left, so there is room for others.
    assert!(server.get("/kept/little").text() == little);
    let kept = || std::fs::read(dir.join("kept/little")).is_ok_and(|data| data == little.as_bytes());
    assert!(wait_until(PATIENCE, kept), "{}", server.error_log());
    assert!(!dir.join("kept/large").exists());
    drop(server);
    drop(small);
    std::fs::remove_dir(&dir).expect("nothing but the file system was there");
}

/// What an object of the cache holds: more than stays in memory until it is written.
fn content(number: usize) -> String {
    format!("{number:07}\n").repeat(if number.is_multiple_of(3) { 20_000 } else { 4_000 })
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
#[cfg_attr(nginx_under_test, ignore = "nginx cuts the response, and goes on to keep nothing")]
fn what_is_cached_goes_for_what_is_new() {
    const OBJECTS: usize = 60;
    let dir = std::env::temp_dir().join(format!("clearway-small-cached-{}", std::process::id()));
    let small = Small::mount(&dir, 1024);
    let http = format!(
        "proxy_cache_path {}/cache levels=1 keys_zone=one:1m use_temp_path=off;
        server {{ listen 127.0.0.1:%%PORT%%; location /origin {{ alias site; }}
            location = /metrics {{ status prometheus; }}
            location / {{ proxy_cache one; proxy_cache_valid 1h; proxy_cache_key $uri;
                add_header X-Cache $upstream_cache_status;
                proxy_pass http://127.0.0.1:%%PORT%%/origin/; }} }}",
        dir.display()
    );
    let setup = (0..OBJECTS)
        .fold(setup("", &http), |setup, number| setup.file(&format!("site/{number}"), content(number)));
    let server = setup.start();
    let ask = |number: usize| {
        let response = server.get(&format!("/{number}"));
        assert!(response.text() == content(number), "{number}: {}", server.error_log());
        response.header("X-Cache") == Some("HIT")
    };
    // Three times as much as there is room for; nobody is told.
    for number in 0..OBJECTS {
        ask(number);
    }
    server.wait_log("logs/error.log", "(28: No space left on device)");
    // An object that is new is kept: others have gone for it.
    let mut number = 0;
    let is_kept = || {
        number = (number + 1) % OBJECTS;
        !ask(number) && ask(number)
    };
    assert!(wait_until(PATIENCE, is_kept), "{}", server.error_log());
    let metrics = server.get("/metrics").text();
    let counted = |name: &str| {
        let mut lines = metrics.lines().filter(|line| line.starts_with(name) && !line.starts_with('#'));
        lines.find_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    let names = ["clearway_cache_files_without_room_total", "clearway_cache_objects_pushed_out_total"];
    for name in names {
        assert!(counted(name) >= 1.0, "{name}: {metrics}");
    }
    drop(server);
    drop(small);
    std::fs::remove_dir(&dir).expect("nothing but the file system was there");
}
