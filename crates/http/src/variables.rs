//! Variables: the table that modules fill, names resolved to numbers at load, values with variables
//! in them, and what a regular expression has captured. Nothing is looked up by name at run time.
//! Evaluation runs on loops and never waits.

use std::collections::HashMap;

use bytes::Bytes;
use clearway_conf::{Error, Part, Pos, Template};
use clearway_h1::Version;

use crate::output::OutputState;
use crate::regex::{Captures, MatchError, Regex};
use crate::request::Request;

/// A variable that a module offers.
pub struct VariableSpec {
    /// Its name; of a family (`arg_`, `http_`) what all members begin with.
    pub name: &'static str,
    /// One variable or a family.
    pub kind: VariableKind,
    /// What its value is, in prose.
    pub doc: &'static str,
    /// Appends the value.
    pub eval: Eval,
}

/// Whether a `VariableSpec` stands for one variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// The variable with that very name.
    Exact,
    /// All variables whose names begin so; `Eval` is told the rest of the name.
    Prefix,
}

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
}

impl View<'_, '_> {
    /// Status code, 0 while there is none.
    pub fn status(&self) -> u16 {
        self.output.status()
    }

    /// Status code as logs show it: three digits, `000` or in HTTP/0.9 `009` while there is none.
    pub fn status_digits(&self) -> [u8; 3] {
        let code = match self.status() {
            0 if self.request.version() == Version::HTTP_09 => 9,
            code => code,
        };
        [code / 100, code / 10, code].map(|number| b'0' + (number % 10) as u8)
    }

    /// Appends the value of a variable.
    pub fn append_variable(&self, id: VariableId, out: &mut Vec<u8>) -> Presence {
        self.request.variables().append(id, self, out)
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
pub struct VariableId(u32);

/// Names that the configuration uses, while it is read.
#[derive(Default)]
pub struct VariableNames {
    names: Vec<Name>,
    ids: HashMap<Box<[u8]>, u32>,
}

struct Name {
    text: Box<[u8]>,
    is_captured: bool,
}

impl VariableNames {
    /// The number of a name, which need not be known yet: what it stands for is asked at the end.
    pub fn id(&mut self, name: &[u8]) -> VariableId {
        if let Some(&id) = self.ids.get(name) {
            return VariableId(id);
        }
        let id = u32::try_from(self.names.len()).expect("a configuration is far smaller than 4 GiB");
        self.names.push(Name { text: name.into(), is_captured: false });
        self.ids.insert(name.into(), id);
        VariableId(id)
    }

    /// Makes the named groups of an expression variables.
    ///
    /// # Errors
    /// `the duplicate "NAME" variable` for a name that a module has given to something else.
    pub fn bind(&mut self, regex: &mut Regex, specs: &[&'static VariableSpec]) -> Result<(), String> {
        regex.bind_names(|name| {
            let taken = specs.iter().any(|spec| spec.kind == VariableKind::Exact && spec.name == name);
            if taken {
                return Err(format!("the duplicate \"{name}\" variable"));
            }
            let id = self.id(name.as_bytes());
            self.names[id.0 as usize].is_captured = true;
            Ok(id.0)
        })
    }

    /// Takes a value of the configuration apart.
    ///
    /// # Errors
    /// When a variable is written wrongly.
    pub fn compile(&mut self, value: &Bytes, pos: &Pos) -> Result<Value, Error> {
        Template::compile(value, pos, |name| Ok(self.id(name))).map(Value::new)
    }

    /// Whether a name is used anywhere.
    pub fn is_used(&self, name: &[u8]) -> bool {
        self.ids.contains_key(name)
    }

    /// Settles what every name stands for.
    ///
    /// # Errors
    /// `unknown "NAME" variable`.
    pub fn finish(self, specs: &[&'static VariableSpec]) -> Result<Variables, Error> {
        let bindings = self.names.into_iter().map(|name| name.bind(specs));
        Ok(Variables { bindings: bindings.collect::<Result<_, _>>()? })
    }
}

impl Name {
    fn bind(self, specs: &[&'static VariableSpec]) -> Result<Binding, Error> {
        if self.is_captured {
            return Ok(Binding::Captured);
        }
        let text = &self.text;
        let exact = specs
            .iter()
            .find(|spec| spec.kind == VariableKind::Exact && spec.name.as_bytes() == &**text)
            .map(|spec| Binding::Builtin { eval: spec.eval, rest: Box::default() });
        let family = || {
            let longest = specs
                .iter()
                .filter(|spec| spec.kind == VariableKind::Prefix && text.starts_with(spec.name.as_bytes()))
                .max_by_key(|spec| spec.name.len())?;
            Some(Binding::Builtin { eval: longest.eval, rest: text[longest.name.len()..].into() })
        };
        exact.or_else(family).ok_or_else(|| {
            Error::unplaced(clearway_conf::error::message(&[&"unknown \"", text, &"\" variable"]))
        })
    }
}

/// What the variables of a configuration stand for, by number.
#[derive(Default)]
pub struct Variables {
    bindings: Vec<Binding>,
}

enum Binding {
    Builtin { eval: Eval, rest: Box<[u8]> },
    Captured,
}

impl Variables {
    fn append(&self, id: VariableId, view: &View<'_, '_>, out: &mut Vec<u8>) -> Presence {
        match &self.bindings[id.0 as usize] {
            Binding::Builtin { eval, rest } => eval(view, rest, out),
            Binding::Captured => Presence::put(view.request.captured.named(id), out),
        }
    }
}

/// A value of the configuration that may have variables in it.
#[derive(Clone, Debug)]
pub struct Value {
    template: Template<VariableId>,
    literal: Option<Bytes>,
}

impl Value {
    fn new(template: Template<VariableId>) -> Self {
        Self { literal: template.as_literal(), template }
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
        for part in self.template.parts() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(id) => {
                    view.request.variables().append(*id, view, out);
                }
                Part::Capture(group) => {
                    out.extend_from_slice(view.request.captured.group(usize::from(*group)));
                }
            }
        }
    }

    /// The value: the configuration's own text where there are no variables.
    pub fn eval<'c>(&'c self, view: &View<'_, 'c>) -> std::borrow::Cow<'c, [u8]> {
        if let Some(literal) = &self.literal {
            return std::borrow::Cow::Borrowed(literal);
        }
        let mut out = Vec::new();
        self.append(view, &mut out);
        std::borrow::Cow::Owned(out)
    }
}

/// What expressions have captured in a request: `$1` to `$9` of the last one that matched, and named
/// groups of all of them. Most requests have nothing of it.
#[derive(Default)]
pub(crate) struct Captured(Option<Box<Texts>>);

#[derive(Default)]
struct Texts {
    groups: Captures,
    subject: Vec<u8>,
    named: Vec<(u32, Box<[u8]>)>,
}

impl Captured {
    /// Runs an expression and keeps what it captures.
    pub(crate) fn exec(&mut self, regex: &Regex, subject: &[u8]) -> Result<bool, MatchError> {
        let texts = self.0.get_or_insert_default();
        if !regex.exec(subject, &mut texts.groups)? {
            return Ok(false);
        }
        texts.subject.clear();
        if regex.groups() > 0 {
            texts.subject.extend_from_slice(subject);
        }
        for name in regex.names() {
            let text = texts.group(name.group).into();
            match texts.named.iter_mut().find(|(id, _)| *id == name.variable) {
                Some((_, slot)) => *slot = text,
                None => texts.named.push((name.variable, text)),
            }
        }
        Ok(true)
    }

    /// The text of a group; empty when it took no part.
    pub(crate) fn group(&self, number: usize) -> &[u8] {
        self.0.as_ref().map_or(&[], |texts| texts.group(number))
    }

    fn named(&self, id: VariableId) -> Option<&[u8]> {
        let named = &self.0.as_ref()?.named;
        named.iter().find(|(variable, _)| *variable == id.0).map(|(_, text)| &**text)
    }
}

impl Texts {
    fn group(&self, number: usize) -> &[u8] {
        self.groups.get(number).and_then(|range| self.subject.get(range)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::regex::Case;

    static SPECS: [VariableSpec; 3] = [
        VariableSpec { name: "uri", kind: VariableKind::Exact, doc: "", eval: |_, _, _| Presence::NotFound },
        VariableSpec {
            name: "http_",
            kind: VariableKind::Prefix,
            doc: "",
            eval: |_, _, _| Presence::NotFound,
        },
        VariableSpec {
            name: "http_via",
            kind: VariableKind::Exact,
            doc: "",
            eval: |_, _, _| Presence::NotFound,
        },
    ];

    fn specs() -> Vec<&'static VariableSpec> {
        SPECS.iter().collect()
    }

    #[test]
    fn exact_names_win_over_families_and_unknown_ones_are_refused() {
        let mut names = VariableNames::default();
        let ids = [names.id(b"uri"), names.id(b"http_via"), names.id(b"http_x_y"), names.id(b"uri")];
        assert_eq!(ids[0], ids[3]);
        let variables = names.finish(&specs()).unwrap();
        let rest = |id: VariableId| match &variables.bindings[id.0 as usize] {
            Binding::Builtin { rest, .. } => rest.to_vec(),
            Binding::Captured => panic!("captured"),
        };
        assert_eq!((rest(ids[1]), rest(ids[2])), (Vec::new(), b"x_y".to_vec()));

        let mut names = VariableNames::default();
        names.id(b"nothing");
        let error = names.finish(&specs()).err().unwrap();
        assert_eq!(error.to_string(), "unknown \"nothing\" variable");
    }

    #[test]
    fn named_groups_become_variables_and_keep_their_text() {
        let mut names = VariableNames::default();
        let user = names.id(b"user");
        let mut regex = Regex::compile(br"^/(?<user>\w+)/(\d+)", Case::Sensitive).unwrap();
        names.bind(&mut regex, &specs()).unwrap();
        let mut taken = Regex::compile(br"(?<uri>x)", Case::Sensitive).unwrap();
        assert_eq!(names.bind(&mut taken, &specs()).unwrap_err(), "the duplicate \"uri\" variable");
        assert!(names.finish(&specs()).is_ok());

        let mut captured = Captured::default();
        assert!(captured.exec(&regex, b"/ann/42").unwrap());
        assert_eq!((captured.group(2), captured.named(user)), (&b"42"[..], Some(&b"ann"[..])));
        let other = Regex::compile(b"(x)?y", Case::Sensitive).unwrap();
        assert!(captured.exec(&other, b"zy").unwrap());
        assert_eq!((captured.group(1), captured.named(user)), (&b""[..], Some(&b"ann"[..])));
    }
}
