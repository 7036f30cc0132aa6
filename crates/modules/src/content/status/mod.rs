//! `status`: all that the server counts, for Prometheus or as JSON. What is read is in memory and written by
//! nobody else meanwhile but by additions, so nothing waits; a page that is long is written in slices, and
//! others of the loop run in between. Runs on a loop.

mod json;
mod prometheus;

use std::borrow::Cow;
use std::sync::Arc;

use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    Answer, Answers, Chunk, ConfKey, Cost, Exchange, GROUP_EDITING, Level, Load, Mark, Module, Phase,
    PhaseHandler, Request, Step, context,
};
use clearway_message::{Known, Method};
use clearway_metrics::{Asking, MetricSource, Next};

/// The module. It wants what is known among the services of the environment, as `Arc<dyn MetricSource>`. Its
/// locations are answered before files are looked for, so it comes before `index`.
pub static STATUS: Module = Module {
    name: "status",
    directives: DIRECTIVES,
    confs: &[&STATUS_CONF],
    phases: PHASES,
    ..Module::EMPTY
};

/// The beginning of all names of metrics.
pub const PREFIX: &str = "clearway_";

/// How much of a page is written before others of the loop run, bytes: some hundred values, which take
/// about 100 microseconds.
const SLICE_BYTES: usize = 16 * 1024;

/// How often it is looked whether other processes have answered, and how often at most: for half a second.
const LOOK_MS: u64 = 1;
const LOOKS_MAX: u32 = 500;

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "status",
    contexts: context::LOCATION,
    args: Args::NOARGS.or(Args::TAKE12),
    syntax: "status [auto | prometheus | json] [write=on | off]",
    default: "",
    doc: "Own directive. Answers every GET with all that the server counts (`docs/metrics.md`): in the \
          text format of Prometheus, version 0.0.4, or as JSON, which also has the latest reports about \
          blocked loops. With `auto`, the default, it is JSON where the path ends in `.json` or `Accept` \
          names `application/json`. Close it with `allow` and `deny`.\n\nWith `write=on` paths below the \
          location that have `upstreams` in them are about groups of servers, in the words of the \
          commercial nginx and as JSON: GET of `upstreams/` and `upstreams/NAME` shows how their servers \
          fare, GET of `upstreams/NAME/servers/` and `…/servers/ID` what is said of them. POST to \
          `upstreams/NAME/servers/` adds one, PATCH of `…/servers/ID` changes it (`weight`, `max_conns`, \
          `max_fails`, `fail_timeout`, `slow_start`, `route`, `down`, `drain`), DELETE removes it: of \
          groups with a `zone`, and for clients of unix sockets alone. Changes outlive reloads and \
          workers, unless the group's `server` lines have changed; with `state` also the server. New \
          servers are addresses; a body has 16 KiB at most, a group 1,024 servers.",
    example: "
        location = /metrics {
            status;
            allow 127.0.0.1;
            deny all;
        }
        location /status/ {
            status write=on;
            allow unix:;
            deny all;
        }",
    see: &["stub_status", "state", "zone", "upstream"],
    handler: read,
}];

static PHASES: &[PhaseHandler] = &[PhaseHandler {
    phase: Phase::Content,
    cost: Cost::Cheap,
    enabled: |enabling| enabling.confs.of(&STATUS_CONF).is_some(),
    handler,
}];

/// The sections to show, and their source.
type Shown = (Wanted, Arc<dyn MetricSource>);

static STATUS_CONF: ConfKey<Answers<Option<Shown>>> = ConfKey::new(Level::Location);

/// The argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    /// As the client says.
    Auto,
    Always(Form),
}

/// How the page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Prometheus,
    Json,
}

fn read(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    const WORDS: [(&str, Wanted); 3] = [
        ("auto", Wanted::Auto),
        ("prometheus", Wanted::Always(Form::Prometheus)),
        ("json", Wanted::Always(Form::Json)),
    ];
    let (mut wanted, mut writes) = (Wanted::Auto, false);
    for (argument, at) in directive.args.iter().zip(0..) {
        match &argument[..] {
            b"write=on" => writes = true,
            b"write=off" => writes = false,
            _ => wanted = directive.choice(at, &WORDS)?,
        }
    }
    if scope.conf.location(&STATUS_CONF).is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let source = scope.conf.environment().services.find::<Arc<dyn MetricSource>>().cloned();
    let source = source.ok_or_else(|| directive.error("nothing is counted"))?;
    scope.conf.location(&STATUS_CONF).set(Some((wanted, source)));
    scope.conf.location(&GROUP_EDITING).set(writes);
    Ok(())
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let Some((wanted, source)) = &**exchange.request.conf(&STATUS_CONF) else { return Step::Declined };
    if !matches!(exchange.request.method(), Method::Get | Method::Head) {
        return Step::status(405);
    }
    if let Err(answer) = exchange.discard_body() {
        return Step::Respond(answer);
    }
    let form = match *wanted {
        Wanted::Always(form) => form,
        Wanted::Auto => preferred(exchange.request, &exchange),
    };
    Step::Wait(Box::pin(async move {
        let page = match source.ask() {
            None => write_page(source.as_ref(), form).await,
            Some(asking) => {
                if let Err(answer) = wait_for(&mut exchange, &*asking).await {
                    return Step::Respond(answer);
                }
                write_page(&*asking.together(), form).await
            }
        };
        let head = exchange.output.head();
        head.status = 200;
        head.content_length = Some(page.len() as u64);
        head.content_type = Some(Cow::Borrowed(match form {
            Form::Prometheus => b"text/plain; version=0.0.4; charset=utf-8",
            Form::Json => b"application/json",
        }));
        // This chunk is the whole body, so that nothing has to wait for room.
        let _ = exchange.output.write(exchange.request, Chunk::Owned(page), Mark::Last);
        Step::Done
    }))
}

/// Waits until other processes have answered, but not for long.
pub(crate) async fn wait_for(exchange: &mut Exchange<'_, '_>, asking: &dyn Asking) -> Result<(), Answer> {
    for _ in 0..LOOKS_MAX {
        if asking.is_answered() {
            break;
        }
        exchange.pause(LOOK_MS).await?;
    }
    Ok(())
}

/// The form that a client seems to want.
fn preferred(request: &Request<'_>, exchange: &Exchange<'_, '_>) -> Form {
    let mut accept = Vec::new();
    exchange.view().append_header(Known::Accept, &mut accept);
    let names_json = accept.windows(JSON_TYPE.len()).any(|part| part.eq_ignore_ascii_case(JSON_TYPE));
    if names_json || request.exten().eq_ignore_ascii_case(b"json") { Form::Json } else { Form::Prometheus }
}

const JSON_TYPE: &[u8] = b"application/json";

/// Writes the page, slice by slice.
async fn write_page(source: &dyn MetricSource, form: Form) -> Vec<u8> {
    let mut page = Page { form, out: Vec::with_capacity(2 * SLICE_BYTES), slice_end: SLICE_BYTES };
    page.begin();
    for (at, family) in source.families().iter().enumerate() {
        page.begin_metric(family);
        for part in 0.. {
            let next = source.read(at, part, &mut |labels, value| match form {
                Form::Prometheus => prometheus::write_value(&mut page.out, family, labels, value),
                Form::Json => json::write_value(&mut page.out, labels, value),
            });
            page.rest().await;
            if next == Next::Over {
                break;
            }
        }
        page.end_metric();
    }
    page.end_metrics();
    let sections = if form == Form::Json { source.sections() } else { &[] };
    for (at, name) in sections.iter().enumerate() {
        json::begin_section(&mut page.out, name);
        for part in 0.. {
            let next = source.write_section(at, part, &mut page.out);
            page.rest().await;
            if next == Next::Over {
                break;
            }
        }
    }
    page.end();
    page.out
}

/// A page that is written.
struct Page {
    form: Form,
    out: Vec<u8>,
    /// The index at which the loop lets others run.
    slice_end: usize,
}

impl Page {
    fn begin(&mut self) {
        if self.form == Form::Json {
            json::begin(&mut self.out);
        }
    }

    fn begin_metric(&mut self, family: &clearway_metrics::Family) {
        match self.form {
            Form::Prometheus => prometheus::begin_metric(&mut self.out, family),
            Form::Json => json::begin_metric(&mut self.out, family),
        }
    }

    fn end_metric(&mut self) {
        if self.form == Form::Json {
            json::end_metric(&mut self.out);
        }
    }

    fn end_metrics(&mut self) {
        if self.form == Form::Json {
            json::end_metrics(&mut self.out);
        }
    }

    fn end(&mut self) {
        if self.form == Form::Json {
            json::end(&mut self.out);
        }
    }

    /// Lets others of the loop run if a slice is complete.
    async fn rest(&mut self) {
        if self.out.len() >= self.slice_end {
            self.slice_end = self.out.len() + SLICE_BYTES;
            clearway_runtime::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_metrics::{Durations, Family, Kind, Label, Put, Value};
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    static TIMES: Family = Family::new(Kind::Histogram, "times_seconds", "seconds", "Times.")
        .by(&[Label { name: "part", help: "Which." }]);
    static ONE: Family = Family::new(Kind::Gauge, "one", "things", "One.");

    /// Many histograms, then a number.
    struct Many(usize);

    impl MetricSource for Many {
        fn families(&self) -> &[&'static Family] {
            static FAMILIES: [&Family; 2] = [&TIMES, &ONE];
            &FAMILIES
        }

        fn read(&self, at: usize, part: usize, put: &mut Put<'_>) -> Next {
            if at == 1 {
                put(&[], Value::Number(1));
                return Next::Over;
            }
            put(&[("part", &part.to_string())], Value::Durations(&Durations::default()));
            if part + 1 < self.0 { Next::More } else { Next::Over }
        }

        fn sections(&self) -> &[&'static str] {
            &["letters"]
        }

        fn write_section(&self, _: usize, part: usize, out: &mut Vec<u8>) -> Next {
            out.extend_from_slice([&b"\"a"[..], b"b", b"c\""][part]);
            if part < 2 { Next::More } else { Next::Over }
        }
    }

    /// The page, and how often others could run.
    fn write(source: &Many, form: Form) -> (String, usize) {
        let mut page = pin!(write_page(source, form));
        let mut rests = 0;
        loop {
            match page.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(page) => return (String::from_utf8(page).unwrap(), rests),
                Poll::Pending => rests += 1,
            }
        }
    }

    #[test]
    fn a_long_page_is_written_in_slices() {
        let (page, rests) = write(&Many(100), Form::Prometheus);
        assert_eq!(page.matches("_count{").count(), 100);
        let part_bytes = page.len() / 100;
        let slices = page.len() / (SLICE_BYTES + part_bytes);
        assert!(
            (slices..=page.len() / SLICE_BYTES).contains(&rests),
            "{rests} rests in {} bytes",
            page.len()
        );
        assert!(page.ends_with("clearway_one 1\n"));
        assert_eq!(write(&Many(1), Form::Prometheus).1, 0, "a short one is written at once");
    }

    #[test]
    fn sections_are_in_json_only() {
        let (page, _) = write(&Many(1), Form::Json);
        assert!(page.ends_with("\"values\":[{\"value\":1}]}},\n\"letters\":\"abc\"}\n"), "{page}");
        assert!(!write(&Many(1), Form::Prometheus).0.contains("letters"));
    }
}
