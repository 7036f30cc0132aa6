//! From the tables of directives to a loaded configuration: the levels that settings are inherited
//! through, the directives of the core, and the loader that makes a snapshot of them. Runs at boot and at
//! reload, never for a request.

pub(crate) mod body_directives;
pub(crate) mod core_directives;
pub(crate) mod hash_sizes;
pub(crate) mod head_directives;
pub(crate) mod levels;
pub(crate) mod load;
pub mod module;
pub mod paths;
pub(crate) mod product;
pub(crate) mod request_directives;
pub(crate) mod sending;
pub(crate) mod setting;
pub mod temp_paths;
