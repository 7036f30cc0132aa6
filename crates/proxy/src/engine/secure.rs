//! TLS with the server that a request is passed to. All that has to be waited for (a certificate whose name
//! has variables in it) is there before a server is chosen; the handshake is a stage of the request's own
//! task.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::task::{Context, Poll};

use clearway_base::log::{Level, Verbatim};
use clearway_http::{
    Answer, Errand, Exchange, Met, Request, Step, UPSTREAM_CODE, UpstreamCode, UpstreamCodes,
};
use clearway_net::connect::Outbound;
use clearway_offload::Blocking;
use clearway_os::outgoing::Remote;
use clearway_runtime::Socket;
use clearway_tls::engine::{Engine, Failure, Session as TlsSession, Target, Verified};
use clearway_tls::files::{PairName, SystemFiles, full_name, place_of};
use clearway_tls::hello::HelloError;
use clearway_tls::level::Version;
use clearway_tls::reason::{Library, Reason};
use clearway_tls::{AwsLc, Certificate, Pair, TlsSession as AwsLcSession, objects, verified};
use clearway_upstream::{Connection, GivenSession, HandshakeFault, Identity, Shaken, TlsStream, Transport};

use crate::engine::by_code::{About, ConsultingStage};
use crate::engine::protocol::Protocol;
use crate::engine::session::{Flow, Session, Stage};
use crate::settings::masks::Failures;
use crate::settings::pass::PassConf;
use crate::settings::tls::{ServerTls, TlsConf};

const HANDSHAKING: &str = "SSL handshaking to upstream";

/// What of a request matters for TLS with its server.
pub(super) struct Secure<'c> {
    conf: &'c TlsConf,
    tls: &'c ServerTls,
    /// Has its say in handshakes.
    code: &'c UpstreamCodes,
    /// The name that the certificate has to be for.
    name: Vec<u8>,
    /// The certificate that is shown, where its name has variables in it.
    pair_name: Option<PairName>,
    pair: Option<Arc<Pair>>,
    /// Stands for all of this: connections and sessions are used again where it is the same.
    tag: u64,
}

impl Secure<'_> {
    /// See the field.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    /// The server is asked by this name, unless the location says one. Before anything is loaded.
    pub(super) fn call(&mut self, name: &[u8]) {
        let needs_name = *self.conf.server_name || *self.conf.verify;
        if self.conf.name.is_none() && needs_name {
            self.name = without_port(name).to_vec();
            self.tag = self.reckon_tag();
        }
    }

    fn reckon_tag(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.tls.id, &self.name, *self.conf.server_name, &self.pair_name).hash(&mut hasher);
        // What code has agreed to is nothing to others.
        for code in [&self.code.certificate, &self.code.verify] {
            code.as_ref().map(|code| Arc::as_ptr(code).addr()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// What TLS takes with the servers of this request, which are known as `host`; and the names of the
/// certificate that is to be loaded for it.
///
/// # Errors The answer to give, where there can be none.
pub(super) fn prepare<'c>(
    exchange: &Exchange<'_, 'c>,
    pass: &'c PassConf,
    host: &[u8],
) -> Result<Box<Secure<'c>>, Answer> {
    let conf: &'c TlsConf = &pass.tls;
    let tls: &'c ServerTls = conf.context.as_deref().ok_or(Answer::Status(500))?;
    let needs_name = *conf.server_name || *conf.verify;
    let name = match &*conf.name {
        _ if !needs_name => Vec::new(),
        Some(name) => without_port(&name.eval(&exchange.view())).to_vec(),
        None => without_port(host).to_vec(),
    };
    let pair_name = evaluated_pair(exchange, conf, &tls.prefix);
    let mut secure = Box::new(Secure {
        conf,
        tls,
        code: exchange.request.conf(&UPSTREAM_CODE),
        name,
        pair_name,
        pair: None,
        tag: 0,
    });
    secure.tag = secure.reckon_tag();
    Ok(secure)
}

/// The names of the certificate, where they have variables in them.
fn evaluated_pair<'c>(exchange: &Exchange<'_, 'c>, conf: &'c TlsConf, prefix: &[u8]) -> Option<PairName> {
    if !conf.has_evaluated_pair() {
        return None;
    }
    let (certificate, key) = conf.certificate.as_ref().zip(conf.key.as_ref())?;
    let view = exchange.view();
    let certificate = certificate.eval(&view);
    if certificate.is_empty() {
        return None;
    }
    let full = |name: &[u8]| full_name(prefix, name);
    Some(PairName { certificate: full(&certificate), key: full(&key.eval(&view)) })
}

impl Secure<'_> {
    /// Has the certificate loaded, where its name has variables in it.
    ///
    /// # Errors
    /// The answer to give, where it cannot be.
    pub(super) async fn load(&mut self, request: &Request<'_>) -> Result<(), Answer> {
        if let Some(name) = self.pair_name.take() {
            self.pair = Some(load_pair(request, self.conf, name).await?);
        }
        Ok(())
    }
}

/// As it was read before, or by a pool.
async fn load_pair(request: &Request<'_>, conf: &TlsConf, name: PairName) -> Result<Arc<Pair>, Answer> {
    let (cache, now_s) = (Option::clone(&conf.cache), request.home().now_ms() / 1000);
    if let Some(pair) = cache.as_ref().and_then(|cache| cache.find(name.names(), now_s)) {
        return Ok(Arc::new(pair));
    }
    let passwords = Option::clone(&conf.passwords);
    let at = place_of([&name.certificate[..], &name.key]);
    let job = move |witness: &Blocking| {
        let passwords = passwords.as_ref().map_or(&[][..], |all| &all[..]);
        objects::load_pair(cache.as_deref(), name.names(), passwords, now_s, &SystemFiles::new(witness))
    };
    let pool = request.file_pool().ok_or(Answer::Status(500))?;
    let read = request.wait_for(pool.submit_at(at, job), Errand::Question).await.map_err(Answer::Status)?;
    read.map(Arc::new).map_err(|said| {
        request.log(Level::Error, format_args!("{said}"));
        Answer::Status(500)
    })
}

/// A name without the port behind it, as nginx cuts it.
fn without_port(name: &[u8]) -> &[u8] {
    let colon_from = |at: usize| name[at..].iter().position(|&byte| byte == b':').map(|found| at + found);
    let bracket = if name.starts_with(b"[") { name.iter().position(|&byte| byte == b']') } else { None };
    colon_from(bracket.unwrap_or_default()).map_or(name, |end| &name[..end])
}

/// Whether servers may be told a name: RFC 6066 has none that are addresses.
fn may_be_told(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('[') && name.parse::<Ipv4Addr>().is_err()
}

impl<'c, P: Protocol> Session<'c, P> {
    /// There is a connection: the handshake begins, where there is to be one.
    ///
    /// # Errors
    /// If nothing can be begun with what the configuration says.
    pub(super) fn begin_handshake(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        made: Outbound,
        remote: &Remote,
    ) -> Flow {
        let identity = Identity { remote, local: self.local, scope: self.scope };
        let now_ms = self.home.now_ms();
        let Some(secure) = &self.tls else {
            self.outbound = Some(Connection::new(made, identity, now_ms));
            self.note_connected(exchange);
            return Flow::On;
        };
        let given = self.lease.as_ref().and_then(|lease| lease.peer().state().given_session(secure.tag));
        match secure.begin(given.as_deref()) {
            Ok(mut session) => {
                if secure.code.certificate.is_some() {
                    session.hear_question();
                }
                let session = Box::new(session);
                self.outbound = Some(Connection::with_tls(made, session, identity, now_ms));
                exchange.request.set_action(HANDSHAKING);
                self.stage = Stage::Handshaking;
                Flow::On
            }
            Err(said) => {
                exchange.request.log(Level::Error, format_args!("{said}"));
                Flow::End(Step::Respond(Answer::Status(500)))
            }
        }
    }

    pub(super) fn poll_handshaking(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let tls = self.outbound.as_mut().and_then(|outbound| outbound.transport.tls_mut());
        let (Some(stream), Some(secure)) = (tls, &self.tls) else {
            return Flow::End(Step::Respond(Answer::Status(500)));
        };
        let code = secure.code;
        match stream.poll_until_asked(cx) {
            Poll::Pending => Flow::Wait,
            Poll::Ready(Ok(Shaken::Asked)) => {
                let met = Met { version: version_of(stream.session()), ..Met::default() };
                match &*code.certificate {
                    Some(code) => self.consult(exchange, &**code, About::Shown, met),
                    None => Flow::End(Step::Respond(Answer::Status(500))),
                }
            }
            Poll::Ready(Ok(Shaken::Done)) => match &*code.verify {
                Some(code) => match secure.meet(stream.session(), exchange.request) {
                    Some(met) => self.consult(exchange, &**code, About::Verified, met),
                    None => self.finish_handshake(exchange, None),
                },
                None => self.finish_handshake(exchange, None),
            },
            Poll::Ready(Err(fault)) => {
                exchange.request.log(Level::Error, format_args!("{fault}"));
                self.fail(exchange, Failures::ERROR)
            }
        }
    }

    /// There is a connection, if the server's certificate is right: `said` is what code says of it.
    fn finish_handshake(&mut self, exchange: &mut Exchange<'_, 'c>, said: Option<Verified>) -> Flow {
        let tls = self.outbound.as_mut().and_then(|outbound| outbound.transport.tls_mut());
        let (Some(stream), Some(secure)) = (tls, &self.tls) else {
            return Flow::End(Step::Respond(Answer::Status(500)));
        };
        match secure.verify(stream.session(), said) {
            Ok(()) => {
                self.note_connected(exchange);
                Flow::On
            }
            Err(said) => {
                exchange.request.log(Level::Error, format_args!("{said}"));
                self.fail(exchange, Failures::ERROR)
            }
        }
    }

    /// Code is asked.
    fn consult(
        &mut self,
        exchange: &mut Exchange<'_, 'c>,
        code: &dyn UpstreamCode,
        about: About,
        met: Met,
    ) -> Flow {
        exchange.request.set_action(about.action());
        let stage = ConsultingStage { work: code.begin(), met: Box::new(met), about, name: code.name() };
        self.stage = Stage::Consulting(stage);
        Flow::On
    }

    pub(super) fn poll_consulting(&mut self, exchange: &mut Exchange<'_, 'c>, cx: &mut Context<'_>) -> Flow {
        let Stage::Consulting(stage) = &mut self.stage else { return Flow::On };
        let agreed = match stage.work.poll(exchange, &mut stage.met, cx) {
            Poll::Ready(agreed) => agreed,
            Poll::Pending => return Flow::Wait,
        };
        let (about, met) = (stage.about, std::mem::take(&mut *stage.met));
        exchange.request.set_action(HANDSHAKING);
        self.stage = Stage::Handshaking;
        let refused = match (about, agreed) {
            (About::Verified, Ok(())) => {
                return self.finish_handshake(exchange, Some(verified(i64::from(met.verification))));
            }
            (About::Verified, Err(_)) => Reason::named(Library::Ssl, "CERTIFICATE_VERIFY_FAILED"),
            (About::Shown, Err(_)) => HelloError::ServerName.into(),
            (About::Shown, Ok(())) => {
                let tls = self.outbound.as_mut().and_then(|outbound| outbound.transport.tls_mut());
                match tls.map(|stream| stream.answer(&met.shown)) {
                    Some(Ok(())) => return Flow::On,
                    Some(Err(error)) => {
                        exchange.request.log(Level::Error, format_args!("{error}"));
                        return self.fail(exchange, Failures::ERROR);
                    }
                    None => return Flow::End(Step::Respond(Answer::Status(500))),
                }
            }
        };
        let failure = HandshakeFault::Failed(Failure { reasons: vec![refused] });
        // As nginx has it: the first is none of the reasons that it takes for the peer's.
        let level = if about == About::Verified { Level::Crit } else { Level::Error };
        exchange.request.log(level, format_args!("{failure}"));
        self.fail(exchange, Failures::ERROR)
    }

    /// What the server has given of sessions is for further connections.
    pub(super) fn keep_session(&mut self) {
        let tls = self.outbound.as_mut().and_then(|outbound| outbound.transport.tls_mut());
        let (Some(stream), Some(secure), Some(lease)) = (tls, &self.tls, &self.lease) else { return };
        if let Some(kept) = stream.take_kept().pop() {
            let session = GivenSession { tag: secure.tag, content: kept.content };
            lease.peer().state().keep_session(session);
        }
    }
}

impl Secure<'_> {
    /// This side of a connection.
    ///
    /// # Errors
    /// nginx's message.
    fn begin(&self, given: Option<&GivenSession>) -> Result<AwsLcSession, String> {
        let text = String::from_utf8_lossy(&self.name);
        let name = Some(&*text).filter(|name| *self.conf.server_name && may_be_told(name));
        let session = given.filter(|_| *self.conf.session_reuse).map(|given| &given.content[..]);
        let target = Target { name, session };
        let mut session = AwsLc::connect(&self.tls.context, target).map_err(|error| error.to_string())?;
        if let Some(pair) = &self.pair {
            session.present(pair).map_err(|error| error.to_string())?;
        }
        Ok(session)
    }

    /// A server as code is told of it that looks at its certificate. None where the library's check has
    /// failed, which that code leaves as it is.
    fn meet(&self, session: &dyn TlsSession, request: &Request<'_>) -> Option<Met> {
        if !*self.code.skips_default {
            request.log(Level::Debug, format_args!("proxy_ssl_verify_by_lua: openssl default verify"));
            if let Verified::Failed(..) = session.info().verification {
                return None;
            }
        }
        let (version, certificate) = (version_of(session), session.peer_certificate());
        Some(Met { version, certificate, ..Met::default() })
    }

    /// Checks that the certificate is the server's.
    ///
    /// # Errors
    /// nginx's message.
    fn verify(&self, session: &dyn TlsSession, said: Option<Verified>) -> Result<(), String> {
        if !*self.conf.verify {
            return Ok(());
        }
        let verification = said.unwrap_or_else(|| session.info().verification);
        check_certificate(session, &self.name, verification)
    }
}

/// Whether the server has shown a certificate that is good for this name.
///
/// # Errors
/// nginx's message.
fn check_certificate(session: &dyn TlsSession, name: &[u8], verification: Verified) -> Result<(), String> {
    if let Verified::Failed(number, text) = verification {
        return Err(format!("upstream SSL certificate verify error: ({number}:{text})"));
    }
    let text = String::from_utf8_lossy(name);
    let certificate = session.peer_certificate().and_then(|der| Certificate::from_der(&der));
    if certificate.is_some_and(|certificate| certificate.is_for(&text)) {
        return Ok(());
    }
    Err(format!("upstream SSL certificate does not match \"{}\"", Verbatim(name)))
}

fn version_of(session: &dyn TlsSession) -> Option<u16> {
    session.info().version.map(Version::number)
}

/// A handshake with a server that is asked whether it is well.
pub(super) struct Shaking(Box<TlsStream>);

impl Secure<'_> {
    /// Begins it on a connection.
    ///
    /// # Errors
    /// nginx's message.
    pub(super) fn shake_hands(&self, socket: Socket) -> Result<Shaking, String> {
        Ok(Shaking(TlsStream::new(socket, Box::new(self.begin(None)?))))
    }
}

impl Shaking {
    /// Ready when it is over.
    ///
    /// # Errors
    /// The mistake.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), String>> {
        self.0.poll_handshake(cx).map_err(|fault| fault.to_string())
    }

    /// The transport with the finished session.
    ///
    /// # Errors
    /// The certificate is not the server's.
    pub(super) fn finish(self, secure: &Secure<'_>) -> Result<Transport, String> {
        secure.verify(self.0.session(), None)?;
        Ok(Transport::Tls(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_ports() {
        let cases = [
            ("example.com", "example.com"),
            ("example.com:8443", "example.com"),
            ("[::1]:8443", "[::1]"),
            ("[::1]", "[::1]"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(without_port(name.as_bytes()), expected.as_bytes());
        }
    }

    #[test]
    fn addresses_are_not_told() {
        assert!(may_be_told("example.com"));
        assert!(["127.0.0.1", "[::1]", ""].iter().all(|name| !may_be_told(name)));
    }
}
