//! `env`: which variables of its environment the worker keeps, and which it gets.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Where the value of a variable comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// The value comes from the environment of the process that was started; if the variable is absent there,
    /// it is absent.
    Inherited,
    /// The value comes from the directive.
    Given(OsString),
}

/// One `env`.
pub(super) type EnvSpec = (OsString, EnvValue);

pub(super) fn read(argument: &[u8]) -> EnvSpec {
    match argument.iter().position(|byte| *byte == b'=') {
        Some(end) => {
            let value = OsStr::from_bytes(&argument[end + 1..]).to_owned();
            (OsStr::from_bytes(&argument[..end]).to_owned(), EnvValue::Given(value))
        }
        None => (OsString::from_vec(argument.to_vec()), EnvValue::Inherited),
    }
}

/// The time zone is kept whatever the directives say.
pub(super) fn environment(specs: &[EnvSpec]) -> Vec<EnvSpec> {
    let mut all = specs.to_vec();
    if !specs.iter().any(|(name, _)| name == "TZ") {
        all.push((OsString::from("TZ"), EnvValue::Inherited));
    }
    all
}
