//! The configurations that come with nginx: that of nginx.org, and Debian's with all that is put beside
//! it, as it is installed here but for paths and the port. They load, and serve as nginx does. Debian's is
//! not in this tree: those tests are run where it is installed, with the nginx that is installed beside it.
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::fs;
use std::path::Path;

use clearway_testkit::{Binary, Case, Setup};

const PAGE: &str = "<!DOCTYPE html><title>Welcome!</title>\n";

/// As nginx.org ships it, less its comments.
const NGINX_ORG: &str = "
    worker_processes  1;
    events { worker_connections  1024; }
    http {
        include       mime.types;
        default_type  application/octet-stream;
        sendfile        on;
        keepalive_timeout  65;
        server {
            listen       %%PORT%%;
            server_name  localhost;
            location / {
                root   html;
                index  index.html index.htm;
            }
            error_page   500 502 503 504  /50x.html;
            location = /50x.html {
                root   html;
            }
        }
    }";

/// Some of its types.
const TYPES: &str = "types {
    text/html                                        html htm shtml;
    text/css                                         css;
    text/plain                                       txt;
    image/svg+xml                                    svg svgz;
    image/png                                        png;
    application/javascript                           js;
    application/json                                 json;
}
";

/// What a test runs in the foreground needs beside the file; `%%TEMP%%` stands in `http`.
fn in_foreground(config: &str) -> String {
    let config = config.replacen("http {", "http {\n%%TEMP%%\n", 1);
    format!("daemon off; master_process off; pid nginx.pid; error_log logs/error.log;\n{config}")
}

fn ask_for_files(case: Case) -> Case {
    case.get("/")
        .get("/index.html")
        .get("/logo.svg")
        .get("/unknown.extension")
        .get("/none")
        .get("/50x.html")
        .get("/directory")
        .ask("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .ask("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        .ask("GET / HTTP/1.1\r\nHost: other\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")
}

#[test]
fn that_of_nginx_org() {
    let case = Case::whole(&in_foreground(NGINX_ORG))
        .file("mime.types", TYPES)
        .file("html/index.html", PAGE)
        .file("html/50x.html", "sorry\n")
        .file("html/logo.svg", "<svg/>")
        .file("html/unknown.extension", "?")
        .file("html/directory/index.html", "in it\n");
    ask_for_files(case).run();
}

/// Debian's, with its directory in place of `/etc/nginx`.
fn of_debian() -> (String, Vec<(String, String)>) {
    let read = |path: &str| {
        let path = Path::new("/etc/nginx").join(path);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let text = read("nginx.conf");
    let mut config = String::new();
    for line in text.lines() {
        // The test sets its user and its logs; `pid` and `error_log` may stand once.
        let is_ours = ["user ", "pid ", "error_log "].iter().any(|word| line.starts_with(word));
        // What other packages put there belongs to them.
        if !is_ours && !line.contains("modules-enabled") {
            config.push_str(&at_prefix(line));
            config.push('\n');
        }
    }
    let mut files = Vec::new();
    for path in ["mime.types", "fastcgi.conf", "proxy_params", "sites-enabled/default"] {
        files.push((path.to_owned(), at_prefix(&read(path))));
    }
    (config, files)
}

fn at_prefix(text: &str) -> String {
    text.replace("/etc/nginx/", "%%PREFIX%%/")
        .replace("/var/log/nginx/", "%%PREFIX%%/logs/")
        .replace("/var/www/html", "%%PREFIX%%/html")
        .replace("listen 80 ", "listen %%PORT%% ")
        .replace("listen [::]:80 ", "listen [::]:%%PORT%% ")
}

#[test]
#[ignore = "needs Debian's nginx"]
fn that_of_debian() {
    let (config, files) = of_debian();
    // Ports are given to what stands in the configuration itself.
    let whole = format!("{}\n# %%PORT%%\n", in_foreground(&config));
    let mut case = Case::whole(&whole);
    for (path, content) in files {
        case = case.file(&path, content);
    }
    let case = case
        .file("html/index.nginx-debian.html", PAGE)
        .file("html/index.html", PAGE.repeat(100))
        .file("html/logo.svg", "<svg/>")
        .file("html/unknown.extension", "?")
        .file("html/directory/index.htm", "in it\n");
    ask_for_files(case).run_live();
}

#[test]
#[ignore = "needs Debian's nginx"]
fn debians_passes_its_test() {
    let (config, files) = of_debian();
    let whole = format!("{}\n# %%PORT%%\n", in_foreground(&config));
    let mut setup = Setup::new(Binary::under_test(), &whole);
    for (path, content) in files {
        setup = setup.file(&path, content);
    }
    let server = setup.start();
    let output = server.run(&["-t"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("test is successful"), "{said}");
    assert!(!said.contains("[emerg]") && !said.contains("[warn]"), "{said}");
}
