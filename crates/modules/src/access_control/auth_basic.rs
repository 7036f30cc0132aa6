//! `auth_basic`: access control by user name and password. The user file is read by the pool for files; what
//! takes long to hash is hashed by a pool for that alone, in which clients have their turns: one that tries
//! passwords delays no files, and passwords of other clients for no longer than a few of its own take. Runs
//! in the access phase.

mod scheme;

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use clearway_base::Errno;
use clearway_base::log::Level as LogLevel;
use clearway_conf::{Args, Contexts, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Cost, Credentials, Enabling, Errand, Exchange, Level, Load, Module, Own, Phase, PhaseHandler,
    Request, Setting, Step, ThreadPools, Value, Verbatim, context, set, settings,
};
use clearway_message::Method;
use clearway_offload::{At, Blocking, PASSWORDS_POOL, Pool, file};
use rustix::fs::{Mode, OFlags};

use crate::content::files::{Failure, log_failure, on_pool, on_pool_at};

/// The module.
pub static AUTH_BASIC: Module = Module {
    name: "auth_basic",
    directives: DIRECTIVES,
    confs: &[&AUTH_CONF],
    phases: PHASES,
    finish: Some(find_pool),
    ..Module::EMPTY
};

/// How much of a user file is read at once, bytes.
const PART_BYTES: usize = 64 * 1024;

/// The longest hash of a password that a user file may have, bytes. No scheme comes near.
const STORED_MAX_BYTES: usize = 2048;

const ANYWHERE: Contexts = context::ALL.or(context::LIMIT_EXCEPT);

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "auth_basic",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "auth_basic REALM | off",
        default: "auth_basic off;",
        doc: "Asks for a user and a password, which must be those of a line of `auth_basic_user_file`; \
              clients are shown the realm, which may have variables in it. `off` ends what an enclosing \
              level says.",
        example: EXAMPLE_OF_PASSWORDS,
        see: &["auth_basic_user_file", "satisfy", "auth_delay", "auth_request"],
        handler: |scope, directive| {
            let realm = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
            set(directive, &mut scope.conf.location(&AUTH_CONF).realm, |_| Ok(Some(realm)))
        },
    },
    Spec {
        name: "auth_basic_user_file",
        contexts: ANYWHERE,
        args: Args::TAKE1,
        syntax: "auth_basic_user_file FILE",
        default: "",
        doc: "The file with lines `USER:PASSWORD` or `USER:PASSWORD:COMMENT`, `#` before a comment; its name \
              may have variables in it, and a relative one is looked up in the directory of the \
              configuration file. Passwords are hashed by crypt(3) (DES, `$1$`, `$5$`, `$6$`, bcrypt, \
              yescrypt, as the system has them), as `$apr1$`, `{SHA}` or `{SSHA}`, or stand there in the \
              clear behind `{PLAIN}`. Changes hold from the next request on.",
        example: EXAMPLE_OF_PASSWORDS,
        see: &["auth_basic", "satisfy", "auth_delay", "auth_request"],
        handler: read_user_file,
    },
];

/// The example of `auth_basic` and `auth_basic_user_file`.
const EXAMPLE_OF_PASSWORDS: &str = r#"
    location /private/ {
        auth_basic "Private area";
        auth_basic_user_file conf/htpasswd;
    }"#;

static PHASES: &[PhaseHandler] =
    &[PhaseHandler { phase: Phase::Access, cost: Cost::Cheap, enabled: is_enabled, handler }];

static AUTH_CONF: ConfKey<AuthConf> = ConfKey::new(Level::Location);

settings! {
    struct AuthConf {
        realm: Setting<Option<Value>>,
        user_file: Setting<Option<UserFile>>,
        /// The one for passwords.
        pool: Own<Option<Arc<Pool>>>,
    }
}

#[derive(Clone)]
struct UserFile {
    path: Value,
    /// The directory that relative paths begin from, if variables give one.
    base: Vec<u8>,
}

fn read_user_file(scope: &mut Scope<'_, Load>, directive: &Directive) -> Result<(), Error> {
    let (text, base) = (&directive.args[0], scope.conf.conf_prefix());
    let path = match text.first() {
        Some(b'$' | b'/') => text.clone(),
        _ => [&base[..], text].concat().into(),
    };
    let path = scope.conf.variables.compile(&path, &directive.pos)?;
    let setting = &mut scope.conf.location(&AUTH_CONF).user_file;
    set(directive, setting, |_| Ok(Some(UserFile { path, base })))
}

fn is_enabled(enabling: &Enabling<'_>) -> bool {
    let conf = enabling.confs.of(&AUTH_CONF);
    let is_off = |realm: &Value| realm.as_literal() == Some(b"off");
    conf.user_file.is_some() && conf.realm.as_ref().is_some_and(|realm| !is_off(realm))
}

fn handler<'a>(mut exchange: Exchange<'a, '_>) -> Step<'a> {
    let conf = exchange.request.conf(&AUTH_CONF);
    let (Some(realm), Some(user_file)) = (&*conf.realm, &*conf.user_file) else { return Step::Declined };
    let realm = realm.eval(&exchange.view());
    if *realm == *b"off" {
        return Step::Declined;
    }
    let Some(credentials) = exchange.request.credentials() else {
        let message = format_args!("no user/password was provided for basic authentication");
        exchange.request.log(LogLevel::Info, message);
        return Step::status(challenge(&mut exchange, &realm));
    };
    let mut path = user_file.path.eval(&exchange.view()).into_owned();
    if path.first() != Some(&b'/') {
        path = [&user_file.base, &path[..]].concat();
    }
    Step::Wait(Box::pin(async move {
        let user = credentials.user.clone();
        let status = match find(exchange.request, &path, credentials).await {
            Ok(found) => judge(&mut exchange, found, &Asked { user, path, realm: &realm }),
            Err(status) => Some(status),
        };
        status.map_or(Step::Allowed, Step::status)
    }))
}

/// Compares a password with what the user file has.
///
/// # Errors
/// The answer to give: a pool is full (503), or did not answer in time.
async fn find(
    request: &Request<'_>,
    path: &[u8],
    credentials: Credentials,
) -> Result<Result<Found, Problem>, u16> {
    let name = path.to_owned();
    let looked_up = on_pool(request, path, move |blocking| look_up(blocking, &name, credentials)).await?;
    let dear = match looked_up {
        Ok(LookedUp::Known(found)) => return Ok(Ok(found)),
        Ok(LookedUp::Dear(dear)) => dear,
        Err(problem) => return Ok(Err(problem)),
    };
    let job = move |_: &Blocking| dear.compare();
    match &*request.conf(&AUTH_CONF).pool {
        Some(pool) => {
            let task = pool.submit_for(CLIENTS.hash_one(client(request)), job);
            request.wait_for(task, Errand::Question).await
        }
        // A program that embeds the engine need not have such a pool.
        None => on_pool_at(request, At::Anywhere, job).await,
    }
}

/// Tells clients apart: by address, of IPv6 by the half that a network is given. A unix socket is one client.
fn client(request: &Request<'_>) -> [u8; 8] {
    match request.peer().ip().map(|ip| ip.to_canonical()) {
        Some(IpAddr::V4(ip)) => u64::from(ip.to_bits()).to_be_bytes(),
        Some(IpAddr::V6(ip)) => ((ip.to_bits() >> 64) as u64).to_be_bytes(),
        None => [0; 8],
    }
}

/// Nobody outside can choose which clients share a queue.
static CLIENTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Takes the pool for passwords.
fn find_pool(load: &mut Load) -> Result<(), Error> {
    let Some(pools) = load.environment().services.find::<ThreadPools>().cloned() else { return Ok(()) };
    let Some(pool) = pools.find(PASSWORDS_POOL.as_bytes()).cloned() else { return Ok(()) };
    load.all_locations(&AUTH_CONF).for_each(|conf| *conf.pool = Some(Arc::clone(&pool)));
    Ok(())
}

/// Asks the client for a password.
fn challenge(exchange: &mut Exchange<'_, '_>, realm: &[u8]) -> u16 {
    let value = [b"Basic realm=\"", realm, b"\""].concat();
    let (name, status): (&[u8], _) = match exchange.request.method() {
        Method::Connect => (b"Proxy-Authenticate", 407),
        _ => (b"WWW-Authenticate", 401),
    };
    exchange.output.head().headers.add(name, &value);
    status
}

/// The request and the credentials that a check is about.
struct Asked<'r> {
    user: Vec<u8>,
    path: Vec<u8>,
    realm: &'r [u8],
}

/// The result of a look into a user file.
enum Found {
    Right,
    Wrong,
    NoUser,
}

/// Why there is no answer.
enum Problem {
    Open(io::Error),
    Read(io::Error),
    Crypt(io::Error),
}

/// The status to refuse with, `None` where the password is right. Logs what nginx does.
fn judge(exchange: &mut Exchange<'_, '_>, found: Result<Found, Problem>, asked: &Asked<'_>) -> Option<u16> {
    let request = &exchange.request;
    let (user, path) = (Verbatim(&asked.user), Verbatim(&asked.path));
    let failure = |call, error| Failure { call, path: &asked.path, error };
    match found {
        Ok(Found::Right) => return None,
        Ok(Found::Wrong) => request.log(LogLevel::Error, format_args!("user \"{user}\": password mismatch")),
        Ok(Found::NoUser) => {
            request.log(LogLevel::Error, format_args!("user \"{user}\" was not found in \"{path}\""));
        }
        Err(Problem::Open(error)) if error.kind() == io::ErrorKind::NotFound => {
            log_failure(request, LogLevel::Error, failure("open()", &error));
            return Some(403);
        }
        Err(Problem::Open(error)) => {
            log_failure(request, LogLevel::Crit, failure("open()", &error));
            return Some(500);
        }
        Err(Problem::Read(error)) => {
            log_failure(request, LogLevel::Crit, failure("pread()", &error));
            return Some(500);
        }
        Err(Problem::Crypt(error)) => {
            request.log(LogLevel::Crit, format_args!("crypt_r() failed {}", Errno(&error)));
            return Some(500);
        }
    }
    Some(challenge(exchange, asked.realm))
}

/// The result of a pool for files.
enum LookedUp {
    Known(Found),
    /// The rest takes long.
    Dear(Dear),
}

/// A password that is still to be compared.
struct Dear {
    password: Vec<u8>,
    stored: Vec<u8>,
}

impl Dear {
    /// Computes for as long as the scheme takes.
    fn compare(&self) -> Result<Found, Problem> {
        let is_right = scheme::is_right(&self.password, &self.stored).map_err(Problem::Crypt)?;
        Ok(if is_right { Found::Right } else { Found::Wrong })
    }
}

/// **Blocks.**
fn look_up(blocking: &Blocking, path: &[u8], credentials: Credentials) -> Result<LookedUp, Problem> {
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let file = File::from(opened.map_err(|error| Problem::Open(error.into()))?);
    let mut search = Search::new(&credentials.user);
    let mut offset = 0;
    loop {
        let part = file::read(blocking, &file, offset, PART_BYTES).map_err(Problem::Read)?;
        offset += part.len() as u64;
        if search.feed(&part) == Progress::Complete || part.len() < PART_BYTES {
            break;
        }
    }
    let Some(stored) = search.stored() else { return Ok(LookedUp::Known(Found::NoUser)) };
    let dear = Dear { stored: stored.to_vec(), password: credentials.password };
    if scheme::is_cheap(&dear.stored) {
        dear.compare().map(LookedUp::Known)
    } else {
        Ok(LookedUp::Dear(dear))
    }
}

/// Looks for the line of a user in a file that comes in parts.
struct Search<'u> {
    user: &'u [u8],
    place: LinePart,
    stored: Vec<u8>,
}

/// Where in a line it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LinePart {
    /// In the name, of which so many bytes are those of the user.
    Name(usize),
    /// In the password of the user.
    Password,
    /// In what is not for the user.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    Complete,
}

impl<'u> Search<'u> {
    fn new(user: &'u [u8]) -> Self {
        Self { user, place: LinePart::Name(0), stored: Vec::new() }
    }

    fn feed(&mut self, part: &[u8]) -> Progress {
        for &byte in part {
            self.place = match (self.place, byte) {
                (LinePart::Password, b'\n' | b'\r' | b':') => return Progress::Complete,
                (LinePart::Password, _) if self.stored.len() == STORED_MAX_BYTES => {
                    return Progress::Complete;
                }
                (LinePart::Password, byte) => {
                    self.stored.push(byte);
                    LinePart::Password
                }
                (_, b'\n') => LinePart::Name(0),
                (LinePart::Name(0), b'#' | b'\r') => LinePart::Other,
                (LinePart::Name(matched), b':') if matched == self.user.len() => LinePart::Password,
                (LinePart::Name(matched), byte) if self.user.get(matched) == Some(&byte) => {
                    LinePart::Name(matched + 1)
                }
                _ => LinePart::Other,
            };
        }
        Progress::Open
    }

    /// The password that the file has for the user.
    fn stored(&self) -> Option<&[u8]> {
        (self.place == LinePart::Password).then_some(&self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(file: &str, user: &str, part_bytes: usize) -> Option<String> {
        let mut search = Search::new(user.as_bytes());
        for part in file.as_bytes().chunks(part_bytes) {
            if search.feed(part) == Progress::Complete {
                break;
            }
        }
        search.stored().map(|stored| String::from_utf8(stored.to_vec()).unwrap())
    }

    #[test]
    fn the_first_line_of_a_user_counts() {
        let file =
            "# ann:no\n\nanna:1\nann\nann :2\n\rann:3\nann:4:comment\nann:5\r\nbob:6\r\nempty:\nlast:7";
        for part_bytes in [1, 2, 3, 1000] {
            let find = |user| find(file, user, part_bytes);
            assert_eq!(find("ann").as_deref(), Some("4"));
            assert_eq!(find("anna").as_deref(), Some("1"));
            assert_eq!(find("bob").as_deref(), Some("6"));
            assert_eq!(find("empty").as_deref(), Some(""));
            assert_eq!(find("last").as_deref(), Some("7"));
            for user in ["an", "nobody", "# ann", "bo", "las", "ann\nann"] {
                assert_eq!(find(user), None, "{user}");
            }
        }
        let long = format!("ann:{}", "x".repeat(5000));
        assert_eq!(find(&long, "ann", 1000).map(|stored| stored.len()), Some(STORED_MAX_BYTES));
    }
}
