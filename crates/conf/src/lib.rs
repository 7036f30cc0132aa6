//! The nginx.conf language.
