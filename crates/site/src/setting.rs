//! Values of the configuration and how levels inherit them. What a module is told at a level is declared
//! once with [`settings!`](crate::settings): the type of a field is its rule of inheritance, so there is no
//! list of merges beside the fields from which one could be missing. Written at boot by directive handlers
//! and by merging; read by loops afterwards without any decision left to make.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use clearway_conf::{Directive, Error};

/// How a level takes from the one around it what it leaves open. Enclosing levels are merged first.
pub trait Merge {
    /// For a level of its own.
    fn merge(&mut self, parent: &Self);

    /// For the block of an `if`, which also has what answers in the location around it.
    fn merge_if(&mut self, parent: &Self) {
        self.merge(parent);
    }

    /// For the block of a `limit_except`, which also has where the location around it passes requests to.
    fn merge_limited(&mut self, parent: &Self) {
        self.merge(parent);
    }
}

/// A directive's value at one level: its default until the directive or an enclosing level says more.
///
/// nginx's `ngx_conf_merge_value` and its kin. A list or several values that are inherited as a whole, or not
/// at all where any of them stands here, are one `Setting` of a type of their own, which [`Setting::here`]
/// fills.
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

    /// A value of a level around all of these.
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

    /// Sets the value of the directive at this level.
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

impl<T: Clone> Merge for Setting<T> {
    /// Takes the enclosing level's value unless this level has its own.
    fn merge(&mut self, parent: &Self) {
        if !self.is_here() && parent.is_set() {
            self.value = parent.value.clone();
            self.origin = Origin::Enclosing;
        }
    }
}

impl<T> From<T> for Setting<T> {
    fn from(default: T) -> Self {
        Self::new(default)
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

/// A value of one level that others do not inherit. Also for values that are made when all levels are merged,
/// and for those that all of `http` has once.
#[derive(Clone, Debug, Default)]
pub struct Own<T>(T);

impl<T> Merge for Own<T> {
    fn merge(&mut self, _: &Self) {}
}

impl<T> From<T> for Own<T> {
    fn from(default: T) -> Self {
        Self(default)
    }
}

impl<T> Deref for Own<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Own<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// A setting that makes a location answer by itself (`empty_gif`, `mp4`): locations in it do not inherit it,
/// the blocks of its `if`s do.
#[derive(Clone, Debug, Default)]
pub struct Answers<T: Default>(Setting<T>);

impl<T: Default> Answers<T> {
    /// Sets the value of the directive at this level.
    pub fn set(&mut self, value: T) {
        self.0.set(value);
    }
}

impl<T: Clone + Default> Merge for Answers<T> {
    fn merge(&mut self, _: &Self) {}

    fn merge_if(&mut self, parent: &Self) {
        self.0.merge(&parent.0);
    }
}

impl<T: Default> Deref for Answers<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<M: Merge, const N: usize> Merge for [M; N] {
    fn merge(&mut self, parent: &Self) {
        self.iter_mut().zip(parent).for_each(|(own, parent)| own.merge(parent));
    }

    fn merge_if(&mut self, parent: &Self) {
        self.iter_mut().zip(parent).for_each(|(own, parent)| own.merge_if(parent));
    }

    fn merge_limited(&mut self, parent: &Self) {
        self.iter_mut().zip(parent).for_each(|(own, parent)| own.merge_limited(parent));
    }
}

/// Declares what a module is told at a level: a struct, its defaults and how it is merged.
///
/// A field's type says how it is inherited ([`Setting`], [`Own`], [`Answers`], another struct that is
/// declared so), what stands behind `=` is its default, without it the default of its type. `then F` calls
/// `F(&mut self)` when all fields are merged, for what is worked out from them.
///
/// ```
/// use clearway_site::{Merge, Own, Setting, settings};
///
/// settings! {
///     /// What `limit` says.
///     struct LimitConf {
///         /// Bytes.
///         size_bytes: Setting<u64> = 1024,
///         zones: Setting<Vec<String>>,
///         seen: Own<u64>,
///     }
/// }
///
/// let (mut outer, mut inner) = (LimitConf::default(), LimitConf::default());
/// outer.size_bytes.set(7);
/// outer.zones.here().push("one".to_owned());
/// *outer.seen = 1;
/// inner.merge(&outer);
/// assert_eq!((*inner.size_bytes, inner.zones.len(), *inner.seen), (7, 1, 0));
/// ```
///
/// A field without a rule does not compile:
///
/// ```compile_fail,E0277
/// clearway_site::settings! {
///     struct LimitConf {
///         size_bytes: u64 = 1024,
///     }
/// }
/// ```
#[macro_export]
macro_rules! settings {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty $(= $default:expr)?),* $(,)?
        }
        $(then $then:expr)?
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::settings!(@default $type $(, $default)?),)* }
            }
        }

        impl $crate::Merge for $name {
            fn merge(&mut self, parent: &Self) {
                $($crate::Merge::merge(&mut self.$field, &parent.$field);)*
                $($then(self);)?
            }

            fn merge_if(&mut self, parent: &Self) {
                $($crate::Merge::merge_if(&mut self.$field, &parent.$field);)*
                $($then(self);)?
            }

            fn merge_limited(&mut self, parent: &Self) {
                $($crate::Merge::merge_limited(&mut self.$field, &parent.$field);)*
                $($then(self);)?
            }
        }
    };
    (@default $type:ty) => {
        <$type as Default>::default()
    };
    (@default $type:ty, $default:expr) => {
        <$type as From<_>>::from($default)
    };
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

/// The arguments as access rights of a file: `user:rw group:r all:r`, of which the user has `rw` unless that
/// is said otherwise.
pub fn file_access(directive: &Directive) -> Result<u32, Error> {
    let (mut access, mut user) = (0, 0o600);
    for (at, text) in directive.args.iter().enumerate() {
        let invalid = || directive.invalid_value(at);
        let colon = text.iter().position(|&byte| byte == b':').ok_or_else(invalid)?;
        let shift = match &text[..colon] {
            b"user" => {
                user = 0;
                6
            }
            b"group" => 3,
            b"all" => 0,
            _ => return Err(invalid()),
        };
        let rights = match &text[colon + 1..] {
            b"rw" => 6,
            b"r" => 4,
            _ => return Err(invalid()),
        };
        access |= rights << shift;
    }
    Ok(access | user)
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
    fn what_answers_is_inherited_by_blocks_of_if_alone() {
        let mut location = Answers::<u8>::default();
        location.set(1);
        let (mut inner, mut condition): (Answers<u8>, Answers<u8>) = Default::default();
        inner.merge(&location);
        condition.merge_if(&location);
        assert_eq!((*inner, *condition), (0, 1));
        condition.set(2);
        condition.merge_if(&location);
        assert_eq!(*condition, 2);
    }

    crate::settings! {
        struct Sizes {
            pairs: [Setting<u8>; 2] = [Setting::new(1), Setting::new(2)],
            answers: Answers<bool>,
            sum: Own<u8>,
        }
        then |sizes: &mut Sizes| *sizes.sum = *sizes.pairs[0] + *sizes.pairs[1]
    }

    #[test]
    fn fields_of_every_rule_are_merged_and_what_follows_from_them_is_made() {
        let (mut outer, mut inner, mut condition) = (Sizes::default(), Sizes::default(), Sizes::default());
        outer.pairs[1].set(7);
        outer.answers.set(true);
        inner.merge(&outer);
        condition.merge_if(&outer);
        assert_eq!((*inner.sum, *inner.answers, *condition.sum, *condition.answers), (8, false, 8, true));
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
