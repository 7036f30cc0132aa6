//! All that the server counts: what the process counts in one table here, behind it what each module
//! declares. It is what `status` shows, and the reference. Numbers are the process's, whichever
//! configuration is in use, as those of nginx are; what belongs to a listener or a pool is there as long as
//! that is. Read on loops; what a worker runs with is published to it by its main thread.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use clearway_cache::disks::{Caches, metrics as caches};
use clearway_http::Module;
use clearway_metrics::{
    Asking, BUCKETS, Counter, Family, Kind, Label, Labels, Metric, MetricSource, Next, Put, Value, bound_us,
};
use clearway_offload::{Pool, PoolStats, files, metrics as offload};
use clearway_proxy::upstreams::{Lasting, metrics as upstreams};
use clearway_runtime::{LoopRef, Runtime, metrics as runtime};

use crate::modules::MODULES;

/// The metric reference as Markdown.
///
/// # Panics
/// Never: writing to memory does not fail.
#[must_use]
pub fn reference() -> String {
    let mut text = REFERENCE_HEAD.to_owned();
    let bounds: Vec<String> = (0..6).filter_map(bound_us).map(|us| us.to_string()).collect();
    let last_s = bound_us(BUCKETS - 2).unwrap_or_default() / 1_000_000;
    let bounds = bounds.join(", ");
    write!(
        text,
        "\n{BUCKETS} buckets, the same for every histogram: up to {bounds} microseconds and so on,\n\
         two for each power of two, up to {last_s} s, and one for what is longer. The text for Prometheus\n\
         shows one for each power of two, as `le` in seconds, JSON those that are not empty.\n"
    )
    .expect("writing to a String does not fail");
    for group in GROUPS {
        write!(text, "\n## {}\n", group.title).expect("writing to a String does not fail");
        for entry in group.entries {
            entry.families().for_each(|family| write_family(&mut text, family));
        }
    }
    for module in counting_modules() {
        write!(text, "\n## Module `{}`\n", module.name).expect("writing to a String does not fail");
        module.metrics.iter().for_each(|metric| write_family(&mut text, metric.family()));
    }
    text
}

const REFERENCE_HEAD: &str = "# Metrics\n
Generated from the declarations by `cargo xtask docs`; do not edit.\n
A location with `status` shows all of these, for Prometheus or as JSON; `stub_status` shows a few in nginx's
form. All names begin with `clearway_`. Counters and histograms begin at 0 when the worker process starts,
and reloads leave them alone; a reload that changes what a process cannot change about itself (`user`,
`worker_processes`, `working_directory` and the like) starts a new one.

    location = /metrics { status; allow 127.0.0.1; deny all; }

Nothing of this costs a clock or a lock where requests are served. `rate()` of a counter is events per
second; `histogram_quantile()` works on all histograms.

## Histograms
";

/// Rows of a table: what these groups and these modules count.
pub(crate) fn rows(groups: &[&str], modules: &[&'static Module]) -> Vec<String> {
    let of_groups = GROUPS.iter().filter(|group| groups.contains(&group.title));
    let of_groups = of_groups.flat_map(|group| group.entries).flat_map(Entry::families);
    let of_modules = modules.iter().flat_map(|module| module.metrics).map(|metric| metric.family());
    of_groups.chain(of_modules).map(row).collect()
}

fn row(family: &'static Family) -> String {
    let Family { kind, name, unit, help, labels, together: _ } = family;
    let labels = labels.iter().map(|Label { name, help }| format!(" `{name}`: {help}"));
    let help = format!("{help}{}", labels.collect::<String>()).replace('|', "\\|");
    format!("| `clearway_{name}` | {}, in {unit} | {help} |", kind.as_str())
}

fn write_family(text: &mut String, family: &Family) {
    let Family { kind, name, unit, help, labels, together: _ } = family;
    let kind = kind.as_str();
    write!(text, "\n### clearway_{name}\n\n{kind}, in {unit}. {help}\n")
        .expect("writing to a String does not fail");
    for (at, Label { name, help }) in labels.iter().enumerate() {
        let gap = if at == 0 { "\n" } else { "" };
        writeln!(text, "{gap}* `{name}`: {help}").expect("writing to a String does not fail");
    }
}

/// A part of the reference: a title and its metrics.
pub(crate) struct Group {
    pub(crate) title: &'static str,
    pub(crate) entries: &'static [Entry],
}

/// Metrics and how they are read.
pub(crate) enum Entry {
    /// Counters of a crate.
    Counters(&'static [&'static Counter]),
    /// All values of a metric, which are not many.
    Whole(&'static Family, fn(&Running, &mut Put<'_>)),
    /// The values of each loop.
    PerLoop(&'static Family, fn(LoopRef, &mut Put<'_>)),
    /// The values of each pool.
    PerPool(&'static Family, fn(&Pool, &mut Put<'_>)),
}

impl Entry {
    fn families(&self) -> impl Iterator<Item = &'static Family> {
        let (counters, family) = match *self {
            Self::Counters(counters) => (counters, None),
            Self::Whole(family, _) | Self::PerLoop(family, _) | Self::PerPool(family, _) => {
                (Default::default(), Some(family))
            }
        };
        counters.iter().map(|counter| &counter.family).chain(family)
    }
}

/// The modules that count something, in their order; the engine's own part comes first.
fn counting_modules() -> Vec<&'static Module> {
    let modules = clearway_http::all_modules(MODULES).into_iter();
    modules.filter(|module| !module.metrics.is_empty()).collect()
}

/// The metrics of the process, in the order in which they are shown.
pub(crate) static GROUPS: &[Group] = &[
    Group {
        title: "The process",
        entries: &[
            Entry::Whole(&BUILD, |_, put| put(&[("version", env!("CARGO_PKG_VERSION"))], Value::Number(1))),
            Entry::Whole(&STARTED, |running, put| put(&[], Value::Milliseconds(running.started_ms))),
            Entry::Whole(&GENERATION, |running, put| put(&[], Value::Number(running.generation))),
            Entry::Whole(&LOADED, |running, put| put(&[], Value::Milliseconds(running.loaded_ms))),
        ],
    },
    Group {
        title: "Connections",
        entries: &[
            Entry::Counters(clearway_net::metrics::ALL),
            Entry::Counters(clearway_serve::metrics::ALL),
            Entry::Whole(&ACCEPTS, |running, put| running.put_accepts(put)),
        ],
    },
    Group {
        title: "Upstream servers",
        entries: &[
            Entry::Whole(&upstreams::ATTEMPTS, |running, put| running.lasting().put_attempts(put)),
            Entry::Whole(&upstreams::CONNECTIONS, |running, put| running.lasting().put_connections(put)),
            Entry::Whole(&upstreams::IDLE, |running, put| running.lasting().put_idle(put)),
            Entry::Whole(&upstreams::CLOSED, |running, put| running.lasting().put_closed(put)),
            Entry::Whole(&upstreams::ACTIVE, |running, put| running.lasting().put_active(put)),
            Entry::Whole(&upstreams::FAILS, |running, put| running.lasting().put_fails(put)),
            Entry::Whole(&upstreams::EJECTED, |running, put| running.lasting().put_ejected(put)),
            Entry::Whole(&upstreams::EJECTIONS, |running, put| running.lasting().put_ejections(put)),
            Entry::Whole(&upstreams::UNHEALTHY, |running, put| running.lasting().put_unhealthy(put)),
            Entry::Whole(&upstreams::CHECKS, |running, put| running.lasting().put_checks(put)),
            Entry::Whole(&upstreams::WEIGHT, |running, put| running.lasting().put_weights(put)),
            Entry::Whole(&upstreams::STATES, |running, put| running.put_upstream_states(put)),
            Entry::Whole(&upstreams::QUEUED, |running, put| running.lasting().put_queued(put)),
            Entry::Whole(&upstreams::QUEUES, |running, put| running.lasting().put_queues(put)),
            Entry::Counters(upstreams::COUNTERS),
            Entry::Counters(clearway_resolver::metrics::ALL),
        ],
    },
    Group {
        title: "Caches",
        entries: &[
            Entry::Whole(&caches::BYTES, |running, put| running.caches().put_bytes(put)),
            Entry::Whole(&caches::OBJECTS, |running, put| running.caches().put_objects(put)),
            Entry::Whole(&caches::DISKS_OUT, |running, put| running.caches().put_disks_out(put)),
            Entry::Counters(caches::ALL),
        ],
    },
    Group {
        title: "Loops and hand-over",
        entries: &[
            Entry::PerLoop(&runtime::LAG, |l, put| {
                put(&[("loop", &l.index().to_string())], Value::Durations(&l.counted().lag));
            }),
            Entry::PerLoop(&runtime::POLLS, |l, put| {
                put(&[("loop", &l.index().to_string())], Value::Number(l.counted().polls));
            }),
            Entry::PerLoop(&runtime::HANDOVERS, |l, put| {
                put(&[("loop", &l.index().to_string())], Value::Number(l.counted().handovers));
            }),
            Entry::Counters(runtime::ALL),
            Entry::Counters(clearway_watchdog::metrics::ALL),
        ],
    },
    Group {
        title: "Thread pools and files",
        entries: &[
            Entry::PerPool(&offload::POOL_QUEUE_WAIT, |pool, put| {
                put_pool(pool, put, |stats| Value::Durations(&stats.queue_wait));
            }),
            Entry::PerPool(&offload::POOL_SERVICE, |pool, put| {
                put_pool(pool, put, |stats| Value::Durations(&stats.service));
            }),
            Entry::PerPool(&offload::POOL_OVERFLOWS, |pool, put| {
                put_pool(pool, put, |stats| Value::Number(stats.overflows));
            }),
            Entry::PerPool(&offload::POOL_HELD, |pool, put| {
                put_pool(pool, put, |stats| Value::Number(stats.held));
            }),
            Entry::PerPool(&offload::POOL_PENDING, |pool, put| {
                put_pool(pool, put, |stats| Value::Number(stats.pending as u64));
            }),
            Entry::PerPool(&offload::POOL_THREADS, |pool, put| {
                put_pool(pool, put, |stats| Value::Number(stats.threads.into()));
            }),
            Entry::Counters(offload::ALL),
            Entry::Whole(&files::OPERATIONS_TOTAL, |_, put| files::put_operations(put)),
            Entry::Whole(&files::WRONG_GUESSES_TOTAL, |_, put| files::put_wrong_guesses(put)),
        ],
    },
    Group {
        title: "Logs",
        entries: &[Entry::Counters(&[&clearway_log::LINES_LOST, &clearway_log::LINES_UNWRITTEN])],
    },
];

static BUILD: Family =
    Family::new(Kind::Gauge, "build_info", "servers", "Always 1; the version is in its label.")
        .by(&[Label { name: "version", help: "Version of the server." }])
        .alike();

static STARTED: Family = Family::new(
    Kind::Gauge,
    "start_time_seconds",
    "seconds",
    "When the worker process started, since 1970. All counters begin at 0 then; reloads keep them, unless \
     what they change takes a new process (`user`, `worker_processes` and the like).",
)
.alike();

static GENERATION: Family = Family::new(
    Kind::Gauge,
    "config_generation",
    "configurations",
    "Which of its master's configurations the worker runs; grows by one or more with each reload.",
)
.alike();

static LOADED: Family = Family::new(
    Kind::Gauge,
    "config_load_time_seconds",
    "seconds",
    "When that configuration was put in use, since 1970.",
)
.alike();

static ACCEPTS: Family = Family::new(
    Kind::Counter,
    "accepts_total",
    "connections",
    "Connections that a loop took from a listening socket and that there was room for, whichever loop \
     serves them. Gone with the listener.",
)
.by(&[
    Label { name: "listener", help: "Address of the listening socket." },
    Label { name: "loop", help: "Which event loop, from 0." },
]);

/// The connections that were accepted from one listener, by loops.
#[derive(Debug)]
pub(crate) struct AcceptTally {
    address: String,
    loops: Box<[Accepts]>,
}

/// The accepts of one loop.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Accepts(AtomicU64);

impl AcceptTally {
    /// The metrics of the listener on `address`, for so many loops.
    pub(crate) fn new(address: &str, loops: usize) -> Arc<Self> {
        let loops = (0..loops).map(|_| Accepts::default()).collect();
        Arc::new(Self { address: address.to_owned(), loops })
    }

    /// Whether loop `index` is one of those that are counted.
    pub(crate) fn has_loop(&self, index: usize) -> bool {
        index < self.loops.len()
    }
    /// Counts a connection that loop `index` has accepted.
    pub(crate) fn count(&self, index: usize) {
        self.loops[index].0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The parts of the running worker.
#[derive(Default)]
pub(crate) struct Running {
    pub(crate) runtime: Option<Runtime>,
    pub(crate) pools: Vec<Arc<Pool>>,
    pub(crate) listeners: Vec<Arc<AcceptTally>>,
    pub(crate) lasting: Option<Arc<Lasting>>,
    pub(crate) caches: Option<Arc<Caches>>,
    pub(crate) generation: u64,
    /// Since 1970.
    pub(crate) loaded_ms: u64,
    /// Since 1970.
    pub(crate) started_ms: u64,
}

impl Running {
    fn put_accepts(&self, put: &mut Put<'_>) {
        for listener in &self.listeners {
            for (index, accepts) in listener.loops.iter().enumerate() {
                let labels = [("listener", listener.address.as_str()), ("loop", &index.to_string())];
                put(&labels, Value::Number(accepts.0.load(Ordering::Relaxed)));
            }
        }
    }

    fn lasting(&self) -> Arc<Lasting> {
        self.lasting.clone().unwrap_or_default()
    }

    /// By the clock of a loop, as servers are looked at.
    fn put_upstream_states(&self, put: &mut Put<'_>) {
        let now_ms = self.runtime.map_or(0, |runtime| runtime.at(0).now_ms());
        self.lasting().put_states(put, now_ms / 1000);
    }

    fn caches(&self) -> Arc<Caches> {
        self.caches.clone().unwrap_or_default()
    }

    fn loops(&self) -> usize {
        self.runtime.map_or(0, Runtime::len)
    }
}

fn put_pool(pool: &Pool, put: &mut Put<'_>, value: impl Fn(&PoolStats) -> Value<'_>) {
    put(&[("pool", pool.name())], value(&pool.stats()));
}

/// One metric.
#[derive(Clone, Copy)]
enum Shown {
    /// A metric that does not depend on the kind of process.
    Plain(Metric),
    Entry(&'static Entry),
}

/// The handler that writes the metrics.
struct Status {
    running: ArcSwap<Running>,
    families: Vec<&'static Family>,
    /// The metrics of `families`.
    metrics: Vec<Shown>,
}

static STATUS: LazyLock<Arc<Status>> = LazyLock::new(|| {
    let (mut families, mut metrics): (Vec<&'static Family>, _) = (Vec::new(), Vec::new());
    for entry in GROUPS.iter().flat_map(|group| group.entries) {
        families.extend(entry.families());
        match entry {
            Entry::Counters(counters) => {
                metrics.extend(counters.iter().map(|counter| Shown::Plain(Metric::Counter(counter))));
            }
            _ => metrics.push(Shown::Entry(entry)),
        }
    }
    for metric in counting_modules().into_iter().flat_map(|module| module.metrics) {
        families.push(metric.family());
        metrics.push(Shown::Plain(*metric));
    }
    assert_eq!(families.len(), metrics.len(), "each family has what reads it");
    debug_assert!(
        families
            .iter()
            .enumerate()
            .all(|(at, one)| families[..at].iter().all(|other| other.name != one.name)),
        "a name stands for one family"
    );
    Arc::new(Status { running: ArcSwap::default(), families, metrics })
});

/// All metrics of this process.
pub(crate) fn source() -> Arc<dyn MetricSource> {
    Arc::clone(&STATUS) as _
}

/// The metrics of this process.
pub(crate) fn families() -> &'static [&'static Family] {
    &STATUS.families
}

/// The number of the first loop of this process among those of all (`worker_groups`).
static FIRST_LOOP: AtomicUsize = AtomicUsize::new(0);

/// Loops are numbered from here on.
pub(crate) fn number_loops_from(first: usize) {
    FIRST_LOOP.store(first, Ordering::Relaxed);
}

/// Gives a value whose loop is counted from `first` on.
fn put_numbered(first: usize, labels: &Labels<'_>, value: Value<'_>, put: &mut Put<'_>) {
    let number = labels.iter().find(|(name, _)| *name == "loop").and_then(|(_, text)| text.parse().ok());
    let text = number.map_or_else(String::new, |number: usize| (first + number).to_string());
    let numbered: Vec<(&str, &str)> =
        labels.iter().map(|&(name, value)| (name, if name == "loop" { &*text } else { value })).collect();
    put(&numbered, value);
}

/// From now on these loops, pools and listeners are shown.
pub(crate) fn publish(running: Running) {
    STATUS.running.store(Arc::new(running));
}

/// The names of members beside metrics.
pub(crate) const SECTIONS: &[&str] = &["stalls"];

impl MetricSource for Status {
    fn ask(&self) -> Option<Box<dyn Asking>> {
        crate::board::ask()
    }

    fn families(&self) -> &[&'static Family] {
        &self.families
    }

    fn read(&self, at: usize, part: usize, put: &mut Put<'_>) -> Next {
        debug_assert!(at < self.metrics.len(), "what is asked for is one of the families");
        let running = self.running.load();
        let (count, put_part): (usize, &dyn Fn(&mut Put<'_>)) = match &self.metrics[at] {
            Shown::Plain(Metric::Counter(counter)) => (1, &|put| put(&[], Value::Number(counter.value()))),
            Shown::Plain(Metric::Values(_, read)) => (1, &|put| read(put)),
            Shown::Entry(Entry::Counters(_)) => (0, &|_| ()),
            Shown::Entry(Entry::Whole(_, read)) => (1, &|put| read(&running, put)),
            Shown::Entry(Entry::PerLoop(_, read)) => (running.loops(), &|put| {
                running.runtime.iter().for_each(|runtime| read(runtime.at(part), put))
            }),
            Shown::Entry(Entry::PerPool(_, read)) => {
                (running.pools.len(), &|put| read(&running.pools[part], put))
            }
        };
        // The configuration may have changed between two parts.
        if part < count {
            let first = FIRST_LOOP.load(Ordering::Relaxed);
            match first > 0 && self.families[at].labels.iter().any(|label| label.name == "loop") {
                true => put_part(&mut |labels, value| put_numbered(first, labels, value, put)),
                false => put_part(put),
            }
        }
        if part + 1 < count { Next::More } else { Next::Over }
    }

    fn sections(&self) -> &[&'static str] {
        SECTIONS
    }

    /// The stall reports: some ten of them, of a few thousand bytes each, are written at once.
    fn write_section(&self, _: usize, _: usize, out: &mut Vec<u8>) -> Next {
        let mut text = String::new();
        clearway_watchdog::status().put_json(&mut text);
        out.append(&mut text.into_bytes());
        Next::Over
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_as_prometheus_wants_them() {
        let mut names = BTreeSet::new();
        for family in source().families() {
            let name = family.name;
            assert!(names.insert(name), "{name} stands twice");
            assert!(name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')), "{name}");
            assert_eq!(name.ends_with("_total"), family.kind == Kind::Counter, "{name}");
            let is_time = name.ends_with("_seconds");
            assert_eq!(is_time, family.unit == "seconds", "{name} is in {}", family.unit);
            assert!(family.kind != Kind::Histogram || is_time, "{name}");
            assert!(family.help.ends_with('.') && !family.unit.is_empty(), "{name} is not explained");
        }
    }

    #[test]
    fn what_modules_count_is_in_the_reference() {
        let text = reference();
        for metric in counting_modules().into_iter().flat_map(|module| module.metrics) {
            assert!(text.contains(&format!("### clearway_{}\n", metric.family().name)));
        }
        assert!(text.contains("\n## Module `limit_req`\n\n### clearway_limit_req_passed_total\n"));
    }

    #[test]
    fn values_have_the_labels_that_are_declared() {
        let tally = AcceptTally::new("127.0.0.1:80", 2);
        tally.count(1);
        let running = Running { listeners: vec![tally], ..Running::default() };
        let mut values = Vec::new();
        running.put_accepts(&mut |labels, value| {
            let names: Vec<&str> = labels.iter().map(|label| label.0).collect();
            assert_eq!(names, ACCEPTS.labels.iter().map(|label| label.name).collect::<Vec<_>>());
            values.push(format!("{labels:?} {value:?}"));
        });
        let wanted = ["0\")] Number(0)", "1\")] Number(1)"];
        assert!(values.iter().zip(wanted).all(|(value, end)| value.ends_with(end)), "{values:?}");
    }
}
