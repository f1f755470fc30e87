//! Partly received requests, and the bytes that they hold. HTTP/2 opens its windows again as their bytes are gathered,
//! so nothing else bounds them. If all together hold too much, the newest one of the connection that holds most is
//! given up.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::sync::Notify;
use tonic::Status;
use tonic::body::Body;

/// Bytes that all of them may hold. One request may arrive whatever its size.
pub const GATHERED_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The partly received requests of one server.
#[derive(Debug)]
pub struct Gathering {
    bytes_max: usize,
    next: AtomicU64,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: usize,
    /// By connection, and by the ascending number of the request.
    connections: HashMap<u64, HashMap<u64, Part>>,
}

#[derive(Debug)]
struct Part {
    bytes: usize,
    given_up: Arc<Notify>,
}

impl Gathering {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, next: AtomicU64::default(), held: Mutex::default() }
    }

    /// Return the state of a new request of this connection.
    pub fn begin(self: &Arc<Self>, connection: u64) -> Arc<Gathered> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        Arc::new(Gathered { among: Arc::clone(self), connection, number, given_up: Arc::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // The lock cannot be poisoned: no code under it panics.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn add(&mut self, request: &Gathered, bytes: usize) {
        let part = self.connections.entry(request.connection).or_default().entry(request.number);
        part.or_insert_with(|| Part { bytes: 0, given_up: Arc::clone(&request.given_up) }).bytes += bytes;
        self.bytes += bytes;
    }

    fn remove(&mut self, connection: u64, number: u64) -> Option<Part> {
        let parts = self.connections.get_mut(&connection)?;
        let part = parts.remove(&number)?;
        if parts.is_empty() {
            self.connections.remove(&connection);
        }
        self.bytes -= part.bytes;
        Some(part)
    }

    /// Give up the newest request of the connection that holds most. False if there is only one request.
    fn give_up_one(&mut self) -> bool {
        let bytes = |parts: &HashMap<u64, Part>| parts.values().map(|part| part.bytes).sum::<usize>();
        let Some((connection, parts)) = self.connections.iter().max_by_key(|(_, parts)| bytes(parts)) else {
            return false;
        };
        if self.connections.len() == 1 && parts.len() == 1 {
            return false;
        }
        let (connection, newest) = (*connection, parts.keys().max().copied());
        let given_up = newest.and_then(|number| self.remove(connection, number));
        given_up.inspect(|part| part.given_up.notify_one()).is_some()
    }
}

/// One request, as far as it has arrived. Dropping it releases its bytes.
#[derive(Debug)]
pub struct Gathered {
    among: Arc<Gathering>,
    connection: u64,
    number: u64,
    given_up: Arc<Notify>,
}

impl Gathered {
    /// Count bytes of it that arrived before its end.
    pub fn add(&self, bytes: usize) {
        let mut held = self.among.lock();
        held.add(self, bytes);
        while held.bytes > self.among.bytes_max && held.give_up_one() {}
    }

    /// Mark the request as complete; later bytes belong to another message.
    pub fn complete(&self) {
        self.among.lock().remove(self.connection, self.number);
    }

    /// Wait until the request is given up for the others.
    pub async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        self.complete();
    }
}

/// The body of a request, which counts its bytes. A part that comes with the end is complete and not counted.
pub struct Counted {
    body: Body,
    gathered: Arc<Gathered>,
}

impl Counted {
    pub fn new(body: Body, gathered: Arc<Gathered>) -> Self {
        Self { body, gathered }
    }
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
            && !self.body.is_end_stream()
        {
            self.gathered.add(bytes.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_given_up(request: &Gathered) -> bool {
        request.given_up().now_or_never().is_some()
    }

    #[test]
    fn the_newest_request_of_the_connection_that_holds_most_makes_room() {
        let all = Arc::new(Gathering::new(100));
        let [first, second, other] = [1, 1, 2].map(|connection| all.begin(connection));
        first.add(40);
        other.add(35);
        second.add(20);
        assert!(![&first, &second, &other].into_iter().any(|each| is_given_up(each)));
        other.add(10);
        assert!(is_given_up(&second), "of sixty, and the other connection holds 45");
        assert!(!is_given_up(&first) && !is_given_up(&other));
        first.add(15);
        assert!(!is_given_up(&first), "there is room again");
    }

    #[test]
    fn what_is_complete_or_dropped_holds_nothing() {
        let all = Arc::new(Gathering::new(100));
        let [first, second] = [1, 2].map(|connection| all.begin(connection));
        first.add(90);
        first.complete();
        second.add(90);
        drop(second);
        first.add(90);
        assert!(!is_given_up(&first));
        drop(first);
        let held = all.lock();
        assert_eq!((held.bytes, held.connections.len()), (0, 0));
    }

    #[test]
    fn a_request_that_is_alone_may_come_whatever_its_size() {
        let all = Arc::new(Gathering::new(100));
        let [first, second] = [1, 2].map(|connection| all.begin(connection));
        first.add(1_000);
        assert!(!is_given_up(&first));
        second.add(1);
        assert!(is_given_up(&first) && !is_given_up(&second));
    }
}
