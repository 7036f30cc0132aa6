//! Values that code computes in the place of a `set`, between the other directives of the rewrite module. The
//! crate that has the code gives them to the module that has the directives; neither knows the other.

use std::future::Future;
use std::pin::Pin;

use clearway_conf::{Directive, Error, Scope};

use super::{Exchange, Step};
use crate::tables::Load;

/// Computes what a variable is set to.
pub trait Script: Send + Sync {
    /// Called in the request's task when it is the directive's turn. What comes out is the value, or what the
    /// request ends with.
    fn run<'e>(&'e self, exchange: &'e mut Exchange<'_, '_>) -> ScriptWait<'e>;
}

/// A value that is being computed.
pub type ScriptWait<'e> = Pin<Box<dyn Future<Output = Result<Vec<u8>, Step<'static>>> + Send + 'e>>;

/// Has a script set the variable of this name (without `$`) in its place among the directives of a level.
///
/// # Errors
/// A name that cannot be set.
pub type AppendScript =
    fn(&mut Scope<'_, Load>, &Directive, name: &[u8], Box<dyn Script>) -> Result<(), Error>;

/// The function that appends scripts, among the services that a configuration is loaded with.
#[derive(Clone, Copy)]
pub struct Scripts(pub AppendScript);
