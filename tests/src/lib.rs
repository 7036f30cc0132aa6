//! Integration and differential tests; see the files in `tests/`.
