//! The settings of Lua, at each level. Written while it is read, read by requests.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use clearway_http::{Answers, ConfKey, Level, Own, Setting, settings};
use clearway_offload::Pool;
use clearway_zone::Zone;

use crate::code::Code;
use crate::vm::choice::Reserves;
use crate::vm::texts::Texts;
use crate::vm::vms::{OfLoop, Vms};

/// The settings of a location.
pub(crate) static LUA_CONF: ConfKey<LuaConf> = ConfKey::new(Level::Location);
/// The settings of `http`.
pub(crate) static LUA_MAIN: ConfKey<LuaMain> = ConfKey::new(Level::Main);

/// The default of `lua_time_slice`: with the build flag `CLEARWAY_LUA_TIME_SLICE_MS=N`, all code gives others
/// their turn after N milliseconds.
const TIME_SLICE: Option<Duration> = slice_of(option_env!("CLEARWAY_LUA_TIME_SLICE_MS"));

const fn slice_of(text: Option<&str>) -> Option<Duration> {
    let Some(text) = text else { return None };
    let (digits, mut ms, mut i) = (text.as_bytes(), 0, 0);
    while i < digits.len() {
        assert!(digits[i].is_ascii_digit(), "CLEARWAY_LUA_TIME_SLICE_MS is a number");
        ms = ms * 10 + (digits[i] - b'0') as u64;
        i += 1;
    }
    if ms == 0 { None } else { Some(Duration::from_millis(ms)) }
}

settings! {
    pub(crate) struct LuaConf {
        pub(crate) server_rewrite: Setting<Option<Arc<Code>>>,
        pub(crate) rewrite: Setting<Option<Arc<Code>>>,
        pub(crate) access: Setting<Option<Arc<Code>>>,
        pub(crate) precontent: Setting<Option<Arc<Code>>>,
        pub(crate) content: Answers<Option<Arc<Code>>>,
        pub(crate) header_filter: Setting<Option<Arc<Code>>>,
        pub(crate) body_filter: Setting<Option<Arc<Code>>>,
        pub(crate) log: Setting<Option<Arc<Code>>>,
        pub(crate) rewrite_no_postpone: Setting<bool> = false,
        pub(crate) access_no_postpone: Setting<bool> = false,
        pub(crate) code_cache: Setting<bool> = true,
        pub(crate) need_request_body: Setting<bool> = false,
        pub(crate) http10_buffering: Setting<bool> = true,
        pub(crate) check_client_abort: Setting<bool> = false,
        pub(crate) transform_underscores: Setting<bool> = true,
        pub(crate) max_run_time: Setting<Option<Duration>>,
        pub(crate) time_slice: Setting<Option<Duration>> = TIME_SLICE,
        pub(crate) use_default_type: Setting<bool> = true,
        pub(crate) precontent_no_postpone: Setting<bool> = false,
        pub(crate) malloc_trim: Setting<u64> = 0_u64,
        pub(crate) sa_restart: Setting<bool> = true,
    }
}

settings! {
    pub(crate) struct LuaMain {
        pub(crate) init: Setting<Option<Arc<Code>>>,
        pub(crate) init_worker: Setting<Option<Arc<Code>>>,
        pub(crate) exit_worker: Setting<Option<Arc<Code>>>,
        pub(crate) package_path: Setting<Option<Bytes>>,
        pub(crate) package_cpath: Setting<Option<Bytes>>,
        pub(crate) thread_cache_max_entries: Setting<usize> = clearway_luajit::IDLE_MAX,
        pub(crate) regex_cache_max_entries: Setting<usize> = 1024_usize,
        pub(crate) regex_match_limit: Setting<u32> = 0_u32,
        pub(crate) reserve_vms: Setting<Reserves>,
        pub(crate) max_memory_bytes: Setting<Option<usize>>,
        /// `lua_capture_error_log`; 0: none are kept.
        pub(crate) kept_lines_bytes: Setting<usize> = 0_usize,
        /// Code of filters that is in files: VMs begin with it.
        pub(crate) ahead: Own<Vec<Arc<Code>>>,
        pub(crate) dictionaries: Own<Vec<Arc<Zone>>>,
        pub(crate) pool: Own<Option<Arc<Pool>>>,
        pub(crate) is_used: Own<bool>,
        pub(crate) vms: Own<OnceLock<Arc<Vms>>>,
        pub(crate) texts: Own<Texts>,
        /// VMs that were made before there were loops.
        pub(crate) made_ahead: Own<Mutex<Option<Vec<OfLoop>>>>,
        /// `lua_max_run_time` of `http` itself.
        pub(crate) init_run_time: Own<Option<Duration>>,
        pub(crate) init_privileged: Setting<bool> = false,
        /// Requests since memory was given back (`lua_malloc_trim`).
        pub(crate) untrimmed: Own<AtomicU64>,
    }
}
