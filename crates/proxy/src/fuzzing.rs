//! Invariants for any input of a client of the API: for the fuzz target `api_json`.

use crate::api::json::{Json, put, put_text, read_object};
use crate::api::said::Said;
use crate::upstreams::line::Ranks;
use crate::upstreams::roster::line_of;

/// The body of a request that adds or changes a server.
///
/// # Panics
/// If what was read is not read again where it is written, or if the line that a server becomes in a `state`
/// file is more than one, or says a word more.
pub fn check_api_body(body: &[u8]) {
    if let Ok(members) = read_object(body) {
        let mut written = Vec::new();
        for (name, value) in &members {
            written.push(if written.is_empty() { b'{' } else { b',' });
            put_text(&mut written, name);
            match value {
                Json::Text(text) => {
                    written.push(b':');
                    put_text(&mut written, text);
                }
                Json::Number(number) => put(&mut written, format_args!(":{number}")),
                Json::Flag(flag) => put(&mut written, format_args!(":{flag}")),
            }
        }
        written.extend_from_slice(if written.is_empty() { b"{}" } else { b"}" });
        assert_eq!(read_object(&written), Ok(members));
    }
    let Ok(said) = Said::read(body) else { return };
    let _ = said.check_change(Ranks::Refused);
    if let Ok(server) = said.added(Ranks::Allowed) {
        let line = line_of(&server);
        assert!(line.starts_with("server ") && line.ends_with(';'), "{line}");
        let inner = &line[..line.len() - 1];
        assert!(!inner.contains([';', '\n', '{', '}', '"', '\'', '\\', '#', '$']), "{line}");
    }
}
