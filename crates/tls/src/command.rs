//! `ssl_conf_command`: what OpenSSL's SSL_CONF_cmd() would change of a context, changed in its plan. Names
//! are those of OpenSSL 3.0's configuration files. A command that the library has nothing for is refused with
//! the reason, unless nothing depends on it. Runs when a configuration is loaded.
#![forbid(unsafe_code)]

use crate::ciphers::{CipherError, CipherList};
use crate::engine::{Asking, Plan, Preference, Tickets, Versions};
use crate::level::{Level, Version};
use crate::reason::{Library, Reason};

/// The effect of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The plan says it.
    Planned,
    /// Tickets are given, whatever was said before; their keys are the caller's.
    Tickets,
    /// A file with certificates is to be read and added.
    Certificate,
    /// A file with a key is to be read for the certificate that was named before.
    PrivateKey,
    /// Nothing, for this reason.
    WithoutEffect(&'static str),
}

/// Why a command is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// As OpenSSL refuses it; the first cause first.
    Refused(Vec<Reason>),
    /// OpenSSL has it, and it is not to be had here, for this reason.
    NotHere(&'static str),
}

/// Suites of TLS 1.3, and whether sessions can use them.
const SUITES_OF_13: [(&str, Served); 5] = [
    ("TLS_AES_256_GCM_SHA384", Served::Yes),
    ("TLS_CHACHA20_POLY1305_SHA256", Served::Yes),
    ("TLS_AES_128_GCM_SHA256", Served::Yes),
    ("TLS_AES_128_CCM_SHA256", Served::No),
    ("TLS_AES_128_CCM_8_SHA256", Served::No),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Served {
    No,
    Yes,
}

/// The meaning of an option.
#[derive(Clone, Copy)]
enum Meaning {
    ServerPreference,
    SessionTicket,
    /// The command has no effect here.
    Nothing(&'static str),
}

const NEVER_DONE: &str = "what it allows is never done";
const ALWAYS_DONE: &str = "it is always so";
const NOT_SERVED: &str = "the library has nothing for it";

/// Options by name.
const OPTIONS: [(&str, Meaning); 20] = [
    ("SessionTicket", Meaning::SessionTicket),
    ("ServerPreference", Meaning::ServerPreference),
    ("EmptyFragments", Meaning::Nothing(NOT_SERVED)),
    ("Bugs", Meaning::Nothing(NOT_SERVED)),
    ("Compression", Meaning::Nothing(NEVER_DONE)),
    ("NoResumptionOnRenegotiation", Meaning::Nothing(ALWAYS_DONE)),
    ("DHSingle", Meaning::Nothing(ALWAYS_DONE)),
    ("ECDHSingle", Meaning::Nothing(ALWAYS_DONE)),
    ("UnsafeLegacyRenegotiation", Meaning::Nothing(NEVER_DONE)),
    ("UnsafeLegacyServerConnect", Meaning::Nothing(NEVER_DONE)),
    ("ClientRenegotiation", Meaning::Nothing(NEVER_DONE)),
    ("EncryptThenMac", Meaning::Nothing(NOT_SERVED)),
    ("NoRenegotiation", Meaning::Nothing(ALWAYS_DONE)),
    ("AllowNoDHEKEX", Meaning::Nothing(NEVER_DONE)),
    ("PrioritizeChaCha", Meaning::Nothing(NOT_SERVED)),
    ("MiddleboxCompat", Meaning::Nothing(ALWAYS_DONE)),
    ("AntiReplay", Meaning::Nothing(NOT_SERVED)),
    ("ExtendedMasterSecret", Meaning::Nothing(ALWAYS_DONE)),
    ("CANames", Meaning::Nothing(ALWAYS_DONE)),
    ("KTLS", Meaning::Nothing(NOT_SERVED)),
];

/// Commands that would change the trusted authorities or the data sent, which nothing here can do.
const NOT_HERE: [&str; 11] = [
    "ClientSignatureAlgorithms",
    "ServerInfoFile",
    "ChainCAPath",
    "ChainCAFile",
    "VerifyCAPath",
    "VerifyCAFile",
    "RequestCAFile",
    "ClientCAFile",
    "RequestCAPath",
    "ClientCAPath",
    "RecordPadding",
];

/// The effect of a mode of checks; `None` if it has none. Where peers are checked anyway, the mode to check
/// them changes nothing; any other mode would have handshakes fail, which go on here and are judged
/// afterwards.
fn verify_mode<P>(plan: &Plan<P>, value: &str) -> Option<Result<Applied, CommandError>> {
    const MODES: [&str; 6] =
        ["Peer", "Request", "Require", "Once", "RequestPostHandshake", "RequirePostHandshake"];
    let is_one = |mode: &str| MODES.iter().any(|known| known.eq_ignore_ascii_case(mode.trim()));
    if !value.split(',').all(is_one) {
        return None;
    }
    let asks = |mode: &str| ["peer", "request", "once"].contains(&&*mode.trim().to_ascii_lowercase());
    let is_so = plan.verification.asking == Asking::On && value.split(',').all(asks);
    Some(if is_so { Ok(Applied::WithoutEffect(ALWAYS_DONE)) } else { Err(CommandError::NotHere(NOT_SERVED)) })
}

/// Applies a command, whose name may be in any case.
///
/// # Errors
/// If OpenSSL knows no such command, if its value means nothing, or if it is not to be had here.
pub fn apply<P>(plan: &mut Plan<P>, name: &str, value: &str) -> Result<Applied, CommandError> {
    let refused = || bad_value(name, value, Vec::new());
    match name.to_ascii_lowercase().as_str() {
        "minprotocol" => {
            let least = limit(value).ok_or_else(refused)?;
            keep(&mut plan.versions, |version| Limit::At(version) >= least);
        }
        "maxprotocol" => {
            let most = limit(value).ok_or_else(refused)?;
            keep(&mut plan.versions, |version| most == Limit::None || Limit::At(version) <= most);
        }
        "protocol" => plan.versions = protocols(plan.versions, value).ok_or_else(refused)?,
        "cipherstring" => {
            plan.ciphers = CipherList::parse(value).map_err(|error| bad_ciphers(error, name, value))?;
            plan.level = plan.ciphers.level().map_or(plan.level, Level::new);
        }
        "ciphersuites" => {
            let suites = suites_of_13(value).ok_or_else(|| bad_ciphers(CipherError::NoMatch, name, value))?;
            plan.suites_of_13 = Some(suites);
        }
        "groups" | "curves" | "ecdhparameters" => plan.groups = Some(value.to_owned()),
        "signaturealgorithms" => plan.signatures = Some(value.to_owned()),
        "numtickets" => plan.tickets_count = Some(number(value).ok_or_else(refused)?),
        "options" => return options(plan, value).ok_or_else(refused),
        "certificate" => return Ok(Applied::Certificate),
        "privatekey" => return Ok(Applied::PrivateKey),
        "dhparameters" => return Ok(Applied::WithoutEffect(NOT_SERVED)),
        "verifymode" => return verify_mode(plan, value).ok_or_else(refused)?,
        _ if NOT_HERE.iter().any(|known| known.eq_ignore_ascii_case(name)) => {
            return Err(CommandError::NotHere(NOT_SERVED));
        }
        _ => {
            let reason = Reason::named(Library::Ssl, "UNKNOWN_CMD_NAME").with_detail(format!("cmd={name}"));
            return Err(CommandError::Refused(vec![reason]));
        }
    }
    Ok(Applied::Planned)
}

fn bad_value(name: &str, value: &str, mut causes: Vec<Reason>) -> CommandError {
    let detail = format!("cmd={name}, value={value}");
    causes.push(Reason::named(Library::Ssl, "BAD_VALUE").with_detail(detail));
    CommandError::Refused(causes)
}

fn bad_ciphers(error: CipherError, name: &str, value: &str) -> CommandError {
    let cause = match error {
        CipherError::InvalidCommand => "INVALID_COMMAND",
        CipherError::NoMatch => "NO_CIPHER_MATCH",
    };
    bad_value(name, value, vec![Reason::named(Library::Ssl, cause)])
}

/// The end of a range of versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Limit {
    None,
    Ssl3,
    At(Version),
}

fn limit(value: &str) -> Option<Limit> {
    match value {
        "None" => Some(Limit::None),
        "SSLv3" => Some(Limit::Ssl3),
        name => Version::ALL.into_iter().find(|version| version.name() == name).map(Limit::At),
    }
}

fn keep(versions: &mut Versions, is_kept: impl Fn(Version) -> bool) {
    *versions = versions.iter().filter(|&version| is_kept(version)).fold(Versions::none(), Versions::and);
}

/// A word of a list, and whether it has a minus.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sign {
    Plus,
    Minus,
}

fn signed(word: &str) -> (Sign, &str) {
    let word = word.trim();
    match word.strip_prefix('-') {
        Some(rest) => (Sign::Minus, rest),
        None => (Sign::Plus, word.strip_prefix('+').unwrap_or(word)),
    }
}

fn protocols(mut versions: Versions, value: &str) -> Option<Versions> {
    for (sign, name) in value.split(',').map(signed) {
        let named = |version: Version| name == "ALL" || version.name() == name;
        if !Version::ALL.into_iter().any(named) && !["SSLv2", "SSLv3"].contains(&name) {
            return None;
        }
        match sign {
            Sign::Plus => {
                versions = Version::ALL.into_iter().filter(|&v| named(v)).fold(versions, Versions::and)
            }
            Sign::Minus => keep(&mut versions, |version| !named(version)),
        }
    }
    Some(versions)
}

/// The suites of the list that sessions can use. `None` if one is unknown, or none can be used.
fn suites_of_13(value: &str) -> Option<String> {
    let mut served = Vec::new();
    for name in value.split(':') {
        let &(name, is_served) = SUITES_OF_13.iter().find(|(known, _)| *known == name)?;
        if is_served == Served::Yes {
            served.push(name);
        }
    }
    (!served.is_empty()).then(|| served.join(":"))
}

/// As strtol() reads it, of which the rest is not looked at.
fn number(value: &str) -> Option<u32> {
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match &value[..digits] {
        "" if value.starts_with('-') => None,
        "" => Some(0),
        digits => digits.parse().ok(),
    }
}

fn options<P>(plan: &mut Plan<P>, value: &str) -> Option<Applied> {
    let mut applied = Applied::Planned;
    for (sign, name) in value.split(',').map(signed) {
        let (_, meaning) = OPTIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        match (meaning, sign) {
            (Meaning::ServerPreference, Sign::Plus) => plan.preference = Preference::Server,
            (Meaning::ServerPreference, Sign::Minus) => plan.preference = Preference::Client,
            (Meaning::SessionTicket, Sign::Minus) => plan.tickets = Tickets::Off,
            (Meaning::SessionTicket, Sign::Plus) => applied = Applied::Tickets,
            (Meaning::Nothing(why), _) => applied = Applied::WithoutEffect(why),
        }
    }
    Some(applied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan<()> {
        Plan::new(CipherList::parse("DEFAULT").unwrap(), Vec::new())
    }

    /// The plan behind these commands.
    fn after(commands: &[(&str, &str)]) -> Plan<()> {
        let mut plan = plan();
        for (name, value) in commands {
            apply(&mut plan, name, value).unwrap();
        }
        plan
    }

    fn versions(commands: &[(&str, &str)]) -> Vec<&'static str> {
        after(commands).versions.iter().map(Version::name).collect()
    }

    /// In the words of the log.
    fn refusal(name: &str, value: &str) -> String {
        match apply(&mut plan(), name, value) {
            Err(CommandError::Refused(reasons)) => {
                reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn versions_are_limited() {
        assert_eq!(versions(&[("MinProtocol", "TLSv1.3")]), ["TLSv1.3"]);
        assert_eq!(versions(&[("minprotocol", "None"), ("MaxProtocol", "TLSv1.2")]), ["TLSv1.2"]);
        assert_eq!(versions(&[("MaxProtocol", "None")]), ["TLSv1.2", "TLSv1.3"]);
        assert_eq!(versions(&[("MaxProtocol", "SSLv3")]), Vec::<&str>::new());
        assert_eq!(versions(&[("Protocol", "-TLSv1.3")]), ["TLSv1.2"]);
        assert_eq!(versions(&[("Protocol", "-ALL, +TLSv1.1,TLSv1.3")]), ["TLSv1.1", "TLSv1.3"]);
    }

    #[test]
    fn suites_and_levels() {
        let plan = after(&[("CipherString", "AES128-SHA:@SECLEVEL=0"), ("Groups", "X25519")]);
        assert_eq!(plan.ciphers.suites()[0].name, "AES128-SHA");
        assert_eq!((plan.level.number(), plan.groups.as_deref()), (0, Some("X25519")));
        let plan = after(&[("Ciphersuites", "TLS_AES_128_CCM_SHA256:TLS_AES_128_GCM_SHA256")]);
        assert_eq!(plan.suites_of_13.as_deref(), Some("TLS_AES_128_GCM_SHA256"));
    }

    #[test]
    fn options_have_signs() {
        let plan = after(&[("Options", "ServerPreference,-SessionTicket")]);
        assert_eq!(plan.preference, Preference::Server);
        assert_eq!(after(&[("options", "-serverpreference")]).preference, Preference::Client);
        let applied = apply(&mut self::plan(), "Options", "+KTLS, PrioritizeChaCha");
        assert_eq!(applied, Ok(Applied::WithoutEffect(NOT_SERVED)));
        assert_eq!(after(&[("NumTickets", "3")]).tickets_count, Some(3));
    }

    #[test]
    fn files_are_the_callers() {
        assert_eq!(apply(&mut plan(), "Certificate", "a.pem"), Ok(Applied::Certificate));
        assert_eq!(apply(&mut plan(), "PrivateKey", "a.key"), Ok(Applied::PrivateKey));
        assert_eq!(apply(&mut plan(), "VerifyMode", "Peer"), Err(CommandError::NotHere(NOT_SERVED)));
        let mut checked = plan();
        checked.verification.asking = Asking::On;
        let said = apply(&mut checked, "VerifyMode", "Peer");
        assert_eq!(said, Ok(Applied::WithoutEffect(ALWAYS_DONE)));
        let said = apply(&mut checked, "VerifyMode", "Peer,Require");
        assert_eq!(said, Err(CommandError::NotHere(NOT_SERVED)));
        assert!(matches!(apply(&mut checked, "VerifyMode", "Some"), Err(CommandError::Refused(_))));
    }

    #[test]
    fn refusals_are_openssls() {
        assert_eq!(refusal("Nonsense", "x"), "error:0A000182:SSL routines::unknown cmd name:cmd=Nonsense");
        for (name, value) in [
            ("Options", "Nonsense"),
            ("Options", ""),
            ("Protocol", "TLSv1.4"),
            ("MinProtocol", "tlsv1.2"),
            ("NumTickets", "-1"),
        ] {
            let expected = format!("error:0A000180:SSL routines::bad value:cmd={name}, value={value}");
            assert_eq!(refusal(name, value), expected);
        }
        for name in ["CipherString", "Ciphersuites"] {
            let expected = format!(
                "error:0A0000B9:SSL routines::no cipher match \
                 error:0A000180:SSL routines::bad value:cmd={name}, value=nonsense"
            );
            assert_eq!(refusal(name, "nonsense"), expected);
        }
    }
}
