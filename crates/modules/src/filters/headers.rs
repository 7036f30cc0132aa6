//! `add_header`, `add_trailer` and `expires`: what is added to the head of a response on its way out, and
//! behind its body. A header filter; microseconds on the loop of the request.

mod expires;

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::date;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    BodyFilter, ConfKey, Enabling, FilterSpec, Filtering, HeaderName, Level, Load, Merge, Module,
    ResponseHead, Setting, Text, Value, View, context, set, settings,
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
        doc: "Adds a header to responses with the codes 200, 201, 204, 206, 301, 302, 303, 304, 307 and \
              308, or with `always` to all. The value may have variables in it; an empty one adds nothing. \
              `Last-Modified` and `ETag` are replaced, or with an empty value removed. A level that has the \
              directive inherits none of it, unless `add_header_inherit` says so.",
        example: EXAMPLE_OF_HEADERS,
        see: &["add_header_inherit", "expires", "add_trailer"],
        handler: |scope, directive| {
            let header = read_header(scope.conf, directive)?;
            scope.conf.location(&HEADERS_CONF).headers.add(header);
            Ok(())
        },
    },
    Spec {
        name: "add_header_inherit",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "add_header_inherit on | off | merge",
        default: "add_header_inherit on;",
        doc: "Says how `add_header` of the enclosing level is inherited: it holds where the level has none \
              of its own (`on`), it does not (`off`), or it holds as well (`merge`).",
        example: EXAMPLE_OF_HEADERS,
        see: &["add_header", "expires", "add_trailer"],
        handler: |scope, directive| scope.conf.location(&HEADERS_CONF).headers.read_inherit(directive),
    },
    Spec {
        name: "add_trailer",
        contexts: ANYWHERE,
        args: Args::TAKE23,
        syntax: "add_trailer NAME VALUE [always]",
        default: "",
        doc: "Adds a header behind the body, which is sent in chunks for that; for the codes that \
              `add_header` is for, and inherited likewise. The value is worked out when the body has been \
              made.",
        example: EXAMPLE_OF_TRAILERS,
        see: &["add_trailer_inherit", "add_header"],
        handler: |scope, directive| {
            let trailer = read_header(scope.conf, directive)?;
            scope.conf.location(&HEADERS_CONF).trailers.add(trailer);
            Ok(())
        },
    },
    Spec {
        name: "add_trailer_inherit",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "add_trailer_inherit on | off | merge",
        default: "add_trailer_inherit on;",
        doc: "`add_header_inherit` for `add_trailer`.",
        example: EXAMPLE_OF_TRAILERS,
        see: &["add_trailer", "add_header"],
        handler: |scope, directive| scope.conf.location(&HEADERS_CONF).trailers.read_inherit(directive),
    },
    Spec {
        name: "expires",
        contexts: ANYWHERE,
        args: Args::TAKE12,
        syntax: "expires [modified] TIME\nexpires @TIME\nexpires epoch | max | off",
        default: "expires off;",
        doc: "Adds `Expires` and `Cache-Control` to responses with the codes that `add_header` is for: a \
              time from now on, or with `modified` from when the file was changed; a negative one says \
              `no-cache`. `@TIME` is a time of the day. `epoch` is long ago, `max` in 2037. May have \
              variables in it.",
        example: "
            location /assets/ {
                expires 30d;
            }

            location /news/ {
                expires modified +1h;
            }

            location /account/ {
                expires -1;
            }",
        see: &["add_header", "etag"],
        handler: read_expires,
    },
];

/// The example of `add_header` and `add_header_inherit`.
const EXAMPLE_OF_HEADERS: &str = "
    add_header X-Frame-Options DENY always;

    server {
        location /api/ {
            # As well as the line of the level around.
            add_header_inherit merge;
            add_header Cache-Control no-store;
        }
    }";

/// The example of `add_trailer` and `add_trailer_inherit`.
const EXAMPLE_OF_TRAILERS: &str = "
    add_trailer X-Served-By $hostname;

    server {
        location /exports/ {
            add_trailer_inherit merge;
            add_trailer X-Request-Id $request_id always;
        }
    }";

static HEADERS_CONF: ConfKey<HeadersConf> = ConfKey::new(Level::Location);

settings! {
    struct HeadersConf {
        headers: Additions,
        trailers: Additions,
        expires: Setting<Option<Arc<Expires>>>,
    }
}

/// The headers that a level adds.
struct Additions {
    /// Shared by the levels that inherit them.
    lines: Arc<Vec<Header>>,
    inherit: Setting<Inherit>,
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

/// The effect of a header on existing ones.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    Add,
    LastModified,
    ETag,
}

/// The responses to which a header is added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// Only for responses with a status of success or redirection.
    Safe,
    Always,
}

impl Default for Additions {
    fn default() -> Self {
        Self { lines: Arc::default(), inherit: Setting::new(Inherit::On) }
    }
}

impl Merge for Additions {
    fn merge(&mut self, parent: &Self) {
        let Self { lines, inherit } = self;
        inherit.merge(&parent.inherit);
        match **inherit {
            Inherit::Off => {}
            _ if lines.is_empty() => lines.clone_from(&parent.lines),
            Inherit::On => {}
            Inherit::Merge => Arc::make_mut(lines).extend_from_slice(&parent.lines),
        }
    }
}

impl Additions {
    fn add(&mut self, line: Header) {
        Arc::make_mut(&mut self.lines).push(line);
    }

    fn read_inherit(&mut self, directive: &Directive) -> Result<(), Error> {
        const WORDS: [(&str, Inherit); 3] =
            [("off", Inherit::Off), ("on", Inherit::On), ("merge", Inherit::Merge)];
        set(directive, &mut self.inherit, |directive| directive.choice(0, &WORDS))
    }

    /// The headers for responses with a status.
    fn of(&self, status: u16) -> impl Iterator<Item = &Header> {
        let is_safe = is_safe(status);
        self.lines.iter().filter(move |line| is_safe || line.when == When::Always)
    }
}

/// Codes of success and redirection.
fn is_safe(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301 | 302 | 303 | 304 | 307 | 308)
}

fn read_header(load: &mut Load, directive: &Directive) -> Result<Header, Error> {
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
    let value = load.variables.compile(value, &directive.pos)?;
    let when = match rest {
        [] => When::Safe,
        [always] if printed(always) == b"always" => When::Always,
        [other, ..] => return Err(directive.error(message(&[&"invalid parameter \"", other, &"\""]))),
    };
    Ok(Header { name: name.clone(), value, effect, when })
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
    !conf.headers.lines.is_empty() || !conf.trailers.lines.is_empty() || conf.expires.is_some()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    if !filtering.request.is_main() {
        return None;
    }
    let conf = filtering.request.conf(&HEADERS_CONF);
    let status = filtering.head().status;
    if is_safe(status)
        && let Some(expires) = &*conf.expires
    {
        expires.apply(filtering);
    }
    for header in conf.headers.of(status) {
        let value = header.value.eval(&filtering.view());
        apply(filtering.head(), header, value);
    }
    if conf.trailers.of(status).next().is_some() {
        filtering.expect_trailers(trailer);
    }
    None
}

fn trailer<'c>(view: &View<'_, 'c>, nth: usize) -> Option<(&'c [u8], Text<'c>)> {
    let trailer = view.request.conf(&HEADERS_CONF).trailers.of(view.status()).nth(nth)?;
    Some((&trailer.name, trailer.value.eval(view)))
}

fn apply<'c>(head: &mut ResponseHead<'c>, header: &Header, value: Text<'c>) {
    match header.effect {
        Effect::Add => {}
        Effect::LastModified => {
            // What is in the list is sent as it is; the date is for what depends on it.
            head.last_modified = date::parse_http_date(&value);
            head.headers.remove(HeaderName::new(&header.name));
        }
        Effect::ETag => {
            head.etag = Some(value).filter(|value| !value.is_empty());
            return;
        }
    }
    if !value.is_empty() {
        head.headers.add(&header.name, &value);
    }
}
