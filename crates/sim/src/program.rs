//! Programs: which clients there are, and what they, the clock and the loop do, one after the other.

use crate::random::Random;

/// Clients of one program at most.
const CLIENTS_MAX: u64 = 4;
/// Actions of one program.
const ACTIONS: (u64, u64) = (20, 120);
/// A body at most, bytes: more than all that is on its way on a connection at once.
const BODY_MAX: u64 = 300_000;
/// The most bytes that a client sends as a body.
const SENT_MAX: u64 = 100_000;

/// The actions of one run.
#[derive(Clone, Debug)]
pub struct Program {
    /// The seed of the program.
    pub seed: u64,
    /// The protocol of each client.
    pub clients: Vec<Protocol>,
    /// In their order.
    pub actions: Vec<Action>,
}

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 and 1.1.
    Http1,
    /// HTTP/2.
    Http2,
}

/// One thing that is done, and how often the loop is turned afterwards.
#[derive(Clone, Debug)]
pub struct Action {
    /// Which client does it.
    pub client: usize,
    /// What.
    pub step: Step,
    /// Turns of the loop that follow.
    pub turns: u64,
}

/// A possible action.
#[derive(Clone, Debug)]
pub enum Step {
    /// A request is made; it goes behind what the client still has to send.
    Ask(Request),
    /// So many bytes are sent, if there are as many and they are taken.
    Send(usize),
    /// So many bytes are received, if there are as many.
    Receive(usize),
    /// HTTP/2: the windows of the connection and of a recent stream are opened by so many bytes.
    Open(u32),
    /// HTTP/2: a recent request is cancelled.
    Cancel(usize),
    /// The clock moves by so many milliseconds.
    Wait(u64),
    /// The client sends nothing more.
    Finish,
    /// The client goes away.
    Leave,
    /// The client resets its connection: what is on its way is lost.
    Reset,
    /// No more than so many bytes are on their way to the client at once: the server writes in pieces.
    Narrow(usize),
    /// How disks are from here on: both, or one of them.
    Disks(Option<usize>, Disks),
    /// How other servers are from here on.
    Others(Others),
}

/// How the disks of a cache do what they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disks {
    /// At once.
    Quick,
    /// One thing at a time, so many milliseconds apart.
    Slow(u64),
    /// Not at all.
    Hang,
    /// At once, but nothing more has room.
    Full,
    /// Nothing succeeds.
    Fail,
    /// One call in so many fails, three or more.
    FailAtTimes(u64),
}

/// How other servers take connections, and read and write on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// At once, and all that there is room for.
    Quick,
    /// So many milliseconds after the call.
    Late(u64),
    /// Not at all.
    Deaf,
    /// Connections are refused.
    Refusing,
    /// At once, but no more than so many bytes are on their way to them.
    Narrow(usize),
    /// At once, but they write no more than so many bytes at a time.
    Dribbling(usize),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Unlike that of any other one of the program.
    pub id: u32,
    /// How it is asked.
    pub method: Method,
    /// The kind of its answer.
    pub kind: Kind,
    /// The body that is sent with it.
    pub body: Body,
    /// HTTP/1: whether the connection is to end with it.
    pub ends: bool,
}

/// How a request is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// With what comes of it.
    Get,
    /// Without its body.
    Head,
    /// With a body.
    Post,
}

/// A request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// None.
    None,
    /// Its length is announced.
    Known(u64),
    /// Its length is not announced: chunks of so many bytes, over HTTP/1.
    Chunked(u64, u64),
}

impl Body {
    /// Its bytes in all.
    #[must_use]
    pub fn length(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Known(length) | Self::Chunked(length, _) => length,
        }
    }
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many bytes, in pieces of that size, with a pause between them, milliseconds; whether their number
    /// is known beforehand.
    Bytes(u64, u64, u64, bool),
    /// The request's body.
    Echo,
    /// A text that the configuration says, which looks at no body.
    Fixed,
    /// A text of the configuration, at a limited rate.
    Slow(u64),
    /// A page with another one before and behind it.
    Around(u64),
    /// A file that does not exist.
    Missing,
    /// Another server.
    Passed(u64, Peer),
    /// A cache, or another server: the object of this number, which has so many bytes.
    Cached(u32, u64, Peer),
}

/// The numbers of objects begin here: no request has such a one.
const OBJECTS_FIRST: u32 = 1_000_000;
/// Objects of one program.
const OBJECTS: u32 = 3;

/// How another server behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The server announces the length of its response.
    Exact,
    /// Its response is chunked.
    Chunked,
    /// Its response ends with its connection.
    UntilClose,
    /// The server answers in pieces, so many milliseconds apart.
    Slow(u64),
    /// The server does not answer.
    Silent,
    /// The server closes the connection before it answers.
    Dies,
    /// The server closes the connection in the middle of its response.
    DiesWithin,
    /// As above, with a chunked response.
    DiesWithinChunk,
    /// The server sends more than it has announced.
    TooMuch,
    /// The server sends bytes that are no response.
    Garbage,
    /// The server announces its response, sends pieces of it so many milliseconds apart, and closes the
    /// connection before the end.
    DiesSlowly(u64),
    /// As above, with chunks, of which the last one never comes.
    DiesBetweenChunks(u64),
    /// The server resets the connection so many milliseconds after the first half of its response.
    Resets(u64),
    /// Behind the first half of its response it sends a chunk whose size is none.
    BadChunk,
    /// The server closes the connection in the middle of the head.
    CutHead,
    /// Its response is chunked, and has a length beside that.
    TwoLengths,
    /// So many milliseconds after its response it sends another one that nobody has asked for.
    Unasked(u64),
    /// Its response comes behind two of those that announce one.
    Announced,
    /// The server answers before it has read the request's body.
    Early,
}

/// Whether responses of this server never come to their end.
#[must_use]
pub fn never_ends(peer: Peer) -> bool {
    matches!(peer, Peer::DiesWithin | Peer::DiesWithinChunk | Peer::DiesBetweenChunks(_) | Peer::BadChunk)
}

/// Whether this server stops in the middle of a response whose rest can be asked for.
#[must_use]
pub fn stops(peer: Peer) -> bool {
    matches!(peer, Peer::DiesSlowly(_) | Peer::Resets(_))
}

impl Program {
    /// The program of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = random.between(1, CLIENTS_MAX);
        let clients = (0..count).map(|_| random.pick(&[Protocol::Http1, Protocol::Http2])).collect();
        let length = random.between(ACTIONS.0, ACTIONS.1);
        // In most programs nothing takes so long that a timeout could be the reason of an end.
        let longest_ms = random.pick(&[60, 60, 12_000]);
        let mut next_id = 0;
        let objects: Vec<Kind> = (OBJECTS_FIRST..OBJECTS_FIRST + OBJECTS)
            .map(|object| Kind::Cached(object, random.size(BODY_MAX), peer(&mut random)))
            .collect();
        let actions = (0..length)
            .map(|_| Action {
                client: usize::try_from(random.below(count)).expect("few"),
                step: step(&mut random, (&mut next_id, &objects), longest_ms),
                turns: random.pick(&[0, 1, 1, 2, 5]),
            })
            .collect();
        Self { seed, clients, actions }
    }
}

fn step(random: &mut Random, (next_id, objects): (&mut u32, &[Kind]), longest_ms: u64) -> Step {
    let bytes = |random: &mut Random, most| usize::try_from(random.size(most)).expect("it fits");
    match random.below(100) {
        0..25 => Step::Ask(request(random, next_id, objects)),
        25..47 => Step::Send(bytes(random, 70_000)),
        47..49 => Step::Disks(random.pick(&[None, Some(0), Some(1)]), disks(random)),
        49 => Step::Others(others(random)),
        50..72 => Step::Receive(bytes(random, 70_000)),
        72..75 => Step::Narrow(bytes(random, 70_000).max(1)),
        75..80 => Step::Open(u32::try_from(random.size(100_000)).expect("it fits").max(1)),
        80..84 => Step::Cancel(bytes(random, 4)),
        84..94 => Step::Wait(random.between(1, 60)),
        94..97 => Step::Wait(random.between(longest_ms / 20, longest_ms)),
        97 => Step::Finish,
        98 => Step::Reset,
        _ => Step::Leave,
    }
}

fn others(random: &mut Random) -> Others {
    match random.below(8) {
        0..2 => Others::Quick,
        2 => Others::Late(random.pick(&[1, 300])),
        3 => Others::Deaf,
        4 => Others::Refusing,
        5 => Others::Narrow(usize::try_from(random.size(70_000)).expect("it fits").max(1)),
        // Not so few that a run has no time for all of them.
        _ => Others::Dribbling(usize::try_from(random.between(100, 9000)).expect("it fits")),
    }
}

fn disks(random: &mut Random) -> Disks {
    match random.below(8) {
        0..3 => Disks::Quick,
        3 => Disks::Slow(random.pick(&[1, 20, 400])),
        4 => Disks::Hang,
        5 => Disks::Full,
        6 => Disks::Fail,
        _ => Disks::FailAtTimes(random.pick(&[3, 8])),
    }
}

fn request(random: &mut Random, next_id: &mut u32, objects: &[Kind]) -> Request {
    *next_id += 1;
    let length = random.size(BODY_MAX);
    let kind = match random.below(16) {
        0..3 => {
            let piece = random.size(40_000).max(1);
            let pause_ms = random.pick(&[0, 0, 0, 5, 40]);
            // Not more pieces than a run has time for.
            Kind::Bytes(length, piece.max(length / 20), pause_ms, random.once_in(2))
        }
        3..5 => Kind::Echo,
        5 => Kind::Fixed,
        6 => Kind::Slow(length / 4),
        7 => Kind::Around(random.size(20_000)),
        8 => Kind::Missing,
        9..13 => random.pick(objects),
        _ => Kind::Passed(length, peer(random)),
    };
    let body = match random.below(3) {
        _ if matches!(kind, Kind::Cached(..)) => Body::None,
        _ if kind == Kind::Echo => sent_body(random),
        0 => sent_body(random),
        _ => Body::None,
    };
    let method = match body {
        Body::None if random.once_in(8) => Method::Head,
        Body::None => Method::Get,
        _ => Method::Post,
    };
    Request { id: *next_id, method, kind, body, ends: random.once_in(10) }
}

fn sent_body(random: &mut Random) -> Body {
    let length = random.size(SENT_MAX);
    match random.once_in(2) {
        true => Body::Known(length),
        false => Body::Chunked(length, random.size(9000).max(length / 50).max(1)),
    }
}

fn peer(random: &mut Random) -> Peer {
    let pause_ms = random.pick(&[1, 30, 700]);
    match random.below(30) {
        0..7 => Peer::Exact,
        7..10 => Peer::Chunked,
        10..12 => Peer::UntilClose,
        12..15 => Peer::Slow(pause_ms),
        15 => Peer::Silent,
        16 => Peer::Dies,
        17 => Peer::DiesWithin,
        18 => Peer::DiesWithinChunk,
        19 => Peer::TooMuch,
        20 => Peer::Garbage,
        21 => Peer::DiesSlowly(pause_ms),
        22 => Peer::DiesBetweenChunks(pause_ms),
        23 => Peer::Resets(pause_ms),
        24 => Peer::BadChunk,
        25 => Peer::CutHead,
        26 => Peer::TwoLengths,
        27 => Peer::Unasked(pause_ms),
        28 => Peer::Announced,
        _ => Peer::Early,
    }
}

/// The byte of a body at a place: of each request another sequence, whose period no buffer has.
#[must_use]
pub fn pattern(id: u32, at: u64) -> u8 {
    let mixed = (u64::from(id) << 32 | (at / 251)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed >> 56) ^ (at % 251)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_have_all_that_there_is() {
        let steps: Vec<Step> =
            (0..200).flat_map(|seed| Program::of(seed).actions).map(|action| action.step).collect();
        let requests: Vec<&Request> = steps
            .iter()
            .filter_map(|step| if let Step::Ask(request) = step { Some(request) } else { None })
            .collect();
        assert!(requests.iter().any(|request| matches!(request.kind, Kind::Passed(_, Peer::Garbage))));
        assert!(requests.iter().any(|request| request.method == Method::Head));
        assert!(requests.iter().any(|request| matches!(request.body, Body::Chunked(1.., _))));
        assert!(steps.iter().any(|step| matches!(step, Step::Leave)));
        assert!(steps.iter().any(|step| matches!(step, Step::Cancel(_))));
        assert!(steps.iter().any(|step| matches!(step, Step::Reset)));
        assert!(steps.iter().any(|step| matches!(step, Step::Disks(Some(1), Disks::Full))));
        assert!(steps.iter().any(|step| matches!(step, Step::Others(Others::Deaf))));
        assert!(
            requests.iter().any(|request| matches!(request.kind, Kind::Cached(_, 100_000.., Peer::Exact)))
        );
    }

    #[test]
    fn bodies_differ_from_each_other_and_from_themselves_further_on() {
        let bytes = |id, from| (from..from + 64).map(|at| pattern(id, at)).collect::<Vec<u8>>();
        assert_ne!(bytes(1, 0), bytes(2, 0));
        assert_ne!(bytes(1, 0), bytes(1, 251));
        assert_ne!(bytes(1, 0), bytes(1, 4096));
    }
}
