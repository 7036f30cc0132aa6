//! Modules that change a response on its way out: its head, its body, or both. Which comes before which is
//! said where all modules are listed.

pub mod addition;
pub mod charset;
pub mod gunzip;
pub mod gzip;
pub mod headers;
pub mod headers_more;
pub mod not_modified;
pub mod range_filter;
pub mod slice;
pub mod ssi;
pub mod sub_filter;
pub(crate) mod type_set;
