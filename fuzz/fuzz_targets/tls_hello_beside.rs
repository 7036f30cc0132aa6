//! Any hello, beside what the library thinks of it: what the parser refuses the library does not answer, what
//! the parser waits for the library waits for or refuses, and what the library answers the parser has read.
#![no_main]

use std::sync::OnceLock;

use clearway_fuzz::tls::Contexts;
use clearway_tls::AwsLc;
use clearway_tls::engine::{Engine, Given, Session, Step};
use clearway_tls::hello::{Hello, HelloReader};
use clearway_tls::level::Version;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    static KNOWN: OnceLock<(Contexts, Hello)> = OnceLock::new();
    let (contexts, any) = KNOWN.get_or_init(|| {
        let contexts = Contexts::new(Version::Tls13);
        let hello = contexts.hello();
        (contexts, hello)
    });
    let parsed = HelloReader::default().read(input);
    let hello = match &parsed {
        Ok(Some(hello)) => hello,
        _ => any,
    };
    let mut session = AwsLc::accept(&contexts.server, hello, Given::default()).expect("it is accepted");
    let mut output = Vec::new();
    let step = session.step(&mut &input[..], &mut output);
    let is_answered = match step {
        Step::Need => !output.is_empty(),
        Step::Failed(_) | Step::Closed => false,
        Step::Done => panic!("no client is done with its first words"),
    };
    match parsed {
        Ok(Some(_)) => {}
        Ok(None) => assert!(!is_answered, "the library has answered what is not whole"),
        Err(error) => assert!(!is_answered, "the library has answered in spite of {error}"),
    }
});
