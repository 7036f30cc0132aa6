//! Where this build of LuaJIT keeps the data that is read by address. The structure is filled by c/layout.c,
//! which has the same fields in the same order. Any thread, also in a signal's handler.
#![expect(unsafe_code, reason = "a constant and two addresses that C has made")]

use std::ops::Range;

use crate::ffi;

/// Offsets in bytes, sizes, tags and states. Each field is named after its counterpart in LuaJIT's headers.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) global_vmstate: u32,
    pub(crate) global_cur_state: u32,
    pub(crate) global_jit_base: u32,
    pub(crate) global_hook_mask: u32,
    pub(crate) global_gc_total: u32,
    pub(crate) global_gc_threshold: u32,
    pub(crate) global_traces: u32,
    pub(crate) global_traces_len: u32,
    pub(crate) state_global: u32,
    pub(crate) state_base: u32,
    pub(crate) state_top: u32,
    pub(crate) state_max: u32,
    pub(crate) state_stack: u32,
    pub(crate) state_cframe: u32,
    pub(crate) state_size: u32,
    pub(crate) object_tag: u32,
    pub(crate) function_kind: u32,
    pub(crate) function_bytecode: u32,
    pub(crate) function_native: u32,
    pub(crate) proto_size: u32,
    pub(crate) proto_bytecodes: u32,
    pub(crate) proto_chunk: u32,
    pub(crate) proto_first_line: u32,
    pub(crate) proto_lines: u32,
    pub(crate) proto_line_info: u32,
    pub(crate) string_len: u32,
    pub(crate) string_size: u32,
    pub(crate) trace_proto: u32,
    pub(crate) trace_start: u32,
    pub(crate) cframe_pc: u32,
    pub(crate) cframe_mask: u32,
    pub(crate) tag_string: u32,
    pub(crate) tag_thread: u32,
    pub(crate) tag_proto: u32,
    pub(crate) tag_function: u32,
    pub(crate) tag_trace: u32,
    pub(crate) kind_lua: u32,
    pub(crate) vm_interpreter: u32,
    pub(crate) vm_native: u32,
    pub(crate) vm_collector: u32,
    pub(crate) vm_exit: u32,
    pub(crate) vm_recorder: u32,
    pub(crate) vm_optimizer: u32,
    pub(crate) vm_assembler: u32,
}

/// The layout of the library that is linked.
#[inline]
pub(crate) fn layout() -> &'static Layout {
    // SAFETY: a constant of c/layout.c, whose structure has these fields in this order, all `uint32_t`.
    unsafe { &ffi::clearway_luajit_layout }
}

/// The addresses of the interpreter's own code.
pub(crate) fn interpreter() -> Range<usize> {
    // SAFETY: both return an address and touch nothing.
    unsafe { ffi::clearway_luajit_code_begin().addr()..ffi::clearway_luajit_code_end().addr() }
}
