//! Tells the tests what they are built for, so that those which do not apply are counted as ignored:
//! `nginx_under_test` (`CLEARWAY_BIN` names an nginx, to prove the expectations themselves), `chaos_lend`
//! (loops are lent all the time), `not_root`, and what of the distribution's servers is not installed:
//! `no_php_fpm`, `no_uwsgi`, `no_memcached`.
#![allow(clippy::disallowed_methods, reason = "a build script has no loop to block")]
#![allow(clippy::disallowed_macros, reason = "a build script tells cargo by its standard output")]

use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let under_test = variable("CLEARWAY_BIN").unwrap_or_default();
    let is_lent = variable("CLEARWAY_CHAOS_LEND").is_some();
    variable("USER");
    // The owner of this process's own directory there is its effective user.
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    let is_nginx = Path::new(&under_test).file_name().is_some_and(|name| name == "nginx");
    let lacks = |file: &str| {
        println!("cargo::rerun-if-changed={file}");
        !Path::new(file).exists()
    };
    for (name, holds) in [
        ("nginx_under_test", is_nginx),
        ("chaos_lend", is_lent),
        ("not_root", !is_root),
        ("no_php_fpm", lacks("/usr/sbin/php-fpm8.2")),
        ("no_uwsgi", lacks("/usr/lib/uwsgi/plugins/python3_plugin.so")),
        ("no_memcached", lacks("/usr/bin/memcached")),
    ] {
        println!("cargo::rustc-check-cfg=cfg({name})");
        if holds {
            println!("cargo::rustc-cfg={name}");
        }
    }
}

/// A variable of the environment; what is built is built anew when it changes.
fn variable(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var(name).ok()
}
