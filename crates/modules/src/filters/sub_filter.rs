//! `sub_filter`: texts in a response replaced by others. The directives and the header filter; `search`
//! finds the texts. The body filter runs on the loop of the response, a bounded part of it at a time.

#[cfg(fuzzing)]
pub mod fuzzing;
mod search;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    BodyFilter, Chunk, ConfKey, FilterSpec, Filtering, HeaderName, Level, Load, Mark, Module, Next, Setting,
    Value, View, context, set, settings,
};

use crate::filters::type_set::TypeSet;
use search::{Found, Searcher};

/// The module.
pub static SUB_FILTER: Module = Module {
    name: "sub_filter",
    directives: DIRECTIVES,
    confs: &[&SUB_CONF],
    filters: &[FilterSpec {
        enabled: |enabling| !enabling.confs.of(&SUB_CONF).pairs.list.is_empty(),
        filter,
    }],
    finish: Some(make_tables),
    ..Module::EMPTY
};

/// Texts that one level may replace.
const PATTERNS_MAX: usize = 255;
/// Input that is searched in one turn, bytes.
const TURN_IN_BYTES: usize = 64 * 1024;
/// Output that is made in one turn, bytes; one more replacement may come on top.
const TURN_OUT_BYTES: usize = 64 * 1024;
/// The least output that is passed on by itself, bytes; less is gathered.
const PIECE_MIN_BYTES: usize = 4 * 1024;
/// Replaced whatever `sub_filter_types` says.
const ALWAYS: &str = "text/html";

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "sub_filter",
        contexts: context::ALL,
        args: Args::TAKE2,
        syntax: "sub_filter TEXT REPLACEMENT",
        default: "",
        doc: "Replaces a text, in any case, by another one. Both may have variables in them. May be \
              repeated; where several texts begin at the same place the first of these counts.",
        example: EXAMPLE_OF_REPLACEMENTS,
        see: &["sub_filter_once", "sub_filter_types", "sub_filter_last_modified", "addition_types", "ssi"],
        handler: read_pair,
    },
    Spec {
        name: "sub_filter_types",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "sub_filter_types TYPE … | *",
        default: "sub_filter_types text/html;",
        doc: "The types of responses in which texts are replaced, besides `text/html`.",
        example: EXAMPLE_OF_REPLACEMENTS,
        see: &["sub_filter", "sub_filter_once", "sub_filter_last_modified", "addition_types", "ssi"],
        handler: |scope, d| {
            let types = &mut scope.conf.location(&SUB_CONF).types;
            let warnings = TypeSet::read(d, types, ALWAYS);
            warnings.into_iter().for_each(|warning| scope.warn(warning));
            Ok(())
        },
    },
    Spec {
        name: "sub_filter_once",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "sub_filter_once on | off",
        default: "sub_filter_once on;",
        doc: "Whether each text is replaced only where it is found first.",
        example: EXAMPLE_OF_REPLACEMENTS,
        see: &["sub_filter", "sub_filter_types", "sub_filter_last_modified", "addition_types", "ssi"],
        handler: |scope, d| set(d, &mut scope.conf.location(&SUB_CONF).once, |d| d.flag(0)),
    },
    Spec {
        name: "sub_filter_last_modified",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "sub_filter_last_modified on | off",
        default: "sub_filter_last_modified off;",
        doc: "Whether `Last-Modified` and, weakened, `ETag` are kept in responses in which texts are \
              replaced.",
        example: EXAMPLE_OF_REPLACEMENTS,
        see: &["sub_filter", "sub_filter_once", "sub_filter_types", "addition_types", "ssi"],
        handler: |scope, d| set(d, &mut scope.conf.location(&SUB_CONF).last_modified, |d| d.flag(0)),
    },
];

/// The example of `sub_filter`, `sub_filter_types`, `sub_filter_once` and `sub_filter_last_modified`.
const EXAMPLE_OF_REPLACEMENTS: &str = r#"
    location / {
        sub_filter "</head>" "<script src=/stats.js></script></head>";
        sub_filter "http://example.com" "https://example.com";
        sub_filter_once off;
        sub_filter_types text/css;
        sub_filter_last_modified on;
    }"#;

static SUB_CONF: ConfKey<SubConf> = ConfKey::new(Level::Location);

settings! {
    struct SubConf {
        pairs: Setting<Arc<Pairs>>,
        once: Setting<bool> = true,
        last_modified: Setting<bool> = false,
        types: Setting<TypeSet> = TypeSet::of(&[ALWAYS]),
    }
}

/// The texts and their replacements.
#[derive(Default)]
struct Pairs {
    list: Vec<Pair>,
    /// Made at load, unless a text has variables in it.
    searcher: OnceLock<Option<Searcher>>,
}

struct Pair {
    text: Value,
    replacement: Value,
}

fn read_pair(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let [text, replacement] = &directive.args[..] else { unreachable!("the table asks for two arguments") };
    if text.is_empty() {
        return Err(directive.error("empty search pattern"));
    }
    if scope.conf.location(&SUB_CONF).pairs.list.len() == PATTERNS_MAX {
        return Err(directive.error("number of search patterns exceeds 255"));
    }
    let text = scope.conf.variables.compile(&text.to_ascii_lowercase().into(), &directive.pos)?;
    let replacement = scope.conf.variables.compile(replacement, &directive.pos)?;
    let pairs = scope.conf.location(&SUB_CONF).pairs.here();
    let pairs = Arc::get_mut(pairs).expect("nobody shares what is being read");
    pairs.list.push(Pair { text, replacement });
    Ok(())
}

/// Makes the tables of all levels.
fn make_tables(load: &mut Load) -> Result<(), Error> {
    load.all_locations(&SUB_CONF).for_each(|conf| _ = conf.pairs.searcher());
    Ok(())
}

impl Pairs {
    /// The searcher for texts without variables; `None` if one has some.
    fn searcher(&self) -> Option<&Searcher> {
        let make = || {
            let texts = self.list.iter().map(|pair| pair.text.as_literal().map(Into::into));
            texts.collect::<Option<Vec<_>>>().map(Searcher::new)
        };
        self.searcher.get_or_init(make).as_ref()
    }
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let conf = request.conf(&SUB_CONF);
    let head = filtering.head();
    if head.content_length == Some(0) || !conf.types.contains_type(head.content_type.as_deref()) {
        return None;
    }
    let (searcher, replacements) = searcher(&conf.pairs, &filtering.view())?;
    let head = filtering.head();
    if request.is_main() {
        head.content_length = None;
        if *conf.last_modified {
            head.weaken_etag();
        } else {
            (head.last_modified, head.etag) = (None, None);
            head.headers.remove(HeaderName::new(b"Last-Modified"));
        }
    }
    let count = searcher.len();
    Some(Box::new(Substitute {
        searcher,
        replacements,
        made: vec![None; count],
        repetition: if *conf.once { Repetition::Once } else { Repetition::Always },
        held: Vec::new(),
        waiting: VecDeque::new(),
        out: Vec::new(),
    }))
}

/// The searcher for the texts of a request, and their replacements; `None` if there are none.
fn searcher<'c>(pairs: &'c Pairs, view: &View<'_, 'c>) -> Option<(Cow<'c, Searcher>, Vec<&'c Value>)> {
    if let Some(searcher) = pairs.searcher() {
        let replacements = pairs.list.iter().map(|pair| &pair.replacement).collect();
        return Some((Cow::Borrowed(searcher), replacements));
    }
    let (mut texts, mut replacements) = (Vec::new(), Vec::new());
    for pair in &pairs.list {
        let mut text = Vec::new();
        pair.text.append(view, &mut text);
        if !text.is_empty() {
            text.make_ascii_lowercase();
            texts.push(text.into());
            replacements.push(&pair.replacement);
        }
    }
    (!texts.is_empty()).then(|| (Cow::Owned(Searcher::new(texts)), replacements))
}

/// How often a text is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repetition {
    Once,
    Always,
}

/// The body filter.
struct Substitute<'c> {
    searcher: Cow<'c, Searcher>,
    replacements: Vec<&'c Value>,
    /// The replacements of texts that were found.
    made: Vec<Option<Bytes>>,
    repetition: Repetition,
    /// The possible beginning of a text; shorter than the longest.
    held: Vec<u8>,
    /// Input to be searched in later turns, each with its mark.
    waiting: VecDeque<(Bytes, Mark)>,
    out: Vec<u8>,
}

impl Substitute<'_> {
    /// Looks through what waits, for one turn.
    fn go_on(&mut self, next: &mut Next<'_, '_>) {
        let (mut in_bytes, mut out_bytes) = (TURN_IN_BYTES, TURN_OUT_BYTES);
        while in_bytes > 0
            && out_bytes > 0
            && let Some((bytes, mark)) = self.waiting.pop_front()
        {
            let mut now = bytes.clone();
            let rest = now.split_off(now.len().min(in_bytes));
            in_bytes -= now.len();
            let now = self.join(now);
            let done = self.replace(&now, &mut out_bytes, next);
            if done < now.len() {
                // Too much was made of it.
                self.waiting.push_front((join_bytes(now.slice(done..), rest), mark));
            } else if !rest.is_empty() {
                self.waiting.push_front((rest, mark));
            } else if mark != Mark::More {
                if mark == Mark::Last {
                    // As in nginx: other texts are not looked for in the beginning of one.
                    self.out.append(&mut self.held);
                }
                next.push(Chunk::Owned(std::mem::take(&mut self.out)), mark);
            }
        }
        if !self.out.is_empty() {
            next.push(Chunk::Owned(std::mem::take(&mut self.out)), Mark::More);
        }
    }

    /// Joins the bytes that were held back with those behind them.
    fn join(&mut self, bytes: Bytes) -> Bytes {
        if self.held.is_empty() {
            return bytes;
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(&bytes);
        joined.into()
    }

    /// Replaces texts until `budget` bytes are made; up to where that is.
    fn replace(&mut self, bytes: &Bytes, budget: &mut usize, next: &mut Next<'_, '_>) -> usize {
        let mut at = 0;
        while *budget > 0 {
            if self.repetition == Repetition::Once && self.made.iter().all(Option::is_some) {
                self.pass(bytes.slice(at..), next);
                return bytes.len();
            }
            let is_wanted =
                |index: usize| self.repetition == Repetition::Always || self.made[index].is_none();
            match self.searcher.find(&bytes[at..], is_wanted) {
                Found::Text { start, index } => {
                    self.pass(bytes.slice(at..at + start), next);
                    let replacement = self.replacement(index, next);
                    *budget = budget.saturating_sub(start + replacement.len() + 1);
                    self.pass(replacement, next);
                    at += start + self.searcher.text_len(index);
                }
                Found::Beginning(start) => {
                    self.pass(bytes.slice(at..at + start), next);
                    self.held.extend_from_slice(&bytes[at + start..]);
                    return bytes.len();
                }
                Found::Nothing => {
                    self.pass(bytes.slice(at..), next);
                    return bytes.len();
                }
            }
        }
        at
    }

    fn replacement(&mut self, index: usize, next: &Next<'_, '_>) -> Bytes {
        let value = self.replacements[index];
        let made = self.made[index].get_or_insert_with(|| {
            let mut text = Vec::new();
            value.append(&next.view(), &mut text);
            text.into()
        });
        made.clone()
    }

    /// Passes on what is large, and gathers what is not.
    fn pass(&mut self, bytes: Bytes, next: &mut Next<'_, '_>) {
        if bytes.len() < PIECE_MIN_BYTES {
            self.out.extend_from_slice(&bytes);
        }
        let is_large = bytes.len() >= PIECE_MIN_BYTES;
        if !self.out.is_empty() && (is_large || self.out.len() >= 2 * PIECE_MIN_BYTES) {
            next.push(Chunk::Owned(std::mem::take(&mut self.out)), Mark::More);
        }
        if is_large {
            next.push(Chunk::Shared(bytes), Mark::More);
        }
    }
}

fn join_bytes(first: Bytes, second: Bytes) -> Bytes {
    if second.is_empty() { first } else { [first, second].concat().into() }
}

impl BodyFilter for Substitute<'_> {
    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if chunk.is_empty() && mark == Mark::More {
            return;
        }
        let is_busy = self.is_busy();
        self.waiting.push_back((chunk.into_bytes(), mark));
        if !is_busy {
            self.go_on(next);
        }
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn resume(&mut self, next: &mut Next<'_, '_>) {
        self.go_on(next);
    }
}
