//! Listening, accepting, addresses.
