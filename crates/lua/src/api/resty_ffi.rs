//! Tasks of plugins (lua-resty-ffi): code that has posted one waits for its answer. The queues are those of
//! `clearway_luajit::resty_ffi`.

use clearway_luajit::resty_ffi::{Posting, Waiting, set_poster};
use clearway_luajit::{Fault, Stack};

use super::room::Install;
use crate::current::{Pause, Run, YIELDABLE};
use crate::threads::{Answers, Operation};

/// What its Lua asks `resty.core.base` for is in `modules`.
pub(super) fn install(_: &mut Install<'_>) -> Result<(), Fault> {
    set_poster(post);
    Ok(())
}

/// Has the code wait that posts, where it may.
fn post(posting: &mut Posting<'_>) -> bool {
    let posted = posting.with_context::<Run, _>(|current, waiting| {
        // One that was posted before and not waited for is given up.
        let may_wait = YIELDABLE.has(current.phase);
        if may_wait {
            current.pause = Some(Pause::Operation(Operation::new(answer(waiting))));
        }
        may_wait
    });
    posted.unwrap_or(false)
}

/// True and the answer, or false, a number, and the answer.
async fn answer(waiting: Waiting) -> Answers {
    let answer = waiting.await;
    let push = move |stack: &mut Stack<'_>| {
        stack.push(answer.code == 0);
        if answer.code != 0 {
            stack.push(answer.code);
        }
        stack.push(answer.text());
        if answer.code == 0 {
            stack.push(());
        }
    };
    Answers::Push(Box::new(push), None)
}
