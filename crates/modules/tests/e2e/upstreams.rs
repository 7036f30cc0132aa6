//! Directives about upstream servers, of which there are none: what is wrong with them is said.

use std::sync::Arc;

use clearway_log::{Disk, Writer};
use clearway_proxy::upstreams::resolver::RESOLVER;

use crate::support::{Lines, load};

/// The texts are those of nginx 1.31.5 for the same configurations.
#[test]
fn early_hints_are_checked_as_by_nginx() {
    for (http, text) in [
        ("early_hints;", "invalid number of arguments in \"early_hints\" directive"),
        ("early_hints $nothing;", "unknown \"nothing\" variable"),
        ("early_hints \"$\";", "invalid variable name"),
        ("early_hints \"${uri\";", "the closing bracket in \"uri\" variable is missing"),
        ("early_hints $http_x 1; server { early_hints 0; location / { early_hints $uri; } }", "none"),
        ("early_hints $http_x; early_hints $uri;", "none"),
    ] {
        let (writer, lines) = (Arc::new(Writer::new(Box::new(Disk))), Arc::new(Lines::default()));
        let said = match load(http, &std::env::temp_dir(), &writer, &lines, &[&RESOLVER]) {
            Ok(_) => String::from("none"),
            Err(error) => String::from_utf8_lossy(error.message()).into_owned(),
        };
        assert_eq!(said, text, "{http}");
    }
}
