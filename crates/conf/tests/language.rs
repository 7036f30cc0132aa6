//! What a configuration means as text: words, lines, Lua blocks, includes, the `-g` option, `-T`.

mod nginx;

use std::fmt::Write as _;
use std::path::Path;

use clearway_base::log::Level;
use clearway_conf::{Block, Body, Contexts, Directive, Error, Loader, Memory, Source, parse_bytes};
use clearway_conf::{NESTING_MAX_LEVELS, Table};

fn words(text: &[u8]) -> String {
    let mut out = String::new();
    describe(&parse_bytes(text).expect("the text is well-formed"), &mut out);
    out
}

fn describe(block: &Block, out: &mut String) {
    for directive in &block.directives {
        write!(out, "{}:", directive.pos.line).expect("strings grow");
        for word in std::iter::once(&directive.name).chain(&directive.args) {
            write!(out, "[{}]", word.escape_ascii()).expect("strings grow");
        }
        match &directive.body {
            Body::Block(block) => {
                out.push('{');
                describe(block, out);
                write!(out, "}}:{}", block.close.line).expect("strings grow");
            }
            Body::Lua(code) => {
                write!(out, "{{{{{}}}}}:{}", code.code.escape_ascii(), code.close.line)
                    .expect("strings grow");
            }
            _ => out.push(';'),
        }
    }
}

fn load(source: &dyn Source) -> Block {
    let path = Path::new("/p/nginx.conf");
    Loader::new(source, path).file(path)
}

fn run(tree: &Block) -> Result<nginx::Conf, Error> {
    let mut conf = nginx::Conf::default();
    nginx::table().run(tree, nginx::MAIN, &mut conf, &mut Vec::new())?;
    Ok(conf)
}

#[test]
fn words_and_lines() {
    for (text, expected) in [
        ("", ""),
        (" # only a comment", ""),
        ("a;", "1:[a];"),
        ("a b\n c;", "2:[a][b][c];"),
        ("a{}", "1:[a]{}:1"),
        ("a\n{\nb;\n}\nc;", "2:[a]{3:[b];}:45:[c];"),
        ("a 'b c' \"d e\";", "1:[a][b c][d e];"),
        ("a \"\" '';", "1:[a][][];"),
        (r#"a "\"\'\\\t\r\n\x\$";"#, r"1:[a][\x22\'\\\t\r\n\\x\\$];".replace("\\x22", "\\\"").as_str()),
        (r"a \; \  b\{c;", r"1:[a][\\;][\\ ][b\\{c];"),
        ("a ${b}c $d{}", "1:[a][${b}c][$d]{}:1"),
        ("if ($a = \"b\"){}", "1:[if][($a][=][b][)]{}:1"),
        ("a \"b\nc\";", "2:[a][b\\nc];"),
        ("a\tb\r\n;", "2:[a][b];"),
        ("a#b #c\n;", "2:[a#b];"),
        ("a \x7f\u{e9};", "1:[a][\\x7f\\xc3\\xa9];"),
    ] {
        assert_eq!(words(text.as_bytes()), expected, "{text}");
    }
    assert_eq!(words(b"\xff \0;"), "1:[\\xff][\\x00];");
}

#[test]
fn lua_blocks() {
    for (code, expected) in [
        ("", "{{}}:1"),
        (" a = {} ", "{{ a = {} }}:1"),
        (" a = \"}\" b = '{' ", "{{ a = \\\"}\\\" b = \\'{\\' }}:1"),
        (" a = '\\'}' ", "{{ a = \\'\\\\\\'}\\' }}:1"),
        (" -- }\n", "{{ -- }\\n}}:2"),
        (" --[[ } \n ]] ", "{{ --[[ } \\n ]] }}:2"),
        (" --[==[ } ]] ]==] ", "{{ --[==[ } ]] ]==] }}:1"),
        (" ---[[ }\n", "{{ ---[[ }\\n}}:2"),
        (" a = [[ } \n\n ]] ", "{{ a = [[ } \\n\\n ]] }}:3"),
        (" a[b[1]] = 2 - 1 ", "{{ a[b[1]] = 2 - 1 }}:1"),
        (" # ; ", "{{ # ; }}:1"),
        (" -- it's\n a() ", "{{ -- it\\'s\\n a() }}:2"),
        // A quote without partner on its line hides nothing.
        (" a = \"b\n\" ", "{{ a = \\\"b\\n\\\" }}:2"),
        (" a = \"b\\\n\" ", "{{ a = \\\"b\\\\\\n\\\" }}:2"),
    ] {
        let text = format!("content_by_lua_block {{{code}}} b;");
        let lines = 1 + code.matches('\n').count();
        let expected = format!("1:[content_by_lua_block]{expected}{lines}:[b];");
        assert_eq!(words(text.as_bytes()), expected, "{code}");
    }
    let long = format!("content_by_lua_block {{ {} }}", "a()\n".repeat(5000));
    assert!(words(long.as_bytes()).ends_with("}}:5001"));
}

#[test]
fn lua_blocks_that_do_not_end() {
    let missing_end = "unexpected end of file, expecting terminating characters for lua code block";
    let missing_bracket = "Lua code block missing the closing long bracket";
    let may_be = "the inlined Lua code may be too long";
    for (text, expected) in [
        ("content_by_lua_block {", format!("{missing_end} in /p/nginx.conf:2")),
        ("content_by_lua_block { \n { \n {\n }\n\n", format!("{missing_end} in /p/nginx.conf:4")),
        ("content_by_lua_block { -- }", format!("{missing_end} in /p/nginx.conf:2")),
        (
            "content_by_lua_block {\n a=[[ \n}",
            format!("{missing_bracket} \"]]\", {may_be} in /p/nginx.conf:3"),
        ),
        (
            "content_by_lua_block { --[=[ ]] }",
            format!("{missing_bracket} \"]=]\", {may_be} in /p/nginx.conf:2"),
        ),
        (
            "content_by_lua_block a { [[",
            String::from(
                "invalid number of arguments in \"content_by_lua_block\" directive in /p/nginx.conf:2",
            ),
        ),
        (
            "content_by_lua_block;",
            String::from("directive \"content_by_lua_block\" has no opening \"{\" in /p/nginx.conf:2"),
        ),
        (
            "other_by_lua_block { [[",
            String::from("unknown directive \"other_by_lua_block\" in /p/nginx.conf:2"),
        ),
    ] {
        let source = Memory::new().with("/p/nginx.conf", format!("http {{\n{text}"));
        assert_eq!(run(&load(&source)).expect_err(text).to_string(), expected);
    }
}

#[test]
fn the_g_option() {
    let source = Memory::new().with("/p/a.conf", "daemon off;\n");
    for (text, expected) in [
        ("daemon", "unexpected end of parameter, expecting \";\" in command line"),
        ("foo {", "block directives are not supported in -g option in command line"),
        ("user }", "unexpected \"}\" in command line"),
        ("}", "unexpected \"}\" in command line"),
        ("foo;", "unknown directive \"foo\" in command line"),
        ("include none;", "open() \"/p/none\" failed (2: No such file or directory) in command line"),
        ("include a.conf; include a.conf;", "\"daemon\" directive is duplicate in /p/a.conf:1"),
    ] {
        let tree = Loader::new(&source, Path::new("/p/nginx.conf")).param(text.as_bytes());
        assert_eq!(run(&tree).expect_err(text).to_string(), expected);
    }
    let tree = Loader::new(&source, Path::new("/p/nginx.conf")).param(b"user a; include a.conf;");
    assert_eq!(run(&tree).expect("it is fine").daemon, Some(false));
    let long = format!("user {};", "x".repeat(10_000));
    assert!(run(&Loader::new(&source, Path::new("/p/nginx.conf")).param(long.as_bytes())).is_ok());
}

#[test]
fn files_are_read_once_and_dumped() {
    let source = Memory::new()
        .with("/p/nginx.conf", "include d/*.part; include d/b.part;\n")
        .with("/p/d/b.part", "# b\n")
        .with("/p/d/a.part", "include d/c;")
        .with("/p/d/c", "")
        .with("/p/d/other", "foo;");
    let path = Path::new("/p/nginx.conf");
    let mut loader = Loader::new(&source, path);
    assert_eq!(loader.file(path).broken, None);
    let dump = String::from_utf8(clearway_conf::dump(loader.files())).expect("it is text");
    assert_eq!(
        dump,
        "# configuration file /p/nginx.conf:\ninclude d/*.part; include d/b.part;\n\n\
         # configuration file /p/d/a.part:\ninclude d/c;\n\
         # configuration file /p/d/c:\n\n\
         # configuration file /p/d/b.part:\n# b\n\n"
    );

    // What was read is a source itself.
    let again: Memory = loader.files().iter().map(|file| (&*file.path, file.text.clone())).collect();
    assert_eq!(load(&again), load(&source));
}

#[test]
fn stock_files_stand_for_those_that_are_not_there() {
    let stock = &[("c", "daemon off;\n")];
    let answer = |text: &str, own: Option<&str>| {
        let source = Memory::new().with("/p/nginx.conf", text);
        let source = own.into_iter().fold(source, |source, text| source.with("/p/c", text));
        let path = Path::new("/p/nginx.conf");
        run(&Loader::new(&source, path).with_stock(stock).file(path)).map(|core| core.daemon)
    };
    for text in ["include c;", "include /p/c;"] {
        assert_eq!(answer(text, None).expect("it is built in"), Some(false));
        assert_eq!(answer(text, Some("daemon on;")).expect("it is there"), Some(true));
    }
    for text in ["include /q/c;", "include d/c;", "include C;"] {
        assert!(answer(text, None).is_err(), "{text}");
    }
    assert_eq!(answer("include c*;", None).expect("a mask may match nothing"), None);
    // The configuration itself has to be there.
    let source = Memory::new();
    let path = Path::new("/p/c");
    assert!(Loader::new(&source, path).with_stock(stock).file(path).broken.is_some());
}

#[test]
fn the_main_file_must_be_there() {
    let error = run(&load(&Memory::new())).expect_err("there is no file");
    assert_eq!(error.to_string(), "open() \"/p/nginx.conf\" failed (2: No such file or directory)");
    assert_eq!(error.level(), Level::Emerg);
}

#[test]
fn a_directory_cannot_be_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    let error = Loader::new(&clearway_conf::Disk, path).file(path).end().expect_err("it is a directory");
    assert_eq!(
        error.text(),
        format!("pread() \"{}\" failed (21: Is a directory)", path.display()).as_bytes()
    );
    assert_eq!(error.level(), Level::Crit);
}

#[test]
fn includes_in_circles_end() {
    let source = Memory::new().with("/p/nginx.conf", "include nginx.conf;");
    let expected =
        format!("files are included more than {NESTING_MAX_LEVELS} levels deep in /p/nginx.conf:1");
    assert_eq!(run(&load(&source)).expect_err("a circle").to_string(), expected);

    // Not deep, but 20 ^ 5 files.
    let source: Memory = (0..6)
        .map(|n| (format!("/p/{n}"), format!("include {};\n", n + 1).repeat(20)))
        .chain([
            (String::from("/p/nginx.conf"), String::from("include 0;")),
            (String::from("/p/6"), String::new()),
        ])
        .collect();
    let error = run(&load(&source)).expect_err("too many");
    assert_eq!(error.message(), b"more than 65536 files are included");
}

#[test]
fn blocks_are_nested_only_so_deep() {
    let nested = |levels: usize| "a{".repeat(levels) + &"}".repeat(levels);
    assert!(parse_bytes(nested(NESTING_MAX_LEVELS as usize).as_bytes()).is_ok());
    let error = parse_bytes("a{".repeat(100_000).as_bytes()).expect_err("too deep");
    assert_eq!(error.message(), b"blocks are nested more than 256 levels deep");
}

#[test]
fn values_reach_the_levels_they_belong_to() {
    let source = Memory::new()
        .with("/p/nginx.conf", "daemon off; http { types { include t; a/b c d; } server { types { e f; } } }")
        .with("/p/t", "text/html html htm;");
    let conf = run(&load(&source)).expect("it is fine");
    assert_eq!((conf.daemon, conf.keepalive_requests, conf.types.len()), (Some(false), None, 0));

    let source =
        Memory::new().with("/p/nginx.conf", "types { include t; }").with("/p/t", "text/html html htm;");
    let mut conf = nginx::Conf::default();
    nginx::table().run(&load(&source), nginx::HTTP, &mut conf, &mut Vec::new()).expect("it is fine");
    assert_eq!(conf.types, ["html", "htm"]);
}

#[test]
fn tables_know_each_other() {
    use clearway_conf::{Args, Spec};
    static OTHER: &[Spec<()>] = &[Spec {
        name: "worker_connections",
        contexts: Contexts::bit(9),
        args: Args::TAKE1,
        syntax: "worker_connections NUMBER",
        default: "",
        doc: "",
        example: "
            events {
                worker_connections 4096;
            }",
        see: &["events", "worker_rlimit_nofile", "worker_processes"],
        handler: |_, _| Ok(()),
    }];
    let table = nginx::table().with_names_of(&Table::new(&[OTHER]));
    let tree = parse_bytes(b"worker_connections 1;").expect("it is well-formed");
    let error = table.run(&tree, nginx::MAIN, &mut nginx::Conf::default(), &mut Vec::new());
    let text = error.expect_err("it belongs elsewhere").to_string();
    assert_eq!(text, "\"worker_connections\" directive is not allowed here in nginx.conf:1");

    assert!(nginx::table().ambiguous_names().is_empty());
    assert_eq!(Table::new(&[OTHER, OTHER]).ambiguous_names(), ["worker_connections"]);
    assert_eq!(nginx::table().specs().next().map(|spec| spec.name), Some("include"));
}

#[test]
fn warnings_are_kept_in_order() {
    use clearway_conf::{Args, Spec};
    static TABLE: &[Spec<()>] = &[Spec {
        name: "old",
        contexts: Contexts::bit(0),
        args: Args::NOARGS,
        syntax: "old",
        default: "",
        doc: "",
        example: "",
        see: &[],
        handler: |scope, directive: &Directive| {
            scope.warn(directive.error("the \"old\" directive is deprecated"));
            Ok(())
        },
    }];
    let tree = parse_bytes(b"old;\nold;").expect("it is well-formed");
    let mut warnings = Vec::new();
    Table::new(&[TABLE])
        .run(&tree, Contexts::bit(0), &mut (), &mut warnings)
        .expect("warnings are no errors");
    let lines: Vec<_> = warnings.iter().map(|warning| warning.pos().expect("it has a place").line).collect();
    assert_eq!((lines, warnings[0].level()), (vec![1, 2], Level::Warn));
}
