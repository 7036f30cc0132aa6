//! The walk-through of CONTRIBUTING: its blocks are put into a scratch copy of the sources, in which the
//! tests of the crates then pass. So the recipes are enough to add a directive, a variable and a counter.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Block of the walk-through: how it is marked, the file that it is about, and its text.
struct Block {
    kind: String,
    file: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn blocks() -> Vec<Block> {
    let text = std::fs::read_to_string(root().join("CONTRIBUTING.md")).expect("it is there");
    let section = text.split("\n## A walk-through: `foo`\n").nth(1).expect("it has a walk-through");
    let section = section.split("\n## Commits\n").next().unwrap_or_default();
    let mut blocks = Vec::new();
    for block in section.split("\n```").skip(1).step_by(2) {
        let (info, text) = block.split_once('\n').unwrap_or_default();
        let (kind, file) = info.split_once(' ').expect("a block names its file");
        blocks.push(Block { kind: kind.to_owned(), file: file.to_owned(), text: format!("{text}\n") });
    }
    blocks
}

/// A file after a change that has lines of context; nothing if they are not in it.
fn changed(text: &str, diff: &str) -> Option<String> {
    let side = |left_out: char| -> String {
        let lines = diff.lines().filter(|line| !line.starts_with(left_out));
        lines.map(|line| format!("{}\n", line.get(1..).unwrap_or_default())).collect()
    };
    let (before, after) = (side('+'), side('-'));
    text.contains(&before).then(|| text.replacen(&before, &after, 1))
}

/// Puts the blocks of source into a tree.
fn apply(tree: &Path) {
    for Block { kind, file, text } in blocks() {
        let path = tree.join(&file);
        match kind.as_str() {
            "diff" => {
                let before = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{file}: {e}"));
                let after = changed(&before, &text);
                let after =
                    after.unwrap_or_else(|| panic!("{file} is not as the walk-through has it:\n{text}"));
                std::fs::write(&path, after).expect("the copy is ours");
            }
            "rust" => std::fs::write(&path, text).expect("the copy is ours"),
            _ => {}
        }
    }
}

/// A copy of what the crates are built from; removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    /// In the same place each time, so that a build there finds what the last one has left.
    fn new(name: &str, parts: &[&str]) -> Self {
        let scratch = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name));
        drop(std::fs::remove_dir_all(&scratch.0));
        std::fs::create_dir_all(&scratch.0).expect("the directory for builds is writable");
        for part in parts {
            let copied = Command::new("cp").arg("-a").arg(root().join(part)).arg(&scratch.0).status();
            assert!(copied.is_ok_and(|status| status.success()), "{part} is copied");
        }
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn the_walk_through_fits_the_sources() {
    let scratch = Scratch::new("walk", &["crates"]);
    apply(&scratch.0);
    let list = std::fs::read_to_string(scratch.0.join("crates/server/src/modules.rs")).expect("it is there");
    assert!(list.contains("    &foo::FOO,\n"));
    assert!(scratch.0.join("crates/modules/src/content/foo.rs").is_file());
}

#[test]
#[ignore = "compiles the crates of a scratch copy: run it by its name"]
fn the_walk_through_adds_a_directive_a_variable_and_a_counter() {
    let everything = [
        "crates",
        "xtask",
        "bench",
        "tests",
        "plugins",
        "docs",
        "Cargo.toml",
        "Cargo.lock",
        "clippy.toml",
        "rust-toolchain.toml",
        "rustfmt.toml",
    ];
    let scratch = Scratch::new("walk-through", &everything);
    apply(&scratch.0);
    // Toolchain and flags are those of the directory that cargo runs in, the checkout's: so dependencies are
    // not built again.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it lies in the target directory");
    let run = |command: &str, args: &str| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.arg(command).arg("--manifest-path").arg(scratch.0.join("Cargo.toml")).args(args.split(' '));
        let status = cargo.env("CARGO_TARGET_DIR", target).current_dir(root()).status().expect("cargo runs");
        assert!(status.success(), "cargo {command} {args}");
    };
    run("fmt", "--all --check");
    run("test", "--offline --package clearway-server --lib -- examples manual metrics reference");
}

#[test]
fn a_change_is_applied_where_its_lines_are() {
    assert_eq!(changed("a\nb\nc\n", " a\n+x\n b\n").as_deref(), Some("a\nx\nb\nc\n"));
    assert_eq!(changed("a\nb\n", "-b\n+x\n").as_deref(), Some("a\nx\n"));
    assert_eq!(changed("a\n", " b\n+x\n"), None);
}
