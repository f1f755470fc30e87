//! Notifications that sent bytes need no memory any more.
//!
//! A message becomes bytes, the bytes wait in HTTP/2 until the peer's windows are open, and then they are written. So a
//! notification is tied to the bytes themselves: it is sent when HTTP/2 drops them, written or not.

use std::mem::take;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;

use crate::inbox::{Arrival, Inbox};

/// Sends its arrival to Python when it is dropped.
pub struct Told {
    arrival: Option<Arrival>,
    inbox: Arc<Inbox>,
}

impl Told {
    pub fn new(arrival: Arrival, inbox: &Arc<Inbox>) -> Self {
        Self { arrival: Some(arrival), inbox: Arc::clone(inbox) }
    }
}

impl std::fmt::Debug for Told {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Told").field(&self.arrival).finish()
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        if let Some(arrival) = self.arrival.take() {
            self.inbox.push(arrival);
        }
    }
}

/// Notifications of messages that were turned into bytes and have not left yet. Shared by the producer of the messages
/// and the sender of the bytes.
#[derive(Clone, Default)]
pub struct Leaving(Arc<Mutex<Vec<Told>>>);

impl Leaving {
    pub fn add(&self, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }

    fn take(&self) -> Vec<Told> {
        take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ties the notifications of the messages in a piece of the body to that piece.
pub struct Watched {
    body: Body,
    leaving: Leaving,
}

impl Watched {
    pub fn new(body: Body, leaving: Leaving) -> Self {
        Self { body, leaving }
    }
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let leaving = &self.leaving;
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(|bytes| tie(bytes, leaving.take())))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

struct Tied {
    bytes: Bytes,
    #[expect(dead_code, reason = "they tell when they are dropped")]
    told: Vec<Told>,
}

impl AsRef<[u8]> for Tied {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Return the same bytes, which send these notifications when they are dropped.
pub fn tie(bytes: Bytes, told: Vec<Told>) -> Bytes {
    if told.is_empty() { bytes } else { Bytes::from_owner(Tied { bytes, told }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::InboxLimits;

    #[test]
    fn it_is_told_when_the_last_part_of_the_bytes_is_gone() {
        let inbox = Arc::new(Inbox::new(InboxLimits { calls_max: 9, bytes_max: 9 }).unwrap());
        let leaving = Leaving::default();
        leaving.add(Told::new(Arrival::Taken { token: 7 }, &inbox));
        let mut bytes = tie(Bytes::from_static(b"abc"), leaving.take());
        let first = bytes.split_to(1);
        drop(bytes);
        assert!(inbox.take(9).is_empty());
        assert_eq!(first, "a");
        drop(first);
        assert!(matches!(inbox.take(9)[..], [Arrival::Taken { token: 7 }]));
        assert!(leaving.take().is_empty());
    }
}
