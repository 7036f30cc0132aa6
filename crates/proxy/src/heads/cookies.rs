//! `Set-Cookie` on its way to the client: its domain, its path and its flags may be rewritten. A line of
//! which nothing is rewritten goes as it came. Runs on the loop of the request.

use clearway_http::View;

use crate::heads::rewrite::rewrite;
use crate::settings::proxy::{CookieFlags, Pattern, ProxyConf, Rewrite};

/// An attribute of a cookie; the first one is its name and value.
struct Attribute {
    name: Vec<u8>,
    value: Option<Vec<u8>>,
}

impl Attribute {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    fn flag(name: &str, value: Option<&str>) -> Self {
        Self { name: name.into(), value: value.map(Into::into) }
    }
}

/// Whether any line would be rewritten.
pub(crate) fn are_rewritten(conf: &ProxyConf) -> bool {
    let lists = [&conf.cookie_domains, &conf.cookie_paths];
    lists.iter().any(|rules| !rules.list().is_empty()) || !conf.cookie_flags.list().is_empty()
}

/// The new line; `None`: it stays.
pub(crate) fn rewrite_cookie<'c>(conf: &'c ProxyConf, view: &View<'_, 'c>, line: &[u8]) -> Option<Vec<u8>> {
    let mut attributes = parse(line);
    attributes.first()?.value.as_ref()?;
    let mut is_changed = false;
    for attribute in &mut attributes[1..] {
        let rules: &'c [Rewrite] = if attribute.is("domain") {
            conf.cookie_domains.list()
        } else if attribute.is("path") {
            conf.cookie_paths.list()
        } else {
            continue;
        };
        let value = attribute.value.as_ref().and_then(|value| rewrite(rules, view, value, 0));
        is_changed |= value.is_some();
        attribute.value = value.or(attribute.value.take());
    }
    if let Some(rule) = conf.cookie_flags.list().iter().find(|rule| applies(rule, view, &attributes[0].name))
    {
        let wanted = Wanted::new(rule, view);
        is_changed |= !wanted.is_nothing();
        wanted.apply(&mut attributes);
        debug_assert!(attributes[0].value.is_some(), "name and value stay");
    }
    is_changed.then(|| write(&attributes))
}

fn parse(line: &[u8]) -> Vec<Attribute> {
    let parts = line.split(|&byte| byte == b';').map(|part| {
        let part = trim_spaces(part);
        match part.iter().position(|&byte| byte == b'=') {
            Some(at) => {
                let (name, value) = (trim_spaces(&part[..at]), trim_spaces(&part[at + 1..]));
                Attribute { name: name.to_vec(), value: Some(value.to_vec()) }
            }
            None => Attribute { name: part.to_vec(), value: None },
        }
    });
    parts.collect()
}

fn trim_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = text {
        text = rest;
    }
    text
}

fn write(attributes: &[Attribute]) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, Attribute { name, value }) in attributes.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b"; ");
        }
        out.extend_from_slice(name);
        if let Some(value) = value {
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }
    out
}

fn applies<'c>(rule: &'c CookieFlags, view: &View<'_, 'c>, name: &[u8]) -> bool {
    match &rule.pattern {
        Pattern::Regex(regex) => view.request.matches(regex, name).unwrap_or(false),
        Pattern::Prefix(text) | Pattern::Domain(text) | Pattern::Name(text) => {
            text.eval(view).eq_ignore_ascii_case(name)
        }
    }
}

/// The new state of a flag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Flag {
    /// As it is.
    #[default]
    Kept,
    Set,
    Removed,
}

/// The new value of `SameSite`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum SameSite {
    #[default]
    Kept,
    Is(&'static str),
    Removed,
}

/// The new flags of a cookie.
#[derive(Default)]
struct Wanted {
    secure: Flag,
    http_only: Flag,
    same_site: SameSite,
}

impl Wanted {
    fn new<'c>(rule: &'c CookieFlags, view: &View<'_, 'c>) -> Self {
        let mut wanted = Self::default();
        for flag in &rule.flags {
            wanted.add(&flag.eval(view).to_ascii_lowercase());
        }
        wanted
    }

    /// For contradicting words nginx has an order of its own: a word that sets a flag wins, then the
    /// strictest one.
    fn add(&mut self, word: &[u8]) {
        let with = |flag: Flag, other: Flag| if flag == Flag::Set { flag } else { other };
        match word {
            b"secure" => self.secure = Flag::Set,
            b"nosecure" => self.secure = with(self.secure, Flag::Removed),
            b"httponly" => self.http_only = Flag::Set,
            b"nohttponly" => self.http_only = with(self.http_only, Flag::Removed),
            b"samesite=strict" => self.same_site = SameSite::Is("Strict"),
            b"samesite=lax" if self.same_site != SameSite::Is("Strict") => {
                self.same_site = SameSite::Is("Lax")
            }
            b"samesite=none" if !matches!(self.same_site, SameSite::Is("Strict" | "Lax")) => {
                self.same_site = SameSite::Is("None");
            }
            b"nosamesite" if self.same_site == SameSite::Kept => self.same_site = SameSite::Removed,
            _ => {}
        }
    }

    fn is_nothing(&self) -> bool {
        [self.secure, self.http_only] == [Flag::Kept; 2] && self.same_site == SameSite::Kept
    }

    fn apply(self, attributes: &mut Vec<Attribute>) {
        let has = |attributes: &[Attribute], name: &str| attributes[1..].iter().any(|one| one.is(name));
        for (name, flag) in [("Secure", self.secure), ("HttpOnly", self.http_only)] {
            match flag {
                Flag::Set if !has(attributes, name) => attributes.push(Attribute::flag(name, None)),
                Flag::Removed => remove(attributes, name),
                Flag::Set | Flag::Kept => {}
            }
        }
        match self.same_site {
            SameSite::Kept => {}
            SameSite::Removed => remove(attributes, "SameSite"),
            SameSite::Is(value) => {
                let is_there = has(attributes, "SameSite");
                for attribute in attributes[1..].iter_mut().filter(|one| one.is("SameSite")) {
                    let is_so = |old: &Vec<u8>| old.eq_ignore_ascii_case(value.as_bytes());
                    if !attribute.value.as_ref().is_some_and(is_so) {
                        *attribute = Attribute::flag("SameSite", Some(value));
                    }
                }
                if !is_there {
                    attributes.push(Attribute::flag("SameSite", Some(value)));
                }
            }
        }
    }
}

fn remove(attributes: &mut Vec<Attribute>, name: &str) {
    let mut at = 0;
    attributes.retain(|attribute| {
        at += 1;
        at == 1 || !attribute.is(name)
    });
    debug_assert!(!attributes.is_empty(), "name and value stay");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(line: &str, words: &[&str]) -> String {
        let mut wanted = Wanted::default();
        words.iter().for_each(|word| wanted.add(word.as_bytes()));
        let mut attributes = parse(line.as_bytes());
        wanted.apply(&mut attributes);
        String::from_utf8(write(&attributes)).unwrap()
    }

    #[test]
    fn lines_are_taken_apart_and_put_together() {
        assert_eq!(flags(" a = 1 ;Path=/ ; Secure", &[]), "a=1; Path=/; Secure");
        assert_eq!(flags("a=1;;b", &[]), "a=1; ; b");
    }

    #[test]
    fn flags_are_set_and_removed() {
        for (line, words, expected) in [
            ("a=1", &["secure", "httponly"][..], "a=1; Secure; HttpOnly"),
            ("a=1; secure", &["secure"], "a=1; secure"),
            ("a=1; SECURE; HttpOnly", &["nosecure", "nohttponly"], "a=1"),
            ("secure=1", &["nosecure"], "secure=1"),
            ("a=1; samesite=Lax", &["samesite=strict"], "a=1; SameSite=Strict"),
            ("a=1; samesite=strict", &["samesite=strict", "samesite=lax"], "a=1; samesite=strict"),
            ("a=1", &["samesite=none"], "a=1; SameSite=None"),
            ("a=1; SameSite=None; Path=/", &["nosamesite"], "a=1; Path=/"),
            ("a=1", &["unknown"], "a=1"),
        ] {
            assert_eq!(flags(line, words), expected, "{line} {words:?}");
        }
    }
}
