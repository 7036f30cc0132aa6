//! Variables at run time: what those of modules look at, and how values come to be. Runs on loops and never
//! waits; what has to be kept of it is in `values`.

use std::borrow::Cow;

use clearway_base::log::Level;
use clearway_base::units;
use clearway_message::{ResponseHead, Text, Version};
use clearway_site::{Keep, Look, Named, Quote, Scene, Size, VariableId, VariableSource};

use crate::output::{Compression, OutputState};
use crate::request::Request;
use crate::tables::Http;
use clearway_base::log::Verbatim;

/// How deep variables may be made of each other: a value of `map` with variables in it, and so on.
const DEPTH_MAX: u8 = 100;

/// Takes the value that `set` gives a variable.
pub type Assign = fn(request: &mut Request<'_>, value: Vec<u8>);

/// Appends a variable's value to `out`; `name` is the part of the name behind a family's prefix.
pub type Eval = fn(view: &View<'_, '_>, name: &[u8], out: &mut Vec<u8>) -> Presence;

/// Whether a variable has a value. The access log shows `-` for one that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// The variable has a value, which may be empty.
    Found,
    /// The variable has no value.
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

/// A variable that was looked up by its name. It means something to requests of one configuration.
pub struct NamedVariable(Named<Http>);

/// The facts that a variable may look at.
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
}

impl View<'_, '_> {
    /// Status code, 0 while there is none.
    pub fn status(&self) -> u16 {
        self.output.status()
    }

    /// The head of the response, as it is now.
    pub fn head(&self) -> &ResponseHead<'_> {
        &self.output.head
    }

    /// The text that a group of the last matching expression has captured; empty if it took no part.
    pub fn group(&self, number: usize) -> Vec<u8> {
        let mut text = Vec::new();
        self.request.values.append_group(number, Quote::No, &mut text);
        text
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

    /// The sizes before and after compression, if the body was compressed.
    pub fn compression(&self) -> Option<Compression> {
        self.output.compression()
    }

    /// Bytes that were sent to the client.
    pub fn sent_bytes(&self) -> u64 {
        self.output.sent_bytes()
    }

    /// Bytes that were sent to the client without the head.
    pub fn body_sent_bytes(&self) -> u64 {
        self.output.body_sent_bytes()
    }
}

/// A variable that the configuration makes (`map`, `geo`).
pub trait Computed: Send + Sync {
    /// Its value; `None` when it has none.
    fn eval<'c>(&'c self, view: &View<'_, 'c>) -> Option<Text<'c>>;
}

/// The values of variables.
impl<'c> View<'_, 'c> {
    /// The value of a variable, if it has one: borrowed where it is a text of the configuration.
    pub fn variable(&self, id: VariableId) -> Option<Text<'c>> {
        let binding = self.request.variables().binding(id);
        if binding.look == Look::Kept
            && let Some(value) = self.request.values.find(id)
        {
            return value;
        }
        match &binding.source {
            VariableSource::Builtin { eval, rest } => {
                let mut out = Vec::new();
                (eval(self, rest, &mut out) == Presence::Found).then_some(Cow::Owned(out))
            }
            VariableSource::Nothing => None,
            VariableSource::Computed { computed, name } => {
                let value = compute(&**computed, name, self);
                if binding.keep == Keep::Request {
                    self.request.values.keep(id, value.clone());
                }
                value
            }
        }
    }

    /// Appends the value of a variable.
    pub fn append_variable(&self, id: VariableId, out: &mut Vec<u8>) -> Presence {
        let binding = self.request.variables().binding(id);
        if binding.look == Look::Kept
            && let Some(is_found) = self.request.values.append(id, out)
        {
            return if is_found { Presence::Found } else { Presence::NotFound };
        }
        match &binding.source {
            VariableSource::Builtin { eval, rest } => eval(self, rest, out),
            VariableSource::Nothing => Presence::NotFound,
            VariableSource::Computed { computed, name } => {
                let value = compute(&**computed, name, self);
                let presence = Presence::put(value.as_deref(), out);
                if binding.keep == Keep::Request {
                    self.request.values.keep(id, value);
                }
                presence
            }
        }
    }

    /// The value of a variable by its name in lower case, if there is such a variable and it has one. Only
    /// for names that are not part of the configuration: this one is looked up.
    pub fn variable_named(&self, name: &[u8]) -> Option<Text<'c>> {
        let variables = self.request.variables();
        if let Some(id) = variables.id(name) {
            return self.variable(id);
        }
        let (spec, rest) = variables.spec(name)?;
        let mut out = Vec::new();
        ((spec.eval)(self, rest, &mut out) == Presence::Found).then_some(Cow::Owned(out))
    }

    /// Looks a variable up by its name in lower case, if there is such a variable.
    pub fn named(&self, name: &[u8]) -> Option<NamedVariable> {
        self.request.variables().named(name).map(NamedVariable)
    }

    /// Appends the value of a variable that was looked up for a request of this configuration.
    pub fn append_named(&self, NamedVariable(named): &NamedVariable, out: &mut Vec<u8>) -> Presence {
        match named {
            Named::Bound(id) => self.append_variable(*id, out),
            Named::Offered { eval, rest } => eval(self, rest, out),
        }
    }
}

impl<'c> Scene<'c> for View<'_, 'c> {
    fn prepare(&self, id: VariableId) {
        let binding = self.request.variables().binding(id);
        if binding.keep == Keep::Request && self.request.values.find(id).is_none() {
            self.variable(id);
        }
    }

    fn append_variable(&self, id: VariableId, out: &mut Vec<u8>) {
        View::append_variable(self, id, out);
    }

    fn append_group(&self, group: usize, quote: Quote, out: &mut Vec<u8>) {
        self.request.values.append_group(group, quote, out);
    }

    fn variable(&self, id: VariableId) -> Option<Text<'c>> {
        View::variable(self, id)
    }
}

/// Bytes of a size that may depend on the request.
pub(crate) fn eval_size(size: &Size, view: &View<'_, '_>) -> u64 {
    let mut value = Vec::new();
    match size {
        Size::Fixed(bytes) => return *bytes,
        Size::Evaluated(parts) => parts.append(view, &mut value),
    }
    if value.is_empty() {
        return 0;
    }
    units::parse_size(&value).unwrap_or_else(|| {
        view.request.log(Level::Error, format_args!("invalid size \"{}\"", Verbatim(&value)));
        0
    })
}

fn compute<'c>(computed: &'c dyn Computed, name: &[u8], view: &View<'_, 'c>) -> Option<Text<'c>> {
    if view.depth == DEPTH_MAX {
        let message = format_args!("cycle while evaluating variable \"{}\"", Verbatim(name));
        view.request.log(Level::Error, message);
        return None;
    }
    debug_assert!(view.depth < DEPTH_MAX, "variables are made of each other so deep at most");
    computed.eval(&View { depth: view.depth + 1, ..*view })
}
