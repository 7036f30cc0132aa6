//! The directives of the `userid` family. Boot only.

use bytes::Bytes;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, Setting, context, set};

use super::{Expires, RESET_CONF, USERID_CONF, UseridConf, UseridState};

pub(super) static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "userid",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid on | v1 | log | off",
        default: "userid off;",
        doc: "Whether clients get a cookie by which they are known again (`on`; `v1` is an older form), or \
              only those that they send are read (`log`, for `$uid_got`).",
        example: EXAMPLE_OF_COOKIE,
        see: &["userid_name", "userid_expires", "userid_flags", "userid_mark", "userid_service"],
        handler: |scope, directive| {
            const WORDS: [(&str, UseridState); 4] = [
                ("off", UseridState::Off),
                ("log", UseridState::Log),
                ("v1", UseridState::V1),
                ("on", UseridState::On),
            ];
            let reset = scope.conf.variables.id(b"uid_reset");
            **scope.conf.main(&RESET_CONF) = Some(reset);
            set(directive, &mut conf(scope).state, |directive| directive.choice(0, &WORDS))
        },
    },
    Spec {
        name: "userid_service",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_service NUMBER",
        default: "",
        doc: "A number for this server in the cookies that it makes; without it, for cookies of the second \
              version, the last four bytes of the server's address.",
        example: EXAMPLE_OF_MARKS,
        see: &["userid_mark", "userid_p3p", "userid"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).service, |directive| Ok(Some(directive.number(0)? as u32)))
        },
    },
    Spec {
        name: "userid_name",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_name NAME",
        default: "userid_name uid;",
        doc: "The name of the cookie.",
        example: EXAMPLE_OF_COOKIE,
        see: &["userid", "userid_domain", "userid_path"],
        handler: |scope, directive| set(directive, &mut conf(scope).name, |directive| directive.value(0)),
    },
    Spec {
        name: "userid_domain",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_domain NAME | none",
        default: "userid_domain none;",
        doc: "The domain that the cookie is for.",
        example: EXAMPLE_OF_COOKIE,
        see: &["userid", "userid_name", "userid_path"],
        handler: |scope, directive| set_or_none(directive, &mut conf(scope).domain),
    },
    Spec {
        name: "userid_path",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_path PATH",
        default: "userid_path /;",
        doc: "The path that the cookie is for.",
        example: EXAMPLE_OF_COOKIE,
        see: &["userid", "userid_name", "userid_domain"],
        handler: |scope, directive| set(directive, &mut conf(scope).path, |directive| directive.value(0)),
    },
    Spec {
        name: "userid_expires",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_expires TIME | max | off",
        default: "userid_expires off;",
        doc: "How long a browser keeps the cookie; `max` is until the end of 2037, `off` until it is closed.",
        example: EXAMPLE_OF_COOKIE,
        see: &["userid", "userid_flags"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).expires, |directive| match &directive.args[0][..] {
                b"max" => Ok(Expires::Max),
                b"off" => Ok(Expires::Session),
                _ => Ok(match directive.sec(0)?.as_secs() {
                    0 => Expires::Session,
                    seconds => Expires::In(seconds),
                }),
            })
        },
    },
    Spec {
        name: "userid_flags",
        contexts: context::ALL,
        args: Args::TAKE123,
        syntax: "userid_flags off | [secure] [httponly] [samesite=strict | samesite=lax | samesite=none]",
        default: "userid_flags off;",
        doc: "Attributes of the cookie.",
        example: EXAMPLE_OF_COOKIE,
        see: &["userid", "userid_expires"],
        handler: read_flags,
    },
    Spec {
        name: "userid_p3p",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_p3p TEXT | none",
        default: "userid_p3p none;",
        doc: "The value of a header `P3P` that is sent with the cookie.",
        example: EXAMPLE_OF_MARKS,
        see: &["userid_mark", "userid_service", "userid"],
        handler: |scope, directive| set_or_none(directive, &mut conf(scope).p3p),
    },
    Spec {
        name: "userid_mark",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "userid_mark LETTER | DIGIT | = | off",
        default: "userid_mark off;",
        doc: "A character in place of the padding of the cookie. A client whose cookie has another one \
              gets it with this one, so that its other attributes can be changed.",
        example: EXAMPLE_OF_MARKS,
        see: &["userid_p3p", "userid_service", "userid"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope).mark, |directive| match &directive.args[0][..] {
                b"off" => Ok(None),
                &[mark] if mark.is_ascii_alphanumeric() || mark == b'=' => Ok(Some(mark)),
                _ => Err(directive.reject("value must be \"off\" or a single letter, digit or \"=\"")),
            })
        },
    },
];

/// The example of `userid`, `userid_name`, `userid_domain`, `userid_path`, `userid_expires` and
/// `userid_flags`.
const EXAMPLE_OF_COOKIE: &str = "
    userid on;
    userid_name uid;
    userid_domain example.com;
    userid_path /;
    userid_expires 365d;
    userid_flags secure httponly samesite=lax;";

/// The example of `userid_service`, `userid_p3p` and `userid_mark`.
const EXAMPLE_OF_MARKS: &str = r#"
    userid on;
    userid_mark 2;
    userid_p3p 'policyref="/w3c/p3p.xml", CP="CUR ADM OUR NOR STA NID"';
    # A number of its own for each of several servers that give out identifiers.
    userid_service 7;"#;

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut UseridConf {
    scope.conf.location(&USERID_CONF)
}

fn set_or_none(directive: &Directive, setting: &mut Setting<Option<Bytes>>) -> Result<(), Error> {
    set(directive, setting, |directive| {
        directive.value(0).map(|text| Some(text).filter(|text| text != "none"))
    })
}

/// Attributes of a cookie, a bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    /// The words of `userid_flags` with what they add to a cookie, in this order.
    const WORDS: [(&'static str, &'static str); 6] = [
        ("off", ""),
        ("secure", "; secure"),
        ("httponly", "; httponly"),
        ("samesite=strict", "; samesite=strict"),
        ("samesite=lax", "; samesite=lax"),
        ("samesite=none", "; samesite=none"),
    ];

    /// The texts that they add to a cookie.
    pub(super) fn texts(self) -> impl Iterator<Item = &'static str> {
        let texts = Self::WORDS.into_iter().enumerate();
        texts.filter(move |(at, _)| self.0 & 1 << at != 0).map(|(_, (_, text))| text)
    }
}

fn read_flags(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let mut duplicates = Vec::new();
    let flags = conf(scope).flags.here();
    for word in &directive.args {
        let at = Flags::WORDS.iter().position(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes()));
        let Some(at) = at else {
            return Err(directive.error(message(&[&"invalid value \"", word, &"\""])));
        };
        let (bit, same_site) = (1 << at, 0b11_1000);
        // nginx has a bit for all of `samesite`, so that another one of them is a duplicate.
        let taken = if bit & same_site == 0 { bit } else { same_site };
        if flags.0 & taken == 0 {
            flags.0 |= bit;
        } else {
            duplicates.push(directive.error(message(&[&"duplicate value \"", word, &"\""])));
        }
    }
    duplicates.into_iter().for_each(|warning| scope.warn(warning));
    Ok(())
}
