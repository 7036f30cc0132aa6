//! What Rust keeps for one VM beside the interpreter: a field for each room that has something to keep.

/// See the file's head.
#[derive(Default)]
pub struct VmState {}
