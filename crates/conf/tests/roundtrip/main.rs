//! Trees written as text and read again, and texts that nobody would write.

mod model;

use bytes::Bytes;
use clearway_base::units;
use clearway_conf::{Block, Body, Part, Pos, Template, parse_bytes};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    words: Vec<Vec<u8>>,
    block: Option<Vec<Node>>,
}

/// Any bytes, and often those that mean something.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let special = proptest::sample::select(&b"\"'\\${};# \t\r\n)tnra_"[..]);
    prop_oneof![vec(any::<u8>(), 0..12), vec(special, 0..12), "[a-z_]{1,12}".prop_map(String::into_bytes)]
}

fn node() -> impl Strategy<Value = Node> {
    let leaf = vec(word(), 1..5).prop_map(|words| Node { words, block: None });
    leaf.prop_recursive(4, 40, 5, |inner| {
        let block = vec(inner, 0..5).prop_map(Some);
        (vec(word(), 1..4), block).prop_map(|(words, block)| Node { words, block })
    })
    // These two have meanings of their own.
    .prop_filter("an include or a Lua block", |node| {
        node.words[0] != b"include" && !node.words[0].ends_with(b"_by_lua_block")
    })
}

fn write(nodes: &[Node], blank: &str, out: &mut Vec<u8>) {
    for node in nodes {
        for (index, word) in node.words.iter().enumerate() {
            let quote = if index % 2 == 0 { b'"' } else { b'\'' };
            out.push(quote);
            for &byte in word {
                if byte == quote || byte == b'\\' {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.push(quote);
            out.extend_from_slice(blank.as_bytes());
        }
        match &node.block {
            None => out.push(b';'),
            Some(nodes) => {
                out.push(b'{');
                write(nodes, blank, out);
                out.push(b'}');
            }
        }
    }
}

/// Fails if a text is read in another way than by its grammar, or refused for another reason.
fn expect_grammar(text: &[u8]) -> Result<(), TestCaseError> {
    let expected = model::read(text);
    let found = parse_bytes(text);
    if expected != Err(model::Stop::Unknown) {
        let found = found.map(|block| model::of(&block));
        prop_assert_eq!(found.map_err(|error| model::Stop::Broken(error.text().to_vec())), expected);
    }
    Ok(())
}

/// Fails if the parts of a value are not all of it, or if it is refused without a reason.
fn expect_parts(value: &Bytes) -> Result<(), TestCaseError> {
    let parts = match Template::compile(value, &Pos::command_line(), |name| Ok(name.to_vec())) {
        Ok(template) => template.parts().to_vec(),
        Err(error) => {
            let is_known =
                error.message() == b"invalid variable name" || error.message().starts_with(b"the c");
            prop_assert!(is_known && value.contains(&b'$'));
            return Ok(());
        }
    };
    let is_literal = |part: &Part<Vec<u8>>| matches!(part, Part::Literal(_));
    prop_assert!(!parts.windows(2).any(|two| two.iter().all(is_literal)));
    let mut rest = &value[..];
    for part in &parts {
        let spellings = match part {
            Part::Literal(text) => vec![text.to_vec()],
            Part::Variable(name) => vec![[b"${", &name[..], b"}"].concat(), [b"$", &name[..]].concat()],
            Part::Capture(number) => vec![format!("${number}").into_bytes()],
        };
        prop_assert!(!matches!(part, Part::Literal(text) if text.is_empty() || text.contains(&b'$')));
        let behind = spellings.iter().find_map(|spelling| rest.strip_prefix(&spelling[..]));
        rest = behind.ok_or_else(|| TestCaseError::fail(format!("{parts:?} of {value:?}")))?;
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let has_braces = value[..value.len() - rest.len()].ends_with(b"}");
        if matches!(part, Part::Variable(_)) && !has_braces {
            prop_assert!(!rest.first().is_some_and(is_of_name));
        }
    }
    prop_assert_eq!(rest, b"");
    Ok(())
}

fn nodes(block: &Block) -> Vec<Node> {
    let node = |directive: &clearway_conf::Directive| Node {
        words: std::iter::once(&directive.name).chain(&directive.args).map(|word| word.to_vec()).collect(),
        block: match &directive.body {
            Body::Block(block) => Some(nodes(block)),
            _ => None,
        },
    };
    block.directives.iter().map(node).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(tree in vec(node(), 0..5), blank in "[ \t\r\n]{1,3}(#[^\n]{0,5}\n)?") {
        let mut text = Vec::new();
        write(&tree, &blank, &mut text);
        let block = parse_bytes(&text).expect("it is well-formed");
        prop_assert_eq!(nodes(&block), tree);
        let lines = text.iter().filter(|&&byte| byte == b'\n').count();
        prop_assert_eq!(block.close.line as usize, lines + 1);
    }

    #[test]
    fn plain_words_need_no_quotes(words in vec("[a-z0-9_/.*$%=~^:@()-]{1,20}", 1..6)) {
        prop_assume!(words[0] != "include");
        let block = parse_bytes((words.join(" ") + ";").as_bytes()).expect("it is well-formed");
        let read: Vec<Vec<u8>> = words.into_iter().map(String::into_bytes).collect();
        prop_assert_eq!(nodes(&block), vec![Node { words: read, block: None }]);
    }

    #[test]
    fn any_text_is_read_by_the_grammar(text in vec(any::<u8>(), 0..200)) {
        expect_grammar(&text)?;
    }

    #[test]
    fn any_sequence_of_tokens_is_read_by_the_grammar(
        tokens in vec(proptest::sample::select(TOKENS), 0..60),
        few in vec(vec(proptest::sample::select(&TOKENS[..FREQUENT]), 0..12), 16),
    ) {
        expect_grammar(tokens.concat().as_bytes())?;
        for tokens in few {
            expect_grammar(tokens.concat().as_bytes())?;
        }
    }

    #[test]
    fn templates_keep_their_text(value in "([a-z ?.-]|\\$[a-z_]+|\\$\\{[a-z0-9]+\\}|\\$[1-9]){0,12}") {
        let value = Bytes::from(value);
        let template = Template::compile(&value, &Pos::command_line(), |name| Ok(name.to_vec()))
            .expect("it is well-formed");
        let mut text = Vec::new();
        for part in template.parts() {
            match part {
                Part::Literal(literal) => text.extend_from_slice(literal),
                Part::Variable(name) => text.extend_from_slice(&[b"$", &name[..]].concat()),
                Part::Capture(number) => text.extend_from_slice(format!("${number}").as_bytes()),
            }
        }
        let without_braces: Vec<u8> = value.iter().copied().filter(|byte| !b"{}".contains(byte)).collect();
        prop_assert_eq!(text, without_braces);
    }

    #[test]
    fn any_template_is_all_of_its_parts(value in vec(any::<u8>(), 0..40), dollars in "[$\\{}1a-]{0,20}") {
        for value in [Bytes::from(value), Bytes::from(dollars)] {
            expect_parts(&value)?;
        }
    }

    #[test]
    fn times_add_up(h in 0u64..1000, m in 0u64..1000, s in 0u64..1000, ms in 0u64..5000) {
        let text = format!("{h}h {m}m{s}s  {ms}ms");
        let expected = Duration::from_millis(((h * 60 + m) * 60 + s) * 1000 + ms);
        prop_assert_eq!(units::parse_msec(text.as_bytes()), Some(expected));
    }

    #[test]
    fn any_unit_is_survived(text in "[0-9]{0,21}[kKmMgGsdhwy ]{0,3}[0-9]{0,20}m?s?") {
        let seconds = units::parse_sec(text.as_bytes()).map(|time| time.as_secs());
        let offset = units::parse_offset(text.as_bytes());
        for value in [seconds, offset, units::parse_size(text.as_bytes())] {
            prop_assert!(value.is_none_or(|value| value <= units::VALUE_MAX));
        }
    }
}

/// How many of the tokens, from the first on, whole directives are made of.
const FREQUENT: usize = 16;

const TOKENS: &[&str] = &[
    "a",
    "t",
    "r",
    "n",
    " ",
    "\n",
    ";",
    "{",
    "}",
    "\"",
    "'",
    "\\",
    "$",
    "${",
    "#",
    ")",
    "include x;",
    "include *;",
    "content_by_lua_block {",
    "--",
    "[[",
    "]]",
    "--[=[",
    "]=]",
    "\u{e9}",
];
