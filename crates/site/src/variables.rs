//! Variables: the table that modules fill, those that the configuration makes, names resolved to numbers
//! at load, and values with variables in them. Nothing is looked up by name at run time; how a variable is
//! worked out is for the engine to know.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::Verbatim;
use clearway_conf::{Error, Part, Pos, Template};
use clearway_message::Text;

use crate::engine::Engine;
use crate::regex::Regex;

/// Room that is made at first for a value of several parts, bytes.
const VALUE_FIRST_BYTES: usize = 64;

/// A variable that a module offers.
pub struct VariableSpec<E: Engine> {
    /// Its name in lower case; of a family (`arg_`, `http_`) what all members begin with.
    pub name: &'static str,
    /// One variable or a family, and whether the configuration may change it.
    pub kind: VariableKind<E>,
    /// The description of its value.
    pub doc: &'static str,
    /// Appends the value.
    pub eval: E::Eval,
}

/// The kind of a `VariableSpec`.
#[derive(Clone, Copy, Debug)]
pub enum VariableKind<E: Engine> {
    /// The variable with that very name, which the configuration cannot change.
    Exact,
    /// As above, but `set`, `map` and the like may replace it.
    Changeable,
    /// As above, and a value that `set` gives it goes to the request itself.
    Assigned(E::Assign),
    /// All variables whose names begin so; `Eval` is told the rest of the name.
    Prefix,
}

/// The number of a variable in one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableId(pub u32);

/// How long the value of a computed variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For the rest of the request, once it was asked for.
    Request,
    /// The value is computed each time (`volatile`).
    Never,
}

/// The target of a `set`.
#[derive(Clone, Copy)]
pub enum Target<E: Engine> {
    /// A variable whose value is kept with the request.
    Kept(VariableId),
    /// Something of the request itself.
    Request(E::Assign),
}

/// Names that the configuration uses, while it is read. They are the same in any case.
#[derive(Default)]
pub struct VariableNames<E: Engine> {
    names: Vec<Name<E>>,
    ids: HashMap<Box<[u8]>, u32>,
    /// `pcre_match_limit`, which all expressions get when their names are bound.
    match_limit: Option<u64>,
}

struct Name<E: Engine> {
    text: Box<[u8]>,
    meaning: Option<Meaning<E>>,
    /// Where its value may come from, but for what it stands for.
    given: Given,
}

/// The meaning of a name in the configuration.
enum Meaning<E: Engine> {
    /// A group of an expression.
    Captured,
    Computed {
        computed: Arc<E::Computed>,
        keep: Keep,
    },
    /// The value before `set` was executed, unless the name is of a family.
    Unset(Arc<E::Computed>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Never,
    /// Captured, or set.
    InRequest,
}

type Specs<'a, E> = &'a [&'static VariableSpec<E>];

impl<E: Engine> VariableNames<E> {
    pub(crate) fn with_match_limit(match_limit: Option<u64>) -> Self {
        Self { match_limit, ..Self::default() }
    }

    fn limit(&self, regex: &mut Regex) {
        if let Some(steps) = self.match_limit {
            regex.limit(steps);
        }
    }

    /// The number of a name, which need not be known yet: what it stands for is asked at the end.
    pub fn id(&mut self, name: &[u8]) -> VariableId {
        if let Some(&id) = self.ids.get(name) {
            return VariableId(id);
        }
        let text: Box<[u8]> = name.to_ascii_lowercase().into();
        if let Some(&id) = self.ids.get(&text) {
            return VariableId(id);
        }
        let id = u32::try_from(self.names.len()).expect("a configuration is far smaller than 4 GiB");
        self.ids.insert(text.clone(), id);
        self.names.push(Name { text, meaning: None, given: Given::Never });
        VariableId(id)
    }

    /// Makes the named groups of an expression variables.
    ///
    /// # Errors
    /// `the duplicate "NAME" variable` for a name that a module has given to something else.
    pub fn bind(&mut self, regex: &mut Regex, specs: Specs<'_, E>) -> Result<(), String> {
        self.limit(regex);
        regex.bind_names(|name| {
            let id = self.claim(name.as_bytes(), specs)?;
            let entry = self.entry(id);
            entry.meaning = Some(Meaning::Captured);
            entry.given = Given::InRequest;
            Ok(id.0)
        })
    }

    /// `bind` for an expression that is compiled once more: what its names stand for is settled.
    pub fn bind_again(&mut self, regex: &mut Regex) {
        self.limit(regex);
        let Ok(()) = regex.bind_names(|name| Ok::<_, Infallible>(self.id(name.as_bytes()).0));
    }

    /// Whether `define` will take a name.
    ///
    /// # Errors
    /// As `define`.
    pub fn check(&mut self, name: &[u8], specs: Specs<'_, E>) -> Result<(), String> {
        self.claim(name, specs).map(|_| ())
    }

    /// Gives a name a meaning of the configuration's own, in place of what it was before.
    ///
    /// # Errors
    /// `the duplicate "NAME" variable` for one that cannot be changed.
    pub fn define(
        &mut self,
        name: &[u8],
        computed: Arc<E::Computed>,
        keep: Keep,
        specs: Specs<'_, E>,
    ) -> Result<VariableId, String> {
        let id = self.claim(name, specs)?;
        self.entry(id).meaning = Some(Meaning::Computed { computed, keep });
        Ok(id)
    }

    /// Lets `set` write to a name. If nothing else gives it a meaning it is `unset` until then.
    ///
    /// # Errors
    /// `the duplicate "NAME" variable` for one that cannot be changed.
    pub fn assign(
        &mut self,
        name: &[u8],
        unset: impl FnOnce() -> Arc<E::Computed>,
        specs: Specs<'_, E>,
    ) -> Result<Target<E>, String> {
        let id = self.claim(name, specs)?;
        let spec = exact(&self.entry(id).text, specs);
        if let Some(VariableSpec { kind: VariableKind::Assigned(assign), .. }) = spec {
            return Ok(Target::Request(*assign));
        }
        let entry = self.entry(id);
        entry.given = Given::InRequest;
        if spec.is_none() && entry.meaning.is_none() {
            entry.meaning = Some(Meaning::Unset(unset()));
        }
        Ok(Target::Kept(id))
    }

    fn claim(&mut self, name: &[u8], specs: Specs<'_, E>) -> Result<VariableId, String> {
        if name.is_empty() {
            return Err("invalid variable name \"$\"".to_owned());
        }
        let id = self.id(name);
        match exact(&self.entry(id).text, specs) {
            Some(VariableSpec { kind: VariableKind::Exact, .. }) => {
                Err(format!("the duplicate \"{}\" variable", Verbatim(name)))
            }
            _ => Ok(id),
        }
    }

    fn entry(&mut self, id: VariableId) -> &mut Name<E> {
        &mut self.names[id.0 as usize]
    }

    /// Takes a value of the configuration apart.
    ///
    /// # Errors
    /// When a variable is written wrongly.
    pub fn compile(&mut self, value: &Bytes, pos: &Pos) -> Result<Value, Error> {
        Template::compile(value, pos, |name| Ok(self.id(name))).map(Value::new)
    }

    /// Whether a name (in lower case) is used anywhere.
    pub fn is_used(&self, name: &[u8]) -> bool {
        self.ids.contains_key(name)
    }

    /// Settles what every name stands for.
    ///
    /// # Errors
    /// `unknown "NAME" variable`.
    pub fn finish(self, specs: Specs<'_, E>) -> Result<Variables<E>, Error> {
        let bindings = self.names.into_iter().map(|name| name.bind(specs));
        let bindings = bindings.collect::<Result<_, _>>()?;
        let (families, exact): (Vec<_>, Vec<_>) =
            specs.iter().copied().partition(|spec| matches!(spec.kind, VariableKind::Prefix));
        // If two variables have the same name, the first one counts.
        let exact = exact.into_iter().rev().map(|spec| (spec.name.as_bytes(), spec)).collect();
        Ok(Variables { bindings, ids: self.ids, exact, families: families.into() })
    }
}

fn exact<E: Engine>(name: &[u8], specs: Specs<'_, E>) -> Option<&'static VariableSpec<E>> {
    let is_it =
        |spec: &&&VariableSpec<E>| !matches!(spec.kind, VariableKind::Prefix) && spec.name.as_bytes() == name;
    specs.iter().find(is_it).copied()
}

fn family<E: Engine>(name: &[u8], specs: Specs<'_, E>) -> Option<&'static VariableSpec<E>> {
    let has_it = |spec: &&&VariableSpec<E>| {
        matches!(spec.kind, VariableKind::Prefix) && name.starts_with(spec.name.as_bytes())
    };
    specs.iter().filter(has_it).max_by_key(|spec| spec.name.len()).copied()
}

impl<E: Engine> Name<E> {
    fn bind(self, specs: Specs<'_, E>) -> Result<Binding<E>, Error> {
        let Self { text, meaning, given } = self;
        let builtin = |spec: &VariableSpec<E>| {
            let rest = match spec.kind {
                VariableKind::Prefix => text[spec.name.len()..].into(),
                _ => Box::default(),
            };
            VariableSource::Builtin { eval: spec.eval, rest }
        };
        let (source, keep) = match meaning {
            Some(Meaning::Captured) => (VariableSource::Nothing, Keep::Never),
            Some(Meaning::Computed { computed, keep }) => {
                (VariableSource::Computed { computed, name: text.clone() }, keep)
            }
            None | Some(Meaning::Unset(_)) => {
                let spec = exact(&text, specs).or_else(|| family(&text, specs));
                match (spec, meaning) {
                    (Some(spec), _) => (builtin(spec), Keep::Never),
                    (None, Some(Meaning::Unset(computed))) => {
                        (VariableSource::Computed { computed, name: text.clone() }, Keep::Request)
                    }
                    (None, _) => {
                        let message = clearway_conf::error::message(&[&"unknown \"", &text, &"\" variable"]);
                        return Err(Error::unplaced(message));
                    }
                }
            }
        };
        let is_kept = given == Given::InRequest || keep == Keep::Request;
        let look = if is_kept { Look::Kept } else { Look::Source };
        Ok(Binding { source, keep, look })
    }
}

/// The meanings of a configuration's variables, by number.
#[derive(Default)]
pub struct Variables<E: Engine> {
    bindings: Vec<Binding<E>>,
    /// For those whose names are part of a response.
    ids: HashMap<Box<[u8]>, u32>,
    exact: HashMap<&'static [u8], &'static VariableSpec<E>>,
    families: Box<[&'static VariableSpec<E>]>,
}

/// The meaning of a name, for its value to be asked for often.
pub enum Named<E: Engine> {
    /// A variable that the configuration uses.
    Bound(VariableId),
    /// A variable of a module; `rest` is the part of the name behind a family's prefix.
    #[expect(missing_docs, reason = "said above")]
    Offered { eval: E::Eval, rest: Box<[u8]> },
}

/// The meaning of a variable.
pub struct Binding<E: Engine> {
    /// Where its value comes from.
    pub source: VariableSource<E>,
    /// How long it holds.
    pub keep: Keep,
    /// Where it is looked for first.
    pub look: Look,
}

/// Where the value of a variable is looked for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// A value that is kept with the request.
    Kept,
    /// Its source.
    Source,
}

/// Where the value of a variable comes from.
pub enum VariableSource<E: Engine> {
    /// A module works it out; `rest` is the part of the name behind a family's prefix.
    #[expect(missing_docs, reason = "said above")]
    Builtin { eval: E::Eval, rest: Box<[u8]> },
    /// The configuration says how to work it out.
    #[expect(missing_docs, reason = "said above")]
    Computed { computed: Arc<E::Computed>, name: Box<[u8]> },
    /// The variable has a value only if an expression or `set` gave it one.
    Nothing,
}

impl<E: Engine> Variables<E> {
    /// The meaning of a variable.
    #[inline]
    pub fn binding(&self, id: VariableId) -> &Binding<E> {
        &self.bindings[id.0 as usize]
    }

    /// The number of a name in lower case, if the configuration uses it.
    pub fn id(&self, name: &[u8]) -> Option<VariableId> {
        self.ids.get(name).map(|&id| VariableId(id))
    }

    /// The variable of a module that a name in lower case means, and the part of the name behind a family's
    /// prefix.
    pub fn spec<'n>(&self, name: &'n [u8]) -> Option<(&'static VariableSpec<E>, &'n [u8])> {
        if let Some(spec) = self.exact.get(name) {
            return Some((spec, &[]));
        }
        let spec = family(name, &self.families)?;
        Some((spec, &name[spec.name.len()..]))
    }

    /// The meaning of a name in lower case, if there is such a variable.
    pub fn named(&self, name: &[u8]) -> Option<Named<E>> {
        if let Some(id) = self.id(name) {
            return Some(Named::Bound(id));
        }
        let (spec, rest) = self.spec(name)?;
        Some(Named::Offered { eval: spec.eval, rest: rest.into() })
    }
}

/// The scene on which values are computed.
pub trait Scene<'c> {
    /// Works out what is kept for the rest of the request, if that has not been done.
    fn prepare(&self, id: VariableId);
    /// Appends the value of a variable; one that has none adds nothing.
    fn append_variable(&self, id: VariableId, out: &mut Vec<u8>);
    /// Appends what a group of the last expression that matched has captured.
    fn append_group(&self, group: usize, quote: Quote, out: &mut Vec<u8>);
    /// The value of a variable, if it has one: borrowed where it is a text of the configuration.
    fn variable(&self, id: VariableId) -> Option<Text<'c>>;
}

/// How the text of a group is written into a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quote {
    /// As it is.
    No,
    /// Percent-encoded, for arguments.
    Args,
}

/// A value of the configuration that may have variables in it.
#[derive(Clone, Debug)]
pub struct Value {
    template: Template<VariableId>,
    literal: Option<Bytes>,
    order: Order,
}

/// When the variables of a value are worked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// In their turn.
    InTurn,
    /// All of them first. It makes a difference where there is a `$1` as well and a variable comes from
    /// an expression: as in nginx, that one's groups are meant everywhere in the value.
    First,
}

impl Value {
    fn new(template: Template<VariableId>) -> Self {
        let has_variables = template.parts().iter().any(|part| matches!(part, Part::Variable(_)));
        let order = if has_variables && template.has_captures() { Order::First } else { Order::InTurn };
        Self { literal: template.as_literal(), template, order }
    }

    /// A value without variables.
    pub fn literal(text: Bytes) -> Self {
        Self::new(Template::literal(text))
    }

    /// The text, if there are no variables in it.
    pub fn as_literal(&self) -> Option<&[u8]> {
        self.literal.as_deref()
    }

    /// Whether it uses `$1` and the like.
    pub fn has_captures(&self) -> bool {
        self.template.has_captures()
    }

    /// Whether it uses this variable.
    pub fn uses(&self, id: VariableId) -> bool {
        self.template.parts().contains(&Part::Variable(id))
    }

    /// Appends the value; what has none adds nothing.
    pub fn append<'c>(&self, scene: &impl Scene<'c>, out: &mut Vec<u8>) {
        self.append_parts(scene, Quote::No, out);
    }

    /// As [`append`](Self::append), with `$1` and the like percent-encoded as in arguments.
    pub fn append_quoted<'c>(&self, scene: &impl Scene<'c>, out: &mut Vec<u8>) {
        self.append_parts(scene, Quote::Args, out);
    }

    fn append_parts<'c>(&self, scene: &impl Scene<'c>, quote: Quote, out: &mut Vec<u8>) {
        if self.order == Order::First {
            for part in self.template.parts() {
                if let Part::Variable(id) = part {
                    scene.prepare(*id);
                }
            }
        }
        for part in self.template.parts() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(id) => scene.append_variable(*id, out),
                Part::Capture(group) => scene.append_group(usize::from(*group), quote, out),
            }
        }
    }

    /// The value: the configuration's own text where there are no variables, or where it is nothing but a
    /// variable that has such a text for its value.
    pub fn eval<'c>(&'c self, scene: &impl Scene<'c>) -> Text<'c> {
        if let Some(literal) = &self.literal {
            return Cow::Borrowed(literal);
        }
        if let [Part::Variable(id)] = self.template.parts() {
            return scene.variable(*id).unwrap_or_default();
        }
        let mut out = Vec::with_capacity(VALUE_FIRST_BYTES);
        self.append(scene, &mut out);
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tests::Nothing;
    use crate::regex::Case;

    const fn spec(name: &'static str, kind: VariableKind<Nothing>) -> VariableSpec<Nothing> {
        VariableSpec { name, kind, doc: "", eval: () }
    }

    static SPECS: [VariableSpec<Nothing>; 5] = [
        spec("uri", VariableKind::Exact),
        spec("http_", VariableKind::Prefix),
        spec("http_via", VariableKind::Exact),
        spec("args", VariableKind::Assigned(())),
        spec("browser", VariableKind::Changeable),
    ];

    fn specs() -> Vec<&'static VariableSpec<Nothing>> {
        SPECS.iter().collect()
    }

    /// The meaning of a name, and whether a request is asked for its value first.
    fn meaning(variables: &Variables<Nothing>, id: VariableId) -> String {
        let binding = &variables.bindings[id.0 as usize];
        let source = match &binding.source {
            VariableSource::Builtin { rest, .. } => format!("builtin {}", Verbatim(rest)),
            VariableSource::Computed { name, .. } => format!("computed {}", Verbatim(name)),
            VariableSource::Nothing => "captured".to_owned(),
        };
        if binding.look == Look::Kept { format!("kept, {source}") } else { source }
    }

    #[test]
    fn exact_names_win_over_families_and_unknown_ones_are_refused() {
        let mut names = VariableNames::<Nothing>::default();
        let ids = [names.id(b"uri"), names.id(b"http_via"), names.id(b"http_X_y"), names.id(b"URI")];
        assert_eq!(ids[0], ids[3]);
        let variables = names.finish(&specs()).unwrap();
        let meanings = ids[1..3].iter().map(|id| meaning(&variables, *id)).collect::<Vec<_>>();
        assert_eq!(meanings, ["builtin ", "builtin x_y"]);

        let mut names = VariableNames::<Nothing>::default();
        names.id(b"Nothing");
        let error = names.finish(&specs()).err().unwrap();
        assert_eq!(error.to_string(), "unknown \"nothing\" variable");
    }

    #[test]
    fn named_groups_become_variables() {
        let mut names = VariableNames::<Nothing>::default();
        let user = names.id(b"user");
        let mut regex = Regex::compile(br"^/(?<user>\w+)/(\d+)", Case::Sensitive).unwrap();
        names.bind(&mut regex, &specs()).unwrap();
        assert_eq!(regex.names()[0].variable, user.0);
        let mut taken = Regex::compile(br"(?<uri>x)", Case::Sensitive).unwrap();
        assert_eq!(names.bind(&mut taken, &specs()).unwrap_err(), "the duplicate \"uri\" variable");
        assert_eq!(meaning(&names.finish(&specs()).unwrap(), user), "kept, captured");
    }

    #[test]
    fn what_the_configuration_says_counts_by_its_strength() {
        let specs = specs();
        let mut names = VariableNames::<Nothing>::default();
        let unset = || Arc::new(());
        let set = |names: &mut VariableNames<Nothing>, name: &str| match names.assign(
            name.as_bytes(),
            unset,
            &specs,
        ) {
            Ok(Target::Kept(id)) => id,
            Ok(Target::Request(_)) => panic!("{name} goes to the request"),
            Err(error) => panic!("{error}"),
        };
        let plain = set(&mut names, "Plain");
        let header = set(&mut names, "http_foo");
        let builtin = set(&mut names, "browser");
        let mapped = names.define(b"mapped", unset(), Keep::Never, &specs).unwrap();
        let volatile = names.define(b"volatile", unset(), Keep::Never, &specs).unwrap();
        assert_eq!(set(&mut names, "mapped"), mapped);
        let member = names.define(b"http_bar", unset(), Keep::Request, &specs).unwrap();
        assert!(matches!(names.assign(b"args", unset, &specs), Ok(Target::Request(_))));
        for (name, message) in
            [("Uri", "the duplicate \"Uri\" variable"), ("", "invalid variable name \"$\"")]
        {
            assert_eq!(names.assign(name.as_bytes(), unset, &specs).err().unwrap(), message);
            let defined = names.define(name.as_bytes(), unset(), Keep::Never, &specs);
            assert_eq!(defined.unwrap_err(), message);
        }
        let variables = names.finish(&specs).unwrap();
        let meanings: Vec<_> = [plain, header, builtin, mapped, volatile, member]
            .into_iter()
            .map(|id| meaning(&variables, id))
            .collect();
        assert_eq!(
            meanings,
            [
                "kept, computed plain",
                "kept, builtin foo",
                "kept, builtin ",
                "kept, computed mapped",
                "computed volatile",
                "kept, computed http_bar"
            ]
        );
    }
}
