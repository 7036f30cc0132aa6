//! Modules in C: they find LuaJIT's interface in the executable that loads them.

use clearway_luajit::{Resumed, Vm};

/// Where Debian's package lua-cjson puts its module on this machine, `./x` having seen to it.
fn path() -> String {
    let architecture = std::env::consts::ARCH;
    format!("/usr/lib/{architecture}-linux-gnu/lua/5.1/cjson.so")
}

#[test]
fn a_module_of_debians_loads_and_works() {
    let path = path();
    assert!(std::path::Path::new(&path).exists(), "{path} is missing: install lua-cjson");
    let mut vm = Vm::new(None).unwrap();
    let code = format!(
        "package.cpath = '{path}'
         local cjson = require 'cjson'
         local t = cjson.decode('{{\"a\": [1, 2.5, true, null, \"\\\\u00e4\"]}}')
         local ok, err = pcall(cjson.decode, '{{')
         return cjson.encode(t), tostring(ok), err"
    );
    let handler = vm.load(code.as_bytes(), c"=modules").unwrap();
    let mut coroutine = vm.start(&handler);
    let resumed = vm.resume(&mut coroutine);
    assert!(matches!(resumed, Resumed::Finished(3)), "{resumed:?}");
    let mut stack = vm.stack(&coroutine);
    let mut texts = Vec::new();
    for slot in 1..=3 {
        texts.push(String::from_utf8(stack.text(slot).unwrap().to_vec()).unwrap());
    }
    assert_eq!(texts[0], r#"{"a":[1,2.5,true,null,"ä"]}"#);
    assert_eq!(texts[1], "false");
    assert!(texts[2].starts_with("Expected object key string"), "{}", texts[2]);
}
