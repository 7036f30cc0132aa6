//! The manual's examples: every configuration in `docs/` is loaded by a server, every request below it is
//! sent, and the answers are what the page says. Each test plays the pages of a directory and prints all that
//! fails.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]
#![allow(clippy::disallowed_macros, reason = "test programs talk to their terminal")]

mod applications;
mod curl;
mod page;
mod play;
mod recipes;
mod served;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// How many pages are played at once: they wait more than they compute.
const AT_ONCE: usize = 4;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Plays pages; `MANUAL_PAGE` names the only one that is wanted.
fn play_all(mut pages: Vec<PathBuf>) {
    if let Ok(wanted) = std::env::var("MANUAL_PAGE") {
        pages.retain(|page| page.file_stem().is_some_and(|name| *name == *wanted));
    }
    let (next, problems) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let worker = || {
        while let Some(page) = pages.get(next.fetch_add(1, Ordering::Relaxed)) {
            let name = page.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let text = std::fs::read_to_string(page).expect("it is in the repository");
            let outcome = thread::scope(|scope| scope.spawn(|| play::play(&text)).join());
            let said = match outcome {
                Ok(Ok(())) => continue,
                Ok(Err(problem)) => problem,
                Err(panic) => panic_text(&*panic),
            };
            problems.lock().expect("nobody panics with it").push(format!("{name}: {said}"));
        }
    };
    thread::scope(|scope| {
        (0..AT_ONCE).for_each(|_| drop(scope.spawn(worker)));
    });
    let problems = problems.into_inner().expect("nobody panics with it");
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("panicked").to_owned()
}

fn pages_in(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("it is in the repository");
    let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pages.retain(|page| page.extension().is_some_and(|end| end == "md"));
    pages.sort();
    pages
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "the manual is Clearway's")]
fn examples_of_modules_are_answered_as_their_pages_say() {
    let pages = pages_in(&docs().join("modules"));
    assert!(pages.len() > 40, "{pages:?}");
    play_all(pages);
}

#[test]
#[cfg_attr(nginx_under_test, ignore = "the manual is Clearway's")]
fn examples_of_all_other_pages_are_answered_as_they_say() {
    let pages = pages_in(&docs());
    assert!(pages.len() > 10, "{pages:?}");
    play_all(pages);
}
