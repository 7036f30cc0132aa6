//! What several targets share.

pub mod tls;
