//! Any cipher string: no suite stands twice in what it means, and its suites by name mean the same again.
//! With the program in `CLEARWAY_OPENSSL` (OpenSSL 3.0) it means what `openssl ciphers` says.
#![no_main]

use std::process::Command;

use clearway_tls::ciphers::CipherList;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let found = CipherList::parse(text);
    if let Some(program) = std::env::var_os("CLEARWAY_OPENSSL").filter(|_| is_argument(text)) {
        let arguments = ["ciphers", "-ciphersuites", "", &format!(":{text}")];
        let output = Command::new(program).args(arguments).output().expect("the program is there");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let expected = output.status.success().then_some(said);
        let found = CipherList::parse(&format!(":{text}")).ok().map(|list| joined(&list));
        assert_eq!(found, expected, "{text}");
    }
    let Ok(list) = found else { return };
    let again = CipherList::parse(&joined(&list)).expect("names are known");
    assert_eq!(again.suites(), list.suites());
});

fn joined(list: &CipherList) -> String {
    list.suites().iter().map(|suite| suite.name).collect::<Vec<_>>().join(":")
}

/// Whether the program understands it as the server does: no suites of TLS 1.3 are asked for, and its words
/// are of signs that names have.
fn is_argument(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b":,;+-!@=._ ".contains(&byte);
    !text.is_empty() && text.bytes().all(is_known)
}
