//! One site with everything in it, `site/nginx.conf`: HTTPS and HTTP/2 in front, an application, a cache on
//! three disks, PHP, subrequests, limits, Lua in each phase with a server that counts, worker threads, a
//! plugin. What each half's own tests cannot know: that they go together.
#![forbid(unsafe_code)]
#![cfg(not(nginx_under_test))]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod answers;
mod changes;
mod services;
mod visitors;

use std::collections::HashMap;
use std::process::Command;
use std::sync::{Arc, Mutex};

use clearway_testkit::{Binary, Server, Setup};

use crate::services::{Application, serve, serve_counts, serve_fastcgi};

/// Words for files that compress well.
const WORDS: &str = "a line of a page that is sent again and again\n";

/// Where the master runs. A new binary takes over from one in the background, as operators have it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Foreground,
    Background,
}

/// The site, and what the application behind it has seen.
struct Site {
    server: Server,
    application: Arc<Application>,
}

impl Site {
    fn start() -> Self {
        Self::start_as(Mode::Foreground)
    }

    fn start_as(mode: Mode) -> Self {
        let application = Arc::<Application>::default();
        let mine = Arc::clone(&application);
        let port = serve(move |stream| mine.serve(stream));
        let fastcgi = serve(serve_fastcgi);
        let counts = Mutex::<HashMap<Vec<u8>, u64>>::default();
        let redis = serve(move |stream| serve_counts(stream, &counts));
        let config = include_str!("site/nginx.conf")
            .replace("%APPLICATION%", &port.to_string())
            .replace("%FASTCGI%", &fastcgi.to_string())
            .replace("%REDIS%", &redis.to_string())
            .replace("daemon off;", if mode == Mode::Background { "daemon on;" } else { "daemon off;" });
        let data = |name: &str| format!("{}/../crates/tls/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
        let read = |name: &str| std::fs::read(data(name)).expect("it is there");
        let setup = Setup::new(Binary::under_test(), &config)
            .file("example.pem", read("ecdsa.pem"))
            .file("example.key", read("ecdsa.key"))
            .file("lua/handlers.lua", include_str!("site/handlers.lua"))
            .file("lua/digest.lua", include_str!("site/digest.lua"))
            .file("html/index.html", "<h1>welcome</h1>\n")
            .file("html/plain.txt", "plain\n")
            .file("html/large.txt", WORDS.repeat(3000))
            .file("html/page.html", include_str!("site/page.html"))
            .prepared(|prefix| {
                for disk in ["disk1", "disk2", "disk3", "cache"] {
                    std::fs::create_dir_all(prefix.join(disk)).expect("it is ours");
                }
                let source = format!("{}/../plugins/c/example.c", env!("CARGO_MANIFEST_DIR"));
                let made = Command::new("cc")
                    .args(["-shared", "-fPIC", "-O1", &source, "-lpthread", "-o"])
                    .arg(prefix.join("example.so"))
                    .status();
                assert!(made.is_ok_and(|status| status.success()), "there is a C compiler");
            });
        let setup = if mode == Mode::Background { setup.copied().daemon() } else { setup };
        Self { server: setup.start(), application }
    }

    /// How often the application was asked for what can be kept.
    fn fetched(&self) -> usize {
        self.application.fetched.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// What the application was asked for.
    fn asked(&self) -> Vec<String> {
        self.application.asked.lock().expect("no thread has failed").clone()
    }
}
