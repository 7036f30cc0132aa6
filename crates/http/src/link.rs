//! What carries a request: where bytes go to the client and come from it, how fast, and whether somebody is
//! there to read them.

pub(crate) mod departure;
pub(crate) mod pace;
pub(crate) mod send_queue;
