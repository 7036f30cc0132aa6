//! Where a task is that does not say so itself: what stands behind its tag (`clearway_runtime::Tag`). Asked
//! by the reporter's thread.

use clearway_runtime::Tag;

/// Somewhere in the configuration, and a step of the work there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkPlace {
    /// The name, such as that of a location.
    pub name: String,
    /// The step, such as a phase.
    pub step: &'static str,
}

/// Says what stands behind a tag.
pub(crate) type Places = dyn Fn(Tag) -> Option<WorkPlace> + Send + Sync;
