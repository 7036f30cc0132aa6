//! `sticky`, as a directive. Boot and reload only.

use std::sync::Arc;

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{Load, Module, VariableId, context};
use clearway_zone::{Zone, Zones};

use crate::upstreams::draft::{GroupDraft, UPSTREAMS_CONF, block};
use crate::upstreams::session::{CookieConf, Expires, Kind, Learn, LearnWhen, Sticky, is_same_site};

/// The module.
pub static STICKY: Module = Module { name: "upstream_sticky", directives: DIRECTIVES, ..Module::EMPTY };

static DIRECTIVES: &[Spec<Load>] = &[Spec {
    name: "sticky",
    contexts: context::UPSTREAM,
    args: Args::TWO_MORE,
    syntax: "sticky cookie NAME [expires=TIME | max] [domain=TEXT] [path=PATH] [httponly] [secure] \
             [samesite=TEXT]\n\
             sticky route $VARIABLE …\n\
             sticky learn create=$VARIABLE lookup=$VARIABLE zone=NAME:SIZE [timeout=TIME] [header]",
    default: "",
    doc: "Requests of a session go to the server that had its first one, while that may be used; the rule of \
          the group is for those without a session. `cookie`: the session is known by a cookie that is set \
          here. `route`: the first variable that is not empty names the server, by its `route=` or the MD5 \
          hash of its address. `learn`: servers make sessions; a response's variable `create` names one, a \
          request's variable `lookup` the same again, and the zone holds which server has it until it was \
          not used for `timeout` (10 minutes). With `header` it is there when the head of the response is.",
    example: "
        upstream backend {
            server 127.0.0.1:8081 route=a;
            server 127.0.0.1:8082 route=b;
            sticky cookie backend_id expires=1h path=/ httponly;
        }",
    see: &["server", "ip_hash", "hash"],
    handler: read_sticky,
}];

/// The smallest zone that nginx accepts, bytes: eight pages.
const ZONE_MIN_BYTES: u64 = 8 * 4096;

/// How long a session lasts that is not used.
const TIMEOUT_MS: u64 = 600_000;

fn read_sticky(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    if block(scope.conf).sticky.is_some() {
        return Err(directive.reject("is duplicate"));
    }
    let (lookup, kind) = match &directive.args[0][..] {
        b"cookie" => read_cookie(scope.conf, directive)?,
        b"route" => read_route(scope.conf, directive)?,
        b"learn" => read_learn(scope.conf, directive)?,
        _ => return Err(unknown(directive, &directive.args[0])),
    };
    block(scope.conf).sticky = Some(Sticky { lookup, kind, is_on: true });
    Ok(())
}

fn unknown(directive: &Directive, argument: &[u8]) -> Error {
    directive.error(message(&[&"unknown parameter \"", &printed(argument), &"\""]))
}

fn variable(load: &mut Load, directive: &Directive, name: &[u8]) -> Result<VariableId, Error> {
    if name.is_empty() {
        return Err(directive.error("invalid variable name \"$\""));
    }
    Ok(load.variables.id(name))
}

type Parts = (Vec<VariableId>, Kind);

fn read_route(load: &mut Load, directive: &Directive) -> Result<Parts, Error> {
    let mut lookup = Vec::new();
    for argument in &directive.args[1..] {
        let Some(name) = argument.strip_prefix(b"$") else {
            let text = message(&[&"invalid variable name \"", &printed(argument), &"\""]);
            return Err(directive.error(text));
        };
        lookup.push(variable(load, directive, name)?);
    }
    Ok((lookup, Kind::Route))
}

fn read_cookie(load: &mut Load, directive: &Directive) -> Result<Parts, Error> {
    let name = directive.args[1].clone();
    if name.is_empty() {
        return Err(directive.reject("empty cookie name"));
    }
    let mut cookie = CookieConf { name, ..CookieConf::default() };
    for argument in &directive.args[2..] {
        read_attribute(load, directive, argument, &mut cookie)?;
    }
    let lookup = variable(load, directive, &[b"cookie_", &cookie.name[..]].concat())?;
    Ok((vec![lookup], Kind::Cookie(Box::new(cookie))))
}

fn read_attribute(
    load: &mut Load,
    directive: &Directive,
    argument: &Bytes,
    cookie: &mut CookieConf,
) -> Result<(), Error> {
    let twice = |name: &str| directive.reject(&format!("parameter \"{name}\" is duplicate"));
    let given = |is_given: bool, name| if is_given { Err(twice(name)) } else { Ok(()) };
    let some = |name: &str, value: &[u8]| match value {
        [] => Err(directive.reject(&format!("no value for \"{name}\""))),
        value => Ok(argument.slice_ref(value)),
    };
    if let Some(domain) = argument.strip_prefix(b"domain=") {
        given(cookie.domain.is_some(), "domain")?;
        cookie.domain = Some(load.variables.compile(&some("domain", domain)?, &directive.pos)?);
    } else if let Some(path) = argument.strip_prefix(b"path=") {
        given(cookie.path.is_some(), "path")?;
        cookie.path = Some(some("path", path)?);
    } else if let Some(time) = argument.strip_prefix(b"expires=") {
        given(cookie.expires.is_some(), "expires")?;
        cookie.expires = Some(match time {
            b"max" => Expires::Max,
            time => {
                let time = units::parse_sec(time);
                let time = time.ok_or_else(|| directive.reject("invalid \"expires\" parameter value"))?;
                Expires::AfterSeconds(time.as_secs())
            }
        });
    } else if argument == "httponly" {
        given(cookie.http_only, "httponly")?;
        cookie.http_only = true;
    } else if argument == "secure" {
        given(cookie.secure, "secure")?;
        cookie.secure = true;
    } else if let Some(site) = argument.strip_prefix(b"samesite=") {
        given(cookie.same_site.is_some(), "samesite")?;
        let value = load.variables.compile(&argument.slice_ref(site), &directive.pos)?;
        if value.as_literal().is_some_and(|site| !is_same_site(site)) {
            return Err(directive.reject("invalid \"samesite\" parameter value"));
        }
        cookie.same_site = Some(value);
    } else {
        return Err(unknown(directive, argument));
    }
    Ok(())
}

/// The parameters of `learn`, as far as they were read.
#[derive(Default)]
struct LearnDraft {
    create: Vec<VariableId>,
    lookup: Vec<VariableId>,
    zone: Option<(Bytes, u64)>,
    timeout_ms: Option<u64>,
    when: Option<LearnWhen>,
}

fn read_learn(load: &mut Load, directive: &Directive) -> Result<Parts, Error> {
    let mut draft = LearnDraft::default();
    for argument in &directive.args[1..] {
        draft.read(load, directive, argument)?;
    }
    for (variables, name) in [(&draft.lookup, "lookup"), (&draft.create, "create")] {
        if variables.is_empty() {
            return Err(directive.reject(&format!("\"{name}\" parameter is not specified")));
        }
    }
    let Some((name, bytes)) = draft.zone else {
        return Err(directive.reject("\"zone\" parameter is not specified"));
    };
    let learn = Learn {
        create: draft.create,
        zone: declare(load, directive, &name, bytes)?,
        timeout_quarters: draft.timeout_ms.unwrap_or(TIMEOUT_MS).div_ceil(250),
        when: draft.when.unwrap_or(LearnWhen::AtEnd),
    };
    Ok((draft.lookup, Kind::Learn(learn)))
}

impl LearnDraft {
    fn read(&mut self, load: &mut Load, directive: &Directive, argument: &Bytes) -> Result<(), Error> {
        let mut named = |name: &[u8], parameter: &str| match name.strip_prefix(b"$") {
            Some(name) => variable(load, directive, name),
            None => Err(directive.reject(&format!("missing variable in the \"{parameter}\" parameter"))),
        };
        if let Some(zone) = argument.strip_prefix(b"zone=") {
            if self.zone.is_some() {
                return Err(directive.reject("duplicate zone"));
            }
            self.zone = Some(zone_and_size(directive, argument, zone)?);
        } else if let Some(time) = argument.strip_prefix(b"timeout=") {
            if self.timeout_ms.is_some() {
                return Err(directive.reject("duplicate timeout"));
            }
            let time = units::parse_msec(time).filter(|time| !time.is_zero());
            let time = time.ok_or_else(|| directive.reject("invalid timeout"))?;
            self.timeout_ms = Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        } else if let Some(name) = argument.strip_prefix(b"create=") {
            self.create.push(named(name, "create")?);
        } else if let Some(name) = argument.strip_prefix(b"lookup=") {
            self.lookup.push(named(name, "lookup")?);
        } else if argument == "header" {
            self.when = Some(LearnWhen::AtHead);
        } else {
            return Err(unknown(directive, argument));
        }
        Ok(())
    }
}

fn zone_and_size(directive: &Directive, argument: &Bytes, zone: &[u8]) -> Result<(Bytes, u64), Error> {
    let colon = zone.iter().position(|&byte| byte == b':');
    let colon = colon.ok_or_else(|| directive.reject("zone size is not specified"))?;
    if colon == 0 {
        return Err(directive.reject("zone name is not specified"));
    }
    let bytes = units::parse_size(&zone[colon + 1..]);
    match bytes.ok_or_else(|| directive.reject("invalid zone size"))? {
        bytes if bytes < ZONE_MIN_BYTES => Err(directive.reject("zone is too small")),
        bytes => Ok((argument.slice_ref(&zone[..colon]), bytes)),
    }
}

/// The zone of the sessions of one group, and of no other.
fn declare(load: &mut Load, directive: &Directive, name: &Bytes, bytes: u64) -> Result<Arc<Zone>, Error> {
    let zones = load.environment().services.find::<Arc<Zones>>().cloned();
    let zones = zones.ok_or_else(|| Error::unplaced("no shared memory zones"))?;
    let zone = zones.declare(name, bytes, "upstream_sticky").map_err(|text| directive.error(text))?;
    if let Some(host) = user_of(load, &zone) {
        let parts: [&dyn AsRef<[u8]>; 5] =
            [&"sticky zone \"", name, &"\" is already used in upstream \"", &host, &"\""];
        return Err(directive.error(message(&parts)));
    }
    let host = open_host(load);
    let label = host.clone();
    zone.when_opened(move |zone| {
        zone.check_label(&label).map_err(|previous| {
            let parts: [&dyn AsRef<[u8]>; 7] = [
                &"sticky zone \"",
                &zone.name(),
                &"\" is used in upstream \"",
                &label,
                &"\" while previously it was used in upstream \"",
                &previous,
                &"\"",
            ];
            message(&parts)
        })
    });
    Ok(zone)
}

/// The group whose sessions are in a zone already.
fn user_of(load: &mut Load, zone: &Arc<Zone>) -> Option<Bytes> {
    let drafts = &load.main(&UPSTREAMS_CONF).drafts;
    let uses = |sticky: &Sticky| matches!(&sticky.kind, Kind::Learn(learn) if Arc::ptr_eq(&learn.zone, zone));
    let sticky =
        |draft: &&GroupDraft| draft.block.as_ref().and_then(|block| block.sticky.as_ref()).is_some_and(uses);
    drafts.iter().find(sticky).map(|draft| draft.host.clone())
}

/// The group whose block is being read.
fn open_host(load: &mut Load) -> Bytes {
    let conf = load.main(&UPSTREAMS_CONF);
    conf.drafts[*conf.open].host.clone()
}
