//! Runs pieces of Lua as a server would, for the tests of rooms.

use clearway_base::log::{Level, Record, Sink};
use clearway_luajit::{Resumed, Vm};

use crate::api::install;
use crate::current::{Current, LuaPhase};
use crate::vm::state::VmState;

struct Silent;

impl Sink for Silent {
    fn enabled(&self, _: Level) -> bool {
        false
    }

    fn write(&self, _: &Record<'_>) {}
}

/// A VM with all rooms.
pub(crate) struct Lua {
    vm: Vm,
    state: VmState,
}

impl Lua {
    pub(crate) fn new() -> Self {
        Self::with(VmState::default())
    }

    pub(crate) fn with(mut state: VmState) -> Self {
        let mut vm = Vm::new(None).expect("there is memory");
        install(&mut vm, &mut state).expect("rooms install");
        Self { vm, state }
    }

    /// The values that the code returns, as `print` would show them with spaces; or its error.
    fn run(&mut self, code: &str) -> Result<String, String> {
        let wrapped = format!(
            "local function show(...) local t = {{...}} \
             for i = 1, select('#', ...) do t[i] = tostring(t[i]) end \
             return table.concat(t, ' ') end return show((function() {code} end)())"
        );
        let function = self.vm.load(wrapped.as_bytes(), c"=test").map_err(|fault| fault.to_string())?;
        let mut coroutine = self.vm.start(&function);
        let mut current = Current::alone(LuaPhase::Content, &mut self.state, &Silent);
        match current.resume(&mut self.vm, &mut coroutine) {
            Resumed::Finished(_) => {
                let mut stack = self.vm.stack(&coroutine);
                Ok(String::from_utf8_lossy(stack.text(-1).unwrap_or_default()).into_owned())
            }
            Resumed::Failed(fault) => Err(String::from_utf8_lossy(fault.text()).into_owned()),
            Resumed::Yielded(_) => panic!("nothing yields here"),
        }
    }

    #[track_caller]
    pub(crate) fn says(&mut self, code: &str, expected: &str) {
        assert_eq!(self.run(code).as_deref(), Ok(expected), "{code}");
    }

    /// An error with a place in front.
    #[track_caller]
    pub(crate) fn raises(&mut self, code: &str, expected: &str) {
        let error = self.run(code).expect_err(code);
        assert!(error.ends_with(expected) && error.len() > expected.len(), "{code}: {error}");
    }

    /// An error with nothing else.
    #[track_caller]
    pub(crate) fn fails(&mut self, code: &str, expected: &str) {
        assert_eq!(self.run(code).expect_err(code), expected, "{code}");
    }
}
