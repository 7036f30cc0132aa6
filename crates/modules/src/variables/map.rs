//! `map`: a variable whose value depends on another one. Read at load into a table; a request looks it up
//! on its loop, with one allocation for the text that is looked up.

mod keys;

use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::regex::{Case, Regex};
use clearway_http::server_names::{Added, Builder, InvalidWildcard, ServerNames};
use clearway_http::{
    Computed, ConfKey, Keep, Level, Load, Module, Setting, Text, Value, View, context, set, settings,
};
use smallvec::SmallVec;

use keys::Keys;

/// Room that is made at first for the text that is looked up, bytes.
const SOURCE_FIRST_BYTES: usize = 64;

/// The module.
pub static MAP: Module = Module { name: "map", directives: DIRECTIVES, confs: &[&SIZES], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "map",
        contexts: context::HTTP,
        args: Args::BLOCK.or(Args::TAKE2),
        syntax: "map VALUE $VARIABLE { … }",
        default: "",
        doc: "Makes a variable whose value depends on another one. Each line of the block has a text in any \
              case or an expression (`~`, or `~*` in any case) and the value for it; texts count before \
              expressions, of which the first that matches counts. Values may have variables in them, and \
              groups of the expression. `default` is for all other texts, `hostnames` allows wildcards as in \
              `server_name`, `volatile` has the value worked out each time it is asked for instead of once \
              per request, `include` reads lines from a file. A text that begins like one of these words is \
              written with a `\\` before it.",
        example: r#"
            map $http_user_agent $is_mobile {
                default       0;
                "~Opera Mini" 1;
                ~*android     1;
            }"#,
        see: &["geo", "split_clients", "set"],
        handler: read_map,
    },
    Spec {
        name: "map_hash_max_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "map_hash_max_size NUMBER",
        default: "map_hash_max_size 2048;",
        doc: "How large nginx makes the tables of `map`. Checked for form only: here they need no tuning.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&SIZES).max_size, |directive| directive.number(0))
        },
    },
    Spec {
        name: "map_hash_bucket_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "map_hash_bucket_size NUMBER",
        default: "map_hash_bucket_size 64;",
        doc: "How much of nginx's tables of `map` one look-up reads. Checked for form only: here they need \
              no tuning.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&SIZES).bucket_size, |directive| directive.number(0))
        },
    },
];

static SIZES: ConfKey<Sizes> = ConfKey::new(Level::Main);

settings! {
    /// Checked for form, and that they come once and before the first `map`. The tables here are as large as
    /// they need to be.
    struct Sizes {
        max_size: Setting<u64>,
        bucket_size: Setting<u64>,
    }
}

impl Sizes {
    /// From now on the entries have their values.
    fn settle(&mut self) {
        for size in [&mut self.max_size, &mut self.bucket_size] {
            size.set(**size);
        }
    }
}

/// A `map` block.
struct Map {
    source: Value,
    names: Names,
    regexes: Vec<(Regex, Value)>,
    default: Value,
}

/// The names that are looked up by text.
enum Names {
    Exact(Keys<Value>),
    /// With wildcards; what they stand for, by index.
    Hosts(ServerNames<usize>, Vec<Value>),
}

impl Computed for Map {
    fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Option<Text<'c>> {
        let mut source = Vec::with_capacity(SOURCE_FIRST_BYTES);
        self.source.append(view, &mut source);
        let found = self.names.find(&source).or_else(|| self.find_regex(&source, view));
        Some(found.unwrap_or(&self.default).eval(view))
    }
}

impl Map {
    /// A match that was given up is logged and counts as none at all: the default applies.
    fn find_regex(&self, text: &[u8], view: &View<'_, '_>) -> Option<&Value> {
        let text = self.names.without_dot(text);
        if text.is_empty() {
            return None;
        }
        for (regex, value) in &self.regexes {
            if view.request.matches(regex, text).ok()? {
                return Some(value);
            }
        }
        None
    }
}

impl Names {
    fn find(&self, text: &[u8]) -> Option<&Value> {
        match self {
            Self::Exact(keys) => keys.find(text),
            Self::Hosts(hosts, values) => {
                let mut host: SmallVec<[u8; 64]> = SmallVec::from_slice(self.without_dot(text));
                host.make_ascii_lowercase();
                let found = hosts.find(&host, |_| Ok::<_, std::convert::Infallible>(false));
                let Ok(index) = found;
                values.get(index?)
            }
        }
    }

    /// A host without the dot that it may end in.
    fn without_dot<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Exact(_) => text,
            Self::Hosts(..) => text.strip_suffix(b".").unwrap_or(text),
        }
    }
}

fn read_map(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let source = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    let name = variable_name(directive, 1)?;
    scope.conf.check_variable(name).map_err(|message| directive.error(message))?;
    scope.conf.main(&SIZES).settle();
    let mut draft = Draft::default();
    if let Some(block) = directive.block() {
        block.entries(&mut |line| draft.read(scope.conf, line))?;
    }
    let keep = draft.keep;
    let map = Arc::new(draft.finish(source));
    scope.conf.define_variable(name, map, keep).map_err(|message| directive.error(message))?;
    Ok(())
}

/// The name of the variable that a directive defines.
pub(crate) fn variable_name(directive: &Directive, index: usize) -> Result<&[u8], Error> {
    let argument = &directive.args[index];
    argument
        .strip_prefix(b"$")
        .ok_or_else(|| directive.error(message(&[&"invalid variable name \"", argument, &"\""])))
}

/// A `map` block while it is read.
struct Draft {
    names: Builder<usize>,
    keys: Vec<(Bytes, usize)>,
    values: Vec<Value>,
    regexes: Vec<(Regex, Value)>,
    default: Option<Value>,
    kind: Kind,
    keep: Keep,
}

/// The kind of texts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Exact,
    Hosts,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            names: Builder::new(),
            keys: Vec::new(),
            values: Vec::new(),
            regexes: Vec::new(),
            default: None,
            kind: Kind::Exact,
            keep: Keep::Request,
        }
    }
}

impl Draft {
    fn read(&mut self, load: &mut Load, line: &Directive) -> Result<(), Error> {
        match (printed(&line.name), &line.args[..]) {
            (b"hostnames", []) => self.kind = Kind::Hosts,
            (b"volatile", []) => self.keep = Keep::Never,
            (key, [value]) => {
                let value = load.variables.compile(value, &line.pos)?;
                self.add(load, line, key, value)?;
            }
            _ => return Err(line.error("invalid number of the map parameters")),
        }
        Ok(())
    }

    fn add(&mut self, load: &mut Load, line: &Directive, key: &[u8], value: Value) -> Result<(), Error> {
        match key {
            b"default" if self.default.is_some() => {
                return Err(line.error("duplicate default map parameter"));
            }
            b"default" => self.default = Some(value),
            [b'~', pattern @ ..] => {
                let (case, pattern) = match pattern {
                    [b'*', pattern @ ..] => (Case::Insensitive, pattern),
                    pattern => (Case::Sensitive, pattern),
                };
                let mut regex =
                    Regex::compile(pattern, case).map_err(|error| line.error(error.to_string()))?;
                load.bind_names(&mut regex).map_err(|message| line.error(message))?;
                self.regexes.push((regex, value));
            }
            _ => self.add_text(line, value)?,
        }
        Ok(())
    }

    fn add_text(&mut self, line: &Directive, value: Value) -> Result<(), Error> {
        let key =
            line.name.strip_prefix(b"\\").map_or_else(|| line.name.clone(), |key| line.name.slice_ref(key));
        let refuse = |why: &str, key: &[u8]| Err(line.error(message(&[&why, &" \"", &key, &"\""])));
        let lowered = key.to_ascii_lowercase();
        let index = self.values.len();
        let added = match self.kind {
            Kind::Exact => Ok(self.names.add_exact(&lowered, index)),
            Kind::Hosts => self.names.add(&lowered, index),
        };
        match added {
            Ok(Added::New) => {}
            Ok(Added::Conflicting) => return refuse("conflicting parameter", &lowered),
            Err(InvalidWildcard) => return refuse("invalid hostname or wildcard", &key),
        }
        self.keys.push((key, index));
        self.values.push(value);
        Ok(())
    }

    fn finish(self, source: Value) -> Map {
        let names = match self.kind {
            Kind::Hosts => Names::Hosts(self.names.build(), self.values),
            Kind::Exact => Names::Exact(self.keys.into_iter().map(|(key, _)| key).zip(self.values).collect()),
        };
        let default = self.default.unwrap_or_else(|| Value::literal(Bytes::new()));
        Map { source, names, regexes: self.regexes, default }
    }
}
