//! The open requests of one connection, from which its phase follows, and the way of a request to the router.
//!
//! An HTTP/1 connection has one request at a time, an HTTP/2 connection has many.

use crate::auth::Peer;
use crate::connections::{ConnectionState, Phase};
use crate::error::ApiError;
use crate::extract::{BodyTimeout, discard};
use crate::headers;
use crate::routes::with_allowed_methods;
use crate::tls::Secured;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tower::Service;

/// Bytes of a response that are passed to an HTTP/2 connection at once.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// The requests of one connection.
pub struct OpenRequests {
    place: Arc<ConnectionState>,
    counts: watch::Sender<RequestCounts>,
    /// Responses whose next part the client has not made room for, by request number.
    unread: Mutex<BTreeMap<u64, UnreadResponse>>,
}

/// Ends the task of one HTTP/2 request, and with it the request.
pub type CutSignal = Arc<Notify>;

tokio::task_local! {
    /// The signal of the task that runs a request.
    pub static CUT_SIGNAL: CutSignal;
}

#[derive(Clone)]
struct UnreadResponse {
    since: Instant,
    cut: Option<CutSignal>,
}

#[derive(Debug, Clone, Copy, Default)]
struct RequestCounts {
    /// All requests so far.
    begun: u64,
    /// Requests whose body has not arrived completely.
    receiving: usize,
    /// Requests that the server processes or answers.
    working: usize,
}

impl RequestCounts {
    fn phase(self) -> Phase {
        match (self.working, self.receiving) {
            (0, 0) => Phase::Waiting,
            (0, _) => Phase::Receiving,
            _ => Phase::Working,
        }
    }
}

impl OpenRequests {
    pub fn new(place: Arc<ConnectionState>) -> Arc<Self> {
        Arc::new(OpenRequests { place, counts: watch::Sender::default(), unread: Mutex::default() })
    }

    /// Counts a new request, unless the connection has lost its slot.
    fn begin(self: &Arc<Self>, is_whole: bool) -> Option<Arc<OpenRequest>> {
        let mut number = 0;
        let is_admitted = self.change(|counts| {
            counts.begun += 1;
            number = counts.begun;
            *(if is_whole { &mut counts.working } else { &mut counts.receiving }) += 1;
        });
        let cut = CUT_SIGNAL.try_with(Clone::clone).ok();
        let request =
            OpenRequest { requests: self.clone(), number, cut, is_receiving: AtomicBool::new(!is_whole) };
        is_admitted.then(|| Arc::new(request))
    }

    /// Changes the counts, and with them the phase of the connection. False if it has lost its slot.
    fn change(&self, change: impl FnOnce(&mut RequestCounts)) -> bool {
        let mut is_there = true;
        self.counts.send_modify(|counts| {
            change(counts);
            is_there = self.place.turn_to(counts.phase());
        });
        is_there
    }

    /// Waits until there was no open request for this long.
    pub async fn idle_for(&self, limit: Duration) {
        let mut counts = self.counts.subscribe();
        loop {
            let Ok(idle) = counts.wait_for(|counts| counts.phase() == Phase::Waiting).await.map(|idle| *idle)
            else {
                return;
            };
            let another = counts.wait_for(|counts| counts.begun != idle.begun);
            if tokio::time::timeout(limit, another).await.is_err() {
                return;
            }
        }
    }

    /// Ends each request of which the client has not read a further part of the response for this long. The others of the
    /// connection continue.
    pub async fn cut_stalled(&self, limit: Duration) -> Infallible {
        loop {
            let now = Instant::now();
            let mut oldest = now;
            self.unread().retain(|_, unread| {
                let is_stalled = unread.since + limit <= now;
                match &unread.cut {
                    Some(cut) if is_stalled => cut.notify_one(),
                    _ => oldest = oldest.min(unread.since),
                }
                !is_stalled
            });
            tokio::time::sleep_until(oldest + limit).await;
        }
    }

    fn unread(&self) -> MutexGuard<'_, BTreeMap<u64, UnreadResponse>> {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request, until its response has been sent or its client has cancelled it.
struct OpenRequest {
    requests: Arc<OpenRequests>,
    number: u64,
    cut: Option<CutSignal>,
    is_receiving: AtomicBool,
}

impl OpenRequest {
    /// The client must make room for the next part of the response from now on.
    fn is_unread(&self) {
        let unread = UnreadResponse { since: Instant::now(), cut: self.cut.clone() };
        self.requests.unread().insert(self.number, unread);
    }

    /// The body has arrived, or nothing waits for it any more.
    fn is_received(&self) {
        if self.is_receiving.swap(false, Ordering::AcqRel) {
            self.requests.change(|counts| {
                counts.receiving -= 1;
                counts.working += 1;
            });
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.requests.unread().remove(&self.number);
        let is_receiving = *self.is_receiving.get_mut();
        self.requests.change(|counts| {
            *(if is_receiving { &mut counts.receiving } else { &mut counts.working }) -= 1;
        });
    }
}

/// Passes the requests of one connection to the router.
#[derive(Clone)]
pub struct Admission {
    pub requests: Arc<OpenRequests>,
    pub peer: Peer,
    pub router: Router,
    pub uri_bytes_max: usize,
    pub body_timeout: BodyTimeout,
    pub secured: Option<Secured>,
}

impl Admission {
    pub async fn answer(self, request: Request<Incoming>) -> Result<Response, Infallible> {
        let security = headers::SecurityHeaders::of(&request, self.secured.as_ref());
        let mut response = self.routed(request).await?;
        security.add_to(response.headers_mut());
        Ok(response)
    }

    async fn routed(mut self, request: Request<Incoming>) -> Result<Response, Infallible> {
        use hyper::body::Body as _;
        let version = request.version();
        let Some(open) = self.requests.begin(request.body().is_end_stream()) else {
            return Ok(closing(ApiError::Overloaded, version));
        };
        let uri = request.uri();
        if uri.path_and_query().map_or(0, |target| target.as_str().len()) > self.uri_bytes_max {
            return Ok(closing(ApiError::UriTooLong { limit_bytes: self.uri_bytes_max }, version));
        }
        let (received, unneeded) = (open.clone(), Unneeded::default());
        let rest = unneeded.clone();
        let mut request = request.map(|body| Body::new(Received { body: Some(body), open: received, rest }));
        request.extensions_mut().insert(self.body_timeout);
        request.extensions_mut().insert(self.peer);
        if let Some(secured) = self.secured {
            request.extensions_mut().insert(secured);
        }
        let response = with_allowed_methods(self.router.call(request).await?);
        if version == Version::HTTP_2 {
            unneeded.discard().await;
        }
        open.is_received();
        // HTTP/1 needs no note of what is unread: its client either reads or blocks the connection, which
        // has a timeout of its own.
        let is_noted = version == Version::HTTP_2;
        if is_noted {
            open.is_unread();
        }
        Ok(response.map(|body| Body::new(SentBody { body, open, is_noted, rest: Bytes::new() })))
    }
}

fn closing(error: ApiError, version: Version) -> Response {
    let mut response = error.into_response();
    if version < Version::HTTP_2 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The part of a request body that its handler has left.
#[derive(Clone, Default)]
struct Unneeded(Arc<Mutex<Option<Incoming>>>);

impl Unneeded {
    fn place(&self) -> MutexGuard<'_, Option<Incoming>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Otherwise HTTP/2 resets the request after the response, as it may, and some clients then lose the
    /// response.
    async fn discard(&self) {
        let body = self.place().take();
        if let Some(body) = body {
            discard(&mut Body::new(body).into_data_stream()).await;
        }
    }
}

/// A request body that signals when it has arrived. What its handler does not read goes to `rest`.
struct Received {
    body: Option<Incoming>,
    open: Arc<OpenRequest>,
    rest: Unneeded,
}

impl Drop for Received {
    fn drop(&mut self) {
        use hyper::body::Body as _;
        *self.rest.place() = self.body.take().filter(|body| !body.is_end_stream());
    }
}

impl hyper::body::Body for Received {
    type Data = <Incoming as hyper::body::Body>::Data;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(&mut *body).poll_frame(context));
        if frame.is_none() || body.is_end_stream() {
            self.open.is_received();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(hyper::body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(hyper::body::Body::size_hint).unwrap_or_default()
    }
}

/// A response body. The request is open until it is dropped.
struct SentBody {
    body: Body,
    open: Arc<OpenRequest>,
    /// Whether to note which parts the client has not read: HTTP/2 asks for a part only when the client has
    /// made room for it.
    is_noted: bool,
    /// What is left of a large part. HTTP/2 would take it at once and hold it for a client that does not read.
    rest: Bytes,
}

impl SentBody {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        use hyper::body::Body as _;
        if self.rest.is_empty() {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(trailers))) => return Poll::Ready(Some(Ok(trailers))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES_MAX));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl hyper::body::Body for SentBody {
    type Data = <Body as hyper::body::Body>::Data;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.is_noted {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        let frame = self.poll_piece(context);
        match frame {
            Poll::Ready(Some(_)) => self.open.is_unread(),
            _ => drop(self.open.requests.unread().remove(&self.open.number)),
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(rest + body.lower());
        if let Some(upper) = body.upper() {
            hint.set_upper(rest + upper);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::{ConnectionSlot, Connections};
    use std::net::{IpAddr, Ipv4Addr};

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const LIMIT: Duration = Duration::from_secs(30);

    /// A server with room for one connection, and that connection.
    fn connection() -> (Arc<Connections>, ConnectionSlot, Arc<OpenRequests>) {
        let connections = Arc::new(Connections::new(1));
        let slot = connections.enter(HERE).unwrap();
        let requests = OpenRequests::new(slot.place.clone());
        (connections, slot, requests)
    }

    #[test]
    fn a_connection_with_many_requests_is_kept_while_one_of_them_is_processed() {
        let (connections, _slot, requests) = connection();
        let [whole, partial] = [true, false].map(|is_whole| requests.begin(is_whole).unwrap());
        assert!(connections.enter(HERE).is_none(), "one is processed");
        drop(whole);
        partial.is_received();
        assert!(connections.enter(HERE).is_none(), "the other one has arrived");
        drop(partial);
        assert!(connections.enter(HERE).is_some(), "none is open");
        assert!(requests.begin(true).is_none(), "the connection has lost its slot");
    }

    #[test]
    fn a_connection_whose_bodies_have_not_arrived_can_be_displaced() {
        let (connections, _slot, requests) = connection();
        let _partial = requests.begin(false).unwrap();
        assert!(connections.enter(HERE).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_only_without_any_request() {
        let (_connections, _slot, requests) = connection();
        let start = Instant::now();
        let others = async {
            for _ in 0..3 {
                // The pace of requests is the input of this test, not a wait for something.
                tokio::time::sleep(LIMIT - Duration::from_secs(1)).await;
                drop(requests.begin(true));
            }
        };
        tokio::join!(requests.idle_for(LIMIT), others);
        assert_eq!(start.elapsed(), 3 * (LIMIT - Duration::from_secs(1)) + LIMIT);
    }

    #[tokio::test]
    async fn a_large_response_is_sent_in_pieces_and_open_until_the_last_one() {
        let (_connections, _slot, requests) = connection();
        let open = requests.begin(true).unwrap();
        let text = "x".repeat(3 * PIECE_BYTES_MAX + 1);
        let mut sent = SentBody { body: Body::from(text.clone()), open, is_noted: true, rest: Bytes::new() };
        let mut received = Vec::new();
        while !hyper::body::Body::is_end_stream(&sent) {
            assert_eq!(
                hyper::body::Body::size_hint(&sent).exact(),
                Some((text.len() - received.len()) as u64)
            );
            let piece =
                std::future::poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut sent), context));
            let piece = piece.await.unwrap().unwrap().into_data().unwrap();
            assert!(!piece.is_empty() && piece.len() <= PIECE_BYTES_MAX);
            assert_eq!(requests.unread().len(), 1, "the client may not have read it");
            received.extend_from_slice(&piece);
        }
        assert_eq!(received, text.as_bytes());
        drop(sent);
        assert!(requests.unread().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_its_client_does_not_read_is_cut_and_no_other() {
        let (_connections, _slot, requests) = connection();
        let begin = || async { requests.begin(true).unwrap() };
        let [stalled, read] = [(); 2].map(|()| CutSignal::default());
        let request = CUT_SIGNAL.scope(stalled.clone(), begin()).await;
        let other = CUT_SIGNAL.scope(read.clone(), begin()).await;
        let watched = async |limit| tokio::time::timeout(limit, requests.cut_stalled(LIMIT)).await.is_err();
        let is_cut =
            async |signal: &CutSignal| tokio::time::timeout(Duration::ZERO, signal.notified()).await.is_ok();
        assert!(watched(10 * LIMIT).await && !is_cut(&stalled).await, "nothing was sent");
        request.is_unread();
        assert!(watched(LIMIT / 2).await);
        other.is_unread();
        assert!(watched(LIMIT * 3 / 4).await);
        assert!(is_cut(&stalled).await && !is_cut(&read).await);
        drop((request, other));
        assert!(requests.unread().is_empty());
    }
}
