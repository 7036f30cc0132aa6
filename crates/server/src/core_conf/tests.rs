//! The directives outside `http`: their values, and the messages about wrong ones.

use clearway_conf::{Loader, Memory, Table};

use clearway_base::log::Level;

use super::*;

const WORKER: Reader = Reader::Worker(Duty::Group(0));

fn read_as(text: &str, reader: Reader) -> (Result<CoreConf, String>, Vec<String>) {
    let path = Path::new("/p/nginx.conf");
    let source = Memory::new().with(path, text);
    let tree = Loader::new(&source, path).file(path);
    let mut core = CoreConf::new(Path::new("/p/"), reader);
    let mut warnings = Vec::new();
    let result = Table::new(TABLES)
        .run(&tree, MAIN, &mut core, &mut warnings)
        .and_then(|()| core.finish(&mut warnings))
        .map_err(|error| error.to_string());
    (result.map(|()| core), warnings.iter().map(ToString::to_string).collect())
}

fn read(text: &str) -> CoreConf {
    read_as(&format!("{text} events {{ }}"), WORKER).0.expect(text)
}

fn refused(text: &str) -> String {
    let error = read_as(&format!("{text} events {{ }}"), WORKER).0.expect_err(text);
    error.strip_suffix(" in /p/nginx.conf:1").map(str::to_owned).unwrap_or(error)
}

fn warnings(text: &str) -> Vec<String> {
    read_as(&format!("{text} events {{ }}"), WORKER).1
}

#[test]
fn defaults_are_those_of_nginx() {
    let core = read("");
    assert_eq!((core.loops(), core.worker_connections(), core.priority()), (1, 512, 0));
    assert!(core.daemon() && core.master_process() && !core.multi_accept());
    assert_eq!(core.pid_file(), Path::new("/run/nginx.pid"));
    assert_eq!(core.environment(), [("TZ".into(), EnvValue::Inherited)]);
    assert_eq!((core.rlimit_nofile(), core.rlimit_core(), core.shutdown_timeout()), (None, None, None));
    assert_eq!((core.cpu_affinity(0), core.working_directory()), (None, None));
    assert!(core.thread_pools().is_empty());
}

#[test]
fn environment_keeps_the_time_zone_and_the_order() {
    let core = read("env A; env B=1=2; env C=;");
    let given = |value: &str| EnvValue::Given(value.into());
    let wanted: Vec<(OsString, EnvValue)> = vec![
        ("A".into(), EnvValue::Inherited),
        ("B".into(), given("1=2")),
        ("C".into(), given("")),
        ("TZ".into(), EnvValue::Inherited),
    ];
    assert_eq!(core.environment(), wanted);
    assert_eq!(read("env TZ=UTC;").environment(), [("TZ".into(), given("UTC"))]);
    assert_eq!(read("env TZ;").environment(), [("TZ".into(), EnvValue::Inherited)]);
}

#[test]
fn processors_of_loops() {
    let core = read("worker_processes 3; worker_cpu_affinity 0001 '11 00';");
    let of = |core: &CoreConf| (0..4).map(|index| core.cpu_affinity(index)).collect::<Vec<_>>();
    assert_eq!(of(&core), [Some(vec![0]), Some(vec![2, 3]), Some(vec![2, 3]), Some(vec![2, 3])]);
    let core = read("worker_cpu_affinity auto 101;");
    assert_eq!(of(&core), [Some(vec![0]), Some(vec![2]), Some(vec![0]), Some(vec![2])]);
    assert_eq!(of(&read("worker_cpu_affinity auto 000;")), [None, None, None, None]);
    assert_eq!(read("worker_cpu_affinity auto;").cpu_affinity(0), Some(vec![0]));
    assert_eq!(refused("worker_cpu_affinity 012;"), "invalid character \"2\" in \"worker_cpu_affinity\"");
    let many = "1".repeat(1025);
    let message = "\"worker_cpu_affinity\" supports up to 1024 CPUs only";
    assert_eq!(refused(&format!("worker_cpu_affinity {many};")), message);
    let message = "invalid number of arguments in \"worker_cpu_affinity\" directive";
    assert_eq!(refused("worker_cpu_affinity auto 1 1;"), message);
    let odd = "the number of \"worker_processes\" is not equal to the number of \"worker_cpu_affinity\" \
               masks, using last mask for remaining worker processes";
    assert_eq!(warnings("worker_processes 3; worker_cpu_affinity 1 10;"), [odd]);
    assert_eq!(warnings("worker_cpu_affinity 1 10;"), [odd]);
    assert_eq!(warnings("worker_processes 3; worker_cpu_affinity 1;"), [""; 0]);
    assert_eq!(warnings("worker_processes 2; worker_cpu_affinity 1 10;"), [""; 0]);
}

#[test]
fn thread_pools() {
    let core = read("thread_pool a threads=2 max_queue=3; thread_pool default odd threads=1;");
    let pool =
        |name: &'static str, threads, max_queue| ThreadPoolSpec { name: name.into(), threads, max_queue };
    assert_eq!(core.thread_pools(), [pool("a", 2, 3), pool("default", 1, 65_536)]);
    for (text, message) in [
        ("thread_pool a threads=1; thread_pool a threads=1;", "duplicate thread pool \"a\""),
        ("thread_pool a threads=0;", "invalid threads value \"threads=0\""),
        ("thread_pool a threads=x;", "invalid threads value \"threads=x\""),
        ("thread_pool a threads=1 max_queue=-1;", "invalid max_queue value \"max_queue=-1\""),
        ("thread_pool a max_queue=1;", "\"thread_pool\" must have \"threads\" parameter"),
        ("thread_pool a odd;", "\"thread_pool\" must have \"threads\" parameter"),
        ("thread_pool a;", "invalid number of arguments in \"thread_pool\" directive"),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
}

#[test]
fn error_log_levels() {
    let level = |text: &str| read(text).error_logs[0].level;
    assert_eq!(level("error_log x;"), Level::Error);
    assert_eq!(level("error_log x info;"), Level::Info);
    assert_eq!(level("error_log x debug_http debug_core;"), Level::Debug);
    assert_eq!(level("error_log x debug debug_core;"), Level::Debug);
    for (text, message) in [
        ("error_log x warn info;", "duplicate log level \"info\""),
        ("error_log x debug_http info;", "duplicate log level \"info\""),
        ("error_log x error debug_http;", "invalid log level \"debug_http\""),
        ("error_log x loud;", "invalid log level \"loud\""),
        ("error_log memory:32m;", "nginx was built without debug support"),
        ("error_log syslog:;", "unknown syslog parameter \"\""),
        ("error_log syslog:tag=a;", "no syslog server specified"),
    ] {
        assert_eq!(refused(text), message, "{text}");
    }
}

#[test]
fn modules_that_are_built_in() {
    let module = "load_module modules/ngx_http_limit_req_module.so;";
    assert!(read_as(&format!("{module} events {{ }}"), Reader::Master).0.is_ok());
    let twice = read_as(&format!("{module} {module} events {{ }}"), Reader::Master).0.expect_err("twice");
    assert_eq!(twice, "module \"ngx_http_limit_req_module\" is already loaded in /p/nginx.conf:1");
}

#[test]
fn numbers_with_rules_of_their_own() {
    assert_eq!(read("worker_priority -5;").priority(), -5);
    assert_eq!(read("worker_priority +5;").priority(), 5);
    assert_eq!(read("worker_priority 0; worker_priority 7;").priority(), 7);
    assert_eq!(
        refused("worker_priority 1; worker_priority 2;"),
        "\"worker_priority\" directive is duplicate"
    );
    for text in ["worker_priority -;", "worker_priority x;", "worker_priority --1;"] {
        assert_eq!(refused(text), "\"worker_priority\" directive invalid number");
    }
    assert_eq!(read("worker_shutdown_timeout 0;").shutdown_timeout(), None);
    let none = read("worker_processes 0;");
    assert_eq!((none.loops(), none.wants_worker()), (1, false));
    assert_eq!(refused("worker_processes -1;"), "\"worker_processes\" directive invalid value");
    assert_eq!(read("worker_rlimit_core 2g;").rlimit_core(), Some(2 << 30));
    assert_eq!(refused("debug_points maybe;"), "invalid value \"maybe\"");
}

#[test]
fn modules_that_cannot_be_loaded() {
    let refused = |text: &str| read_as(text, Reader::Master).0.expect_err(text);
    let place = "in /p/nginx.conf:1";
    let failed = |name: &str, why: &str| format!("dlopen() \"{name}\" failed ({name}: {why}) {place}");
    let missing = "cannot open shared object file: No such file or directory";
    assert_eq!(refused("load_module no/x.so;"), failed("/p/no/x.so", missing));
    assert_eq!(refused("load_module /;"), failed("/", "cannot read file data: Is a directory"));
    assert_eq!(refused("load_module /dev/null;"), failed("/dev/null", "file too short"));
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    assert_eq!(refused(&format!("load_module {source};")), failed(source, "invalid ELF header"));
    let program = "/proc/self/exe";
    let message = format!("module \"{program}\" is not binary compatible {place}");
    assert_eq!(refused(&format!("load_module {program};")), message);
    let late = format!("\"load_module\" directive is specified too late {place}");
    assert_eq!(refused("events { } load_module x;"), late);
    assert!(read_as("load_module no/x.so; events { }", WORKER).0.is_ok());
}

#[test]
fn stall_reports() {
    use clearway_watchdog::{Rate, Settings};
    let settings = |report_after, count, seconds| {
        let per = Duration::from_secs(seconds);
        Settings { report_after, report_rate: Rate { count, per } }
    };
    let ms = Duration::from_millis;
    assert_eq!(read("").stall_reports(), settings(Some(ms(50)), 10, 60));
    let text = "stall_report_after 1s; stall_report_rate 3r/s;";
    assert_eq!(read(text).stall_reports(), settings(Some(ms(1000)), 3, 1));
    let text = "stall_report_after off; stall_report_rate 5;";
    assert_eq!(read(text).stall_reports(), settings(None, 5, 1));
    for text in ["x", "0r/m", "r/m", "1r/h", "99999999999r/s"] {
        let message = format!("invalid rate \"{text}\"");
        assert_eq!(refused(&format!("stall_report_rate {text};")), message);
    }
    let message = "invalid value \"0\" in \"stall_report_after\" directive, it is a time or \"off\"";
    assert_eq!(refused("stall_report_after 0;"), message);
    assert_eq!(refused("stall_report_after x;"), "\"stall_report_after\" directive invalid value");
}

#[test]
fn more_connections_than_descriptors() {
    let limit = process::descriptors_max().expect("tests run with a limit");
    let conf = |connections: u64, main: &str| {
        let text = format!("{main} events {{ worker_connections {connections}; }}");
        read_as(&text, WORKER).0.unwrap().descriptor_warning()
    };
    let warning = |connections: u64, limit: u64| {
        Some(format!("{connections} worker_connections exceed open file resource limit: {limit}"))
    };
    assert_eq!(conf(limit, ""), None);
    assert_eq!(conf(limit + 1, ""), warning(limit + 1, limit));
    assert_eq!(conf(limit + 1, "worker_rlimit_nofile 100;"), warning(limit + 1, 100));
    assert_eq!(conf(limit + 1, &format!("worker_rlimit_nofile {};", limit + 1)), None);
    assert_eq!(conf(limit, "worker_rlimit_nofile 100;"), None);
}

#[test]
fn what_needs_a_new_worker_process() {
    let traits = |text: &str| read(text).process_traits();
    let plain = traits("");
    assert_eq!(traits("pid x; error_log y; thread_pool a threads=1; worker_shutdown_timeout 3s;"), plain);
    for text in [
        "worker_processes 2;",
        "env A;",
        "worker_rlimit_nofile 100;",
        "worker_rlimit_core 100;",
        "worker_priority 1;",
        "worker_cpu_affinity auto;",
        "working_directory /;",
        "no_new_privileges off;",
        "handover_after off;",
        "handover_carriers 3;",
    ] {
        assert_ne!(traits(text), plain, "{text}");
    }
}

#[test]
fn whom_the_worker_runs_as() {
    let read = |text: &str| read_as(&format!("{text} events {{ }}"), Reader::Master);
    if !process::is_root() {
        let (core, warnings) = read("user root; user root;");
        assert_eq!(core.unwrap().user(), None);
        let message = "the \"user\" directive makes sense only if the master process runs with super-user \
                       privileges, ignored in /p/nginx.conf:1";
        assert_eq!(warnings, [message, message]);
        return;
    }
    let user = |text: &str| read(text).0.map(|core| core.user().cloned().unwrap());
    assert_eq!(user("").unwrap().name.to_bytes(), b"nobody");
    assert_ne!(user("").unwrap().uid, 0);
    let root = user("user nobody root;").unwrap();
    assert_eq!((root.name.to_bytes(), root.gid), (&b"nobody"[..], 0));
    assert_eq!(user("user root;").unwrap().uid, 0);
    for (text, message) in [
        ("user root; user root;", "\"user\" directive is duplicate in /p/nginx.conf:1"),
        ("user no-such-user;", "getpwnam(\"no-such-user\") failed in /p/nginx.conf:1"),
        ("user root no-such-group;", "getgrnam(\"no-such-group\") failed in /p/nginx.conf:1"),
    ] {
        assert_eq!(user(text).unwrap_err(), message);
    }
    assert_eq!(read_as("user root; events { }", WORKER).0.unwrap().user(), None);
}

#[test]
fn what_is_missing_is_found_at_the_end() {
    assert_eq!(read_as("", WORKER).0.expect_err(""), "no \"events\" section in configuration");
}

#[test]
fn directives_without_effect_are_checked_and_listed_once() {
    let listed: Vec<_> = NO_EFFECT.iter().map(|entry| entry.directive).collect();
    assert!(listed.is_sorted(), "{listed:?}");
    let mut handled: Vec<_> = no_effect::DIRECTIVES.iter().map(|spec| spec.name).collect();
    // Those of `http` stand beside their like.
    let (_, http) = crate::load::tables();
    handled.extend(listed.iter().filter(|name| http.table().knows(name)));
    handled.sort_unstable();
    assert_eq!(handled, listed);
}

#[test]
fn loops_are_shared_out_to_groups() {
    let of_group = |text: &str, group| {
        let core =
            read_as(&format!("{text} events {{ }}"), Reader::Worker(Duty::Group(group))).0.expect(text);
        (core.groups(), core.share(), core.loops(), core.all_loops())
    };
    let text = "worker_processes 5; worker_groups 2;";
    assert_eq!(of_group(text, 0), (2, 0..2, 2, 5));
    assert_eq!(of_group(text, 1), (2, 2..5, 3, 5));
    assert_eq!(of_group("worker_processes 3; worker_groups auto;", 2), (3, 2..3, 1, 3));
    assert_eq!(of_group("worker_processes 100; worker_groups auto;", 31).0, 32);
    assert_eq!(of_group("worker_processes 3;", 0), (1, 0..3, 3, 3));
    let master = read_as("worker_processes 5; worker_groups 2; events { }", Reader::Master).0.unwrap();
    assert_eq!((master.loops(), master.loops_of(1)), (5, 2..5));
    let masks = "worker_processes 2; worker_groups 2; worker_cpu_affinity 01 10; events { }";
    let second = read_as(masks, Reader::Worker(Duty::Group(1))).0.unwrap();
    assert_eq!(second.cpu_affinity(0), Some(vec![1]));
    let agent = read_as(masks, Reader::Worker(Duty::Agent { connections: 9 })).0.unwrap();
    assert_eq!((agent.share(), agent.all_loops(), agent.worker_connections()), (2..3, 2, 9));
    assert_eq!((agent.cpu_affinity(0), second.is_agent(), agent.is_agent()), (None, false, true));
}

#[test]
fn groups_that_make_no_sense() {
    for number in ["0", "33"] {
        assert_eq!(refused(&format!("worker_groups {number};")), "value must be between 1 and 32");
    }
    assert_eq!(refused("worker_groups x;"), "\"worker_groups\" directive invalid number");
    assert_eq!(refused("worker_groups 1; worker_groups 1;"), "\"worker_groups\" directive is duplicate");
    assert_eq!(refused("worker_processes 2; worker_groups 3;"), "3 worker_groups exceed 2 worker_processes");
    let single = "worker_processes 2; worker_groups 2; master_process off;";
    assert_eq!(warnings(single), ["\"worker_groups\" is ignored: \"master_process\" is off"]);
    assert_eq!((read(single).groups(), read(single).loops()), (1, 2));
    assert!(read("worker_processes 0; worker_groups 2;").loops() == 1, "there is no worker at all");
}
