//! How subrequests are answered: each is a request of its own on the engine. Those that nobody waits for in
//! place are strands of the request that they belong to (`strands`).

use crate::output::OutputState;
use crate::output::view::View;
use crate::phases::Exchange;
use crate::phases::engine::{Active, Start, Turn};
use crate::phases::protocol::Cut;
use crate::request::answer::Answer;
use crate::request::body::BodyState;
use crate::request::relay::{Addressee, Answering};
use crate::request::sink::Sink;
use crate::request::strands::{Bond, Strand, StrandId};
use crate::request::subrequest::{
    Audience, CapturedVariables, Delivery, Entry, NotMade, Stub, SubPart, Subrequest, SubrequestOutcome,
    Terminated,
};
use crate::request::tree::{Asked, OwnHead};
use crate::request::values::Values;
use crate::request::{AliasTail, Node, Origin, Request, Rewriting, SentTarget, Text};
use crate::response::chunk::{Chunk, Mark};
use crate::tables::Http;
use clearway_message::{ResponseHead, Text as HeadText};

impl Answering for Http {
    fn answer<'c>(parent: &Request<'c>, wanted: Subrequest, to: Addressee<'c>) -> StrandId {
        let (audience, asker) = (parent.audience(), parent.strand());
        let Addressee { sink, outcome, content_type } = to;
        parent.strands().begin(Bond::Joined, |strand| {
            let mut active = Active::subrequest((audience, strand), parent, wanted, (sink, content_type));
            Box::pin(async move {
                let end = active.answer_subrequest().await;
                outcome.set_end(end.map(|_| active.output.status()));
                active.request.strands().notify(asker);
            })
        })
    }
}

/// Answers one in the background; one that wants the connection closed does not have its way.
fn answer_in_background<'c>(parent: &Request<'c>, wanted: Subrequest, (asked, bond): (Asked<'c>, Bond)) {
    parent.strands().begin(bond, |strand| -> Strand<'c> {
        let mut active =
            Active::subrequest((Audience::Nobody, strand), parent, wanted, (Sink::Nowhere, None));
        Box::pin(async move {
            let _asked = asked;
            let _ = active.answer_subrequest().await;
        })
    });
}

impl<'c> Active<'c> {
    fn subrequest(
        (audience, strand): (Audience, StrandId),
        parent: &Request<'c>,
        wanted: Subrequest,
        (sink, content_type): (Sink<'c>, Option<HeadText<'c>>),
    ) -> Box<Self> {
        let Subrequest { path, args, entry, asking, delivery, stub, capture } = wanted;
        let tree = parent.tree();
        let stub = stub.map(|body| Stub { body, content_type: content_type.map(HeadText::into_owned) });
        let strands = parent.strands();
        debug_assert!(parent.nested_left() > 0, "a request that is nested so deep asks for nothing");
        let (number, nested_left) = (tree.next_number(), parent.nested_left() - 1);
        let head = capture.as_ref().map_or(OwnHead::Common, |_| parent.head_for_capture(&tree));
        let sub = SubPart {
            tree,
            strands,
            strand,
            number,
            nested_left,
            entry,
            asking,
            delivery,
            audience,
            stub,
            head,
        };
        // One that begins in the same place is asked for with the same words.
        let (location, alias_tail, sent, rewriting) = match entry {
            Entry::Server => {
                let base = parent.snapshot.location(parent.server.base);
                (base, AliasTail::Nothing, SentTarget::Replaced, Rewriting::NONE)
            }
            Entry::Content => {
                let node = parent.node();
                (parent.location(), parent.alias_tail(), node.sent, node.rewriting)
            }
        };
        let node = Node {
            location,
            path: Text::Made(path.into()),
            args: Text::args((!args.is_empty()).then_some(args)),
            origin: Origin::Internal,
            sent,
            alias_tail,
            rewriting,
        };
        let mut request = Request::new_subrequest(parent, node, sub);
        if entry == Entry::Content {
            request.values.copy_groups(&parent.values);
        }
        if let Some(capture) = capture {
            match capture.variables {
                CapturedVariables::Shared => {}
                CapturedVariables::Own => request.values = Values::default(),
                CapturedVariables::Copied => request.values = Values::copy_of(&parent.values),
            }
            (capture.prepare)(&mut request);
        }
        Box::new(Self { request, body: BodyState::default(), output: OutputState::new(sink) })
    }

    /// Its last action, for the error log.
    async fn answer_subrequest(&mut self) -> Result<&'static str, Terminated> {
        if self.run_subrequest().await.is_err() {
            return Err(Terminated(self.output.status()));
        }
        if self.output.is_body_empty() {
            self.push_stub();
        }
        self.output.finish(&self.request);
        if self.output.flush(&self.request).await.is_err() && Box::pin(self.send_instead()).await.is_err() {
            return Err(Terminated(self.output.status()));
        }
        let action = self.request.action();
        if *self.request.location().core.log_subrequest && self.logs_slowly() {
            Box::pin(self.log_slowly()).await;
        }
        self.log();
        Ok(action)
    }

    /// Answers a subrequest.
    fn run_subrequest(&mut self) -> impl Future<Output = Result<(), Cut>> + Send {
        let start = match self.request.parts.sub().map(|sub| sub.entry) {
            Some(Entry::Content) => Start::Content,
            Some(Entry::Server) | None => Start::Server,
        };
        self.pursue(Turn::Ask(start))
    }

    /// Answers with the stub of a subrequest, if it has one, in place of an error.
    pub(crate) fn push_stub(&mut self) -> bool {
        let Some(stub) = self.request.parts.sub_mut().and_then(|sub| sub.stub.take()) else { return false };
        if !self.output.head_sent() {
            self.output.head.content_type = stub.content_type.map(Into::into);
            self.output.head.status = self.output.head.status.max(200);
        }
        self.output.reopen();
        // It was in memory before.
        let _ = self.output.write(&self.request, Chunk::Shared(stub.body), Mark::More);
        true
    }
}

/// A subrequest without a body that has ended.
pub struct Finished<'c>(Box<Active<'c>>);

impl<'c> Finished<'c> {
    /// Its status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.0.output.status()
    }

    /// The view on which variables are evaluated, as the subrequest sees them.
    #[must_use]
    pub fn view(&self) -> View<'_, 'c> {
        View::new(&self.0.request, &self.0.output)
    }

    /// The head of its response.
    #[must_use]
    pub fn head(&self) -> &ResponseHead<'c> {
        &self.0.output.head
    }
}

impl<'c> Exchange<'_, 'c> {
    /// Waits for a subrequest, which has no body.
    ///
    /// # Errors
    /// The answer to give instead: it could not be made, or wants the connection closed.
    pub async fn subrequest(&mut self, wanted: Subrequest) -> Result<Finished<'c>, Answer> {
        debug_assert_eq!(wanted.delivery, Delivery::HeadOnly, "a body would have nowhere to go");
        let _asked = self.request.ask(&wanted).map_err(|NotMade| Answer::Abandon(500))?;
        let place = (self.request.audience(), self.request.strand());
        let mut active = Active::subrequest(place, self.request, wanted, (Sink::Nowhere, None));
        match active.answer_subrequest().await {
            Ok(_) => Ok(Finished(active)),
            Err(Terminated(status)) => Err(Answer::Abandon(status)),
        }
    }

    /// Has a subrequest answered beside the handler, with a head of its own, and its response kept
    /// ([`Delivery::Captured`]): the handler is polled when it has ended.
    ///
    /// # Errors
    /// It could not be made; that is logged.
    pub fn capture(&mut self, mut wanted: Subrequest) -> Result<SubrequestOutcome, NotMade> {
        let Delivery::Captured { most_bytes } = wanted.delivery else { return Err(NotMade) };
        let asked = self.request.ask(&wanted)?;
        let outcome = SubrequestOutcome::default();
        let conclude =
            wanted.capture.as_mut().map(|capture| std::mem::replace(&mut capture.conclude, Box::new(|_| ())));
        let (parent, kept) = (&*self.request, outcome.clone());
        let (audience, asker) = (parent.audience(), parent.strand());
        parent.strands().begin(Bond::Joined, |strand| {
            let sink = (Sink::Capture(kept.clone(), most_bytes), None);
            let mut active = Active::subrequest((audience, strand), parent, wanted, sink);
            Box::pin(async move {
                let _asked = asked;
                let end = active.answer_subrequest().await;
                // A subrequest that is broken off is not logged, so its action still stands.
                kept.note_action(end.as_ref().copied().unwrap_or_else(|_| active.request.action()));
                if let Some(conclude) = conclude {
                    conclude(&active.output.head);
                }
                kept.set_end(end.map(|_| active.output.status()));
                active.request.strands().notify(asker);
            })
        });
        Ok(outcome)
    }

    /// Has a subrequest answered that nobody waits for, but the next request of the connection.
    ///
    /// # Errors
    /// It could not be made; that is logged.
    pub fn start_background(&mut self, wanted: Subrequest) -> Result<(), NotMade> {
        self.start(wanted, Bond::Joined)
    }

    /// Has a subrequest answered that nobody waits for: the connection goes on with its next request while
    /// this one is answered, and ends behind it.
    ///
    /// # Errors
    /// It could not be made; that is logged.
    pub fn start_apart(&mut self, wanted: Subrequest) -> Result<(), NotMade> {
        self.start(wanted, Bond::Apart)
    }

    fn start(&mut self, wanted: Subrequest, bond: Bond) -> Result<(), NotMade> {
        debug_assert_eq!(wanted.delivery, Delivery::HeadOnly, "a body would have nowhere to go");
        let asked = self.request.ask(&wanted)?;
        answer_in_background(self.request, wanted, (asked, bond));
        Ok(())
    }
}
