//! Error and access log sinks that never write on a loop.
