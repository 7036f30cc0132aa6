//! A site that uses everything, `site/nginx.conf`: HTTPS and HTTP/2, an application, a cache on three disks,
//! FastCGI, subrequests, limits, Lua in each phase with a Redis server, worker threads, a plugin. The servers
//! behind it are started here.

use std::process::Command;
use std::sync::Arc;

use crate::{Binary, Server, Setup};
use services::{Application, Counts, serve, serve_counts, serve_fastcgi};

pub mod services;
pub mod visitors;

/// A line for files that compress well.
pub const WORDS: &str = "a line of a page that is sent again and again\n";

/// Where the master runs. For an upgrade to a new binary it runs in the background, as in production.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a child of the test.
    Foreground,
    /// As a daemon.
    Background,
}

/// The site, and the servers behind it.
pub struct Site {
    /// The server under test.
    pub server: Server,
    /// The application behind it.
    pub application: Arc<Application>,
    /// The Redis server behind it, which counts.
    pub counts: Arc<Counts>,
}

impl Site {
    /// Starts the site, with the master as a child of the test.
    ///
    /// # Panics
    /// If the server does not start, or there is no C compiler for its plugin.
    #[must_use]
    pub fn start() -> Self {
        Self::start_as(Mode::Foreground)
    }

    /// Starts the site with the master as `mode` says.
    ///
    /// # Panics
    /// In the cases of [`Site::start`].
    #[must_use]
    pub fn start_as(mode: Mode) -> Self {
        let application = Arc::<Application>::default();
        let mine = Arc::clone(&application);
        let port = serve(move |stream| mine.serve(stream));
        let fastcgi = serve(serve_fastcgi);
        let counts = Arc::<Counts>::default();
        let known = Arc::clone(&counts);
        let redis = serve(move |stream| serve_counts(stream, &known));
        let config = include_str!("nginx.conf")
            .replace("%APPLICATION%", &port.to_string())
            .replace("%FASTCGI%", &fastcgi.to_string())
            .replace("%REDIS%", &redis.to_string())
            .replace("daemon off;", if mode == Mode::Background { "daemon on;" } else { "daemon off;" });
        let data = |name: &str| format!("{}/../tls/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
        let read = |name: &str| std::fs::read(data(name)).expect("it is there");
        let setup = Setup::new(Binary::under_test(), &config)
            .file("example.pem", read("ecdsa.pem"))
            .file("example.key", read("ecdsa.key"))
            .file("lua/handlers.lua", include_str!("handlers.lua"))
            .file("lua/digest.lua", include_str!("digest.lua"))
            .file("html/index.html", "<h1>welcome</h1>\n")
            .file("html/plain.txt", "plain\n")
            .file("html/large.txt", WORDS.repeat(3000))
            .file("html/page.html", include_str!("page.html"))
            .prepared(|prefix| {
                for disk in ["disk1", "disk2", "disk3", "cache"] {
                    std::fs::create_dir_all(prefix.join(disk)).expect("it is ours");
                }
                let source = format!("{}/../../plugins/c/example.c", env!("CARGO_MANIFEST_DIR"));
                let made = Command::new("cc")
                    .args(["-shared", "-fPIC", "-O1", &source, "-lpthread", "-o"])
                    .arg(prefix.join("example.so"))
                    .status();
                assert!(made.is_ok_and(|status| status.success()), "there is a C compiler");
            });
        let setup = if mode == Mode::Background { setup.copied().daemon() } else { setup };
        Self { server: setup.start(), application, counts }
    }

    /// How often the application was asked for responses that can be cached.
    #[must_use]
    pub fn fetched(&self) -> usize {
        self.application.fetched.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// The requests that the application has received.
    ///
    /// # Panics
    /// If a thread of the application has failed.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.application.asked.lock().expect("no thread has failed").clone()
    }
}
