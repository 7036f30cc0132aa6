//! Code that has a say in handshakes is run here, before the library is asked: as long as the client may take
//! for its handshake.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use clearway_base::log::Level;
use clearway_http::{About, Accept, HandshakeCode, HandshakeCodes, Remembered, TIMED_OUT, Wishes};
use clearway_site::ServerId;
use clearway_tls::engine::{Failure, Kept};
use clearway_tls::hello::{Hello, HelloError};
use clearway_tls::level::Version;
use clearway_tls::reason::{Library, Reason};

use super::{HANDSHAKING, INTERNAL_ERROR, fail, send_alert};
use crate::conn::Conn;
use crate::connection::{Connection, Ending};

fn codes(conn: &Conn, server: ServerId) -> &HandshakeCodes {
    conn.setup.handshake_code(server)
}

/// Whether code wants to hear the hello.
pub(super) fn has_hello(conn: &Conn) -> bool {
    codes(conn, conn.setup.address().default_server).client_hello.is_some()
}

/// Whether a server has other code.
pub(super) fn is_there(conn: &Conn, server: ServerId) -> bool {
    let codes = codes(conn, server);
    let is_there =
        codes.certificate.is_some() || codes.session_fetch.is_some() || codes.session_store.is_some();
    is_there || has_borrowed(conn, server)
}

/// Whether a server without code has the certificates of the address's default one, which code chooses.
fn has_borrowed(conn: &Conn, server: ServerId) -> bool {
    let default = conn.setup.address().default_server;
    let has_code = |id| codes(conn, id).certificate.is_some();
    server != default && !has_code(server) && has_code(default) && !conn.setup.has_certificates(server)
}

/// Has code hear the hello, whose server is not chosen yet.
pub(super) async fn hear(
    connection: &mut Connection,
    hello: &Arc<Hello>,
    wishes: &mut Wishes,
) -> Result<(), Ending> {
    let server = connection.conn.setup.address().default_server;
    let code = Option::clone(&codes(&connection.conn, server).client_hello);
    let about = about(&connection.conn, server, hello);
    consult(connection, (code, about), wishes, HelloError::ServerName.into()).await
}

/// Has the code of the chosen server look for a session, and for certificates.
pub(super) async fn prepare(
    connection: &mut Connection,
    (hello, server): (&Arc<Hello>, ServerId),
    acceptor: &dyn Accept,
    wishes: &mut Wishes,
) -> Result<(), Ending> {
    let version = acceptor.version(hello, wishes);
    let about = |conn: &Conn, wishes: &Wishes| {
        let suites = acceptor.suites(wishes);
        About { version, suites, ..about(conn, server, hello) }
    };
    let fetch = Option::clone(&codes(&connection.conn, server).session_fetch);
    if let Some(fetch) = fetch.filter(|_| asks_for_session(hello, version)) {
        let about = about(&connection.conn, wishes);
        let mut with_session = wishes.clone();
        match wait(&connection.conn, &*fetch, about, &mut with_session).await {
            Some(Ok(())) => *wishes = with_session,
            // Without the session the client makes a full handshake.
            Some(Err(())) => {}
            None => return Err(late(&connection.conn)),
        }
    }
    let code = Option::clone(&codes(&connection.conn, server).certificate);
    if has_borrowed(&connection.conn, server) {
        let conn = &connection.conn;
        let name = String::from_utf8_lossy(conn.setup.server_name(server)).into_owned();
        let line = format_args!("no ssl_certificate_by_lua* defined in server {name}");
        conn.log(Level::Alert, HANDSHAKING, line);
        return Err(refuse(conn, Reason::named(Library::Ssl, "CERT_CB_ERROR")));
    }
    if code.is_none() {
        return Ok(());
    }
    let about = about(&connection.conn, wishes);
    consult(connection, (code, about), wishes, Reason::named(Library::Ssl, "CERT_CB_ERROR")).await
}

/// Whether a client asks for a session by an id. With tickets and TLS 1.3 the sessions are the library's.
fn asks_for_session(hello: &Hello, version: Option<u16>) -> bool {
    let is_old = version.is_some_and(|version| version < Version::Tls13.number());
    is_old && !hello.session_id().is_empty() && hello.ticket().is_none_or(<[u8]>::is_empty)
}

/// Hands sessions to the code that keeps them, but for those of TLS 1.3, which come back.
pub(super) async fn store(
    connection: &Connection,
    (hello, server): (&Arc<Hello>, ServerId),
    version: Option<Version>,
    kept: Vec<Kept>,
    remembered: &mut Option<Remembered>,
) -> Vec<Kept> {
    let conn = &connection.conn;
    let Some(code) = Option::clone(&codes(conn, server).session_store) else { return kept };
    let number = version.map(Version::number);
    if let Some(Version::Tls13) = version {
        let text = "ssl_session_store_by_lua*: skipped since TLS version >= 1.3";
        conn.log(Level::Debug, HANDSHAKING, format_args!("{text} ({:x})", Version::Tls13.number()));
        return kept;
    }
    for session in kept {
        let about = About { session: Some(session), version: number, ..about(conn, server, hello) };
        // What becomes of a session is nothing to this connection.
        let mut wishes = Wishes { remembered: remembered.clone(), ..Wishes::default() };
        if let Some(Ok(())) = wait(conn, &*code, about, &mut wishes).await {
            *remembered = wishes.remembered;
        }
    }
    Vec::new()
}

fn about(conn: &Conn, server: ServerId, hello: &Arc<Hello>) -> About {
    let local = conn.link.transport.local_address();
    About { local, ..About::new(&conn.client, &conn.setup, server, hello) }
}

/// Runs code; what it wishes is in `wishes` then.
///
/// # Errors
/// It wants no handshake, or time is over: the client is told, and so is the log.
async fn consult(
    connection: &mut Connection,
    (code, about): (Option<Arc<dyn HandshakeCode>>, About),
    wishes: &mut Wishes,
    reason: Reason,
) -> Result<(), Ending> {
    let Some(code) = code else { return Ok(()) };
    let conn = &connection.conn;
    match wait(conn, &*code, about, wishes).await {
        Some(Ok(())) => Ok(()),
        Some(Err(())) => Err(refuse(conn, reason)),
        None => Err(late(conn)),
    }
}

/// The client is not served, and is told so.
fn refuse(conn: &Conn, reason: Reason) -> Ending {
    send_alert(conn, INTERNAL_ERROR);
    fail(conn, &Failure { reasons: vec![reason] });
    Ending
}

/// The client has had its time.
fn late(conn: &Conn) -> Ending {
    conn.log(Level::Info, HANDSHAKING, format_args!("{TIMED_OUT}"));
    Ending
}

/// Whether the code goes along; `None`: the client has no more time.
async fn wait(
    conn: &Conn,
    code: &dyn HandshakeCode,
    about: About,
    wishes: &mut Wishes,
) -> Option<Result<(), ()>> {
    let mut running = code.run(about, std::mem::take(wishes));
    let done = poll_fn(|cx| match running.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => conn.link.timer.poll_expired(cx).map(|()| None),
    });
    done.await.map(|done| done.map(|said| *wishes = said).map_err(drop))
}
