//! `gzip` and its kin: responses compressed on their way out. Here the directives, the header filter and
//! `$gzip_ratio`; `acceptance` says which clients get compressed responses, `deflate` makes them, `again`
//! keeps those that are sent again and again.

pub mod acceptance;
mod again;
mod deflate;
pub(crate) mod stock;

use std::borrow::Cow;
use std::fmt::Write as _;

use clearway_conf::{Args, Contexts, Scope, Spec};
use clearway_http::{
    BodyFilter, Compression, ConfKey, FilterSpec, Filtering, Level, Load, Module, Presence, Ranges, Setting,
    VariableKind, VariableSpec, context, set, settings,
};

use crate::filters::type_set::TypeSet;
use acceptance::{is_accepted, mark_varying};
use deflate::{Deflate, Holding, Manner};

/// The module.
pub static GZIP: Module = Module {
    name: "gzip",
    directives: DIRECTIVES,
    confs: &[&GZIP_CONF],
    variables: VARIABLES,
    filters: &[FilterSpec { enabled: |enabling| *enabling.confs.of(&GZIP_CONF).enable, filter }],
    metrics: again::METRICS,
    ..Module::EMPTY
};

/// Compressed whatever `gzip_types` says.
const ALWAYS: &str = "text/html";

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "gzip",
        contexts: ANYWHERE,
        args: Args::FLAG,
        syntax: "gzip on | off",
        default: "gzip off;",
        doc: "Whether responses are compressed for clients that accept that.",
        example: EXAMPLE_OF_GZIP,
        see: &[
            "gzip_types",
            "gzip_comp_level",
            "gzip_min_length",
            "gzip_vary",
            "gzip_proxied",
            "gzip_static",
            "gunzip",
        ],
        handler: |scope, d| set(d, &mut conf(scope).enable, |d| d.flag(0)),
    },
    Spec {
        name: "gzip_buffers",
        contexts: context::ALL,
        args: Args::TAKE2,
        syntax: "gzip_buffers NUMBER SIZE",
        default: "gzip_buffers 32 4k;",
        doc: "How much compressed output is gathered before it is passed on: all the buffers together, 16k \
              at most. No more is compressed while the client does not take what there is.",
        example: EXAMPLE_OF_BUFFERS,
        see: &["gzip_window", "gzip_no_buffer", "postpone_gzipping", "gzip"],
        handler: |scope, d| set(d, &mut conf(scope).buffers, |d| d.buffers(0)),
    },
    Spec {
        name: "gzip_types",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "gzip_types TYPE … | *",
        default: "gzip_types text/html;",
        doc: "The types that are compressed, besides `text/html`.",
        example: EXAMPLE_OF_GZIP,
        see: &["gzip", "gzip_comp_level", "gzip_min_length"],
        handler: |scope, d| {
            let warnings = TypeSet::read(d, &mut conf(scope).types, ALWAYS);
            warnings.into_iter().for_each(|warning| scope.warn(warning));
            Ok(())
        },
    },
    Spec {
        name: "gzip_comp_level",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "gzip_comp_level LEVEL",
        default: "gzip_comp_level 1;",
        doc: "How hard to try, from 1 to 9.",
        example: EXAMPLE_OF_GZIP,
        see: &["gzip", "gzip_types", "gzip_min_length", "gzip_vary", "gzip_proxied", "gzip_static", "gunzip"],
        handler: |scope, d| set(d, &mut conf(scope).level, |d| d.number_within(0, 1, Some(9))),
    },
    Spec {
        name: "gzip_window",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "gzip_window SIZE",
        default: "gzip_window 32k;",
        doc: "How far back repetitions are looked for: a power of two from 512 to 32k.",
        example: EXAMPLE_OF_BUFFERS,
        see: &["gzip_buffers", "gzip_no_buffer", "postpone_gzipping", "gzip"],
        handler: |scope, d| {
            set(d, &mut conf(scope).window_bits, |d| {
                let bits = power_of_two(d.size(0)?, 9, 15);
                bits.ok_or_else(|| d.reject("must be 512, 1k, 2k, 4k, 8k, 16k, or 32k"))
            })
        },
    },
    Spec {
        name: "gzip_hash",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "gzip_hash SIZE",
        default: "gzip_hash 64k;",
        doc: "How large nginx makes the table of its compressor.",
        example: "",
        see: &[],
        handler: |scope, d| {
            set(d, &mut conf(scope).hash_bits, |d| {
                let bits = power_of_two(d.size(0)?, 9, 17);
                bits.ok_or_else(|| d.reject("must be 512, 1k, 2k, 4k, 8k, 16k, 32k, 64k, or 128k"))
            })
        },
    },
    Spec {
        name: "postpone_gzipping",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "postpone_gzipping SIZE",
        default: "postpone_gzipping 0;",
        doc: "Nothing is compressed before there is more than this of a response, or all of it.",
        example: EXAMPLE_OF_BUFFERS,
        see: &["gzip_buffers", "gzip_window", "gzip_no_buffer", "gzip"],
        handler: |scope, d| set(d, &mut conf(scope).postpone_bytes, |d| d.size(0)),
    },
    Spec {
        name: "gzip_no_buffer",
        contexts: context::ALL,
        args: Args::FLAG,
        syntax: "gzip_no_buffer on | off",
        default: "gzip_no_buffer off;",
        doc: "Whether what was compressed is passed on although it fills no buffer.",
        example: EXAMPLE_OF_BUFFERS,
        see: &["gzip_buffers", "gzip_window", "postpone_gzipping", "gzip"],
        handler: |scope, d| set(d, &mut conf(scope).no_buffer, |d| d.flag(0)),
    },
    Spec {
        name: "gzip_min_length",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "gzip_min_length BYTES",
        default: "gzip_min_length 20;",
        doc: "Responses that are known to be shorter are not compressed.",
        example: EXAMPLE_OF_GZIP,
        see: &["gzip", "gzip_types", "gzip_comp_level", "gzip_vary", "gzip_proxied", "gzip_static", "gunzip"],
        handler: |scope, d| set(d, &mut conf(scope).min_length_bytes, |d| d.size(0)),
    },
];

/// The example of `gzip`, `gzip_types`, `gzip_comp_level` and `gzip_min_length`.
const EXAMPLE_OF_GZIP: &str = "
    gzip on;
    gzip_types text/css application/javascript application/json image/svg+xml;
    gzip_comp_level 5;
    gzip_min_length 1000;
    gzip_vary on;";

/// The example of `gzip_buffers`, `gzip_window`, `postpone_gzipping` and `gzip_no_buffer`.
const EXAMPLE_OF_BUFFERS: &str = "
    gzip on;
    gzip_buffers 16 8k;
    gzip_window 32k;
    gzip_no_buffer off;
    postpone_gzipping 1460;";

const ANYWHERE: Contexts = context::ALL.or(context::LOCATION_IF);

static VARIABLES: &[VariableSpec] = &[VariableSpec {
    name: "gzip_ratio",
    kind: VariableKind::Exact,
    doc: "How many times larger the response was before it was compressed, with two decimals.",
    eval: |view, _, out| match view.compression() {
        Some(compression) if compression.made_bytes > 0 => {
            out.extend_from_slice(ratio(compression).as_bytes());
            Presence::Found
        }
        _ => Presence::NotFound,
    },
}];

static GZIP_CONF: ConfKey<GzipConf> = ConfKey::new(Level::Location);

settings! {
    struct GzipConf {
        enable: Setting<bool> = false,
        no_buffer: Setting<bool> = false,
        buffers: Setting<(u64, u64)> = (32, 4096),
        types: Setting<TypeSet> = TypeSet::of(&[ALWAYS]),
        level: Setting<u64> = 1,
        window_bits: Setting<u8> = 15,
        /// Set once per level and not asked for again.
        hash_bits: Setting<u8> = 16,
        postpone_bytes: Setting<u64> = 0,
        min_length_bytes: Setting<u64> = 20,
    }
}

impl GzipConf {
    fn manner(&self) -> Manner {
        let (number, size) = *self.buffers;
        Manner {
            level: *self.level as u32,
            window_bits: *self.window_bits,
            postpone_bytes: *self.postpone_bytes,
            out_bytes: number.saturating_mul(size),
            holding: if *self.no_buffer { Holding::PassedOn } else { Holding::Held },
        }
    }
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut GzipConf {
    scope.conf.location(&GZIP_CONF)
}

/// The exponent of a power of two with an exponent between these.
fn power_of_two(number: u64, low: u8, high: u8) -> Option<u8> {
    (low..=high).find(|&bits| number == 1 << bits)
}

fn filter<'c>(filtering: &mut Filtering<'_, 'c>) -> Option<Box<dyn BodyFilter + 'c>> {
    let request = filtering.request;
    let conf = request.conf(&GZIP_CONF);
    let head = filtering.head();
    let is_short = head.content_length.is_some_and(|bytes| bytes < *conf.min_length_bytes);
    if !matches!(head.status, 200 | 403 | 404)
        || is_short
        || !conf.types.contains_type(head.content_type.as_deref())
        || head.content_encoding.as_ref().is_some_and(|encoding| !encoding.is_empty())
    {
        return None;
    }
    mark_varying(request, head);
    if !is_accepted(request, head) {
        return None;
    }
    head.content_encoding = Some(Cow::Borrowed(b"gzip"));
    let length = head.content_length.take();
    head.ranges = Ranges::Refused;
    head.weaken_etag();
    Some(Box::new(Deflate::new(conf.manner(), length)))
}

/// With two decimals, rounded.
fn ratio(Compression { taken_bytes, made_bytes }: Compression) -> String {
    let thousandths = u128::from(taken_bytes) * 1000 / u128::from(made_bytes);
    let hundredths = (thousandths + 5) / 10;
    let mut text = String::new();
    write!(text, "{}.{:02}", hundredths / 100, hundredths % 100).expect("a string takes everything");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_rounded() {
        let ratio = |taken_bytes, made_bytes| ratio(Compression { taken_bytes, made_bytes });
        assert_eq!(ratio(2125, 1000), "2.13");
        assert_eq!(ratio(2124, 1000), "2.12");
        assert_eq!(ratio(2995, 1000), "3.00");
        assert_eq!([ratio(0, 20), ratio(1, 21), ratio(7, 7)], ["0.00", "0.05", "1.00"]);
    }

    #[test]
    fn powers_of_two() {
        let all: Vec<_> = [512, 1024, 32768].map(|size| power_of_two(size, 9, 15)).to_vec();
        assert_eq!(all, [Some(9), Some(10), Some(15)]);
        assert!([0, 256, 513, 65536].iter().all(|&size| power_of_two(size, 9, 15).is_none()));
    }
}
