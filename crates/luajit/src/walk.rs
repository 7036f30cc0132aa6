//! Where Lua is: the stack of a run, read in a signal's handler on its thread, or by another thread while
//! that one sleeps. Everything is read by asking the kernel, which says what is not there, and is believed
//! as far as tags and bounds agree: a stack may be read while it changes. Allocates nothing.
//!
//! 1. Where the innermost frame is depends on what the VM does. In compiled code the trace's number leads to
//!    where the trace begins, and `jit_base` to the frames below. In the interpreter's own code its registers
//!    are the frame and the next instruction. Elsewhere (C functions, the collector, the recorder) LuaJIT has
//!    stored both before it called C.
//! 2. A frame is two slots below its base: the function, and either where its caller goes on (an
//!    instruction) or the distance to the frame below, with a kind in the three lowest bits.
//! 3. Functions that the compiler has put into a trace show as the place where the trace begins. What a
//!    trace has called (the collector, as a rule) shows with its function, and without a line.

use std::fmt;

use clearway_os::stack_walk;

use crate::layout::{interpreter, layout};
use crate::registry::Run;

/// Frames of one stack that are read; the outermost are left out.
pub const FRAMES_MAX: usize = 32;
/// Bytes of a chunk's name that are kept: its end, where a path has the file's name.
pub const CHUNK_BYTES_MAX: usize = 48;

const SLOT: usize = 8;
/// Slots of a stack that are read at a time, from above.
const WINDOW: usize = 128;
/// Windows that are read of one stack at most.
const WINDOWS_MAX: usize = 16;
/// The lower bits of a slot that has a reference are the address.
const ADDRESS: u64 = (1 << 47) - 1;
const KIND: u64 = 7;
const CONTINUATION: u64 = 2;
const VARARG: u64 = 3;

/// Registers of an interrupted thread.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The next instruction.
    pub pc: usize,
    /// Where the interpreter has the base of the frame.
    pub base: usize,
    /// Where the interpreter has the next instruction of Lua.
    pub bytecode: usize,
}

/// The activity of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    /// Something that cannot be told.
    #[default]
    Unknown,
    /// Compiled code.
    Compiled,
    /// Interpreted code, or C on its behalf.
    Interpreted,
    /// A function of C.
    Native,
    /// Garbage is collected.
    Collecting,
    /// Compiled code is left.
    Leaving,
    /// Code is recorded, to be compiled.
    Recording,
    /// A recorded trace is being optimized or assembled.
    Compiling,
}

/// One function on a stack of Lua.
#[derive(Clone, Copy)]
pub struct Frame {
    /// The address of a function of C's; 0 for one of Lua's.
    pub native: usize,
    /// Where it is; 0 if that cannot be told.
    pub line: u32,
    /// Where the function begins.
    pub first_line: u32,
    chunk_len: u8,
    chunk: [u8; CHUNK_BYTES_MAX],
}

impl Frame {
    const EMPTY: Self = Self { native: 0, line: 0, first_line: 0, chunk_len: 0, chunk: [0; CHUNK_BYTES_MAX] };

    /// The name of the code, without the mark in front of it; of a long one, the end.
    #[must_use]
    pub fn chunk(&self) -> &[u8] {
        &self.chunk[..usize::from(self.chunk_len)]
    }
}

impl PartialEq for Frame {
    fn eq(&self, other: &Self) -> bool {
        let key = |frame: &Self| (frame.native, frame.line, frame.first_line);
        key(self) == key(other) && self.chunk() == other.chunk()
    }
}

impl Eq for Frame {}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { native, line, first_line, .. } = self;
        match native {
            0 => write!(f, "{}:{line} ({first_line})", String::from_utf8_lossy(self.chunk())),
            native => write!(f, "{native:#x}"),
        }
    }
}

/// A stack of Lua.
#[derive(Clone, Copy)]
pub struct LuaStack {
    /// The activity of the VM.
    pub activity: Activity,
    len: usize,
    frames: [Frame; FRAMES_MAX],
}

impl fmt::Debug for LuaStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}", self.activity, self.frames())
    }
}

impl Default for LuaStack {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl LuaStack {
    pub(crate) const EMPTY: Self =
        Self { activity: Activity::Unknown, len: 0, frames: [Frame::EMPTY; FRAMES_MAX] };

    /// The functions, the innermost first.
    #[must_use]
    pub fn frames(&self) -> &[Frame] {
        &self.frames[..self.len]
    }

    /// Reads the stack of a run into this: with the registers of the thread where it was interrupted, or
    /// without where it sleeps. Async-signal-safe.
    pub fn read(&mut self, run: &Run, registers: Option<&Registers>) {
        self.clear();
        let _ = self.read_from(run, registers);
    }

    pub(crate) fn clear(&mut self) {
        (self.len, self.activity) = (0, Activity::Unknown);
    }

    fn read_from(&mut self, run: &Run, registers: Option<&Registers>) -> Option<()> {
        let in_global = |offset: u32| run.global + offset as usize;
        let vm_state = i32::from_ne_bytes(copy(in_global(layout().global_vmstate))?);
        let state = ThreadView::read(word(in_global(layout().global_cur_state))?)?;
        self.activity = activity(vm_state);
        let mut inner = Inner { base: state.base, next: None, traced: None };
        if self.activity == Activity::Compiled {
            inner.traced = self.add_trace(run, vm_state);
            inner.base = word(in_global(layout().global_jit_base)).filter(|base| *base != 0)?;
        } else if let Some(interpreted) = registers.and_then(|registers| state.interpreted(registers)) {
            inner = interpreted;
        } else {
            inner.next = state.saved_bytecode();
        }
        self.walk(&state, &inner);
        Some(())
    }

    /// Rule 3: where the trace begins that runs.
    fn add_trace(&mut self, run: &Run, number: i32) -> Option<usize> {
        let number = usize::try_from(number).ok()?;
        let traces = word(run.global + layout().global_traces as usize)?;
        let len = u32::from_ne_bytes(copy(run.global + layout().global_traces_len as usize)?);
        let trace = (number > 0 && number < len as usize).then_some(traces + number * SLOT)?;
        let trace = word(trace).filter(|trace| has_tag(*trace, layout().tag_trace))?;
        let proto = Proto::read(word(trace + layout().trace_proto as usize)?)?;
        let start = word(trace + layout().trace_start as usize)?;
        self.push(proto.frame(start.checked_add(4)));
        Some(proto.bytecode)
    }

    fn push(&mut self, frame: Frame) {
        if self.len < FRAMES_MAX {
            self.frames[self.len] = frame;
            self.len += 1;
        }
    }

    /// Walks the frames of one thread (rule 2).
    fn walk(&mut self, state: &ThreadView, inner: &Inner) -> Option<()> {
        let mut window = Window::default();
        let (mut base, mut next, mut is_pseudo) = (inner.base, inner.next, false);
        let mut traced = inner.traced;
        while base >= state.stack + 2 * SLOT && base <= state.max && self.len < FRAMES_MAX {
            let function = (window.slot(base - 2 * SLOT)? & ADDRESS) as usize;
            let link = window.slot(base - SLOT)?;
            if !is_pseudo && function != state.address && has_tag(function, layout().tag_function) {
                let function = Function::read(function)?;
                // A trace that begins in the innermost function has said where that is.
                if traced.take() != Some(function.code) {
                    self.push(function.frame(next)?);
                }
            }
            (base, next, is_pseudo) = match link & KIND {
                _ if link & 3 == 0 => {
                    let bytecode = link as usize;
                    let call: [u8; 4] = copy(bytecode.checked_sub(4)?)?;
                    (base.checked_sub((2 + usize::from(call[1])) * SLOT)?, Some(bytecode), false)
                }
                kind => {
                    let next = if kind == CONTINUATION {
                        Some(window.slot(base - 3 * SLOT)? as usize)
                    } else {
                        None
                    };
                    let below = base.checked_sub((link & !KIND) as usize).filter(|below| *below < base)?;
                    (below, next, kind == VARARG)
                }
            };
        }
        Some(())
    }
}

/// The innermost frame of a stack, and the instruction behind the one that it is at.
struct Inner {
    base: usize,
    next: Option<usize>,
    /// The bytecode of the function that the running trace begins in, which is on the stack read so far.
    traced: Option<usize>,
}

/// A thread of Lua, as far as it is looked at.
struct ThreadView {
    address: usize,
    base: usize,
    stack: usize,
    max: usize,
    cframe: usize,
}

impl ThreadView {
    fn read(address: usize) -> Option<Self> {
        const BYTES: usize = 128;
        debug_assert!(layout().state_size as usize <= BYTES, "all of it");
        let bytes: [u8; BYTES] = copy(address)?;
        let field = |offset: u32| {
            let at = offset as usize;
            Some(usize::from_ne_bytes(bytes.get(at..at + SLOT)?.try_into().ok()?))
        };
        let is_thread = bytes[layout().object_tag as usize] == layout().tag_thread as u8;
        let state = Self {
            address,
            base: field(layout().state_base)?,
            stack: field(layout().state_stack)?,
            max: field(layout().state_max)?,
            cframe: field(layout().state_cframe)?,
        };
        (is_thread && state.stack <= state.base && state.base <= state.max).then_some(state)
    }

    /// The function in the registers of the interpreter, if they can be those of its code.
    fn interpreted(&self, registers: &Registers) -> Option<Inner> {
        let Registers { pc, base, bytecode } = *registers;
        let is_there = interpreter().contains(&pc) && base > self.stack + SLOT && base <= self.max;
        let function = is_there.then(|| word(base - 2 * SLOT))?? & ADDRESS as usize;
        Function::read(function)?.proto()?.contains(bytecode).then_some(Inner {
            base,
            next: Some(bytecode),
            traced: None,
        })
    }

    /// The position that the interpreter has stored before it called C.
    fn saved_bytecode(&self) -> Option<usize> {
        let frame = self.cframe & layout().cframe_mask.cast_signed() as isize as usize;
        word(frame.checked_add(layout().cframe_pc as usize)?).filter(|_| frame != 0)
    }
}

/// A function, with the part that says what it is.
struct Function {
    is_lua: bool,
    /// The bytecode, or the address of a function of C's.
    code: usize,
}

impl Function {
    fn read(address: usize) -> Option<Self> {
        let [kind] = copy(address + layout().function_kind as usize)?;
        has_tag(address, layout().tag_function).then_some(())?;
        let is_lua = u32::from(kind) == layout().kind_lua;
        let at = if is_lua { layout().function_bytecode } else { layout().function_native };
        Some(Self { is_lua, code: word(address + at as usize)? })
    }

    fn proto(&self) -> Option<Proto> {
        let proto = self.is_lua.then(|| self.code.checked_sub(layout().proto_size as usize))??;
        Proto::read(proto)
    }

    fn frame(&self, next: Option<usize>) -> Option<Frame> {
        if self.is_lua {
            return self.proto().map(|proto| proto.frame(next));
        }
        Some(Frame { native: self.code, ..Frame::EMPTY })
    }
}

/// The common part of the functions of one place in the source.
struct Proto {
    bytecode: usize,
    bytecodes: usize,
    chunk: usize,
    first_line: u32,
    lines: u32,
    line_info: usize,
}

impl Proto {
    fn read(address: usize) -> Option<Self> {
        const BYTES: usize = 128;
        let size = layout().proto_size as usize;
        debug_assert!(size <= BYTES, "all of it");
        let bytes: [u8; BYTES] = copy(address)?;
        let half = |offset: u32| {
            let at = offset as usize;
            Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        let whole = |offset: u32| {
            let at = offset as usize;
            Some(usize::from_ne_bytes(bytes.get(at..at + SLOT)?.try_into().ok()?))
        };
        let is_proto = bytes[layout().object_tag as usize] == layout().tag_proto as u8;
        is_proto.then_some(Self {
            bytecode: address + size,
            bytecodes: half(layout().proto_bytecodes)? as usize,
            chunk: whole(layout().proto_chunk)?,
            first_line: half(layout().proto_first_line)?,
            lines: half(layout().proto_lines)?,
            line_info: whole(layout().proto_line_info)?,
        })
    }

    fn contains(&self, bytecode: usize) -> bool {
        bytecode.checked_sub(self.bytecode).is_some_and(|bytes| bytes <= self.bytecodes * 4)
    }

    /// With the line of the instruction before `next`.
    fn frame(&self, next: Option<usize>) -> Frame {
        let line = next.and_then(|next| self.line(next)).unwrap_or(0);
        let mut frame = Frame { line, first_line: self.first_line, ..Frame::EMPTY };
        let _ = self.read_chunk(&mut frame);
        frame
    }

    fn line(&self, next: usize) -> Option<u32> {
        let position = self.contains(next).then(|| (next - self.bytecode) / 4)?.checked_sub(1)?;
        // Stripped bytecode has no lines.
        let index = match position {
            _ if self.line_info == 0 || position >= self.bytecodes => return None,
            0 => return Some(self.first_line),
            position => position - 1,
        };
        let offset = if self.lines < 1 << 8 {
            u32::from(copy::<1>(self.line_info + index)?[0])
        } else if self.lines < 1 << 16 {
            u32::from(u16::from_ne_bytes(copy(self.line_info + index * 2)?))
        } else {
            u32::from_ne_bytes(copy(self.line_info + index * 4)?)
        };
        Some(self.first_line + offset)
    }

    fn read_chunk(&self, frame: &mut Frame) -> Option<()> {
        has_tag(self.chunk, layout().tag_string).then_some(())?;
        let len = u32::from_ne_bytes(copy(self.chunk + layout().string_len as usize)?) as usize;
        // `=name`, `@path`.
        let (begin, len) = (self.chunk + layout().string_size as usize + 1, len.checked_sub(1)?);
        let kept = len.min(CHUNK_BYTES_MAX);
        let into = &mut frame.chunk[..kept];
        if stack_walk::copy_bytes(begin + (len - kept), into) == kept {
            frame.chunk_len = kept as u8;
        }
        Some(())
    }
}

/// A part of a stack, read at once.
struct Window {
    words: [u8; WINDOW * SLOT],
    low: usize,
    len: usize,
    read: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { words: [0; WINDOW * SLOT], low: 0, len: 0, read: 0 }
    }
}

impl Window {
    fn slot(&mut self, address: usize) -> Option<u64> {
        if !(self.low..self.low + self.len).contains(&address) || address + SLOT > self.low + self.len {
            (self.read < WINDOWS_MAX).then_some(())?;
            self.read += 1;
            // Up to and with this slot: the walk goes down.
            self.low = (address + SLOT).checked_sub(WINDOW * SLOT)?;
            self.len = stack_walk::copy_bytes(self.low, &mut self.words);
            if self.len < WINDOW * SLOT {
                // Below a stack there may be nothing: the slot alone.
                (self.low, self.len) = (address, stack_walk::copy_bytes(address, &mut self.words[..SLOT]));
            }
        }
        let at = address - self.low;
        Some(u64::from_ne_bytes(self.words.get(at..at + SLOT)?.try_into().ok()?))
    }
}

fn activity(vm_state: i32) -> Activity {
    let Ok(state) = u32::try_from(!vm_state) else { return Activity::Compiled };
    let it = layout();
    match state {
        _ if state == it.vm_interpreter => Activity::Interpreted,
        _ if state == it.vm_native => Activity::Native,
        _ if state == it.vm_collector => Activity::Collecting,
        _ if state == it.vm_exit => Activity::Leaving,
        _ if state == it.vm_recorder => Activity::Recording,
        _ if state == it.vm_optimizer || state == it.vm_assembler => Activity::Compiling,
        _ => Activity::Unknown,
    }
}

fn has_tag(object: usize, tag: u32) -> bool {
    copy(object.wrapping_add(layout().object_tag as usize)).is_some_and(|[its]| u32::from(its) == tag)
}

fn word(address: usize) -> Option<usize> {
    copy(address).map(usize::from_ne_bytes)
}

fn copy<const N: usize>(address: usize) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    (stack_walk::copy_bytes(address, &mut bytes) == N).then_some(bytes)
}
