//! Modules that answer: files above all, with what finds, opens and remembers them, and the small
//! handlers. Runs in the content phase of a request.

pub mod autoindex;
mod copies;
pub mod dav;
pub mod disable_symlinks;
pub mod echo;
pub mod empty_gif;
pub mod files;
pub mod flv;
pub mod gzip_static;
pub mod index;
pub(crate) mod lookup;
pub(crate) mod media;
pub mod mp4;
mod name_hash;
pub(crate) mod names;
pub mod open_file_cache;
pub mod random_index;
pub mod realpath;
pub mod static_files;
pub mod status;
pub mod stub_status;
pub mod try_files;
