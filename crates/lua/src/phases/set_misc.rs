//! The functions of the set-misc module, which code for OpenResty often uses: variables that are the encoded
//! form of a value, or a server of a list. Microseconds on the loop of the request.

use bytes::Bytes;
use clearway_base::log::Level as LogLevel;
use clearway_conf::error::message;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Exchange, Level, Load, Module, Own, Script, ScriptWait, Step, Value, Verbatim, context, settings,
};

use super::set::{PLACES, append_script, text_of};
use crate::api::encoding::{Escape, escape, quote_sql, unescape};

/// The module.
pub static SET_MISC: Module =
    Module { name: "set_misc", directives: DIRECTIVES, confs: &[&LISTS], ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "set_unescape_uri",
        contexts: PLACES,
        args: Args::TAKE12,
        syntax: "set_unescape_uri $VARIABLE [VALUE]",
        default: "",
        doc: "Gives a variable a value with its percent-encoding decoded, `+` as a space; without one its \
              own.",
        example: "
            set_unescape_uri $name $arg_name;",
        see: &["set", "set_escape_uri"],
        handler: |scope, directive| read_change(scope, directive, |text| unescape(text).into_owned()),
    },
    Spec {
        name: "set_escape_uri",
        contexts: PLACES,
        args: Args::TAKE12,
        syntax: "set_escape_uri $VARIABLE [VALUE]",
        default: "",
        doc: "Gives a variable a value as it stands in arguments of a URL; without one its own.",
        example: "
            set_escape_uri $target $http_referer;",
        see: &["set", "set_unescape_uri"],
        handler: |scope, directive| {
            read_change(scope, directive, |text| escape(text, Escape::Component).into_owned())
        },
    },
    Spec {
        name: "set_quote_sql_str",
        contexts: PLACES,
        args: Args::TAKE12,
        syntax: "set_quote_sql_str $VARIABLE [VALUE]",
        default: "",
        doc: "Gives a variable a value in quotes, as a text is written in SQL by MySQL's rules; without one \
              its own.",
        example: "
            set_quote_sql_str $name $arg_name;",
        see: &["set"],
        handler: |scope, directive| read_change(scope, directive, quote_sql),
    },
    Spec {
        name: "upstream_list",
        contexts: context::HTTP,
        args: Args::TWO_MORE,
        syntax: "upstream_list NAME VALUE …",
        default: "",
        doc: "A list for `set_hashed_upstream`.",
        example: "
            upstream_list stores store_a store_b;",
        see: &["set_hashed_upstream"],
        handler: |scope, directive| {
            let lists = &mut scope.conf.main(&LISTS).lists;
            if lists.iter().any(|list| list.name == directive.args[0]) {
                return Err(directive.error("duplicate upstream list name"));
            }
            let values = directive.args[1..].to_vec();
            lists.push(List { name: directive.args[0].clone(), values });
            Ok(())
        },
    },
    Spec {
        name: "set_hashed_upstream",
        contexts: PLACES,
        args: Args::TAKE3,
        syntax: "set_hashed_upstream $VARIABLE LIST KEY",
        default: "",
        doc: "Gives a variable the value of a list that a key always leads to, in any case of its letters.",
        example: "
            upstream_list stores store_a store_b;

            server {
                location /stored/ {
                    set_hashed_upstream $store stores $arg_key;
                    return 200 $store;
                }
            }",
        see: &["upstream_list", "hash"],
        handler: read_hashed,
    },
];

static LISTS: ConfKey<Lists> = ConfKey::new(Level::Main);

settings! {
    struct Lists {
        lists: Own<Vec<List>>,
    }
}

#[derive(Clone)]
struct List {
    name: Bytes,
    values: Vec<Bytes>,
}

/// How a value is changed.
type Change = fn(&[u8]) -> Vec<u8>;

fn read_change(scope: &mut Scope<'_, Load>, directive: &Directive, change: Change) -> Result<(), Error> {
    let value = directive.args.last().expect("it has one argument at least");
    let value = scope.conf.variables.compile(value, &directive.pos)?;
    append_script(scope, directive, Box::new(Changed { value, change }))
}

struct Changed {
    value: Value,
    change: Change,
}

impl Script for Changed {
    fn run<'e>(&'e self, exchange: &'e mut Exchange<'_, '_>) -> ScriptWait<'e> {
        let value = (self.change)(&text_of(&self.value, exchange));
        Box::pin(std::future::ready(Ok(value)))
    }
}

fn read_hashed(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = scope.conf.variables.compile(&directive.args[1], &directive.pos)?;
    let key = scope.conf.variables.compile(&directive.args[2], &directive.pos)?;
    if let Some(name) = name.as_literal() {
        let lists = &scope.conf.main(&LISTS).lists;
        if !lists.iter().any(|list| list.name == name) {
            let parts: [&dyn AsRef<[u8]>; 3] =
                [&"set_hashed_upstream: upstream list \"", &directive.args[1], &"\" not defined yet"];
            return Err(directive.error(message(&parts)));
        }
    }
    append_script(scope, directive, Box::new(Hashed { name, key }))
}

struct Hashed {
    name: Value,
    key: Value,
}

impl Script for Hashed {
    fn run<'e>(&'e self, exchange: &'e mut Exchange<'_, '_>) -> ScriptWait<'e> {
        let name = text_of(&self.name, exchange);
        let key = text_of(&self.key, exchange);
        let lists = &exchange.request.main_conf(&LISTS).lists;
        let Some(list) = lists.iter().find(|list| list.name == name[..]) else {
            let name = Verbatim(&name);
            let line = format_args!("set_hashed_upstream: upstream list \"{name}\" not defined yet");
            exchange.request.log(LogLevel::Error, line);
            return Box::pin(std::future::ready(Err(Step::status(500))));
        };
        let value = list.values[(hash(&key) % list.values.len() as u64) as usize].to_vec();
        Box::pin(std::future::ready(Ok(value)))
    }
}

/// nginx's sum of keys in lower case, of which the module takes 32 bits.
fn hash(key: &[u8]) -> u64 {
    let lower = key.iter().map(|byte| u64::from(byte.to_ascii_lowercase()));
    lower.fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte)) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_same_in_any_case() {
        assert_eq!(hash(b"Key"), hash(b"kEY"));
        assert_eq!(hash(b"ab"), 97 * 31 + 98);
        assert_eq!(hash(b""), 0);
    }
}
