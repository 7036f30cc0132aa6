//! The directives of Lua. Executed when a configuration is read; their code is compiled later, in each VM.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway_base::log::Level;
use clearway_base::units::parse_size;
use clearway_conf::error::{message, printed};
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{Load, Setting, context, set};
use clearway_zone::Zones;

use crate::code::Code;
use crate::pooled::POOLED;
use crate::vm::choice::Reserves;
use crate::vm::settings::{LUA_CONF, LUA_MAIN, LuaConf};

/// Where code of a location stands.
const PLACES: Contexts = context::ALL.or(context::LOCATION_IF);
const SERVERS: Contexts = context::HTTP.or(context::SERVER);
const LOCATIONS: Contexts = context::LOCATION.or(context::LOCATION_IF);

/// Directives with code, each in its three forms.
macro_rules! code {
    ($(($contexts:expr, $name:literal, $doc:literal, $example:literal, $see:expr, $set:expr)),* $(,)?) => {
        &[$(
            Spec {
                name: concat!($name, "_block"),
                contexts: $contexts,
                args: Args::BLOCK.or(Args::NOARGS),
                syntax: concat!($name, "_block { … }"),
                default: "",
                doc: $doc,
                example: $example,
                see: $see,
                handler: |scope, directive| {
                    let code = block_code(scope.conf, directive)?;
                    put(scope, directive, code, $set)
                },
            },
            Spec {
                name: $name,
                contexts: $contexts,
                args: Args::TAKE1,
                syntax: concat!($name, " CODE"),
                default: "",
                doc: concat!("The same as `", $name, "_block`, with the code as one argument, in which the \
                              escapes of the configuration are resolved first."),
                example: concat!("\n            ", $name, " 'local a = 1';"),
                see: &[concat!($name, "_block")],
                handler: |scope, directive| {
                    let code = quoted_code(scope.conf, directive)?;
                    put(scope, directive, code, $set)
                },
            },
            Spec {
                name: concat!($name, "_file"),
                contexts: $contexts,
                args: Args::TAKE1,
                syntax: concat!($name, "_file FILE"),
                default: "",
                doc: concat!("The same as `", $name, "_block`, with code from a file, which is read when it \
                              is needed first. A relative name is looked up where relative paths begin; it \
                              may have variables in it where a request has them."),
                example: concat!("\n            ", $name, "_file conf/code.lua;"),
                see: &[concat!($name, "_block")],
                handler: |scope, directive| {
                    let path = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
                    let is_of_filter = directive.name.windows(7).any(|part| part == b"_filter");
                    let is_literal = path.as_literal().is_some();
                    let code = Code::file(&directive.name, path);
                    if is_of_filter && is_literal {
                        scope.conf.main(&LUA_MAIN).ahead.push(Arc::clone(&code));
                    }
                    put(scope, directive, code, $set)
                },
            },
        )*]
    };
}

/// Finds what a directive sets.
type Find = fn(&mut Load) -> Set<'_>;

enum Set<'a> {
    Inherited(&'a mut Setting<Option<Arc<Code>>>),
    Answers(&'a mut clearway_http::Answers<Option<Arc<Code>>>),
}

fn conf(load: &mut Load) -> &mut LuaConf {
    load.location(&LUA_CONF)
}

fn put(scope: &mut Scope<'_, Load>, directive: &Directive, code: Arc<Code>, find: Find) -> Result<(), Error> {
    *scope.conf.main(&LUA_MAIN).is_used = true;
    match find(scope.conf) {
        Set::Inherited(setting) if setting.is_here() => return Err(directive.reject("is duplicate")),
        Set::Inherited(setting) => setting.set(Some(code)),
        Set::Answers(setting) if setting.is_some() => return Err(directive.reject("is duplicate")),
        Set::Answers(setting) => setting.set(Some(code)),
    }
    Ok(())
}

/// Variables that are found out ahead where the configuration uses them, as that takes a while.
const FOUND_AHEAD: [&str; 1] = ["realpath_root"];

/// Has variables be found out that the code seems to use.
pub(super) fn use_variables(load: &mut Load, directive: &Directive, code: &[u8]) -> Result<(), Error> {
    for name in FOUND_AHEAD {
        if code.windows(name.len()).any(|part| part == name.as_bytes()) {
            load.variables.compile(&Bytes::from(format!("${name}")), &directive.pos)?;
        }
    }
    Ok(())
}

/// The code of a block.
pub(super) fn block_code(load: &mut Load, directive: &Directive) -> Result<Arc<Code>, Error> {
    let code = directive.lua().map_or_else(Bytes::new, |lua| lua.code.clone());
    use_variables(load, directive, &code)?;
    Ok(Code::inline(&load.conf_prefix(), directive, code))
}

fn quoted_code(load: &mut Load, directive: &Directive) -> Result<Arc<Code>, Error> {
    if directive.args[0].is_empty() {
        // As upstream.
        return Err(directive.error("invalid location config: no runnable Lua code"));
    }
    use_variables(load, directive, &directive.args[0])?;
    Ok(Code::inline(&load.conf_prefix(), directive, directive.args[0].clone()))
}

/// The code of a file without variables in its name, which is read when VMs are made.
pub(super) fn file_code_ahead(load: &mut Load, directive: &Directive) -> Result<Arc<Code>, Error> {
    let path = load.variables.compile(&directive.args[0], &directive.pos)?;
    if path.as_literal().is_none() {
        return Err(directive.reject("cannot have variables in the name of its file"));
    }
    let code = Code::file(&directive.name, path);
    load.main(&LUA_MAIN).ahead.push(Arc::clone(&code));
    Ok(code)
}

/// Directives with code.
pub(super) static CODE: &[Spec<Load>] = code![
    (
        context::HTTP,
        "init_by_lua",
        "Runs in each VM before anything else, when a configuration is about to be used, as the user of the \
         worker; an error refuses the configuration. At a reload it is run first in a process of its own, so \
         that what crashes there disturbs nobody. Not run where the configuration is only checked.",
        "
            init_by_lua_block {
                greeting = \"hello\"
            }",
        &["init_worker_by_lua_block", "lua_init_privileged"],
        |load| Set::Inherited(&mut load.main(&LUA_MAIN).init)
    ),
    (
        context::HTTP,
        "init_worker_by_lua",
        "Runs in each VM when the configuration comes into use.",
        "
            init_worker_by_lua_block {
                started = os.time()
            }",
        &["init_by_lua_block"],
        |load| Set::Inherited(&mut load.main(&LUA_MAIN).init_worker)
    ),
    (
        context::HTTP,
        "exit_worker_by_lua",
        "Runs in each VM when nothing uses the configuration any more.",
        "
            exit_worker_by_lua_block {
                ngx.log(ngx.NOTICE, \"ended\")
            }",
        &["init_worker_by_lua_block"],
        |load| Set::Inherited(&mut load.main(&LUA_MAIN).exit_worker)
    ),
    (
        SERVERS,
        "server_rewrite_by_lua",
        "Runs before a location is looked for.",
        "
            server {
                server_rewrite_by_lua_block {
                    ngx.ctx.begun = ngx.now and true
                }
            }",
        &["rewrite_by_lua_block"],
        |load| Set::Inherited(&mut conf(load).server_rewrite)
    ),
    (
        PLACES,
        "rewrite_by_lua",
        "Runs in the rewrite phase, behind the directives of the rewrite module.",
        "
            location /old/ {
                rewrite_by_lua_block {
                    ngx.req.set_uri(\"/new\", true)
                }
            }",
        &["rewrite_by_lua_no_postpone"],
        |load| Set::Inherited(&mut conf(load).rewrite)
    ),
    (
        PLACES,
        "access_by_lua",
        "Runs in the access phase, behind other directives of it (`allow`, `auth_basic`), under `satisfy`.",
        "
            location /private/ {
                access_by_lua_block {
                    if ngx.var.arg_key ~= \"open\" then
                        return ngx.exit(ngx.HTTP_FORBIDDEN)
                    end
                }
            }",
        &["access_by_lua_no_postpone", "satisfy"],
        |load| Set::Inherited(&mut conf(load).access)
    ),
    (
        PLACES,
        "precontent_by_lua",
        "Runs before something answers.",
        "
            location / {
                precontent_by_lua_block {
                    ngx.ctx.checked = true
                }
            }",
        &["content_by_lua_block"],
        |load| Set::Inherited(&mut conf(load).precontent)
    ),
    (
        LOCATIONS,
        "content_by_lua",
        "Answers.",
        "
            location = /hello {
                content_by_lua_block {
                    ngx.say(\"hello\")
                }
            }",
        &["rewrite_by_lua_block", "access_by_lua_block"],
        |load| Set::Answers(&mut conf(load).content)
    ),
    (
        PLACES,
        "header_filter_by_lua",
        "Runs before the head of a response is sent, and may change it.",
        "
            location / {
                header_filter_by_lua_block {
                    ngx.header[\"X-Served\"] = \"yes\"
                }
            }",
        &["body_filter_by_lua_block"],
        |load| Set::Inherited(&mut conf(load).header_filter)
    ),
    (
        PLACES,
        "body_filter_by_lua",
        "Runs for each piece of a response's body, which is `ngx.arg[1]`; whether it is the last one says \
         `ngx.arg[2]`.",
        "
            location / {
                body_filter_by_lua_block {
                    ngx.arg[1] = string.upper(ngx.arg[1])
                }
            }",
        &["header_filter_by_lua_block"],
        |load| Set::Inherited(&mut conf(load).body_filter)
    ),
    (
        PLACES,
        "log_by_lua",
        "Runs when the response is over, before it is logged.",
        "
            location / {
                log_by_lua_block {
                    ngx.log(ngx.INFO, \"took \", ngx.var.request_time)
                }
            }",
        &["access_log"],
        |load| Set::Inherited(&mut conf(load).log)
    ),
];

/// A directive that is `on` or `off`.
macro_rules! flag {
    ($contexts:expr, $name:literal, $default:literal, $doc:literal, $see:expr, $field:ident) => {
        Spec {
            name: $name,
            contexts: $contexts,
            args: Args::FLAG,
            syntax: concat!($name, " on | off"),
            default: concat!($name, " ", $default, ";"),
            doc: $doc,
            example: concat!("\n            ", $name, " on;"),
            see: $see,
            handler: |scope, directive| {
                set(directive, &mut conf(scope.conf).$field, |directive| directive.flag(0))
            },
        }
    };
}

/// The others.
pub(super) static OTHERS: &[Spec<Load>] = &[
    flag!(
        context::HTTP,
        "rewrite_by_lua_no_postpone",
        "off",
        "Has `rewrite_by_lua` run before the directives of the rewrite module, not behind them.",
        &["rewrite_by_lua_block"],
        rewrite_no_postpone
    ),
    flag!(
        context::HTTP,
        "access_by_lua_no_postpone",
        "off",
        "Has `access_by_lua` run before other directives of the access phase, not behind them.",
        &["access_by_lua_block"],
        access_no_postpone
    ),
    flag!(
        context::HTTP,
        "precontent_by_lua_no_postpone",
        "off",
        "Has `precontent_by_lua` run before other directives of the phase (`try_files`), not behind them.",
        &["precontent_by_lua_block"],
        precontent_no_postpone
    ),
    flag!(
        PLACES,
        "lua_use_default_type",
        "on",
        "Whether responses of code that has not chosen a type have that of `default_type` and `types`.",
        &["default_type"],
        use_default_type
    ),
    Spec {
        name: "lua_code_cache",
        contexts: PLACES,
        args: Args::FLAG,
        syntax: "lua_code_cache on | off",
        default: "lua_code_cache on;",
        doc: "Whether code that was compiled is kept, and modules that were loaded. With `off` each \
              request has a VM of its own, in which `init_by_lua` runs first, and files are read anew: \
              what is edited is seen at once. That costs as much as it does, so it is for development.",
        example: "
            lua_code_cache on;",
        see: &["content_by_lua_block"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope.conf).code_cache, |directive| directive.flag(0))?;
            if !*conf(scope.conf).code_cache {
                let text = "lua_code_cache is off; this will hurt performance";
                scope.say(directive.error(text).with_level(Level::Alert));
            }
            Ok(())
        },
    },
    flag!(
        PLACES,
        "lua_need_request_body",
        "off",
        "Whether the body of a request is read before code runs.",
        &["content_by_lua_block"],
        need_request_body
    ),
    flag!(
        PLACES,
        "lua_http10_buffering",
        "on",
        "Whether a response to a client of HTTP/1.0 is kept until its length is known.",
        &["content_by_lua_block"],
        http10_buffering
    ),
    flag!(
        PLACES,
        "lua_check_client_abort",
        "off",
        "Whether code that waits is ended when its client leaves.",
        &["content_by_lua_block"],
        check_client_abort
    ),
    flag!(
        PLACES,
        "lua_transform_underscores_in_response_headers",
        "on",
        "Whether `_` in names of `ngx.header` means `-`.",
        &["header_filter_by_lua_block"],
        transform_underscores
    ),
    flag!(
        context::HTTP,
        "lua_sa_restart",
        "on",
        "Accepted without effect: signals are read from a descriptor, so they interrupt no call.",
        &["init_worker_by_lua_block"],
        sa_restart
    ),
    Spec {
        name: "lua_load_resty_core",
        contexts: context::HTTP,
        args: Args::FLAG,
        syntax: "lua_load_resty_core on | off",
        default: "",
        doc: "Warns and does nothing, as upstream: what it once left out is always there.",
        example: "
            lua_load_resty_core on;",
        see: &["lua_package_path"],
        handler: |scope, directive| {
            directive.flag(0)?;
            scope.warn(directive.error(
                "lua_load_resty_core is deprecated (the lua-resty-core library is required since \
                 ngx_lua v0.10.16)",
            ));
            Ok(())
        },
    },
    Spec {
        name: "lua_malloc_trim",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_malloc_trim NUMBER",
        default: "lua_malloc_trim 0;",
        doc: "Has memory that is free given back to the system after so many requests, by the loop that has \
              served the last of them; 0: when loops have nothing to do.",
        example: "
            lua_malloc_trim 10000;",
        see: &["lua_max_memory"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope.conf).malloc_trim, |directive| directive.number(0))
        },
    },
    Spec {
        name: "lua_shared_dict",
        contexts: context::HTTP,
        args: Args::TAKE2,
        syntax: "lua_shared_dict NAME SIZE",
        default: "",
        doc: "A dictionary that all loops and workers share, and that outlives reloads: `ngx.shared.NAME`.",
        example: "
            lua_shared_dict counters 1m;",
        see: &["content_by_lua_block"],
        handler: read_shared_dict,
    },
    Spec {
        name: "lua_capture_error_log",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_capture_error_log SIZE",
        default: "",
        doc: "Keeps the lines that are written to error logs, up to so many bytes of them, for `get_logs` of \
              `ngx.errlog`, which takes them away; the oldest lines make room. All loops of a process keep \
              them together.",
        example: "
            lua_capture_error_log 100k;",
        see: &["error_log"],
        handler: |scope, directive| {
            let size = printed(&directive.args[0]).to_vec();
            set(directive, &mut scope.conf.main(&LUA_MAIN).kept_lines_bytes, |directive| {
                match usize::try_from(directive.size(0)?).unwrap_or(usize::MAX) {
                    bytes @ KEPT_BYTES_MIN.. => Ok(bytes),
                    _ => Err(directive.error(message(&[
                        &"invalid capture error log size \"",
                        &size,
                        &"\", minimum size is ",
                        &KEPT_BYTES_MIN.to_string(),
                    ]))),
                }
            })
        },
    },
    Spec {
        name: "lua_thread_cache_max_entries",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_thread_cache_max_entries NUMBER",
        default: "lua_thread_cache_max_entries 1024;",
        doc: "How many coroutines a VM keeps whose code is over, for the code that begins next.",
        example: "
            lua_thread_cache_max_entries 64;",
        see: &["lua_max_memory"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&LUA_MAIN).thread_cache_max_entries, |directive| {
                Ok(usize::try_from(directive.number(0)?).unwrap_or(usize::MAX))
            })
        },
    },
    Spec {
        name: "lua_regex_cache_max_entries",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_regex_cache_max_entries NUMBER",
        default: "lua_regex_cache_max_entries 1024;",
        doc: "How many expressions of `ngx.re` with the option `o` a VM remembers.",
        example: "
            lua_regex_cache_max_entries 4096;",
        see: &["lua_regex_match_limit"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&LUA_MAIN).regex_cache_max_entries, |directive| {
                Ok(usize::try_from(directive.number(0)?).unwrap_or(usize::MAX))
            })
        },
    },
    Spec {
        name: "lua_regex_match_limit",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_regex_match_limit NUMBER",
        default: "lua_regex_match_limit 0;",
        doc: "How many steps one match of `ngx.re` may take; 0 is the library's own limit.",
        example: "
            lua_regex_match_limit 100000;",
        see: &["lua_regex_cache_max_entries"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&LUA_MAIN).regex_match_limit, |directive| {
                Ok(u32::try_from(directive.number(0)?).unwrap_or(u32::MAX))
            })
        },
    },
    Spec {
        name: "lua_package_path",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_package_path PATH",
        default: "",
        doc: "Where modules of Lua are looked for; `;;` stands for the default.",
        example: "
            lua_package_path \"/srv/lua/?.lua;;\";",
        see: &["lua_package_cpath"],
        handler: |scope, directive| {
            let path = with_prefix(scope.conf, &directive.args[0]);
            let setting = &mut scope.conf.main(&LUA_MAIN).package_path;
            set(directive, setting, |_| Ok(Some(path)))
        },
    },
    Spec {
        name: "lua_package_cpath",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_package_cpath PATH",
        default: "",
        doc: "Where modules in C are looked for; `;;` stands for the default.",
        example: "
            lua_package_cpath \"/srv/lua/?.so;;\";",
        see: &["lua_package_path"],
        handler: |scope, directive| {
            let path = with_prefix(scope.conf, &directive.args[0]);
            let setting = &mut scope.conf.main(&LUA_MAIN).package_cpath;
            set(directive, setting, |_| Ok(Some(path)))
        },
    },
    Spec {
        name: "lua_init_privileged",
        contexts: context::HTTP,
        args: Args::FLAG,
        syntax: "lua_init_privileged on | off",
        default: "lua_init_privileged off;",
        doc: "Whether `init_by_lua*` runs before the worker process becomes its `user`: with the rights of \
              the master, which may read what that user may not. Each reload takes a new worker process \
              then. VMs that are made later (reserves, those of `lua_code_cache off`) run it as the user. \
              Without a master process it changes nothing.",
        example: "
            lua_init_privileged on;
            init_by_lua_block {
                local file = assert(io.open(\"/etc/shop/key\"))
                key = file:read(\"*a\")
            }",
        see: &["init_by_lua_block", "user"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&LUA_MAIN).init_privileged, |directive| directive.flag(0))
        },
    },
    Spec {
        name: "lua_worker_thread_vm_pool_size",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_worker_thread_vm_pool_size NUMBER",
        default: "",
        doc: "How many calls of `ngx.run_worker_thread` may be under way for each loop; one more is refused, \
              \"no available Lua vm\". Without it calls wait for a thread of their pool, which has a limit \
              of its own (`max_queue` of `thread_pool`), and there are as many VMs as a pool has threads, \
              if they are needed at the same time.",
        example: "
            lua_worker_thread_vm_pool_size 10;",
        see: &["thread_pool"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&POOLED).vms_max, |directive| {
                let number = directive.number_within(0, 1, None)?;
                Ok(Some(usize::try_from(number).unwrap_or(usize::MAX)))
            })
        },
    },
    Spec {
        name: "lua_reserve_vms",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_reserve_vms auto | NUMBER",
        default: "lua_reserve_vms auto;",
        doc: "How many VMs a loop has beside its own one, for requests that would have to wait for code that \
              blocks. With `auto` one is made when code has blocked for the first time, and up to two \
              more where others wait, so that one is left to code that does not block.",
        example: "
            lua_reserve_vms 2;",
        see: &["lua_max_memory"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&LUA_MAIN).reserve_vms, |directive| {
                if directive.args[0] == "auto" {
                    return Ok(Reserves::Auto);
                }
                let number = directive.number_within(0, 0, Some(RESERVES_MAX))?;
                let number = u32::try_from(number).unwrap_or_default();
                Ok(std::num::NonZeroU32::new(number).map_or(Reserves::None, Reserves::Fixed))
            })
        },
    },
    Spec {
        name: "lua_max_run_time",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "lua_max_run_time TIME | off",
        default: "lua_max_run_time off;",
        doc: "How long code may run without waiting for anything. Code that takes longer gets an error that \
              it cannot catch, and its request 500; the log has where it was. A function of C that does not \
              return is not ended, but what it returns to is. What stands in `http` holds for \
              `init_by_lua*` and the like as well.",
        example: "
            lua_max_run_time 2s;",
        see: &["lua_time_slice", "lua_max_memory", "stall_report_after"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope.conf).max_run_time, |directive| {
                time_or_off(directive, RUN_TIME_MIN, "value must be at least 10ms")
            })
        },
    },
    Spec {
        name: "lua_time_slice",
        contexts: PLACES,
        args: Args::TAKE1,
        syntax: "lua_time_slice TIME | off",
        default: "lua_time_slice off;",
        doc: "After how long code that computes makes way for other code of its VM, wherever it is; then it \
              goes on. It is counted from the time when the loop was given to another thread, and holds for \
              handlers: not for filters, `set_by_lua*`, `init_by_lua*`, nor inside a coroutine of the user's \
              own, a `table.sort` or a function of C. Code that expects not to be interrupted between two \
              calls that wait for nothing, as it may elsewhere, is not to be given slices.",
        example: "
            location /report {
                lua_time_slice 5ms;
            }",
        see: &["lua_max_run_time", "lua_reserve_vms"],
        handler: |scope, directive| {
            set(directive, &mut conf(scope.conf).time_slice, |directive| {
                time_or_off(directive, TIME_SLICE_MIN, "value must be at least 1ms")
            })
        },
    },
    Spec {
        name: "lua_max_memory",
        contexts: context::HTTP,
        args: Args::TAKE1,
        syntax: "lua_max_memory SIZE | off",
        default: "lua_max_memory off;",
        doc: "How much memory a VM may have. Code that wants more gets an error, \"not enough memory\".",
        example: "
            lua_max_memory 256m;",
        see: &["lua_reserve_vms"],
        handler: |scope, directive| {
            set(directive, &mut scope.conf.main(&LUA_MAIN).max_memory_bytes, |directive| {
                if directive.args[0] == "off" {
                    return Ok(None);
                }
                let bytes = usize::try_from(directive.size(0)?).unwrap_or(usize::MAX);
                if bytes < MEMORY_MIN_BYTES {
                    return Err(directive.reject("value must be at least 1m"));
                }
                Ok(Some(bytes))
            })
        },
    },
];

/// Lines that are kept have so much room at least, as OpenResty has it.
const KEPT_BYTES_MIN: usize = 4096;

/// Polls that take less long are not looked at one by one.
const RUN_TIME_MIN: Duration = Duration::from_millis(10);

/// Stacks are taken once in so long.
const TIME_SLICE_MIN: Duration = Duration::from_millis(1);

fn time_or_off(directive: &Directive, least: Duration, refusal: &str) -> Result<Option<Duration>, Error> {
    if directive.args[0] == "off" {
        return Ok(None);
    }
    let time = directive.msec(0)?;
    if time < least { Err(directive.reject(refusal)) } else { Ok(Some(time)) }
}

/// The most reserve VMs of one loop.
const RESERVES_MAX: u64 = 64;

/// The least limit, which leaves some memory to code after a VM was set up.
const MEMORY_MIN_BYTES: usize = 1 << 20;

/// The least size of a dictionary, as upstream.
const DICT_MIN_BYTES: u64 = 8191;

/// `$prefix` and `${prefix}` stand for where relative paths begin.
fn with_prefix(load: &Load, path: &Bytes) -> Bytes {
    let prefix = load.full_name(b"");
    let mut out = Vec::with_capacity(path.len() + prefix.len());
    let mut rest = &path[..];
    while let Some((&first, behind)) = rest.split_first() {
        let name = [&b"${prefix}"[..], b"$prefix"].into_iter().find(|name| rest.starts_with(name));
        match name {
            Some(name) => {
                out.extend_from_slice(&prefix);
                rest = &rest[name.len()..];
            }
            None => {
                out.push(first);
                rest = behind;
            }
        }
    }
    out.into()
}

fn read_shared_dict(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let [name, size] = &directive.args[..] else { unreachable!("two arguments") };
    let invalid = |what: &str, value: &Bytes| {
        directive.error(message(&[&"invalid lua shared dict ", &what, &" \"", &printed(value), &"\""]))
    };
    if name.is_empty() {
        return Err(invalid("name", name));
    }
    let bytes = parse_size(size).filter(|&bytes| bytes > DICT_MIN_BYTES);
    let bytes = bytes.ok_or_else(|| invalid("size", size))?;
    let load = &mut *scope.conf;
    let main = load.main(&LUA_MAIN);
    *main.is_used = true;
    if main.dictionaries.iter().any(|zone| zone.name() == &name[..]) {
        let parts: [&dyn AsRef<[u8]>; 5] =
            [&"lua_shared_dict \"", name, &"\" is already defined as \"", name, &"\""];
        return Err(directive.error(message(&parts)));
    }
    let zones = load.environment().services.find::<Arc<Zones>>().cloned();
    let zones = zones.ok_or_else(|| Error::unplaced("no shared memory zones"))?;
    let zone = zones.declare_dict(name, bytes, "lua_shared_dict").map_err(|text| directive.error(text))?;
    load.main(&LUA_MAIN).dictionaries.push(zone);
    Ok(())
}
