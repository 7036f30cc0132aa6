//! Has the linker put the functions that serve requests side by side (hot_functions.ld), in an optimised
//! build. `CLEARWAY_LAYOUT=off` is for linkers that read no scripts.
#![allow(clippy::disallowed_macros, reason = "a build script tells cargo by its standard output")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=hot_functions.ld");
    println!("cargo::rerun-if-env-changed=CLEARWAY_LAYOUT");
    println!("cargo::rerun-if-env-changed=DEP_LUAJIT_EXPORTS");
    let value = |name: &str| std::env::var(name).unwrap_or_default();
    // Modules in C that Lua loads look for its interface in the executable.
    let exports = value("DEP_LUAJIT_EXPORTS");
    println!("cargo::rustc-link-arg-bins=-Wl,--dynamic-list={exports}");
    keep_exports(&exports);
    // Scripts of this kind are read by GNU's linker and by LLVM's.
    let is_read = value("CARGO_CFG_TARGET_OS") == "linux" && value("CLEARWAY_LAYOUT") != "off";
    if is_read && matches!(value("OPT_LEVEL").as_str(), "2" | "3") {
        let script = format!("{}/hot_functions.ld", value("CARGO_MANIFEST_DIR"));
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{script}");
    }
}

/// Has the linker look for functions of ours that C code alone calls: without it the archive's part that has
/// them is left out. Names with a star are LuaJIT's, which is linked as a whole.
fn keep_exports(list: &str) {
    println!("cargo::rerun-if-changed={list}");
    #[expect(clippy::disallowed_methods, reason = "a build script has no loop to block")]
    let list = std::fs::read_to_string(list).expect("the crate luajit names its list");
    for name in list.lines().filter_map(|line| line.trim().strip_suffix(';')) {
        if name.starts_with("ngx_") && !name.contains('*') {
            println!("cargo::rustc-link-arg-bins=-Wl,--undefined={name}");
        }
    }
}
