//! How arguments become values, where it takes more than a line.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::error::{message, printed};
use clearway_conf::{Directive, Error, Pos, Scope};
use clearway_http::regex::{Case, Regex};
use clearway_http::temp_paths::{self, TempPath, TempPaths};
use clearway_http::{ConfKey, Load, Setting, Value, WantedRights};

use crate::settings::cache::Keeping;
use crate::settings::gateway::{Param, ParamForm, ServerSaid};
use crate::settings::pass::{Bind, BindAddress, BindForm, PassConf, StoreAt, parse_local};
use crate::upstreams;

/// Where a setting is at the level that is read.
pub(super) type SettingPlace<T> = fn(&mut Load) -> &mut Setting<T>;

/// A value that may have variables in it.
pub(super) fn compile(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    text: &Bytes,
) -> Result<Value, Error> {
    scope.conf.variables.compile(text, &directive.pos)
}

/// `invalid parameter "X"`.
pub(super) fn invalid_parameter(directive: &Directive, text: &[u8]) -> Error {
    directive.error(message(&[&"invalid parameter \"", &printed(text), &"\""]))
}

/// Adds a name to a list.
pub(super) fn read_name(directive: &Directive, names: &mut Setting<Vec<Bytes>>) -> Result<(), Error> {
    names.here().push(directive.args[0].clone());
    Ok(())
}

/// An expression, whose named groups become variables.
pub(super) fn read_regex(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    pattern: &[u8],
    case: Case,
) -> Result<Regex, Error> {
    let mut regex = Regex::compile(pattern, case).map_err(|error| directive.error(error.to_string()))?;
    scope.conf.bind_names(&mut regex).map_err(|text| directive.error(text))?;
    Ok(regex)
}

/// A text with variables, once at a level.
pub(super) fn read_value(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Option<Value>>,
) -> Result<(), Error> {
    if place(scope.conf).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let value = compile(scope, directive, &directive.args[0])?;
    place(scope.conf).set(Some(value));
    Ok(())
}

/// Reads a rate, which is a size.
pub(super) fn read_rate(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Option<Value>>,
) -> Result<(), Error> {
    read_value(scope, directive, place)?;
    let has_variables = place(scope.conf).as_ref().is_some_and(|value| value.as_literal().is_none());
    if has_variables { Ok(()) } else { directive.size(0).map(drop) }
}

/// `…_bind`
pub(super) fn read_bind(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Option<Arc<Bind>>>,
) -> Result<(), Error> {
    if place(scope.conf).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let text = &directive.args[0];
    if text == "off" && directive.args.len() == 1 {
        place(scope.conf).set(None);
        return Ok(());
    }
    let value = compile(scope, directive, text)?;
    let address = match value.as_literal() {
        Some(literal) => BindAddress::Fixed(
            parse_local(literal)
                .ok_or_else(|| directive.error(message(&[&"invalid address \"", text, &"\""])))?,
        ),
        None => BindAddress::Evaluated(value),
    };
    let form = match directive.args.get(1).map(|word| &word[..]) {
        None => BindForm::Own,
        Some(b"transparent") => BindForm::Transparent,
        Some(word) => return Err(invalid_parameter(directive, word)),
    };
    if form == BindForm::Transparent
        && let Some(rights) = scope.conf.environment().services.find::<WantedRights>()
    {
        rights.want_foreign_addresses();
    }
    place(scope.conf).set(Some(Arc::new(Bind { address, form })));
    Ok(())
}

/// `…_param`
pub(super) fn read_param(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Vec<Param>>,
) -> Result<(), Error> {
    let form = match directive.args.get(2).map(|word| &word[..]) {
        None => ParamForm::Always,
        Some(b"if_not_empty") => ParamForm::IfNotEmpty,
        Some(word) => return Err(invalid_parameter(directive, word)),
    };
    let value = compile(scope, directive, &directive.args[1])?;
    place(scope.conf).here().push(Param { name: directive.args[0].clone(), value, form });
    Ok(())
}

/// The default of `HTTP_HOST`.
pub(super) fn host_param(load: &mut Load) -> Result<Value, Error> {
    load.variables.compile(&Bytes::from_static(b"$host$is_request_port$request_port"), &Pos::command_line())
}

/// An address, behind so many bytes, or variables.
pub(super) fn read_server(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    skipped: usize,
) -> Result<ServerSaid, Error> {
    let text = &directive.args[0];
    let value = compile(scope, directive, text)?;
    if value.as_literal().is_none() {
        return Ok(ServerSaid::Evaluated(value));
    }
    let address = text.slice(skipped..);
    upstreams::reference_bare(scope.conf, directive, &address).map(ServerSaid::Fixed)
}

/// `…_temp_path`
pub(super) fn read_temp_path(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    place: SettingPlace<Option<Arc<TempPath>>>,
) -> Result<(), Error> {
    if place(scope.conf).is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let environment = scope.conf.environment();
    let path = TempPath::read(&environment.prefix, directive)?;
    if let Some(paths) = environment.services.find::<TempPaths>() {
        paths.declare(path.clone())?;
    }
    place(scope.conf).set(Some(Arc::new(path)));
    Ok(())
}

/// `…_store`
pub(super) fn read_store(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    family: &str,
    place: fn(&mut Load) -> &mut Keeping,
) -> Result<(), Error> {
    let keeping = place(scope.conf);
    if keeping.store.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    let has_cache = keeping.cache.is_here() && keeping.cache.is_some();
    let store = match &directive.args[0][..] {
        b"off" => None,
        b"" => return Err(directive.error("empty path")),
        _ if has_cache => {
            return Err(directive.reject(&format!("is incompatible with \"{family}_cache\"")));
        }
        b"on" => Some(StoreAt::Root),
        _ => Some(StoreAt::Path(compile(scope, directive, &directive.args[0])?)),
    };
    place(scope.conf).store.set(store);
    Ok(())
}

/// Requests may go to servers with TLS.
pub(super) fn use_tls(pass: &mut PassConf) {
    #[cfg(feature = "tls")]
    pass.tls.used.set(());
    #[cfg(not(feature = "tls"))]
    let _ = pass;
}

/// Every location has a directory for responses, if only the default one.
pub(super) fn complete_temp_paths(
    load: &mut Load,
    key: &'static ConfKey<PassConf>,
    default: &str,
) -> Result<(), Error> {
    let paths = load.environment().services.find::<TempPaths>().cloned();
    let settings = load.all_locations(key).map(|conf| &mut conf.temp_path);
    temp_paths::complete(settings, Path::new(default), paths.as_ref())
}
