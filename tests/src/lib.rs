//! Integration and differential tests, in `tests/`: `differential` compares with nginx,
//! `integration` drives one server through signals, limits and slow clients, `process` its master and
//! workers through reloads, crashes and upgrades, `handover` holds loops on purpose. They run the binary
//! that `CLEARWAY_BIN` names, or the one built beside them with the `testing` feature.
#![forbid(unsafe_code)]
