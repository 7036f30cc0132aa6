//! From addresses to functions and lines, for reports only: reads the debug information of the program and
//! its libraries, which blocks, so on the reporter's thread. Names come without hashes, files without the
//! directories of the machine that built them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::Path;
use std::rc::Rc;

use clearway_luajit::walk::Activity;

use crate::report::Frame;
use crate::stacks::Sample;

/// Addresses whose functions are remembered.
const REMEMBERED_MAX: usize = 8192;

/// Functions that only lead from a thread's start to a task: stacks end below them.
const FIRST_OF_TASK: &str = "clearway_runtime::task::poll";

/// Crates that lead from a task to the code of a module.
const PLUMBING: &[&str] = &[
    "std::",
    "core::",
    "alloc::",
    "clearway_runtime::",
    "clearway_http::",
    "clearway_serve::",
    "clearway_site::",
    "clearway_message::",
    "clearway_base::",
    "clearway_os::",
];

/// The beginning of the names of Lua functions.
const LUA: &str = "[lua] ";

/// Functions that are LuaJIT, or lead to it.
const INTERPRETER: &[&str] =
    &["clearway_luajit::", "lj_", "lua_", "luaL_", "code made at run time", "in clearway", "0x"];

/// The symbols of the executable and its libraries.
#[derive(Default)]
pub(crate) struct Symbols {
    known: HashMap<(usize, Side), Rc<[Frame]>>,
}

/// Where an address of a stack stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    /// At the instruction that runs.
    At,
    /// Behind a call.
    Behind,
}

impl Symbols {
    /// The functions of a stack, the innermost first, as far as the task; functions that were inlined are
    /// there like others.
    pub(crate) fn resolve(&mut self, stack: &Sample) -> Vec<Frame> {
        let mut frames = Vec::new();
        for (index, &address) in stack.native.iter().enumerate() {
            let side = if index == 0 { Side::At } else { Side::Behind };
            frames.extend(self.functions(address, side).iter().cloned());
        }
        if !stack.lua.is_empty() {
            let lua = self.lua_functions(stack);
            frames = join(frames, lua);
        }
        if let Some(end) = frames.iter().position(|frame| frame.function.starts_with(FIRST_OF_TASK)) {
            frames.truncate(end);
        }
        frames
    }

    /// The running functions of Lua, the innermost first.
    fn lua_functions(&mut self, stack: &Sample) -> Vec<Frame> {
        let activity = match stack.activity {
            Activity::Collecting => Some("[lua] collects garbage"),
            Activity::Recording | Activity::Compiling => Some("[lua] compiles"),
            _ => None,
        };
        let mut frames: Vec<Frame> =
            activity.into_iter().map(|text| Frame { function: text.to_owned(), place: None }).collect();
        for frame in &stack.lua {
            if frame.native != 0 {
                frames.extend(self.functions(frame.native, Side::At).iter().cloned());
                continue;
            }
            let chunk = String::from_utf8_lossy(frame.chunk());
            let function = match frame.first_line {
                0 | 1 => format!("{LUA}{chunk}"),
                line => format!("{LUA}{chunk}:{line}"),
            };
            let place = (frame.line > 0).then(|| format!("{chunk}:{}", frame.line));
            frames.push(Frame { function, place });
        }
        frames
    }

    /// Lets go of all that was read and found: some 60 MiB.
    pub(crate) fn forget(&mut self) {
        self.known = HashMap::new();
        backtrace::clear_symbol_cache();
    }

    fn functions(&mut self, address: usize, side: Side) -> Rc<[Frame]> {
        if let Some(known) = self.known.get(&(address, side)) {
            return Rc::clone(known);
        }
        let functions: Rc<[Frame]> = look_up(address, side).into();
        if self.known.len() >= REMEMBERED_MAX {
            self.known.clear();
        }
        self.known.insert((address, side), Rc::clone(&functions));
        functions
    }
}

/// Puts functions of Lua in the place of the interpreter: above them what they have called, below them what
/// has begun to run them.
fn join(native: Vec<Frame>, lua: Vec<Frame>) -> Vec<Frame> {
    let is_interpreter = |frame: &Frame| {
        let name = frame.function.trim_start_matches('<');
        INTERPRETER.iter().any(|prefix| name.starts_with(prefix))
    };
    let first = native.iter().position(is_interpreter).unwrap_or(native.len());
    let begun = native.iter().rposition(|frame| frame.function.starts_with("clearway_luajit::"));
    let behind = begun.map_or_else(
        || first + native[first..].iter().take_while(|frame| is_interpreter(frame)).count(),
        |last| last + 1,
    );
    let mut joined = native[..first].to_vec();
    joined.extend(lua);
    joined.extend_from_slice(&native[behind..]);
    joined
}

fn look_up(address: usize, side: Side) -> Vec<Frame> {
    // It looks up the instruction before, as for an address that is returned to.
    let at = if side == Side::At { address.saturating_add(1) } else { address };
    let mut frames = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut::<c_void>(at), |symbol| {
        let Some(name) = symbol.name() else { return };
        let path = symbol.filename().and_then(short_path);
        let function = full_name(short_name(&format!("{name:#}")), path.as_deref());
        let place = path.map(|path| match symbol.lineno() {
            Some(line) => format!("{path}:{line}"),
            None => path,
        });
        frames.push(Frame { function, place });
    });
    if frames.is_empty() {
        frames.push(Frame { function: nameless(address), place: None });
    }
    frames
}

/// Without type parameters, and what the compiler adds to the names of closures.
fn short_name(name: &str) -> String {
    let (mut short, mut depth, mut before) = (String::new(), 0_u32, ' ');
    // In `<A as B>::c` the outermost pair is a part of the name.
    let mut kept = u32::from(name.starts_with('<'));
    for c in name.chars() {
        let is_end = c == '>' && before != '-';
        depth += u32::from(c == '<');
        if depth <= kept && (c != '<' || depth == 1) {
            short.push(c);
        }
        depth -= u32::from(is_end && depth > 0);
        if is_end && depth == 0 {
            kept = 0;
        }
        before = c;
    }
    short = short.replace("::::", "::").replace("::{{closure}}", "").replace("::{closure#0}", "");
    short.trim_end_matches(':').to_owned()
}

/// The name with its module in front of it. Line tables have the bare name of some functions; which module
/// it is follows from the file.
fn full_name(name: String, path: Option<&str>) -> String {
    if name.contains("::") {
        return name;
    }
    match path.and_then(module_of) {
        Some(module) => format!("{module}::{name}"),
        None => name,
    }
}

/// `clearway_http::phases::engine` of `crates/http/src/phases/engine.rs`, `zlib_rs::deflate` of
/// `zlib-rs-0.5.0/src/deflate.rs`.
fn module_of(path: &str) -> Option<String> {
    let (head, tail) = path.split_once("/src/").or_else(|| path.split_once("/tests/"))?;
    let name = match head.strip_prefix("crates/") {
        Some(_) if path.contains("/tests/") => None,
        Some(name) => Some(format!("clearway_{name}")),
        None => {
            let name = head.strip_prefix("library/").unwrap_or(head);
            let is_version = |(_, rest): &(&str, &str)| rest.starts_with(|c: char| c.is_ascii_digit());
            Some(name.rsplit_once('-').filter(is_version).map_or(name, |(name, _)| name).to_owned())
        }
    };
    let file = tail.strip_suffix(".rs")?;
    let parts = file.split('/').filter(|part| !matches!(*part, "lib" | "main" | "mod"));
    let parts: Vec<&str> = name.as_deref().into_iter().chain(parts).collect();
    Some(parts.join("::").replace('-', "_"))
}

/// The name of an address that no debug information knows: the file that it was mapped from.
#[expect(clippy::disallowed_methods, reason = "the reporter's thread may block")]
fn nameless(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let holds = |line: &&str| {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let ends = range.map(|(from, to)| (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16)));
        matches!(ends, Some((Ok(from), Ok(to))) if (from..to).contains(&address))
    };
    match maps.lines().find(holds).map(|line| line.split_whitespace().nth(5)) {
        Some(Some(path)) if path.starts_with('[') => path.to_owned(),
        Some(Some(path)) => format!("in {}", path.rsplit('/').next().unwrap_or(path)),
        Some(None) => "code made at run time".to_owned(),
        None => format!("{address:#x}"),
    }
}

/// A source file as its project names it.
fn short_path(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    for mark in ["/registry/src/", "/rustc/"] {
        if let Some((_, rest)) = path.split_once(mark) {
            // A registry's or a compiler's hash comes first.
            return rest.split_once('/').map(|(_, rest)| rest.to_owned());
        }
    }
    if let Some(at) = path.rfind("/crates/") {
        return Some(path[at + 1..].to_owned());
    }
    if !path.starts_with('/') {
        return Some(path.to_owned());
    }
    path.rsplit('/').next().map(str::to_owned)
}

/// The function in which a stack (the innermost first) left the plumbing: a module's as a rule.
pub(crate) fn entry(frames: &[Frame]) -> Option<&Frame> {
    let is_plumbing = |frame: &&Frame| {
        let name = frame.function.trim_start_matches('<');
        PLUMBING.iter().any(|prefix| name.starts_with(prefix))
    };
    let is_ours = |frame: &&Frame| frame.function.trim_start_matches('<').starts_with("clearway_");
    if let Some(lua) = frames.iter().rev().find(|frame| frame.function.starts_with(LUA)) {
        return Some(lua);
    }
    let left = frames.iter().rev().find(|frame| !is_plumbing(frame) && frame.function.contains("::"));
    left.or_else(|| frames.iter().find(is_ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_do_not_name_machines() {
        let short = |path: &str| short_path(Path::new(path)).unwrap();
        assert_eq!(short("/a/b/crates/http/src/phases/engine.rs"), "crates/http/src/phases/engine.rs");
        assert_eq!(short("/r/.cargo/registry/src/index-1/zlib-rs-0.5/src/x.rs"), "zlib-rs-0.5/src/x.rs");
        assert_eq!(short("/rustc/abc/library/core/src/ops.rs"), "library/core/src/ops.rs");
        assert_eq!(short("/usr/src/glibc/nptl/pthread.c"), "pthread.c");
        assert_eq!(short("library/std/src/sys.rs"), "library/std/src/sys.rs");
    }

    #[test]
    fn names_are_short_and_full() {
        for (name, short) in [
            ("a::b::<c::D<e>>::f", "a::b::f"),
            ("is_some_and<a::B, fn(c) -> bool>", "is_some_and"),
            ("<a::B<c> as d::E<f>>::g::<h>", "<a::B as d::E>::g"),
            ("<a::B>::c", "<a::B>::c"),
            ("a::b::{{closure}}", "a::b"),
            ("{async_block#0}<a::b::{closure_env#0}>", "{async_block#0}"),
        ] {
            assert_eq!(short_name(name), short, "{name}");
        }
        for (path, full) in [
            ("crates/http/src/phases/engine.rs", "clearway_http::phases::engine::f"),
            ("crates/modules/src/content/dav/mod.rs", "clearway_modules::content::dav::f"),
            ("crates/watchdog/tests/stalls.rs", "stalls::f"),
            ("zlib-rs-0.5.0/src/deflate/slow.rs", "zlib_rs::deflate::slow::f"),
            ("library/core/src/lib.rs", "core::f"),
            ("pthread.c", "f"),
        ] {
            assert_eq!(full_name("f".to_owned(), Some(path)), full);
        }
    }

    #[test]
    fn what_has_no_name_is_in_a_file() {
        assert_eq!(nameless(16), "0x10");
        let here = [0_u8; 1];
        assert_eq!(nameless((&raw const here).addr()), "code made at run time");
        let libc = nameless(nameless as fn(usize) -> String as usize);
        assert!(libc.starts_with("in clearway_watchdog-"), "{libc}");
    }

    #[test]
    fn where_the_plumbing_ends() {
        let frame = |function: &str| Frame { function: function.to_owned(), place: None };
        let found = |names: &[&str]| {
            let frames: Vec<_> = names.iter().map(|name| frame(name)).collect();
            entry(&frames).map(|frame| frame.function.clone())
        };
        let http = "clearway_http::phases::engine::run";
        assert_eq!(found(&["core::hint", "m::burn", "m::handler", http]), Some("m::handler".into()));
        assert_eq!(found(&["clock_nanosleep", "std::thread::sleep", http]), Some(http.into()));
        assert_eq!(found(&["0x12"]), None);
    }

    #[inline(never)]
    fn somewhere() -> usize {
        let here: fn() -> usize = somewhere;
        here as usize
    }

    fn native(address: usize) -> Sample {
        Sample { native: vec![address], ..Sample::default() }
    }

    #[test]
    fn lua_stands_where_its_interpreter_is() {
        let frames = |names: &[&str]| -> Vec<Frame> {
            names.iter().map(|name| Frame { function: (*name).to_owned(), place: None }).collect()
        };
        let native =
            frames(&["md5", "lj_vm_ffi_call", "0x1234", "clearway_luajit::vm::Vm::resume_for", "m::run"]);
        let joined = join(native, frames(&["[lua] b", "[lua] a"]));
        assert_eq!(joined, frames(&["md5", "[lua] b", "[lua] a", "m::run"]));
        assert_eq!(entry(&joined).map(|frame| &*frame.function), Some("[lua] a"));
        assert_eq!(join(frames(&["m::run"]), frames(&["[lua] a"])), frames(&["m::run", "[lua] a"]));
    }

    #[test]
    fn our_own_functions_are_found() {
        let mut symbols = Symbols::default();
        let frames = symbols.resolve(&native(somewhere()));
        assert!(frames[0].function.ends_with("symbols::tests::somewhere"), "{frames:?}");
        let place = frames[0].place.as_deref().unwrap();
        assert!(place.starts_with("crates/watchdog/src/symbols.rs:"), "{place}");
        assert_eq!(symbols.resolve(&native(16))[0].function, "0x10");
    }

    #[test]
    fn what_was_forgotten_is_found_again() {
        let mut symbols = Symbols::default();
        let first = symbols.resolve(&native(somewhere()));
        symbols.forget();
        assert!(symbols.known.is_empty());
        assert_eq!(symbols.resolve(&native(somewhere())), first);
    }
}
