//! PCRE2 for expressions that come at run time, with all of its options, positions and both of its matchers,
//! behind a safe interface. Expressions of the configuration are `clearway_site::regex`'s.
//!
//! [`Code`] is compiled once and can be used by any thread; [`Matcher`] is what one match at a time needs.
//! PCRE2 always checks the bytes of what is to be text: where validity is not to be an error, the expression
//! is compiled so that PCRE2 steps over what is invalid.
#![expect(unsafe_code, reason = "calls of PCRE2 with pointers that these types own")]
#![deny(unsafe_op_in_unsafe_fn)]

use std::ffi::c_int;
use std::ops::{BitOr, Range};
use std::ptr::{self, NonNull};

use pcre2_sys as sys;

/// How an expression is compiled; several by `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Options(u32);

impl Options {
    /// Matches begin where the search begins.
    pub const ANCHORED: Self = Self(sys::PCRE2_ANCHORED);
    /// Letters match in both cases.
    pub const CASELESS: Self = Self(sys::PCRE2_CASELESS);
    /// `^` and `$` match at lines.
    pub const MULTILINE: Self = Self(sys::PCRE2_MULTILINE);
    /// `.` matches line ends.
    pub const DOTALL: Self = Self(sys::PCRE2_DOTALL);
    /// White space and comments in the expression are ignored.
    pub const EXTENDED: Self = Self(sys::PCRE2_EXTENDED);
    /// Groups may share a name.
    pub const DUPNAMES: Self = Self(sys::PCRE2_DUPNAMES);
    /// As in JavaScript: `\u`, `\x`, and references to groups that took no part.
    pub const JAVASCRIPT: Self = Self(sys::PCRE2_ALT_BSUX | sys::PCRE2_MATCH_UNSET_BACKREF);
    /// Expression and subjects are UTF-8; others are errors.
    pub const UTF: Self = Self(sys::PCRE2_UTF);
    /// Expression and subjects are UTF-8; what is not matches nothing.
    pub const UTF_UNCHECKED: Self = Self(sys::PCRE2_UTF | sys::PCRE2_MATCH_INVALID_UTF);
}

impl BitOr for Options {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Whether an expression becomes machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jit {
    /// As far as that is possible.
    On,
    /// The expression is interpreted.
    Off,
}

/// How an expression is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As Perl does, with groups.
    Perl,
    /// All alternatives at once: the longest match, without groups.
    Dfa,
}

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompileError {
    /// PCRE2's words.
    pub text: String,
    /// Where in the expression, bytes.
    pub offset: usize,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Code {
    code: NonNull<sys::pcre2_code_8>,
    groups: usize,
    names: Vec<(usize, Box<[u8]>)>,
}

// SAFETY: compiled code is not changed by matches, and PCRE2 keeps no thread in it.
unsafe impl Send for Code {}
// SAFETY: as above.
unsafe impl Sync for Code {}

impl Code {
    /// Compiles an expression.
    ///
    /// # Errors
    /// [`CompileError`].
    pub fn compile(pattern: &[u8], options: Options, jit: Jit) -> Result<Self, CompileError> {
        let (mut error, mut offset) = (0, 0);
        // SAFETY: the bytes live for the call, with their length; both out parameters are there.
        let code = unsafe {
            let (at, len) = (pattern.as_ptr(), pattern.len());
            sys::pcre2_compile_8(at, len, options.0, &raw mut error, &raw mut offset, ptr::null_mut())
        };
        let Some(code) = NonNull::new(code) else {
            return Err(CompileError { text: words(error), offset: offset.min(pattern.len()) });
        };
        let mut code = Self { code, groups: 0, names: Vec::new() };
        code.groups = code.info(sys::PCRE2_INFO_CAPTURECOUNT) as usize;
        code.names = code.read_names();
        if jit == Jit::On {
            // SAFETY: code that nobody else has yet. What cannot become machine code is interpreted.
            unsafe { sys::pcre2_jit_compile_8(code.code.as_ptr(), sys::PCRE2_JIT_COMPLETE) };
        }
        Ok(code)
    }

    /// How many groups it has.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// The groups that have names, in the order of names.
    #[must_use]
    pub fn names(&self) -> &[(usize, Box<[u8]>)] {
        &self.names
    }

    /// A number that PCRE2 says of it.
    fn info(&self, what: u32) -> u32 {
        let mut value = 0_u32;
        // SAFETY: each of the questions asked here is answered with 32 bits.
        let answer = unsafe { sys::pcre2_pattern_info_8(self.code.as_ptr(), what, (&raw mut value).cast()) };
        assert_eq!(answer, 0, "a question that PCRE2 knows");
        value
    }

    fn read_names(&self) -> Vec<(usize, Box<[u8]>)> {
        let (count, size) = (self.info(sys::PCRE2_INFO_NAMECOUNT), self.info(sys::PCRE2_INFO_NAMEENTRYSIZE));
        if count == 0 {
            return Vec::new();
        }
        let mut table: *const u8 = ptr::null();
        // SAFETY: this question is answered with a pointer.
        let answer = unsafe {
            let place = (&raw mut table).cast();
            sys::pcre2_pattern_info_8(self.code.as_ptr(), sys::PCRE2_INFO_NAMETABLE, place)
        };
        assert!(answer == 0 && !table.is_null(), "it has names");
        // SAFETY: the table has so many entries of this size, and lives as long as the code.
        let table = unsafe { std::slice::from_raw_parts(table, count as usize * size as usize) };
        let entries = table.chunks_exact(size as usize);
        let read = |entry: &[u8]| {
            let name = entry[2..].split(|&byte| byte == 0).next().unwrap_or_default();
            (usize::from(u16::from_be_bytes([entry[0], entry[1]])), name.into())
        };
        entries.map(read).collect()
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: it is this one's, and nobody uses it any more.
        unsafe { sys::pcre2_code_free_8(self.code.as_ptr()) };
    }
}

/// The memory of one match at a time, with its groups afterwards.
#[derive(Debug)]
pub struct Matcher {
    data: NonNull<sys::pcre2_match_data_8>,
    context: NonNull<sys::pcre2_match_context_8>,
    stack: Option<NonNull<sys::pcre2_jit_stack_8>>,
    /// Groups that there is room for, with the whole match.
    room: usize,
    /// How many of them the last match has set.
    set: usize,
    workspace: Vec<c_int>,
}

// SAFETY: what the pointers lead to is this one's alone, and PCRE2 keeps no thread in it.
unsafe impl Send for Matcher {}

/// Both ends of a group that took no part.
const UNSET: usize = usize::MAX;
/// Groups that a new matcher has room for.
const ROOM: u32 = 16;
/// Numbers that the matcher without groups has room for, as in OpenResty.
const WORKSPACE: usize = 100;
/// The smallest stack of machine code, bytes.
const STACK_MIN_BYTES: usize = 32 * 1024;

impl Matcher {
    /// A matcher without limits of its own.
    ///
    /// # Panics
    /// If there is no memory.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: neither takes anything.
        let (data, context) = unsafe {
            (
                sys::pcre2_match_data_create_8(ROOM, ptr::null_mut()),
                sys::pcre2_match_context_create_8(ptr::null_mut()),
            )
        };
        Self {
            data: NonNull::new(data).expect("there is memory"),
            context: NonNull::new(context).expect("there is memory"),
            stack: None,
            room: ROOM as usize,
            set: 0,
            workspace: Vec::new(),
        }
    }

    /// Bounds the steps of one match.
    pub fn limit_steps(&mut self, steps: u32) {
        // SAFETY: its own context.
        unsafe { sys::pcre2_set_match_limit_8(self.context.as_ptr(), steps) };
    }

    /// Gives machine code a stack of up to so many bytes in place of 32 KiB of the thread's. `false`: there
    /// is no memory.
    pub fn set_stack(&mut self, bytes: usize) -> bool {
        let bytes = bytes.max(STACK_MIN_BYTES);
        // SAFETY: it takes numbers only.
        let stack = unsafe { sys::pcre2_jit_stack_create_8(STACK_MIN_BYTES, bytes, ptr::null_mut()) };
        let Some(stack) = NonNull::new(stack) else { return false };
        // SAFETY: without a function the pointer is taken as a stack, which lives until the next one is set.
        unsafe { sys::pcre2_jit_stack_assign_8(self.context.as_ptr(), None, stack.as_ptr().cast()) };
        if let Some(before) = self.stack.replace(stack) {
            // SAFETY: the context has another one now.
            unsafe { sys::pcre2_jit_stack_free_8(before.as_ptr()) };
        }
        true
    }

    /// Looks for an expression from a place in the subject on. Whether it is there.
    ///
    /// # Errors
    /// PCRE2's number: a limit, or a subject that is not UTF-8.
    pub fn find(&mut self, code: &Code, subject: &[u8], start: usize, how: How) -> Result<bool, i32> {
        self.set = 0;
        if start > subject.len() {
            return Ok(false);
        }
        self.make_room(code.groups + 1);
        let (data, context) = (self.data.as_ptr(), self.context.as_ptr());
        let (at, len) = (subject.as_ptr(), subject.len());
        let found = match how {
            // SAFETY: code, data and context are live and nobody else's for the call; the subject is as long
            // as it says, and the start is within it.
            How::Perl => unsafe { sys::pcre2_match_8(code.code.as_ptr(), at, len, start, 0, data, context) },
            How::Dfa => {
                self.workspace.resize(WORKSPACE, 0);
                let workspace = self.workspace.as_mut_ptr();
                // SAFETY: as above, and as many numbers are there.
                unsafe {
                    sys::pcre2_dfa_match_8(
                        code.code.as_ptr(),
                        at,
                        len,
                        start,
                        0,
                        data,
                        context,
                        workspace,
                        WORKSPACE,
                    )
                }
            }
        };
        match found {
            sys::PCRE2_ERROR_NOMATCH => Ok(false),
            error if error < 0 => Err(error),
            set => {
                // The other matcher's numbers are shorter matches, not groups.
                self.set = if how == How::Dfa { 1 } else { (set as usize).max(1) };
                Ok(true)
            }
        }
    }

    /// Where a group of the last match is; 0 is the whole match.
    #[must_use]
    pub fn group(&self, number: usize) -> Option<Range<usize>> {
        if number >= self.set {
            return None;
        }
        // SAFETY: there are pairs for `room` groups, of which the last match has set `set`.
        let (start, end) = unsafe {
            let pairs = sys::pcre2_get_ovector_pointer_8(self.data.as_ptr());
            (*pairs.add(2 * number), *pairs.add(2 * number + 1))
        };
        // A group that took no part has no place; a match whose start `\K` has moved may have none either.
        (start != UNSET && start <= end).then_some(start..end)
    }

    fn make_room(&mut self, groups: usize) {
        if groups <= self.room {
            return;
        }
        let wanted = u32::try_from(groups).expect("groups have 16 bits");
        // SAFETY: it takes a number only.
        let data = unsafe { sys::pcre2_match_data_create_8(wanted, ptr::null_mut()) };
        let data = NonNull::new(data).expect("there is memory");
        // SAFETY: this one's, which is replaced.
        unsafe { sys::pcre2_match_data_free_8(self.data.as_ptr()) };
        (self.data, self.room) = (data, groups);
    }
}

impl Default for Matcher {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Matcher {
    fn drop(&mut self) {
        // SAFETY: all three are this one's; the stack goes behind the context that names it.
        unsafe {
            sys::pcre2_match_data_free_8(self.data.as_ptr());
            sys::pcre2_match_context_free_8(self.context.as_ptr());
            if let Some(stack) = self.stack {
                sys::pcre2_jit_stack_free_8(stack.as_ptr());
            }
        }
    }
}

fn words(error: c_int) -> String {
    let mut text = [0_u8; 256];
    // SAFETY: the buffer is as long as it says.
    let len = unsafe { sys::pcre2_get_error_message_8(error, text.as_mut_ptr(), text.len()) };
    String::from_utf8_lossy(&text[..usize::try_from(len).unwrap_or(0).min(text.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(pattern: &str, options: Options) -> Code {
        Code::compile(pattern.as_bytes(), options, Jit::On).unwrap()
    }

    #[test]
    fn groups_are_where_they_matched() {
        let code = code("(a)(?<name>b)?(c)?", Options::default());
        assert_eq!((code.groups(), code.names()), (3, &[(2, b"name"[..].into())][..]));
        let mut matcher = Matcher::new();
        assert_eq!(matcher.find(&code, b"xxac", 0, How::Perl), Ok(true));
        let groups: Vec<_> = (0..5).map(|group| matcher.group(group)).collect();
        assert_eq!(groups, [Some(2..4), Some(2..3), None, Some(3..4), None]);
        assert_eq!(matcher.find(&code, b"xxac", 3, How::Perl), Ok(false));
        assert_eq!(matcher.find(&code, b"xxac", 5, How::Perl), Ok(false));
        assert_eq!(matcher.group(0), None);
    }

    #[test]
    fn options_say_how() {
        let mut matcher = Matcher::new();
        let mut finds = |pattern, options, subject: &str| {
            matcher.find(&code(pattern, options), subject.as_bytes(), 0, How::Perl).unwrap()
        };
        assert!(finds("B", Options::CASELESS, "ab"));
        assert!(!finds("b", Options::ANCHORED, "ab"));
        assert!(finds("^b", Options::MULTILINE, "a\nb"));
        assert!(finds("a.b", Options::DOTALL, "a\nb"));
        assert!(finds("a b # c", Options::EXTENDED, "ab"));
        assert!(finds("^.$", Options::UTF, "\u{4f60}") && !finds("^.$", Options::default(), "\u{4f60}"));
        assert!(finds("(?<a>x)|(?<a>y)", Options::DUPNAMES, "y"));
    }

    #[test]
    fn the_longest_match_has_no_groups() {
        let code = code("(a|ab)(c?)", Options::default());
        let mut matcher = Matcher::new();
        assert_eq!(matcher.find(&code, b"abc", 0, How::Dfa), Ok(true));
        assert_eq!((matcher.group(0), matcher.group(1)), (Some(0..3), None));
    }

    #[test]
    fn what_is_not_text_is_an_error_or_nothing() {
        let bytes = &"\u{4f60}\u{597d}".as_bytes()[..4];
        let mut matcher = Matcher::new();
        assert_eq!(matcher.find(&code(".", Options::UTF), bytes, 0, How::Perl), Err(-4));
        let unchecked = code(".$", Options::UTF_UNCHECKED);
        assert_eq!(matcher.find(&unchecked, bytes, 0, How::Perl), Ok(false));
        assert_eq!(matcher.find(&unchecked, "\u{4f60}".as_bytes(), 0, How::Perl), Ok(true));
    }

    #[test]
    fn steps_are_bounded() {
        let code = Code::compile(b"(a+)+$", Options::default(), Jit::Off).unwrap();
        let mut matcher = Matcher::new();
        matcher.limit_steps(100);
        assert_eq!(matcher.find(&code, b"aaaaaaaaaaaaaaaaaaaaaaaab", 0, How::Perl), Err(-47));
        assert!(matcher.set_stack(1 << 20) && matcher.set_stack(1 << 21));
        assert_eq!(matcher.find(&code, b"a", 0, How::Perl), Ok(true));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let error = Code::compile(b"(abc", Options::default(), Jit::On).unwrap_err();
        assert_eq!((error.text.as_str(), error.offset), ("missing closing parenthesis", 4));
    }

    #[test]
    fn more_groups_than_room() {
        let pattern = "(.)".repeat(40);
        let code = code(&pattern, Options::default());
        let mut matcher = Matcher::new();
        assert_eq!(matcher.find(&code, &[b'x'; 40], 0, How::Perl), Ok(true));
        assert_eq!(matcher.group(40), Some(39..40));
    }
}
