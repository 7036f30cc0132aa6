//! Declarations of the functions of LuaJIT's library that are called here, under their C names. The files
//! that call them say when they may be called.
#![expect(unsafe_code, reason = "declarations of foreign functions")]

use std::ffi::{c_char, c_int, c_void};
use std::marker::{PhantomData, PhantomPinned};

use crate::layout::Layout;

/// A thread of Lua: the main one of a VM or a coroutine.
#[repr(C)]
pub(crate) struct LuaState {
    opaque: [u8; 0],
    of_one_thread_and_in_one_place: PhantomData<(*mut u8, PhantomPinned)>,
}

/// `lua_Debug`: a running function. Which fields are set depends on the letters given to `lua_getinfo`.
#[repr(C)]
pub(crate) struct Activation {
    pub(crate) event: c_int,
    pub(crate) name: *const c_char,
    pub(crate) name_what: *const c_char,
    pub(crate) what: *const c_char,
    pub(crate) source: *const c_char,
    pub(crate) current_line: c_int,
    pub(crate) upvalues: c_int,
    pub(crate) line_defined: c_int,
    pub(crate) last_line_defined: c_int,
    pub(crate) short_source: [c_char; 60],
    pub(crate) frame: c_int,
}

pub(crate) type Function = unsafe extern "C-unwind" fn(*mut LuaState) -> c_int;
pub(crate) type Hook = unsafe extern "C-unwind" fn(*mut LuaState, *mut Activation);
pub(crate) type Allocate = unsafe extern "C" fn(*mut c_void, *mut c_void, usize, usize) -> *mut c_void;

pub(crate) const REGISTRY: c_int = -10_000;
pub(crate) const GLOBALS: c_int = -10_002;

pub(crate) const OK: c_int = 0;
pub(crate) const YIELDED: c_int = 1;
pub(crate) const ERROR_SYNTAX: c_int = 3;
pub(crate) const ERROR_MEMORY: c_int = 4;

pub(crate) const TYPE_BOOLEAN: c_int = 1;
pub(crate) const TYPE_LIGHT_USERDATA: c_int = 2;
pub(crate) const TYPE_NUMBER: c_int = 3;
pub(crate) const TYPE_STRING: c_int = 4;
pub(crate) const TYPE_TABLE: c_int = 5;
pub(crate) const TYPE_FUNCTION: c_int = 6;
pub(crate) const TYPE_USERDATA: c_int = 7;
pub(crate) const TYPE_THREAD: c_int = 8;
pub(crate) const TYPE_CDATA: c_int = 10;

pub(crate) const HOOK_COUNT: c_int = 1 << 3;
pub(crate) const COLLECT: c_int = 2;

// SAFETY: names and types are those of lua.h, lauxlib.h and c/layout.c of the version that is linked.
// "C-unwind" where an error may pass: it unwinds to the innermost protected call.
unsafe extern "C-unwind" {
    pub(crate) fn luaL_newstate() -> *mut LuaState;
    pub(crate) fn luaL_openlibs(state: *mut LuaState);
    pub(crate) fn lua_close(state: *mut LuaState);
    pub(crate) fn lua_newthread(state: *mut LuaState) -> *mut LuaState;
    pub(crate) fn lua_checkstack(state: *mut LuaState, slots: c_int) -> c_int;
    pub(crate) fn lua_pushlstring(state: *mut LuaState, text: *const c_char, len: usize);
    pub(crate) fn lua_pushcclosure(state: *mut LuaState, function: Function, upvalues: c_int);
    pub(crate) fn lua_createtable(state: *mut LuaState, items: c_int, fields: c_int);
    pub(crate) fn lua_tolstring(state: *mut LuaState, at: c_int, len: *mut usize) -> *const c_char;
    pub(crate) fn lua_gettable(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_settable(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_rawset(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_rawseti(state: *mut LuaState, at: c_int, index: c_int);
    pub(crate) fn lua_getinfo(state: *mut LuaState, what: *const c_char, of: *mut Activation) -> c_int;
    pub(crate) fn lua_next(state: *mut LuaState, at: c_int) -> c_int;
    pub(crate) fn lua_concat(state: *mut LuaState, count: c_int);
    pub(crate) fn lua_pcall(state: *mut LuaState, arguments: c_int, results: c_int, handler: c_int) -> c_int;
    pub(crate) fn lua_cpcall(state: *mut LuaState, function: Function, data: *mut c_void) -> c_int;
    pub(crate) fn lua_resume(state: *mut LuaState, arguments: c_int) -> c_int;
    pub(crate) fn lua_yield(state: *mut LuaState, results: c_int) -> c_int;
    pub(crate) fn lua_error(state: *mut LuaState) -> c_int;
    pub(crate) fn lua_gc(state: *mut LuaState, what: c_int, data: c_int) -> c_int;
    pub(crate) fn luaL_argerror(state: *mut LuaState, argument: c_int, text: *const c_char) -> c_int;
    pub(crate) fn luaL_where(state: *mut LuaState, level: c_int);
    pub(crate) fn luaL_ref(state: *mut LuaState, table: c_int) -> c_int;
    pub(crate) fn luaL_unref(state: *mut LuaState, table: c_int, key: c_int);
    pub(crate) fn luaL_traceback(state: *mut LuaState, of: *mut LuaState, text: *const c_char, level: c_int);
    pub(crate) fn luaL_loadbufferx(
        state: *mut LuaState,
        code: *const c_char,
        len: usize,
        name: *const c_char,
        mode: *const c_char,
    ) -> c_int;
}

// SAFETY: as above. No error passes through these.
unsafe extern "C" {
    pub(crate) fn lua_atpanic(state: *mut LuaState, function: Function) -> Option<Function>;
    pub(crate) fn lua_getallocf(state: *mut LuaState, data: *mut *mut c_void) -> Allocate;
    pub(crate) fn lua_setallocf(state: *mut LuaState, function: Allocate, data: *mut c_void);
    pub(crate) fn lua_settop(state: *mut LuaState, top: c_int);
    pub(crate) fn lua_pushvalue(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_remove(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_insert(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_replace(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_xmove(from: *mut LuaState, to: *mut LuaState, count: c_int);
    pub(crate) fn lua_type(state: *mut LuaState, at: c_int) -> c_int;
    pub(crate) fn lua_tonumber(state: *mut LuaState, at: c_int) -> f64;
    pub(crate) fn lua_isnumber(state: *mut LuaState, at: c_int) -> c_int;
    pub(crate) fn lua_toboolean(state: *mut LuaState, at: c_int) -> c_int;
    pub(crate) fn lua_topointer(state: *mut LuaState, at: c_int) -> *const c_void;
    pub(crate) fn lua_objlen(state: *mut LuaState, at: c_int) -> usize;
    pub(crate) fn lua_getstack(state: *mut LuaState, level: c_int, of: *mut Activation) -> c_int;
    pub(crate) fn lua_newuserdata(state: *mut LuaState, bytes: usize) -> *mut c_void;
    pub(crate) fn lua_pushlightuserdata(state: *mut LuaState, address: *const c_void);
    pub(crate) fn lua_pushnil(state: *mut LuaState);
    pub(crate) fn lua_pushnumber(state: *mut LuaState, number: f64);
    pub(crate) fn lua_pushboolean(state: *mut LuaState, value: c_int);
    pub(crate) fn lua_rawget(state: *mut LuaState, at: c_int);
    pub(crate) fn lua_rawgeti(state: *mut LuaState, at: c_int, index: c_int);
    pub(crate) fn lua_getmetatable(state: *mut LuaState, at: c_int) -> c_int;
    pub(crate) fn lua_setmetatable(state: *mut LuaState, at: c_int) -> c_int;
    pub(crate) fn lua_isyieldable(state: *mut LuaState) -> c_int;
    pub(crate) fn lua_sethook(state: *mut LuaState, hook: Option<Hook>, mask: c_int, count: c_int) -> c_int;

    /// LuaJIT's own: frees the arena that `luaL_newstate` made. `lua_close` frees it only if the VM still has
    /// LuaJIT's own allocator.
    pub(crate) fn lj_alloc_destroy(arena: *mut c_void);

    pub(crate) static clearway_luajit_layout: Layout;
    pub(crate) fn clearway_luajit_code_begin() -> *const u8;
    pub(crate) fn clearway_luajit_code_end() -> *const u8;
}
