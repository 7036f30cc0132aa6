//! TLS for clients: what configurations say of it, as nginx's ngx_http_ssl_module has it. The handshake is
//! the connection's (`serve`), the cryptography `clearway_tls`'s; here is what both are told, and the
//! variables.

mod acceptor;
mod directives;
mod named;
mod ocsp;
mod responder;
mod server;
mod settings;
mod shared_key;
mod staples;
mod stapling;
mod variables;

use clearway_conf::Error;
use clearway_http::{HANDSHAKE_CODE, Load, Module, Role, SERVER_TLS, SniHandling};

use directives::DIRECTIVES;
use server::Maker;
use settings::SSL_CONF;
use variables::VARIABLES;

/// The name of HTTP/2 in handshakes (ALPN).
const HTTP2: &[u8] = b"h2";

pub use shared_key::{make_ticket_key, share_ticket_key};
pub use stapling::start as start_stapling;

/// The module.
pub static SSL: Module = Module {
    name: "ssl",
    directives: DIRECTIVES,
    confs: &[&SSL_CONF, &SERVER_TLS, &HANDSHAKE_CODE],
    variables: VARIABLES,
    finish: Some(make_contexts),
    role: Role::Ssl,
    ..Module::EMPTY
};

fn make_contexts(load: &mut Load) -> Result<(), Error> {
    let maker = Maker::new(load);
    let made = load.make_for_servers(&SSL_CONF, &SERVER_TLS, |conf| maker.make(conf));
    maker.into_warnings().into_iter().for_each(|warning| load.warn(warning));
    made?;
    for servers in load.ssl_addresses() {
        let tls = |id| load.of_server(id, &SERVER_TLS).server.as_ref();
        let has_certificate = |id| tls(id).is_some_and(|tls| tls.acceptor.is_some());
        let rejects = |id| tls(id).is_some_and(|tls| tls.handling == SniHandling::Rejected);
        // If the default server of an address refuses all handshakes, each server says itself what it does.
        let asked = if has_certificate(servers[0]) { &servers[..1] } else { &servers[..] };
        if let Some(silent) = asked.iter().find(|&&id| !has_certificate(id) && !rejects(id)) {
            let pos = load.server_pos(*silent).map(ToString::to_string).unwrap_or_default();
            let message = "no \"ssl_certificate\" is defined for the \"listen ... ssl\" directive in";
            return Err(Error::unplaced(format!("{message} {pos}")));
        }
    }
    Ok(())
}
