//! Every directive that has an effect has an example that can be loaded, and names others that are there;
//! every variable has a text.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clearway_base::log::{self, Level, Sink};
use clearway_conf::{Block, Contexts, KeptFiles, Loader, Memory};
use clearway_http::context;

use crate::check::Unopened;
use crate::core_conf::{EVENTS, MAIN, NO_EFFECT};
use crate::load::tables;
use crate::options::{DefaultErrorLog, Options};

/// Linux has nothing for it: it warns and does nothing, as in nginx.
const WARNS: &str = "send_lowat";

/// The reference of a directive, whichever table it is in.
struct Record {
    name: &'static str,
    contexts: Contexts,
    doc: &'static str,
    example: &'static str,
    see: &'static [&'static str],
}

fn records() -> Vec<Record> {
    let (core, http) = tables();
    macro_rules! records {
        ($specs:expr) => {
            $specs.map(|spec| Record {
                name: spec.name,
                contexts: spec.contexts,
                doc: spec.doc,
                example: spec.example,
                see: spec.see,
            })
        };
    }
    // Directives of the testing build are not for users.
    let is_for_users = |record: &Record| !record.name.starts_with("testing_");
    records!(core.specs()).chain(records!(http.table().specs())).filter(is_for_users).collect()
}

/// Whether it is a directive that an example can show.
fn has_effect(name: &str) -> bool {
    name != WARNS && NO_EFFECT.iter().all(|entry| entry.directive != name)
}

fn names_in(block: &Block, names: &mut BTreeSet<String>) {
    for directive in &block.directives {
        names.insert(String::from_utf8_lossy(&directive.name).into_owned());
        if let Some(inner) = directive.block() {
            names_in(inner, names);
        }
    }
}

fn parse(text: &str) -> Block {
    let path = Path::new("/p/example.conf");
    Loader::new(&Memory::new().with(path, text), path).file(path)
}

/// The outermost block in which all directives of an example may stand, around it.
fn wrapped(example: &str, records: &[Record]) -> String {
    let block = parse(example);
    let may_stand_in = |context: Contexts| {
        block.directives.iter().all(|directive| {
            let mut of_name = records.iter().filter(|record| record.name.as_bytes() == &directive.name[..]);
            of_name.any(|record| record.contexts.meets(context))
        })
    };
    let events = if example.contains("events {") { "" } else { "events { }" };
    if may_stand_in(MAIN) {
        format!("{example}\n{events}")
    } else if may_stand_in(EVENTS) {
        format!("events {{ {example}\n }}")
    } else if may_stand_in(context::HTTP) {
        format!("events {{ }} http {{ {example}\n }}")
    } else if may_stand_in(context::SERVER) {
        format!("events {{ }} http {{ server {{ {example}\n }} }}")
    } else {
        format!("events {{ }} http {{ server {{ location / {{ {example}\n }} }} }}")
    }
}

#[derive(Default)]
struct Said(Mutex<Vec<String>>);

impl Sink for Said {
    fn enabled(&self, _: Level) -> bool {
        true
    }

    fn write(&self, record: &log::Record<'_>) {
        self.0.lock().unwrap().push(format!("{:?}: {}", record.level, record.message));
    }
}

/// The files that examples name.
fn kept_files() -> KeptFiles {
    macro_rules! data {
        ($name:literal) => {
            &include_bytes!(concat!("../../tls/tests/data/", $name))[..]
        };
    }
    let files = [
        ("example.com.pem", data!("ocsp.pem")),
        ("example.com.key", data!("ocsp.key")),
        ("example.com.ocsp", data!("ocsp-good.der")),
        ("authorities.pem", data!("ocsp-ca.pem")),
        ("clients.pem", data!("ca.pem")),
        ("revoked.pem", data!("revoked.pem")),
        ("passwords", b"secret\n"),
        ("ticket.key", &[7; 48]),
    ];
    let handed = files.map(|(name, content)| (Path::new("/p").join(name), content.to_vec().into()));
    KeptFiles::handed(handed.to_vec())
}

/// Loads a configuration; an error has its messages.
fn load(text: &str) -> Result<(), Vec<String>> {
    let conf = PathBuf::from("/p/nginx.conf");
    let source = Memory::new().with(&conf, text.to_owned());
    let options =
        Options { prefix: "/p/".into(), conf, error_log: DefaultErrorLog::Stderr, params: Vec::new() };
    let said = Said::default();
    let loaded = Unopened::read(&source, &options, &Arc::new(kept_files()), &said, || ());
    let mut said = said.0.into_inner().unwrap();
    // Tests run as any user.
    said.retain(|line| !line.contains("makes sense only if the master process runs with super-user"));
    // A directive that has nothing left to do says so each time.
    said.retain(|line| !line.contains(" is deprecated ("));
    if loaded.is_ok() && said.is_empty() { Ok(()) } else { Err(said) }
}

#[test]
fn every_directive_has_an_example_that_can_be_loaded() {
    let records = records();
    let mut problems = Vec::new();
    for record in records.iter().filter(|record| has_effect(record.name)) {
        let mut names = BTreeSet::new();
        names_in(&parse(record.example), &mut names);
        if !names.contains(record.name) {
            problems.push(format!("{}: has no example with it", record.name));
        } else if let Err(said) = load(&wrapped(record.example, &records)) {
            problems.push(format!("{}: {said:?}", record.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_directive_names_others_that_are_there() {
    let records = records();
    let names: BTreeSet<&str> = records.iter().map(|record| record.name).collect();
    for Record { name, see, .. } in &records {
        assert!(!(has_effect(name) && see.is_empty()), "{name}: nothing to see");
        for other in *see {
            assert!(names.contains(other) && other != name, "{name}: {other}");
        }
        assert_eq!(see.iter().collect::<BTreeSet<_>>().len(), see.len(), "{name}: {see:?}");
    }
}

/// A text that begins so leaves it to the reader to find out what acts.
const FREE_RELATIVES: [&str; 4] = ["What ", "Who ", "Whoever ", "Which "];

fn begins_with_a_free_relative(doc: &str) -> bool {
    FREE_RELATIVES.iter().any(|word| doc.starts_with(word))
}

#[test]
fn texts_say_what_acts() {
    assert!(
        begins_with_a_free_relative("What stands for a name.") && !begins_with_a_free_relative("A name.")
    );
    let (_, http) = tables();
    let variables =
        http.modules().iter().flat_map(|module| module.variables).map(|spec| (spec.name, spec.doc));
    let directives = records().into_iter().map(|record| (record.name, record.doc));
    for (name, doc) in directives.chain(variables) {
        assert!(!doc.is_empty() && !begins_with_a_free_relative(doc), "{name}: {doc}");
    }
}

#[test]
fn every_variable_has_a_text() {
    let (_, http) = tables();
    let text = crate::reference::variables();
    for spec in http.modules().iter().flat_map(|module| module.variables) {
        assert!(spec.doc.ends_with('.'), "${}: {:?}", spec.name, spec.doc);
        assert!(text.contains(&format!("| `${}", spec.name)), "${}", spec.name);
    }
}
