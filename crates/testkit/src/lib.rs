//! Test support: servers under test, raw clients, an oracle to compare with.
