/*
** Where the structures of this build of LuaJIT have which field, and what its tags and states are.
** src/layout.rs declares the same structure.
*/
#include <stddef.h>
#include <stdint.h>

#include "lj_obj.h"
#include "lj_bc.h"
#include "lj_ccall.h"
#include "lj_dispatch.h"
#include "lj_frame.h"
#include "lj_jit.h"
#include "lj_vm.h"

#if !LJ_GC64 || !LJ_FR2 || !LJ_HASJIT
#error "stacks are read as 64-bit builds with a compiler have them"
#endif

#define IN_GLOBAL(field) offsetof(global_State, field)
#define IN_JIT(field) \
  (offsetof(GG_State, J) + offsetof(jit_State, field) - offsetof(GG_State, g))

struct layout {
  uint32_t global_vmstate, global_cur_state, global_jit_base, global_hook_mask;
  uint32_t global_gc_total, global_gc_threshold, global_traces, global_traces_len;
  uint32_t state_global, state_base, state_top, state_max, state_stack, state_cframe, state_size;
  uint32_t object_tag, function_kind, function_bytecode, function_native;
  uint32_t proto_size, proto_bytecodes, proto_chunk, proto_first_line, proto_lines, proto_line_info;
  uint32_t string_len, string_size;
  uint32_t trace_proto, trace_start;
  uint32_t cframe_pc, cframe_mask;
  uint32_t tag_string, tag_thread, tag_proto, tag_function, tag_trace, kind_lua;
  uint32_t vm_interpreter, vm_native, vm_collector, vm_exit, vm_recorder, vm_optimizer, vm_assembler;
};

const struct layout clearway_luajit_layout = {
  IN_GLOBAL(vmstate), IN_GLOBAL(cur_L), IN_GLOBAL(jit_base), IN_GLOBAL(hookmask),
  IN_GLOBAL(gc.total), IN_GLOBAL(gc.threshold), IN_JIT(trace), IN_JIT(sizetrace),
  offsetof(lua_State, glref), offsetof(lua_State, base), offsetof(lua_State, top),
  offsetof(lua_State, maxstack), offsetof(lua_State, stack), offsetof(lua_State, cframe),
  sizeof(lua_State),
  offsetof(GChead, gct), offsetof(GCfuncL, ffid), offsetof(GCfuncL, pc), offsetof(GCfuncC, f),
  sizeof(GCproto), offsetof(GCproto, sizebc), offsetof(GCproto, chunkname),
  offsetof(GCproto, firstline), offsetof(GCproto, numline), offsetof(GCproto, lineinfo),
  offsetof(GCstr, len), sizeof(GCstr),
  offsetof(GCtrace, startpt), offsetof(GCtrace, startpc),
  CFRAME_OFS_PC, (uint32_t)CFRAME_RAWMASK,
  (uint8_t)~LJ_TSTR, (uint8_t)~LJ_TTHREAD, (uint8_t)~LJ_TPROTO, (uint8_t)~LJ_TFUNC, (uint8_t)~LJ_TTRACE,
  FF_LUA,
  LJ_VMST_INTERP, LJ_VMST_C, LJ_VMST_GC, LJ_VMST_EXIT, LJ_VMST_RECORD, LJ_VMST_OPT, LJ_VMST_ASM,
};

/* The interpreter's code, which is assembler: from its first to behind its last function. */
const char *clearway_luajit_code_begin(void)
{
  return (const char *)lj_vm_asm_begin;
}

const char *clearway_luajit_code_end(void)
{
  return (const char *)(uintptr_t)lj_vm_ffi_call + LAST_FUNCTION_SIZE;
}
