//! Values of variables for a handshake: certificates may have names that depend on what the client has said.
//! A request that is never answered or logged stands for those that will come, as in nginx.

use std::sync::Arc;

use clearway_site::ServerId;

use crate::client::{Client, Way};
use crate::generation::Setup;
use crate::link::Link;
use crate::link::http1::Http1Link;
use crate::link::parts::Parts;
use crate::link::tls::{Offer, Tls};
use crate::output::view::View;
use crate::phases::engine::Active;
use crate::request::strands::Strands;

/// The action for the error log: nginx sets it before it evaluates names.
const HANDSHAKING: &str = "SSL handshaking";

/// The client that shakes hands, and the server.
pub struct Shaking<'a> {
    /// The client.
    pub client: &'a Client,
    /// The generation that answers it.
    pub setup: &'a Arc<Setup>,
    /// The server that was asked for.
    pub server: ServerId,
}

/// Has `look` look at variables as they are in a handshake that has not begun, in which the client has made
/// this offer.
pub fn look_at_handshake<T>(
    shaking: Shaking<'_>,
    link: &mut Http1Link,
    offer: &mut Offer,
    look: impl FnOnce(&View<'_, '_>) -> T,
) -> T {
    debug_assert!(link.transport.tls().is_none(), "a handshake that has not begun has no session");
    link.transport.encrypt(Box::new(Tls::unbegun(std::mem::take(offer))));
    let looked = {
        let Shaking { client, setup, server } = shaking;
        let (strands, mut parts) = (Strands::default(), Parts::default());
        let way = Way { client, setup, link: Link::Http1(link) };
        let mut active = Active::new(way, &strands, &mut parts, 0, 0);
        active.request.enter_server(server, HANDSHAKING);
        let looked = look(&View::new(&active.request, &active.output));
        active.request.leave_unlogged();
        looked
    };
    if let Some(tls) = link.transport.take_tls() {
        *offer = tls.into_offer();
    }
    debug_assert!(link.transport.tls().is_none(), "the session of the look is gone");
    looked
}
