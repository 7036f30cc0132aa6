//! Where groups of servers are shown and changed while serving (`status write=on`): the module that has the
//! directive says it here, for the one that has the groups.

use clearway_site::{Answers, ConfKey, Level};

/// Whether a location does that.
pub static GROUP_EDITING: ConfKey<Answers<bool>> = ConfKey::new(Level::Location);
