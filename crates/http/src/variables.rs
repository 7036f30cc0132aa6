//! Variables: the table that modules fill, those that the configuration makes, names resolved to numbers
//! at load, and values with variables in them. Nothing is looked up by name at run time. Evaluation runs
//! on loops and never waits; what has to be kept of it is in `values`.

pub(crate) mod core_variables;
pub(crate) mod values;

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use clearway_conf::{Error, Part, Pos, Template};
use clearway_message::Version;

use clearway_base::log::Level;

use crate::output::{Compression, OutputState};
use crate::regex::Regex;
use crate::request::{Request, Verbatim};
use crate::variables::values::Quote;
use clearway_message::Text;

/// How deep variables may be made of each other: a value of `map` with variables in it, and so on.
const DEPTH_MAX: u8 = 100;

/// What is made room for at first for a value of several parts, bytes.
const VALUE_FIRST_BYTES: usize = 64;

/// A variable that a module offers.
pub struct VariableSpec {
    /// Its name in lower case; of a family (`arg_`, `http_`) what all members begin with.
    pub name: &'static str,
    /// One variable or a family, and whether the configuration may change it.
    pub kind: VariableKind,
    /// What its value is, in prose.
    pub doc: &'static str,
    /// Appends the value.
    pub eval: Eval,
}

/// What a `VariableSpec` stands for.
#[derive(Clone, Copy, Debug)]
pub enum VariableKind {
    /// The variable with that very name, which the configuration cannot change.
    Exact,
    /// The same, but `set`, `map` and the like may take its place.
    Changeable,
    /// The same, and what `set` gives it goes to the request itself.
    Assigned(Assign),
    /// All variables whose names begin so; `Eval` is told the rest of the name.
    Prefix,
}

/// Takes the value that `set` gives a variable.
pub type Assign = fn(request: &mut Request<'_>, value: Vec<u8>);

/// Appends a variable's value to `out`; `name` is the part of the name behind a family's prefix.
pub type Eval = fn(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence;

/// Whether a variable has a value. The access log shows `-` for one that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It has one, which may be empty.
    Found,
    /// It has none.
    NotFound,
}

impl Presence {
    /// Appends a value if there is one.
    pub fn put(value: Option<&[u8]>, out: &mut Vec<u8>) -> Self {
        match value {
            Some(value) => {
                out.extend_from_slice(value);
                Self::Found
            }
            None => Self::NotFound,
        }
    }
}

/// What a variable may look at.
#[derive(Clone, Copy)]
pub struct View<'a, 'c> {
    /// The request.
    pub request: &'a Request<'c>,
    pub(crate) output: &'a OutputState<'c>,
    /// How many variables are being worked out around this one.
    depth: u8,
}

impl<'a, 'c> View<'a, 'c> {
    pub(crate) fn new(request: &'a Request<'c>, output: &'a OutputState<'c>) -> Self {
        Self { request, output, depth: 0 }
    }

    /// The value of a variable, if it has one: borrowed where it is a text of the configuration.
    pub fn variable(&self, id: VariableId) -> Option<Text<'c>> {
        self.request.variables().value(id, self)
    }

    /// The value of a variable by its name in lower case, if there is such a variable and it has one. Only
    /// for names that are not part of the configuration: this one is looked up.
    pub fn variable_named(&self, name: &[u8]) -> Option<Text<'c>> {
        self.request.variables().find(name, self)
    }
}

impl View<'_, '_> {
    /// Status code, 0 while there is none.
    pub fn status(&self) -> u16 {
        self.output.status()
    }

    /// Status code as logs show it: three digits, `000` or in HTTP/0.9 `009` while there is none. As in nginx
    /// that of an error page is what `error_page` says, even if its client has that page already, or gets a
    /// part of it.
    pub fn status_digits(&self) -> [u8; 3] {
        let code = match self.request.error_status().unwrap_or_else(|| self.status()) {
            0 if self.request.version() == Version::HTTP_09 => 9,
            code => code,
        };
        [code / 100, code / 10, code].map(|number| b'0' + (number % 10) as u8)
    }

    /// Appends the value of a variable.
    pub fn append_variable(&self, id: VariableId, out: &mut Vec<u8>) -> Presence {
        self.request.variables().append(id, self, out)
    }

    /// What the body was compressed to, if it was.
    pub fn compression(&self) -> Option<Compression> {
        self.output.compression()
    }

    /// What was sent to the client, bytes.
    pub fn sent_bytes(&self) -> u64 {
        self.output.sent_bytes()
    }

    /// What was sent to the client without the head, bytes.
    pub fn body_sent_bytes(&self) -> u64 {
        self.output.body_sent_bytes()
    }
}

/// The number of a variable in one configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableId(pub(crate) u32);

/// A variable that the configuration makes (`map`, `geo`).
pub trait Computed: Send + Sync {
    /// Its value; `None` when it has none.
    fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Option<Text<'c>>;
}

/// How long the value of a computed variable holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// For the rest of the request, once it was asked for.
    Request,
    /// It is worked out each time (`volatile`).
    Never,
}

/// What `set` writes to.
#[derive(Clone, Copy)]
pub enum Target {
    /// A variable whose value is kept with the request.
    Kept(VariableId),
    /// Something of the request itself.
    Request(Assign),
}

/// Names that the configuration uses, while it is read. They are the same in any case.
#[derive(Default)]
pub struct VariableNames {
    names: Vec<Name>,
    ids: HashMap<Box<[u8]>, u32>,
    /// `pcre_match_limit`, which all expressions get when their names are bound.
    match_limit: Option<u64>,
}

struct Name {
    text: Box<[u8]>,
    meaning: Option<Meaning>,
    /// Where its value may come from, but for what it stands for.
    given: Given,
}

/// What the configuration says that a name stands for.
enum Meaning {
    /// A group of an expression.
    Captured,
    Computed {
        computed: Arc<dyn Computed>,
        keep: Keep,
    },
    /// What it is before `set` was executed, unless the name is of a family.
    Unset(Arc<dyn Computed>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    Never,
    /// Captured, or set.
    InRequest,
}

type Specs<'a> = &'a [&'static VariableSpec];

impl VariableNames {
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
    pub fn bind(&mut self, regex: &mut Regex, specs: Specs<'_>) -> Result<(), String> {
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
    pub(crate) fn bind_again(&mut self, regex: &mut Regex) {
        self.limit(regex);
        let Ok(()) = regex.bind_names(|name| Ok::<_, Infallible>(self.id(name.as_bytes()).0));
    }

    /// Whether `define` will take a name.
    ///
    /// # Errors
    /// As `define`.
    pub(crate) fn check(&mut self, name: &[u8], specs: Specs<'_>) -> Result<(), String> {
        self.claim(name, specs).map(|_| ())
    }

    /// Gives a name a meaning of the configuration's own, in place of what it was before.
    ///
    /// # Errors
    /// `the duplicate "NAME" variable` for one that cannot be changed.
    pub fn define(
        &mut self,
        name: &[u8],
        computed: Arc<dyn Computed>,
        keep: Keep,
        specs: Specs<'_>,
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
        unset: impl FnOnce() -> Arc<dyn Computed>,
        specs: Specs<'_>,
    ) -> Result<Target, String> {
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

    fn claim(&mut self, name: &[u8], specs: Specs<'_>) -> Result<VariableId, String> {
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

    fn entry(&mut self, id: VariableId) -> &mut Name {
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
    pub fn finish(self, specs: Specs<'_>) -> Result<Variables, Error> {
        let bindings = self.names.into_iter().map(|name| name.bind(specs));
        let bindings = bindings.collect::<Result<_, _>>()?;
        Ok(Variables { bindings, ids: self.ids, specs: specs.into() })
    }
}

fn exact(name: &[u8], specs: Specs<'_>) -> Option<&'static VariableSpec> {
    let is_it =
        |spec: &&&VariableSpec| !matches!(spec.kind, VariableKind::Prefix) && spec.name.as_bytes() == name;
    specs.iter().find(is_it).copied()
}

fn family(name: &[u8], specs: Specs<'_>) -> Option<&'static VariableSpec> {
    let has_it = |spec: &&&VariableSpec| {
        matches!(spec.kind, VariableKind::Prefix) && name.starts_with(spec.name.as_bytes())
    };
    specs.iter().filter(has_it).max_by_key(|spec| spec.name.len()).copied()
}

impl Name {
    fn bind(self, specs: Specs<'_>) -> Result<Binding, Error> {
        let Self { text, meaning, given } = self;
        let builtin = |spec: &VariableSpec| {
            let rest = match spec.kind {
                VariableKind::Prefix => text[spec.name.len()..].into(),
                _ => Box::default(),
            };
            Source::Builtin { eval: spec.eval, rest }
        };
        let (source, keep) = match meaning {
            Some(Meaning::Captured) => (Source::Nothing, Keep::Never),
            Some(Meaning::Computed { computed, keep }) => {
                (Source::Computed { computed, name: text.clone() }, keep)
            }
            None | Some(Meaning::Unset(_)) => {
                let spec = exact(&text, specs).or_else(|| family(&text, specs));
                match (spec, meaning) {
                    (Some(spec), _) => (builtin(spec), Keep::Never),
                    (None, Some(Meaning::Unset(computed))) => {
                        (Source::Computed { computed, name: text.clone() }, Keep::Request)
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

/// What the variables of a configuration stand for, by number.
#[derive(Default)]
pub struct Variables {
    bindings: Vec<Binding>,
    /// For those whose names are part of a response.
    ids: HashMap<Box<[u8]>, u32>,
    specs: Box<[&'static VariableSpec]>,
}

struct Binding {
    source: Source,
    keep: Keep,
    look: Look,
}

/// Where the value of a variable is looked for first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// What is kept with the request.
    Kept,
    /// Its source.
    Source,
}

enum Source {
    Builtin { eval: Eval, rest: Box<[u8]> },
    Computed { computed: Arc<dyn Computed>, name: Box<[u8]> },
    Nothing,
}

impl Variables {
    /// Appends the value of a variable.
    pub(crate) fn append<'c>(&'c self, id: VariableId, view: &View<'_, 'c>, out: &mut Vec<u8>) -> Presence {
        let binding = &self.bindings[id.0 as usize];
        if binding.look == Look::Kept
            && let Some(is_found) = view.request.values.append(id, out)
        {
            return if is_found { Presence::Found } else { Presence::NotFound };
        }
        match &binding.source {
            Source::Builtin { eval, rest } => eval(view, rest, out),
            Source::Nothing => Presence::NotFound,
            Source::Computed { computed, name } => {
                let value = compute(&**computed, name, view);
                let presence = Presence::put(value.as_deref(), out);
                if binding.keep == Keep::Request {
                    view.request.values.keep(id, value);
                }
                presence
            }
        }
    }

    /// The value of a variable by its name in lower case, if there is such a variable and it has one.
    fn find<'c>(&'c self, name: &[u8], view: &View<'_, 'c>) -> Option<Text<'c>> {
        if let Some(&id) = self.ids.get(name) {
            return self.value(VariableId(id), view);
        }
        let spec = exact(name, &self.specs).or_else(|| family(name, &self.specs))?;
        let rest = if matches!(spec.kind, VariableKind::Prefix) { &name[spec.name.len()..] } else { &[] };
        let mut out = Vec::new();
        ((spec.eval)(view, rest, &mut out) == Presence::Found).then_some(Cow::Owned(out))
    }

    /// Works out what is kept for the rest of the request, if that has not been done.
    fn prepare<'c>(&'c self, id: VariableId, view: &View<'_, 'c>) {
        let binding = &self.bindings[id.0 as usize];
        if binding.keep == Keep::Request && view.request.values.find(id).is_none() {
            self.value(id, view);
        }
    }

    /// The value of a variable: borrowed where it is a text of the configuration.
    fn value<'c>(&'c self, id: VariableId, view: &View<'_, 'c>) -> Option<Text<'c>> {
        let binding = &self.bindings[id.0 as usize];
        if binding.look == Look::Kept
            && let Some(value) = view.request.values.find(id)
        {
            return value;
        }
        match &binding.source {
            Source::Builtin { eval, rest } => {
                let mut out = Vec::new();
                (eval(view, rest, &mut out) == Presence::Found).then_some(Cow::Owned(out))
            }
            Source::Nothing => None,
            Source::Computed { computed, name } => {
                let value = compute(&**computed, name, view);
                if binding.keep == Keep::Request {
                    view.request.values.keep(id, value.clone());
                }
                value
            }
        }
    }
}

fn compute<'c>(computed: &'c dyn Computed, name: &[u8], view: &View<'_, 'c>) -> Option<Text<'c>> {
    if view.depth == DEPTH_MAX {
        let message = format_args!("cycle while evaluating variable \"{}\"", Verbatim(name));
        view.request.log(Level::Error, message);
        return None;
    }
    computed.eval(&View { depth: view.depth + 1, ..*view })
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
    pub fn append(&self, view: &View<'_, '_>, out: &mut Vec<u8>) {
        self.append_parts(view, Quote::No, out);
    }

    /// The same, where `$1` and the like are percent-encoded as in arguments.
    pub fn append_quoted(&self, view: &View<'_, '_>, out: &mut Vec<u8>) {
        self.append_parts(view, Quote::Args, out);
    }

    fn append_parts(&self, view: &View<'_, '_>, quote: Quote, out: &mut Vec<u8>) {
        if self.order == Order::First {
            for part in self.template.parts() {
                if let Part::Variable(id) = part {
                    view.request.variables().prepare(*id, view);
                }
            }
        }
        for part in self.template.parts() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(id) => {
                    view.request.variables().append(*id, view, out);
                }
                Part::Capture(group) => {
                    view.request.values.append_group(usize::from(*group), quote, out);
                }
            }
        }
    }

    /// The value: the configuration's own text where there are no variables, or where it is nothing but a
    /// variable that has such a text for its value.
    pub fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Text<'c> {
        if let Some(literal) = &self.literal {
            return Cow::Borrowed(literal);
        }
        if let [Part::Variable(id)] = self.template.parts() {
            return view.variable(*id).unwrap_or_default();
        }
        let mut out = Vec::with_capacity(VALUE_FIRST_BYTES);
        self.append(view, &mut out);
        Cow::Owned(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::Case;

    const fn spec(name: &'static str, kind: VariableKind) -> VariableSpec {
        VariableSpec { name, kind, doc: "", eval: |_, _, _| Presence::NotFound }
    }

    static SPECS: [VariableSpec; 5] = [
        spec("uri", VariableKind::Exact),
        spec("http_", VariableKind::Prefix),
        spec("http_via", VariableKind::Exact),
        spec("args", VariableKind::Assigned(|_, _| {})),
        spec("browser", VariableKind::Changeable),
    ];

    fn specs() -> Vec<&'static VariableSpec> {
        SPECS.iter().collect()
    }

    struct Fixed;

    impl Computed for Fixed {
        fn eval<'c>(&'c self, _: &View<'_, 'c>) -> Option<Text<'c>> {
            None
        }
    }

    /// What a name stands for, and whether a request is asked for its value first.
    fn meaning(variables: &Variables, id: VariableId) -> String {
        let binding = &variables.bindings[id.0 as usize];
        let source = match &binding.source {
            Source::Builtin { rest, .. } => format!("builtin {}", Verbatim(rest)),
            Source::Computed { name, .. } => format!("computed {}", Verbatim(name)),
            Source::Nothing => "captured".to_owned(),
        };
        if binding.look == Look::Kept { format!("kept, {source}") } else { source }
    }

    #[test]
    fn exact_names_win_over_families_and_unknown_ones_are_refused() {
        let mut names = VariableNames::default();
        let ids = [names.id(b"uri"), names.id(b"http_via"), names.id(b"http_X_y"), names.id(b"URI")];
        assert_eq!(ids[0], ids[3]);
        let variables = names.finish(&specs()).unwrap();
        let meanings = ids[1..3].iter().map(|id| meaning(&variables, *id)).collect::<Vec<_>>();
        assert_eq!(meanings, ["builtin ", "builtin x_y"]);

        let mut names = VariableNames::default();
        names.id(b"Nothing");
        let error = names.finish(&specs()).err().unwrap();
        assert_eq!(error.to_string(), "unknown \"nothing\" variable");
    }

    #[test]
    fn named_groups_become_variables() {
        let mut names = VariableNames::default();
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
        let mut names = VariableNames::default();
        let unset = || -> Arc<dyn Computed> { Arc::new(Fixed) };
        let set = |names: &mut VariableNames, name: &str| match names.assign(name.as_bytes(), unset, &specs) {
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
