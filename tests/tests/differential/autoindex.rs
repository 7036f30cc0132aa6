//! `autoindex` and `random_index`: the list of a directory in its four forms, and what is refused. Only of
//! files, as those have the same time for both servers.

use clearway_testkit::Case;

const SITE: &str = "
    types { text/html html; text/plain txt; }
    server { listen %%PORT%%; server_name site.test; root %%PREFIX%%/site; autoindex on;
        location /rounded/ { alias %%PREFIX%%/site/files/; autoindex_exact_size off; }
        location /local/ { alias %%PREFIX%%/site/files/; autoindex_localtime on; }
        location /json/ { alias %%PREFIX%%/site/files/; autoindex_format json; }
        location /call/ { alias %%PREFIX%%/site/files/; autoindex_format jsonp; }
        location /xml/ { alias %%PREFIX%%/site/files/; autoindex_format xml; }
        location /utf8/ { alias %%PREFIX%%/site/files/; charset utf-8; }
        location /many/ { alias %%PREFIX%%/site/many/; autoindex_format json; }
        location /noslash/ { alias %%PREFIX%%/site/files; }
        location /off/ { alias %%PREFIX%%/site/files/; autoindex off; }
        location /random/ { alias %%PREFIX%%/site/one/; random_index on; }
        location /norandom/ { alias %%PREFIX%%/site/files/none/; random_index on; }
    }
";

fn site() -> Case {
    let names = [
        "plain.txt".to_owned(),
        "UPPER".to_owned(),
        ".hidden".to_owned(),
        "<\"&'>".to_owned(),
        "a b?c#d%e;f".to_owned(),
        "back\\slash".to_owned(),
        "line\nbreak\ttab\u{1}".to_owned(),
        "n".repeat(50),
        "m".repeat(51),
        "ü".repeat(50),
        "ö".repeat(51),
        "日本語".repeat(20),
    ];
    let case =
        names.iter().fold(Case::http(SITE), |case, name| case.file(&format!("site/files/{name}"), "text"));
    let case = [0, 9999, 10_000, 10_752, 1_500_000]
        .iter()
        .fold(case, |case, size| case.file(&format!("site/files/size{size}"), "s".repeat(*size)));
    (0..300)
        .fold(case, |case, number| case.file(&format!("site/many/{number}"), ""))
        .file("site/one/single.txt", "the only one\n")
        .file("site/one/.other.txt", "hidden\n")
        .file("site/indexed/index.html", "an index\n")
}

#[test]
fn lists() {
    let targets = [
        "/files/",
        "/files/?x",
        "/rounded/",
        "/local/",
        "/json/",
        "/call/",
        "/call/?callback=a.b_9",
        "/call/?x=1&CALLBACK=f",
        "/call/?callback=",
        "/call/?callback=a-b",
        "/xml/",
        "/utf8/",
        "/many/",
        "/indexed/",
        "/files",
        "/off/",
        "/none/",
        "/files/plain.txt/",
        "/noslash/",
        "/random/",
        "/norandom/",
    ];
    targets.iter().fold(site(), |case, target| case.get_host(target, "site.test")).with_access_log().run();
}

#[test]
fn methods() {
    let ask = |case: Case, method: &&str| {
        case.ask(format!("{method} /files/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: 3\r\n\r\nabc"))
    };
    let case = ["HEAD", "POST", "PUT", "OPTIONS"].iter().fold(site(), ask);
    case.ask("GET /many/ HTTP/1.0\r\nHost: site.test\r\n\r\n")
        .ask("HEAD /none/ HTTP/1.1\r\nHost: site.test\r\n\r\n")
        .run();
}
