//! The table of edge cases against this crate, and, where an nginx is at hand, the table against nginx:
//! `NGINX_BIN=/path/to/nginx cargo test -p clearway-h1 --test edge_cases -- --ignored`
//! (1.31 or later: earlier ones take bare LF in chunks and have no limit on the number of headers).

#[expect(dead_code, reason = "each test uses a part")]
#[path = "../connection/mod.rs"]
mod connection;
mod oracle;
mod server;
mod table;

/// The answers as the table spells them.
fn spell(answers: &[server::Answer]) -> String {
    answers.iter().map(|answer| answer.spelled.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_case_is_answered_as_the_table_says() {
    let mut wrong = Vec::new();
    for case in table::cases() {
        for step in [case.input.len(), 1, 3, 1000] {
            let got = spell(&server::answer(&case.input, step.max(1)));
            if got != case.answers {
                wrong.push(format!("{} by {step}: {got:?}, expected {:?}", case.name, case.answers));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs an nginx"]
fn nginx_answers_alike() {
    let nginx = oracle::Nginx::start();
    let mut wrong = Vec::new();
    for case in table::cases() {
        let ours = server::answer(&case.input, case.input.len().max(1));
        let theirs = nginx.answer(&case.input, ours.len());
        if ours != theirs {
            wrong.push(format!("{}:\n  ours   {ours:?}\n  theirs {theirs:?}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
