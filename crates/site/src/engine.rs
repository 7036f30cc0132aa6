//! The types that the crate above puts into the tables of a configuration. Here they are only kept: nothing
//! of them is called, except the functions that decide at load whether a handler takes part (`Enabling`).

use std::fmt::Debug;

/// The types of what runs requests. Tables (`Module`, `VariableSpec`, `PhaseHandler`) hold values of them,
/// and a [`Snapshot`](crate::Snapshot) hands them back as they were.
pub trait Engine: Clone + Copy + Debug + Default + Send + Sync + 'static {
    /// Does its part in a phase.
    type Handler: Copy + Send + Sync;
    /// Looks at the head of a response.
    type HeaderFilter: Copy + Send + Sync;
    /// Works out the value of a variable that a module offers.
    type Eval: Copy + Send + Sync;
    /// Takes the value that `set` gives a variable of the request itself.
    type Assign: Copy + Debug + Send + Sync;
    /// A variable that the configuration makes (`map`, `geo`).
    type Computed: ?Sized + Send + Sync;
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Engine;

    /// An engine with nothing in its tables.
    #[derive(Clone, Copy, Debug, Default)]
    pub(crate) struct Nothing;

    impl Engine for Nothing {
        type Handler = ();
        type HeaderFilter = ();
        type Eval = ();
        type Assign = ();
        type Computed = ();
    }
}
