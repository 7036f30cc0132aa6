//! Request bodies that Lua makes: a body is put aside when a buffer has no room for it, and a file can take
//! the place of a body. In the request's task.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clearway_base::log::Level;
use clearway_http::{Exchange, NotPutAside, NotReplaced, use_body_file};

use crate::current::{BodyWork, Pause};
use crate::request_state::RequestState;
use crate::threads::Answers;

/// Does it. The error ends the code.
pub(super) async fn run(exchange: &mut Exchange<'_, '_>, work: BodyWork) -> Result<Answers, Pause> {
    match work {
        BodyWork::PutAside => {
            let Some(body) = take(exchange) else { return Ok(Answers::None) };
            match body.put_aside(exchange.request).await {
                Ok(body) => {
                    if let Some(state) = RequestState::of(exchange.request) {
                        state.kept.enter().made_body = Some(body);
                    }
                    Ok(Answers::None)
                }
                Err(why) => Err(refuse(exchange, &why)),
            }
        }
        BodyWork::Finish => {
            let Some(body) = take(exchange) else { return Ok(Answers::None) };
            match body.finish(exchange.request).await {
                Ok(()) => Ok(Answers::None),
                Err(NotReplaced::NotPutAside(why)) => Err(refuse(exchange, &why)),
                Err(_) => Err(Pause::Exit(500)),
            }
        }
        BodyWork::UseFile { path, afterwards } => {
            let name = String::from_utf8_lossy(&path).into_owned();
            let path = OsString::from_vec(path).into();
            match use_body_file(exchange.request, path, afterwards).await {
                Ok(()) => Ok(Answers::One),
                Err(NotReplaced::SharedHead(_)) => {
                    Ok(Answers::Failed("the head of this request cannot be changed".into()))
                }
                Err(_) => Ok(Answers::Failed(Cow::Owned(format!("open() \"{name}\" failed")))),
            }
        }
    }
}

fn take(exchange: &Exchange<'_, '_>) -> Option<clearway_http::MadeBody> {
    RequestState::of(exchange.request)?.kept.enter().made_body.take()
}

fn refuse(exchange: &Exchange<'_, '_>, why: &NotPutAside) -> Pause {
    match why {
        NotPutAside::Failed(failure) => {
            exchange.request.log(Level::Crit, format_args!("{failure}"));
            Pause::Exit(500)
        }
        // The pool has logged it.
        NotPutAside::NotTaken => Pause::Exit(503),
    }
}
