//! A value of the configuration that an enclosing level may supply. Written at boot by directive
//! handlers and by merging; read by loops afterwards without any decision left to make.

use std::ops::Deref;
use std::time::Duration;

use clearway_conf::{Directive, Error};

/// A directive's value at one level: its default until the directive or an enclosing level says more.
#[derive(Clone, Debug)]
pub struct Setting<T> {
    value: T,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Default,
    Enclosing,
    Here,
}

impl<T> Setting<T> {
    /// Holds what applies when no level has the directive.
    pub const fn new(default: T) -> Self {
        Self { value: default, origin: Origin::Default }
    }

    /// What a level around all of these says.
    pub const fn enclosing(value: T) -> Self {
        Self { value, origin: Origin::Enclosing }
    }

    /// Whether the directive stands at this very level.
    pub fn is_here(&self) -> bool {
        self.origin == Origin::Here
    }

    /// Whether this level or an enclosing one has the directive.
    pub fn is_set(&self) -> bool {
        self.origin != Origin::Default
    }

    /// What the directive at this level says.
    pub fn set(&mut self, value: T) {
        *self = Self { value, origin: Origin::Here };
    }

    /// For directives that may be repeated at one level: the value to add to, emptied of the default
    /// when the directive stands here for the first time.
    pub fn here(&mut self) -> &mut T
    where
        T: Default,
    {
        if !self.is_here() {
            self.set(T::default());
        }
        &mut self.value
    }
}

impl<T: Clone> Setting<T> {
    /// Takes the enclosing level's value unless this level has its own.
    pub fn merge(&mut self, parent: &Self) {
        if !self.is_here() && parent.is_set() {
            self.value = parent.value.clone();
            self.origin = Origin::Enclosing;
        }
    }
}

impl<T: Default> Default for Setting<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// Sets what may be set once per level.
pub fn set<T>(
    directive: &Directive,
    setting: &mut Setting<T>,
    parse: impl FnOnce(&Directive) -> Result<T, Error>,
) -> Result<(), Error> {
    if setting.is_here() {
        return Err(directive.reject("is duplicate"));
    }
    setting.set(parse(directive)?);
    Ok(())
}

/// The first argument as a time in milliseconds.
pub fn msec(directive: &Directive) -> Result<u64, Error> {
    directive.msec(0).map(millis)
}

/// A time in milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_value_wins_then_the_enclosing_one_then_the_default() {
        let mut http = Setting::new(75);
        let mut server = Setting::new(75);
        let mut location = Setting::new(75);
        http.set(10);
        location.set(5);
        server.merge(&http);
        location.merge(&server);
        assert_eq!((*server, *location), (10, 5));
        assert!(server.is_set() && !server.is_here() && location.is_here());
    }

    #[test]
    fn a_repeated_directive_adds_to_its_own_level_only() {
        let mut outer: Setting<Vec<u8>> = Setting::default();
        outer.here().push(1);
        outer.here().push(2);
        let mut inner: Setting<Vec<u8>> = Setting::default();
        inner.merge(&outer);
        assert_eq!(*inner, [1, 2]);
        inner.here().push(3);
        assert_eq!(*inner, [3]);
    }
}
