//! nginx's options: what they print, where, and with which exit code.
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use clearway_testkit::Binary;
use clearway_testkit::recorded::compare;
use clearway_testkit::server::is_root;

use crate::broken::{CheckOutcome, Directory};

const PLAIN: &str =
    "pid nginx.pid; error_log logs/error.log; events { }\nhttp { %%TEMP%% access_log off; }\n";

/// The whole life of one program: a directory of its own, this configuration, these options.
fn run(binary: &Binary, config: &str, options: &[&str]) -> CheckOutcome {
    let dir = Directory::new();
    dir.write("nginx.conf", &dir.filled(config, binary));
    dir.run(binary, options)
}

/// # Panics
/// If the two differ.
#[track_caller]
fn same(config: &str, options: &[&str]) {
    compare(&format!("{}\n{config}", options.join(" ")), |binary| run(binary, config, options).to_string());
}

#[test]
fn a_test_that_succeeds() {
    for options in [&["-t"][..], &["-tq"], &["-q", "-t"], &["-t", "-s", "stop"], &["-T", "-q"], &["-Ttq"]] {
        let quiet_about_dump = options.iter().any(|option| option.contains('T'));
        // What is dumped has the directories that only nginx is told.
        let config = if quiet_about_dump { "pid x; events { }" } else { PLAIN };
        same(config, options);
    }
}

#[test]
fn a_test_that_fails() {
    for options in [&["-t"][..], &["-tq"], &["-T"], &["-t", "-s", "reload"], &["-s", "stop"]] {
        same("nonsense;\nevents { }\n", options);
        same("pid x;\n", options);
    }
}

#[test]
fn a_dump_has_each_file_once() {
    compare("three files and a dump", |binary| {
        let dir = Directory::new();
        dir.write("nginx.conf", "pid x;\ninclude events.conf; include *.part; include a.part;\n");
        dir.write("events.conf", "events { }");
        dir.write("b.part", "# b\n\n");
        dir.write("a.part", "# a");
        dir.run(binary, &["-T"]).to_string()
    });
}

#[test]
fn a_test_leaves_what_nginx_leaves() {
    let config = "pid new.pid; error_log logs/new.log; events { } http { %%TEMP%% access_log logs/a.log; \
                  server { listen unix:%%PREFIX%%/socket; } }";
    compare(config, |binary| {
        let dir = Directory::new();
        dir.write("nginx.conf", &dir.filled(config, binary));
        let outcome = dir.run(binary, &["-t"]);
        let has = |name: &str| std::fs::read(dir.path().join(name)).map(|text| text.len()).ok();
        format!("{outcome}{:?}", ["new.pid", "logs/new.log", "logs/a.log", "socket"].map(has))
    });
}

/// What it says, where, and which files are there afterwards.
#[test]
fn a_start_that_fails() {
    let away = "access_log off; server { listen 192.0.2.1:18881; }";
    for (logs, http) in [
        ("pid nginx.pid; error_log logs/new.log;", "nonsense;"),
        ("pid nginx.pid; error_log logs/new.log;", "access_log logs/a.log; server { listen x y; }"),
        ("pid nginx.pid; error_log none/new.log;", "access_log off;"),
        ("pid nginx.pid; error_log none/new.log;", "access_log none/a.log;"),
        ("pid none/nginx.pid; error_log logs/new.log;", "access_log off;"),
        ("pid nginx.pid; error_log logs/new.log;", away),
        ("pid nginx.pid; error_log stderr;", away),
        ("pid nginx.pid; error_log stderr alert;", away),
        ("pid nginx.pid; error_log stderr; error_log logs/new.log info;", away),
    ] {
        let config = format!("daemon off; {logs} events {{ }} http {{ %%TEMP%% {http} }}");
        compare(&config, |binary| {
            let dir = Directory::new();
            dir.write("nginx.conf", &dir.filled(&config, binary));
            let outcome = dir.run(binary, &[]);
            format!("{outcome}{:?} {:?}", dir.names(), dir.names_in("logs"))
        });
    }
}

/// Names of files stand in messages as they are.
#[test]
fn a_directory_whose_name_is_no_text() {
    let name = OsStr::from_bytes(b"p\xff\xc3\xa9\xe9");
    for config in [
        "nonsense;",
        "include none;",
        "pid none/x; events { }",
        "pid x; error_log none/x; events { }",
        "pid x; events { } http { %%TEMP%% access_log none/a; }",
        "pid x; events { } http { %%TEMP%% access_log off; client_body_temp_path x/y; }",
        "pid x; events { } http { %%TEMP%% access_log off; server { listen unix:%%PREFIX%%/none/s; } }",
        "pid x; events { } http { %%TEMP%% access_log off; }",
    ] {
        compare(config, |binary| {
            let dir = Directory::new();
            let prefix = dir.path().join(name);
            std::fs::create_dir_all(prefix.join("logs")).expect("there is room");
            std::fs::write(prefix.join("n.conf"), dir.filled(config, binary)).expect("there is room");
            let mut command = Command::new(&binary.path);
            command.args(["-t", "-c", "n.conf", "-e", "e.log", "-p"]).arg(&prefix);
            let output = command.output().expect("it can be run");
            let text = output.stderr.escape_ascii().to_string();
            let text = text.replace(&*dir.path().to_string_lossy(), "PREFIX");
            format!("{:?} {text}", output.status.code())
        });
    }
}

/// nginx says it once for each location; here are configurations with one.
#[test]
fn caches_without_a_key_are_warned_of() {
    for family in ["fastcgi", "scgi", "uwsgi"] {
        for key in ["", "_cache_key $uri;"] {
            let key = if key.is_empty() { String::new() } else { format!("{family}{key}") };
            same(
                &format!(
                    "daemon off; pid nginx.pid; events {{ }} http {{ %%TEMP%% access_log off;\n\
                     {family}_cache_path %%PREFIX%%/c keys_zone=one:1m; {key}\n\
                     server {{ listen unix:%%PREFIX%%/s; location / {{ {family}_cache one; }} }}\n}}\n"
                ),
                &["-t"],
            );
        }
    }
}

#[test]
fn the_early_log() {
    same("nonsense;", &["-t", "-e", "/nonexistent/early.log"]);
    same("nonsense;", &["-t", "-e", "stderr"]);
    same("pid x; events { debug_points; }", &["-tq", "-e", "other.log"]);
}

#[test]
#[cfg_attr(not_root, ignore = "needs the rights of root")]
fn the_early_log_with_users() {
    same("user root; user root;", &["-t", "-e", "stderr"]);
}

#[test]
fn global_directives() {
    for params in [
        "worker_processes 2;",
        "worker_processes 2",
        "nonsense;",
        "pid other.pid;",
        "events { }",
        "user root",
        "\"worker_processes 2;",
        "worker_processes x;",
        "}",
        "",
    ] {
        same(PLAIN, &["-t", "-g", params]);
    }
    same(PLAIN, &["-tgworker_priority 1;", "-g", "worker_priority 2;"]);
}

#[test]
fn options_that_are_none() {
    for options in [
        &["x"][..],
        &["-x"],
        &["-tx"],
        &["--version"],
        &["-t", "stop"],
        &["-c"],
        &["-tc"],
        &["-p"],
        &["-e"],
        &["-g"],
        &["-s"],
        &["-s", "restart"],
        &["-srestart"],
        &["-Vs"],
    ] {
        same(PLAIN, options);
    }
}

#[test]
fn a_configuration_that_is_not_there() {
    same(PLAIN, &["-t", "-c", "other.conf"]);
    same(PLAIN, &["-c", "logs"]);
    same(PLAIN, &["-s", "quit", "-c", "other.conf"]);
}

#[test]
fn signals_to_nobody() {
    same(PLAIN, &["-s", "stop"]);
    for content in ["", "\n", "x\n", "12x\n", "-1\n", "99999999\n", "123456789012345678901234567890\n"] {
        compare(&format!("-s quit to {content:?}\n{PLAIN}"), |binary| {
            let dir = Directory::new();
            dir.write("nginx.conf", &dir.filled(PLAIN, binary));
            dir.write("nginx.pid", content);
            dir.run(binary, &["-s", "quit"]).to_string()
        });
    }
}

#[test]
fn signals_that_arrive() {
    for order in ["stop", "quit", "reopen", "reload"] {
        compare(&format!("-s {order} to somebody\n{PLAIN}"), |binary| {
            let dir = Directory::new();
            dir.write("nginx.conf", &dir.filled(PLAIN, binary));
            // A shell has what it runs in the background ignore SIGQUIT, nohup SIGHUP, and so would this.
            let sleep = ["--default-signal=QUIT,HUP,USR1,TERM", "sleep", "60"];
            let mut target = Command::new("env").args(sleep).spawn().expect("there is an env(1)");
            dir.write("nginx.pid", &format!("{}\r\n\n", target.id()));
            let outcome = dir.run(binary, &["-s", order]);
            if outcome.code != Some(0) {
                target.kill().expect("it is ours");
            }
            let end = target.wait().expect("it is ours");
            format!("{outcome}ended by signal {:?}", end.signal())
        });
    }
}

#[test]
fn without_the_rights_of_root() {
    compare("as another user", |binary| {
        let dir = Directory::new();
        dir.give_to_everybody();
        dir.write("nginx.conf", "pid nginx.pid; user root; events { }");
        let binary = dir.copy_of(binary);
        let mut command = if is_root() { Command::new("setpriv") } else { Command::new("env") };
        if is_root() {
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        }
        command.arg(&binary.path);
        dir.run_command(command, &["-t", "-e", "/var/log/early.log"]).to_string()
    });
}

/// The lines that tools read.
#[test]
#[cfg_attr(nginx_under_test, ignore = "nginx has its own name")]
fn versions() {
    let said = |options: &[&str]| run(&Binary::under_test(), PLAIN, options);
    let [own, nginx] = ["clearway version: clearway/", "nginx version: nginx/1.31."];
    let version = said(&["-v"]);
    assert_eq!((version.code, version.stdout.as_str()), (Some(0), ""));
    let lines: Vec<&str> = version.stderr.lines().collect();
    assert!(lines.len() == 2 && lines[0].starts_with(own) && lines[1].starts_with(nginx), "{lines:?}");
    let long = said(&["-V"]);
    assert!(long.stderr.starts_with(&version.stderr), "{}", long.stderr);
    let arguments = "\nconfigure arguments: --prefix=/usr/share/nginx --conf-path=/etc/nginx/nginx.conf ";
    assert!(long.stderr.contains(arguments), "{}", long.stderr);
    assert!(long.stderr.contains(" --with-threads"), "{}", long.stderr);
    assert!(!long.stderr.contains("--with-debug"), "{}", long.stderr);
    // A test may follow, and nothing else.
    assert!(said(&["-vt"]).stderr.ends_with("test is successful\n"));
    assert_eq!(said(&["-v", "-s", "stop"]), version);
}

/// The options of nginx's help, as nginx describes them.
#[test]
fn help_has_the_options_of_nginx() {
    let lines = |binary: &Binary, option: &str| {
        let help = run(binary, PLAIN, &[option]);
        assert_eq!((help.code, help.stdout.as_str()), (Some(0), ""));
        let options = help.stderr.lines().filter(|line| line.starts_with("  -")).map(str::to_owned);
        // Each build has its own.
        let options: Vec<String> =
            options.map(|line| line.split("(default").next().unwrap_or_default().to_owned()).collect();
        assert!(options.len() > 10, "{options:?}");
        options.join("\n")
    };
    compare("-h", |binary| lines(binary, "-h"));
    compare("-?", |binary| lines(binary, "-?"));
}
