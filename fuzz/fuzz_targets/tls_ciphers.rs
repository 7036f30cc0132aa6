//! Any cipher string: no suite stands twice in what it means, and its suites by name mean the same again.
#![no_main]

use clearway_tls::ciphers::CipherList;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let Ok(list) = CipherList::parse(text) else { return };
    let names: Vec<&str> = list.suites().iter().map(|suite| suite.name).collect();
    let again = CipherList::parse(&names.join(":")).expect("names are known");
    assert_eq!(again.suites(), list.suites());
});
