//! `ngx.re`: regular expressions of PCRE2, whose texts come while requests are served. What has to call Lua's
//! functions is in `regex.lua`.

use std::sync::Arc;

use clearway_base::log::{Level, Verbatim};
use clearway_luajit::{Call, Fault, Raise, Returns, Value};
use clearway_pcre::{Code, CompileError, Jit, Matcher, Options};

use crate::api::arguments::{make_text, text_at};
use crate::api::room::{Install, put};
use crate::current::current;
use crate::vm::regexes::{Flags, Numbered, RegexSource, Regexes, Remember};

/// Installs `ngx.re`.
///
/// # Errors
/// The error that the built-in Lua code raised.
pub fn install(install: &mut Install<'_>) -> Result<(), Fault> {
    install.table("re", |stack| {
        put(stack, "match", match_);
        put(stack, "find", find);
        put(stack, "_opt", opt);
        put(stack, "_match_at", match_at);
        put(stack, "_sub", substitute);
        put(stack, "_compile", compile);
    });
    install.run(include_str!("regex.lua"), c"=ngx.re")
}

/// An expression that is ready to be looked for.
struct Ready {
    code: Arc<Code>,
    flags: Flags,
}

/// Has `work` do with the VM's expressions what it does. They are the VM's own, and a call of `work` has them
/// alone.
fn with_regexes<R>(
    call: &mut Call<'_>,
    work: impl FnOnce(&mut Call<'_>, &mut Regexes) -> Result<R, Raise>,
) -> Result<R, Raise> {
    let taken = current(call, |current| {
        let conf = current.vm.regex_conf;
        current.vm.regexes.take().unwrap_or_else(|| Box::new(Regexes::new(conf)))
    });
    let mut regexes = taken?;
    let answer = work(call, &mut regexes);
    current(call, |current| {
        debug_assert!(current.vm.regexes.is_none(), "expressions are used by one call at a time");
        current.vm.regexes = Some(regexes);
    })?;
    answer
}

/// Makes a slot a text.
fn as_text(call: &mut Call<'_>, at: i32) -> Result<(), Raise> {
    while call.stack.len() < at {
        call.stack.push(());
    }
    match call.stack.get(at) {
        Value::Text(_) => Ok(()),
        _ => make_text(call, at),
    }
}

/// The expression in one slot, with the options in another; the inner `Err` is what is wrong with it.
fn ready(
    call: &mut Call<'_>,
    regexes: &mut Regexes,
    pattern: i32,
    options: i32,
) -> Result<Result<Ready, Vec<u8>>, Raise> {
    as_text(call, pattern)?;
    let letters = text_at(call, options);
    let flags = match Flags::parse(letters) {
        Ok(flags) => flags,
        Err(letter) => {
            let text = format!(
                "unknown flag \"{}\" (flags \"{}\")",
                letter.escape_ascii(),
                String::from_utf8_lossy(letters)
            );
            return Err(call.raise(&*text));
        }
    };
    let (code, source) = match regexes.code(text_at(call, pattern), flags) {
        Ok(found) => found,
        Err(error) => {
            return Ok(Err(compile_failed(&error, text_at(call, pattern))));
        }
    };
    // One that is not to be remembered counts as compiled each time.
    if source != RegexSource::Known || flags.memory == Remember::Not {
        note(call, source, flags, regexes.conf.cache_max_entries)?;
    }
    Ok(Ok(Ready { code, flags }))
}

/// The message for an expression that cannot be compiled.
pub(super) fn compile_failed(error: &CompileError, pattern: &[u8]) -> Vec<u8> {
    let words = format!("pcre2_compile() failed: {} in \"", error.text);
    let mut text = [words.as_bytes(), pattern, b"\""].concat();
    if error.offset < pattern.len() {
        text = [&text[..], b" at \"", &pattern[error.offset..], b"\""].concat();
    }
    text
}

/// Logs the compilation of an expression.
fn note(call: &mut Call<'_>, source: RegexSource, flags: Flags, max: usize) -> Result<(), Raise> {
    current(call, |current| {
        if flags.jit == Jit::On {
            current.log(Level::Debug, format_args!("pcre2 JIT compiled successfully"));
        }
        if source == RegexSource::TooMany {
            let text = format_args!("lua exceeding regex cache max entries ({max})");
            current.log(Level::Warn, text);
        }
    })
}

fn failed(call: &mut Call<'_>, nils: i32, why: &[u8]) -> Returns {
    let height = call.stack.len();
    (0..nils).for_each(|_| call.stack.push(()));
    call.stack.push(why);
    debug_assert_eq!(call.stack.len(), height + nils + 1, "as many values as are returned");
    Returns::Values(nils + 1)
}

fn exec_failed(error: i32) -> Vec<u8> {
    format!("pcre_exec() failed: {error}").into_bytes()
}

/// Where a table in slot `at` says that the search begins, from 0.
fn position(call: &mut Call<'_>, at: i32) -> usize {
    if call.stack.get(at) != Value::Table {
        return 0;
    }
    let height = call.stack.len();
    call.stack.raw_field(at, "pos");
    let position = call.stack.number(-1).unwrap_or(1.0);
    call.stack.pop(1);
    debug_assert_eq!(call.stack.len(), height, "the arguments are as they were");
    (position - 1.0).max(0.0) as usize
}

/// Writes where the next search is to begin.
fn set_position(call: &mut Call<'_>, at: i32, end: usize) {
    if call.stack.get(at) == Value::Table {
        call.stack.push(end as f64 + 1.0);
        call.stack.raw_set_field(at, "pos");
    }
}

fn match_(call: &mut Call<'_>) -> Result<Returns, Raise> {
    as_text(call, 1)?;
    with_regexes(call, |call, regexes| {
        let ready = match ready(call, regexes, 2, 3)? {
            Ok(ready) => ready,
            Err(text) => return Ok(failed(call, 1, &text)),
        };
        let start = position(call, 4);
        let found = regexes.matcher.find(&ready.code, text_at(call, 1), start, ready.flags.how);
        match found {
            Err(error) => return Ok(failed(call, 1, &exec_failed(error))),
            Ok(false) => call.stack.push(()),
            Ok(true) => {
                let whole = regexes.matcher.group(0).unwrap_or_default();
                set_position(call, 4, whole.end);
                push_captures(call, &regexes.matcher, &ready, 5);
            }
        }
        Ok(Returns::Values(1))
    })
}

/// Pushes the table of what the groups matched: that in slot `into` if there is one.
fn push_captures(call: &mut Call<'_>, matcher: &Matcher, ready: &Ready, into: i32) {
    let height = call.stack.len();
    let groups = if ready.flags.how == clearway_pcre::How::Dfa { 0 } else { ready.code.groups() };
    if call.stack.get(into) == Value::Table {
        call.stack.push_slot(into);
    } else {
        call.stack.push_table(groups, ready.code.names().len() + 1);
    }
    for group in 0..=groups {
        push_group(call, matcher, group);
        call.stack.raw_set_item(-2, group as i32);
    }
    let is_listed = ready.flags.has(Options::DUPNAMES);
    for (group, name) in ready.code.names().iter().filter(|(group, _)| *group <= groups) {
        let name = String::from_utf8_lossy(name);
        if is_listed {
            add_to_list(call, matcher, *group, &name);
        } else {
            push_group(call, matcher, *group);
            call.stack.raw_set_field(-2, &name);
        }
    }
    debug_assert_eq!(call.stack.len(), height + 1, "captures are one table");
}

/// Pushes what a group matched, `false` if it took no part.
fn push_group(call: &mut Call<'_>, matcher: &Matcher, group: usize) {
    match matcher.group(group) {
        None => call.stack.push(false),
        Some(range) => {
            // The subject stays in its slot while its part is copied.
            debug_assert!(range.end <= text_at(call, 1).len(), "a group lies within the subject");
            let part = text_at(call, 1).get(range).unwrap_or_default().to_vec();
            call.stack.push(&part[..]);
        }
    }
}

/// Adds what a group matched to the list of its name in the topmost table.
fn add_to_list(call: &mut Call<'_>, matcher: &Matcher, group: usize, name: &str) {
    if matcher.group(group).is_none() {
        return;
    }
    let height = call.stack.len();
    call.stack.raw_field(-1, name);
    if call.stack.get(-1) != Value::Table {
        call.stack.pop(1);
        call.stack.push_table(1, 0);
        call.stack.push_slot(-1);
        call.stack.raw_set_field(-3, name);
    }
    let next = call.stack.raw_len(-1) as i32 + 1;
    push_group(call, matcher, group);
    call.stack.raw_set_item(-2, next);
    call.stack.pop(1);
    debug_assert_eq!(call.stack.len(), height, "the captures are on top again");
}

fn find(call: &mut Call<'_>) -> Result<Returns, Raise> {
    as_text(call, 1)?;
    with_regexes(call, |call, regexes| {
        let ready = match ready(call, regexes, 2, 3)? {
            Ok(ready) => ready,
            Err(text) => return Ok(failed(call, 2, &text)),
        };
        let nth = call.stack.number(5).unwrap_or(0.0);
        if nth < 0.0 || nth > ready.code.groups() as f64 {
            return Ok(failed(call, 2, b"nth out of bound"));
        }
        let start = position(call, 4);
        match regexes.matcher.find(&ready.code, text_at(call, 1), start, ready.flags.how) {
            Err(error) => return Ok(failed(call, 2, &exec_failed(error))),
            Ok(false) => {}
            Ok(true) => {
                let whole = regexes.matcher.group(0).unwrap_or_default();
                set_position(call, 4, whole.end);
                if let Some(group) = regexes.matcher.group(nth as usize) {
                    call.stack.push(group.start as f64 + 1.0);
                    call.stack.push(group.end as f64);
                    return Ok(Returns::Values(2));
                }
            }
        }
        call.stack.push(());
        Ok(Returns::Values(1))
    })
}

/// Whether an expression is one: `true`, or `nil` and what is wrong with it.
fn compile(call: &mut Call<'_>) -> Result<Returns, Raise> {
    with_regexes(call, |call, regexes| match ready(call, regexes, 1, 2)? {
        Ok(_) => {
            call.stack.push(true);
            Ok(Returns::Values(1))
        }
        Err(text) => Ok(failed(call, 1, &text)),
    })
}

/// Numbers the expression in slot 1 with the options in slot 2, where those have it remembered, and its
/// groups are told apart by their numbers. Nothing is said of one that is wrong.
pub(super) fn number(call: &mut Call<'_>) -> Result<Option<Numbered>, Raise> {
    let Ok(flags) = Flags::parse(text_at(call, 2)) else { return Ok(None) };
    let is_plain = flags.how == clearway_pcre::How::Perl && !flags.has(Options::DUPNAMES);
    if !is_plain || flags.memory == Remember::Not {
        return Ok(None);
    }
    with_regexes(call, |call, regexes| {
        if !regexes.has_room() {
            return Ok(None);
        }
        let Ok(Ready { code, flags }) = ready(call, regexes, 1, 2)? else { return Ok(None) };
        let names = code.names().iter().map(|(group, name)| (*group, name[..].into())).collect();
        let number = regexes.numbered.len();
        debug_assert!(number < regexes.conf.cache_max_entries, "there is room for its number");
        let groups = code.groups();
        regexes.numbered.push((flags, code));
        Ok(Some(Numbered { number, groups, names }))
    })
}

/// Matches from a position on. Returns the captures, from where to where, and where the next search begins;
/// or three times `nil` and perhaps an error.
fn match_at(call: &mut Call<'_>) -> Result<Returns, Raise> {
    with_regexes(call, |call, regexes| {
        let ready = match ready(call, regexes, 2, 3)? {
            Ok(ready) => ready,
            Err(text) => return Ok(failed(call, 3, &text)),
        };
        let start = call.stack.number(4).map_or(0, |position| position as usize - 1);
        match regexes.matcher.find(&ready.code, text_at(call, 1), start, ready.flags.how) {
            Err(error) => Ok(failed(call, 3, &exec_failed(error))),
            Ok(false) => {
                (0..4).for_each(|_| call.stack.push(()));
                Ok(Returns::Values(4))
            }
            Ok(true) => {
                push_captures(call, &regexes.matcher, &ready, i32::MAX);
                let whole = regexes.matcher.group(0).unwrap_or_default();
                let next = next_start(text_at(call, 1), whole.clone(), ready.flags);
                for number in [whole.start + 1, whole.end, next + 1] {
                    call.stack.push(number as f64);
                }
                Ok(Returns::Values(4))
            }
        }
    })
}

/// Where the search goes on behind a match: further on than it began.
fn next_start(subject: &[u8], matched: std::ops::Range<usize>, flags: Flags) -> usize {
    debug_assert!(matched.end <= subject.len(), "a match lies within the subject");
    if !matched.is_empty() {
        return matched.end;
    }
    let mut next = matched.end + 1;
    let is_within = |at: usize| subject.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    while flags.has(Options::UTF) && is_within(next) {
        next += 1;
    }
    debug_assert!(next > matched.start, "a search goes on behind where it began");
    next
}

/// A piece of what replaces a match.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    Text(&'t [u8]),
    Group(usize),
}

/// Reads what replaces a match: text with `$1`, `${1}` and `$$`. What is wrong with it, as the log is told.
pub(super) fn template(text: &[u8]) -> Result<Vec<Piece<'_>>, String> {
    let invalid = || format!("lua script: invalid capturing variable name found in \"{}\"", Verbatim(text));
    let (mut pieces, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let Some(behind) = rest.strip_prefix(b"$") else {
            let len = rest.iter().position(|&byte| byte == b'$').unwrap_or(rest.len());
            pieces.push(Piece::Text(&rest[..len]));
            rest = &rest[len..];
            continue;
        };
        if behind.first() == Some(&b'$') {
            pieces.push(Piece::Text(&behind[..1]));
            rest = &behind[1..];
            continue;
        }
        let (is_braced, name) = match behind.strip_prefix(b"{") {
            Some(name) => (true, name),
            None => (false, behind),
        };
        let is_number = name.first().ok_or_else(invalid)?.is_ascii_digit();
        let takes = |byte: &&u8| if is_number { byte.is_ascii_digit() } else { is_word(**byte) };
        let len = name.iter().take_while(takes).count();
        let (name, behind) = name.split_at(len);
        rest = match behind.strip_prefix(b"}") {
            Some(behind) if is_braced => behind,
            _ if is_braced => {
                let name = Verbatim(name);
                return Err(format!("the closing bracket in \"{name}\" variable is missing"));
            }
            _ => behind,
        };
        if name.is_empty() {
            return Err(invalid());
        }
        if !is_number {
            let name = Verbatim(name);
            return Err(format!(
                "attempt to use named capturing variable \"{name}\" (named captures not supported yet)"
            ));
        }
        let number = std::str::from_utf8(name).ok().and_then(|digits| digits.parse().ok());
        pieces.push(Piece::Group(number.unwrap_or(usize::MAX)));
    }
    Ok(pieces)
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Replaces the first match, or with `true` in slot 5 all of them, by a text.
fn substitute(call: &mut Call<'_>) -> Result<Returns, Raise> {
    as_text(call, 1)?;
    as_text(call, 3)?;
    with_regexes(call, |call, regexes| {
        let ready = match ready(call, regexes, 2, 4)? {
            Ok(ready) => ready,
            Err(text) => return Ok(failed(call, 2, &text)),
        };
        let pieces = match template(text_at(call, 3)) {
            Ok(pieces) => pieces,
            Err(text) => {
                current(call, |current| current.log(Level::Error, format_args!("{text}")))?;
                return Ok(failed(call, 2, b"failed to compile the replacement template"));
            }
        };
        let max = if call.stack.is_true(5) { usize::MAX } else { 1 };
        match replace(text_at(call, 1), &ready, &mut regexes.matcher, &pieces, max) {
            Err(error) => Ok(failed(call, 2, &exec_failed(error))),
            Ok(None) => {
                call.stack.push_slot(1);
                call.stack.push(0.0);
                Ok(Returns::Values(2))
            }
            Ok(Some((text, count))) => {
                call.stack.push(&text[..]);
                call.stack.push(count as f64);
                Ok(Returns::Values(2))
            }
        }
    })
}

/// The subject with up to `max` matches replaced, and how many there were; `None`: none.
fn replace(
    subject: &[u8],
    ready: &Ready,
    matcher: &mut Matcher,
    pieces: &[Piece<'_>],
    max: usize,
) -> Result<Option<(Vec<u8>, usize)>, i32> {
    let (mut out, mut copied, mut start, mut count) = (Vec::new(), 0, 0, 0);
    while count < max && matcher.find(&ready.code, subject, start, ready.flags.how)? {
        let whole = matcher.group(0).unwrap_or_default();
        out.extend_from_slice(&subject[copied..whole.start.max(copied)]);
        for piece in pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text),
                Piece::Group(group) => {
                    out.extend_from_slice(matcher.group(*group).map_or(&[][..], |range| &subject[range]));
                }
            }
        }
        count += 1;
        copied = whole.end;
        start = next_start(subject, whole, ready.flags);
    }
    debug_assert!(count <= max && copied <= subject.len(), "what is left is behind the last match");
    if count == 0 {
        return Ok(None);
    }
    out.extend_from_slice(&subject[copied..]);
    Ok(Some((out, count)))
}

fn opt(call: &mut Call<'_>) -> Result<Returns, Raise> {
    if call.stack.get(1) != Value::Text(b"jit_stack_size") {
        return Err(call.raise("unrecognized option name"));
    }
    let bytes = call.number(2)?.max(0.0) as usize;
    let is_set = with_regexes(call, |call, regexes| {
        if !regexes.is_empty() {
            return Err(call.raise(
                "changing jit stack size is not allowed when some regexs have already been compiled \
                 and cached",
            ));
        }
        Ok(regexes.matcher.set_stack(bytes))
    })?;
    if is_set {
        return Ok(Returns::Values(0));
    }
    Err(call.raise("pcre jit stack allocation failed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::testing::Lua;
    use crate::vm::regexes::RegexConf;
    use crate::vm::state::VmState;

    #[test]
    fn texts_are_split() {
        let mut lua = Lua::new();
        let mut is = |arguments: &str, expected: &str| {
            let code = format!("return table.concat(require('ngx.re').split({arguments}), '|')");
            lua.says(&code, expected);
        };
        is("'a,b,,c', ','", "a|b||c");
        is("',a,b,,', ','", "|a|b");
        is("'a,b,,', ',', nil, nil, 3", "a|b|,");
        is("'a,b', ',', nil, nil, 5", "a|b");
        is("'a1b2c', '([0-9])', 'jo'", "a|1|b|2|c");
        is("'abc', ''", "a|b|c");
        is("'abc', '', nil, nil, 2", "a|bc");
        is("'a,b,c', ',', nil, { pos = 3 }", "b|c");
        is("'', ','", "");
        lua.says("return #require('ngx.re').split('a,b', ',', nil, nil, 0, { 1, 2, 3 })", "2");
        lua.says("local t, err = require('ngx.re').split('a', '(') return t, #err > 10", "nil true");
        lua.raises("require('ngx.re').split('a', 'b', nil, nil, 0, 'c')", "res is not a table");
    }

    #[test]
    fn captures_come_by_number_and_name() {
        let mut lua = Lua::new();
        lua.says(
            "local m = ngx.re.match('hello, 1234', '([0-9])[0-9]+'); return m[0], m[1], m[2]",
            "1234 1 nil",
        );
        lua.says("local m = ngx.re.match('hello', '(x)|(h)', 'jo'); return m[0], m[1], m[2]", "h false h");
        lua.says(
            "local m = ngx.re.match('ab', '(?<first>a)(?<other>x)?'); return m.first, m.other",
            "a false",
        );
        lua.says("local m = ngx.re.match('ab', '(?<n>a)(?<n>b)', 'D'); return m.n[1], m.n[2]", "a b");
        lua.says("return ngx.re.match('ab', 'x')", "nil");
        lua.says(
            "local t = {}; local m = ngx.re.match('ab', 'b', '', nil, t); return m == t, t[0]",
            "true b",
        );
        lua.says(
            "local c = {pos = 2}; local m = ngx.re.match('1234, hi', '[0-9]+', '', c); return m[0], c.pos",
            "234 5",
        );
        lua.says("local m = ngx.re.match('abc', '(a|ab)', 'd'); return m[0], m[1]", "ab nil");
    }

    #[test]
    fn options_and_errors_are_upstreams() {
        let mut lua = Lua::new();
        lua.says(
            "return ngx.re.match('a', '(abc')",
            "nil pcre2_compile() failed: missing closing parenthesis in \"(abc\"",
        );
        lua.says("return ngx.re.match('\\228\\189\\160\\229', '.', 'u')", "nil pcre_exec() failed: -4");
        lua.raises("return ngx.re.match('a', 'b', 'Hm')", "unknown flag \"H\" (flags \"Hm\")");
        lua.says("return ngx.re.match('A', 'a', 'ijo')[0], ngx.re.match('xA', 'a', 'ia')", "A nil");
        lua.says("return ngx.re.find('a', 'a', '', nil, 1)", "nil nil nth out of bound");
        lua.raises("require('ngx.re').opt('x', 1)", "unrecognized option name");
        lua.raises("require('ngx.re').opt('jit_stack_size', 100)", "have already been compiled and cached");
    }

    #[test]
    fn places_are_found() {
        let mut lua = Lua::new();
        lua.says("return ngx.re.find('hello, 1234', '([0-9])([0-9]+)')", "8 11");
        lua.says("return ngx.re.find('hello, 1234', '([0-9])([0-9]+)', 'jo', nil, 2)", "9 11");
        lua.says("local c = {pos = 3}; return ngx.re.find('aXa', 'a', '', c), c.pos", "3 4");
        lua.says("return ngx.re.find('a', 'b')", "nil");
    }

    #[test]
    fn all_matches_come_one_after_the_other() {
        let mut lua = Lua::new();
        let all = |call: &str| {
            format!("local t = {{}}; for m in {call} do t[#t + 1] = m[0] end; return table.concat(t, '|')")
        };
        lua.says(&all("ngx.re.gmatch('hello, world', '[a-z]+')"), "hello|world");
        lua.says(&all("ngx.re.gmatch('abc', '')"), "|||");
        lua.says(&all("ngx.re.gmatch('ab', 'x')"), "");
        lua.says(
            "local it, err = ngx.re.gmatch('ab', '('); return it, err",
            "nil pcre2_compile() failed: missing closing parenthesis in \"(\"",
        );
    }

    #[test]
    fn matches_are_replaced_by_texts_and_functions() {
        let mut lua = Lua::new();
        lua.says("return ngx.re.sub('hello, 1234', '([0-9])[0-9]', '[$0][$1]')", "hello, [12][1]34 1");
        lua.says("return ngx.re.gsub('hello, 1234', '([0-9])[0-9]', '${1}-$$')", "hello, 1-$3-$ 2");
        lua.says("return ngx.re.gsub('hello', 'x', 'y')", "hello 0");
        lua.says("return ngx.re.gsub('abc', '', '-')", "-a-b-c- 4");
        lua.says("return ngx.re.gsub('hello', '[lo]', function(m) return m[0]:upper() end)", "heLLO 3");
        lua.says("return ngx.re.sub('hello', 'l', function(m) return 7 end)", "he7lo 1");
        lua.says("return ngx.re.gsub('ab', '', function() return '.' end)", ".a.b. 3");
        lua.says(
            "return ngx.re.sub('a', 'a', '$hello')",
            "nil nil failed to compile the replacement template",
        );
        lua.says(
            "return ngx.re.sub('a', '(', 'x')",
            "nil nil pcre2_compile() failed: missing closing parenthesis in \"(\"",
        );
        lua.says("return ngx.re.gsub('\u{4f60}\u{597d}', '', '-', 'u')", "-\u{4f60}-\u{597d}- 3");
    }

    #[test]
    fn templates_are_read_as_upstream_reads_them() {
        assert_eq!(
            template(b"a$1b$$"),
            Ok(vec![Piece::Text(b"a"), Piece::Group(1), Piece::Text(b"b"), Piece::Text(b"$"),])
        );
        assert_eq!(
            template(b"[$0] [${").unwrap_err(),
            "lua script: invalid capturing variable name found in \"[$0] [${\""
        );
        assert_eq!(
            template(b"${hello}").unwrap_err(),
            "attempt to use named capturing variable \"hello\" (named captures not supported yet)"
        );
        assert_eq!(template(b"${1").unwrap_err(), "the closing bracket in \"1\" variable is missing");
    }

    #[test]
    fn steps_and_memory_are_bounded() {
        let conf = RegexConf { cache_max_entries: 1, match_limit: 100 };
        let mut lua = Lua::with(VmState { regex_conf: conf, ..VmState::default() });
        lua.says("return ngx.re.match(('a'):rep(30) .. 'b', '(a+)+$')", "nil pcre_exec() failed: -47");
        lua.says("return ngx.re.match('a', 'a', 'o')[0], ngx.re.match('b', 'b', 'o')[0]", "a b");
    }
}
