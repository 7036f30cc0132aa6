//! What rewriting writes into the error log, and its limits.

use clearway_modules::variables::map::MAP;

use crate::support::Site;

#[test]
fn rewrites_are_told_at_level_notice() {
    let site = Site::start(
        "server { listen PORT; rewrite_log on;
             location /a { rewrite ^/a/(.*)$ /b/$1?x=$1; rewrite nothing /c; return 200; }
             location /r { rewrite ^ http://example.test/? redirect; }
             location /i { if ($arg_x ~ ^y) { return 200; } return 404; }
             location /quiet { rewrite_log off; rewrite ^ /silence; return 200; } }",
    );
    site.get("/a/1?q");
    site.expect_logged("[notice] \"^/a/(.*)$\" matches \"/a/1\"");
    site.expect_logged("[notice] rewritten data: \"/b/1\", args: \"x=1&q\"");
    site.expect_logged("[notice] \"nothing\" does not match \"/b/1\"");
    site.get("/r");
    site.expect_logged("[notice] rewritten redirect: \"http://example.test/\"");
    site.get("/i?x=yes");
    site.expect_logged("[notice] \"^y\" matches \"yes\"");
    site.get("/quiet");
    assert!(!site.has_logged("silence"));
}

#[test]
fn cycles_and_what_is_missing_are_told() {
    let site = Site::start_with(
        "map $b $a { default $b; } map $a $b { default $a; }
         server { listen PORT;
             location /loop { rewrite ^(.*)$ $1x; }
             location /empty { rewrite ^ $arg_none; }
             location /alias { alias ROOT/; rewrite ^ /alias/y break; }
             location /unset { set $given x; return 200 \"[$early]$given\"; }
             location /unwarned { uninitialized_variable_warn off; return 200 \"[$early]\"; }
             location /late { set $early 1; return 200 $early; }
             location /cycle { return 200 \"[$a]\"; } }",
        &[&MAP],
    );
    let answer = |target: &str| {
        let response = site.get(target);
        let status = response.split(' ').nth(1).unwrap_or_default().to_owned();
        (status, response.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    };
    assert_eq!(answer("/loop").0, "500");
    site.expect_logged("[error] rewrite or internal redirection cycle while processing \"/loopxxxxxxxxxxx\"");
    assert_eq!(answer("/empty").0, "500");
    site.expect_logged("[error] the rewritten URI has a zero length");
    assert_eq!(answer("/alias").0, "500");
    site.expect_logged("[alert] \"alias\" cannot be used in location \"/alias\" where URI was rewritten");
    assert_eq!(answer("/unwarned"), ("200".to_owned(), "[]".to_owned()));
    assert!(!site.has_logged("uninitialized"));
    assert_eq!(answer("/unset"), ("200".to_owned(), "[]x".to_owned()));
    site.expect_logged("[warn] using uninitialized \"early\" variable");
    assert_eq!(answer("/cycle"), ("200".to_owned(), "[]".to_owned()));
    site.expect_logged("[error] cycle while evaluating variable \"a\"");
}

#[test]
fn matches_are_given_up_at_the_configured_limit() {
    let site = Site::start(
        "server { listen PORT; location ~ ^/slow/(?:a|a)*b$ { return 200; } location /fine { return 200; } }
         pcre_match_limit 1000;",
    );
    let target = format!("/slow/{}cb", "a".repeat(40));
    assert!(site.get(&target).starts_with("HTTP/1.1 500 "));
    site.expect_logged("[alert] pcre2_match() failed: -47 on \"/slow/aaaa");
    assert!(site.get("/fine").starts_with("HTTP/1.1 200 "));
}
