//! Broken configurations, each with one mistake: what `-t` prints, where it prints it, and its exit code
//! are those of nginx, but for the cases that say why not (`broken.cases` explains the form, the other files
//! have more).
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use clearway_testkit::recorded::difference;
use clearway_testkit::{Binary, OracleSource, Product};

/// Only cases whose name has this text.
const ONLY: &str = "CLEARWAY_CASE";

/// What both need so that they work without the rights of a system service.
const TEMP: &str = "client_body_temp_path temp;";

/// What nginx needs besides.
const TEMP_OF_NGINX: &str = "proxy_temp_path temp; fastcgi_temp_path temp; uwsgi_temp_path temp; \
                             scgi_temp_path temp;";

/// One configuration.
struct Case {
    name: String,
    /// File name and text; the first is the configuration file.
    files: Vec<(String, String)>,
    /// nginx is not followed: why, and what is printed on standard error instead.
    unlike: Option<(String, String)>,
}

/// What a run of `-t` left.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CheckOutcome {
    pub(crate) code: Option<i32>,
    pub(crate) stderr: String,
    pub(crate) stdout: String,
    /// The file of `-e`, without times and process numbers.
    pub(crate) log: String,
}

#[test]
fn refused_in_the_same_words() {
    compare_those(|case| !case.names_users());
}

/// Nobody else has users looked up.
#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
fn refused_in_the_same_words_to_root() {
    compare_those(Case::names_users);
}

fn compare_those(are_meant: fn(&Case) -> bool) {
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut cases = all_cases();
    cases.retain(are_meant);
    assert!(!cases.is_empty(), "there are cases");
    let chosen = cases.iter().filter(|case| case.name.contains(&only));
    let failures: Vec<String> = chosen.filter_map(Case::failure).collect();
    assert!(failures.is_empty(), "{} of {} differ\n{}", failures.len(), cases.len(), failures.join("\n"));
}

#[test]
fn names_of_cases_are_theirs_alone() {
    let mut names = BTreeMap::new();
    for case in all_cases() {
        assert_eq!(names.insert(case.name.clone(), ()), None, "{}", case.name);
    }
}

fn all_cases() -> Vec<Case> {
    let texts = [
        include_str!("broken.cases"),
        include_str!("broken_filters.cases"),
        include_str!("broken_tls.cases"),
        include_str!("broken_tls_files.cases"),
        include_str!("broken_bodies.cases"),
        include_str!("broken_listen.cases"),
        include_str!("broken_files.cases"),
        include_str!("broken_modules.cases"),
        include_str!("broken_access.cases"),
        include_str!("broken_order.cases"),
        include_str!("broken_upstreams.cases"),
        include_str!("broken_gateways.cases"),
        include_str!("broken_caches.cases"),
    ];
    texts.into_iter().flat_map(cases).collect()
}

impl Case {
    fn names_users(&self) -> bool {
        self.files[0].1.lines().any(|line| line.starts_with("user "))
    }

    /// How the two servers differ.
    fn failure(&self) -> Option<String> {
        let text = &self.files[0].1;
        if let Some((reason, stderr)) = &self.unlike {
            if OracleSource::chosen() == OracleSource::Record || !Binary::under_test().is_clearway() {
                return None;
            }
            let got = self.run(&Binary::under_test());
            return (got.stderr != *stderr)
                .then(|| format!("--- {}\n{text}\n{reason}:\n{stderr}\ngot:\n{got}\n", self.name));
        }
        let question = self.files.iter().fold(self.name.clone(), |all, file| format!("{all}\n{file:?}"));
        let why = difference(&question, |binary| self.run(binary).to_string())?;
        Some(format!("--- {}\n{text}\n{why}", self.name))
    }

    fn run(&self, binary: &Binary) -> CheckOutcome {
        let dir = Directory::new();
        for (name, text) in &self.files {
            dir.write(name, &dir.filled(text, binary));
        }
        dir.run(binary, &["-t"])
    }
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => writeln!(f, "exit code {code}")?,
            None => writeln!(f, "ended by a signal")?,
        }
        for (name, text) in [("stderr", &self.stderr), ("stdout", &self.stdout), ("log", &self.log)] {
            text.lines().try_for_each(|line| writeln!(f, "{name}: {line}"))?;
        }
        Ok(())
    }
}

/// A place for one run; removed at its end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir();
        let path = path.join(format!("clearway-broken-{:07}-{number:05}", std::process::id()));
        fs::create_dir_all(path.join("logs")).expect("the temporary directory is writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).expect("the directory is writable");
    }

    /// The names in it, but for the directory of bodies: where a log cannot be opened nginx has made it
    /// already.
    pub(crate) fn names(&self) -> Vec<String> {
        self.names_in("").into_iter().filter(|name| name != "temp").collect()
    }

    /// The names in one of its directories.
    pub(crate) fn names_in(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(name)).expect("it is there");
        let mut names: Vec<String> =
            entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names
    }

    /// A text of a case with what differs from run to run filled in.
    pub(crate) fn filled(&self, text: &str, binary: &Binary) -> String {
        let more = if binary.product == Product::Nginx { TEMP_OF_NGINX } else { "" };
        let text = text.replace("%%TEMP%%", &format!("{TEMP} {more}"));
        text.replace("%%PREFIX%%", &self.0.to_string_lossy())
    }

    /// Lets other users write here.
    pub(crate) fn give_to_everybody(&self) {
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o777)).expect("it is ours");
    }

    /// The same program in this directory, for users that may not read the directory it was built in.
    pub(crate) fn copy_of(&self, binary: &Binary) -> Binary {
        let path = self.0.join(binary.path.file_name().expect("a program has a name"));
        binary.copy_to(&path);
        Binary::at(path)
    }

    /// Runs a program on the directory's `nginx.conf`, its early log in `early.log`.
    pub(crate) fn run(&self, binary: &Binary, options: &[&str]) -> CheckOutcome {
        self.run_command(Command::new(&binary.path), options)
    }

    /// The same with what a command begins with.
    pub(crate) fn run_command(&self, mut command: Command, options: &[&str]) -> CheckOutcome {
        command.arg("-p").arg(&self.0).args(["-c", "nginx.conf", "-e", "early.log"]).args(options);
        let output = command.env("TZ", "UTC").output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let log = fs::read_to_string(self.0.join("early.log")).unwrap_or_default();
        CheckOutcome {
            code: output.status.code(),
            stderr: self.neutral(&output.stderr),
            stdout: self.neutral(&output.stdout),
            log: self.neutral(log.as_bytes()),
        }
    }

    /// Without the directory's name, and lines of a log without time and process numbers.
    fn neutral(&self, text: &[u8]) -> String {
        let text = String::from_utf8_lossy(text).replace(&*self.0.to_string_lossy(), "%%PREFIX%%");
        text.lines().map(|line| format!("{}\n", without_time(line))).collect()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Files that are left behind are in nobody's way.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// `2024/01/31 23:59:59 [warn] 1#2: text` as `[warn] text`.
fn without_time(line: &str) -> String {
    let is_time = line.len() > 20 && line.as_bytes()[4] == b'/' && line.as_bytes()[13] == b':';
    let parts = line.get(20..).filter(|_| is_time).and_then(|rest| rest.split_once("] "));
    match parts.and_then(|(level, rest)| Some((level, rest.split_once(": ")?.1))) {
        Some((level, message)) => format!("{level}] {message}"),
        None => line.to_owned(),
    }
}

/// Takes the file of cases apart.
fn cases(text: &str) -> Vec<Case> {
    text.split("\n=== ").skip(1).map(case).collect()
}

fn case(text: &str) -> Case {
    let (name, rest) = text.split_once('\n').expect("a case has a text");
    let mut parts = rest.trim_end_matches('\n').split("\n--- ");
    let body = parts.next().expect("split has a first part");
    let mut case = Case {
        name: name.to_owned(),
        files: vec![("nginx.conf".to_owned(), framed(name, body))],
        unlike: None,
    };
    for part in parts {
        let (head, text) = part.split_once('\n').unwrap_or((part, ""));
        if let Some(file) = head.strip_prefix("file ") {
            case.files.push((file.to_owned(), format!("{text}\n")));
        } else if let Some(reason) = head.strip_prefix("unlike nginx: ") {
            case.unlike = Some((reason.to_owned(), format!("{text}\n")));
        } else {
            panic!("{name}: what is {head:?}?");
        }
    }
    case
}

/// The text with what its place needs around it; the text begins in line 3 in any case but the whole file.
fn framed(name: &str, body: &str) -> String {
    let place = name.split_once(':').map_or("", |(place, _)| place);
    let main = "pid %%PREFIX%%/nginx.pid; error_log %%PREFIX%%/logs/error.log;";
    let http = "http { %%TEMP%% access_log off;";
    match place {
        "file" => format!("{body}\n"),
        "main" => format!("{main}\nevents {{ }}\n{body}\n"),
        "top" => format!("{main}\n\n{body}\nevents {{ }}\n"),
        "events" => format!("{main}\nevents {{\n{body}\n}}\n"),
        "http" => format!("{main} events {{ }}\n{http}\n{body}\n}}\n"),
        "server" => {
            format!("{main} events {{ }}\n{http} server {{ listen 127.0.0.1:18881;\n{body}\n}}\n}}\n")
        }
        _ => panic!("{name}: a case begins with its place"),
    }
}
