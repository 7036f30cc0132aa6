//! The frames of a stack, found by frame pointers: of the calling thread in a signal handler, or of a
//! sleeping one whose stack was copied. What is read is an allegation: a record counts as a frame if it
//! lies on the stack, above the last one, and returns into this program.
//!
//! Our code is built with frame pointers, foreign code (and the standard library) may not be. Where the
//! chain is broken the address is looked for that lies behind a call of the very function; where that does
//! not help, the next record that has another one behind it, which may be left over from before. A function
//! of a library that was called by our code is given its caller by the first word on the stack behind a call
//! that can lead out of this program: only where its frame pointer is its caller's, or is not known.
#![expect(unsafe_code, reason = "reads of a stack, and of code, by address")]

use std::io;
use std::ops::Range;

use crate::program::text;

/// Frames of one sample at most.
pub const FRAMES_MAX: usize = 64;

/// Words that one walk looks through for records and for addresses to return to, altogether: a signal handler
/// walks, too, and a thread that it interrupts may be one that others wait for.
const SEARCHED_WORDS_MAX: usize = 16_384;

/// Words in which the address is looked for that one function returns to.
const RETURN_WORDS_MAX: usize = 1024;

/// Places that calls go through by their address, of which one walk asks the kernel.
const PLACES_MAX: u32 = 32;

/// Words in which a function of a library, and those that it was called by there, have the address that they
/// return to in this program: system(3) has some hundred of its own.
const LIBRARY_WORDS_MAX: usize = 256;

/// Functions are shorter than this, bytes.
const FUNCTION_BYTES_MAX: usize = 16 << 10;

/// How much of a sleeping thread's stack is copied, bytes.
const COPY_BYTES_MAX: usize = 64 << 10;

const WORD: usize = size_of::<usize>();

/// The registers with which a walk begins.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    /// The instruction.
    pub pc: usize,
    /// Top of the stack.
    pub sp: usize,
    /// The frame; 0 where it is not known.
    pub fp: usize,
    /// Where the function returns to, on processors that have a register for it; else 0.
    pub lr: usize,
}

impl Registers {
    /// The registers of the code that a signal has interrupted.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn of_context(context: &libc::ucontext_t) -> Self {
        let register = |index: libc::c_int| context.uc_mcontext.gregs[index as usize] as usize;
        Self { pc: register(libc::REG_RIP), sp: register(libc::REG_RSP), fp: register(libc::REG_RBP), lr: 0 }
    }

    /// The registers of the code that a signal has interrupted.
    #[cfg(target_arch = "aarch64")]
    pub(crate) fn of_context(context: &libc::ucontext_t) -> Self {
        let machine = &context.uc_mcontext;
        Self {
            pc: machine.pc as usize,
            sp: machine.sp as usize,
            fp: machine.regs[29] as usize,
            lr: machine.regs[30] as usize,
        }
    }
}

/// The registers of interrupted code in which LuaJIT's interpreter keeps its frame and its next instruction.
#[cfg(target_arch = "x86_64")]
pub(crate) fn interpreter_registers(context: &libc::ucontext_t) -> [usize; 2] {
    [libc::REG_RDX, libc::REG_RBX].map(|index| context.uc_mcontext.gregs[index as usize] as usize)
}

/// The registers of interrupted code in which LuaJIT's interpreter keeps its frame and its next instruction.
#[cfg(target_arch = "aarch64")]
pub(crate) fn interpreter_registers(context: &libc::ucontext_t) -> [usize; 2] {
    [19, 21].map(|index| context.uc_mcontext.regs[index] as usize)
}

/// A part of a stack that can be read: the words from its top up to its base.
pub struct Stack<'a> {
    low: usize,
    words: Words<'a>,
    text: Range<usize>,
}

enum Words<'a> {
    /// In place, up to this address.
    Own(usize),
    /// Copied.
    Copied(&'a [usize]),
}

impl Stack<'static> {
    /// The calling thread's, from `sp` up to `base`; `None` where one of them is not on it: foreign code may
    /// run on a stack that it has made itself, wherever that lies.
    ///
    /// # Safety
    /// All of `own`, the stack of the calling thread, is mapped.
    pub(crate) unsafe fn own(sp: usize, base: usize, own: &Range<usize>) -> Option<Self> {
        let is_own = own.start <= sp && sp <= base && base <= own.end;
        is_own.then(|| Self { low: sp.next_multiple_of(WORD), words: Words::Own(base), text: text() })
    }
}

/// The remaining steps of a walk.
struct Budget {
    words: usize,
    places: u32,
}

impl Budget {
    fn new() -> Self {
        Self { words: SEARCHED_WORDS_MAX, places: PLACES_MAX }
    }

    /// Whether another word may be looked at.
    fn spend_word(&mut self) -> bool {
        let left = self.words.checked_sub(1);
        self.words = left.unwrap_or(0);
        left.is_some()
    }

    /// Whether the kernel may be asked for another place.
    fn spend_place(&mut self) -> bool {
        let left = self.places.checked_sub(1);
        self.places = left.unwrap_or(0);
        left.is_some()
    }
}

impl<'a> Stack<'a> {
    /// Words that were copied from `low` on.
    #[must_use]
    pub fn copied(low: usize, words: &'a [usize]) -> Self {
        Self { low, words: Words::Copied(words), text: text() }
    }

    fn read(&self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(WORD) || address < self.low {
            return None;
        }
        match self.words {
            Words::Own(base) => {
                let is_there = address.checked_add(WORD).is_some_and(|end| end <= base);
                let word = std::ptr::with_exposed_provenance::<usize>(address);
                // SAFETY: aligned, and between `low` and `base`, which is mapped (`Stack::own`). Volatile:
                // these are other functions' locals.
                is_there.then(|| unsafe { word.read_volatile() })
            }
            Words::Copied(words) => words.get((address - self.low) / WORD).copied(),
        }
    }

    /// The record at `at`, if it can be one: the next one's address and where to return to.
    fn record(&self, at: usize, lowest: usize) -> Option<(usize, usize)> {
        if at < lowest {
            return None;
        }
        let (next, ret) = (self.read(at)?, self.read(at.checked_add(WORD)?)?);
        self.text.contains(&ret).then_some((next, ret))
    }

    /// Where the function that `inner` is in returns to, if that is behind a call that names the function:
    /// of the addresses behind calls the first one whose call goes to the nearest place before `inner`,
    /// since no function begins within another.
    fn return_of(&self, inner: usize, lowest: usize, budget: &mut Budget) -> Option<usize> {
        if !self.text.contains(&inner) {
            return None;
        }
        let mut nearest = (FUNCTION_BYTES_MAX, None);
        for at in (0..RETURN_WORDS_MAX).map(|index| lowest + index * WORD) {
            let Some(word) = self.read(at).filter(|_| budget.spend_word()) else { break };
            let called = Some(word).filter(|word| self.text.contains(word));
            let called = called.and_then(|word| called_before(word, &self.text, budget));
            if let Some(distance) = called.and_then(|start| inner.checked_sub(start))
                && distance < nearest.0
            {
                nearest = (distance, Some(at));
            }
        }
        nearest.1
    }

    /// The first record from `lowest` on that has another one behind it.
    fn search(&self, lowest: usize, budget: &mut Budget) -> Option<usize> {
        let mut at = lowest;
        while budget.spend_word() {
            let word = self.read(at)?;
            if word > at
                && let Some((next, ret)) = self.record(at, lowest)
                && follows_call(ret, &self.text)
                && self.record(next, at + 2 * WORD).is_some_and(|(_, ret)| follows_call(ret, &self.text))
            {
                return Some(at);
            }
            at += WORD;
        }
        None
    }

    /// Where in this program a function of a library returns to. Room that it has not written to yet may hold
    /// addresses from before; few of them are behind calls that lead out of the program.
    fn library_return(&self, registers: Registers, budget: &mut Budget) -> Option<usize> {
        if registers.lr != 0 {
            return Some(registers.lr).filter(|lr| self.text.contains(lr));
        }
        // A function that uses the register for something else may have any old address on its stack.
        let end = match registers.fp {
            0 => LIBRARY_WORDS_MAX,
            fp => (self.record(fp, self.low).map(|_| fp)? - self.low) / WORD,
        };
        (0..end.min(LIBRARY_WORDS_MAX))
            .map_while(|index| self.read(self.low + index * WORD))
            .find(|word| self.text.contains(word) && follows_call_out(*word, &self.text, budget))
    }
}

/// Gives the addresses of a stack to `found`, the innermost first; [`FRAMES_MAX`] at most.
pub fn walk(registers: Registers, stack: &Stack<'_>, mut found: impl FnMut(usize)) {
    found(registers.pc);
    let mut count = 1;
    let mut last = registers.pc;
    let mut budget = Budget::new();
    if !stack.text.contains(&registers.pc)
        && let Some(ret) = stack.library_return(registers, &mut budget)
    {
        found(ret);
        (last, count) = (ret, 2);
    }
    let (mut lowest, mut at) = (stack.low, registers.fp);
    while count < FRAMES_MAX {
        let here = if stack.record(at, lowest).is_some() {
            at
        } else if let Some(place) = stack.return_of(last, lowest, &mut budget) {
            // What lies below it is the caller's frame, if the function has saved that.
            place - WORD
        } else if let Some(here) = stack.search(lowest, &mut budget) {
            here
        } else {
            return;
        };
        let Some(ret) = stack.read(here + WORD) else { return };
        at = stack.read(here).unwrap_or(0);
        lowest = here + 2 * WORD;
        // A frameless function's caller may have been found twice.
        if ret != last {
            found(ret);
            count += 1;
            last = ret;
        }
    }
}

/// The stack of a sleeping thread of this process from `sp` up to `base`, 64 KiB at most.
///
/// # Errors
/// As process_vm_readv(2): EFAULT, or EPERM where a sandbox forbids it.
pub fn copy_stack(sp: usize, base: usize) -> io::Result<Vec<usize>> {
    let low = sp.next_multiple_of(WORD);
    let bytes = base.saturating_sub(low).min(COPY_BYTES_MAX) / WORD * WORD;
    let mut words = vec![0_usize; bytes / WORD];
    let count = copy(low, words.as_mut_ptr().cast(), bytes)?;
    words.truncate(count / WORD);
    Ok(words)
}

/// The text at `address`, up to its end or `limit` bytes, as of a system call's argument.
///
/// # Errors
/// As process_vm_readv(2).
pub fn copy_text(address: usize, limit: usize) -> io::Result<Vec<u8>> {
    let mut text = vec![0_u8; limit];
    let count = copy(address, text.as_mut_ptr(), limit)?;
    text.truncate(count);
    text.truncate(text.iter().position(|&byte| byte == 0).unwrap_or(count));
    Ok(text)
}

/// Copies from an address of this process that need not be mapped. How many bytes were there: it ends where
/// something is not. Async-signal-safe.
pub fn copy_bytes(from: usize, to: &mut [u8]) -> usize {
    copy(from, to.as_mut_ptr(), to.len()).unwrap_or(0)
}

/// Copies up to `bytes` from an address of this process that need not be mapped. `to` has room for them.
fn copy(from: usize, to: *mut u8, bytes: usize) -> io::Result<usize> {
    let local = libc::iovec { iov_base: to.cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(from), iov_len: bytes };
    let me = std::process::id().cast_signed();
    // SAFETY: the kernel writes to `local`, which our callers own, and reads from `remote`, of which it
    // checks what is there.
    let count = unsafe { libc::process_vm_readv(me, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Where the call goes to that stands before `address`, which lies in `text`, if it says so itself or names
/// the place where that stands.
#[cfg(target_arch = "x86_64")]
fn called_before(address: usize, text: &Range<usize>, budget: &mut Budget) -> Option<usize> {
    if address - text.start < 6 {
        return None;
    }
    let at = std::ptr::with_exposed_provenance::<[u8; 6]>(address - 6);
    // SAFETY: in the program's own code, which stays mapped and is never written.
    let target = match unsafe { at.read() } {
        [_, 0xe8, offset @ ..] => address.wrapping_add_signed(i32::from_le_bytes(offset) as isize),
        [0xff, 0x15, offset @ ..] if budget.spend_place() => {
            let place = address.wrapping_add_signed(i32::from_le_bytes(offset) as isize);
            let mut target = [0_u8; WORD];
            // What looked like a call may name any place.
            copy(place, target.as_mut_ptr(), WORD).ok().filter(|&count| count == WORD)?;
            usize::from_ne_bytes(target)
        }
        _ => return None,
    };
    text.contains(&target).then_some(target)
}

/// Where the call goes to that stands before `address`, which lies in `text`, if it says so itself.
#[cfg(not(target_arch = "x86_64"))]
fn called_before(_: usize, _: &Range<usize>, _: &mut Budget) -> Option<usize> {
    None
}

/// Whether the instruction before `address`, which lies in `text`, is a call.
#[cfg(target_arch = "x86_64")]
fn follows_call(address: usize, text: &Range<usize>) -> bool {
    if address - text.start < 7 {
        return false;
    }
    let byte = |before: usize| {
        let at = std::ptr::with_exposed_provenance::<u8>(address - before);
        // SAFETY: in the program's own code, which stays mapped and is never written.
        unsafe { at.read() }
    };
    let is_indirect = |before| byte(before) == 0xff && byte(before - 1) & 0x38 == 0x10;
    byte(5) == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

/// Whether the instruction before `address`, which lies in `text`, is a call that can lead out of it: through
/// a register or a place in memory, or to a stub that jumps through one.
#[cfg(target_arch = "x86_64")]
fn follows_call_out(address: usize, text: &Range<usize>, budget: &mut Budget) -> bool {
    const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    type Stub = [u8; 7];
    if !follows_call(address, text) {
        return false;
    }
    let Some(target) = called_before(address, text, budget) else { return true };
    if text.end - target < size_of::<Stub>() {
        return false;
    }
    let at = std::ptr::with_exposed_provenance::<Stub>(target);
    // SAFETY: in the program's own code, which stays mapped and is never written.
    let stub = unsafe { at.read() };
    let jump = stub.strip_prefix(&ENDBR64).unwrap_or(&stub);
    // With the prefix of compilers that guard jumps.
    jump.strip_prefix(&[0xf2]).unwrap_or(jump).starts_with(&[0xff, 0x25])
}

/// Whether the instruction before `address`, which lies in `text`, is a call.
#[cfg(not(target_arch = "x86_64"))]
fn follows_call_out(address: usize, text: &Range<usize>, _: &mut Budget) -> bool {
    follows_call(address, text)
}

/// Whether the instruction before `address`, which lies in `text`, is a call.
#[cfg(not(target_arch = "x86_64"))]
fn follows_call(address: usize, _: &Range<usize>) -> bool {
    address.is_multiple_of(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Addresses in our code, to return to: behind calls.
    fn code(index: usize) -> usize {
        let function: fn(usize) -> usize = code;
        let begin = function as usize;
        (begin + 7..).filter(|at| follows_call(*at, &text())).nth(index).unwrap()
    }

    #[test]
    fn all_of_the_code_is_mapped() {
        let text = text();
        assert!(text.contains(&(code as fn(usize) -> usize as usize)));
        assert!(text.step_by(4096).all(|page| copy_text(page, 1).is_ok()));
    }

    fn frames(fp: usize, words: &[usize]) -> Vec<usize> {
        let mut found = Vec::new();
        let registers = Registers { pc: code(0), sp: 0x1000, fp, lr: 0 };
        walk(registers, &Stack::copied(0x1000, words), |address| found.push(address));
        found
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        let words = [0, 0, 0x1028, code(1), 7, 0x1040, code(2), 0, 0, code(3)];
        assert_eq!(frames(0x1010, &words), [code(0), code(1), code(2), code(3)]);
    }

    #[test]
    fn a_broken_chain_is_taken_up_where_two_records_follow() {
        // 0x1000: a number that looks like a record and leads nowhere.
        let words = [0x1008, code(9), 3, 0x1038, code(1), 0, 0, 0x1050, code(2), 0, 0, code(3)];
        assert_eq!(frames(0xdead, &words), [code(0), code(1), code(2), code(3)]);
        assert_eq!(frames(0, &[1, 2, 3]), [code(0)]);
    }

    #[test]
    fn a_chain_never_turns_back_or_leaves_the_stack() {
        let words = [0, 0, 0x1010, code(1), 0x1000, code(2)];
        assert_eq!(frames(0x1010, &words), [code(0), code(1)]);
        assert_eq!(frames(usize::MAX - 7, &words), [code(0)]);
    }

    #[test]
    fn a_walk_ends_when_its_budget_is_used_up() {
        let record = |index: usize| [0x1000 + (index + 1) * 16, code(index % 8)];
        let words: Vec<usize> = (0..FRAMES_MAX).flat_map(record).collect();
        assert_eq!(frames(0x1000, &words).len(), FRAMES_MAX, "a chain that is whole costs nothing");
        let zeroes = vec![0; 4 * SEARCHED_WORDS_MAX];
        let stack = Stack::copied(0x1000, &zeroes);
        let mut budget = Budget::new();
        for looked_at in (0..SEARCHED_WORDS_MAX).step_by(RETURN_WORDS_MAX) {
            assert_eq!(budget.words, SEARCHED_WORDS_MAX - looked_at);
            assert_eq!(stack.return_of(code(0), 0x1000, &mut budget), None);
        }
        assert_eq!((stack.search(0x1000, &mut budget), budget.words), (None, 0));
        let places = (0..).take_while(|_| budget.spend_place());
        assert_eq!(places.count(), PLACES_MAX as usize);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_function_of_a_library_returns_behind_a_call_that_leads_out() {
        let text = text();
        let is_out = |at: &usize| follows_call_out(*at, &text, &mut Budget::new());
        let begin = code as fn(usize) -> usize as usize;
        let left_over = (begin + 7..).find(|at| follows_call(*at, &text) && !is_out(at)).unwrap();
        let real = (begin + 7..).find(|at| is_out(at)).unwrap();
        let words = [7, left_over, 0, left_over, real, 0, left_over];
        let mut found = Vec::new();
        let registers = Registers { pc: 1, sp: 0x1000, fp: 0, lr: 0 };
        walk(registers, &Stack::copied(0x1000, &words), |address| found.push(address));
        assert_eq!(found[..2], [1, real]);
    }

    #[inline(never)]
    fn caller(found: &mut Vec<usize>) {
        let here = 0_usize;
        let base = (&raw const here).addr() + (64 << 10);
        let words = copy_stack((&raw const here).addr(), base).unwrap();
        let registers = Registers { pc: 1, sp: (&raw const here).addr(), fp: 0, lr: 0 };
        walk(registers, &Stack::copied(registers.sp, &words), |address| found.push(address));
    }

    #[test]
    fn a_copied_stack_shows_its_functions() {
        let mut found = Vec::new();
        caller(&mut found);
        assert!(found.len() > 3, "{found:x?}");
        assert!(found[1..].iter().all(|address| text().contains(address)));
        assert_eq!(copy_text(c"/a/b".as_ptr().addr(), 3).unwrap(), b"/a/");
        assert!(copy_text(8, 3).is_err());
    }
}
