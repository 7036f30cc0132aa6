//! `modern_browser` and `ancient_browser`: what is thought of a browser by its `User-Agent`. Variables
//! alone, evaluated on loops.

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Level, Load, Module, Presence, Setting, VariableKind, VariableSpec, View, context, settings,
};
use clearway_message::Known;

/// The module.
pub static BROWSER: Module = Module {
    name: "browser",
    directives: DIRECTIVES,
    confs: &[&BROWSER_CONF],
    variables: VARIABLES,
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "modern_browser",
        contexts: context::ALL,
        args: Args::TAKE12,
        syntax: "modern_browser BROWSER VERSION\nmodern_browser unlisted",
        default: "",
        doc: "From which version on a browser (`opera`, `msie`, `gecko`, `safari`, `konqueror`) is modern; \
              with `unlisted` those are that no directive speaks of.",
        example: EXAMPLE_OF_BROWSERS,
        see: &["ancient_browser", "modern_browser_value", "ancient_browser_value", "map"],
        handler: read_modern,
    },
    Spec {
        name: "ancient_browser",
        contexts: context::ALL,
        args: Args::ONE_MORE,
        syntax: "ancient_browser TEXT …",
        default: "",
        doc: "Browsers whose `User-Agent` has one of these texts in it are ancient; `netscape4` stands for \
              browsers that call themselves `Mozilla/1` to `Mozilla/4`.",
        example: EXAMPLE_OF_BROWSERS,
        see: &["modern_browser", "modern_browser_value", "ancient_browser_value", "map"],
        handler: |scope, directive| {
            let conf = scope.conf.location(&BROWSER_CONF);
            conf.ancient.here().extend(directive.args.iter().map(Ancient::of));
            Ok(())
        },
    },
    Spec {
        name: "modern_browser_value",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "modern_browser_value TEXT",
        default: "modern_browser_value 1;",
        doc: "The value of `$modern_browser` for modern browsers.",
        example: EXAMPLE_OF_BROWSERS,
        see: &["modern_browser", "ancient_browser", "ancient_browser_value", "map"],
        handler: |scope, directive| {
            scope.conf.location(&BROWSER_CONF).modern_value.set(directive.args[0].clone());
            Ok(())
        },
    },
    Spec {
        name: "ancient_browser_value",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "ancient_browser_value TEXT",
        default: "ancient_browser_value 1;",
        doc: "The value of `$ancient_browser` for ancient browsers.",
        example: EXAMPLE_OF_BROWSERS,
        see: &["modern_browser", "ancient_browser", "modern_browser_value", "map"],
        handler: |scope, directive| {
            scope.conf.location(&BROWSER_CONF).ancient_value.set(directive.args[0].clone());
            Ok(())
        },
    },
];

/// The example of `modern_browser`, `ancient_browser`, `modern_browser_value` and `ancient_browser_value`.
const EXAMPLE_OF_BROWSERS: &str = "
    modern_browser msie 9.0;
    modern_browser gecko 1.9;
    modern_browser unlisted;
    ancient_browser Links Lynx;
    modern_browser_value modern.;
    ancient_browser_value ancient.;

    server {
        location / {
            index index.${modern_browser}html index.${ancient_browser}html index.html;
        }
    }";

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "msie",
        kind: VariableKind::Changeable,
        doc: "`1` for Internet Explorer.",
        eval: |view, _, out| {
            let is_msie = view.request.header(Known::UserAgent).is_some_and(is_msie);
            Presence::put(Some(if is_msie { b"1" } else { b"" }), out)
        },
    },
    VariableSpec {
        name: "modern_browser",
        kind: VariableKind::Changeable,
        doc: "`modern_browser_value` for modern browsers, else empty.",
        eval: |view, _, out| put(view, Age::Modern, out),
    },
    VariableSpec {
        name: "ancient_browser",
        kind: VariableKind::Changeable,
        doc: "`ancient_browser_value` for ancient browsers, else empty.",
        eval: |view, _, out| put(view, Age::Ancient, out),
    },
];

static BROWSER_CONF: ConfKey<BrowserConf> = ConfKey::new(Level::Location);

settings! {
    struct BrowserConf {
        modern: Setting<Modern>,
        ancient: Setting<Vec<Ancient>>,
        modern_value: Setting<Bytes> = Bytes::from_static(b"1"),
        ancient_value: Setting<Bytes> = Bytes::from_static(b"1"),
    }
}

/// The list of modern browsers.
#[derive(Clone, Default)]
struct Modern {
    /// The versions from which on a browser is modern.
    versions: Vec<(Kind, u64)>,
    unlisted: Unlisted,
}

/// The age of browsers that no directive lists.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Unlisted {
    #[default]
    Ancient,
    Modern,
}

#[derive(Clone, PartialEq, Eq)]
enum Ancient {
    Netscape4,
    Text(Bytes),
}

impl Ancient {
    fn of(text: &Bytes) -> Self {
        if text == "netscape4" { Self::Netscape4 } else { Self::Text(text.clone()) }
    }

    fn is(&self, agent: &[u8]) -> bool {
        match self {
            Self::Text(text) => memchr::memmem::find(agent, text).is_some(),
            Self::Netscape4 => {
                // Something must follow the version.
                let is_long = agent.len() > b"Mozilla/4.72 ".len();
                is_long && agent.starts_with(b"Mozilla/") && (b'1'..=b'4').contains(&agent[8])
            }
        }
    }
}

/// Browsers that can be told apart, in the order in which they are looked for: Opera says that it is
/// others, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Opera,
    Msie,
    Gecko,
    Safari,
    Konqueror,
}

impl Kind {
    const NAMES: [(&str, Self); 5] = [
        ("opera", Self::Opera),
        ("msie", Self::Msie),
        ("gecko", Self::Gecko),
        ("safari", Self::Safari),
        ("konqueror", Self::Konqueror),
    ];

    /// The least number of bytes in front of its name, the name, and the number of bytes between that and the
    /// version.
    const fn mark(self) -> (usize, &'static [u8], usize) {
        match self {
            Self::Opera => (0, b"Opera", 1),
            Self::Msie => (b"Mozilla/4.0 (compatible; ".len(), b"MSIE ", 0),
            Self::Gecko => (b"Mozilla/5.0 (".len(), b"rv:", 0),
            Self::Safari => (b"Mozilla/5.0 (".len(), b"Safari/", 0),
            Self::Konqueror => (b"Mozilla/5.0 (compatible; ".len(), b"Konqueror/", 0),
        }
    }

    /// The version in a `User-Agent`, as a text with something behind it; none for other browsers.
    fn version_in(self, agent: &[u8]) -> Option<&[u8]> {
        let (before, name, between) = self.mark();
        let at = memchr::memmem::find(agent.get(before..)?, name)?;
        agent.get(before + at + name.len() + between..).filter(|version| !version.is_empty())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Age {
    Modern,
    Ancient,
}

fn read_modern(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let modern = scope.conf.location(&BROWSER_CONF).modern.here();
    let name = &directive.args[0];
    if directive.args.len() == 1 && name == "unlisted" {
        modern.unlisted = Unlisted::Modern;
        return Ok(());
    }
    let kind = Kind::NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known.as_bytes()));
    let (Some(&(_, kind)), Some(version)) = (kind, directive.args.get(1)) else {
        return Err(directive.error(message(&[&"unknown browser name \"", name, &"\""])));
    };
    let parsed = Version::parse(version);
    if parsed.rest {
        return Err(directive.error(message(&[&"invalid browser version \"", version, &"\""])));
    }
    modern.versions.push((kind, parsed.number));
    // If a browser is listed twice, the first entry counts.
    modern.versions.sort_by_key(|&(kind, _)| kind);
    Ok(())
}

/// The number in front of a text.
struct Version {
    /// Four parts of two digits, of which those that are missing are 0.
    number: u64,
    /// Whether something else follows.
    rest: bool,
}

impl Version {
    fn parse(text: &[u8]) -> Self {
        let (mut number, mut part, mut scale) = (0_u64, 0_u64, 1_000_000);
        for &byte in text {
            match byte {
                b'0'..=b'9' => part = part.saturating_mul(10).saturating_add(u64::from(byte - b'0')),
                b'.' => {
                    number = number.saturating_add(part.saturating_mul(scale));
                    part = 0;
                    scale /= 100;
                }
                _ => return Self { number: number.saturating_add(part.saturating_mul(scale)), rest: true },
            }
        }
        Self { number: number.saturating_add(part.saturating_mul(scale)), rest: false }
    }
}

impl BrowserConf {
    fn age(&self, agent: Option<&[u8]>) -> Age {
        let unlisted = if self.modern.unlisted == Unlisted::Modern { Age::Modern } else { Age::Ancient };
        let Some(agent) = agent else { return unlisted };
        if let Some(age) = self.modern.age(agent) {
            return age;
        }
        if !self.modern.versions.is_empty() && unlisted == Age::Ancient {
            return Age::Ancient;
        }
        if self.ancient.iter().any(|ancient| ancient.is(agent)) { Age::Ancient } else { unlisted }
    }
}

impl Modern {
    /// The age by its version. An Opera that is not listed is ancient: it might pretend to be another
    /// browser.
    fn age(&self, agent: &[u8]) -> Option<Age> {
        let opera = (Kind::Opera, u64::MAX);
        let is_listed = self.versions.first().is_none_or(|&(kind, _)| kind == Kind::Opera);
        let listed = (!is_listed).then_some(opera).into_iter().chain(self.versions.iter().copied());
        let found = listed.filter_map(|(kind, least)| Some((kind.version_in(agent)?, least))).next();
        let (version, least) = found?;
        Some(if Version::parse(version).number >= least { Age::Modern } else { Age::Ancient })
    }
}

fn put(view: &View<'_, '_>, asked: Age, out: &mut Vec<u8>) -> Presence {
    let conf = view.request.conf(&BROWSER_CONF);
    let value = match (conf.age(view.request.header(Known::UserAgent)), asked) {
        (Age::Modern, Age::Modern) => &conf.modern_value[..],
        (Age::Ancient, Age::Ancient) => &conf.ancient_value,
        _ => b"",
    };
    Presence::put(Some(value), out)
}

/// Internet Explorer; something must follow the first digits of its version.
fn is_msie(agent: &[u8]) -> bool {
    let find = |word: &[u8]| memchr::memmem::find(agent, word);
    find(b"MSIE ").is_some_and(|at| at + 7 < agent.len()) && find(b"Opera").is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> u64 {
        Version::parse(text.as_bytes()).number
    }

    #[test]
    fn versions_have_four_parts() {
        assert_eq!(number("1"), 1_000_000);
        assert_eq!(number("1.5.0.5"), 1_050_005);
        assert_eq!(number("1.5.0.5.9"), 1_050_005);
        assert_eq!(number("125.2)"), 125_020_000);
        assert_eq!(number(""), 0);
        assert!(number("99999999999999999999.1") > number("1000"));
        assert!(Version::parse(b"1x").rest && !Version::parse(b"1.").rest);
    }

    fn conf(versions: &[(Kind, &str)], unlisted: Unlisted, ancient: &[&'static str]) -> BrowserConf {
        let mut conf = BrowserConf::default();
        let versions = versions.iter().map(|&(kind, version)| (kind, number(version))).collect();
        conf.modern.set(Modern { versions, unlisted });
        conf.ancient
            .set(ancient.iter().map(|text| Ancient::of(&Bytes::from_static(text.as_bytes()))).collect());
        conf
    }

    #[test]
    fn browsers_are_told_apart() {
        let listed = conf(&[(Kind::Msie, "5.5"), (Kind::Gecko, "1.0")], Unlisted::Ancient, &[]);
        let open = conf(&[(Kind::Msie, "5.5")], Unlisted::Modern, &["netscape4", "Lynx"]);
        for (agent, in_listed, in_open) in [
            ("Mozilla/4.0 (compatible; MSIE 6.0; Windows)", true, true),
            ("Mozilla/4.0 (compatible; MSIE 5.0; Windows)", false, false),
            ("Mozilla/4.0 (compatible; MSIE 6.0; X11) Opera 7.50", false, false),
            ("Mozilla/5.0 (X11; U; Linux; rv:1.7.8) Gecko/2005 Firefox/1.0.4", true, true),
            ("Mozilla/5.0 (X11; U; Linux; rv:0.9) Gecko/2005", false, true),
            ("Mozilla/4.72 [en] (X11)", false, false),
            ("Mozilla/4.72", false, true),
            ("Lynx/2.8", false, false),
            ("curl/8", false, true),
        ] {
            assert_eq!(listed.age(Some(agent.as_bytes())) == Age::Modern, in_listed, "{agent}");
            assert_eq!(open.age(Some(agent.as_bytes())) == Age::Modern, in_open, "{agent}");
        }
        assert!(listed.age(None) == Age::Ancient && open.age(None) == Age::Modern);
    }
}
