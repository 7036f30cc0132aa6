//! A small file system that fills up: logs, which go on when there is room again; responses that are kept.

use std::path::{Path, PathBuf};
use std::process::Command;

use clearway_testkit::client::PATIENCE;
use clearway_testkit::{Load, wait_until};

use crate::setup;

/// A file system in memory of 64 KiB; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    /// Nothing where this process may not mount.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).expect("the directory is ours");
        run("mount", &["-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs", &at.to_string_lossy()])
            .then(|| Self(at.to_owned()))
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
    let Some(small) = Small::mount(&dir) else {
        // Not even root may mount in some containers; a device that is always full is tested elsewhere.
        return;
    };
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
    let Some(small) = Small::mount(&dir) else {
        // As above.
        return;
    };
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
