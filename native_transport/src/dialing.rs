//! The I/O thread of a caller: one connection, made when the first stream needs it and again after it broke.

use std::collections::HashMap;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::uri::PathAndQuery;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, TimeoutExpired};

use crate::calls::{Calls, Given, Outgoing};
use crate::codec::Raw;
use crate::inbox::{Arrival, Inbox, Token};
use crate::service::in_words_of_grpc;
use crate::thread::{CONNECTION_WINDOW_BYTES, FRAME_BYTES_MAX, STREAM_WINDOW_BYTES, words_of};

/// Orders from Python to the thread.
pub enum Order {
    Open(Opening),
    Ask(Asking),
    Deliver(Vec<Given>),
}

/// A stream that is to be opened.
pub struct Opening {
    pub token: Token,
    pub method: PathAndQuery,
    pub outgoing: mpsc::UnboundedReceiver<Outgoing>,
    pub credit: Arc<Semaphore>,
}

/// A unary call that is to be made.
pub struct Asking {
    pub token: Token,
    pub method: PathAndQuery,
    pub body: Bytes,
    pub timeout: Duration,
}

/// State that every stream and call needs.
#[derive(Clone)]
pub struct Streams {
    pub calls: Arc<Calls>,
    pub inbox: Arc<Inbox>,
    pub message_bytes_max: usize,
}

/// Carry out orders until Python has closed the client. Then, or after a failure, report `Stopped` to Python.
pub fn run(endpoint: Endpoint, streams: &Streams, orders: mpsc::UnboundedReceiver<Order>) {
    let inbox = Arc::clone(&streams.inbox);
    let failure = match catch_unwind(AssertUnwindSafe(|| carry_out(endpoint, streams, orders))) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(panic) => Some(words_of(panic.as_ref())),
    };
    inbox.push(Arrival::Stopped { failure });
}

fn carry_out(endpoint: Endpoint, streams: &Streams, mut orders: mpsc::UnboundedReceiver<Order>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Remaining streams and the connection end when the runtime is dropped.
    runtime.block_on(async {
        let channel = endpoint
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .connect_lazy();
        let mut tasks: HashMap<Token, AbortHandle> = HashMap::new();
        while let Some(order) = orders.recv().await {
            match order {
                Order::Open(opening) => {
                    tasks.retain(|_, task| !task.is_finished());
                    let token = opening.token;
                    let task = tokio::spawn(converse(channel.clone(), streams.clone(), opening));
                    tasks.insert(token, task.abort_handle());
                }
                Order::Ask(asking) => {
                    tasks.retain(|_, task| !task.is_finished());
                    let token = asking.token;
                    let task = tokio::spawn(ask(channel.clone(), streams.clone(), asking));
                    tasks.insert(token, task.abort_handle());
                }
                Order::Deliver(batch) => {
                    for each in batch {
                        if let Given::End { token, .. } = &each
                            && let Some(task) = tasks.remove(token)
                        {
                            task.abort();
                        }
                        streams.calls.deliver(each, &streams.inbox);
                    }
                }
            }
        }
    });
    Ok(())
}

/// Run one stream from its opening to its end, and report the end to Python unless Python ended it.
async fn converse(channel: Channel, streams: Streams, opening: Opening) {
    let Opening { token, method, outgoing, credit } = opening;
    let mut ending = Ending { token, status: Status::internal("a defect of the native transport"), streams };
    let requests = Requests { token, outgoing, inbox: Arc::clone(&ending.streams.inbox) };
    ending.status = match exchange(channel, &ending.streams, method, requests, token, &credit).await {
        Ok(()) => Status::ok(""),
        Err(status) => status,
    };
}

async fn exchange(
    channel: Channel,
    streams: &Streams,
    method: PathAndQuery,
    requests: Requests,
    token: Token,
    credit: &Semaphore,
) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(streams.message_bytes_max);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut messages = grpc.streaming(Request::new(requests), method, Raw).await?.into_inner();
    while let Ok(permit) = credit.acquire().await {
        permit.forget();
        match messages.message().await.map_err(in_words_of_grpc)? {
            Some(body) => streams.inbox.push(Arrival::Message { token, body }),
            None => break,
        }
    }
    Ok(())
}

/// Make one unary call. Report its answer, or its end without one, to Python unless Python ended it.
async fn ask(channel: Channel, streams: Streams, asking: Asking) {
    let Asking { token, method, body, timeout: left } = asking;
    let mut ending = Ending { token, status: Status::internal("a defect of the native transport"), streams };
    match timeout(left, answer(channel, &ending.streams, method, body, left)).await {
        Ok(Ok(body)) => {
            if ending.streams.calls.forget(token) {
                ending.streams.inbox.push(Arrival::Answered { token, body });
            }
        }
        Ok(Err(status)) if !is_late(&status) => ending.status = in_words_of_grpc(status),
        _ => ending.status = Status::deadline_exceeded("no answer came in time"),
    }
}

/// Return true for a timeout of tonic's own timer, which has the status "cancelled".
fn is_late(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        if error.is::<TimeoutExpired>() {
            return true;
        }
        cause = error.source();
    }
    false
}

async fn answer(
    channel: Channel,
    streams: &Streams,
    method: PathAndQuery,
    body: Bytes,
    left: Duration,
) -> Result<Bytes, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(streams.message_bytes_max);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut request = Request::new(body);
    request.set_timeout(left);
    Ok(grpc.unary(request, method, Raw).await?.into_inner())
}

/// Guard that reports the end of a stream or call to Python, even if its task panics.
struct Ending {
    token: Token,
    status: Status,
    streams: Streams,
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.streams.calls.forget(self.token) {
            let status = std::mem::replace(&mut self.status, Status::ok(""));
            self.streams.inbox.push(Arrival::Ended { token: self.token, status });
        }
    }
}

/// Messages that Python sends on a stream.
struct Requests {
    token: Token,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    inbox: Arc<Inbox>,
}

impl Stream for Requests {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match ready!(self.outgoing.poll_recv(cx)) {
            Some(Outgoing::Message { body, wants_sent }) => {
                if wants_sent {
                    self.inbox.push(Arrival::Sent { token: self.token });
                }
                Poll::Ready(Some(body))
            }
            Some(Outgoing::End(_)) | None => Poll::Ready(None),
        }
    }
}
