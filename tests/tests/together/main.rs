//! One site with everything in it (`clearway_testkit::site`). What each half's own tests cannot know: that
//! they go together.
#![forbid(unsafe_code)]
#![cfg(not(nginx_under_test))]
#![allow(clippy::disallowed_methods, reason = "test programs have no loop to block")]

mod answers;
mod bad_day;
mod changes;
