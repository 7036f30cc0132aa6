//! Recorded answers of the oracle, in text files below `tests/recorded`: one file for each source file that
//! compares, in it one section for each question, found by a fingerprint of all that the answer depends on
//! (configuration, files, requests). So a case that was changed has no answer until it is recorded again,
//! which `cargo xtask record` does. `CLEARWAY_ORACLE=live` asks an nginx instead, as recording does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use sha1::{Digest, Sha1};

use crate::Binary;
use crate::source::OracleSource;

/// Goes into every fingerprint: another one makes all recordings stale. It changes when what is written for
/// the same answer does.
const FORM: &[u8] = b"1";

/// Bytes of a fingerprint.
const FINGERPRINT_BYTES: usize = 8;

/// Opens a section: the test, the fingerprint. A test's sections are in the order of its questions.
const SECTION: &str = "=== ";
/// Opens an answer within a section: what was asked, for people.
const ANSWER: &str = "--- ";
/// Stands for an answer that is that of the section with this number, from 1.
const SAME: &str = "= ";
/// Shorter answers are repeated, bytes.
const REPEATED_MAX: usize = 60;
/// Before every line of an answer that is not empty.
const INDENT: &str = "  ";

/// Longer texts are kept as their beginning, their end and a digest, bytes of text.
const KEPT_MAX: usize = 1000;
/// Bytes of text that are kept of each end of a long text.
const END_KEPT: usize = 200;

/// A part of what the oracle said to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// One line for people.
    pub title: String,
    /// Whole lines.
    pub text: String,
}

/// Something that was asked in a source file.
pub(crate) struct Question {
    /// From the root of the repository.
    asked_in: &'static str,
    fingerprint: String,
}

impl Question {
    /// The answer depends on these parts and on nothing else.
    #[track_caller]
    pub(crate) fn new<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha1::new_with_prefix(FORM);
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let fingerprint = hex(&hash.finalize()[..FINGERPRINT_BYTES]);
        Self { asked_in: Location::caller().file(), fingerprint }
    }

    /// The recorded answers.
    ///
    /// # Panics
    /// If nothing was, with the command that records it.
    pub(crate) fn recorded(&self) -> Vec<Said> {
        let path = path_of(self.asked_in);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let recording = known.entry(path.clone()).or_insert_with(|| Recording::read(&path));
        let found = recording.sections.values().find(|section| section.fingerprint == self.fingerprint);
        found.map(|section| section.said.clone()).unwrap_or_else(|| {
            panic!(
                "nginx's answer to this is not in {}: the case is new, or its configuration, files or \
                 requests were changed. Record it:\n    NGINX_BIN=/path/to/nginx cargo xtask record {}\n",
                path.display(),
                test().unwrap_or_default()
            )
        })
    }

    /// Puts what `binary` said in the place of what the test that runs has recorded before this run.
    ///
    /// # Panics
    /// If it cannot be told which test this is, if the rest of the file comes from another version, or if
    /// there is no room.
    pub(crate) fn record(&self, binary: &Binary, said: Vec<Said>) {
        let test = test().expect("recording takes threads that have their test's name: --test-threads=2");
        let version = version(binary);
        let path = path_of(self.asked_in);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let recording = known.entry(path.clone()).or_insert_with(|| Recording::read(&path));
        if recording.version.is_empty() {
            recording.version.clone_from(&version);
        }
        assert_eq!(recording.version, version, "{}: record all, without a name of a test", path.display());
        recording.put(&test, Section { fingerprint: self.fingerprint.clone(), said });
        recording.write(self.asked_in, &path);
    }
}

/// Asks the oracle and the server under test, and compares what is made of their answers. `question` holds
/// everything that the answer depends on; its first line is for people.
///
/// # Panics
/// If they differ.
#[track_caller]
pub fn compare(question: &str, answer: impl Fn(&Binary) -> String) {
    if let Some(difference) = difference(question, answer) {
        panic!("{difference}with\n{question}");
    }
}

/// As [`compare`], for callers that go on: returns how the answers differ.
#[track_caller]
pub fn difference(question: &str, answer: impl Fn(&Binary) -> String) -> Option<String> {
    let asked = Question::new([question.as_bytes()]);
    let wanted = match OracleSource::chosen() {
        OracleSource::Recorded => asked.recorded().into_iter().map(|said| said.text).collect(),
        OracleSource::Live => whole_lines(answer(&Binary::oracle())),
        OracleSource::Record => {
            let oracle = Binary::oracle();
            let title = question.lines().next().unwrap_or_default().trim().to_owned();
            let text = whole_lines(answer(&oracle));
            asked.record(&oracle, vec![Said { title, text }]);
            return None;
        }
    };
    let got = whole_lines(answer(&Binary::under_test()));
    (got != wanted).then(|| comparison(&(wanted, got)))
}

/// The lines that only one of both has, and behind them all that was wanted with the missing ones marked.
pub(crate) fn comparison((wanted, got): &(String, String)) -> String {
    let (wanted, got): (Vec<&str>, Vec<&str>) = (wanted.lines().collect(), got.lines().collect());
    let missing = |line: &&&str| !got.contains(line);
    let mut out = String::from("they differ:\n");
    for line in wanted.iter().filter(missing) {
        out.push_str(&format!("- {line}\n"));
    }
    for line in got.iter().filter(|line| !wanted.contains(line)) {
        out.push_str(&format!("+ {line}\n"));
    }
    out.push_str("where\n");
    for line in &wanted {
        let mark = if missing(&line) { '-' } else { ' ' };
        out.push_str(&format!("{mark} {line}\n"));
    }
    out
}

fn whole_lines(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The recordings that this process has read or made.
static KNOWN: Mutex<BTreeMap<PathBuf, Recording>> = Mutex::new(BTreeMap::new());

/// One file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Recording {
    /// `nginx/1.31.5`
    version: String,
    /// By test, and by the order of its questions.
    sections: BTreeMap<(String, usize), Section>,
    /// The tests that have recorded in this run.
    fresh: Vec<String>,
}

/// One question.
#[derive(Debug, PartialEq, Eq)]
struct Section {
    fingerprint: String,
    said: Vec<Said>,
}

impl Recording {
    /// Reads a file that may not exist.
    fn read(path: &Path) -> Self {
        Self::parse(&fs::read_to_string(path).unwrap_or_default())
    }

    /// # Panics
    /// If this is not what [`Self::write`] writes.
    fn parse(text: &str) -> Self {
        let mut recording = Self::default();
        let mut lines = text.lines();
        if let Some(head) = lines.next() {
            let version = head.strip_prefix("# ").and_then(|head| head.split_once(','));
            version.expect("a recording begins with a version").0.clone_into(&mut recording.version);
        }
        let mut section: Option<&mut Section> = None;
        for line in lines.skip(1) {
            if let Some(head) = line.strip_prefix(SECTION) {
                let (test, fingerprint) = head.split_once(' ').expect("a section has a fingerprint");
                let new = Section { fingerprint: fingerprint.to_owned(), said: Vec::new() };
                section = Some(recording.add(test, new));
                continue;
            }
            let said = &mut section.as_mut().expect("a recording consists of sections").said;
            if let Some(title) = line.strip_prefix(ANSWER) {
                said.push(Said { title: title.to_owned(), text: String::new() });
            } else if let Some(earlier) = line.strip_prefix(SAME) {
                let earlier: usize = earlier.parse().expect("answers have numbers");
                let text = said[earlier - 1].text.clone();
                said.last_mut().expect("a section consists of answers").text = text;
            } else {
                let text = &mut said.last_mut().expect("a section consists of answers").text;
                text.push_str(line.strip_prefix(INDENT).unwrap_or(line));
                text.push('\n');
            }
        }
        recording
    }

    /// Adds what a test has asked; what it had asked before this run goes.
    fn put(&mut self, test: &str, section: Section) {
        if !self.fresh.iter().any(|known| known == test) {
            self.fresh.push(test.to_owned());
            self.sections.retain(|(of, _), _| of != test);
        }
        self.add(test, section);
    }

    /// Adds what a test has asked behind the rest of it.
    fn add(&mut self, test: &str, section: Section) -> &mut Section {
        let number = self.sections.keys().filter(|(of, _)| of == test).count();
        self.sections.entry((test.to_owned(), number)).or_insert(section)
    }

    fn text(&self, asked_in: &str) -> String {
        let mut out = format!(
            "# {}, asked by {asked_in}\n# Written by `cargo xtask record`, never by hand.\n",
            self.version
        );
        for ((test, _), section) in &self.sections {
            writeln!(out, "{SECTION}{test} {}", section.fingerprint).expect("memory");
            for (number, said) in section.said.iter().enumerate() {
                writeln!(out, "{ANSWER}{}", said.title).expect("memory");
                let same = section.said[..number].iter().position(|earlier| earlier.text == said.text);
                if let Some(earlier) = same.filter(|_| said.text.len() > REPEATED_MAX) {
                    writeln!(out, "{SAME}{}", earlier + 1).expect("memory");
                    continue;
                }
                for line in said.text.lines() {
                    let indent = if line.is_empty() { "" } else { INDENT };
                    writeln!(out, "{indent}{line}").expect("memory");
                }
            }
        }
        out
    }

    fn write(&self, asked_in: &str, path: &Path) {
        fs::create_dir_all(path.parent().expect("it lies in a directory")).expect("the tree is writable");
        fs::write(path, self.text(asked_in)).expect("the tree is writable");
    }
}

/// `tests/recorded/differential/access.txt` for `tests/tests/differential/access.rs`.
fn path_of(asked_in: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recorded");
    let name = asked_in.rsplit_once("tests/").map_or(asked_in, |(_, name)| name);
    root.join(name).with_extension("txt")
}

/// The test that this thread runs, if it says so.
fn test() -> Option<String> {
    std::thread::current().name().filter(|name| *name != "main").map(str::to_owned)
}

/// `nginx/1.31.5`
fn version(binary: &Binary) -> String {
    let output = Command::new(&binary.path).arg("-v").output().expect("the oracle can be run");
    let text = String::from_utf8_lossy(&output.stderr);
    let version = text.trim().rsplit("version: ").next().unwrap_or_default();
    version.split(' ').next().unwrap_or_default().to_owned()
}

/// The text without its middle, if it is long: its length and a digest stand for that.
pub fn abbreviated(text: String) -> String {
    if text.len() <= KEPT_MAX {
        return text;
    }
    let (first, last) = (text.floor_char_boundary(END_KEPT), text.ceil_char_boundary(text.len() - END_KEPT));
    let digest = hex(&Sha1::digest(&text)[..FINGERPRINT_BYTES]);
    format!("{}\n(… {} bytes in all, {digest} …)\n{}", &text[..first], text.len(), &text[last..])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(fingerprint: &str, texts: &[&str]) -> Section {
        let said = |text: &&str| Said { title: "GET /".to_owned(), text: (*text).to_owned() };
        Section { fingerprint: fingerprint.to_owned(), said: texts.iter().map(said).collect() }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut recording = Recording { version: "nginx/1.2.3".to_owned(), ..Recording::default() };
        recording.put("b::second", section("01", &["HTTP/1.1 200 OK\n\n=== no section\n  indented\n", ""]));
        let long = format!("HTTP/1.1 200 OK\n\n{}\n", "x".repeat(REPEATED_MAX));
        recording.put("a::first", section("02", &["= 1\n", &long, &long, "short\n", "short\n", &long]));
        let text = recording.text("tests/tests/x/y.rs");
        assert!(text.starts_with("# nginx/1.2.3, asked by tests/tests/x/y.rs\n"), "{text}");
        assert_eq!(text.matches("= 2\n").count(), 2, "{text}");
        assert!(text.find("a::first 02") < text.find("b::second 01"), "{text}");
        let read = Recording::parse(&text);
        assert_eq!((read.version, read.sections), (recording.version, recording.sections));
    }

    #[test]
    fn a_test_that_records_anew_replaces_what_it_had() {
        let mut recording = Recording::default();
        recording.put("a::first", section("01", &["x\n"]));
        recording.put("b::second", section("02", &["y\n"]));
        recording.fresh.clear();
        recording.put("a::first", section("03", &["z\n"]));
        recording.put("a::first", section("04", &["z\n"]));
        let prints: Vec<&str> = recording.sections.values().map(|s| s.fingerprint.as_str()).collect();
        assert_eq!(prints, ["03", "04", "02"]);
    }

    #[test]
    fn fingerprints_tell_parts_apart() {
        let print = |parts: &[&[u8]]| Question::new(parts.iter().copied()).fingerprint;
        assert_eq!(print(&[b"ab", b"c"]), print(&[b"ab", b"c"]));
        assert_ne!(print(&[b"ab", b"c"]), print(&[b"a", b"bc"]));
        assert_eq!(print(&[b"ab"]).len(), 2 * FINGERPRINT_BYTES);
    }

    #[test]
    fn long_texts_lose_their_middle() {
        let short = "a".repeat(KEPT_MAX);
        assert_eq!(abbreviated(short.clone()), short);
        let (one, other) = (format!("{short}b{short}"), format!("{short}c{short}"));
        let [one, other] = [one, other].map(abbreviated);
        assert!(one != other && one.len() < 3 * END_KEPT && one.contains("2001 bytes in all"), "{one}");
    }

    #[test]
    fn differences_are_marked() {
        let texts = ("a\nb\n".to_owned(), "a\nc\n".to_owned());
        assert_eq!(comparison(&texts), "they differ:\n- b\n+ c\nwhere\n  a\n- b\n");
    }

    #[test]
    fn each_source_file_has_its_recording() {
        assert!(path_of("tests/tests/files/edges.rs").ends_with("tests/recorded/files/edges.txt"));
    }

    #[test]
    #[should_panic(expected = "cargo xtask record")]
    fn what_was_not_recorded_names_the_command() {
        Question::new([&b"never asked"[..]]).recorded();
    }
}
