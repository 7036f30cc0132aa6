//! The directives of `proxy_pass`: where requests go, and what is rewritten on their way and back.

use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::regex::Case;
use clearway_http::{
    Cost, Load, LocationForm, Module, Phase, PhaseHandler, Setting, Value, context, file_access, msec, set,
};

use crate::directives::readers::{compile, invalid_parameter, read_regex, read_value};
use crate::directives::{cache, cache_path, readers};
use crate::engine;
use crate::settings::masks::{Failures, Mask, read_mask, read_words};
use crate::settings::pass::PassConf;
use crate::settings::proxy::{
    Audience, CookieFlags, Fixed, HIDDEN, Headers, HttpVersion, Origin, PROXY, PROXY_CACHES, PROXY_PASS,
    Pattern, ProxyConf, Rewrite, Rules, Scheme, Switch, Target,
};
use crate::upstreams;
use crate::variables::VARIABLES;

/// The module.
pub static PROXY_MODULE: Module = Module {
    name: "proxy",
    directives: DIRECTIVES,
    confs: &[&PROXY, &PROXY_PASS, &PROXY_CACHES],
    variables: VARIABLES,
    phases: &[PhaseHandler {
        phase: Phase::Pass,
        cost: Cost::Cheap,
        enabled: |enabling| enabling.confs.of(&PROXY).target.get().is_some(),
        handler: engine::handle,
    }],
    finish: Some(finish),
    ..Module::EMPTY
};

/// As what its caches are declared.
static FAMILY: cache::Family = cache::Family { name: "proxy", pass: &PROXY_PASS, caches: &PROXY_CACHES };

const PASS: Contexts = context::LOCATION.or(context::LOCATION_IF).or(context::LIMIT_EXCEPT);

static DIRECTIVES: &[Spec<Load>] = pass_directives!(
    "proxy",
    pass,
    "proxy_pass http://127.0.0.1:8080;",
    [
        Spec {
            name: "proxy_pass",
            contexts: PASS,
            args: Args::TAKE1,
            syntax: "proxy_pass URL",
            default: "",
            doc: "Passes requests to another server over HTTP: `http://NAME`, `http://ADDRESS:PORT` or \
              `http://unix:PATH:`, where a name may be that of an `upstream`. A path behind it takes the \
              place of the name of the location in the path of the request; without one the path goes as \
              the client sent it, or as it was rewritten. With variables all of it is what they give.",
            example: EXAMPLE_OF_HEADERS,
            see: &["proxy_set_header", "proxy_redirect", "proxy_buffering", "proxy_next_upstream"],
            handler: read_pass,
        },
        send_lowat!("proxy", pass, "proxy_pass http://127.0.0.1:8080;"),
        next_upstream!(
            "proxy",
            pass,
            "proxy_pass http://127.0.0.1:8080;",
            "error | timeout | invalid_header | http_500 | http_502 | http_503 | http_504 | http_403 \
             | http_404 | http_429 | non_idempotent | off …",
            Failures::WORDS,
            "The cases in which another server is asked, as long as nothing was sent to the client: a \
             connection that breaks or cannot be made, a timeout, a broken response, a status. `POST`, \
             `LOCK` and `PATCH` are asked once, unless `non_idempotent` is said or nothing was sent."
        ),
        row! {
            "proxy", "proxy_pass http://127.0.0.1:8080;", "pass_trailers", FLAG, "on | off", "off", "on",
            "Whether the trailers of a response are passed to the client.",
            ["pass_header"],
            |s, d| set(d, &mut pass(s.conf).pass_trailers, |d| d.flag(0))
        },
        Spec {
            name: "proxy_redirect",
            contexts: context::ALL,
            args: Args::TAKE12,
            syntax: "proxy_redirect default | off | PATTERN REPLACEMENT",
            default: "proxy_redirect default;",
            doc: "Rewrites `Location` and `Refresh` of responses where they begin with a text, or match an \
              expression (`~`, `~*`). By default the URL of `proxy_pass` becomes the name of the \
              location.",
            example: "
            location /app/ {
                proxy_pass http://127.0.0.1:8080/;
                proxy_redirect http://backend.example.com/ /app/;
                proxy_redirect ~^http://[^/]+/(.*)$ /app/$1;
            }",
            see: &["proxy_pass", "proxy_cookie_domain", "proxy_cookie_path"],
            handler: read_redirect,
        },
        Spec {
            name: "proxy_cookie_domain",
            contexts: context::ALL,
            args: Args::TAKE12,
            syntax: "proxy_cookie_domain off | DOMAIN REPLACEMENT",
            default: "proxy_cookie_domain off;",
            doc: "Rewrites the domain of cookies that a response sets: one that is equal, in any case, or \
              matches an expression (`~`).",
            example: "
            location /app/ {
                proxy_pass http://127.0.0.1:8080/;
                proxy_cookie_domain localhost example.com;
            }",
            see: &["proxy_cookie_path", "proxy_cookie_flags"],
            handler: |s, d| read_cookie_rule(s, d, CookiePart::Domain),
        },
        Spec {
            name: "proxy_cookie_path",
            contexts: context::ALL,
            args: Args::TAKE12,
            syntax: "proxy_cookie_path off | PATH REPLACEMENT",
            default: "proxy_cookie_path off;",
            doc: "Rewrites the path of cookies that a response sets: one that begins with a text, or matches \
              an expression (`~`, `~*`).",
            example: "
            location /app/ {
                proxy_pass http://127.0.0.1:8080/;
                proxy_cookie_path / /app/;
            }",
            see: &["proxy_cookie_domain", "proxy_cookie_flags"],
            handler: |s, d| read_cookie_rule(s, d, CookiePart::Path),
        },
        Spec {
            name: "proxy_cookie_flags",
            contexts: context::ALL,
            args: Args::TAKE1234,
            syntax: "proxy_cookie_flags off | COOKIE FLAG …",
            default: "proxy_cookie_flags off;",
            doc: "Sets or removes flags of cookies with a name, or one that matches an expression (`~`): \
              `secure`, `httponly`, `samesite=strict`, `samesite=lax`, `samesite=none`, and `nosecure`, \
              `nohttponly`, `nosamesite`.",
            example: "
            location /app/ {
                proxy_pass http://127.0.0.1:8080/;
                proxy_cookie_flags session secure samesite=strict;
                proxy_cookie_flags ~ nosecure;
            }",
            see: &["proxy_cookie_domain", "proxy_cookie_path"],
            handler: read_cookie_flags,
        },
        Spec {
            name: "proxy_set_header",
            contexts: context::ALL,
            args: Args::TAKE2,
            syntax: "proxy_set_header NAME VALUE",
            default: "",
            doc: "Sends a header in place of that of the client; with an empty value none is sent. A level \
              with one inherits none. By default `Host` is what `proxy_pass` names, and `Connection`, \
              `TE`, `Keep-Alive`, `Expect`, `Upgrade` and `Proxy-Connection` are not passed on.",
            example: EXAMPLE_OF_HEADERS,
            see: &["proxy_pass", "proxy_pass_request_headers", "proxy_set_body"],
            handler: read_header,
        },
        Spec {
            name: "proxy_headers_hash_max_size",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "proxy_headers_hash_max_size SIZE",
            default: "proxy_headers_hash_max_size 512;",
            doc: "Checked for form: tables have the size that they need.",
            example: "
            proxy_headers_hash_max_size 1024;",
            see: &["proxy_set_header"],
            handler: |s, d| set(d, &mut conf(s).headers_hash[0], |d| d.number(0)),
        },
        Spec {
            name: "proxy_headers_hash_bucket_size",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "proxy_headers_hash_bucket_size SIZE",
            default: "proxy_headers_hash_bucket_size 64;",
            doc: "Checked for form: tables have the size that they need.",
            example: "
            proxy_headers_hash_bucket_size 128;",
            see: &["proxy_set_header"],
            handler: |s, d| set(d, &mut conf(s).headers_hash[1], |d| d.number(0)),
        },
        Spec {
            name: "proxy_set_body",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "proxy_set_body TEXT",
            default: "",
            doc: "Sends a text, which may have variables in it, in place of the body of the request.",
            example: EXAMPLE_OF_BODIES,
            see: &["proxy_method", "proxy_pass_request_body"],
            handler: |s, d| read_value(s, d, |load| &mut load.location(&PROXY).body),
        },
        Spec {
            name: "proxy_method",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "proxy_method METHOD",
            default: "",
            doc: "Asks with another method than that of the client; it may have variables in it.",
            example: EXAMPLE_OF_BODIES,
            see: &["proxy_set_body", "proxy_pass"],
            handler: |s, d| read_value(s, d, |load| &mut load.location(&PROXY).method),
        },
        Spec {
            name: "proxy_cache_convert_head",
            contexts: context::ALL,
            args: Args::FLAG,
            syntax: "proxy_cache_convert_head on | off",
            default: "proxy_cache_convert_head on;",
            doc: "Whether `HEAD` is asked as `GET`, so that the response can be kept. Without it the method \
              should be a part of `proxy_cache_key`.",
            example: "\n            proxy_cache_convert_head off;",
            see: &["proxy_cache", "proxy_cache_key"],
            handler: |s, d| set(d, &mut pass(s.conf).cache.convert_head, |d| d.flag(0)),
        },
        Spec {
            name: "proxy_http_version",
            contexts: context::ALL,
            args: Args::TAKE1,
            syntax: "proxy_http_version 1.0 | 1.1",
            default: "proxy_http_version 1.1;",
            doc: "The version of HTTP in which servers are asked. With 1.0 a body in chunks is read to its \
              end first.",
            example: "
            location /app/ {
                proxy_pass http://127.0.0.1:8080/;
                proxy_http_version 1.0;
            }",
            see: &["proxy_pass", "keepalive_timeout"],
            handler: read_version,
        },
    ]
);

/// The example of `proxy_pass` and `proxy_set_header`.
const EXAMPLE_OF_HEADERS: &str = "
    location /app/ {
        proxy_pass http://127.0.0.1:8080/;
        proxy_set_header Host $host;
        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }";

/// The example of `proxy_set_body` and `proxy_method`.
const EXAMPLE_OF_BODIES: &str = r#"
    location /app/ {
        proxy_pass http://127.0.0.1:8080/;
        proxy_method POST;
        proxy_set_body "user=$remote_user";
    }"#;

/// The directory of responses where no `proxy_temp_path` names another one: that of Debian.
const PROXY_TEMP_DEFAULT: &str = "/var/lib/nginx/proxy";

fn pass(load: &mut Load) -> &mut PassConf {
    load.location(&PROXY_PASS)
}

fn conf<'a>(scope: &'a mut Scope<'_, Load>) -> &'a mut ProxyConf {
    scope.conf.location(&PROXY)
}

fn read_pass(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if conf(scope).target.get().is_some() {
        return Err(directive.reject("is duplicate"));
    }
    scope.conf.redirect_to_slash();
    let url = &directive.args[0];
    let value = compile(scope, directive, url)?;
    if value.as_literal().is_none() {
        readers::use_tls(pass(scope.conf));
        conf(scope).target.set(Target::Evaluated(value));
        return Ok(());
    }
    let Some(scheme) = Scheme::of(url) else { return Err(directive.error("invalid URL prefix")) };
    if scheme == Scheme::Https && !cfg!(feature = "tls") {
        return Err(directive.error("https protocol requires SSL support"));
    }
    if scheme == Scheme::Https {
        readers::use_tls(pass(scope.conf));
    }
    let address = url.slice(scheme.text().len()..);
    let (group, parsed) = upstreams::reference(scope.conf, directive, &address, scheme.port())?;
    let origin = Origin::new(scheme, &address, &parsed);
    let uri = address.slice(parsed.path);
    let is_plain = scope.conf.location_form() == LocationForm::Path && !scope.conf.is_unnamed();
    if !is_plain && !uri.is_empty() {
        return Err(directive.error(
            "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named \
             location, or inside \"if\" statement, or inside \"limit_except\" block",
        ));
    }
    let location = if is_plain { scope.conf.location_name().clone() } else { Bytes::new() };
    let target = Fixed { origin, uri, location, group };
    let conf = conf(scope);
    conf.redirects.imply(ProxyConf::default_redirect(url, &target));
    conf.target.set(Target::Fixed(target));
    Ok(())
}

fn read_redirect(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let redirects = &mut conf(scope).redirects;
    if redirects.switch == Some(Switch::Off) {
        return Err(directive.reject("is duplicate"));
    }
    let [pattern, replacement] = &directive.args[..] else {
        return read_redirect_word(scope, directive);
    };
    redirects.switch = Some(Switch::On);
    let rule = Rewrite {
        pattern: read_pattern(scope, directive, pattern, Pattern::Prefix)?,
        replacement: compile(scope, directive, replacement)?,
    };
    conf(scope).redirects.add(rule);
    Ok(())
}

fn read_redirect_word(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let conf = conf(scope);
    match &directive.args[0][..] {
        b"off" if conf.redirects.has_rules() => return Err(directive.reject("is duplicate")),
        b"off" => {
            conf.redirects.switch = Some(Switch::Off);
            return Ok(());
        }
        b"default" => {}
        word => return Err(invalid_parameter(directive, word)),
    }
    conf.redirects.switch = Some(Switch::On);
    match conf.target.get().map(|target| &**target) {
        Some(Target::Evaluated(_)) => Err(directive
            .error("\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive with variables")),
        None => {
            Err(directive
                .error("\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive"))
        }
        Some(Target::Fixed(_)) => {
            conf.redirects.add_implied();
            Ok(())
        }
    }
}

/// A text, `~` and an expression, or `~*` and one in any case.
fn read_pattern(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    text: &Bytes,
    plain: fn(Value) -> Pattern,
) -> Result<Pattern, Error> {
    match &text[..] {
        [b'~', b'*', pattern @ ..] => {
            read_regex(scope, directive, pattern, Case::Insensitive).map(Pattern::Regex)
        }
        [b'~', pattern @ ..] => read_regex(scope, directive, pattern, Case::Sensitive).map(Pattern::Regex),
        _ => compile(scope, directive, text).map(plain),
    }
}

/// The part of a cookie that is rewritten.
#[derive(Clone, Copy)]
enum CookiePart {
    Domain,
    Path,
}

impl CookiePart {
    fn rules(self, conf: &mut ProxyConf) -> &mut Setting<Rules<Rewrite>> {
        match self {
            Self::Domain => &mut conf.cookie_domains,
            Self::Path => &mut conf.cookie_paths,
        }
    }
}

fn read_cookie_rule(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    part: CookiePart,
) -> Result<(), Error> {
    let [pattern, replacement] = &directive.args[..] else {
        return turn_off(directive, part.rules(conf(scope)));
    };
    check_not_off(directive, part.rules(conf(scope)))?;
    let without_dot = |text: &Bytes| text.slice(usize::from(text.starts_with(b"."))..);
    let rule = match part {
        CookiePart::Path => Rewrite {
            pattern: read_pattern(scope, directive, pattern, Pattern::Prefix)?,
            replacement: compile(scope, directive, replacement)?,
        },
        CookiePart::Domain => match pattern.strip_prefix(b"~") {
            Some(regex) => Rewrite {
                pattern: Pattern::Regex(read_regex(scope, directive, regex, Case::Insensitive)?),
                replacement: compile(scope, directive, replacement)?,
            },
            None => Rewrite {
                pattern: Pattern::Domain(compile(scope, directive, &without_dot(pattern))?),
                replacement: compile(scope, directive, &without_dot(replacement))?,
            },
        },
    };
    add_rule(part.rules(conf(scope)), rule);
    Ok(())
}

fn read_cookie_flags(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let Some((name, flags)) = directive.args.split_first().filter(|(_, flags)| !flags.is_empty()) else {
        return turn_off(directive, &mut conf(scope).cookie_flags);
    };
    check_not_off(directive, &conf(scope).cookie_flags)?;
    let pattern = match name.strip_prefix(b"~") {
        Some(regex) => Pattern::Regex(read_regex(scope, directive, regex, Case::Insensitive)?),
        None => Pattern::Name(compile(scope, directive, name)?),
    };
    let flags = flags.iter().map(|flag| compile(scope, directive, flag));
    let flags = flags.collect::<Result<_, _>>()?;
    add_rule(&mut conf(scope).cookie_flags, CookieFlags { pattern, flags });
    Ok(())
}

fn check_not_off<T>(directive: &Directive, rules: &Setting<Rules<T>>) -> Result<(), Error> {
    match **rules {
        Rules::Off if rules.is_here() => Err(directive.reject("is duplicate")),
        _ => Ok(()),
    }
}

fn turn_off<T>(directive: &Directive, rules: &mut Setting<Rules<T>>) -> Result<(), Error> {
    let word = &directive.args[0];
    if rules.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    if word != "off" {
        return Err(invalid_parameter(directive, word));
    }
    rules.set(Rules::Off);
    Ok(())
}

fn add_rule<T>(rules: &mut Setting<Rules<T>>, rule: T) {
    match rules.here() {
        Rules::Some(list) => {
            Arc::get_mut(list).expect("rules are shared when levels are merged").push(rule);
        }
        off @ Rules::Off => *off = Rules::Some(Arc::new(vec![rule])),
    }
}

fn read_header(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let value = compile(scope, directive, &directive.args[1])?;
    conf(scope).set_headers.here().push((directive.args[0].clone(), value));
    Ok(())
}

fn read_version(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    const WORDS: [(&str, HttpVersion); 2] = [("1.0", HttpVersion::Http10), ("1.1", HttpVersion::Http11)];
    set(directive, &mut conf(scope).version, |directive| directive.choice(0, &WORDS))
}

/// Completes each level.
fn finish(load: &mut Load) -> Result<(), Error> {
    load.all_locations(&PROXY_PASS).try_for_each(|pass| pass.complete("proxy", HIDDEN))?;
    for conf in load.all_locations(&PROXY) {
        *conf.headers = Arc::new(Headers::new(&conf.set_headers, Audience::Client));
        *conf.cache_headers = Arc::new(Headers::new(&conf.set_headers, Audience::Cache));
    }
    readers::complete_temp_paths(load, &PROXY_PASS, PROXY_TEMP_DEFAULT)?;
    cache::complete(load, &FAMILY)
}
