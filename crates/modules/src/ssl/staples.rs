//! A server's settings for stapling, made into the form that its handshakes use, in nginx's words where
//! something is missing. Boot and reload: names of responders are looked up here.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use clearway_base::log::{Sink, Verbatim};
use clearway_conf::{Error, KeptFiles};
use clearway_net::listen::HostNames;
use clearway_net::url::Names;
use clearway_offload::Pool;
use clearway_tls::engine::LoadError;
use clearway_tls::ocsp::{self, Subject, Trust};
use clearway_tls::{Context, Pair};

use super::responder::{NoResponder, Responder};
use super::settings::SslConf;
use super::stapling::{OfPair, Question, Stapling};

/// A certificate of a server, as the log names it.
pub(crate) struct ShownPair {
    pub(crate) name: String,
    pub(crate) pair: Arc<Pair>,
}

/// With what it is made.
pub(crate) struct Staples<'a> {
    pub(crate) conf: &'a SslConf,
    pub(crate) context: &'a Arc<Context>,
    pub(crate) pairs: &'a [ShownPair],
    pub(crate) files: &'a KeptFiles,
    /// Where relative names begin.
    pub(crate) prefix: &'a [u8],
    pub(crate) names: &'a HostNames,
    pub(crate) pool: Option<Arc<Pool>>,
    pub(crate) log: Arc<dyn Sink>,
}

impl Staples<'_> {
    /// Makes the OCSP answers for the server's certificates.
    ///
    /// # Errors
    /// nginx's words for a file that cannot be used.
    pub(crate) fn make(self) -> Result<Stapling, Error> {
        let (mut of_pairs, mut warnings) = (Vec::new(), Vec::new());
        if self.conf.stapling_file.is_empty() {
            for shown in self.pairs {
                match self.question(shown) {
                    Ok(question) => of_pairs.push(OfPair::Asked(question)),
                    Err(why) => warnings.push(format!("\"ssl_stapling\" ignored, {why}")),
                }
            }
        } else {
            let answer: Arc<[u8]> = self.read_answer()?.into();
            let of_pair = |shown: &ShownPair| OfPair::File(Arc::clone(&shown.pair), Arc::clone(&answer));
            of_pairs.extend(self.pairs.iter().map(of_pair));
        }
        Ok(Stapling { of_pairs, warnings, pool: self.pool, log: self.log })
    }

    fn read_answer(&self) -> Result<Vec<u8>, Error> {
        let file: &Bytes = &self.conf.stapling_file;
        let path = if file.starts_with(b"/") { file.to_vec() } else { [self.prefix, &file[..]].concat() };
        let shown = String::from_utf8_lossy(&path);
        let said = |error: &LoadError| {
            let call = format!("{}(\"{shown}\")", error.call);
            let said = LoadError { call: "", reasons: error.reasons.clone() }.to_string();
            Error::unplaced(format!("{call}{said}"))
        };
        let content = self.files.read(Path::new(OsStr::from_bytes(&path))).map_err(|error| {
            let reasons = clearway_tls::files::unread_binary(&path, &error);
            Error::unplaced(format!("BIO_new_file(\"{shown}\") failed ({reasons})"))
        })?;
        ocsp::read_answer(&content).map_err(|error| said(&error))
    }

    /// The OCSP question about a certificate.
    ///
    /// # Errors
    /// Why nothing is.
    fn question(&self, shown: &ShownPair) -> Result<Arc<Question>, String> {
        let name = &shown.name;
        let trust = if *self.conf.stapling_verify { Trust::Verified } else { Trust::Any };
        let subject = Subject::find(&shown.pair, self.context, trust)
            .ok_or_else(|| format!("issuer certificate not found for certificate \"{name}\""))?;
        let url = match &self.conf.stapling_responder[..] {
            b"" => ocsp::responder_of(shown.pair.certificate())
                .ok_or_else(|| format!("no OCSP responder URL in the certificate \"{name}\""))?,
            said => said.to_vec(),
        };
        let responder = Responder::of(&url, Names::Resolved(self.names));
        let responder = responder.map_err(|NoResponder { why, shown }| {
            let shown = Verbatim(&shown);
            format!("{why} in OCSP responder \"{shown}\" in the certificate \"{name}\"")
        })?;
        Ok(Question::new(subject, responder, name.clone()))
    }
}
