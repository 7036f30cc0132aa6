//! The directives of the core, executed at boot or reload, and what is worked out of their settings for a
//! request.

pub(crate) mod body_directives;
pub(crate) mod core_directives;
pub(crate) mod head_directives;
pub(crate) mod request_directives;
pub(crate) mod sending;
