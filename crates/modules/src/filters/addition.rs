//! `add_before_body` and `add_after_body`: what subrequests answer, around the body of a response. A filter;
//! the subrequests run when the response is flushed.

use bytes::Bytes;
use clearway_conf::{Args, Directive, Error, Spec};
use clearway_http::{
    BodyFilter, Chunk, ConfKey, Enabling, FilterSpec, Filtering, Input, Level, Load, Mark, Module, Next,
    Ranges, Setting, Subrequest, context, settings,
};

use crate::filters::type_set::TypeSet;

/// The module. What it adds stands before bodies are recoded.
pub static ADDITION: Module = Module {
    name: "addition",
    directives: DIRECTIVES,
    confs: &[&ADDITION_CONF],
    filters: &[FilterSpec { enabled: is_enabled, filter }],
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "add_before_body",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "add_before_body URI",
        default: "",
        doc: "Puts what the URI answers before the body of a response with the code 200. An empty one adds \
              nothing, where an enclosing level does.",
        example: EXAMPLE_OF_AROUND,
        see: &["add_after_body", "addition_types", "ssi", "sub_filter"],
        handler: |scope, directive| read_uri(directive, &mut scope.conf.location(&ADDITION_CONF).before),
    },
    Spec {
        name: "add_after_body",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "add_after_body URI",
        default: "",
        doc: "Puts what the URI answers behind the body of a response with the code 200.",
        example: EXAMPLE_OF_AROUND,
        see: &["add_before_body", "addition_types", "ssi", "sub_filter"],
        handler: |scope, directive| read_uri(directive, &mut scope.conf.location(&ADDITION_CONF).after),
    },
    Spec {
        name: "addition_types",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "addition_types TYPE … | *",
        default: "addition_types text/html;",
        doc: "Types of the responses that something is added to, besides `text/html`; `*` is all.",
        example: EXAMPLE_OF_AROUND,
        see: &["add_before_body", "add_after_body", "ssi", "sub_filter"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&ADDITION_CONF).types;
            for warning in TypeSet::read(directive, setting, DEFAULT_TYPE) {
                scope.warn(warning);
            }
            Ok(())
        },
    },
];

/// The example of `add_before_body`, `add_after_body` and `addition_types`.
const EXAMPLE_OF_AROUND: &str = "
    location / {
        add_before_body /parts/top.html;
        add_after_body /parts/bottom.html;
        addition_types application/xhtml+xml;
    }";

const DEFAULT_TYPE: &str = "text/html";

static ADDITION_CONF: ConfKey<AdditionConf> = ConfKey::new(Level::Location);

settings! {
    struct AdditionConf {
        before: Setting<Bytes>,
        after: Setting<Bytes>,
        types: Setting<TypeSet> = TypeSet::of(&[DEFAULT_TYPE]),
    }
}

fn read_uri(directive: &Directive, setting: &mut Setting<Bytes>) -> Result<(), Error> {
    if setting.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    setting.set(directive.args[0].clone());
    Ok(())
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    let conf = enabling.confs.of(&ADDITION_CONF);
    !conf.before.is_empty() || !conf.after.is_empty()
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let conf = request.conf(&ADDITION_CONF);
    let head = filtering.head();
    let is_of_type = head.content_type.as_deref().is_some_and(|name| conf.types.contains(name));
    if head.status != 200 || !request.is_main() || !is_of_type {
        return None;
    }
    head.content_length = None;
    head.ranges = Ranges::Refused;
    head.weaken_etag();
    let uri = |setting: &'c Setting<Bytes>| Some(&**setting).filter(|uri| !uri.is_empty());
    Some(Box::new(Addition { before: uri(&conf.before), after: uri(&conf.after) }))
}

/// The text that is still to be added.
struct Addition<'a> {
    before: Option<&'a Bytes>,
    after: Option<&'a Bytes>,
}

impl BodyFilter for Addition<'_> {
    fn input(&self) -> Input {
        Input::Anything
    }

    fn push<'c>(&mut self, chunk: Chunk<'c>, mark: Mark, next: &mut Next<'_, 'c>) {
        if let Some(uri) = self.before.take() {
            add(uri, next);
        }
        match self.after.take_if(|_| mark == Mark::Last) {
            None => next.push(chunk, mark),
            Some(uri) => {
                next.push(chunk, Mark::More);
                add(uri, next);
                next.push(Chunk::EMPTY, Mark::Last);
            }
        }
    }
}

fn add(uri: &Bytes, next: &mut Next<'_, '_>) {
    let wanted = Subrequest::in_order(uri.to_vec(), Vec::new());
    if next.subrequest(wanted).is_err() {
        next.terminate();
    }
}
