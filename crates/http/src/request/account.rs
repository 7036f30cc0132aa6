//! The account that a request gives of itself when it held its thread: asked for by the runtime's observer,
//! given by the task itself behind whatever may have taken long, while it still knows what that was. A task
//! that did not hold its thread pays one load per question.

use clearway_runtime::Account;

use crate::client::Client;
use crate::generation::Setup;
use crate::request::Request;
use crate::request::log::Circumstances;
use crate::tables::Location;
use clearway_base::log::Verbatim;

/// Steps of a request beside the handlers of a phase.
pub(crate) const FINDING_LOCATION: &str = "finding the location";
/// Likewise: filters, reading files and the socket.
pub(crate) const SENDING_RESPONSE: &str = "sending the response";

impl Request<'_> {
    /// Tells what the request did (`sending a request to upstream`), if somebody asks since it held its
    /// thread. To be called behind `step`, within the same poll.
    #[inline]
    pub fn account(&self, step: &'static str) {
        self.client.home.account(|| self.describe(step));
    }

    #[cold]
    fn describe(&self, step: &'static str) -> Account {
        let subject = self.request_line().map(|line| Verbatim(line).to_string());
        let circumstances = Circumstances { request: self, action: "" };
        Account {
            subject: subject.unwrap_or_default(),
            circumstances: circumstances.to_string(),
            ..of_location(self.client, self.setup, self.location(), step)
        }
    }
}

/// Where somebody else has the request: what is known without it.
#[cold]
pub(crate) fn of_location(
    client: &Client,
    setup: &Setup,
    location: &Location,
    step: &'static str,
) -> Account {
    Account {
        connection: client.serial,
        identity: setup.identity(client.home),
        subject: String::new(),
        place: Verbatim(location.name()).to_string(),
        step,
        circumstances: format!(", client: {}", client.peer),
    }
}
