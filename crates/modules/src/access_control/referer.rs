//! `valid_referers`: whether a request comes from a page of the sites that a level lists. A variable alone,
//! evaluated on loops; names are in tables by then.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::error::message;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::regex::{Captures, Case, Regex};
use clearway_http::server_names::{Added, Builder, InvalidWildcard, ServerName, ServerNames};
use clearway_http::{
    ConfKey, Level, Load, Merge, Module, Presence, Request, Setting, VariableKind, VariableSpec, context,
    set, settings,
};
use clearway_message::Known;

/// The module.
pub static REFERER: Module = Module {
    name: "referer",
    directives: DIRECTIVES,
    confs: &[&REFERER_CONF],
    variables: VARIABLES,
    finish: Some(build),
    ..Module::EMPTY
};

/// Longest name of a host in a `Referer`, bytes.
const HOST_MAX_BYTES: usize = 256;
/// A shorter text is no URL.
const URL_MIN_BYTES: usize = b"http://i.ru".len();

const SERVER_LOCATION: Contexts = context::SERVER.or(context::LOCATION);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "valid_referers",
        contexts: SERVER_LOCATION,
        args: Args::ONE_MORE,
        syntax: "valid_referers none | blocked | server_names | HOST[/PATH] | ~REGEX …",
        default: "",
        doc: "Where requests may come from, for `$invalid_referer`: without `Referer` (`none`), with one \
              that is no URL as a proxy or firewall has made it unreadable (`blocked`), from the names of \
              the server, from a host (`*.example.com`, `www.example.*`) with a path that begins so, or \
              with what an expression in any case matches behind `http://` or `https://`.",
        example: r"
            location ~* \.(jpe?g|png)$ {
                valid_referers none blocked server_names *.example.org;
                if ($invalid_referer) {
                    return 403;
                }
            }",
        see: &["secure_link", "if"],
        handler: valid_referers,
    },
    Spec {
        name: "referer_hash_max_size",
        contexts: SERVER_LOCATION,
        args: Args::TAKE1,
        syntax: "referer_hash_max_size NUMBER",
        default: "referer_hash_max_size 2048;",
        doc: "How large nginx makes the tables of `valid_referers`. Checked for form only: here they need no \
              tuning.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&REFERER_CONF).hash_max_size;
            set(directive, setting, |directive| directive.number(0))
        },
    },
    Spec {
        name: "referer_hash_bucket_size",
        contexts: SERVER_LOCATION,
        args: Args::TAKE1,
        syntax: "referer_hash_bucket_size NUMBER",
        default: "referer_hash_bucket_size 64;",
        doc: "How much of nginx's tables of `valid_referers` one look-up reads. Checked for form only: here \
              they need no tuning.",
        example: "",
        see: &[],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&REFERER_CONF).hash_bucket_size;
            set(directive, setting, |directive| directive.number(0))
        },
    },
];

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: "invalid_referer",
    kind: VariableKind::Changeable,
    doc: "`1` if `Referer` is not one of `valid_referers`, else empty.",
    eval: |view, _, out| {
        let is_valid = view.request.conf(&REFERER_CONF).is_valid(view.request);
        Presence::put(Some(if is_valid { b"" } else { b"1" }), out)
    },
}];

static REFERER_CONF: ConfKey<RefererConf> = ConfKey::new(Level::Location);

settings! {
    struct RefererConf {
        lists: Lists,
        hash_max_size: Setting<u64>,
        hash_bucket_size: Setting<u64>,
    }
}

/// The lists that hold at a level.
#[derive(Default)]
struct Lists {
    nearest: Setting<Arc<List>>,
    /// The lists of the levels around, the outermost first: if a list has no expressions, theirs are used, as
    /// in nginx.
    outer: Vec<Arc<List>>,
}

/// The list of a level.
struct List {
    hosts: Mutex<Hosts>,
    regexes: Vec<Regex>,
    flags: Flags,
    /// Made of it once all of the server is known.
    tables: OnceLock<Tables>,
}

/// Names of hosts while they are gathered.
struct Hosts {
    names: Builder<usize>,
    /// The required beginnings of paths, by the values of `names`; an empty one requires nothing.
    paths: Vec<Bytes>,
}

impl Default for List {
    fn default() -> Self {
        Self {
            hosts: Mutex::new(Hosts::new()),
            regexes: Vec::new(),
            flags: Flags::default(),
            tables: OnceLock::new(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerNamesWanted {
    No,
    Yes,
}

/// Values that are valid beside hosts.
struct Flags {
    absent: Verdict,
    blocked: Verdict,
    server_names: ServerNamesWanted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Valid,
    Invalid,
}

impl Default for Flags {
    fn default() -> Self {
        Self { absent: Verdict::Invalid, blocked: Verdict::Invalid, server_names: ServerNamesWanted::No }
    }
}

/// How hosts are looked up.
struct Tables {
    names: ServerNames<usize>,
    /// By what `names` gives; an empty one is none.
    paths: Vec<Bytes>,
    /// Names of the server that are expressions.
    server_regexes: Vec<Regex>,
}

impl Merge for Lists {
    fn merge(&mut self, parent: &Self) {
        let Self { nearest, outer } = self;
        outer.clone_from(&parent.outer);
        if nearest.is_here() && parent.nearest.is_set() {
            outer.push(Arc::clone(&parent.nearest));
        }
        nearest.merge(&parent.nearest);
    }
}

fn valid_referers(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let list = scope.conf.location(&REFERER_CONF).lists.nearest.here();
    let list = Arc::get_mut(list).expect("lists are shared when levels are merged, and then all is read");
    for argument in &directive.args {
        match &argument[..] {
            b"" => return Err(directive.error("invalid referer \"\"")),
            b"none" => list.flags.absent = Verdict::Valid,
            b"blocked" => list.flags.blocked = Verdict::Valid,
            b"server_names" => list.flags.server_names = ServerNamesWanted::Yes,
            b"~" => return Err(directive.error("empty regex in \"~\"")),
            [b'~', pattern @ ..] => {
                let regex = Regex::compile(pattern, Case::Insensitive);
                list.regexes.push(regex.map_err(|error| directive.error(error.to_string()))?);
            }
            text => {
                let end = memchr::memchr(b'/', text).unwrap_or(text.len());
                let added = list.hosts().add(&text[..end], argument.slice(end..));
                added.map_err(|text| directive.error(text))?;
            }
        }
    }
    Ok(())
}

impl Hosts {
    fn new() -> Self {
        Self { names: Builder::new(), paths: Vec::new() }
    }

    /// Adds a host, unless it is there or no host.
    fn add(&mut self, name: &[u8], path: Bytes) -> Result<(), Vec<u8>> {
        let lowered = name.to_ascii_lowercase();
        match self.names.add(&lowered, self.paths.len()) {
            Ok(Added::New) => {}
            Ok(Added::Conflicting) => return Err(message(&[&"conflicting parameter \"", &lowered, &"\""])),
            Err(InvalidWildcard) => return Err(message(&[&"invalid hostname or wildcard \"", &name, &"\""])),
        }
        self.paths.push(path);
        Ok(())
    }
}

impl List {
    fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().expect("nothing panics in between")
    }

    /// All of it, with the names of the server.
    fn build(&self, names: &[Bytes], hostname: &[u8]) -> Result<Tables, Vec<u8>> {
        let mut hosts = std::mem::replace(&mut *self.hosts(), Hosts::new());
        let mut server_regexes = Vec::new();
        if self.flags.server_names == ServerNamesWanted::Yes {
            for name in names {
                match ServerName::parse(name, hostname).map_err(|error| error.to_string().into_bytes())?.0 {
                    ServerName::Text(text) => hosts.add(&text, Bytes::new())?,
                    ServerName::Regex(regex) => server_regexes.push(*regex),
                }
            }
        }
        let is_partial = [self.flags.absent, self.flags.blocked].contains(&Verdict::Valid);
        if is_partial && hosts.paths.is_empty() {
            return Err(
                b"the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive \
                         without any valid referer"
                    .to_vec(),
            );
        }
        Ok(Tables { names: hosts.names.build(), paths: hosts.paths, server_regexes })
    }

    fn tables(&self) -> &Tables {
        self.tables.get().expect("made when the configuration was complete")
    }
}

/// Makes the tables of all lists.
fn build(load: &mut Load) -> Result<(), Error> {
    let hostname = load.environment().hostname.clone();
    load.visit_with_names(&REFERER_CONF, |conf, names| {
        if conf.lists.nearest.is_set() && conf.lists.nearest.tables.get().is_none() {
            let tables = conf.lists.nearest.build(names, &hostname).map_err(Error::unplaced)?;
            // Only this thread has it yet.
            let _ = conf.lists.nearest.tables.set(tables);
        }
        Ok(())
    })
}

impl RefererConf {
    fn is_valid(&self, request: &Request<'_>) -> bool {
        if !self.lists.nearest.is_set() {
            return true;
        }
        let regexes = self.first_of(|list| &list.regexes);
        let server_regexes = self.first_of(|list| &list.tables().server_regexes);
        let tables = self.lists.nearest.tables();
        if tables.names.is_empty() && regexes.is_empty() && server_regexes.is_empty() {
            return true;
        }
        let flags = &self.lists.nearest.flags;
        let Some(referer) = request.header(Known::Referer) else { return flags.absent == Verdict::Valid };
        let Some(url) = without_scheme(referer) else { return flags.blocked == Verdict::Valid };
        let end = url.iter().position(|byte| matches!(byte, b'/' | b':')).unwrap_or(url.len());
        if end > HOST_MAX_BYTES {
            return false;
        }
        let host = url[..end].to_ascii_lowercase();
        let Ok(found) = tables.names.find(&host, |_| Ok::<_, Infallible>(false));
        if let Some(index) = found {
            let path = memchr::memchr(b'/', &url[end..]).map_or(&b""[..], |slash| &url[end + slash..]);
            return path.starts_with(&tables.paths[index]);
        }
        matches_any(request, server_regexes, &host) || matches_any(request, regexes, url)
    }

    /// The expressions of the innermost list that has any.
    fn first_of<'a>(&'a self, regexes: impl Fn(&'a List) -> &'a Vec<Regex>) -> &'a [Regex] {
        let lists = std::iter::once(&*self.lists.nearest).chain(self.lists.outer.iter().rev());
        lists.map(|list| &**list).map(regexes).find(|regexes| !regexes.is_empty()).map_or(&[], Vec::as_slice)
    }
}

/// The text behind `http://` or `https://`.
fn without_scheme(url: &[u8]) -> Option<&[u8]> {
    if url.len() < URL_MIN_BYTES {
        return None;
    }
    [&b"http://"[..], b"https://"].into_iter().find_map(|scheme| {
        let (start, rest) = url.split_at(scheme.len());
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Without leaving anything in `$1`. A match that is given up is none.
fn matches_any(request: &Request<'_>, regexes: &[Regex], text: &[u8]) -> bool {
    let mut captures = Captures::default();
    regexes.iter().any(|regex| {
        regex.exec(text, &mut captures).unwrap_or_else(|error| {
            request.log(LogLevel::Alert, format_args!("{}", error.describe(text, regex)));
            false
        })
    })
}
