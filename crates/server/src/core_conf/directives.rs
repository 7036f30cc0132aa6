//! The table of the directives outside `http` that have an effect.

use clearway_conf::{Args, Spec};

use super::affinity::Affinity;
use super::groups::Groups;
use super::limits::{self, HANDOVER_CARRIERS_MAX};
use super::paths::bytes_path;
use super::{CoreConf, EVENTS, HttpBlock, MAIN, environment, error_log, load_module, thread_pool, user};

/// The directives outside `http` that have an effect.
pub(super) const DIRECTIVES: &[Spec<CoreConf>] = &[
    Spec {
        name: "user",
        contexts: MAIN,
        args: Args::TAKE12,
        syntax: "user USER [GROUP]",
        default: "user nobody nogroup",
        doc: "The user and group that the worker process runs as when the server was started by root. \
              Without a group it is the one that has the user's name. Both must exist.",
        example: "
            user nobody nogroup;",
        see: &["working_directory", "no_new_privileges", "worker_processes"],
        handler: user::read,
    },
    Spec {
        name: "worker_processes",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_processes NUMBER | auto",
        default: "worker_processes 1",
        doc: "How many event loops there are: threads of one process, unless `worker_groups` says more. \
              `auto` is one for each processor. With 0 there is no worker process, and connections wait \
              until a reload gives one.",
        example: "
            worker_processes auto;",
        see: &["worker_groups", "worker_cpu_affinity", "worker_connections", "thread_pool"],
        handler: |scope, d| d.set(&mut scope.conf.worker_processes, limits::worker_processes),
    },
    Spec {
        name: "worker_groups",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_groups NUMBER | auto",
        default: "worker_groups 1",
        doc: "Into how many worker processes the event loops of `worker_processes` are shared out, up to 32; \
              with `auto` each has a process of its own, as in nginx. That is for C modules of Lua that \
              cannot run in two threads, and so that a crash ends one share. Zones and what is counted are \
              common; each process has loops, VMs, pools, and copies of files of its own. docs/processes.md \
              says what else is counted for each.",
        example: "
            worker_processes 8;
            worker_groups 2;",
        see: &["worker_processes", "master_process"],
        handler: |scope, d| d.set(&mut scope.conf.worker_groups, Groups::read),
    },
    Spec {
        name: "error_log",
        contexts: MAIN,
        args: Args::ONE_MORE,
        syntax: "error_log FILE | stderr | syslog:server=ADDRESS[,PARAMETER=VALUE] [LEVEL]",
        default: "error_log /var/log/nginx/error.log error",
        doc: "Where messages of a level (`debug`, `info`, `notice`, `warn`, `error`, `crit`, `alert`, \
              `emerg`) and above go. May be given several times. Lines are written by a thread of their \
              own; no loop waits for the disk.",
        example: "
            error_log logs/error.log warn;
            error_log syslog:server=unix:/dev/log crit;",
        see: &["access_log", "log_not_found"],
        handler: |scope, d| {
            let spec = error_log::error_log(&scope.conf.prefix, d)?;
            scope.conf.error_logs.push(spec);
            Ok(())
        },
    },
    Spec {
        name: "pid",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "pid FILE",
        default: "pid /run/nginx.pid",
        doc: "The file with the number of the master process, written when everything listens.",
        example: "
            pid /run/clearway.pid;",
        see: &["daemon"],
        handler: |scope, d| {
            let path = scope.conf.full_name(&d.value(0)?);
            d.set(&mut scope.conf.pid, |_| Ok(path))
        },
    },
    Spec {
        name: "daemon",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "daemon on | off",
        default: "daemon on",
        doc: "Whether the server goes to the background. The command returns when the server answers.",
        example: "
            daemon off;",
        see: &["master_process", "pid"],
        handler: |scope, d| d.set(&mut scope.conf.daemon, |d| d.flag(0)),
    },
    Spec {
        name: "master_process",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "master_process on | off",
        default: "master_process on",
        doc: "Whether a master process, which keeps the rights it was started with, supervises the worker.",
        example: "
            daemon off;
            master_process off;",
        see: &["daemon", "worker_processes"],
        handler: |scope, d| d.set(&mut scope.conf.master_process, |d| d.flag(0)),
    },
    Spec {
        name: "env",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "env VARIABLE[=VALUE]",
        default: "env TZ",
        doc: "Keeps a variable of the environment for the worker process, which has none otherwise, or \
              gives it a value. `TZ` is always kept.",
        example: "
            env TZ=UTC;
            env MALLOC_OPTIONS;",
        see: &["load_module"],
        handler: |scope, d| {
            scope.conf.env.push(environment::read(&d.value(0)?));
            Ok(())
        },
    },
    Spec {
        name: "worker_rlimit_nofile",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_rlimit_nofile NUMBER",
        default: "",
        doc: "How many files and sockets one event loop may have open (RLIMIT_NOFILE). The worker process \
              gets so many for each of its loops. More than the hard limit takes rights that a server not \
              started by root lacks: it then has as many as the hard limit allows, and a `[warn]` says so.",
        example: "
            worker_rlimit_nofile 65536;

            events {
                worker_connections 32768;
            }",
        see: &["worker_connections"],
        handler: |scope, d| d.set(&mut scope.conf.rlimit_nofile, |d| d.number(0)),
    },
    Spec {
        name: "worker_rlimit_core",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_rlimit_core SIZE",
        default: "",
        doc: "Largest size of the core file that a crashed worker process leaves (RLIMIT_CORE).",
        example: "
            worker_rlimit_core 500m;
            working_directory /var/tmp/;",
        see: &["working_directory"],
        handler: |scope, d| d.set(&mut scope.conf.rlimit_core, |d| d.offset(0)),
    },
    Spec {
        name: "worker_priority",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_priority NUMBER",
        default: "worker_priority 0",
        doc: "The nice value of the event loops, from -20 (first) to 20.",
        example: "
            worker_priority -5;",
        see: &["worker_cpu_affinity"],
        handler: |scope, d| {
            if scope.conf.priority != 0 {
                return Err(d.reject("is duplicate"));
            }
            scope.conf.priority = limits::worker_priority(d)?;
            Ok(())
        },
    },
    Spec {
        name: "worker_cpu_affinity",
        contexts: MAIN,
        args: Args::ONE_MORE,
        syntax: "worker_cpu_affinity MASK …\nworker_cpu_affinity auto [MASK]",
        default: "",
        doc: "Sets the processors that the first event loop may run on, the second, and so on: a mask is a \
              row of zeros and ones, the last of which is processor 0. `auto` gives each loop a processor \
              of its own, of those in the mask. A thread that has lost its loop may run anywhere.",
        example: "
            worker_processes auto;
            worker_cpu_affinity auto;",
        see: &["worker_processes", "worker_priority"],
        handler: |scope, d| d.set(&mut scope.conf.affinity, Affinity::read),
    },
    Spec {
        name: "worker_shutdown_timeout",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "worker_shutdown_timeout TIME",
        default: "",
        doc: "When a server that ends gracefully closes the connections that are still there; after a \
              reload, those that have made no request since.",
        example: "
            worker_shutdown_timeout 30s;",
        see: &["keepalive_timeout"],
        handler: |scope, d| d.set(&mut scope.conf.shutdown_timeout, |d| d.msec(0)),
    },
    Spec {
        name: "working_directory",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "working_directory DIRECTORY",
        default: "",
        doc: "The working directory of the worker process, where core files are written.",
        example: "
            worker_rlimit_core 500m;
            working_directory /var/tmp/;",
        see: &["worker_rlimit_core", "user"],
        handler: |scope, d| {
            d.set(&mut scope.conf.working_directory, |d| Ok(bytes_path(&d.value(0)?).to_owned()))
        },
    },
    Spec {
        name: "ssl_object_cache_inheritable",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "ssl_object_cache_inheritable on | off",
        default: "ssl_object_cache_inheritable on",
        doc: "Whether a reload takes over certificates, keys and lists of revoked certificates whose files \
              have the same number (inode) and time as before, without reading them. What the configuration \
              says that is left decides.",
        example: "
            ssl_object_cache_inheritable off;",
        see: &["ssl_certificate"],
        handler: |scope, d| d.set(&mut scope.conf.ssl_object_cache_inheritable, |d| d.flag(0)),
    },
    Spec {
        name: "no_new_privileges",
        contexts: MAIN,
        args: Args::FLAG,
        syntax: "no_new_privileges on | off",
        default: "no_new_privileges on",
        doc: "Whether the worker process, where its user leaves it no capability, gives up for good what \
              programs that it executes could bring along (PR_SET_NO_NEW_PRIVS): set-user-ID and \
              set-group-ID bits and file capabilities have no effect then. A worker of `user root` keeps \
              its rights, and is not changed. `off` is for workers that run such programs.",
        example: "
            user nobody nogroup;
            no_new_privileges on;",
        see: &["user"],
        handler: |scope, d| d.set(&mut scope.conf.no_new_privileges, |d| d.flag(0)),
    },
    Spec {
        name: "thread_pool",
        contexts: MAIN,
        args: Args::TAKE23,
        syntax: "thread_pool NAME threads=NUMBER [max_queue=NUMBER]",
        default: "thread_pool default threads=32 max_queue=65536",
        doc: "Threads for what would block an event loop, and how many tasks may wait for one. Numbers are \
              per event loop: the pool, which all loops share, has so many for each. A file system that does \
              not answer gets a quarter of the threads at most. The pool `passwords` is the one in which \
              `auth_basic` hashes: clients have their turns, and none may have more than a part of the tasks \
              that wait; without a directive it has a thread per processor and 4096 tasks.",
        example: "
            thread_pool disks threads=16 max_queue=4096;

            http {
                server {
                    location /video/ {
                        aio threads=disks;
                    }
                }
            }",
        see: &["aio", "read_ahead"],
        handler: |scope, d| {
            let pool = thread_pool::read(&scope.conf.thread_pools, d)?;
            scope.conf.thread_pools.push(pool);
            Ok(())
        },
    },
    Spec {
        name: "load_module",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "load_module FILE",
        default: "",
        doc: "Loads a module. One that is built in (`-V` lists them) is there without it, so its file need \
              not exist: `load_module modules/ngx_http_geoip_module.so` means the built-in module of that \
              name. No other file can be loaded. Must stand before `events` and `http`.",
        example: "
            load_module modules/ngx_http_mp4_module.so;",
        see: &["include"],
        handler: load_module::read,
    },
    Spec {
        name: "handover_after",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "handover_after TIME | off",
        default: "handover_after 1ms",
        doc: "A task that holds its loop longer than one to two times this loses it to another thread, and \
              everything else on the loop goes on. While nothing has blocked for a second, looks are rarer \
              and the first task to block is found after up to twelve times this.",
        example: "
            handover_after 5ms;
            handover_carriers 64;",
        see: &["handover_carriers", "stall_report_after", "thread_pool"],
        handler: |scope, d| d.set(&mut scope.conf.handover_after, limits::time_or_off),
    },
    Spec {
        name: "handover_carriers",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "handover_carriers NUMBER",
        default: "handover_carriers 512",
        doc: "How many threads beyond one per loop may exist to take loops over: as many requests can block \
              at the same time. They are started as they are needed. When they run out, an `[alert]` says \
              so, and requests of locations that blocked lately wait; others do not.",
        example: "
            handover_after 5ms;
            handover_carriers 64;",
        see: &["handover_after", "stall_report_after", "thread_pool"],
        handler: |scope, d| {
            d.set(&mut scope.conf.handover_carriers, |d| d.number_within(0, 0, Some(HANDOVER_CARRIERS_MAX)))
        },
    },
    Spec {
        name: "stall_report_after",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "stall_report_after TIME | off",
        default: "stall_report_after 50ms",
        doc: "A task that holds its thread longer than this is looked at until it comes back, and reported: \
              in the error log, level `warn`, and by the status API. docs/blocking.md says how to read \
              that.",
        example: "
            stall_report_after 20ms;
            stall_report_rate 5r/m;",
        see: &["stall_report_rate", "handover_after", "error_log"],
        handler: |scope, d| d.set(&mut scope.conf.stall_report_after, limits::time_or_off),
    },
    Spec {
        name: "stall_report_rate",
        contexts: MAIN,
        args: Args::TAKE1,
        syntax: "stall_report_rate NUMBERr/s | NUMBERr/m",
        default: "stall_report_rate 10r/m",
        doc: "How many stalls are reported in the error log in a second or a minute, all at once if need \
              be. Others are counted, and the next report says how many there were. The status API has \
              all of them.",
        example: "
            stall_report_after 20ms;
            stall_report_rate 5r/m;",
        see: &["stall_report_after", "handover_after", "error_log"],
        handler: |scope, d| d.set(&mut scope.conf.stall_report_rate, limits::stall_report_rate),
    },
    Spec {
        name: "events",
        contexts: MAIN,
        args: Args::NOARGS.or(Args::BLOCK),
        syntax: "events { … }",
        default: "",
        doc: "The directives about connections. It must be there, and may be empty.",
        example: "
            events {
                worker_connections 4096;
            }",
        see: &["worker_connections", "worker_rlimit_nofile", "worker_processes"],
        handler: |scope, d| {
            d.set(&mut scope.conf.events, |_| Ok(()))?;
            scope.block(d, EVENTS)
        },
    },
    Spec {
        name: "http",
        contexts: MAIN,
        args: Args::NOARGS.or(Args::BLOCK),
        syntax: "http { … }",
        default: "",
        doc: "The HTTP servers.",
        example: "
            http {
                server {
                    listen 8080;
                    root /var/www;
                }
            }",
        see: &["server", "events", "include"],
        handler: |scope, d| {
            let warnings_before = scope.warnings.len();
            d.set(&mut scope.conf.http, |d| Ok(HttpBlock { directive: d.clone(), warnings_before }))
        },
    },
    Spec {
        name: "worker_connections",
        contexts: EVENTS,
        args: Args::TAKE1,
        syntax: "worker_connections NUMBER",
        default: "worker_connections 512",
        doc: "Connections that one event loop may have, its listening sockets included.",
        example: "
            events {
                worker_connections 4096;
            }",
        see: &["events", "worker_rlimit_nofile", "worker_processes"],
        handler: |scope, d| d.set(&mut scope.conf.worker_connections, limits::worker_connections),
    },
    Spec {
        name: "multi_accept",
        contexts: EVENTS,
        args: Args::FLAG,
        syntax: "multi_accept on | off",
        default: "multi_accept off",
        doc: "Whether a loop that shares a listening socket with others takes all connections that wait \
              there at once, or one at a time.",
        example: "
            events {
                multi_accept on;
            }",
        see: &["worker_connections"],
        handler: |scope, d| d.set(&mut scope.conf.multi_accept, |d| d.flag(0)),
    },
];
