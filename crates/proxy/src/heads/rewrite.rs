//! Texts that are rewritten where a rule applies: redirects, and parts of cookies. The first rule that
//! applies counts. Runs on the loop of the request.

use clearway_http::View;

use crate::settings::proxy::{Pattern, Rewrite};

/// The result of the first rule that applies to `text`; it looks at the text behind `prefix` bytes.
pub(crate) fn rewrite<'c>(
    rules: &'c [Rewrite],
    view: &View<'_, 'c>,
    text: &[u8],
    prefix: usize,
) -> Option<Vec<u8>> {
    rules.iter().find_map(|rule| apply(rule, view, text, prefix))
}

fn apply<'c>(rule: &'c Rewrite, view: &View<'_, 'c>, text: &[u8], mut prefix: usize) -> Option<Vec<u8>> {
    let mut subject = text.get(prefix..)?;
    let replaced = match &rule.pattern {
        Pattern::Prefix(pattern) => {
            let pattern = pattern.eval(view);
            subject.starts_with(&pattern).then_some(pattern.len())?
        }
        Pattern::Domain(pattern) | Pattern::Name(pattern) => {
            if subject.starts_with(b".") {
                prefix += 1;
                subject = &subject[1..];
            }
            subject.eq_ignore_ascii_case(&pattern.eval(view)).then_some(subject.len())?
        }
        Pattern::Regex(regex) => {
            view.request.matches(regex, subject).unwrap_or(false).then_some(subject.len())?
        }
    };
    let mut out = text[..prefix].to_vec();
    rule.replacement.append(view, &mut out);
    out.extend_from_slice(&text[prefix + replaced..]);
    Some(out)
}
