//! `layout`: finds out which functions serve requests and writes `crates/cli/hot_functions.ld`, by which the
//! linker puts them side by side in an optimised build. Counted in instructions under callgrind, so that the
//! same sources give the same list on any machine.

mod callgrind;
mod load;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::run::{Outcome, Step, installed, root, target_dir};

/// What the list is written to, from the root.
const SCRIPT: &str = "crates/cli/hot_functions.ld";

/// A function belongs there if it took so many instructions per request, on average over all of them.
const HOT_INSTRUCTIONS: f64 = 0.5;

/// Longer names are cut, bytes: lines stay readable.
const NAME_MAX: usize = 80;

/// What the standard library makes for all, so that a pattern of its name says little.
const FOR_ALL: [&str; 6] =
    ["__rust_begin_short_backtrace", "7type_id", "9drop_slow", "8grow_one", "11finish_grow", "5btree"];

const HEAD: &str = "\
/* The functions that serve requests, side by side: what is on few pages and lines is found in the caches
 * (docs/performance.md, \"CPU per request\"). Written by `cargo xtask layout`. What a pattern does not match
 * stays where it would be. */
";

pub(crate) fn command() -> Outcome {
    if !installed("valgrind") {
        return Err("layout needs valgrind".to_owned());
    }
    let dir = target_dir().join("layout");
    // Valgrind has to see the system calls.
    Step::cargo("build --release --package clearway")
        .env("CARGO_TARGET_DIR", &dir.to_string_lossy())
        .env("RUSTFLAGS", "-C force-frame-pointers=yes --cfg rustix_use_libc --cfg clearway_counted")
        // Of what lies beside the other code callgrind names nothing.
        .env("CLEARWAY_LAYOUT", "off")
        .run()?;
    let profile = dir.join("callgrind.out");
    let requests = record(&dir.join("release/clearway"), &dir, &profile)?;
    let text = fs::read(&profile).map_err(|e| format!("{}: {e}", profile.display()))?;
    let costs = callgrind::costs(&String::from_utf8_lossy(&text), "/clearway");
    let least = HOT_INSTRUCTIONS * f64::from(requests);
    let hot = costs.iter().filter(|(_, cost)| **cost as f64 >= least).map(|(name, _)| name.as_str());
    let script = script(hot);
    eprintln!("{} patterns", script.matches("*(").count());
    fs::write(root().join(SCRIPT), script).map_err(|e| format!("{SCRIPT}: {e}"))
}

/// Runs `program` under callgrind with its files in `dir`, and counts while it is under load. The number of
/// requests.
fn record(program: &Path, dir: &Path, profile: &Path) -> Result<u32, String> {
    let port = load::free_port()?;
    let conf = load::write_files(dir, port)?;
    let server = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind", "--demangle=no", "--instr-atstart=no"])
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(program)
        .args(["-p".as_ref(), dir.as_os_str(), "-c".as_ref(), conf.as_os_str()])
        .stdin(Stdio::null())
        .spawn()
        .map_err(|e| format!("valgrind: {e}"))?;
    let server = Running(server);
    let counting =
        |what: &str| Step::new(&format!("callgrind_control --instr={what} {}", server.0.id())).run();
    load::run(port, 1)?;
    counting("on")?;
    let requests = load::run(port, load::ROUNDS)?;
    counting("off")?;
    server.stop()?;
    Ok(requests)
}

/// A server that does not outlive the command.
struct Running(Child);

impl Running {
    fn stop(mut self) -> Outcome {
        Step::new(&format!("kill -TERM {}", self.0.id())).run()?;
        self.0.wait().map(drop).map_err(|e| format!("valgrind: {e}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, as a rule.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The linker script for functions of these mangled names.
fn script<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut patterns: Vec<String> =
        names.filter(|name| !FOR_ALL.iter().any(|part| name.contains(part))).map(pattern).collect();
    patterns.sort();
    patterns.dedup();
    let mut out = HEAD.to_owned();
    out.push_str("SECTIONS\n{\n  .text.hot : {\n");
    for pattern in patterns {
        writeln!(out, "    *(.text.{pattern})").expect("a string takes everything");
    }
    out.push_str("  }\n}\nINSERT BEFORE .text;\n");
    out
}

/// Matches a name in whatever build: without the hashes that compilers append, and without what a script
/// would take for something else.
fn pattern(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name);
    let (name, mut tail) = match name.rfind("17h") {
        Some(at) if name.starts_with("_ZN") => (&name[..at + 3], "*"),
        _ => (name, ""),
    };
    let mut out = String::new();
    let mut rest = name;
    while let Some(at) = rest.find("Cs") {
        // In the newer mangling, `Cs…_` names a crate by a hash.
        let (before, after) = rest.split_at(at + 2);
        let hash = after.bytes().take_while(u8::is_ascii_alphanumeric).count();
        out.push_str(before);
        if name.starts_with("_R") && after[hash..].starts_with('_') {
            out.push('*');
            rest = &after[hash..];
        } else {
            rest = after;
        }
    }
    out.push_str(rest);
    if out.len() > NAME_MAX {
        out.truncate(NAME_MAX);
        tail = "*";
    }
    out.replace('$', "?") + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_left_open() {
        assert_eq!(
            pattern("_ZN11clearway_h14scan9value_len17h0123456789abcdefE"),
            "_ZN11clearway_h14scan9value_len17h*"
        );
        assert_eq!(pattern("_ZN4a17h0123456789abcdefE.llvm.12345"), "_ZN4a17h*");
        assert_eq!(pattern("mi_free"), "mi_free");
        assert_eq!(pattern("_RNvNtCsgEmfK2I1SDS_4core3fmt5write"), "_RNvNtCs*_4core3fmt5write");
        assert_eq!(pattern("_ZN8Csx_rest1a17h0E"), "_ZN8Csx_rest1a17h*", "not a crate's hash");
        assert_eq!(pattern("_ZN3a$LT$b$GT$17h0E"), "_ZN3a?LT?b?GT?17h*");
        assert_eq!(pattern(&"m".repeat(100)), "m".repeat(80) + "*");
    }

    #[test]
    fn a_script_names_each_pattern_once() {
        let names = ["mi_free", "_ZN1b17h1E", "_ZN1b17h2E", "_ZN3std28__rust_begin_short_backtrace17h3E"];
        let text = script(names.into_iter());
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("*(")).collect();
        assert_eq!(lines, ["    *(.text._ZN1b17h*)", "    *(.text.mi_free)"]);
        assert!(text.ends_with("}\nINSERT BEFORE .text;\n"));
    }
}
