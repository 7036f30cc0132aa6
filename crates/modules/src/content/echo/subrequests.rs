//! Commands that other locations answer: `echo_location`, `echo_subrequest` and their forms that do not wait.
//! In the task of the request.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use bytes::Bytes;
use clearway_base::log::{Level, Verbatim};
use clearway_http::{
    Afterwards, Answer, Asking, Capture, CapturedVariables, Exchange, Mark, Request, Store, StoredBody,
    Subrequest, open_body_file, uri,
};
use clearway_message::Method;

use super::commands::{Stopped, refuse, send};
use super::{PENDING, Pending, Verb};

/// Has the filter put what another location answers into the body.
pub(super) async fn ask(
    exchange: &mut Exchange<'_, '_>,
    verb: Verb,
    arguments: Vec<Vec<u8>>,
) -> Result<(), Stopped> {
    exchange.read_body(Store::AsConfigured).await?;
    let wanted = match verb {
        Verb::Subrequest | Verb::SubrequestAsync => with_options(exchange, arguments).await?,
        _ => {
            let (path, args) = target(&arguments).ok_or(Stopped::Answer(Answer::Status(500)))?;
            Subrequest::in_order(path, args.unwrap_or_default())
        }
    };
    if exchange.request.context(&PENDING).is_none() {
        exchange.request.set_context(&PENDING, Pending::default());
    }
    let pending = exchange.request.context(&PENDING).expect("it was set");
    pending.lock().push_back((wanted, verb));
    let mark = if verb.is_waited_for() { Mark::Flush } else { Mark::More };
    send(exchange, Bytes::new(), mark).await
}

/// The path and the arguments of a subrequest: arguments that the command gives replace those of the URI.
/// `None`: a URI like that may not be asked for.
pub(super) fn target(arguments: &[Vec<u8>]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let first = arguments.first().filter(|first| !first.is_empty())?;
    let (path, own) = uri::split_foreign(first).ok()?;
    let own = Some(own.to_vec()).filter(|own| !own.is_empty());
    Some((path, arguments.get(1).cloned().or(own)))
}

/// The options of `echo_subrequest`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    args: Option<Vec<u8>>,
    body: Option<Body>,
}

#[derive(Debug, PartialEq, Eq)]
enum Body {
    Text(Vec<u8>),
    /// The name of a file.
    File(Vec<u8>),
}

impl Options {
    /// # Errors
    /// What is wrong, as nginx's module says it.
    fn read(mut rest: &[Vec<u8>]) -> Result<Self, String> {
        let mut options = Self::default();
        while let Some((name, behind)) = rest.split_first() {
            let value = behind.first();
            match (&name[..], value) {
                (b"-q", Some(args)) => options.args = Some(args.clone()),
                (b"-b", Some(text)) => options.body = Some(Body::Text(text.clone())),
                (b"-f", Some(path)) => options.body = Some(Body::File(path.clone())),
                (b"-q" | b"-b" | b"-f", None) => {
                    return Err(format!("option {} takes an argument", Verbatim(name)));
                }
                _ => {
                    return Err(format!("unknown option for echo_subrequest*: {}", Verbatim(name)));
                }
            }
            rest = &behind[1..];
        }
        Ok(options)
    }
}

/// `METHOD URI [-q ARGUMENTS] [-b BODY | -f FILE]`. Without a body of its own it has its parent's; its
/// variables are its own.
async fn with_options(
    exchange: &mut Exchange<'_, '_>,
    arguments: Vec<Vec<u8>>,
) -> Result<Subrequest, Stopped> {
    let [method, uri, options @ ..] = &arguments[..] else {
        return Err(refuse(exchange, "echo_subrequest* takes a method and a URI"));
    };
    let options = Options::read(options).map_err(|text| refuse(exchange, &text))?;
    let Some((path, own)) = target(std::slice::from_ref(uri)) else {
        return Err(Stopped::Answer(Answer::Status(500)));
    };
    let body = match options.body {
        None => None,
        Some(Body::Text(text)) => Some(Made::Bytes(text.into())),
        Some(Body::File(name)) => Some(Made::File(open(exchange, &name).await?)),
    };
    let prepare = move |request: &mut Request<'_>| {
        // The head is its own.
        let _ = match body {
            None => Ok(()),
            Some(Made::Bytes(bytes)) => request.set_stored_body(bytes),
            Some(Made::File(file)) => request.replace_body(file),
        };
    };
    Ok(Subrequest {
        asking: Asking::With(Method::find(method)),
        capture: Some(Box::new(Capture {
            variables: CapturedVariables::Own,
            prepare: Box::new(prepare),
            conclude: Box::new(|_| ()),
        })),
        ..Subrequest::in_order(path, options.args.or(own).unwrap_or_default())
    })
}

/// A body as it is set.
enum Made {
    Bytes(Bytes),
    File(StoredBody),
}

async fn open(exchange: &mut Exchange<'_, '_>, name: &[u8]) -> Result<StoredBody, Stopped> {
    let path = match name.first() {
        Some(b'/') => name.to_vec(),
        _ => [exchange.request.configured_prefix(), name].concat(),
    };
    let opened = open_body_file(exchange.request, OsString::from_vec(path.clone()).into(), Afterwards::Kept);
    opened.await.map_err(|error| {
        let (path, errno) = (Verbatim(&path), clearway_base::Errno(&error));
        exchange.request.log(Level::Crit, format_args!("open() \"{path}\" failed {errno}"));
        Stopped::Answer(Answer::Status(500))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<Options, String> {
        let texts: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
        Options::read(&texts)
    }

    #[test]
    fn options_have_values() {
        assert_eq!(read(&[]), Ok(Options::default()));
        let of_text = Options { args: Some(b"a=1".to_vec()), body: Some(Body::Text(b"text".to_vec())) };
        assert_eq!(read(&["-q", "a=1", "-b", "text"]), Ok(of_text));
        let of_file = Options { args: None, body: Some(Body::File(b"f".to_vec())) };
        assert_eq!(read(&["-f", "f"]), Ok(of_file));
        assert_eq!(read(&["-b"]), Err("option -b takes an argument".to_owned()));
        assert_eq!(read(&["-x", "1"]), Err("unknown option for echo_subrequest*: -x".to_owned()));
    }
}
