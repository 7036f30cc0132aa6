//! `charset` and its kin: which charset a text is said to be in, and conversion where it is kept in
//! another one. A header filter, and a body filter where there is something to convert.

#[cfg(fuzzing)]
pub mod fuzzing;
mod recode;
mod tables;

use std::borrow::Cow;

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::error::message;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    BodyFilter, ConfKey, FilterSpec, Filtering, Level, Load, Module, Own, Request, Setting, Text, VariableId,
    Verbatim, View, context, set, settings,
};

use crate::filters::type_set::TypeSet;
use recode::{FromUtf8, ToUtf8};
use tables::Table;

/// The module.
pub static CHARSET: Module = Module {
    name: "charset",
    directives: DIRECTIVES,
    confs: &[&CHARSETS, &CHARSET_CONF],
    filters: &[FilterSpec { enabled: |enabling| *enabling.confs.of(&CHARSET_CONF).knows_charsets, filter }],
    finish: Some(finish),
    ..Module::EMPTY
};

const ANYWHERE: Contexts = context::ALL.or(context::LOCATION_IF);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "charset",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "charset CHARSET | off",
        default: "charset off;",
        doc: "Adds the charset to `Content-Type` of texts. Where `source_charset` is another one, the body \
              is converted, for which there must be a `charset_map`. May be a variable.",
        example: EXAMPLE_OF_CHARSETS,
        see: &["source_charset", "override_charset", "charset_types", "charset_map", "default_type"],
        handler: |scope, directive| {
            if scope.conf.location(&CHARSET_CONF).charset.is_here() {
                return Err(directive.reject("is duplicate"));
            }
            let choice = match &directive.args[0][..] {
                b"off" => Choice::Off,
                _ => read_choice(scope.conf, directive)?,
            };
            scope.conf.location(&CHARSET_CONF).charset.set(choice);
            Ok(())
        },
    },
    Spec {
        name: "source_charset",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "source_charset CHARSET",
        default: "",
        doc: "The charset that texts are kept in. May be a variable.",
        example: EXAMPLE_OF_CHARSETS,
        see: &["charset", "override_charset", "charset_types", "charset_map", "default_type"],
        handler: |scope, directive| {
            if scope.conf.location(&CHARSET_CONF).source.is_here() {
                return Err(directive.reject("is duplicate"));
            }
            let choice = read_choice(scope.conf, directive)?;
            scope.conf.location(&CHARSET_CONF).source.set(choice);
            Ok(())
        },
    },
    Spec {
        name: "override_charset",
        contexts: ANYWHERE,
        args: Args::FLAG,
        syntax: "override_charset on | off",
        default: "override_charset off;",
        doc: "Whether a text that comes with a charset of its own is converted from that.",
        example: EXAMPLE_OF_CHARSETS,
        see: &["charset", "source_charset", "charset_types", "charset_map", "default_type"],
        handler: |scope, directive| {
            let overrides = &mut scope.conf.location(&CHARSET_CONF).overrides;
            set(directive, overrides, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "charset_types",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "charset_types TYPE … | *",
        default: "charset_types text/html text/xml text/plain text/vnd.wap.wml application/javascript \
                  application/rss+xml;",
        doc: "The types that `charset` is for, besides `text/html`.",
        example: EXAMPLE_OF_CHARSETS,
        see: &["charset", "source_charset", "override_charset", "charset_map", "default_type"],
        handler: |scope, directive| {
            let types = &mut scope.conf.location(&CHARSET_CONF).types;
            let warnings = TypeSet::read(directive, types, DEFAULT_TYPES[0]);
            warnings.into_iter().for_each(|warning| scope.warn(warning));
            Ok(())
        },
    },
    Spec {
        name: "charset_map",
        contexts: context::HTTP,
        args: Args::BLOCK.or(Args::TAKE2),
        syntax: "charset_map CHARSET CHARSET { … }",
        default: "",
        doc: "How characters of one charset are written in another and back: lines of two codes in \
              hexadecimal digits. The second one may be `utf-8`, with its bytes in one word.",
        example: "
            charset_map koi8-r utf-8 {
                C0 D18E;    # small yu
                C1 D0B0;    # small a
            }",
        see: &["charset", "source_charset"],
        handler: read_map,
    },
];

/// The example of `charset`, `source_charset`, `override_charset` and `charset_types`.
const EXAMPLE_OF_CHARSETS: &str = "
    charset_map koi8-r utf-8 {
        C0 D18E;
        C1 D0B0;
    }

    server {
        location /old/ {
            source_charset koi8-r;
            charset utf-8;
            override_charset on;
            charset_types text/plain text/css;
        }
    }";

/// The first one is in every list.
const DEFAULT_TYPES: [&str; 6] = [
    "text/html",
    "text/xml",
    "text/plain",
    "text/vnd.wap.wml",
    "application/javascript",
    "application/rss+xml",
];

static CHARSETS: ConfKey<Charsets> = ConfKey::new(Level::Main);
static CHARSET_CONF: ConfKey<CharsetConf> = ConfKey::new(Level::Location);

settings! {
    /// All charsets of the configuration, by index, and the maps between them.
    struct Charsets {
        names: Own<Vec<Bytes>>,
        maps: Own<Vec<CharsetMap>>,
    }
}

struct CharsetMap {
    between: [usize; 2],
    table: Table,
}

settings! {
    struct CharsetConf {
        charset: Setting<Choice> = Choice::Off,
        source: Setting<Choice> = Choice::Off,
        overrides: Setting<bool> = false,
        types: Setting<TypeSet> = TypeSet::of(&DEFAULT_TYPES),
        /// Whether any charset has a name: other servers may ask for it where the location says nothing.
        knows_charsets: Own<bool>,
    }
}

/// The value of `charset` or `source_charset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Off,
    /// The index of its name.
    Named(usize),
    Variable(VariableId),
}

impl Charsets {
    fn find(&self, name: &[u8]) -> Option<usize> {
        self.names.iter().position(|other| other.eq_ignore_ascii_case(name))
    }

    fn find_or_add(&mut self, name: &Bytes) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.names.push(name.clone());
            self.names.len() - 1
        })
    }

    /// The filter that converts from one charset to another, if there is a map.
    fn recoder(&self, from: usize, to: usize) -> Option<Box<dyn BodyFilter + '_>> {
        let is_between = |map: &&CharsetMap| map.between == [from, to] || map.between == [to, from];
        let CharsetMap { between, table } = self.maps.iter().find(is_between)?;
        let is_forward = *between == [from, to];
        Some(match (table, is_forward) {
            (Table::Bytes(table), true) => Box::new(recode::Bytes::there(table)),
            (Table::Bytes(table), false) => Box::new(recode::Bytes::back(table)),
            (Table::Utf8(table), true) => Box::new(ToUtf8(table)),
            (Table::Utf8(table), false) => Box::new(FromUtf8::new(table)),
        })
    }

    /// Whether the text has another length afterwards.
    fn is_utf8(&self, index: usize) -> bool {
        self.names[index].eq_ignore_ascii_case(b"utf-8")
    }
}

fn read_choice(load: &mut Load, directive: &Directive) -> Result<Choice, Error> {
    let argument = &directive.args[0];
    match argument.strip_prefix(b"$") {
        Some([]) => Err(directive.error("invalid variable name \"$\"")),
        Some(name) => Ok(Choice::Variable(load.variables.id(name))),
        None => Ok(Choice::Named(load.main(&CHARSETS).find_or_add(argument))),
    }
}

fn read_map(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let charsets = scope.conf.main(&CHARSETS);
    let [source, target] = &directive.args[..] else { unreachable!("the table asks for two arguments") };
    let between = [source, target].map(|name| charsets.find_or_add(name));
    let refuse =
        |before: &str| directive.error(message(&[&before, &" \"", source, &"\" and \"", target, &"\""]));
    if between[0] == between[1] {
        return Err(refuse("\"charset_map\" between the same charsets"));
    }
    if source.eq_ignore_ascii_case(b"utf-8") {
        return Err(
            directive.error("\"charset_map\" with \"utf-8\" charset should be given in the second column")
        );
    }
    let reverse = [between[1], between[0]];
    if charsets.maps.iter().any(|map| map.between == between || map.between == reverse) {
        return Err(refuse("duplicate \"charset_map\" between"));
    }
    let mut table = if target.eq_ignore_ascii_case(b"utf-8") { Table::utf8() } else { Table::bytes() };
    if let Some(block) = directive.block() {
        for line in &block.directives {
            if line.opens_block() {
                return Err(line.error("unexpected \"{\""));
            }
            table.read(line)?;
        }
        block.end()?;
    }
    charsets.maps.push(CharsetMap { between, table });
    Ok(())
}

fn finish(load: &mut Load) -> Result<(), Error> {
    check_maps(load)?;
    let knows_charsets = !load.main(&CHARSETS).names.is_empty();
    for conf in load.all_locations(&CHARSET_CONF) {
        *conf.knows_charsets = knows_charsets || matches!(*conf.charset, Choice::Variable(_));
    }
    Ok(())
}

/// Where the configuration itself says what is converted into what, there must be a map.
fn check_maps(load: &mut Load) -> Result<(), Error> {
    let mut wanted = Vec::new();
    for conf in load.all_locations(&CHARSET_CONF) {
        if let (Choice::Named(source), Choice::Named(target)) = (*conf.source, *conf.charset)
            && source != target
            && !wanted.contains(&(source, target))
        {
            wanted.push((source, target));
        }
    }
    let charsets = load.main(&CHARSETS);
    for (source, target) in wanted {
        if charsets.recoder(source, target).is_none() {
            let text = no_map(&charsets.names[source], &charsets.names[target]);
            return Err(Error::unplaced(text));
        }
    }
    Ok(())
}

fn no_map(source: &[u8], target: &[u8]) -> Vec<u8> {
    message(&[&"no \"charset_map\" between the charsets \"", &source, &"\" and \"", &target, &"\""])
}

/// A charset of a response.
struct Charset<'c> {
    name: Text<'c>,
    /// Its index, if the configuration knows it.
    index: Option<usize>,
}

impl<'c> Charset<'c> {
    fn of(name: Text<'c>, charsets: &Charsets) -> Self {
        Self { index: charsets.find(&name), name }
    }

    /// The charset of the configuration; `None` if there is none. nginx closes the connection if a variable
    /// has no value; here that is no charset.
    fn chosen(choice: Choice, charsets: &'c Charsets, view: &View<'_, 'c>) -> Option<Self> {
        match choice {
            Choice::Off => None,
            Choice::Named(index) => {
                Some(Self { name: Cow::Borrowed(&charsets.names[index]), index: Some(index) })
            }
            Choice::Variable(id) => Some(Self::of(view.variable(id)?, charsets)),
        }
    }

    fn is(&self, other: &Self) -> bool {
        self.index == other.index && self.name.eq_ignore_ascii_case(&other.name)
    }
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let (conf, charsets) = (request.conf(&CHARSET_CONF), request.main_conf(&CHARSETS));
    let head = filtering.head();
    let content_type = head.content_type.as_deref().filter(|text| !text.is_empty())?;
    let own = head.charset.clone();
    let is_wanted = if own.is_some() { *conf.overrides } else { conf.types.contains(content_type) };
    let target = match request.charset_override() {
        Some(name) => asked_for(request, charsets, name)?,
        None if is_wanted => Charset::chosen(*conf.charset, charsets, &filtering.view())?,
        None => return None,
    };
    let source = match own {
        Some(name) => Some(Charset::of(name, charsets)),
        None => Charset::chosen(*conf.source, charsets, &filtering.view()),
    };
    let Some(source) = source.filter(|source| !source.is(&target)) else {
        set_charset(filtering, target.name);
        return None;
    };
    let (Some(from), Some(to)) = (source.index, target.index) else {
        return give_up(filtering, &source, &target);
    };
    if filtering.head().content_encoding.is_some() {
        return None;
    }
    let Some(recoder) = charsets.recoder(from, to) else { return give_up(filtering, &source, &target) };
    set_charset(filtering, target.name);
    if charsets.is_utf8(from) || charsets.is_utf8(to) {
        filtering.head().content_length = None;
    }
    Some(recoder)
}

/// The charset that another server has asked for (`X-Accel-Charset`), whatever the location says.
fn asked_for<'c>(request: &Request<'c>, charsets: &'c Charsets, name: &[u8]) -> Option<Charset<'c>> {
    let index = charsets.find(name);
    if index.is_none() {
        request.log(LogLevel::Error, format_args!("unknown charset \"{}\" to override", Verbatim(name)));
    }
    index.map(|index| Charset { name: Cow::Owned(name.to_vec()), index: Some(index) })
}

fn set_charset<'c>(filtering: &mut Filtering<'_, 'c>, name: Text<'c>) {
    let head = filtering.head();
    // Browsers of old took that of a redirect for that of the page behind it.
    head.charset = Some(name).filter(|name| !matches!(head.status, 301 | 302) && !name.is_empty());
}

fn give_up<'c>(
    filtering: &Filtering<'_, 'c>,
    source: &Charset<'_>,
    target: &Charset<'_>,
) -> Option<Box<dyn BodyFilter + 'c>> {
    let text = no_map(&source.name, &target.name);
    filtering.request.log(LogLevel::Error, format_args!("{}", Verbatim(&text)));
    None
}
