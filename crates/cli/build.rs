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
    println!("cargo::rustc-link-arg-bins=-Wl,--dynamic-list={}", value("DEP_LUAJIT_EXPORTS"));
    // Scripts of this kind are read by GNU's linker and by LLVM's.
    let is_read = value("CARGO_CFG_TARGET_OS") == "linux" && value("CLEARWAY_LAYOUT") != "off";
    if is_read && matches!(value("OPT_LEVEL").as_str(), "2" | "3") {
        let script = format!("{}/hot_functions.ld", value("CARGO_MANIFEST_DIR"));
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{script}");
    }
}
