//! A server and a client of the TLS crate, connected in memory.

use std::io::IoSlice;
use std::sync::Arc;

use clearway_tls::ciphers::CipherList;
use clearway_tls::engine::{
    Engine, Given, Keeping, Kept, Opened, Plan, Session, Side, Step, Target, Tickets, Versions, kept_key,
};
use clearway_tls::hello::{Hello, HelloReader};
use clearway_tls::level::Version;
use clearway_tls::tickets::{KeyRing, TicketKey};
use clearway_tls::{AwsLc, Context, Pair, TlsSession};

const CERTIFICATE: &[u8] = include_bytes!("../../crates/tls/tests/data/ecdsa.pem");
const KEY: &[u8] = include_bytes!("../../crates/tls/tests/data/ecdsa.key");

/// What tickets begin with.
pub const KEY_NAME: [u8; 16] = [1; 16];

/// Both sides, of one version.
pub struct Contexts {
    /// With tickets.
    pub server: Arc<Context>,
    /// Without tickets, and with sessions that it keeps.
    pub keeping: Arc<Context>,
    client: Arc<Context>,
}

/// Both ends of a connection.
pub struct Peers {
    pub server: TlsSession,
    pub client: TlsSession,
}

fn plan(version: Version) -> Plan<Pair> {
    let pair = Pair::read(CERTIFICATE, KEY, &[]).expect("they are sound");
    let mut plan = Plan::new(CipherList::parse("HIGH:!aNULL:!MD5").expect("it is one"), vec![Arc::new(pair)]);
    plan.versions = Versions::none().and(version);
    plan.protocols = vec![b"http/1.1".to_vec()];
    plan
}

impl Contexts {
    pub fn new(version: Version) -> Self {
        let mut server = plan(version);
        let key = TicketKey::from_file(&[1; 80]).expect("a length of files");
        server.tickets = Tickets::Ring(Arc::new(KeyRing::new(vec![key]).expect("there is one")));
        let mut keeping = plan(version);
        keeping.keeping = Keeping::Kept;
        let mut client = plan(version);
        client.pairs.clear();
        client.side = Side::Client;
        client.keeping = Keeping::Kept;
        let [server, keeping, client] =
            [server, keeping, client].map(|plan| AwsLc::context(&plan).expect("it is sound"));
        Self { server, keeping, client }
    }

    /// What the client begins with.
    fn begin(&self, session: Option<&[u8]>) -> (TlsSession, Vec<u8>) {
        let target = Target { name: Some("www.example.com"), session };
        let mut client = AwsLc::connect(&self.client, target).expect("a name");
        let mut to_server = Vec::new();
        assert_eq!(client.step(&mut &[][..], &mut to_server), Step::Need);
        (client, to_server)
    }

    /// The hello of a client.
    pub fn hello(&self) -> Hello {
        let (_, records) = self.begin(None);
        HelloReader::default().read(&records).expect("it is sound").expect("it is whole")
    }

    /// Connects, with what an earlier client has kept.
    pub fn connect(&self, session: Option<&[u8]>) -> Peers {
        self.connect_to(&self.server, session, |_| Given::default())
    }

    /// Connects to the server that keeps sessions, which finds this under the key that it is shown.
    pub fn accept_kept(&self, find: impl Fn(&[u8]) -> Kept) {
        let kept = self.connect_to(&self.keeping, None, |_| Given::default()).client.take_kept();
        let Some(Kept { content, .. }) = kept.into_iter().next() else { return };
        self.connect_to(&self.keeping, Some(&content), |hello| Given {
            kept: kept_key(hello).map(&find),
            ..Given::default()
        });
    }

    fn connect_to(
        &self,
        server: &Arc<Context>,
        session: Option<&[u8]>,
        given: impl Fn(&Hello) -> Given<Pair>,
    ) -> Peers {
        let (mut client, mut to_server) = self.begin(session);
        let hello = HelloReader::default().read(&to_server).expect("it is sound").expect("it is whole");
        let mut server = AwsLc::accept(server, &hello, given(&hello)).expect("it is accepted");
        let mut to_client = Vec::new();
        let (mut at_server, mut at_client) = (Step::Need, Step::Need);
        while at_server == Step::Need || at_client == Step::Need {
            at_server = server.step(&mut &std::mem::take(&mut to_server)[..], &mut to_client);
            if at_client == Step::Need {
                at_client = client.step(&mut &std::mem::take(&mut to_client)[..], &mut to_server);
            }
        }
        assert_eq!((at_server, at_client), (Step::Done, Step::Done));
        // Tickets come with the first that is sent.
        server.seal(&[IoSlice::new(b"x")], 16_384, &mut to_client).expect("it is well");
        let mut plain = Vec::with_capacity(8);
        assert_eq!(client.open(&mut &to_client[..], &mut plain, &mut to_server), Opened::Need);
        Peers { server, client }
    }
}
