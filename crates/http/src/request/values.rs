//! The values of variables in one request: what expressions have captured, what `set` has said, and what was
//! worked out once and holds for the rest of the request. Owned by the request.
//!
//! Evaluation borrows the request and still has to keep things in here, and a handler that waits holds
//! such a borrow: hence the cell, in which nothing else is evaluated.

use std::sync::Arc;

use clearway_message::{Text, uri::Escape, uri::escape_uri};
use clearway_runtime::{Entered, TaskCell};
use clearway_site::{Quote, VariableId, regex::Captures, regex::MatchError, regex::Regex};
use smallvec::SmallVec;

use crate::link::parts::Parts;
use crate::request::tree::{Tree, VariableValues};

/// The values of a request. Most requests have none.
#[derive(Default)]
pub(crate) struct Values<'c>(TaskCell<Option<Box<Kept<'c>>>>);

#[derive(Default)]
struct Kept<'c> {
    /// `$1` to `$9`: groups of the last expression that matched, in what it was matched with.
    groups: Captures,
    subject: SmallVec<[u8; 64]>,
    /// Unless they are shared.
    variables: VariableValues<'c>,
    /// The state that is shared with subrequests, once there are any.
    tree: Option<Arc<Tree<'c>>>,
}

impl<'c> Values<'c> {
    /// The values of a subrequest: variables are shared, groups are its own.
    pub(crate) fn of_tree(tree: &Arc<Tree<'c>>) -> Self {
        Self(TaskCell::new(Some(Box::new(Kept { tree: Some(Arc::clone(tree)), ..Kept::default() }))))
    }

    /// The values of a request of its own that begins with these variables.
    pub(crate) fn copy_of(other: &Self) -> Self {
        let variables = other.kept().as_mut().map(|kept| kept.with_variables(|them| them.clone()));
        let kept = variables.map(|variables| Box::new(Kept { variables, ..Kept::default() }));
        Self(TaskCell::new(kept))
    }

    /// The state that is shared with subrequests; made from these buffers the first time.
    pub(crate) fn tree(&self, parts: impl FnOnce() -> Parts) -> Arc<Tree<'c>> {
        let mut kept = self.kept();
        let kept = kept.get_or_insert_default();
        let variables = &mut kept.variables;
        let tree = kept.tree.get_or_insert_with(|| Tree::new(parts(), std::mem::take(variables)));
        debug_assert!(kept.variables.is_empty(), "variables that are shared stand in the tree alone");
        Arc::clone(tree)
    }

    /// The state that is shared with subrequests, if there is one.
    pub(crate) fn find_tree(&self) -> Option<Arc<Tree<'c>>> {
        self.kept().as_ref()?.tree.clone()
    }

    fn kept(&self) -> Entered<'_, Option<Box<Kept<'c>>>> {
        self.0.enter()
    }

    /// Appends the value of a variable. `None` when nothing is kept for it, `Some(false)` when it was found
    /// to have no value.
    pub(crate) fn append(&self, variable: VariableId, out: &mut Vec<u8>) -> Option<bool> {
        self.kept().as_mut()?.with_variables(|variables| {
            let text = find(variables, variable)?;
            if let Some(text) = text {
                out.extend_from_slice(text);
            }
            Some(text.is_some())
        })
    }

    /// The value of a variable, as in `append`.
    pub(crate) fn find(&self, variable: VariableId) -> Option<Option<Text<'c>>> {
        self.kept().as_mut()?.with_variables(|variables| find(variables, variable).cloned())
    }

    /// Keeps the value of a variable from now on.
    pub(crate) fn keep(&self, variable: VariableId, text: Option<Text<'c>>) {
        self.kept().get_or_insert_default().put(variable, text);
    }

    /// Runs an expression and keeps what it captures.
    pub(crate) fn exec(&self, regex: &Regex, subject: &[u8]) -> Result<bool, MatchError> {
        if regex.rules_out(subject) {
            return Ok(false);
        }
        let mut kept = self.kept();
        let kept = kept.get_or_insert_default();
        // A `rewrite` often has the expression of its location.
        let is_known = kept.groups.are_of(regex) && kept.subject[..] == *subject;
        if !is_known {
            if !regex.exec(subject, &mut kept.groups)? {
                return Ok(false);
            }
            kept.subject.clear();
            if regex.groups() > 0 {
                kept.subject.extend_from_slice(subject);
            }
        }
        for name in regex.names() {
            let text = kept.group(name.group).to_vec();
            kept.put(VariableId(name.variable), Some(text.into()));
        }
        Ok(true)
    }

    /// Appends the text of a group; nothing when it took no part.
    pub(crate) fn append_group(&self, number: usize, quote: Quote, out: &mut Vec<u8>) {
        let kept = self.kept();
        let text = kept.as_ref().map_or(&[][..], |kept| kept.group(number));
        match quote {
            Quote::No => out.extend_from_slice(text),
            Quote::Args => out.extend_from_slice(&escape_uri(text, Escape::Args)),
        }
    }

    /// Takes over what `$1` to `$9` are in another request.
    pub(crate) fn copy_groups(&self, from: &Self) {
        let from = from.kept();
        let (Some(from), mut kept) = (&*from, self.kept()) else { return };
        let kept = kept.get_or_insert_default();
        (kept.groups, kept.subject) = (from.groups.clone(), from.subject.clone());
    }

    /// Forgets `$1` to `$9`, but not the groups that have names.
    pub(crate) fn clear_groups(&self) {
        if let Some(kept) = &mut *self.kept() {
            kept.groups.clear();
        }
    }
}

/// The stored value of a variable.
fn find<'a, 'c>(variables: &'a VariableValues<'c>, variable: VariableId) -> Option<&'a Option<Text<'c>>> {
    variables.iter().find(|(id, _)| *id == variable).map(|(_, text)| text)
}

impl<'c> Kept<'c> {
    fn with_variables<R>(&mut self, look: impl FnOnce(&mut VariableValues<'c>) -> R) -> R {
        match &self.tree {
            None => look(&mut self.variables),
            Some(tree) => look(&mut tree.variables()),
        }
    }

    fn put(&mut self, variable: VariableId, text: Option<Text<'c>>) {
        self.with_variables(|variables| match variables.iter_mut().find(|(id, _)| *id == variable) {
            Some((_, slot)) => *slot = text,
            None => variables.push((variable, text)),
        });
    }

    fn group(&self, number: usize) -> &[u8] {
        self.groups.get(number).and_then(|range| self.subject.get(range)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clearway_site::regex::Case;

    fn group(values: &Values<'_>, number: usize, quote: Quote) -> Vec<u8> {
        let mut out = Vec::new();
        values.append_group(number, quote, &mut out);
        out
    }

    #[test]
    fn groups_are_those_of_the_last_match_and_names_keep_their_text() {
        let mut regex = Regex::compile(br"^/(?<user>\w+)/(.+)", Case::Sensitive).unwrap();
        regex.bind_names(|_| Ok::<_, ()>(7)).unwrap();
        let values = Values::default();
        assert!(values.exec(&regex, b"/ann/4 2+").unwrap());
        assert_eq!(group(&values, 2, Quote::No), b"4 2+");
        assert_eq!(group(&values, 2, Quote::Args), b"4%202%2B");
        let other = Regex::compile(b"(x)?y", Case::Sensitive).unwrap();
        assert!(values.exec(&other, b"zy").unwrap());
        assert!(!values.exec(&other, b"zz").unwrap());
        assert_eq!(group(&values, 1, Quote::No), b"");
        assert_eq!(values.find(VariableId(7)), Some(Some(Text::Borrowed(&b"ann"[..]))));
        assert!(values.exec(&regex, b"/bob/43").unwrap());
        values.clear_groups();
        assert_eq!(group(&values, 2, Quote::No), b"");
        assert_eq!(values.find(VariableId(7)), Some(Some(Text::Borrowed(&b"bob"[..]))));
    }

    #[test]
    fn what_was_found_in_the_same_subject_is_found_again() {
        let compile = || {
            let mut regex = Regex::compile(br"^/(?<user>\w+)/(.+)", Case::Sensitive).unwrap();
            regex.bind_names(|_| Ok::<_, ()>(7)).unwrap();
            regex
        };
        let values = Values::default();
        assert!(values.exec(&compile(), b"/ann/1").unwrap());
        values.keep(VariableId(7), None);
        assert!(values.exec(&compile(), b"/ann/1").unwrap());
        assert_eq!(values.find(VariableId(7)), Some(Some(Text::Borrowed(&b"ann"[..]))));
        assert!(values.exec(&compile(), b"/ann/2").unwrap());
        assert_eq!(group(&values, 2, Quote::No), b"2");
        values.clear_groups();
        assert!(values.exec(&compile(), b"/ann/2").unwrap());
        assert_eq!(group(&values, 2, Quote::No), b"2");
        assert!(!values.exec(&compile(), b"/ann").unwrap());
    }

    #[test]
    fn values_are_replaced_and_may_be_none() {
        let values = Values::default();
        let mut out = Vec::new();
        assert_eq!(values.append(VariableId(3), &mut out), None);
        values.keep(VariableId(3), None);
        assert_eq!(values.append(VariableId(3), &mut out), Some(false));
        values.keep(VariableId(4), Some(Text::Borrowed(b"four")));
        values.keep(VariableId(3), Some(Text::Borrowed(b"three")));
        assert_eq!(
            (values.append(VariableId(3), &mut out), values.append(VariableId(4), &mut out)),
            (Some(true), Some(true))
        );
        assert_eq!(out, b"threefour");
    }
}
