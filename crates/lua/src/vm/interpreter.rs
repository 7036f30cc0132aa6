//! One VM with what belongs to it: the interpreter, the state of rooms, and the code that it has compiled.
//! Made by a thread that is no loop's; then used by the holder of its token.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use clearway_base::log::Sink;
use clearway_http::Snapshot;
use clearway_log::UtcOffset;
use clearway_luajit::{Coroutine, Fault, FaultKind, Reference, Vm};
use clearway_zone::Zone;

use crate::code::{Code, CodeSource};
use crate::vm::regexes::RegexConf;
use crate::vm::state::{Dictionaries, VmPlace, VmState};

/// Installs the server's functions in a new VM.
pub type Installer = fn(&mut Vm, &mut VmState) -> Result<(), Fault>;

/// The settings that VMs are made with.
#[derive(Clone)]
pub struct VmSettings {
    /// `lua_package_path`, with the default in it where it ends in `;;`.
    pub package_path: Option<Bytes>,
    /// `lua_package_cpath`, likewise.
    pub package_cpath: Option<Bytes>,
    /// `lua_max_memory`, bytes.
    pub memory_max_bytes: Option<usize>,
    /// `lua_thread_cache_max_entries`
    pub idle_max: usize,
    /// The directory that relative paths begin from; ends in a slash.
    pub prefix: Bytes,
    /// The dictionaries of `ngx.shared`.
    pub dictionaries: Vec<Arc<Zone>>,
    /// Settings for `ngx.re`.
    pub regexes: RegexConf,
    /// How long code may run for which there is no request.
    pub alone_max: Option<Duration>,
    /// The offset of local time.
    pub utc_offset: UtcOffset,
    /// The configuration that VMs are made for.
    pub snapshot: Weak<Snapshot>,
    /// The log for lines of code that runs for no request.
    pub sink: Option<Arc<dyn Sink>>,
    /// The function that installs rooms first.
    pub install: Installer,
}

/// One VM and the objects that belong to it.
pub struct Interpreter {
    /// LuaJIT.
    pub vm: Vm,
    /// The state of rooms.
    pub state: VmState,
    compiled: HashMap<u32, Reference>,
    files: HashMap<Box<[u8]>, Reference>,
    /// How long code may run for which there is no request.
    pub(crate) alone_max: Option<Duration>,
    memory_max_bytes: Option<usize>,
}

impl Interpreter {
    /// A VM in which nothing of the configuration has run.
    ///
    /// # Errors
    /// There is no memory for the VM, or its limit is too low for the server's own functions.
    pub fn new(settings: &VmSettings, place: VmPlace) -> Result<Self, String> {
        let mut vm = Vm::new(settings.memory_max_bytes).map_err(|_| "no memory for a Lua VM".to_owned())?;
        vm.keep_idle(settings.idle_max);
        let mut state = VmState {
            dictionaries: Dictionaries::new(settings.dictionaries.iter().cloned()),
            utc_offset: Some(settings.utc_offset.clone()),
            regex_conf: settings.regexes,
            place,
            prefix: settings.prefix.clone(),
            snapshot: Weak::clone(&settings.snapshot),
            sink: settings.sink.clone(),
            ..VmState::default()
        };
        set_path(&mut vm, "path", settings.package_path.as_deref());
        set_path(&mut vm, "cpath", settings.package_cpath.as_deref());
        (settings.install)(&mut vm, &mut state).map_err(|fault| fault.to_string())?;
        Ok(Self {
            vm,
            state,
            compiled: HashMap::new(),
            files: HashMap::new(),
            alone_max: settings.alone_max,
            memory_max_bytes: settings.memory_max_bytes,
        })
    }

    /// Compiles code of the configuration, unless that was done before.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn compile(&mut self, code: &Code) -> Result<(), Fault> {
        let CodeSource::Inline(text) = code.source() else { unreachable!("files are loaded by `file`") };
        let number = code.number();
        if !self.compiled.contains_key(&number) {
            let function = self.vm.load(text, code.chunk())?;
            let before = self.compiled.insert(number, function);
            debug_assert!(before.is_none(), "code is compiled once");
        }
        Ok(())
    }

    /// Whether a file was compiled before.
    #[must_use]
    pub fn has_file(&self, path: &[u8]) -> bool {
        self.files.contains_key(path)
    }

    /// Compiles the text of a file.
    ///
    /// # Errors
    /// The mistake in it.
    fn load_file(&mut self, path: &[u8], text: &[u8]) -> Result<(), Fault> {
        let name = CString::new([b"@", path].concat()).unwrap_or_default();
        // A first line that begins with `#` is for the shell and is skipped.
        let text = if text.first() == Some(&b'#') {
            let end = text.iter().position(|&byte| byte == b'\n').unwrap_or(text.len());
            &text[end..]
        } else {
            text
        };
        let function = self.vm.load(text, &name)?;
        self.files.insert(path.into(), function);
        Ok(())
    }

    /// Whether code was compiled before.
    #[must_use]
    pub fn has_compiled(&self, code: &Code) -> bool {
        self.compiled.contains_key(&code.number())
    }

    /// Compiles the code of a file ahead, for callers that cannot wait for it.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn compile_ahead(&mut self, code: &Code, path: &[u8], text: &[u8]) -> Result<(), Fault> {
        self.load_file(path, text)?;
        if let Some(function) = self.files.remove(path) {
            self.compiled.insert(code.number(), function);
        }
        debug_assert!(self.has_compiled(code) && !self.has_file(path), "it is known by its number alone");
        Ok(())
    }

    /// A thread for code of the configuration, which is compiled first where that was not done before.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn start_compiled(&mut self, code: &Code) -> Result<Coroutine, Fault> {
        if let Some(function) = self.compiled.get(&code.number()) {
            return Ok(self.vm.start(function));
        }
        self.compile(code)?;
        Ok(self.start(code))
    }

    /// A thread for code that was compiled before.
    pub fn start(&mut self, code: &Code) -> Coroutine {
        debug_assert!(self.has_compiled(code), "code is compiled before it is started");
        self.vm.start(&self.compiled[&code.number()])
    }

    /// Another reference to the same value, which is on the shelf.
    #[cfg(feature = "tls")]
    pub(crate) fn same(&mut self, value: &Reference) -> Reference {
        let mut stack = self.vm.enter();
        stack.push(value);
        stack.take_shelved()
    }

    /// A thread for the code of a file, with its text where the VM may not have it.
    ///
    /// # Errors
    /// The mistake in it.
    pub fn start_file(&mut self, path: &[u8], text: Option<&[u8]>) -> Result<Coroutine, Fault> {
        if let Some(text) = text.filter(|_| !self.has_file(path)) {
            self.load_file(path, text)?;
        }
        debug_assert!(self.has_file(path), "a file is compiled before it is started");
        Ok(self.vm.start(&self.files[path]))
    }

    /// Code has ended that may have wanted more memory than the VM may have. What it has left behind is not
    /// to be in the way of the next one; where that stays, the VM is given up.
    pub fn recover(&mut self, fault: &Fault) -> Recovery {
        if fault.kind() != FaultKind::Memory && !fault.text().ends_with(b"not enough memory") {
            return Recovery::GoesOn;
        }
        self.vm.collect();
        let is_full = self.memory_max_bytes.is_some_and(|max| self.vm.memory() > max / 4 * 3);
        if is_full && !self.vm.is_poisoned() {
            self.vm.give_up();
            return Recovery::GivenUp;
        }
        Recovery::GoesOn
    }
}

/// The state of a VM after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The VM can be used.
    GoesOn,
    /// The VM has reached its limit of memory, and no code runs in it any more.
    GivenUp,
}

impl Recovery {
    /// The line of the log for a full VM.
    pub const FULL: &'static str = "a Lua VM is full, and is replaced (lua_max_memory)";
}

/// Sets `package.path` or `package.cpath`; `;;` stands for what it was.
fn set_path(vm: &mut Vm, field: &str, path: Option<&[u8]>) {
    let Some(path) = path else { return };
    let mut stack = vm.enter();
    stack.push_globals();
    stack.raw_field(-1, "package");
    stack.raw_field(-1, field);
    let default = stack.text(-1).map(<[u8]>::to_vec).unwrap_or_default();
    stack.pop(1);
    let mut whole = Vec::with_capacity(path.len() + default.len());
    let mut rest = path;
    while let Some(at) = rest.windows(2).position(|pair| pair == b";;") {
        whole.extend_from_slice(&rest[..at]);
        if !whole.is_empty() {
            whole.push(b';');
        }
        whole.extend_from_slice(&default);
        rest = &rest[at + 2..];
        if !rest.is_empty() {
            whole.push(b';');
        }
    }
    whole.extend_from_slice(rest);
    stack.push(&whole[..]);
    stack.raw_set_field(-2, field);
    let len = stack.len();
    stack.pop(len);
    debug_assert!(stack.is_empty(), "nothing is left for the next one");
}
