//! Plugins: libraries of others that take part in requests. A plugin asks for work when it has a thread for it,
//! so what it does never runs on a loop; what it answers is checked like anything that comes from outside.
mod board;
mod message;
