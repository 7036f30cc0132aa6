//! How long functions are: from the line of `fn` to the line of the closing brace, both counted,
//! without the functions inside (they are counted themselves).

use super::lexer::{Kind, Token};

/// A function that has a body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// 1-based line of the word `fn`.
    pub(crate) line: usize,
    /// Lines of its own.
    pub(crate) length: usize,
}

/// An `fn` whose end has not been reached.
struct Open {
    name: String,
    line: usize,
    /// Braces that were open before its own.
    depth: usize,
    /// Lines that belong to functions inside.
    inner: usize,
}

/// All functions of a source, in the order in which they end. Functions in macro bodies count like
/// others; a declaration without a body and the type `fn(…)` do not.
pub(crate) fn functions(tokens: &[Token<'_>]) -> Vec<Function> {
    let code: Vec<_> = tokens.iter().filter(|t| !matches!(t.kind, Kind::Comment(_))).collect();
    let mut open: Vec<Open> = Vec::new();
    let mut out = Vec::new();
    let (mut depth, mut i) = (0_usize, 0);
    while i < code.len() {
        match code[i].kind {
            Kind::Word("fn") => {
                if let Some((name, body)) = signature(&code[i + 1..]) {
                    open.push(Open { name, line: code[i].line, depth, inner: 0 });
                    i += body;
                }
            }
            Kind::Punct('{') => depth += 1,
            Kind::Punct('}') => {
                depth = depth.saturating_sub(1);
                if let Some(done) = open.pop_if(|f| f.depth == depth) {
                    let whole = code[i].line - done.line + 1;
                    if let Some(outer) = open.last_mut() {
                        outer.inner += whole;
                    }
                    out.push(Function { name: done.name, line: done.line, length: whole - done.inner });
                }
            }
            _ => {}
        }
        i += 1;
    }
    out
}

/// What follows `fn`: the name, and how many tokens lie between `fn` and the body's brace.
fn signature(code: &[&Token<'_>]) -> Option<(String, usize)> {
    let name = match code.first()?.kind {
        Kind::Word(name) => name.to_owned(),
        // A macro's `fn $name`.
        Kind::Punct('$') => "$".to_owned(),
        _ => return None,
    };
    let mut nested = 0_usize;
    let mut before = Kind::Punct('(');
    for (i, token) in code.iter().enumerate() {
        match token.kind {
            // `{` right after `<` or `=` is a constant argument, not the body.
            Kind::Punct('{') if nested == 0 && !matches!(before, Kind::Punct('<' | '=')) => {
                return Some((name, i));
            }
            Kind::Punct('(' | '[' | '{') => nested += 1,
            Kind::Punct('}') if nested == 0 => return None,
            Kind::Punct(')' | ']' | '}') => nested = nested.saturating_sub(1),
            Kind::Punct(';') if nested == 0 => return None,
            _ => {}
        }
        before = token.kind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::lexer::tokens;
    use super::*;

    fn lengths(text: &str) -> Vec<(String, usize)> {
        functions(&tokens(text)).into_iter().map(|f| (f.name, f.length)).collect()
    }

    fn one(name: &str, length: usize) -> Vec<(String, usize)> {
        vec![(name.to_owned(), length)]
    }

    #[test]
    fn counts_from_fn_to_brace() {
        assert_eq!(lengths("fn a() {}"), one("a", 1));
        assert_eq!(lengths("/// doc\n#[inline]\npub(crate) fn a(\n) -> u8\n{\n 1\n}\n"), one("a", 5));
    }

    #[test]
    fn braces_in_text_are_not_structure() {
        let source =
            "fn a() {\n let s = \"}\"; // }\n let c = '}'; /* } */\n let r = r#\"}\"#;\n}\nfn b() {}";
        assert_eq!(lengths(source), [("a".to_owned(), 5), ("b".to_owned(), 1)]);
    }

    #[test]
    fn inner_functions_are_counted_apart() {
        let source = "fn a() {\n  fn b() {\n    1\n  }\n  let f = || {\n    2\n  };\n}\n";
        assert_eq!(lengths(source), [("b".to_owned(), 3), ("a".to_owned(), 5)]);
    }

    #[test]
    fn types_and_declarations_have_no_body() {
        assert_eq!(lengths("trait T { fn a(&self); fn b(x: [u8; { 3 }]) {} }"), one("b", 1));
        assert_eq!(lengths("struct S { f: fn(u8) -> u8, g: extern \"C\" fn() }"), []);
        assert_eq!(lengths("fn a() -> A<{ N }> {\n}\n"), one("a", 2));
    }

    #[test]
    fn macro_bodies_are_code() {
        let source = "macro_rules! m { ($n:ident) => { fn $n() {\n\n} } }\nfn after() {}";
        assert_eq!(lengths(source), [("$".to_owned(), 3), ("after".to_owned(), 1)]);
    }
}
