//! The module list, supervisor and worker.
