//! A server and a client in one thread, whose bytes go from one to the other in pieces of any size.

use std::borrow::Borrow;
use std::io::{IoSlice, Read, Write};
use std::sync::Arc;

use clearway_tls::ciphers::CipherList;
use clearway_tls::engine::{Engine, Failure, Given, Opened, Plan, Session, Step};
use clearway_tls::hello::HelloReader;
use clearway_tls::{AwsLc, Context, Pair, TlsSession};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedCipherSuite, SupportedProtocolVersion};

pub(crate) const CA: &[u8] = include_bytes!("../data/ca.pem");
pub(crate) const ECDSA: (&[u8], &[u8]) =
    (include_bytes!("../data/ecdsa.pem"), include_bytes!("../data/ecdsa.key"));
pub(crate) const RSA: (&[u8], &[u8]) = (include_bytes!("../data/rsa.pem"), include_bytes!("../data/rsa.key"));
pub(crate) const CLIENT: (&[u8], &[u8]) =
    (include_bytes!("../data/client.pem"), include_bytes!("../data/client.key"));

pub(crate) const TLS12: &SupportedProtocolVersion = &rustls::version::TLS12;
pub(crate) const TLS13: &SupportedProtocolVersion = &rustls::version::TLS13;

pub(crate) fn pair(files: (&[u8], &[u8])) -> Arc<Pair> {
    Arc::new(Pair::read(files.0, files.1, &[]).unwrap())
}

/// nginx's defaults, with a certificate.
pub(crate) fn plan(files: (&[u8], &[u8])) -> Plan<Pair> {
    Plan::new(CipherList::parse("HIGH:!aNULL:!MD5").unwrap(), vec![pair(files)])
}

pub(crate) fn context(plan: impl Borrow<Plan<Pair>>) -> Arc<Context> {
    AwsLc::context(plan.borrow()).unwrap()
}

pub(crate) fn client_config(version: &'static SupportedProtocolVersion) -> ClientConfig {
    config_builder(version).with_no_client_auth()
}

pub(crate) fn client_config_with_certificate(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let chain = CertificateDer::pem_slice_iter(CLIENT.0).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(CLIENT.1).unwrap();
    config_builder(version).with_client_auth_cert(chain, key).unwrap()
}

/// A client that knows these suites alone.
pub(crate) fn client_config_with_suite(
    version: &'static SupportedProtocolVersion,
    suite: SupportedCipherSuite,
) -> ClientConfig {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites = vec![suite];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[version]).unwrap();
    builder.with_root_certificates(roots()).with_no_client_auth()
}

/// A client that trusts nobody.
pub(crate) fn distrustful_config(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth()
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(CA).unwrap()).unwrap();
    roots
}

fn config_builder(
    version: &'static SupportedProtocolVersion,
) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    builder.with_protocol_versions(&[version]).unwrap().with_root_certificates(roots())
}

pub(crate) fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), "www.example.com".try_into().unwrap()).unwrap()
}

/// How bytes of the client reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pieces {
    Whole,
    Bytes,
}

/// Both ends of a connection.
pub(crate) struct Ends {
    pub(crate) server: TlsSession,
    pub(crate) client: ClientConnection,
    /// What the client has sent and the server has not used.
    pub(crate) to_server: Vec<u8>,
    /// What has come out of the server's last call.
    pub(crate) to_client: Vec<u8>,
    pub(crate) pieces: Pieces,
}

impl Ends {
    /// Has the client say hello, and a session made for it.
    pub(crate) fn new(context: &Arc<Context>, config: &Arc<ClientConfig>) -> Self {
        Self::with(context, config, |_| Given::default())
    }

    pub(crate) fn with(
        context: &Arc<Context>,
        config: &Arc<ClientConfig>,
        look_up: impl FnOnce(&clearway_tls::hello::Hello) -> Given<Pair>,
    ) -> Self {
        let mut client = client(config);
        client.set_buffer_limit(None);
        let mut to_server = Vec::new();
        client.write_tls(&mut to_server).unwrap();
        let hello = HelloReader::default().read(&to_server).unwrap().expect("a whole hello");
        assert_eq!(hello.server_name(), Some(&b"www.example.com"[..]));
        let server = AwsLc::accept(context, &hello, look_up(&hello)).unwrap();
        Self { server, client, to_server, to_client: Vec::new(), pieces: Pieces::Whole }
    }

    /// Goes on until the server's handshake is over and the client has heard of it.
    pub(crate) fn handshake(&mut self) -> Result<(), Failure> {
        loop {
            let step = self.step();
            self.deliver();
            match step {
                Step::Need => assert!(self.client.wants_write(), "both wait"),
                Step::Done => return Ok(()),
                Step::Asked => panic!("nobody has said that it hears questions"),
                Step::Closed => panic!("the client closed"),
                Step::Failed(failure) => return Err(failure),
            }
            self.client.write_tls(&mut self.to_server).unwrap();
        }
    }

    /// The server's next step, with what the client has sent.
    fn step(&mut self) -> Step {
        let size = match self.pieces {
            Pieces::Whole => self.to_server.len(),
            Pieces::Bytes => 1,
        };
        let sent = std::mem::take(&mut self.to_server);
        let mut step = Step::Need;
        let mut rest = &sent[..];
        while !rest.is_empty() && step == Step::Need {
            let (mut piece, behind) = rest.split_at(size.min(rest.len()));
            step = self.server.step(&mut piece, &mut self.to_client);
            // The library takes what it is given, but for what follows the handshake.
            self.to_server.extend_from_slice(piece);
            rest = behind;
        }
        self.to_server.extend_from_slice(rest);
        step
    }

    /// Gives the client what came out of the server. Alerts are looked at by tests.
    pub(crate) fn deliver(&mut self) {
        let sent = std::mem::take(&mut self.to_client);
        let mut rest = &sent[..];
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            if self.client.process_new_packets().is_err() {
                return;
            }
        }
    }

    /// Sends bytes to the server and reads them there.
    pub(crate) fn send_to_server(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.client.writer().write_all(bytes).unwrap();
        while self.client.wants_write() {
            self.client.write_tls(&mut self.to_server).unwrap();
        }
        let mut plain = Vec::with_capacity(bytes.len() + 1);
        let sent = std::mem::take(&mut self.to_server);
        assert_eq!(self.server.open(&mut &sent[..], &mut plain, &mut self.to_client), Opened::Need);
        self.deliver();
        plain
    }

    /// Sends bytes to the client and reads them there.
    pub(crate) fn send_to_client(&mut self, parts: &[&[u8]], record: usize) -> Vec<u8> {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        self.server.seal(&parts, record, &mut self.to_client).unwrap();
        let sent = std::mem::take(&mut self.to_client);
        let (mut rest, mut plain) = (&sent[..], Vec::new());
        while !rest.is_empty() {
            self.client.read_tls(&mut rest).unwrap();
            self.client.process_new_packets().unwrap();
            // It ends with an error, since no more is there now.
            let _ = self.client.reader().read_to_end(&mut plain);
        }
        plain
    }

    /// Bytes go both ways.
    pub(crate) fn assert_connected(&mut self) {
        assert_eq!(self.send_to_server(b"request"), b"request");
        assert_eq!(self.send_to_client(&[b"response"], 16_384), b"response");
    }
}
