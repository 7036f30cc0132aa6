//! `add_header` and `expires`: what is added to the head of a response on its way out. A header filter;
//! microseconds on the loop of the request.

mod expires;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::date;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    BodyFilter, Conf, ConfKey, Enabling, FilterSpec, Filtering, Level, Load, Module, ResponseHead, Setting,
    Text, Value, context, set,
};

use expires::Expires;

/// The module. Its filter runs before those that need to know the whole head.
pub static HEADERS: Module = Module {
    name: "headers",
    directives: DIRECTIVES,
    confs: &[&HEADERS_CONF],
    filters: &[FilterSpec { enabled: is_enabled, filter }],
    ..Module::EMPTY
};

const ANYWHERE: Contexts = context::ALL.or(context::LOCATION_IF);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "add_header",
        contexts: ANYWHERE,
        args: Args::TAKE23,
        syntax: "add_header NAME VALUE [always]",
        default: "",
        doc: "Adds a header to responses with the codes 200, 201, 204, 206, 301, 302, 303, 304, 307 and 308, or \
              with `always` to all. The value may have variables in it; an empty one adds nothing. \
              `Last-Modified` and `ETag` are replaced, or with an empty value removed. A level that has the \
              directive inherits none of it, unless `add_header_inherit` says so.",
        handler: add_header,
    },
    Spec {
        name: "add_header_inherit",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "add_header_inherit on | off | merge",
        default: "add_header_inherit on;",
        doc: "What becomes of `add_header` of the enclosing level: it holds where the level has none of its own \
              (`on`), it does not (`off`), or it holds as well (`merge`).",
        handler: |scope, directive| {
            const WORDS: [(&str, Inherit); 3] =
                [("off", Inherit::Off), ("on", Inherit::On), ("merge", Inherit::Merge)];
            let inherit = &mut scope.conf.location(&HEADERS_CONF).inherit;
            set(directive, inherit, |directive| directive.choice(0, &WORDS))
        },
    },
    Spec {
        name: "expires",
        contexts: ANYWHERE,
        args: Args::TAKE12,
        syntax: "expires [modified] TIME\nexpires @TIME\nexpires epoch | max | off",
        default: "expires off;",
        doc: "Adds `Expires` and `Cache-Control` to responses with the codes that `add_header` is for: a time \
              from now on, or with `modified` from when the file was changed; a negative one says `no-cache`. \
              `@TIME` is a time of the day. `epoch` is long ago, `max` in 2037. May have variables in it.",
        handler: read_expires,
    },
];

static HEADERS_CONF: ConfKey<HeadersConf> = ConfKey::new(Level::Location);

struct HeadersConf {
    /// Shared by the levels that inherit them.
    headers: Arc<Vec<Header>>,
    inherit: Setting<Inherit>,
    expires: Setting<Option<Arc<Expires>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Inherit {
    Off,
    On,
    Merge,
}

/// A header to be added.
#[derive(Clone)]
struct Header {
    name: Bytes,
    value: Value,
    effect: Effect,
    when: When,
}

/// What a header does to those that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Add,
    LastModified,
    ETag,
}

/// For which responses a header is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Those with a code of success or redirection.
    Safe,
    Always,
}

impl Default for HeadersConf {
    fn default() -> Self {
        Self { headers: Arc::default(), inherit: Setting::new(Inherit::On), expires: Setting::new(None) }
    }
}

impl Conf for HeadersConf {
    fn merge(&mut self, parent: &Self) {
        self.expires.merge(&parent.expires);
        self.inherit.merge(&parent.inherit);
        match *self.inherit {
            Inherit::Off => {}
            _ if self.headers.is_empty() => self.headers = parent.headers.clone(),
            Inherit::On => {}
            Inherit::Merge => Arc::make_mut(&mut self.headers).extend_from_slice(&parent.headers),
        }
    }
}

fn add_header(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let [name, value, rest @ ..] = &directive.args[..] else {
        unreachable!("the table asks for two arguments")
    };
    let effect = if name.eq_ignore_ascii_case(b"Last-Modified") {
        Effect::LastModified
    } else if name.eq_ignore_ascii_case(b"ETag") {
        Effect::ETag
    } else {
        Effect::Add
    };
    let value = scope.conf.variables.compile(value, &directive.pos)?;
    let when = match rest {
        [] => When::Safe,
        [always] if printed(always) == b"always" => When::Always,
        [other, ..] => return Err(directive.error(message(&[&"invalid parameter \"", other, &"\""]))),
    };
    let header = Header { name: name.clone(), value, effect, when };
    Arc::make_mut(&mut scope.conf.location(&HEADERS_CONF).headers).push(header);
    Ok(())
}

fn read_expires(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if scope.conf.location(&HEADERS_CONF).expires.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let expires = Expires::read(scope.conf, directive)?;
    scope.conf.location(&HEADERS_CONF).expires.set(expires.map(Arc::new));
    Ok(())
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    let conf = enabling.confs.of(&HEADERS_CONF);
    !conf.headers.is_empty() || conf.expires.is_some()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let conf = filtering.request.conf(&HEADERS_CONF);
    let is_safe =
        matches!(filtering.head().status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308);
    if is_safe && let Some(expires) = &*conf.expires {
        expires.apply(filtering);
    }
    for header in conf.headers.iter().filter(|header| is_safe || header.when == When::Always) {
        let value = header.value.eval(&filtering.view());
        apply(filtering.head(), header, value);
    }
    None
}

fn apply<'c>(head: &mut ResponseHead<'c>, header: &'c Header, value: Text<'c>) {
    match header.effect {
        Effect::Add => {}
        Effect::LastModified => {
            // What is in the list is sent as it is; the date is for what depends on it.
            head.last_modified = date::parse_http_date(&value);
            head.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(&header.name));
        }
        Effect::ETag => {
            head.etag = Some(value).filter(|value| !value.is_empty());
            return;
        }
    }
    if !value.is_empty() {
        head.headers.push((Cow::Borrowed(&header.name), value));
    }
}
