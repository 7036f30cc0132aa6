//! `dav_methods` end to end: what becomes of files, with which status.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, UNIX_EPOCH};

use clearway_modules::content::dav::DAV;

use crate::support::Site;

const SITE: &str = "
    client_body_temp_path ROOT/temp;
    server {
        listen 127.0.0.1:PORT;
        root ROOT/site;
        dav_methods PUT DELETE MKCOL COPY MOVE;
        location /full/ { alias ROOT/site/; create_full_put_path on; dav_access group:rw all:r; }
        location /deep/ { alias ROOT/site/; min_delete_depth 3; }
        location /off/ { dav_methods off; }
    }
";

fn site() -> Site {
    let site = Site::start_with(SITE, &[&DAV]);
    fs::create_dir(site.root.join("temp")).unwrap();
    site.file("site/f", b"content").file("site/d/a", b"in d").file("site/d/sub/b", b"deeper");
    site
}

/// The answer to a request; what follows the first line of `request` are its header lines.
fn ask(site: &Site, request: &str, body: Option<&[u8]>) -> String {
    let (line, headers) = request.split_once('\n').unwrap_or((request, ""));
    let mut text = format!("{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    headers.lines().for_each(|header| text.push_str(&format!("{header}\r\n")));
    if let Some(body) = body {
        text.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    let mut client = site.connect();
    client.send(&format!("{text}\r\n{}", String::from_utf8_lossy(body.unwrap_or_default())));
    String::from_utf8_lossy(&client.read_to_end()).into_owned()
}

fn status(site: &Site, request: &str) -> String {
    ask(site, request, None).split(' ').nth(1).unwrap_or_default().to_owned()
}

fn read(site: &Site, path: &str) -> Option<Vec<u8>> {
    fs::read(site.root.join("site").join(path)).ok()
}

#[test]
fn files_are_put() {
    let site = site();
    let answer = ask(&site, "PUT /new", Some(b"hello"));
    assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
    assert!(answer.contains("Content-Length: 0\r\n"), "{answer}");
    assert!(answer.contains(&format!("Location: http://localhost:{}/new\r\n", site.port)), "{answer}");
    assert_eq!(read(&site, "new").unwrap(), b"hello");
    let large = vec![b'l'; 300_000];
    assert!(ask(&site, "PUT /new", Some(&large)).starts_with("HTTP/1.1 204 No Content\r\n"));
    assert!(read(&site, "new").unwrap() == large);
    assert!(ask(&site, "PUT /new", Some(b"")).starts_with("HTTP/1.1 204 "));
    assert_eq!(read(&site, "new").unwrap(), b"");
    let dated = "PUT /full/x/y/dated\nDate: Sun, 06 Nov 1994 08:49:37 GMT";
    assert!(ask(&site, dated, Some(b"d")).starts_with("HTTP/1.1 201 "));
    let metadata = fs::metadata(site.root.join("site/x/y/dated")).unwrap();
    assert_eq!(metadata.modified().unwrap(), UNIX_EPOCH + Duration::from_secs(784_111_777));
    assert_eq!(metadata.permissions().mode() & 0o777, 0o664);
    assert_eq!(fs::read_dir(site.root.join("temp")).unwrap().count(), 0, "all were moved away");
}

#[test]
fn what_cannot_be_put() {
    let site = site();
    for (request, body, expected, line) in [
        ("PUT /d", Some(&b"x"[..]), "409", "\" could not be created (21: Is a directory), client: "),
        ("PUT /d/", Some(b"x"), "409", "[error] cannot PUT to a collection, client: "),
        ("PUT /f\nContent-Range: bytes 0-1/2", Some(b"x"), "501", "[error] PUT with range is unsupported,"),
        ("PUT /f", None, "500", "[error] PUT request body must be in a file, client: "),
        ("PUT /none/x", Some(b"x"), "500", "/none/x\" failed (2: No such file or directory), client: "),
        ("PUT /f/x", Some(b"x"), "500", "/f/x\" failed (20: Not a directory), client: "),
        ("PUT /off/x", Some(b"x"), "405", ""),
        ("MKCOL /new/", Some(b"x"), "415", "[error] MKCOL with body is unsupported, client: "),
    ] {
        let answer = ask(&site, request, body);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{request}: {answer}");
        site.expect_logged(line);
    }
    assert_eq!(read(&site, "f").unwrap(), b"content");
    let temp = || fs::read_dir(site.root.join("temp")).unwrap().count();
    assert!(clearway_testkit::wait_until(clearway_testkit::client::PATIENCE, || temp() == 0));
}

#[test]
fn things_are_made_copied_moved_and_removed() {
    let site = site();
    for (request, expected) in [
        ("MKCOL /new/", "201"),
        ("MKCOL /new/", "405"),
        ("MKCOL /new", "409"),
        ("COPY /f\nDestination: /new/f", "204"),
        ("COPY /f\nDestination: http://localhost/new/g?x", "204"),
        ("COPY /f\nDestination: /new/g\nOverwrite: F", "412"),
        ("COPY /f\nDestination: http://other/x", "400"),
        ("COPY /f\nDestination: /../x", "400"),
        ("COPY /d/\nDestination: /d/sub/", "403"),
        ("COPY /d/\nDestination: /copied/", "201"),
        ("MOVE /f\nDestination: /far/away/f", "204"),
        ("MOVE /d/\nDestination: /new/", "201"),
        ("DELETE /copied", "409"),
        ("DELETE /copied/\nDepth: 0", "400"),
        ("DELETE /deep/copied/", "409"),
        ("DELETE /none", "404"),
        ("DELETE /copied/a", "204"),
    ] {
        assert_eq!(status(&site, request), expected, "{request}");
    }
    assert_eq!(read(&site, "far/away/f").unwrap(), b"content");
    assert_eq!(read(&site, "new/sub/b").unwrap(), b"deeper");
    assert_eq!(read(&site, "new/g"), None, "it was replaced with all that was in it");
    assert_eq!(read(&site, "copied/sub/b").unwrap(), b"deeper");
    assert_eq!((read(&site, "f"), read(&site, "d/a"), read(&site, "copied/a")), (None, None, None));
}

#[test]
fn a_tree_is_removed_with_its_links_and_not_through_them() {
    let site = site();
    site.file("site/tree/a/b/c/file", b"").file("elsewhere/precious", b"kept");
    symlink(site.root.join("elsewhere"), site.root.join("site/tree/a/link")).unwrap();
    symlink("nowhere", site.root.join("site/tree/broken")).unwrap();
    assert_eq!(status(&site, "DELETE /tree/"), "204");
    assert!(!site.root.join("site/tree").exists());
    assert_eq!(fs::read(site.root.join("elsewhere/precious")).unwrap(), b"kept");
}
