//! Where a task is that does not say so itself: what stands behind its tag (`clearway_runtime::Tag`). Asked
//! by the reporter's thread.

use clearway_runtime::Tag;

/// Somewhere in the configuration, and a step of the work there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkPlace {
    /// Such as the name of a location.
    pub name: String,
    /// Such as a phase.
    pub step: &'static str,
}

/// Says what stands behind a tag.
pub(crate) type Places = dyn Fn(Tag) -> Option<WorkPlace> + Send + Sync;
