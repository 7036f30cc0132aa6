//! `health_check`, and `match` with the tests that an answer has to pass.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::regex::{Case, Regex};
use clearway_http::{Load, LocationId, Module, Value, VariableNames, context};

use crate::settings::gateway::{FASTCGI, MEMCACHED, SCGI, ServerSaid, UWSGI};
use crate::settings::health::{
    Aim, Asks, BodyTest, Check, First, HEALTH, HeaderRule, HeaderTest, Rhythm, Sense, StatusTest, Tests,
};
use crate::settings::proxy::{PROXY, Target};
use crate::upstreams::GroupRef;

/// The module.
pub static HEALTH_MODULE: Module = Module {
    name: "upstream_hc",
    directives: DIRECTIVES,
    confs: &[&HEALTH],
    finish: Some(finish),
    ..Module::EMPTY
};

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "health_check",
        contexts: context::LOCATION,
        args: Args::ANY,
        syntax: "health_check [interval=TIME] [jitter=TIME] [fails=N] [passes=N] [uri=URI] [mandatory \
                 [persistent]] [match=NAME] [port=N] [keepalive_time=TIME]",
        default: "",
        doc: "Asks each server of the location's group, which needs a `zone`, from time to time: that of \
              `proxy_pass`, `fastcgi_pass`, `scgi_pass`, `uwsgi_pass` or `memcached_pass`. One that does not \
              answer as it should gets no requests until it does; where several locations ask the servers of \
              one group, none may find fault. Servers are asked as they are for a client of the location \
              (its timeouts, TLS, header lines and parameters), by a request of the server's own: `GET` of \
              `uri`. `set` and `rewrite` of its server and location are carried out for it, and most \
              variables about a client are empty.\n\n\
              * `interval` (5 s) and `jitter` (0): how often, and by how much later each time by chance.\n\
              * `fails` (1), `passes` (1): after how many in a row a server is unhealthy, or healthy again.\n\
              * `uri` (`/`), `port`: what it is asked for, and where if not where requests go.\n\
              * `mandatory`: no requests before the first check; with `persistent` only for servers that \
              were not healthy before a reload.\n\
              * `keepalive_time` (0): for so long one connection serves for several questions.\n\
              * `match`: what the answer has to be like, see there. Otherwise its status is 2xx or 3xx.",
        example: "
            upstream backend {
                zone backend 64k;
                server 127.0.0.1:8081 slow_start=30s;
                server 127.0.0.1:8082 slow_start=30s;
            }
            match welcome {
                status 200;
                header Content-Type = text/html;
                body ~ \"Welcome\";
            }
            server {
                location / {
                    proxy_pass http://backend;
                    health_check interval=2s fails=3 passes=2 uri=/health match=welcome;
                }
            }",
        see: &["match", "zone", "proxy_pass", "fastcgi_pass", "server"],
        handler: read_check,
    },
    Spec {
        name: "match",
        contexts: context::HTTP,
        args: Args::TAKE1.or(Args::BLOCK),
        syntax: "match NAME { … }",
        default: "",
        doc: "Names conditions for `health_check`: an answer has to meet all that stand in the block.\n\n* \
              `status 200;`, `status 200 300-399;`, `status ! 500-599;`\n* `header NAME;` (there is one), \
              `header ! NAME;` (there is none), `header NAME = VALUE;`, `!=`, `~` and `!~` with an \
              expression: there is one with such a value.\n* `body ~ EXPRESSION;`, `body !~ EXPRESSION;`: \
              of its first 256 KiB.\n* `require $VARIABLE …;`: none of them is empty or `0`, with the \
              answer known (`$upstream_http_…`, a `map` of it).",
        example: "
            match well {
                status 200-399;
                header ! X-Maintenance;
                body !~ \"maintenance mode\";
            }
            upstream backend {
                zone backend 64k;
                server 127.0.0.1:8081;
            }
            server {
                location / {
                    proxy_pass http://backend;
                    health_check match=well;
                }
            }",
        see: &["health_check"],
        handler: read_match,
    },
];

fn read_check(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let place = scope.conf.place().ok_or_else(|| directive.reject("is not allowed here"))?;
    if scope.conf.main(&HEALTH).checks.iter().any(|known| known.place == place) {
        return Err(directive.reject("is duplicate"));
    }
    let mut check = Check {
        pos: directive.pos.clone(),
        rhythm: Rhythm { interval_ms: 5000, jitter_ms: 0, fails: 1, passes: 1 },
        uri: Bytes::from_static(b"/"),
        port: None,
        first: First::Healthy,
        keepalive_ms: None,
        tests_name: None,
        place,
        aim: OnceLock::new(),
        tests: OnceLock::new(),
    };
    for argument in &directive.args {
        if read_parameter(&mut check, argument).is_none() {
            return Err(directive.error(message(&[&"invalid parameter \"", &printed(argument), &"\""])));
        }
    }
    scope.conf.main(&HEALTH).checks.push(Arc::new(check));
    Ok(())
}

/// `None`: it is none, or says nothing that can be.
fn read_parameter(check: &mut Check, argument: &Bytes) -> Option<()> {
    let (name, value) = match argument.iter().position(|&byte| byte == b'=') {
        Some(at) => (&argument[..at], argument.slice(at + 1..)),
        None => (&argument[..], Bytes::new()),
    };
    let time_ms = || units::parse_msec(&value).and_then(|time| u64::try_from(time.as_millis()).ok());
    let number = || units::parse_number(&value).and_then(|number| u32::try_from(number).ok());
    let count = || number().filter(|&number| number > 0);
    match name {
        b"interval" => check.rhythm.interval_ms = time_ms().filter(|&ms| ms > 0)?,
        b"jitter" => check.rhythm.jitter_ms = time_ms()?,
        b"keepalive_time" => check.keepalive_ms = Some(time_ms().filter(|&ms| ms > 0)?),
        b"fails" => check.rhythm.fails = count()?,
        b"passes" => check.rhythm.passes = count()?,
        b"uri" if value.starts_with(b"/") && !value.iter().any(|&byte| byte <= b' ' || byte == 127) => {
            check.uri = value;
        }
        b"port" => check.port = Some(u16::try_from(count()?).ok()?),
        b"match" if !value.is_empty() => check.tests_name = Some(value),
        b"mandatory" if argument.len() == name.len() => check.first = First::Checking,
        b"persistent" if argument.len() == name.len() && check.first == First::Checking => {
            check.first = First::AsBefore;
        }
        _ => return None,
    }
    Some(())
}

fn read_match(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = directive.args[0].clone();
    let known = &scope.conf.main(&HEALTH).tests;
    if known.iter().any(|(known, _)| *known == name) {
        return Err(directive.error(message(&[&"duplicate match \"", &printed(&name), &"\""])));
    }
    let mut tests = Tests::default();
    if let Some(block) = directive.block() {
        let names = &mut scope.conf.variables;
        block.entries(&mut |line| read_test((&mut tests, names), line))?;
    }
    scope.conf.main(&HEALTH).tests.push((name, Arc::new(tests)));
    Ok(())
}

fn read_test((tests, variables): (&mut Tests, &mut VariableNames), line: &Directive) -> Result<(), Error> {
    let arguments: Vec<&[u8]> = line.args.iter().map(|argument| &argument[..]).collect();
    match (&line.name[..], &arguments[..]) {
        (b"status", [b"!", ranges @ ..]) if !ranges.is_empty() => {
            tests.statuses.push(StatusTest { sense: Sense::IsNot, ranges: read_ranges(line, ranges)? });
        }
        (b"status", ranges) if !ranges.is_empty() => {
            tests.statuses.push(StatusTest { sense: Sense::Is, ranges: read_ranges(line, ranges)? });
        }
        (b"header", [b"!", name]) => tests.headers.push(header(name, HeaderRule::Absent)),
        (b"header", [name]) => tests.headers.push(header(name, HeaderRule::Present)),
        (b"header", [name, operator, value]) => {
            let rule = match *operator {
                b"=" => HeaderRule::Value(Sense::Is, Bytes::copy_from_slice(value)),
                b"!=" => HeaderRule::Value(Sense::IsNot, Bytes::copy_from_slice(value)),
                b"~" => HeaderRule::Pattern(Sense::Is, compile(line, value)?),
                b"!~" => HeaderRule::Pattern(Sense::IsNot, compile(line, value)?),
                _ => return Err(invalid(line, operator)),
            };
            tests.headers.push(header(name, rule));
        }
        (b"body", [operator @ (b"~" | b"!~"), pattern]) => {
            let sense = if *operator == b"~" { Sense::Is } else { Sense::IsNot };
            tests.bodies.push(BodyTest { sense, pattern: compile(line, pattern)? });
        }
        (b"require", [_, ..]) => {
            for name in &line.args {
                tests.required.push(read_required(variables, line, name)?);
            }
        }
        (b"status" | b"header" | b"body" | b"require", _) => {
            return Err(line.error(message(&[
                &"invalid number of arguments in \"",
                &printed(&line.name),
                &"\" directive",
            ])));
        }
        _ => return Err(line.error(message(&[&"unknown directive \"", &printed(&line.name), &"\""]))),
    }
    Ok(())
}

/// `$name`, and nothing beside it.
fn read_required(
    variables: &mut VariableNames,
    line: &Directive,
    text: &Bytes,
) -> Result<(Box<str>, Value), Error> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let name = text.strip_prefix(b"$").filter(|name| !name.is_empty() && name.iter().all(is_word));
    if name.is_none() {
        return Err(line.error(message(&[&"invalid variable name \"", &printed(text), &"\""])));
    }
    let value = variables.compile(text, &line.pos)?;
    Ok((String::from_utf8_lossy(text).into(), value))
}

fn header(name: &[u8], rule: HeaderRule) -> HeaderTest {
    HeaderTest { name: Bytes::copy_from_slice(name), rule }
}

fn compile(line: &Directive, pattern: &[u8]) -> Result<Regex, Error> {
    Regex::compile(pattern, Case::Sensitive).map_err(|error| line.error(error.to_string()))
}

fn invalid(line: &Directive, argument: &[u8]) -> Error {
    line.error(message(&[&"invalid parameter \"", &printed(argument), &"\""]))
}

/// `200` and `300-399`.
fn read_ranges(line: &Directive, ranges: &[&[u8]]) -> Result<Vec<(u16, u16)>, Error> {
    let number = |text: &[u8]| {
        let number = units::parse_number(text).and_then(|number| u16::try_from(number).ok());
        number.filter(|number| (100..1000).contains(number))
    };
    let range = |text: &&[u8]| {
        let read = match text.iter().position(|&byte| byte == b'-') {
            None => number(text).map(|one| (one, one)),
            Some(at) => number(&text[..at]).zip(number(&text[at + 1..])),
        };
        read.filter(|(from, to)| from <= to).ok_or_else(|| invalid(line, text))
    };
    ranges.iter().map(range).collect()
}

/// Connects checks with other directives.
fn finish(load: &mut Load) -> Result<(), Error> {
    let checks = Vec::clone(&load.main(&HEALTH).checks);
    for check in &checks {
        let aim = aim_of(check, load)?;
        let _ = check.aim.set(aim);
        let tests = match &check.tests_name {
            None => None,
            Some(name) => {
                let found = load.main(&HEALTH).tests.iter().find(|(known, _)| known == name);
                let unknown = || message(&[&"unknown match \"", &printed(name), &"\""]);
                Some(Arc::clone(&found.ok_or_else(|| Error::new(unknown(), &check.pos))?.1))
            }
        };
        let _ = check.tests.set(tests);
    }
    Ok(())
}

fn aim_of(check: &Check, load: &Load) -> Result<Aim, Error> {
    let refuse = |text: Vec<u8>| Error::new(text, &check.pos);
    let (protocol, directive, found) = target_of(check.place.1, load).ok_or_else(|| {
        let families =
            "\"proxy_pass\", \"fastcgi_pass\", \"scgi_pass\", \"uwsgi_pass\" or \"memcached_pass\"";
        refuse(message(&[&"\"health_check\" requires ", &families, &" in its location"]))
    })?;
    let Some(reference) = found else {
        let text = message(&[&"\"health_check\" requires \"", &directive, &"\" without variables"]);
        return Err(refuse(text));
    };
    let group = reference.group();
    if !group.is_in_zone() {
        let name = group.name();
        let text = message(&[&"health checks require upstream \"", &name, &"\" to be in shared memory"]);
        return Err(refuse(text));
    }
    let group_name = String::from_utf8_lossy(group.name()).into();
    Ok(Aim { group: reference.downgrade(), group_name, protocol })
}

/// The way in which a location passes requests on, and its group, unless variables name that.
fn target_of(location: LocationId, load: &Load) -> Option<(Asks, &'static str, Option<&GroupRef>)> {
    if let Some(target) = load.of_location(location, &PROXY).target.get() {
        let group = match &**target {
            Target::Fixed(fixed) => Some(&fixed.group),
            Target::Evaluated(_) => None,
        };
        return Some((Asks::Http, "proxy_pass", group));
    }
    if let Some(said) = load.of_location(location, &FASTCGI).target.get() {
        return Some((Asks::FastCgi, "fastcgi_pass", fixed(said)));
    }
    if let Some(said) = load.of_location(location, &SCGI).target.get() {
        return Some((Asks::Scgi, "scgi_pass", fixed(said)));
    }
    if let Some(server) = load.of_location(location, &UWSGI).target.get() {
        return Some((Asks::Uwsgi, "uwsgi_pass", fixed(&server.said)));
    }
    let server = load.of_location(location, &MEMCACHED).target.get()?;
    Some((Asks::Memcached, "memcached_pass", Some(&server.group)))
}

fn fixed(said: &ServerSaid) -> Option<&GroupRef> {
    match said {
        ServerSaid::Fixed(group) => Some(group),
        ServerSaid::Evaluated(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clearway_conf::{Loader, Memory};
    use clearway_h1::ResponseParser;

    use super::*;
    use crate::settings::health::Answered;

    fn tests_of(text: &str) -> Result<Tests, String> {
        let mut tests = Tests::default();
        let path = Path::new("nginx.conf");
        let source = Memory::new().with(path, text.to_owned());
        let block = Loader::new(&source, path).file(path);
        let mut names = VariableNames::default();
        let read = block.entries(&mut |line| read_test((&mut tests, &mut names), line));
        read.map(|()| tests).map_err(|error| error.to_string())
    }

    /// The mistake in an answer.
    fn fault(tests: &str, answer: &str) -> Option<&'static str> {
        let mut parser = ResponseParser::default();
        parser.parse(answer.as_bytes(), 4096).expect("a response");
        let (head, body) = answer.as_bytes().split_at(parser.len());
        let status = parser.status();
        let lines = parser.take_lines();
        let tests = tests_of(tests).expect("they can be read");
        tests.find_fault(&Answered { status, head, lines: &lines, body })
    }

    #[test]
    fn an_answer_passes_all_tests_or_fails() {
        let answer = "HTTP/1.1 203 Fine\r\nX-Well: yes\r\nX-Well: very\r\n\r\nall is fine";
        for (tests, expected) in [
            ("", None),
            ("status 203;", None),
            ("status 200 300-399;", Some("status")),
            ("status 200-204 400;", None),
            ("status ! 500-599 404;", None),
            ("status ! 200-299;", Some("status")),
            ("header x-well;", None),
            ("header X-Ill;", Some("header")),
            ("header ! X-Ill;", None),
            ("header ! X-Well;", Some("header")),
            ("header X-Well = very;", None),
            ("header X-Well = no;", Some("header")),
            ("header X-Well != yes;", None),
            ("header X-Ill != yes;", Some("header")),
            ("header X-Well ~ ^ve;", None),
            ("header X-Well ~ ^no;", Some("header")),
            ("header X-Well !~ e;", Some("header")),
            ("body ~ fine$;", None),
            ("body !~ maintenance;", None),
            ("body !~ fine;", Some("body")),
            ("status 203; header X-Well; body ~ bad;", Some("body")),
        ] {
            assert_eq!(fault(tests, answer), expected, "{tests}");
        }
    }

    #[test]
    fn what_is_no_test_is_refused() {
        for (text, said) in [
            ("status;", "invalid number of arguments in \"status\" directive"),
            ("status !;", "invalid parameter \"!\""),
            ("status 99;", "invalid parameter \"99\""),
            ("status 300-200;", "invalid parameter \"300-200\""),
            ("header A > b;", "invalid parameter \">\""),
            ("body fine;", "invalid number of arguments in \"body\" directive"),
            ("body ~ (;", "pcre2_compile() failed"),
            ("require;", "invalid number of arguments in \"require\" directive"),
            ("require $a b;", "invalid variable name \"b\""),
            ("require $;", "invalid variable name \"$\""),
            ("require $a$b;", "invalid variable name \"$a$b\""),
            ("request $a;", "unknown directive \"request\""),
        ] {
            let error = tests_of(text).expect_err(text);
            assert!(error.contains(said), "{error}");
        }
    }
}
