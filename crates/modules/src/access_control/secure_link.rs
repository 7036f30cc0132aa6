//! `secure_link`: links that cannot be made without a secret, and that expire. Variables alone, evaluated on
//! loops; what they are used for is the configuration's business.

#[cfg(fuzzing)]
pub mod fuzzing;

use bytes::Bytes;
use clearway_base::base64::{self, Alphabet};
use clearway_base::units;
use clearway_conf::{Args, Directive, Error, Scope, Spec};
use clearway_http::{
    ConfKey, Level, Load, Merge, Module, Presence, Setting, Value, VariableKind, VariableSpec, View, context,
    set,
};
use md5::{Digest, Md5};

use crate::access_control::secret::is_equal;

/// The module.
pub static SECURE_LINK: Module = Module {
    name: "secure_link",
    directives: DIRECTIVES,
    confs: &[&LINK_CONF],
    variables: VARIABLES,
    finish: Some(check),
    ..Module::EMPTY
};

/// A hash in base64, with padding, bytes.
const HASH_MAX_CHARS: usize = 24;
const MD5_BYTES: usize = 16;

static DIRECTIVES: &[Spec<Load>] = &[
    Spec {
        name: "secure_link",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "secure_link HASH[,EXPIRES]",
        default: "",
        doc: "Where in a request the hash of a link is, in base64 for URLs, and behind a comma until when it \
              holds, in seconds since the epoch; a text with variables, such as `$arg_md5,$arg_expires`. \
              `$secure_link` is `1` for a link that holds, `0` for one that has expired, and empty for all \
              others.",
        example: EXAMPLE_OF_SIGNED_LINKS,
        see: &["secure_link_md5", "secure_link_secret", "valid_referers"],
        handler: |scope, directive| read(scope, directive, |conf| &mut conf.link),
    },
    Spec {
        name: "secure_link_md5",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "secure_link_md5 TEXT",
        default: "",
        doc: "The text whose MD5 the hash of a link must be; with a secret in it, and with variables for all \
              that is to be protected, such as `$secure_link_expires$uri secret`.",
        example: EXAMPLE_OF_SIGNED_LINKS,
        see: &["secure_link", "secure_link_secret", "valid_referers"],
        handler: |scope, directive| read(scope, directive, |conf| &mut conf.md5),
    },
    Spec {
        name: "secure_link_secret",
        contexts: context::ALL,
        args: Args::TAKE1,
        syntax: "secure_link_secret SECRET",
        default: "",
        doc: "The older form: links are `/PREFIX/HASH/LINK`, the hash in hexadecimal digits is the MD5 of \
              link and secret, and `$secure_link` is the link if it is right.",
        example: r#"
            location /p/ {
                secure_link_secret the-secret;

                if ($secure_link = "") {
                    return 403;
                }
                rewrite ^ /secure/$secure_link;
            }"#,
        see: &["secure_link"],
        handler: |scope, directive| {
            let setting = &mut scope.conf.location(&LINK_CONF).secret;
            set(directive, setting, |directive| directive.value(0).map(Some))
        },
    },
];

/// The example of `secure_link` and `secure_link_md5`.
const EXAMPLE_OF_SIGNED_LINKS: &str = r#"
    location /files/ {
        # /files/a.zip?md5=…&expires=1893456000
        secure_link $arg_md5,$arg_expires;
        secure_link_md5 "$secure_link_expires$uri the-secret";

        if ($secure_link = "") {
            return 403;
        }
        if ($secure_link = "0") {
            return 410;
        }
    }"#;

static VARIABLES: &[VariableSpec] = &[
    VariableSpec {
        name: "secure_link",
        kind: VariableKind::Exact,
        doc: "The outcome of `secure_link`: `1`, `0` (expired), or the link of the older form; none for a \
              link that is not right.",
        eval: |view, _, out| {
            let conf = view.request.conf(&LINK_CONF);
            match &*conf.secret {
                Some(secret) => Presence::put(link_of(view.request.raw_target(), secret), out),
                None => Presence::put(conf.judge(view), out),
            }
        },
    },
    VariableSpec {
        name: "secure_link_expires",
        kind: VariableKind::Exact,
        doc: "Until when the link holds, as it says itself.",
        eval: |view, _, out| {
            let link = view.request.conf(&LINK_CONF).link(view);
            let expires = link.as_ref().and_then(|(link, _)| Link::parse(link)?.expires);
            Presence::put(expires.map(|(text, _)| text), out)
        },
    },
];

static LINK_CONF: ConfKey<LinkConf> = ConfKey::new(Level::Location);

#[derive(Default)]
struct LinkConf {
    link: Setting<Option<Value>>,
    md5: Setting<Option<Value>>,
    secret: Setting<Option<Bytes>>,
}

impl Merge for LinkConf {
    /// A level has one of the two forms, its own or that of the level around it.
    fn merge(&mut self, parent: &Self) {
        let Self { link, md5, secret } = self;
        if secret.is_here() {
            return;
        }
        link.merge(&parent.link);
        md5.merge(&parent.md5);
        if link.is_none() && md5.is_none() {
            secret.merge(&parent.secret);
        }
    }
}

fn read(
    scope: &mut Scope<'_, Load>,
    directive: &Directive,
    setting: fn(&mut LinkConf) -> &mut Setting<Option<Value>>,
) -> Result<(), Error> {
    let value = scope.conf.variables.compile(&directive.args[0], &directive.pos)?;
    set(directive, setting(scope.conf.location(&LINK_CONF)), |_| Ok(Some(value)))
}

/// The two forms exclude each other.
fn check(load: &mut Load) -> Result<(), Error> {
    let is_mixed = |conf: &mut LinkConf| conf.secret.is_here() && (conf.link.is_some() || conf.md5.is_some());
    if load.all_locations(&LINK_CONF).any(is_mixed) {
        let text = "\"secure_link_secret\" cannot be mixed with \"secure_link\" and \"secure_link_md5\"";
        return Err(Error::unplaced(text));
    }
    Ok(())
}

impl LinkConf {
    /// The link of the request, and the value of which its hash is made; `None` if the location has no such
    /// links.
    fn link<'c>(&'c self, view: &View<'_, 'c>) -> Option<(clearway_http::Text<'c>, &'c Value)> {
        let (link, md5) = (self.link.as_ref()?, self.md5.as_ref()?);
        self.secret.is_none().then(|| (link.eval(view), md5))
    }

    fn judge<'c>(&'c self, view: &View<'_, 'c>) -> Option<&'static [u8]> {
        let (link, md5) = self.link(view)?;
        let link = Link::parse(&link)?;
        let hash = link.hash()?;
        if !is_equal(&hash, &Md5::digest(md5.eval(view))) {
            return None;
        }
        let is_over = link.expires.is_some_and(|(_, expires)| expires < view.request.now_unix_s());
        Some(if is_over { b"0" } else { b"1" })
    }
}

/// A link as a request has it.
struct Link<'a> {
    hash: &'a [u8],
    /// As a text, and in seconds since the epoch.
    expires: Option<(&'a [u8], i64)>,
}

impl<'a> Link<'a> {
    fn parse(text: &'a [u8]) -> Option<Self> {
        let Some(comma) = memchr::memchr(b',', text) else { return Some(Self { hash: text, expires: None }) };
        let expires = &text[comma + 1..];
        let seconds = units::parse_number(expires).and_then(|seconds| i64::try_from(seconds).ok());
        let seconds = seconds.filter(|&seconds| seconds > 0)?;
        Some(Self { hash: &text[..comma], expires: Some((expires, seconds)) })
    }

    fn hash(&self) -> Option<Vec<u8>> {
        let hash = Some(self.hash).filter(|hash| hash.len() <= HASH_MAX_CHARS)?;
        base64::decode(hash, Alphabet::Url).filter(|hash| hash.len() == MD5_BYTES)
    }
}

/// The link in a target `/PREFIX/HASH/LINK`, if the hash is right.
fn link_of<'a>(target: &'a [u8], secret: &[u8]) -> Option<&'a [u8]> {
    let mut parts = target.get(1..)?.splitn(3, |&byte| byte == b'/').skip(1);
    let (hash, link) = (parts.next()?, parts.next().filter(|link| !link.is_empty())?);
    if hash.len() != 2 * MD5_BYTES {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let hash: Option<Vec<u8>> = hash.chunks(2).map(byte).collect();
    let expected = Md5::new().chain_update(link).chain_update(secret).finalize();
    is_equal(&hash?, &expected).then_some(link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_taken_apart() {
        let parse = |text: &'static str| {
            let link = Link::parse(text.as_bytes())?;
            Some((link.hash, link.expires.map(|(_, seconds)| seconds)))
        };
        assert_eq!(parse("hash"), Some((&b"hash"[..], None)));
        assert_eq!(parse("hash,17"), Some((&b"hash"[..], Some(17))));
        assert_eq!(parse(",17"), Some((&b""[..], Some(17))));
        for text in ["hash,", "hash,0", "hash,-1", "hash,x", "hash,1,2", "hash,99999999999999999999"] {
            assert_eq!(parse(text), None, "{text}");
        }
        let decodes = |text: &str| Link { hash: text.as_bytes(), expires: None }.hash().is_some();
        assert!(decodes("AAAAAAAAAAAAAAAAAAAAAA") && decodes("AAAAAAAAAAAAAAAAAAAA-_=="));
        assert!(!decodes("AAAAAAAAAAAAAAAAAAAAA") && !decodes("AAAAAAAAAAAAAAAAAAAAAAAA"));
        assert!(!decodes("AAAAAAAAAAAAAAAAAAAAAA===") && !decodes("AAAAAAAAAAAAAAAAAAAA+/"));
    }

    #[test]
    fn the_older_form() {
        // The MD5 of "linksecret".
        let hash = "2c3ec2a0a2e0ae0a1e3f0d2d4d1c5a00";
        assert_eq!(link_of(format!("/p/{hash}/link").as_bytes(), b"secret"), None);
        let right = Md5::digest("a/b?csecret").iter().map(|byte| format!("{byte:02X}")).collect::<String>();
        let target = format!("/p/{right}/a/b?c");
        assert_eq!(link_of(target.as_bytes(), b"secret"), Some(&b"a/b?c"[..]));
        for target in
            [format!("/p/{right}"), format!("/p/{right}/"), format!("/{right}/a/b?c"), "/".to_owned()]
        {
            assert_eq!(link_of(target.as_bytes(), b"secret"), None, "{target}");
        }
    }
}
