//! The stack of one thread of Lua, for the holder of the VM: values are pushed, looked at, and stored in
//! tables.
//!
//! Slots are numbered as in Lua's C interface: from 1 upward, or from -1 downward from the top. A slot that
//! is not there is a panic, as with a slice. What could run code of Lua (metamethods) or raise an error is
//! done in a protected call, and comes back as `Err`; everything else is raw.
#![expect(unsafe_code, reason = "calls of LuaJIT on a stack whose slots are checked")]

use std::ffi::{CStr, c_int};
use std::marker::PhantomData;
use std::ptr;

use crate::fault::Fault;
use crate::ffi::{self, LuaState};
use crate::host::Host;
use crate::layout::layout;
use crate::reference::{Keeper, Reference};
use crate::value::{Address, Boxed, Caller, Value};
use crate::vm::Coroutine;

/// The longest text that is pushed; LuaJIT's own limit is a little below 2 GiB.
const TEXT_BYTES_MAX: usize = 0x7fff_ff00;

/// Values of one function on a stack, which is LuaJIT's own limit.
const VALUES_MAX: i32 = 8_000;

const SLOT_BYTES: usize = 8;

/// A stack of fewer slots can always grow by [`crate::SLOTS`]: LuaJIT's own limit is 65,500.
const SMALL_SLOTS: usize = 4_096;

/// Rooms that a new table may ask for ahead.
const ROOM_MAX: usize = 1 << 20;

/// The stack of one thread of Lua.
pub struct Stack<'vm> {
    state: *mut LuaState,
    host: &'vm Host,
    /// Nobody else uses the VM, and no other thread does.
    exclusive: PhantomData<*mut LuaState>,
}

/// A value that can be pushed.
pub trait Push {
    /// Pushes one value.
    fn push(self, stack: &mut Stack<'_>);
}

impl Push for () {
    fn push(self, stack: &mut Stack<'_>) {
        // SAFETY: `Stack::push` has made room.
        unsafe { ffi::lua_pushnil(stack.state) };
    }
}

impl Push for bool {
    fn push(self, stack: &mut Stack<'_>) {
        // SAFETY: as above.
        unsafe { ffi::lua_pushboolean(stack.state, self.into()) };
    }
}

impl Push for f64 {
    fn push(self, stack: &mut Stack<'_>) {
        // SAFETY: as above.
        unsafe { ffi::lua_pushnumber(stack.state, self) };
    }
}

impl Push for i32 {
    fn push(self, stack: &mut Stack<'_>) {
        f64::from(self).push(stack);
    }
}

impl Push for &[u8] {
    fn push(self, stack: &mut Stack<'_>) {
        assert!(self.len() < TEXT_BYTES_MAX, "texts of Lua are shorter");
        // SAFETY: as above; the bytes are copied; in mode Host no error is raised.
        unsafe { ffi::lua_pushlstring(stack.state, self.as_ptr().cast(), self.len()) };
    }
}

impl Push for &str {
    fn push(self, stack: &mut Stack<'_>) {
        self.as_bytes().push(stack);
    }
}

impl Push for Boxed {
    fn push(self, stack: &mut Stack<'_>) {
        // SAFETY: as above; LuaJIT gives room for a number, aligned for one.
        unsafe { ffi::lua_newuserdata(stack.state, size_of::<usize>()).cast::<usize>().write(self.0) };
    }
}

impl Push for Address {
    fn push(self, stack: &mut Stack<'_>) {
        // SAFETY: as above; LuaJIT reads nothing through it.
        unsafe { ffi::lua_pushlightuserdata(stack.state, ptr::without_provenance(self.0)) };
    }
}

impl Push for &Coroutine {
    fn push(self, stack: &mut Stack<'_>) {
        self.anchor().push(stack);
    }
}

impl Push for &Reference {
    fn push(self, stack: &mut Stack<'_>) {
        assert!(self.is_of(stack.host), "a value belongs to one VM for life");
        if self.keeper() == Keeper::Shelf {
            stack.push_shelf();
            stack.raw_item(-1, self.key());
            stack.remove(-2);
            return;
        }
        // SAFETY: room as above; the registry is a table.
        unsafe { ffi::lua_rawgeti(stack.state, ffi::REGISTRY, self.key()) };
    }
}

impl<T: Push> Push for Option<T> {
    fn push(self, stack: &mut Stack<'_>) {
        match self {
            Some(value) => value.push(stack),
            None => ().push(stack),
        }
    }
}

impl<'vm> Stack<'vm> {
    /// # Safety
    /// `state` is a live thread of the VM of `host`, which nobody else uses for `'vm`, in mode Host.
    pub(crate) unsafe fn new(state: *mut LuaState, host: &'vm Host) -> Self {
        Self { state, host, exclusive: PhantomData }
    }

    pub(crate) fn state(&self) -> *mut LuaState {
        self.state
    }

    pub(crate) fn host(&self) -> &'vm Host {
        self.host
    }

    /// Values on the stack.
    #[inline]
    #[must_use]
    pub fn len(&self) -> i32 {
        ((self.address_in(layout().state_top) - self.address_in(layout().state_base)) / SLOT_BYTES) as i32
    }

    /// An address in the structure of the Lua thread; it is read each time, since LuaJIT changes it.
    #[inline]
    fn address_in(&self, offset: u32) -> usize {
        // SAFETY: a live state, whose layout says that an address is there.
        unsafe { self.state.byte_add(offset as usize).cast::<usize>().read() }
    }

    /// Whether there is room for `count` values now, or there is after the stack has grown.
    #[inline]
    pub(crate) fn has_room(&mut self, count: i32) -> bool {
        let free = (self.address_in(layout().state_max) - self.address_in(layout().state_top)) / SLOT_BYTES;
        let is_free = (0..=free as i32).contains(&count) && self.len() + count <= VALUES_MAX;
        // SAFETY: a live state. It grows by a protected call, or says that it cannot.
        is_free || unsafe { ffi::lua_checkstack(self.state, count) } != 0
    }

    /// Whether there is room for `count` values, or will be when they are pushed. A small stack is left as it
    /// is, as it can grow: a thread that waits in a function of ours has no larger one for that.
    #[inline]
    pub(crate) fn can_have(&mut self, count: i32) -> bool {
        let size = (self.address_in(layout().state_max) - self.address_in(layout().state_stack)) / SLOT_BYTES;
        size < SMALL_SLOTS && self.len() + count <= VALUES_MAX || self.has_room(count)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the VM has in use.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.host.memory()
    }

    /// The slot's number from below.
    #[inline]
    fn slot(&self, at: i32) -> c_int {
        let len = self.len();
        let slot = if at < 0 { len + 1 + at } else { at };
        assert!((1..=len).contains(&slot), "slot {at} of {len}");
        slot
    }

    /// The slot of a table, which has to be one.
    fn table(&self, at: i32) -> c_int {
        let slot = self.slot(at);
        assert!(self.raw_type(slot) == ffi::TYPE_TABLE, "a table is in slot {at}");
        slot
    }

    fn raw_type(&self, slot: c_int) -> c_int {
        // SAFETY: `slot` has checked the number.
        unsafe { ffi::lua_type(self.state, slot) }
    }

    /// Room for `count` values.
    ///
    /// # Panics
    /// If the stack would have more than 8,000.
    #[inline]
    pub fn reserve(&mut self, count: i32) {
        assert!(self.has_room(count), "a stack of Lua has at most {VALUES_MAX} values");
    }

    /// Pushes a value.
    #[inline]
    pub fn push(&mut self, value: impl Push) {
        self.reserve(1);
        value.push(self);
    }

    /// Pushes what is in a slot once more.
    pub fn push_slot(&mut self, at: i32) {
        let slot = self.slot(at);
        self.reserve(1);
        // SAFETY: a slot that is there, and room.
        unsafe { ffi::lua_pushvalue(self.state, slot) };
    }

    /// Pushes an empty table with room for `items` in its list and `fields` beside it.
    pub fn push_table(&mut self, items: usize, fields: usize) {
        self.reserve(1);
        let room = |count: usize| count.min(ROOM_MAX) as c_int;
        // SAFETY: room for one; in mode Host no error is raised.
        unsafe { ffi::lua_createtable(self.state, room(items), room(fields)) };
    }

    /// Pushes the table of globals.
    pub fn push_globals(&mut self) {
        self.reserve(1);
        // SAFETY: a slot that is always there, and room.
        unsafe { ffi::lua_pushvalue(self.state, ffi::GLOBALS) };
    }

    /// Pushes the table of what the VM keeps out of Lua's sight.
    pub fn push_registry(&mut self) {
        self.reserve(1);
        // SAFETY: a slot that is always there, and room.
        unsafe { ffi::lua_pushvalue(self.state, ffi::REGISTRY) };
    }

    /// The function that has called this one, or another `level` of calls above, if it is one of Lua.
    #[must_use]
    pub fn caller(&self, level: i32) -> Option<Caller> {
        // SAFETY: a structure of numbers and pointers, of which none is used before it is filled.
        let mut activation: ffi::Activation = unsafe { std::mem::zeroed() };
        // SAFETY: a live thread, and a place for the answer; in mode Host no error is raised.
        unsafe {
            if ffi::lua_getstack(self.state, level, &raw mut activation) == 0 {
                return None;
            }
            if ffi::lua_getinfo(self.state, c"nSl".as_ptr(), &raw mut activation) == 0 {
                return None;
            }
        }
        // SAFETY: `lua_getinfo` has filled it: a text that ends within the array, and a text or null.
        let (chunk, function) = unsafe {
            let chunk = CStr::from_ptr(activation.short_source.as_ptr());
            let name = activation.name;
            (chunk, (!name.is_null()).then(|| CStr::from_ptr(name)))
        };
        Some(Caller {
            chunk: chunk.to_bytes().to_vec(),
            line: activation.current_line,
            function: function.map(|name| name.to_bytes().to_vec()),
        })
    }

    /// Where a function of Lua is written: the chunk, with the first character of its name that says of which
    /// kind it is (`=`, `@`), and the line that it begins in.
    #[must_use]
    pub fn function_place(&mut self, at: i32) -> Option<(Vec<u8>, i32)> {
        if self.get(at) != Value::Function {
            return None;
        }
        self.push_slot(at);
        // SAFETY: a structure of numbers and pointers, of which none is used before it is filled.
        let mut activation: ffi::Activation = unsafe { std::mem::zeroed() };
        // SAFETY: a function is on top, which is taken away; in mode Host no error is raised. The text is
        // that of the function's chunk, which is still there.
        unsafe {
            if ffi::lua_getinfo(self.state, c">S".as_ptr(), &raw mut activation) == 0 {
                return None;
            }
            Some((CStr::from_ptr(activation.source).to_bytes().to_vec(), activation.line_defined))
        }
    }

    /// Removes the topmost `count` values.
    pub fn pop(&mut self, count: i32) {
        let len = self.len();
        assert!((0..=len).contains(&count), "{count} of {len} values");
        // SAFETY: as many are there.
        unsafe { ffi::lua_settop(self.state, len - count) };
    }

    /// Removes one value from within.
    pub fn remove(&mut self, at: i32) {
        let slot = self.slot(at);
        // SAFETY: a slot that is there.
        unsafe { ffi::lua_remove(self.state, slot) };
    }

    /// Moves the topmost value to this slot, and those from there on up by one.
    pub fn insert(&mut self, at: i32) {
        let slot = self.slot(at);
        // SAFETY: a slot that is there.
        unsafe { ffi::lua_insert(self.state, slot) };
    }

    /// Moves the topmost value to this slot, in place of what is there.
    pub fn replace(&mut self, at: i32) {
        let slot = self.slot(at);
        // SAFETY: a slot that is there.
        unsafe { ffi::lua_replace(self.state, slot) };
    }

    /// The value in a slot; `Nil` above the top.
    #[must_use]
    pub fn get(&self, at: i32) -> Value<'_> {
        if at > self.len() {
            return Value::Nil;
        }
        self.value(self.slot(at))
    }

    /// The value in a slot that is there.
    #[inline]
    fn value(&self, slot: c_int) -> Value<'_> {
        // SAFETY: a slot that is there; each is asked for what its type says it is.
        unsafe {
            match self.raw_type(slot) {
                ffi::TYPE_BOOLEAN => Value::Boolean(ffi::lua_toboolean(self.state, slot) != 0),
                ffi::TYPE_NUMBER => Value::Number(ffi::lua_tonumber(self.state, slot)),
                ffi::TYPE_STRING => Value::Text(self.text_of(slot)),
                ffi::TYPE_LIGHT_USERDATA => Value::Address(ffi::lua_topointer(self.state, slot).addr()),
                ffi::TYPE_TABLE => Value::Table,
                ffi::TYPE_FUNCTION => Value::Function,
                ffi::TYPE_USERDATA => Value::UserData,
                ffi::TYPE_THREAD => Value::Thread,
                ffi::TYPE_CDATA => Value::CData,
                _ => Value::Nil,
            }
        }
    }

    /// Which object is in a slot, for comparison; 0 if it is none.
    #[must_use]
    pub fn identity(&self, at: i32) -> usize {
        let slot = self.slot(at);
        // SAFETY: a slot that is there; nothing is read through the pointer.
        unsafe { ffi::lua_topointer(self.state, slot).addr() }
    }

    /// Whether what is in a slot counts as true.
    #[must_use]
    pub fn is_true(&self, at: i32) -> bool {
        !matches!(self.get(at), Value::Nil | Value::Boolean(false))
    }

    /// A number, or a text that is one, as arithmetic takes it.
    #[must_use]
    pub fn number(&self, at: i32) -> Option<f64> {
        if at > self.len() {
            return None;
        }
        let slot = self.slot(at);
        // SAFETY: a slot that is there; neither changes it.
        unsafe { (ffi::lua_isnumber(self.state, slot) != 0).then(|| ffi::lua_tonumber(self.state, slot)) }
    }

    /// A text; a number is made one, where it is, as Lua writes it.
    pub fn text(&mut self, at: i32) -> Option<&[u8]> {
        if at > self.len() {
            return None;
        }
        let slot = self.slot(at);
        let is_text = matches!(self.raw_type(slot), ffi::TYPE_NUMBER | ffi::TYPE_STRING);
        // SAFETY: one of the two types.
        is_text.then(|| unsafe { self.text_of(slot) })
    }

    /// # Safety
    /// A string or a number is in the slot. In the first case nothing changes; in both, what comes
    /// back lives as long as it stays there.
    unsafe fn text_of(&self, slot: c_int) -> &[u8] {
        let mut len = 0;
        // SAFETY: by the contract it is a string or becomes one; in mode Host no error is raised.
        unsafe {
            let text = ffi::lua_tolstring(self.state, slot, &raw mut len);
            std::slice::from_raw_parts(text.cast(), len)
        }
    }

    /// The length of a text or of a table's list, without metamethods; 0 of anything else.
    #[must_use]
    pub fn raw_len(&self, at: i32) -> usize {
        let slot = self.slot(at);
        match self.raw_type(slot) {
            // SAFETY: one of the types that have a length.
            ffi::TYPE_STRING | ffi::TYPE_TABLE => unsafe { ffi::lua_objlen(self.state, slot) },
            _ => 0,
        }
    }

    /// Replaces the topmost value by the table's field of that name, without metamethods.
    pub fn raw_get(&mut self, table: i32) {
        let slot = self.table(table);
        // SAFETY: a table, and a value above it.
        unsafe { ffi::lua_rawget(self.state, slot) };
    }

    /// Pushes a field of a table, without metamethods.
    pub fn raw_field(&mut self, table: i32, name: &str) {
        let slot = self.table(table);
        self.push(name);
        // SAFETY: a table, and the name above it.
        unsafe { ffi::lua_rawget(self.state, slot) };
    }

    /// Pushes an item of a table's list, without metamethods.
    pub fn raw_item(&mut self, table: i32, index: i32) {
        let slot = self.table(table);
        self.reserve(1);
        // SAFETY: a table, and room.
        unsafe { ffi::lua_rawgeti(self.state, slot, index) };
    }

    /// Looks at items of a table's list, without metamethods.
    pub fn look_at_items<T, const COUNT: usize>(
        &mut self,
        table: i32,
        items: [i32; COUNT],
        look: impl Fn(Value<'_>) -> T,
    ) -> [T; COUNT] {
        let slot = self.table(table);
        self.reserve(COUNT as i32);
        let (state, len) = (self.state, self.len());
        let mut above = len;
        let seen = items.map(|index| {
            above += 1;
            // SAFETY: a table, and room; the value is there until all have been looked at.
            unsafe { ffi::lua_rawgeti(state, slot, index) };
            look(self.value(above))
        });
        // SAFETY: what was pushed goes again.
        unsafe { ffi::lua_settop(state, len) };
        seen
    }

    /// Has a field of a table be the topmost value, which goes; without metamethods.
    pub fn raw_set_field(&mut self, table: i32, name: &str) {
        let slot = self.table(table);
        assert!(slot < self.len(), "a value is above the table");
        self.push(name);
        // SAFETY: a table with the key and the value above it; a text is a key always.
        unsafe {
            ffi::lua_insert(self.state, -2);
            ffi::lua_rawset(self.state, slot);
        }
    }

    /// Stores the topmost value under the key below it in a table, without metamethods; both go.
    ///
    /// # Panics
    /// If the key is `nil` or not a number (NaN).
    pub fn raw_set(&mut self, table: i32) {
        let slot = self.table(table);
        assert!(slot < self.len() - 1, "a key and a value are above the table");
        let key = self.get(-2);
        let is_key = match key {
            Value::Nil => false,
            Value::Number(number) => !number.is_nan(),
            _ => true,
        };
        assert!(is_key, "nothing is stored under such a key");
        // SAFETY: a table with a key, which is one, and a value above it.
        unsafe { ffi::lua_rawset(self.state, slot) };
    }

    /// Has an item of a table's list be the topmost value, which goes; without metamethods.
    pub fn raw_set_item(&mut self, table: i32, index: i32) {
        let slot = self.table(table);
        assert!(slot < self.len(), "a value is above the table");
        // SAFETY: a table with the value above it.
        unsafe { ffi::lua_rawseti(self.state, slot, index) };
    }

    /// Gives a table the metatable that is on top, which goes.
    pub fn set_metatable(&mut self, table: i32) {
        let (slot, top) = (self.table(table), self.table(-1));
        assert!(slot < top, "the metatable is above the table");
        // SAFETY: two tables.
        unsafe { ffi::lua_setmetatable(self.state, slot) };
    }

    /// Pushes a field of a value's metatable; nothing, and false, where there is none.
    pub fn push_metafield(&mut self, at: i32, name: &str) -> bool {
        let slot = self.slot(at);
        self.reserve(2);
        // SAFETY: a slot that is there, and room.
        if unsafe { ffi::lua_getmetatable(self.state, slot) } == 0 {
            return false;
        }
        self.raw_field(-1, name);
        let is_there = self.get(-1) != Value::Nil;
        if is_there {
            self.remove(-2);
        } else {
            self.pop(2);
        }
        is_there
    }

    /// Pushes a function of ours (`call.rs`).
    pub fn push_function<F: crate::HostFunction>(&mut self, function: F) {
        self.reserve(1);
        let trampoline = crate::call::trampoline_of(function);
        // SAFETY: room for one; in mode Host no error is raised.
        unsafe { ffi::lua_pushcclosure(self.state, trampoline, 0) };
    }

    /// A coroutine that will run the function below the topmost `arguments` values with them; all of them go.
    pub fn take_coroutine(&mut self, arguments: i32) -> Coroutine {
        let function = self.slot(-arguments - 1);
        assert!(arguments >= 0 && self.get(function) == Value::Function, "a function is below its arguments");
        self.reserve(1);
        // SAFETY: room for one; in mode Host no error is raised. The reference keeps it.
        let state = unsafe { ffi::lua_newthread(self.state) };
        let anchor = self.take_reference();
        // SAFETY: two threads of one VM; as many values are there, and the new one has room for them or says
        // that it has not, which is a panic.
        unsafe {
            assert!(ffi::lua_checkstack(state, arguments + 1) != 0, "a stack of Lua has room for arguments");
            ffi::lua_xmove(self.state, state, arguments + 1);
        }
        Coroutine::ready(state, anchor)
    }

    /// Moves all values of a coroutine that does not run here; how many.
    ///
    /// # Panics
    /// If it is another VM's.
    pub fn take_all(&mut self, from: &Coroutine) -> i32 {
        assert!(from.anchor().is_of(self.host), "a coroutine belongs to one VM for life");
        assert!(from.state() != self.state, "it does not run");
        // SAFETY: the reference keeps it, and the VM is held.
        let count = unsafe { Stack::new(from.state(), self.host) }.len();
        self.reserve(count);
        // SAFETY: two threads of one VM, values that are there, and room for them.
        unsafe { ffi::lua_xmove(from.state(), self.state, count) };
        count
    }

    /// Takes the topmost value away and keeps it in the VM.
    pub fn take_reference(&mut self) -> Reference {
        let _there = self.slot(-1);
        // SAFETY: a value is there; in mode Host no error is raised.
        let key = unsafe { ffi::luaL_ref(self.state, ffi::REGISTRY) };
        Reference::new(Keeper::Registry, key, self.host)
    }

    /// Takes the topmost value, which is the shelf, and the one below it away: that one is kept on it.
    pub(crate) fn take_onto_shelf(&mut self) -> Reference {
        let (_there, table) = (self.slot(-2), self.table(-1));
        // SAFETY: a value, and a table above it; in mode Host no error is raised.
        let key = unsafe {
            ffi::lua_insert(self.state, -2);
            ffi::luaL_ref(self.state, table - 1)
        };
        self.pop(1);
        Reference::new(Keeper::Shelf, key, self.host)
    }

    /// Calls the function below the topmost `arguments` values; all of them go, and its results come: as
    /// many as `results` says, or as there are.
    ///
    /// # Errors
    /// What it raised, with its text.
    pub fn call(&mut self, arguments: i32, results: Option<i32>) -> Result<i32, Fault> {
        let function = self.slot(-arguments - 1);
        self.reserve(results.unwrap_or(0).max(1));
        let (state, results) = (self.state, results.unwrap_or(-1));
        assert!(results >= -1, "a count");
        // SAFETY: the function and its arguments are there, and there is room for what comes back.
        let status = self.host.in_lua(|| unsafe { ffi::lua_pcall(state, arguments, results, 0) });
        if status == ffi::OK { Ok(self.len() - function + 1) } else { Err(self.take_fault(status)) }
    }

    /// Replaces the topmost value by the field of that name of what is in a slot, which may be anything.
    ///
    /// # Errors
    /// What a metamethod raised, or that the value has no fields.
    pub fn get_field(&mut self, at: i32) -> Result<(), Fault> {
        self.protected(at, 1, Tool::GetField, 1)
    }

    /// Stores the topmost value under the name below it in what is in a slot; both go.
    ///
    /// # Errors
    /// As of [`Stack::get_field`].
    pub fn set_field(&mut self, at: i32) -> Result<(), Fault> {
        self.protected(at, 2, Tool::SetField, 0)
    }

    /// Replaces the topmost value, a key or `nil`, by the table's next key and its value, or says that
    /// there is none.
    ///
    /// # Errors
    /// That it is no key of the table.
    pub fn next(&mut self, table: i32) -> Result<bool, Fault> {
        let slot = self.table(table);
        self.protected(slot, 1, Tool::Next, 2)?;
        let is_there = !matches!(self.get(-2), Value::Nil);
        if !is_there {
            self.pop(2);
        }
        Ok(is_there)
    }

    /// Pushes what `tostring` makes of a slot.
    ///
    /// # Errors
    /// What `__tostring` raised.
    pub fn push_as_text(&mut self, at: i32) -> Result<(), Fault> {
        self.protected(at, 0, Tool::ToText, 1)
    }

    /// Makes the functions that `protected` calls, in a VM that has Lua's libraries.
    pub(crate) fn install_tools(&mut self) {
        let mut keys = [0; TOOLS];
        let made: [ffi::Function; 3] = [get_field, set_field, next];
        for (key, function) in keys.iter_mut().zip(made) {
            self.reserve(1);
            // SAFETY: room for one; in mode Host no error is raised.
            *key = unsafe {
                ffi::lua_pushcclosure(self.state, function, 0);
                ffi::luaL_ref(self.state, ffi::REGISTRY)
            };
        }
        self.push_globals();
        self.raw_field(-1, "tostring");
        // SAFETY: a value is there; in mode Host no error is raised.
        keys[Tool::ToText as usize] = unsafe { ffi::luaL_ref(self.state, ffi::REGISTRY) };
        self.pop(1);
        self.host.set_tools(keys);
    }

    /// Runs one operation of LuaJIT's in a protected call: on a slot and the topmost values, which go.
    fn protected(&mut self, at: i32, values: i32, what: Tool, results: i32) -> Result<(), Fault> {
        let slot = self.slot(at);
        let first = self.len() - values + 1;
        assert!(slot < first, "the values are above it");
        self.reserve(4);
        // SAFETY: room, slots that are there, and what `install_tools` has put into the registry.
        unsafe {
            ffi::lua_rawgeti(self.state, ffi::REGISTRY, self.host.tool(what));
            ffi::lua_insert(self.state, first);
            ffi::lua_pushvalue(self.state, slot);
            ffi::lua_insert(self.state, first + 1);
        }
        self.call(values + 1, Some(results)).map(|_| ())
    }

    /// The error on top, which goes.
    pub(crate) fn take_fault(&mut self, status: c_int) -> Fault {
        let fault = self.fault(status);
        self.pop(1);
        fault
    }

    /// The error on top.
    pub(crate) fn fault(&mut self, status: c_int) -> Fault {
        let text = match self.text(-1) {
            Some(text) => text.to_vec(),
            None => b"unknown reason".to_vec(),
        };
        Fault::new(status, self.host.halt(), text)
    }

    /// Keeps only the error value of a coroutine that has raised an error. `error(text)` leaves its text
    /// below the same text with a position, and both stay: `ngx.thread.wait` returns them.
    pub(crate) fn keep_raised(&mut self) {
        let raised = self.text(-1).map(<[u8]>::to_vec).unwrap_or_default();
        let is_given = self.len() == 2 && self.text(1).is_some_and(|given| raised.ends_with(given));
        while !is_given && self.len() > 1 {
            self.remove(1);
        }
    }

    /// Where a thread of the VM is, as Lua's `debug.traceback` writes it, from this level on.
    pub(crate) fn traceback_of(&mut self, of: *mut LuaState, level: c_int) -> Vec<u8> {
        self.reserve(8);
        // SAFETY: two live threads of one VM; in mode Host no error is raised.
        unsafe { ffi::luaL_traceback(self.state, of, ptr::null(), level) };
        let text = self.text(-1).map(<[u8]>::to_vec).unwrap_or_default();
        self.pop(1);
        text
    }
}

/// Functions that run in protected calls for the server.
#[derive(Clone, Copy)]
pub(crate) enum Tool {
    GetField,
    SetField,
    Next,
    ToText,
}

/// As many as there are.
pub(crate) const TOOLS: usize = 4;

/// (value, name) → field. This and the others run in mode Lua, called by `Stack::protected` with these
/// arguments; an error unwinds through a frame that owns nothing.
unsafe extern "C-unwind" fn get_field(state: *mut LuaState) -> c_int {
    // SAFETY: two values are there.
    unsafe { ffi::lua_gettable(state, 1) };
    1
}

/// (value, name, field) → nothing.
unsafe extern "C-unwind" fn set_field(state: *mut LuaState) -> c_int {
    // SAFETY: three values are there.
    unsafe { ffi::lua_settable(state, 1) };
    0
}

/// (table, key) → key, value; or nothing.
unsafe extern "C-unwind" fn next(state: *mut LuaState) -> c_int {
    // SAFETY: a table and a value are there.
    if unsafe { ffi::lua_next(state, 1) } == 0 { 0 } else { 2 }
}
