//! The `*_types` directives: which types of responses a filter is for. Read at load; asked on loops.

use std::sync::Arc;

use clearway_conf::error::message;
use clearway_conf::{Directive, Error};
use clearway_http::Setting;

/// A set of MIME types.
#[derive(Clone, Debug)]
pub(crate) enum TypeSet {
    /// `*`
    Any,
    /// These, in lower case.
    Listed(Arc<Vec<Box<[u8]>>>),
}

impl Default for TypeSet {
    fn default() -> Self {
        Self::Listed(Arc::default())
    }
}

impl TypeSet {
    /// The set of a list.
    pub(crate) fn of(types: &[&str]) -> Self {
        Self::Listed(Arc::new(types.iter().map(|name| name.as_bytes().into()).collect()))
    }

    /// Whether a `Content-Type` without parameters is in it.
    pub(crate) fn contains(&self, content_type: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(types) => types.iter().any(|name| name.eq_ignore_ascii_case(content_type)),
        }
    }

    /// Whether the set has the type of a response; a missing type is in the set of all.
    pub(crate) fn contains_type(&self, content_type: Option<&[u8]>) -> bool {
        match content_type.filter(|text| !text.is_empty()) {
            Some(content_type) => self.contains(content_type),
            None => matches!(self, Self::Any),
        }
    }

    /// Adds the arguments of a directive; one type is in each set that is not the default. Returns the
    /// warnings about types that are in it already.
    pub(crate) fn read(directive: &Directive, setting: &mut Setting<Self>, always: &str) -> Vec<Error> {
        if !setting.is_here() {
            setting.set(Self::of(&[always]));
        }
        let mut warnings = Vec::new();
        for argument in &directive.args {
            let Self::Listed(types) = setting.here() else { break };
            if argument == "*" {
                setting.set(Self::Any);
                break;
            }
            let name: Box<[u8]> = argument.to_ascii_lowercase().into();
            if types.contains(&name) {
                warnings.push(directive.error(message(&[&"duplicate MIME type \"", &name, &"\""])));
            } else {
                Arc::make_mut(types).push(name);
            }
        }
        warnings
    }
}
