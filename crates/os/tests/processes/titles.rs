//! Titles: this program runs itself with arguments and an environment that are known.

use std::process::Command;

use clearway_os::title::{self, Title};

use super::Case;

pub(crate) const CASES: &[Case] = &[
    ("a_title_takes_the_place_of_the_arguments", a_title_takes_the_place_of_the_arguments),
    ("a_title_needs_no_environment", a_title_needs_no_environment),
];

/// The variable that has this program play the one whose title is set.
pub(crate) const ROLE: &str = "CLEARWAY_OS_TITLE";

const ARGS: [&str; 3] = ["-c", "/etc/clearway/a file.conf", ""];

fn a_title_takes_the_place_of_the_arguments() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ARGS).env_clear().env(ROLE, "full").env("EMPTY", "").env("LONG", "x".repeat(500));
    assert!(command.status().unwrap().success());
}

fn a_title_needs_no_environment() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(ARGS).env_clear().env(ROLE, "bare");
    assert!(command.status().unwrap().success());
}

/// What is shown of this process.
fn shown() -> Vec<u8> {
    std::fs::read("/proc/self/cmdline").unwrap()
}

/// The text before the padding.
fn shown_text() -> String {
    String::from_utf8(shown()).unwrap().trim_end_matches('\0').to_owned()
}

/// The part of the program whose title is set; panics if something is wrong.
pub(crate) fn play(title: Title) {
    let before = shown();
    let args: Vec<_> = title.args()[1..].iter().map(|arg| arg.to_str().unwrap().to_owned()).collect();
    assert_eq!(args, ARGS);
    let variables: Vec<_> = std::env::vars().collect();
    let full = variables.len() > 1;
    assert_eq!(variables.len(), if full { 3 } else { 1 });

    title.set("nginx: master process clearway -c x");
    assert_eq!(shown_text(), "nginx: master process clearway -c x");
    assert_eq!(shown().len(), before.len(), "padded with zeroes to the end of the arguments");
    // Longer than the arguments: it goes on where the environment was, and is cut where that ended.
    let long = format!("nginx: worker process {}", "long ".repeat(400));
    title.set(&long);
    let text = shown_text();
    assert!(long.starts_with(&text), "{text}");
    let environment: usize = variables.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
    assert_eq!(text.len(), before.len() + environment - 1);
    // Nothing of a long one is left behind a short one, nor of what follows a zero byte.
    title.set("short\0hidden");
    assert_eq!(shown_text(), "short");

    assert_eq!(std::env::vars().collect::<Vec<_>>(), variables, "the variables were moved, in order");
    assert_eq!(std::env::var("LONG").ok(), full.then(|| "x".repeat(500)));
    let heard = Command::new("/bin/sh").args(["-c", "test -n \"$CLEARWAY_OS_TITLE\""]).status().unwrap();
    assert!(heard.success(), "programs get the variables");

    let second = Title::capture();
    second.set("of a second one");
    assert_eq!(shown_text(), "short");

    title::set_thread_name("worker of a very long name").unwrap();
    assert_eq!(std::fs::read_to_string("/proc/self/comm").unwrap(), "worker of a ver\n");
    assert!(title::set_thread_name("a\0b").is_err());
}
