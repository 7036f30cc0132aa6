//! A client of HTTP/1 that pipelines: what it sends, and how strictly it reads what comes.

use std::collections::VecDeque;

use clearway_sim::{Body, Method, Request};

use crate::expected::{Asked, Received, path, sent};

/// A head at most, bytes.
const HEAD_MAX: usize = 4096;

/// What follows the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Known(u64),
    Chunked(Chunk),
    UntilClose,
}

/// What comes next of a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunk {
    Size,
    Data(u64),
    EndOfData,
    Trailers,
}

/// A client of HTTP/1.
#[derive(Debug, Default)]
pub(crate) struct Http1 {
    input: Vec<u8>,
    /// Asked and not answered, in their order.
    waiting: VecDeque<Asked>,
    /// The response that has begun.
    current: Option<(Received, Framing)>,
    /// The server has said that nothing follows.
    is_closing: bool,
    /// Those that are complete, with the request of each.
    pub(crate) answered: Vec<(Request, Received)>,
}

impl Http1 {
    /// The bytes of a request.
    pub(crate) fn ask(&mut self, request: &Request) -> Vec<u8> {
        self.waiting.push_back(Asked::now(request));
        let method = match request.method {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
        };
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: a\r\n", path(request));
        if request.ends {
            head.push_str("Connection: close\r\n");
        }
        let body = sent(request);
        match request.body {
            Body::None => {}
            Body::Known(length) => head.push_str(&format!("Content-Length: {length}\r\n")),
            Body::Chunked(..) => head.push_str("Transfer-Encoding: chunked\r\n"),
        }
        let mut bytes = (head + "\r\n").into_bytes();
        match request.body {
            Body::Chunked(_, size) => {
                for chunk in body.chunks(usize::try_from(size).expect("small")) {
                    bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            }
            _ => bytes.extend_from_slice(&body),
        }
        bytes
    }

    /// How much of which body has come that is not complete.
    pub(crate) fn under_way(&self) -> Option<(u32, u64)> {
        let (received, _) = self.current.as_ref()?;
        Some((self.waiting.front()?.request.id, received.body.len() as u64))
    }

    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.input.extend_from_slice(bytes);
        while !self.input.is_empty() {
            let is_further = match &self.current {
                None => self.take_head()?,
                Some(_) => self.take_body()?,
            };
            if !is_further {
                break;
            }
        }
        Ok(())
    }

    fn take_head(&mut self) -> Result<bool, String> {
        if self.is_closing {
            return Err("something follows a response that closes the connection".to_owned());
        }
        let Some(Asked { request, .. }) = self.waiting.front() else {
            return Err("an answer that nobody asked for".to_owned());
        };
        let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_long = self.input.len() > HEAD_MAX;
            return if is_long { Err("a head without an end".to_owned()) } else { Ok(false) };
        };
        let head: Vec<u8> = self.input.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(|_| "a head that is no text".to_owned())?;
        let (received, framing, is_closing) = read_head(&head, request)?;
        received.check_head(request)?;
        self.is_closing = is_closing;
        self.current = Some((received, framing));
        self.end_if_complete()?;
        Ok(true)
    }

    /// A body whose length is known to have come.
    fn end_if_complete(&mut self) -> Result<(), String> {
        match self.current {
            Some((_, Framing::Known(0))) => self.end_response(),
            _ => Ok(()),
        }
    }

    fn end_response(&mut self) -> Result<(), String> {
        let (Some((received, _)), Some(asked)) = (self.current.take(), self.waiting.pop_front()) else {
            return Ok(());
        };
        received.check_whole(&asked.request)?;
        self.answered.push((asked.request, received));
        Ok(())
    }

    fn take_body(&mut self) -> Result<bool, String> {
        let (Some((received, framing)), Some(asked)) = (&mut self.current, self.waiting.front()) else {
            return Ok(false);
        };
        let mut take = |input: &mut Vec<u8>, most: u64| {
            let count = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
            received.body.extend(input.drain(..count));
            count as u64
        };
        let mut is_over = false;
        match framing {
            Framing::UntilClose => drop(take(&mut self.input, u64::MAX)),
            Framing::Known(left) => *left -= take(&mut self.input, *left),
            Framing::Chunked(Chunk::Data(left)) => {
                *left -= take(&mut self.input, *left);
                if *left == 0 {
                    *framing = Framing::Chunked(Chunk::EndOfData);
                }
            }
            Framing::Chunked(chunk) => {
                let Some(end) = self.input.windows(2).position(|two| two == b"\r\n") else {
                    return if self.input.len() > 20 {
                        Err("a line of a chunk is too long".to_owned())
                    } else {
                        Ok(false)
                    };
                };
                let line: Vec<u8> = self.input.drain(..end + 2).collect();
                match next_chunk(*chunk, &line[..end])? {
                    Some(next) => *chunk = next,
                    None => is_over = true,
                }
            }
        }
        received.check_body(&asked.request)?;
        if is_over {
            self.end_response()?;
        }
        self.end_if_complete()?;
        Ok(true)
    }

    /// Nothing more comes. `is_excused`: there was a reason for the server to end the connection.
    pub(crate) fn end(&mut self, is_excused: bool) -> Result<(), String> {
        if let Some((_, Framing::UntilClose)) = self.current
            && !is_excused
            && self.waiting.front().is_some_and(|asked| !asked.may_break())
        {
            self.end_response()?;
        }
        if is_excused || self.is_closing && self.current.is_none() {
            return Ok(());
        }
        match self.waiting.front() {
            Some(asked) if self.current.is_some() && asked.may_break() => Ok(()),
            Some(Asked { request, .. }) => Err(format!(
                "the connection ended without reason, {} before the end of an answer to {request:?}",
                if self.current.is_some() { "shortly" } else { "long" }
            )),
            None => Err("an idle connection was closed without reason".to_owned()),
        }
    }

    /// What is not answered though all was sent and there was time.
    pub(crate) fn check_answered(&self) -> Result<(), String> {
        match self.waiting.front() {
            Some(Asked { request, .. }) if !self.is_closing => {
                Err(format!("no answer to {request:?}, {:?}", self.current))
            }
            _ => Ok(()),
        }
    }
}

fn next_chunk(chunk: Chunk, line: &[u8]) -> Result<Option<Chunk>, String> {
    let text = || String::from_utf8_lossy(line).into_owned();
    match chunk {
        Chunk::Size => match u64::from_str_radix(&text(), 16) {
            Ok(0) => Ok(Some(Chunk::Trailers)),
            Ok(size) => Ok(Some(Chunk::Data(size))),
            Err(_) => Err(format!("the size of a chunk: {:?}", text())),
        },
        Chunk::EndOfData if line.is_empty() => Ok(Some(Chunk::Size)),
        Chunk::Trailers if line.is_empty() => Ok(None),
        Chunk::EndOfData | Chunk::Trailers | Chunk::Data(_) => Err(format!("behind a chunk: {:?}", text())),
    }
}

fn read_head(head: &str, request: &Request) -> Result<(Received, Framing, bool), String> {
    let mut lines = head.trim_end_matches("\r\n").split("\r\n");
    let status = lines.next().and_then(|line| line.strip_prefix("HTTP/1.1 ")).and_then(|rest| rest.get(..3));
    let status = status.and_then(|status| status.parse().ok()).ok_or_else(|| format!("the head {head:?}"))?;
    let mut received = Received::default();
    received.status = status;
    let (mut is_chunked, mut is_closing) = (false, false);
    for line in lines {
        let (name, value) = line.split_once(": ").ok_or_else(|| format!("the line {line:?}"))?;
        match &name.to_ascii_lowercase()[..] {
            "content-length" if received.content_length.is_some() => {
                return Err("two lengths".to_owned());
            }
            "content-length" => {
                received.content_length = Some(value.parse().map_err(|_| format!("length {value:?}"))?);
            }
            "transfer-encoding" => is_chunked = value == "chunked",
            "connection" => is_closing = value == "close",
            "x-path" => received.path = Some(value.to_owned()),
            _ => {}
        }
    }
    let framing = match (is_chunked, received.content_length) {
        (true, Some(_)) => return Err("a length and chunks".to_owned()),
        _ if request.method == Method::Head || status == 204 || status == 304 => Framing::Known(0),
        (true, None) => Framing::Chunked(Chunk::Size),
        (false, Some(length)) => Framing::Known(length),
        (false, None) => Framing::UntilClose,
    };
    if framing == Framing::UntilClose && !is_closing {
        return Err("a body without an end on a connection that stays".to_owned());
    }
    if request.ends && !is_closing {
        return Err("a connection stays that was to end".to_owned());
    }
    Ok((received, framing, is_closing))
}
