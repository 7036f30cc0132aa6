//! Which location answers for a path: `=`, `^~`, prefix, `~`, `~*` and `@named`, nested to any depth,
//! as nginx's find-config phase decides (longest prefix, then expressions in order).
//!
//! A [`Level`] holds the locations of a server or of one location. It is built once at load and
//! immutable after; a search runs on loops and allocates nothing. Static names lie sorted in one array:
//! the last name not above a path is found by bisection, and every prefix of the path among the names
//! is a prefix of that one, so each name knows the longest other name that begins it. Generic over an
//! identifier of locations.

use clearway_base::log::Verbatim;
use std::fmt;

use crate::name_keys::{Keys, order_key};
use crate::regex::{Case, CompileError, Regex};

/// How a location is matched.
#[derive(Debug)]
pub enum Kind {
    /// No modifier.
    Prefix,
    /// `^~`: a prefix after which this level's expressions are not tried.
    PrefixNoRegex,
    /// `=`
    Exact,
    /// `~` and `~*`
    Regex(Box<Regex>),
    /// `@name`, found by name only.
    Named,
}

/// The words between `location` and its block.
#[derive(Debug)]
pub struct LocationName {
    /// How it is matched.
    pub kind: Kind,
    /// Name or pattern, without the modifier.
    pub name: Box<[u8]>,
}

/// A location that is refused. Displays nginx's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LocationError {
    /// The first of two arguments is no modifier.
    InvalidModifier(Box<[u8]>),
    /// The pattern is no valid expression.
    Regex(CompileError),
    /// Nothing can be nested in it.
    InsideExact {
        /// The inner one.
        name: Box<[u8]>,
        /// The outer one.
        outer: Box<[u8]>,
    },
    /// Nothing can be nested in it.
    InsideNamed {
        /// The inner one.
        name: Box<[u8]>,
        /// The outer one.
        outer: Box<[u8]>,
    },
    /// A named location is nested.
    NamedInside(Box<[u8]>),
    /// The inner name does not begin with the outer one.
    Outside {
        /// The inner one.
        name: Box<[u8]>,
        /// The outer one.
        outer: Box<[u8]>,
    },
}

impl fmt::Display for LocationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes| Verbatim(bytes);
        match self {
            Self::InvalidModifier(modifier) => write!(f, "invalid location modifier \"{}\"", text(modifier)),
            Self::Regex(error) => error.fmt(f),
            Self::InsideExact { name, outer } => write!(
                f,
                "location \"{}\" cannot be inside the exact location \"{}\"",
                text(name),
                text(outer)
            ),
            Self::InsideNamed { name, outer } => write!(
                f,
                "location \"{}\" cannot be inside the named location \"{}\"",
                text(name),
                text(outer)
            ),
            Self::NamedInside(name) => {
                write!(f, "named location \"{}\" can be on the server level only", text(name))
            }
            Self::Outside { name, outer } => {
                write!(f, "location \"{}\" is outside location \"{}\"", text(name), text(outer))
            }
        }
    }
}

impl std::error::Error for LocationError {}

impl LocationName {
    /// Reads the one or two arguments of `location`; with one, the modifier may be glued to the name.
    ///
    /// # Errors
    /// When the configuration is to be refused.
    pub fn parse(first: &[u8], second: Option<&[u8]>) -> Result<Self, LocationError> {
        let (modifier, name): (&[u8], &[u8]) = match (second, first) {
            (Some(name), modifier) => (modifier, name),
            (None, [b'=', name @ ..]) => (b"=", name),
            (None, [b'^', b'~', name @ ..]) => (b"^~", name),
            (None, [b'~', b'*', name @ ..]) => (b"~*", name),
            (None, [b'~', name @ ..]) => (b"~", name),
            (None, name) => (b"", name),
        };
        let regex = |case| Regex::compile(name, case).map(Box::new).map_err(LocationError::Regex);
        let kind = match modifier {
            b"=" => Kind::Exact,
            b"^~" => Kind::PrefixNoRegex,
            b"~" => Kind::Regex(regex(Case::Sensitive)?),
            b"~*" => Kind::Regex(regex(Case::Insensitive)?),
            b"" if second.is_none() && name.first() == Some(&b'@') => Kind::Named,
            b"" if second.is_none() => Kind::Prefix,
            _ => return Err(LocationError::InvalidModifier(modifier.into())),
        };
        Ok(Self { kind, name: name.into() })
    }

    /// Whether this location may stand in the block of `outer`.
    ///
    /// # Errors
    /// When the configuration is to be refused.
    pub fn check_inside(&self, outer: &Self) -> Result<(), LocationError> {
        let both = || (self.name.clone(), outer.name.clone());
        match (&outer.kind, &self.kind) {
            (Kind::Exact, _) => {
                let (name, outer) = both();
                Err(LocationError::InsideExact { name, outer })
            }
            (Kind::Named, _) => {
                let (name, outer) = both();
                Err(LocationError::InsideNamed { name, outer })
            }
            (_, Kind::Named) => Err(LocationError::NamedInside(self.name.clone())),
            (_, Kind::Regex(_)) => Ok(()),
            _ if self.name.starts_with(&outer.name) => Ok(()),
            _ => {
                let (name, outer) = both();
                Err(LocationError::Outside { name, outer })
            }
        }
    }
}

/// The answer for a path that lacks only the last slash of a static location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AutoRedirect {
    /// Nothing special.
    Off,
    /// 301 to the name of the location; for handlers that pass requests on, when the name ends in `/`.
    On,
}

/// Two static locations of a level with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DuplicateLocation<T> {
    /// Their name.
    pub name: Box<[u8]>,
    /// The second of them, whose place in the configuration the message names.
    pub id: T,
}

impl<T> DuplicateLocation<T> {
    /// nginx's text; ` in FILE:LINE` of the second location follows.
    #[must_use]
    pub fn message(&self) -> String {
        format!("duplicate location \"{}\"", Verbatim(&self.name))
    }
}

/// Collects the locations of one level in the order of the configuration.
pub struct Builder<T> {
    entries: Vec<Entry<T>>,
}

struct Entry<T> {
    name: LocationName,
    id: T,
    auto_redirect: AutoRedirect,
    nested: Builder<T>,
}

impl<T: Copy> Default for Builder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Builder<T> {
    /// No locations yet.
    #[must_use]
    pub fn new() -> Self {
        Self { entries: Vec::new() }
    }

    /// Adds a location whose block has been read: `nested` has the locations in it.
    pub fn add(&mut self, name: LocationName, id: T, auto_redirect: AutoRedirect, nested: Self) {
        self.entries.push(Entry { name, id, auto_redirect, nested });
    }

    /// The immutable form of this level and all below it.
    ///
    /// # Errors
    /// The first duplicate in the order in which nginx finds them: by name, inner levels first.
    pub fn build(self) -> Result<Level<T>, DuplicateLocation<T>> {
        let mut statics = Vec::new();
        let mut level = LevelParts::default();
        for entry in self.entries {
            match entry.name.kind {
                Kind::Regex(regex) => level.add_regex(regex, entry.id, entry.nested),
                Kind::Named => level.named.push((entry.name.name, entry.id)),
                Kind::Prefix | Kind::PrefixNoRegex | Kind::Exact => statics.push(entry),
            }
        }
        // Stable sorts: of two equal names the one that comes later in the file stays the later.
        let is_prefix = |entry: &Entry<T>| !matches!(entry.name.kind, Kind::Exact);
        statics.sort_by(|a, b| a.name.name.cmp(&b.name.name).then(is_prefix(a).cmp(&is_prefix(b))));
        for entry in statics {
            level.add_static(entry)?;
        }
        match level.duplicate {
            Some(duplicate) => Err(duplicate),
            None => Ok(level.finish()),
        }
    }

    /// As nginx does it, only expressions are searched inside a location that is one: the static ones
    /// there would have to begin with the text of the pattern.
    fn build_regexes(self) -> Option<Box<Level<T>>> {
        let mut level = LevelParts::default();
        for entry in self.entries {
            if let Kind::Regex(regex) = entry.name.kind {
                level.add_regex(regex, entry.id, entry.nested);
            }
        }
        (!level.regexes.is_empty()).then(|| Box::new(level.finish()))
    }
}

/// A level while it is put together; static names arrive sorted.
struct LevelParts<T> {
    text: Vec<u8>,
    names: Vec<Name>,
    places: Vec<LocationNode<T>>,
    regexes: Vec<(Box<Regex>, LocationNode<T>)>,
    named: Vec<(Box<[u8]>, T)>,
    auto_redirect: AutoRedirect,
    /// Reported only after all inner levels were looked at.
    duplicate: Option<DuplicateLocation<T>>,
}

impl<T> Default for LevelParts<T> {
    fn default() -> Self {
        Self {
            text: Vec::new(),
            names: Vec::new(),
            places: Vec::new(),
            regexes: Vec::new(),
            named: Vec::new(),
            auto_redirect: AutoRedirect::Off,
            duplicate: None,
        }
    }
}

impl<T: Copy> LevelParts<T> {
    fn add_regex(&mut self, regex: Box<Regex>, id: T, nested: Builder<T>) {
        let place = LocationNode { id, regexes: Regexes::Tried, nested: nested.build_regexes() };
        self.regexes.push((regex, place));
    }

    fn add_static(&mut self, entry: Entry<T>) -> Result<(), DuplicateLocation<T>> {
        let nested = entry.nested.build()?;
        let nested = (!nested.is_empty()).then(|| Box::new(nested));
        let name = &entry.name.name;
        if self.names.last().is_none_or(|last| last.text(&self.text) != &**name) {
            self.push_name(name);
        }
        let last = self.names.last_mut().expect("a name was pushed if there was none");
        let (slot, regexes) = match entry.name.kind {
            Kind::Exact => (&mut last.exact, Regexes::Tried),
            Kind::PrefixNoRegex => (&mut last.prefix, Regexes::Skipped),
            _ => (&mut last.prefix, Regexes::Tried),
        };
        if *slot != NONE {
            self.duplicate.get_or_insert(DuplicateLocation { name: name.clone(), id: entry.id });
            return Ok(());
        }
        *slot = index(self.places.len());
        if entry.auto_redirect == AutoRedirect::On {
            last.auto_redirect = AutoRedirect::On;
            self.auto_redirect = AutoRedirect::On;
        }
        self.places.push(LocationNode { id: entry.id, regexes, nested });
        Ok(())
    }

    fn push_name(&mut self, name: &[u8]) {
        let mut parent = index(self.names.len()).wrapping_sub(1);
        while let Some(other) = self.names.get(parent as usize) {
            if other.prefix != NONE && name.starts_with(other.text(&self.text)) {
                break;
            }
            parent = other.parent;
        }
        self.names.push(Name {
            start: index(self.text.len()),
            len: index(name.len()),
            parent,
            exact: NONE,
            prefix: NONE,
            auto_redirect: AutoRedirect::Off,
        });
        self.text.extend_from_slice(name);
    }

    fn finish(mut self) -> Level<T> {
        self.named.sort_by(|a, b| a.0.cmp(&b.0));
        Level {
            keys: Keys::new(self.names.iter().map(|name| order_key(name.text(&self.text)))),
            text: self.text.into(),
            names: self.names.into(),
            places: self.places.into(),
            regexes: self.regexes.into(),
            named: self.named.into(),
            auto_redirect: self.auto_redirect,
        }
    }
}

fn index(length: usize) -> u32 {
    u32::try_from(length).expect("a configuration is far smaller than 4 GiB")
}

/// No index.
const NONE: u32 = u32::MAX;

/// A static name and what stands under it.
struct Name {
    /// In [`Level::text`].
    start: u32,
    len: u32,
    /// Index of the longest other name that begins this one and has a prefix location.
    parent: u32,
    /// Index of the place of `=`.
    exact: u32,
    /// Index of the place of the prefix location.
    prefix: u32,
    auto_redirect: AutoRedirect,
}

impl Name {
    fn text<'a>(&self, all: &'a [u8]) -> &'a [u8] {
        &all[self.start as usize..][..self.len as usize]
    }

    /// How many bytes from the start are those of `path`, by what the [`order_key`]s of both differ in.
    #[inline]
    fn common_prefix(&self, all: &[u8], path: &[u8], difference: u64) -> usize {
        let shorter = path.len().min(self.len as usize);
        let common = difference.leading_zeros() as usize / 8;
        if shorter <= 8 || common < 8 {
            return common.min(shorter);
        }
        8 + common_prefix(&self.text(all)[8..], &path[8..])
    }
}

/// Whether a level's expressions are tried after a prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Regexes {
    Tried,
    Skipped,
}

/// A location and what is nested in it.
struct LocationNode<T> {
    id: T,
    regexes: Regexes,
    nested: Option<Box<Level<T>>>,
}

/// The locations of a server or of one location.
pub struct Level<T> {
    /// The [`order_key`] of each name, which settles most comparisons.
    keys: Keys,
    /// All static names, one behind the other.
    text: Box<[u8]>,
    /// Sorted by name, without duplicates.
    names: Box<[Name]>,
    places: Box<[LocationNode<T>]>,
    regexes: Box<[(Box<Regex>, LocationNode<T>)]>,
    /// Sorted by name.
    named: Box<[(Box<[u8]>, T)]>,
    /// Whether any name wants it.
    auto_redirect: AutoRedirect,
}

/// The location of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<T> {
    /// None matches: the settings of the level that was searched hold.
    Nothing,
    /// The request is for this location.
    Location(T),
    /// The request is for this location, by a redirect to its name (with the arguments of the request).
    Redirect(T),
}

/// The answer of one level to the level around it.
enum Answer<T> {
    Final(Found<T>),
    /// Unless an expression of the level around matches.
    Open(Found<T>),
}

/// The answer of the static names of one level.
enum Static<'a, T> {
    Nothing,
    Exact(&'a LocationNode<T>),
    Prefix(&'a LocationNode<T>),
    Redirect(&'a LocationNode<T>),
}

impl<T: Copy> Level<T> {
    /// Whether no path can be found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.regexes.is_empty() && self.named.is_empty()
    }

    /// The location for a normalized path. `exec` runs an expression on the path and keeps its captures.
    ///
    /// # Errors
    /// What `exec` returns (a match that was given up).
    pub fn find<E>(
        &self,
        path: &[u8],
        mut exec: impl FnMut(&Regex) -> Result<bool, E>,
    ) -> Result<Found<T>, E> {
        let (Answer::Final(found) | Answer::Open(found)) = self.search(path, &mut exec)?;
        Ok(found)
    }

    /// The named location of this level; `name` begins with `@`.
    #[must_use]
    pub fn find_named(&self, name: &[u8]) -> Option<T> {
        let at = self.named.partition_point(|(other, _)| **other < *name);
        self.named.get(at).filter(|(other, _)| **other == *name).map(|&(_, id)| id)
    }

    fn search<E>(
        &self,
        path: &[u8],
        exec: &mut dyn FnMut(&Regex) -> Result<bool, E>,
    ) -> Result<Answer<T>, E> {
        let mut found = Found::Nothing;
        match self.find_static(path) {
            Static::Nothing => {}
            Static::Exact(place) => return Ok(Answer::Final(Found::Location(place.id))),
            Static::Redirect(place) => return Ok(Answer::Final(Found::Redirect(place.id))),
            Static::Prefix(place) => match place.search_nested(path, exec)? {
                Answer::Open(inner) if place.regexes == Regexes::Tried => found = inner,
                answer => return Ok(answer),
            },
        }
        for (regex, place) in &self.regexes {
            if exec(regex)? {
                let (Answer::Final(inner) | Answer::Open(inner)) = place.search_nested(path, exec)?;
                return Ok(Answer::Final(inner));
            }
        }
        Ok(Answer::Open(found))
    }

    fn find_static(&self, path: &[u8]) -> Static<'_, T> {
        let key = order_key(path);
        let equal = self.keys.equal(key);
        let equal_names = &self.names[equal.clone()];
        let above = equal.start + equal_names.partition_point(|name| name.text(&self.text) <= path);
        let below = above.checked_sub(1);
        let mut name = below.and_then(|below| self.names.get(below));
        let difference = below.map_or(0, |below| self.keys.at(below) ^ key);
        let common = name.map_or(0, |name| name.common_prefix(&self.text, path, difference));
        if let Some(equal) = name.filter(|name| name.len as usize == path.len() && common == path.len()) {
            return match self.place(equal.exact) {
                Some(place) => Static::Exact(place),
                None => self.place(equal.prefix).map_or(Static::Nothing, Static::Prefix),
            };
        }
        if self.auto_redirect == AutoRedirect::On
            && let Some(place) = self.find_redirect(&self.names[above..], path)
        {
            return Static::Redirect(place);
        }
        while let Some(prefix) = name {
            if prefix.len as usize <= common
                && let Some(place) = self.place(prefix.prefix)
            {
                return Static::Prefix(place);
            }
            name = self.names.get(prefix.parent as usize);
        }
        Static::Nothing
    }

    /// The place of the name that is `path` and a slash, if it wants a redirect.
    fn find_redirect(&self, names_above: &[Name], path: &[u8]) -> Option<&LocationNode<T>> {
        let wanted = || path.iter().chain(b"/");
        let at = names_above.partition_point(|name| name.text(&self.text).iter().lt(wanted()));
        let name = names_above.get(at).filter(|name| name.text(&self.text).iter().eq(wanted()))?;
        if name.auto_redirect == AutoRedirect::Off {
            return None;
        }
        self.place(name.exact).or_else(|| self.place(name.prefix))
    }

    fn place(&self, index: u32) -> Option<&LocationNode<T>> {
        self.places.get(index as usize)
    }
}

impl<T: Copy> LocationNode<T> {
    /// The location nested here that the path belongs to, or this one.
    fn search_nested<E>(
        &self,
        path: &[u8],
        exec: &mut dyn FnMut(&Regex) -> Result<bool, E>,
    ) -> Result<Answer<T>, E> {
        let here = Found::Location(self.id);
        let Some(nested) = &self.nested else { return Ok(Answer::Open(here)) };
        Ok(match nested.search(path, exec)? {
            Answer::Open(Found::Nothing) => Answer::Open(here),
            answer => answer,
        })
    }
}

/// How many bytes from the start are the same.
fn common_prefix(one: &[u8], two: &[u8]) -> usize {
    let mut words = 0;
    for (a, b) in one.chunks_exact(8).zip(two.chunks_exact(8)) {
        let difference = order_key(a) ^ order_key(b);
        if difference != 0 {
            return 8 * words + difference.leading_zeros() as usize / 8;
        }
        words += 1;
    }
    let (one, two) = (&one[8 * words..], &two[8 * words..]);
    8 * words + one.iter().zip(two).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::Captures;

    type Id = &'static str;

    /// Arguments of `location`, identifier, what is nested. An identifier that begins with `>` has a
    /// handler that passes requests on.
    struct Spec(&'static str, Id, Vec<Spec>);

    fn plain(arguments: &'static str, id: Id) -> Spec {
        Spec(arguments, id, Vec::new())
    }

    fn name(arguments: &str) -> Result<LocationName, LocationError> {
        match arguments.split_once(' ') {
            Some((first, second)) => LocationName::parse(first.as_bytes(), Some(second.as_bytes())),
            None => LocationName::parse(arguments.as_bytes(), None),
        }
    }

    fn builder(specs: Vec<Spec>) -> Builder<Id> {
        let mut level = Builder::new();
        for Spec(arguments, id, nested) in specs {
            let redirect = id.starts_with('>');
            let auto_redirect = if redirect { AutoRedirect::On } else { AutoRedirect::Off };
            level.add(name(arguments).unwrap(), id.trim_start_matches('>'), auto_redirect, builder(nested));
        }
        level
    }

    fn lookup(level: &Level<Id>, path: &str) -> String {
        let mut captures = Captures::default();
        match level.find(path.as_bytes(), |regex| regex.exec(path.as_bytes(), &mut captures)).unwrap() {
            Found::Nothing => "none".into(),
            Found::Location(id) => id.into(),
            Found::Redirect(id) => format!("->{id}"),
        }
    }

    fn example() -> Level<Id> {
        let exact_text = plain(r"~ \.txt$", "exacttxt");
        let reb = Spec("~ b$", "reb", vec![plain("~ ab$", "reab"), plain("/re", "unreachable")]);
        let nesta = Spec("^~ /nest/a", "nesta", vec![plain("~ z", "nestaz")]);
        builder(vec![
            plain("= /", "eqroot"),
            plain("= /exact", "eqexact"),
            Spec("/exact", "exact", vec![plain("/exact/in", "exactin"), exact_text]),
            plain("/images/", "images"),
            Spec(
                "^~ /images/raw",
                "raw",
                vec![plain("~ deep", "rawdeep"), plain("/images/raw/sub", "rawsub")],
            ),
            plain("/images/rawer", "rawer"),
            plain(r"~ \.(gif|jpg)$", "pic"),
            plain(r"~* \.PNG$", "png"),
            Spec("~ ^/re/(?<x>.*)$", "re", vec![reb]),
            Spec("/nest", "nest", vec![nesta, plain("~ q$", "nestq"), plain("= /nest/eq", "nesteq")]),
            plain("/up/", ">up"),
            plain("= /only/", ">only"),
            plain("/both/", ">both"),
            plain("/both", "bothplain"),
            Spec("/third/", ">third", vec![plain("/third/in/", ">thirdin")]),
            plain("/noslash", "noslash"),
            plain("@up", "named"),
            plain("/a", "a"),
            plain("/ab", "ab"),
            plain("/abc", "abc"),
            plain("= /abcd", "eqabcd"),
            plain("/abcde", "abcde"),
            plain("/b/1", "b1"),
            plain("/b/2", "b2"),
        ])
        .build()
        .unwrap()
    }

    /// The results of nginx 1.31.5 for the locations of [`example`].
    #[rustfmt::skip]
    const FOUND: &[(&str, &str)] = &[
        ("/", "eqroot"), ("/x", "none"), ("/exact", "eqexact"), ("/exact/", "exact"),
        ("/exactly", "exact"), ("/exact/in/x", "exactin"), ("/exact/in/x.txt", "exacttxt"),
        ("/exact/y.txt", "exacttxt"), ("/exact/y.gif", "pic"), ("/images/", "images"),
        ("/images", "none"), ("/images/x.gif", "pic"), ("/images/raw.gif", "raw"),
        ("/images/raw/x.gif", "raw"), ("/images/raw/deep.gif", "rawdeep"),
        ("/images/raw/sub.gif", "rawsub"), ("/images/raw/subdeep", "rawdeep"),
        ("/images/rawer.gif", "pic"), ("/images/rawer", "rawer"), ("/x.png", "png"), ("/x.PnG", "png"),
        ("/x.GIF", "none"), ("/x.gif", "pic"), ("/re/", "re"), ("/re/b", "reb"), ("/re/ab", "reab"),
        ("/re/ab.gif", "pic"), ("/nest", "nest"), ("/nest/", "nest"), ("/nest/a", "nesta"),
        ("/nest/az", "nestaz"), ("/nest/a.gif", "pic"), ("/nest/q", "nestq"), ("/nest/aq", "nesta"),
        ("/nest/eq", "nesteq"), ("/nest/eqq", "nestq"), ("/nest/eq.gif", "pic"), ("/nesq", "none"),
        ("/up", "->up"), ("/up/", "up"), ("/up/x", "up"), ("/up/x.gif", "pic"), ("/upx", "none"),
        ("/only", "->only"), ("/only/", "only"), ("/only/x", "none"), ("/both", "bothplain"),
        ("/both/", "both"), ("/bothx", "bothplain"), ("/both/x", "both"), ("/third", "->third"),
        ("/third/in", "->thirdin"), ("/third/in/", "thirdin"), ("/third/inx", "third"),
        ("/noslash", "noslash"), ("/noslash/", "noslash"), ("/a", "a"), ("/ab", "ab"), ("/abc", "abc"),
        ("/abcd", "eqabcd"), ("/abcde", "abcde"), ("/abcdef", "abcde"), ("/abcx", "abc"),
        ("/abx", "ab"), ("/ax", "a"), ("/b", "none"), ("/b/1", "b1"), ("/b/12", "b1"), ("/b/3", "none"),
        ("/b/2.gif", "pic"), ("/b/0", "none"), ("/zzz", "none"),
    ];

    #[test]
    fn paths_find_their_location_as_in_nginx() {
        let level = example();
        for &(path, expected) in FOUND {
            assert_eq!(lookup(&level, path), expected, "{path}");
        }
        assert_eq!(level.find_named(b"@up"), Some("named"));
        assert_eq!(level.find_named(b"@u"), None);
        assert_eq!(level.find_named(b"/a"), None);
    }

    #[test]
    fn a_failed_match_ends_the_search() {
        assert_eq!(example().find(b"/x", |_| Err::<bool, _>(-47)), Err(-47));
        assert_eq!(
            example().find(b"/images/raw/x", |regex| match regex.pattern() {
                b"deep" => Ok(false),
                _ => Err("the expressions of the outer level are not tried"),
            }),
            Ok(Found::Location("raw"))
        );
    }

    /// Against the definition: the longest name that begins the path.
    #[test]
    fn longest_prefix_of_many_names() {
        let names: Vec<String> = (0..400_u32)
            .map(|n| {
                let letters = (0..n % 7).map(|at| char::from(b'a' + (n >> at & 1) as u8));
                format!("/{}{}", letters.collect::<String>(), n / 97)
            })
            .collect();
        let mut level = Builder::new();
        let mut seen = std::collections::HashSet::new();
        for (id, name) in names.iter().enumerate().filter(|(_, name)| seen.insert(*name)) {
            level.add(
                LocationName::parse(name.as_bytes(), None).unwrap(),
                id,
                AutoRedirect::Off,
                Builder::new(),
            );
        }
        let level = level.build().unwrap();
        for path in names.iter().flat_map(|name| [name.clone(), format!("{name}b"), format!("{name}0/x")]) {
            let longest = names.iter().filter(|name| path.starts_with(name.as_str())).map(String::len).max();
            let Ok(Found::Location(id)) = level.find(path.as_bytes(), |_| Err(())) else { panic!("{path}") };
            assert!(path.starts_with(&names[id]) && Some(names[id].len()) == longest, "{path}");
        }
    }

    fn inside(outer: &str, inner: &str) -> Result<(), String> {
        let inner = name(inner).map_err(|error| error.to_string())?;
        inner.check_inside(&name(outer).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn nesting_is_refused_in_the_words_of_nginx() {
        for (outer, inner, message) in [
            ("/a", "/b", "location \"/b\" is outside location \"/a\""),
            ("/a/", "/a", "location \"/a\" is outside location \"/a/\""),
            ("^~ /a", "= /b", "location \"/b\" is outside location \"/a\""),
            ("~ ^/a", "/a/b", "location \"/a/b\" is outside location \"^/a\""),
            ("= /a", "/a/b", "location \"/a/b\" cannot be inside the exact location \"/a\""),
            ("@a", "/b", "location \"/b\" cannot be inside the named location \"@a\""),
            ("/a", "@b", "named location \"@b\" can be on the server level only"),
        ] {
            assert_eq!(inside(outer, inner).unwrap_err(), message);
        }
        for (outer, inner) in [("/a", "/ab"), ("/a", "~ b"), ("~ /a", "/a/b"), ("/a", "= /a"), ("/", "^~ /x")]
        {
            assert_eq!(inside(outer, inner), Ok(()));
        }
    }

    #[test]
    fn modifiers_may_be_glued_to_names() {
        for (arguments, kind, text) in [
            ("=/a", "Exact", "/a"),
            ("= @x", "Exact", "@x"),
            ("^~/b", "PrefixNoRegex", "/b"),
            ("~/c", "Regex", "/c"),
            ("~*/d", "Regex", "/d"),
            ("@e", "Named", "@e"),
            ("/f", "Prefix", "/f"),
            ("", "Prefix", ""),
        ] {
            let name = name(arguments).unwrap();
            assert!(format!("{:?}", name.kind).starts_with(kind), "{arguments}");
            assert_eq!(&*name.name, text.as_bytes());
        }
        for modifier in ["!", "~~", "=="] {
            let error = LocationName::parse(modifier.as_bytes(), Some(b"/a")).unwrap_err();
            assert_eq!(error.to_string(), format!("invalid location modifier \"{modifier}\""));
        }
        let error = LocationName::parse(b"~", Some(b"(")).unwrap_err().to_string();
        assert_eq!(error, "pcre2_compile() failed: missing closing parenthesis in \"(\"");
    }

    #[test]
    fn the_first_duplicate_is_told() {
        let twice = |arguments, first, second| vec![plain(arguments, first), plain(arguments, second)];
        let told = |specs| builder(specs).build().err().map(|error| (error.message(), error.id));
        let message = |name| format!("duplicate location \"{name}\"");
        assert_eq!(told(twice("/a", "1", "2")), Some((message("/a"), "2")));
        assert_eq!(told(twice("= /a", "1", "2")), Some((message("/a"), "2")));
        assert_eq!(told(vec![plain("/a", "1"), plain("^~ /a", "2")]), Some((message("/a"), "2")));
        assert_eq!(told(vec![plain("/a", "1"), plain("= /a", "2")]), None);
        assert_eq!(told(twice("@a", "1", "2")), None);
        assert_eq!(told(twice("~ a", "1", "2")), None);
        let mut specs = twice("/a", "1", "2");
        specs.push(Spec("/z", "3", twice("/z/c", "4", "5")));
        assert_eq!(told(specs), Some((message("/z/c"), "5")), "inner levels come first");
        assert_eq!(told(vec![Spec("~ /a", "1", twice("/a/b", "2", "3"))]), None);
        assert_eq!(builder(twice("@a", "1", "2")).build().ok().and_then(|l| l.find_named(b"@a")), Some("1"));
    }
}
