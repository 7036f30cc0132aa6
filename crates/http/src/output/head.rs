//! The head of a response on its way out: through the header filters, which add the body filters, and into
//! the queue of the connection. Owned by the request's task.

use clearway_h1::{ChunkedEncoding, ConnectionHeader, Framing};
use clearway_message::{Method, Version};

use super::head_text::{encode_head, write_head};
use super::held::Unasked;
use super::passed::Places;
use super::{Connection, Filtering, HeaderFilter, OutputState, Progress};
use crate::http2::HTTP2_LOCATION;
use crate::link::Link;
use crate::link::stream::Stream;
use crate::request::Request;
use crate::request::sink::Sink;

/// The status behind which a connection speaks another protocol.
const SWITCHING_PROTOCOLS: u16 = 101;

impl<'c> OutputState<'c> {
    pub(crate) fn send_head(&mut self, request: &Request<'c>) {
        if self.head_sent() || self.is_refused() || self.is_behind() {
            return;
        }
        request.amend(&mut self.head);
        let (before, behind) = request.location().header_filters();
        self.ask_filters(request, Unasked::Before(before, behind));
    }

    /// Has header filters look at the head, and sends it unless one of them stops it.
    #[inline]
    pub(super) fn ask_filters(&mut self, request: &Request<'c>, unasked: Unasked<'c>) {
        let behind = match unasked {
            Unasked::None => return,
            Unasked::Behind(behind) => behind,
            Unasked::Before(before, behind) => {
                if let Some(rest) = self.run_filters(request, before) {
                    return self.stop_head(Unasked::Before(rest, behind));
                }
                self.postpone_stage = self.filters().len() as u32;
                behind
            }
        };
        if request.is_main()
            && let Some(rest) = self.run_filters(request, behind)
        {
            return self.stop_head(Unasked::Behind(rest));
        }
        self.pass_filtered(request);
    }

    /// Sends the head, which all filters have seen.
    #[inline]
    fn pass_filtered(&mut self, request: &Request<'c>) {
        debug_assert!(
            matches!(self.progress, Progress::HeadOpen | Progress::HeadHeld),
            "a head is sent once"
        );
        debug_assert!(!self.is_refused(), "a refused response is not sent");
        self.progress = Progress::Body;
        if !matches!(self.head.status, 200 | 206 | 304) {
            self.head.last_modified = None;
        }
        if self.head.status == 204 {
            self.head.clear_entity();
        }
        self.settle_passed();
        if request.is_main() {
            self.write_head(request);
        } else {
            self.choose_subrequest_framing(request);
        }
    }

    /// Runs header filters; those behind one that stops the head.
    fn run_filters(
        &mut self,
        request: &Request<'c>,
        filters: &'c [HeaderFilter],
    ) -> Option<&'c [HeaderFilter]> {
        let mut left = filters.iter();
        while let Some(filter) = left.next() {
            let body_filter = filter(&mut Filtering { request, output: self });
            self.add_filter(body_filter);
            if self.is_stopped() {
                return Some(left.as_slice());
            }
        }
        None
    }

    fn write_head(&mut self, request: &Request<'c>) {
        match request.link {
            Link::Http1(_) => self.write_http1_head(request),
            Link::Stream(stream) => self.write_stream_head(request, stream),
        }
    }

    /// The body of a stream ends with the stream, however long it is, and another request does not wait for
    /// that.
    fn write_stream_head(&mut self, request: &Request<'c>, stream: &Stream) {
        let (status, length) = (self.head.status, self.head.content_length);
        let version = Version::HTTP_10;
        self.framing = Framing::choose(request.method(), version, status, length, ChunkedEncoding::Off);
        self.connection = Connection::KeepAlive;
        let places = Places::of(self.passed.as_deref(), &self.head, self.replaced());
        let chunk_bytes = *request.conf(&HTTP2_LOCATION).chunk_bytes;
        stream.cut_into(u32::try_from(chunk_bytes).unwrap_or(u32::MAX));
        stream.push_head(encode_head((&self.head, places), request, self.framing));
    }

    /// The set of replaced headers, as bits of [`Known::bit`].
    #[inline]
    fn replaced(&self) -> u64 {
        self.unusual.as_ref().map_or(0, |unusual| unusual.replaced)
    }

    fn write_http1_head(&mut self, request: &Request<'c>) {
        let encoding = *request.location().core.chunked_encoding;
        let is_chunkable = encoding == ChunkedEncoding::On && request.version() >= Version::HTTP_11;
        if self.trailers.is_some() && is_chunkable && !request.is_head() {
            self.head.content_length = None;
        }
        // What follows the head of a tunnel is no body (RFC 9110 §9.3.6).
        let is_tunnel = request.method() == Method::Connect && self.head.status < 300;
        let encoding = if is_tunnel { ChunkedEncoding::Off } else { encoding };
        self.framing = Framing::choose(
            request.method(),
            request.version(),
            self.head.status,
            self.head.content_length,
            encoding,
        );
        if request.is_persistent() && self.framing.is_delimited() && self.head.status != SWITCHING_PROTOCOLS {
            self.connection = Connection::KeepAlive;
        }
        let replaced = self.replaced();
        let Sink::Client(queue) = &mut self.sink else { return };
        let before = queue.len();
        if request.version().has_response_head() {
            let connection = match self.connection {
                Connection::Close if self.head.status == SWITCHING_PROTOCOLS => ConnectionHeader::Upgrade,
                Connection::Close => ConnectionHeader::Close,
                Connection::KeepAlive => {
                    ConnectionHeader::KeepAlive(request.location().core.keepalive_header_s())
                }
            };
            let places = Places::of(self.passed.as_deref(), &self.head, replaced);
            write_head(queue.front(), (&self.head, places), request, self.framing, connection);
        }
        debug_assert!(before <= queue.len(), "a head is added to what there is");
        self.head_bytes = (queue.len() - before) as u32;
    }
}
