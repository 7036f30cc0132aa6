//! Builds LuaJIT, and beside it what says where its structures have which field.
//!
//! All of the library is linked, whether used here or not: modules in C that Lua loads want any part of its
//! interface. What links this crate gives the linker `exports.list` (`DEP_LUAJIT_EXPORTS`), or such modules
//! find nothing.
#![allow(clippy::disallowed_macros, reason = "a build script tells cargo by its standard output")]
#![expect(unsafe_code, reason = "luajit-src takes flags from the environment alone")]

use std::path::Path;

/// Frame pointers, so that a stack of native code goes through the library; hooks that compiled code looks
/// at, or an endless loop could not be interrupted.
const FLAGS: [&str; 2] = ["-fno-omit-frame-pointer", "-DLUAJIT_ENABLE_CHECKHOOK"];

fn main() {
    for path in ["build.rs", "exports.list", "c/layout.c"] {
        println!("cargo::rerun-if-changed={path}");
    }
    // SAFETY: a build script has one thread.
    unsafe { std::env::set_var("TARGET_FLAGS", FLAGS.join(" ")) };
    let artifacts = luajit_src::Build::new().build();
    let library = artifacts.lib_dir().display();
    println!("cargo::rustc-link-search=native={library}");
    println!("cargo::rustc-link-lib=static:+whole-archive=luajit");
    let is_asserting = cfg!(debug_assertions);

    let out = std::env::var("OUT_DIR").expect("cargo names it");
    let source = Path::new(&out).join("luajit-build/src");
    let mut layout = cc::Build::new();
    layout.file("c/layout.c").include(&source).flag("-fno-omit-frame-pointer");
    layout.define("LUAJIT_ENABLE_CHECKHOOK", None);
    if is_asserting {
        layout.define("LUA_USE_ASSERT", None).define("LUA_USE_APICHECK", None);
    }
    layout.define("LAST_FUNCTION_SIZE", &*size_of_last_function(&source.join("lj_vm.S")));
    layout.compile("clearway_luajit_layout");

    list_modules(&source.join("jit"), Path::new(&out));

    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names it");
    let exports = format!("{manifest}/exports.list");
    println!("cargo::metadata=exports={exports}");
    println!("cargo::rustc-link-arg-tests=-Wl,--dynamic-list={exports}");
}

/// Modules in Lua that LuaJIT brings and that look into it (`jit.v` and others): those of this very version
/// know it. Disassemblers of other processors are left out.
const MODULES: [&str; 10] =
    ["bc", "bcsave", "dis_arm64", "dis_x64", "dis_x86", "dump", "p", "v", "vmdef", "zone"];

/// Writes down where they are, with their names.
fn list_modules(source: &Path, out: &Path) {
    let mut list = String::from("[\n");
    for name in MODULES {
        let path = source.join(format!("{name}.lua"));
        list.push_str(&format!("    (\"jit.{name}\", include_str!({path:?})),\n"));
    }
    list.push_str("]\n");
    #[expect(clippy::disallowed_methods, reason = "a build script has no loop to block")]
    std::fs::write(out.join("jit_modules.rs"), list).expect("the directory is cargo's for this");
}

/// Of the interpreter's functions the last one's size, as the assembler's source says it.
fn size_of_last_function(path: &Path) -> String {
    #[expect(clippy::disallowed_methods, reason = "a build script has no loop to block")]
    let text = std::fs::read_to_string(path).expect("the build leaves its source");
    let size = text.lines().rev().find_map(|line| line.trim().strip_prefix(".size lj_vm_ffi_call, "));
    size.expect("the last function calls C for ffi").to_owned()
}
