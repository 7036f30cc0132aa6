//! The values that SSI commands work with: the variables and blocks that a request and its subrequests share,
//! texts with variables in them, and the paths that are included.

use clearway_base::log::Level as LogLevel;
use clearway_http::regex::{Captures, Case, Regex};
use clearway_http::{Request, Verbatim, View};
use clearway_runtime::{Entered, TaskCell};

/// A command has failed; why is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

/// The state that a request and its subrequests share.
#[derive(Default)]
pub(super) struct Common(TaskCell<Shared>);

#[derive(Default)]
struct Shared {
    /// The variables by name in lower case.
    variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// `$0` to `$9`, of the last expression that matched.
    captures: Vec<Vec<u8>>,
    /// Name and content.
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    /// `timefmt` of each request or subrequest that has one.
    time_formats: Vec<(u32, Vec<u8>)>,
}

impl Common {
    fn shared(&self) -> Entered<'_, Shared> {
        self.0.enter()
    }

    /// Gives a variable a value.
    pub(super) fn set(&self, name: &[u8], value: Vec<u8>) {
        let mut shared = self.shared();
        let name = name.to_ascii_lowercase();
        match shared.variables.iter_mut().find(|(other, _)| *other == name) {
            Some((_, old)) => *old = value,
            None => shared.variables.push((name, value)),
        }
    }

    /// Has a variable exist.
    pub(super) fn declare(&self, name: &[u8]) {
        if self.find(&name.to_ascii_lowercase()).is_none() {
            self.set(name, Vec::new());
        }
    }

    fn find(&self, name: &[u8]) -> Option<Vec<u8>> {
        let shared = self.shared();
        if let [digit @ b'0'..=b'9'] = name
            && let Some(text) = shared.captures.get(usize::from(digit - b'0'))
        {
            return Some(text.clone());
        }
        shared.variables.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
    }

    /// The value of a variable, of SSI itself or of the configuration.
    pub(super) fn variable(&self, name: &[u8], view: &View<'_, '_>) -> Option<Vec<u8>> {
        let name = name.to_ascii_lowercase();
        self.find(&name).or_else(|| view.variable_named(&name).map(|value| value.into_owned()))
    }

    pub(super) fn begin_block(&self, name: Vec<u8>) {
        self.shared().blocks.push((name, Vec::new()));
    }

    /// Adds to the block that was begun last.
    pub(super) fn add_to_block(&self, text: &[u8]) {
        if let Some((_, content)) = self.shared().blocks.last_mut() {
            content.extend_from_slice(text);
        }
    }

    pub(super) fn block(&self, name: &[u8]) -> Option<Vec<u8>> {
        let shared = self.shared();
        shared.blocks.iter().find(|(other, _)| other == name).map(|(_, content)| content.clone())
    }

    pub(super) fn set_time_format(&self, node: u32, format: Vec<u8>) {
        let formats = &mut self.shared().time_formats;
        formats.retain(|(other, _)| *other != node);
        formats.push((node, format));
    }

    pub(super) fn time_format(&self, node: u32) -> Option<Vec<u8>> {
        self.shared().time_formats.iter().find(|(other, _)| *other == node).map(|(_, format)| format.clone())
    }

    /// Whether an expression matches; if it does its groups are `$0` and so on, and variables if they have
    /// names.
    pub(super) fn matches(
        &self,
        pattern: &[u8],
        subject: &[u8],
        request: &Request<'_>,
    ) -> Result<bool, Failed> {
        let regex = Regex::compile(pattern, Case::Sensitive).map_err(|error| {
            request.log(LogLevel::Error, format_args!("{error}"));
            Failed
        })?;
        let mut captures = Captures::default();
        let matched = regex.exec(subject, &mut captures).map_err(|error| {
            request.log(LogLevel::Alert, format_args!("{}", error.describe(subject, &regex)));
            Failed
        })?;
        if !matched {
            return Ok(false);
        }
        let text =
            |group| captures.get(group).and_then(|range| subject.get(range)).unwrap_or_default().to_vec();
        for named in regex.names() {
            self.set(named.name.as_bytes(), text(named.group));
        }
        let last = (0..=regex.groups()).rev().find(|&group| captures.get(group).is_some()).unwrap_or(0);
        self.shared().captures = (0..=last).map(text).collect();
        Ok(true)
    }

    /// A text with variables in it, and with backslashes before what is meant as it is.
    pub(super) fn evaluate(&self, text: &[u8], view: &View<'_, '_>) -> Result<Vec<u8>, Failed> {
        let (mut out, mut rest) = (Vec::new(), text);
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            match byte {
                b'$' => {
                    let name = take_name(&mut rest, text, view.request)?;
                    out.extend_from_slice(&self.variable(name, view).unwrap_or_default());
                }
                b'\\' => {
                    let Some((&quoted, behind)) = rest.split_first() else { break };
                    rest = behind;
                    if !matches!(quoted, b'\\' | b'\'' | b'"' | b'$') {
                        out.push(b'\\');
                    }
                    out.push(quoted);
                }
                byte => out.push(byte),
            }
        }
        Ok(out)
    }
}

/// Takes the name of a variable, with or without braces, from behind its `$`.
fn take_name<'a>(rest: &mut &'a [u8], text: &[u8], request: &Request<'_>) -> Result<&'a [u8], Failed> {
    let invalid = || {
        request.log(LogLevel::Error, format_args!("invalid variable name in \"{}\"", Verbatim(text)));
        Failed
    };
    let is_braced = rest.first() == Some(&b'{');
    if is_braced {
        *rest = &rest[1..];
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let len = rest.iter().position(|byte| !is_of_name(byte)).unwrap_or(rest.len());
    let (name, behind) = rest.split_at(len);
    *rest = behind;
    if is_braced {
        let Some(behind) = behind.strip_prefix(b"}") else {
            let message = format_args!("the closing bracket in \"{}\" variable is missing", Verbatim(name));
            request.log(LogLevel::Error, message);
            return Err(Failed);
        };
        *rest = behind;
    }
    if name.is_empty() { Err(invalid()) } else { Ok(name) }
}

/// The directory of a path, with its last slash.
pub(super) fn directory(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1)]
}

/// Takes a URI apart into path, which is decoded, and arguments.
///
/// # Errors
/// It would lead out of the root; that is logged.
pub(super) fn split_uri(uri: &[u8], request: &Request<'_>) -> Result<(Vec<u8>, Vec<u8>), Failed> {
    clearway_http::uri::split_foreign(uri).map(|(path, args)| (path, args.to_vec())).map_err(|shown| {
        request.log(LogLevel::Error, format_args!("unsafe URI \"{}\" was detected", Verbatim(&shown)));
        Failed
    })
}

/// How `echo` writes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Nothing,
    Url,
    Entity,
}

impl Encoding {
    pub(super) fn put(self, value: &[u8], out: &mut Vec<u8>) {
        for &byte in value {
            match (self, byte) {
                (Self::Url, byte) if is_escaped_in_html(byte) => {
                    out.extend_from_slice(format!("%{byte:02X}").as_bytes());
                }
                (Self::Entity, b'<') => out.extend_from_slice(b"&lt;"),
                (Self::Entity, b'>') => out.extend_from_slice(b"&gt;"),
                (Self::Entity, b'&') => out.extend_from_slice(b"&amp;"),
                (Self::Entity, b'"') => out.extend_from_slice(b"&quot;"),
                _ => out.push(byte),
            }
        }
    }
}

/// Whether a byte must be escaped in a URL within HTML.
fn is_escaped_in_html(byte: u8) -> bool {
    matches!(byte, 0..=b' ' | 0x7f..) || b"\"#%'<>\\^`{|}".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_for_where_they_stand() {
        let put = |encoding: Encoding| {
            let mut out = Vec::new();
            encoding.put(b"a<b> & \"c\" %'/?\x7f", &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(put(Encoding::Entity), "a&lt;b&gt; &amp; &quot;c&quot; %'/?\x7f");
        assert_eq!(put(Encoding::Url), "a%3Cb%3E%20&%20%22c%22%20%25%27/?%7F");
        assert_eq!(put(Encoding::Nothing), "a<b> & \"c\" %'/?\x7f");
    }

    #[test]
    fn directories_end_in_a_slash() {
        assert_eq!(
            (directory(b"/a/b"), directory(b"/a/"), directory(b"x")),
            (&b"/a/"[..], &b"/a/"[..], &b""[..])
        );
    }
}
