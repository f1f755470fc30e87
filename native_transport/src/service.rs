//! One gRPC service for all method names: a call becomes an arrival for Python, and Python's reply its answer.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, StatusCode, header};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout_at};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::server::Grpc;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::calls::{Answer, Calls, Outgoing, Presence};
use crate::codec::Raw;
use crate::connection::{Abuse, Connections};
use crate::deadline::time_left;
use crate::gathering::{Counted, Gathered, Gathering};
use crate::identity::Authorization;
use crate::inbox::{Arrival, Inbox, Token};
use crate::peer::Peer;
use crate::pieces::COPIED_BYTES_MAX;
use crate::taken::{Leaving, Told, Watched, tie};
use crate::whole::Whole;

type Eventually<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The methods that are streams, the methods that need no authentication, and the limits of messages.
pub struct Rules {
    /// The methods that are streams in both directions; all others are unary.
    pub streams: Vec<String>,
    pub message_bytes_max: usize,
    /// The methods that need no authentication; None if no method does.
    pub open_methods: Option<Vec<String>>,
    /// Messages of a stream that are read before Python grants more.
    pub stream_credit: usize,
}

impl Rules {
    fn is_stream(&self, method: &str) -> bool {
        self.streams.iter().any(|stream| stream == method)
    }

    fn is_asking(&self, method: &str) -> bool {
        self.open_methods.as_ref().is_some_and(|open_methods| !open_methods.iter().any(|each| each == method))
    }
}

/// State that every call needs.
#[derive(Clone)]
pub struct Service {
    pub rules: Arc<Rules>,
    pub calls: Arc<Calls>,
    pub inbox: Arc<Inbox>,
    pub connections: Arc<Connections>,
    pub gathering: Arc<Gathering>,
}

impl tower_service::Service<http::Request<Body>> for Service {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Eventually<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().expect("every connection has a peer");
        peer.backlog.serve();
        let gathered = self.gathering.begin(peer.connection);
        request.extensions_mut().insert(Arc::clone(&gathered));
        let request = request.map(|body| Body::new(Counted::new(body, gathered)));
        if !is_grpc(request.headers()) {
            return Box::pin(async { Ok(not_grpc()) });
        }
        let ms_left = time_left(request.headers());
        let method = Method {
            name: request.uri().path().into(),
            // Computed at once, because tonic's own timer would answer with "cancelled".
            deadline: ms_left.map(|left| (left, Instant::now() + left)),
            shown: self.rules.is_asking(request.uri().path()).then(|| Authorization::of(request.headers())),
            service: self.clone(),
        };
        // Compressed requests are accepted, as by every gRPC server. Answers are not compressed.
        let mut grpc = Grpc::new(Raw)
            .max_decoding_message_size(self.rules.message_bytes_max)
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Deflate);
        Box::pin(async move {
            let mut response = grpc.streaming(method, request).await;
            if let Some(whole) = response.extensions_mut().remove::<Whole>() {
                return Ok(response.map(|_| Body::new(whole)));
            }
            Ok(match response.extensions_mut().remove::<Leaving>() {
                Some(leaving) => response.map(|body| Body::new(Watched::new(body, leaving))),
                None => response,
            })
        })
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(http::HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Return the response that gRPC over HTTP/2 demands for requests of another protocol.
fn not_grpc() -> http::Response<Body> {
    let mut response = http::Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// One call of a method.
struct Method {
    name: Box<str>,
    deadline: Option<(Duration, Instant)>,
    shown: Option<Authorization>,
    service: Service,
}

impl tower_service::Service<Request<Streaming<Bytes>>> for Method {
    type Response = Response<Replies>;
    type Error = Status;
    type Future = Eventually<Result<Response<Replies>, Status>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let name = std::mem::take(&mut self.name);
        let service = self.service.clone();
        let peer = request.extensions().get::<Peer>().cloned().expect("every connection has a peer");
        let gathered = request.extensions().get::<Arc<Gathered>>().cloned().expect("every call gathers its request");
        let messages = Messages { messages: request.into_inner(), gathered };
        let caller = Caller { peer, shown: self.shown.take() };
        if service.rules.is_stream(&name) {
            return Box::pin(async move {
                service.admit(&caller).await?;
                service.stream(name, caller, messages)
            });
        }
        let Some((left, deadline)) = self.deadline else {
            return Box::pin(service.unary(name, caller, None, messages));
        };
        let ms_left = u64::try_from(left.as_millis()).ok();
        Box::pin(async move {
            let answer = timeout_at(deadline, service.unary(name, caller, ms_left, messages)).await;
            answer.unwrap_or_else(|_| Err(Status::deadline_exceeded("the time that the caller granted is over")))
        })
    }
}

/// The caller of one call.
struct Caller {
    peer: Peer,
    /// Credentials of the call; None if its method needs no authentication.
    shown: Option<Authorization>,
}

impl Service {
    /// Have Python check the caller's credentials before anything of the call is read, unless it accepted the same on
    /// this connection before.
    async fn admit(&self, caller: &Caller) -> Result<(), Status> {
        let Caller { peer, shown: Some(shown) } = caller else { return Ok(()) };
        if peer.shown.is_accepted(shown) {
            return Ok(());
        }
        let (token, answer) = self.calls.open_call();
        let presence = self.presence(token);
        self.offer(&presence, Arrival::Caller { token, peer: peer.clone(), shown: shown.clone() })?;
        peer.is_told_of.store(true, Ordering::Relaxed);
        let answer = answer.await.map_err(|_| stopped())?;
        answer.inspect_err(|_| peer.backlog.refuse())?;
        peer.shown.accept(shown.clone());
        peer.becomes_known();
        Ok(())
    }

    async fn unary(
        self,
        method: Box<str>,
        caller: Caller,
        ms_left: Option<u64>,
        mut messages: Messages,
    ) -> Result<Response<Replies>, Status> {
        self.admit(&caller).await?;
        let body = messages.next(&self.connections, &caller.peer).await?;
        let body = body.ok_or_else(|| Status::internal("the call ended without a request"))?;
        let (token, answer) = self.calls.open_call();
        let presence = self.presence(token);
        let Caller { peer, shown } = caller;
        self.offer(&presence, Arrival::Call { token, method, body, peer, ms_left, shown })?;
        let Answer { mut body, told } = answer.await.map_err(|_| stopped())??;
        self.check_size(body.len())?;
        if body.len() < COPIED_BYTES_MAX {
            let response = Response::new(Replies::One(Some(body.joined())));
            let Some(told) = told else { return Ok(response) };
            let leaving = Leaving::default();
            leaving.add(told);
            return Ok(watched(response, leaving));
        }
        let last = body.last_mut();
        *last = tie(std::mem::take(last), told.into_iter().collect());
        let whole = Whole::new(body);
        let whole = whole.ok_or_else(|| Status::resource_exhausted("no message takes so many bytes"))?;
        let mut response = Response::new(Replies::One(None));
        response.extensions_mut().insert(whole);
        Ok(response)
    }

    fn stream(self, method: Box<str>, caller: Caller, messages: Messages) -> Result<Response<Replies>, Status> {
        let Caller { peer, shown } = caller;
        let credit = Arc::new(Semaphore::new(self.rules.stream_credit));
        let (token, outgoing) = self.calls.open_stream(Arc::clone(&credit));
        let presence = self.presence(token);
        self.offer(&presence, Arrival::Stream { token, method, peer: peer.clone(), shown })?;
        let (failed, failure) = mpsc::channel(1);
        let reading = tokio::spawn(self.clone().read(messages, token, credit, peer, failed)).abort_handle();
        let leaving = Leaving::default();
        let reading = StopReading(reading);
        let many = Many { outgoing, failure, reading, presence, service: self, leaving: leaving.clone() };
        Ok(watched(Response::new(Replies::Many(Box::new(many))), leaving))
    }

    /// Pass the messages of a stream to Python, as long as it grants credit, and their end.
    async fn read(
        self,
        mut messages: Messages,
        token: Token,
        credit: Arc<Semaphore>,
        peer: Peer,
        failed: mpsc::Sender<Status>,
    ) {
        while let Ok(permit) = credit.acquire().await {
            permit.forget();
            match messages.next(&self.connections, &peer).await {
                Ok(Some(body)) => self.inbox.push(Arrival::Message { token, body }),
                Ok(None) => return self.inbox.push(Arrival::HalfClosed { token }),
                Err(status) => {
                    let _ = failed.send(status).await;
                    return;
                }
            }
        }
    }

    fn presence(&self, token: Token) -> Presence {
        Presence::new(token, Arc::clone(&self.calls), Arc::clone(&self.inbox))
    }

    fn offer(&self, presence: &Presence, arrival: Arrival) -> Result<(), Status> {
        self.inbox.offer(arrival).map_err(|_| {
            presence.never_mind();
            Status::resource_exhausted("more calls wait than this server takes, and this one did not begin; try again")
        })
    }

    fn check_size(&self, bytes: usize) -> Result<(), Status> {
        let limit = self.rules.message_bytes_max;
        if bytes <= limit {
            return Ok(());
        }
        let words = format!("the answer takes {bytes} bytes and at most {limit} are allowed");
        Err(Status::resource_exhausted(words))
    }
}

/// Messages that the caller of one call sends.
struct Messages {
    messages: Streaming<Bytes>,
    gathered: Arc<Gathered>,
}

impl Messages {
    /// Return the next message; None after the last. A message that is too large or was given up is counted.
    async fn next(&mut self, connections: &Connections, peer: &Peer) -> Result<Option<Bytes>, Status> {
        let message = tokio::select! {
            message = self.messages.message() => message,
            () = self.gathered.given_up() => {
                connections.met(Abuse::Requests, &peer.host);
                return Err(Status::resource_exhausted(GIVEN_UP));
            }
        };
        self.gathered.complete();
        message.map_err(|status| {
            let status = in_words_of_grpc(status);
            if status.code() == Code::ResourceExhausted {
                connections.met(Abuse::Messages, &peer.host);
            }
            status
        })
    }
}

const GIVEN_UP: &str =
    "requests that have come in part hold more than this server gives them, and this one did not begin; try again";

/// Attach the notifications that are due once the bytes of the response are gone.
fn watched(mut response: Response<Replies>, leaving: Leaving) -> Response<Replies> {
    response.extensions_mut().insert(leaving);
    response
}

/// Replace tonic's code for a message that is too large, "out of range", by "resource exhausted" as elsewhere in gRPC.
pub fn in_words_of_grpc(status: Status) -> Status {
    if status.code() == Code::OutOfRange { Status::resource_exhausted(status.message()) } else { status }
}

fn stopped() -> Status {
    Status::unavailable("the server stopped before it answered")
}

struct StopReading(AbortHandle);

impl Drop for StopReading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Messages to the caller: one answer, or those of a stream.
pub enum Replies {
    One(Option<Bytes>),
    Many(Box<Many>),
}

/// Messages to the caller of a stream. Dropped when the stream has ended, from either side.
pub struct Many {
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    failure: mpsc::Receiver<Status>,
    #[expect(dead_code, reason = "stops reading when it is dropped")]
    reading: StopReading,
    presence: Presence,
    service: Service,
    leaving: Leaving,
}

impl Many {
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Poll::Ready(Some(status)) = self.failure.poll_recv(cx) {
            return Poll::Ready(Some(Err(status)));
        }
        match ready!(self.outgoing.poll_recv(cx)) {
            Some(Outgoing::Message { body, wants_sent }) => {
                if wants_sent {
                    let sent = Arrival::Sent { token: self.presence.token() };
                    self.leaving.add(Told::new(sent, &self.service.inbox));
                }
                Poll::Ready(Some(self.service.check_size(body.len()).map(|()| body)))
            }
            Some(Outgoing::End(status)) if status.code() == Code::Ok => Poll::Ready(None),
            Some(Outgoing::End(status)) => Poll::Ready(Some(Err(status))),
            None => Poll::Ready(Some(Err(stopped()))),
        }
    }
}

impl Stream for Replies {
    type Item = Result<Bytes, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut *self {
            Self::One(body) => Poll::Ready(body.take().map(Ok)),
            Self::Many(many) => many.poll_message(cx),
        }
    }
}
