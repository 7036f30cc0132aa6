//! `server` in an `upstream` block.

use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Scope};
use clearway_http::Load;
use clearway_net::listen::AddrError;
use clearway_net::url::{Names, Url, UrlKind, UrlPath, UrlRules, parse_url};

use crate::upstreams::draft::{Unresolved, block, unresolved};
use crate::upstreams::line::{DEFAULT_PORT, Lookup, Parameters, Ranks, Resolved, ServerDraft};

pub(crate) fn read_server(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let name = &directive.args[0];
    let mut parameters = Parameters::of(name);
    let ranks = block(scope.conf).method.ranks();
    for argument in &directive.args[1..] {
        let is_limited = argument == "backup" || argument.starts_with(b"slow_start=");
        if is_limited && ranks == Ranks::Refused {
            let text =
                message(&[&"balancing method does not support parameter \"", &printed(argument), &"\""]);
            return Err(directive.error(text));
        }
        parameters.read(argument).map_err(|text| directive.error(text))?;
    }
    let unresolved = unresolved(scope.conf);
    let server = complete(parameters, scope.conf, directive, unresolved)?;
    block(scope.conf).servers.push(server);
    Ok(())
}

/// Reads the address, and finds out where it leads.
fn complete(
    parameters: Parameters,
    load: &Load,
    directive: &Directive,
    unresolved: Unresolved,
) -> Result<ServerDraft, Error> {
    let Parameters { mut server, resolve, service } = parameters;
    let name = server.name.clone();
    let refuse = |kind: &str, why: &str| {
        directive.error(message(&[&kind, &" upstream \"", &printed(&name), &"\" ", &why]))
    };
    if service.is_some() && resolve == Resolved::AtLoad {
        return Err(refuse("service", "requires \"resolve\" parameter"));
    }
    let system = load.resolver();
    let names = match resolve {
        Resolved::AtLoad => Names::Resolved(&*system),
        Resolved::WhileServing => Names::Kept,
    };
    let rules = UrlRules { default_port: DEFAULT_PORT, path: UrlPath::Refused, names };
    let mut url = parse_url(&name, rules);
    let mut when = resolve;
    if url == Err(AddrError::HostNotFound) && unresolved == Unresolved::Resolved {
        url = parse_url(&name, UrlRules { names: Names::Kept, ..rules });
        when = Resolved::WhileServing;
    }
    let url: Url = url.map_err(|error| {
        directive.error(message(&[&error.to_string(), &" in upstream \"", &printed(&name), &"\""]))
    })?;
    if service.is_some() && (url.kind == UrlKind::Unix || url.port_text.is_some()) {
        return Err(refuse("service", "may not have port"));
    }
    if service.is_some() && !url.addresses.is_empty() {
        return Err(refuse("service", "requires domain name"));
    }
    if when == Resolved::WhileServing && url.addresses.is_empty() {
        let is_late = resolve == Resolved::AtLoad;
        server.lookup = Some(Lookup { host: name.slice(url.host), port: url.port, service, is_late });
    }
    server.addresses = url.addresses;
    Ok(server)
}
