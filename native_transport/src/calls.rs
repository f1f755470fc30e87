//! Calls and streams that have not ended, and the delivery of Python's replies to them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tonic::{Code, Status};

use crate::inbox::{Arrival, Inbox, Token};
use crate::pieces::{Pieces, bytes_of};
use crate::taken::Told;

pub const REPLY: u8 = 0;
pub const END: u8 = 1;
pub const SEND: u8 = 2;
pub const CREDIT: u8 = 3;

/// One item that Python gives.
#[derive(Debug)]
pub enum Given {
    /// The reply of a unary call, which ends it.
    Reply { token: Token, body: Pieces, wants_taken: bool },
    /// The end of a call without a reply, or of a stream.
    End { token: Token, status: Status },
    /// A message of a stream.
    Send { token: Token, body: Bytes, wants_sent: bool },
    /// Number of further messages of a stream that may be read.
    Credit { token: Token, messages: usize },
}

impl Given {
    /// Convert the tuple that `txn_native_transport.pyi` describes.
    pub fn from_tuple(tuple: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let kind: u8 = tuple.get_item(0)?.extract()?;
        let token: Token = tuple.get_item(1)?.extract()?;
        let body = || -> PyResult<Bytes> { Ok(bytes_of(tuple.get_item(2)?.cast_into::<PyBytes>()?)) };
        match kind {
            REPLY => {
                let body = Pieces::from_python(&tuple.get_item(2)?)?;
                Ok(Self::Reply { token, body, wants_taken: tuple.get_item(3)?.extract()? })
            }
            SEND => Ok(Self::Send { token, body: body()?, wants_sent: tuple.get_item(3)?.extract()? }),
            CREDIT => Ok(Self::Credit { token, messages: tuple.get_item(2)?.extract()? }),
            END => {
                let code: i32 = tuple.get_item(2)?.extract()?;
                let message: String = tuple.get_item(3)?.extract()?;
                Ok(Self::End { token, status: Status::new(Code::from_i32(code), message) })
            }
            _ => Err(PyValueError::new_err(format!("{kind} is nothing that can be given"))),
        }
    }
}

/// The reply of a unary call. Python gets a notification once it is dropped, sent or not, if it asked for one.
#[derive(Debug)]
pub struct Answer {
    pub body: Pieces,
    pub told: Option<Told>,
}

/// One item that a stream sends to its caller.
#[derive(Debug)]
pub enum Outgoing {
    Message {
        body: Bytes,
        wants_sent: bool,
    },
    /// The status is OK if the stream ends well.
    End(Status),
}

/// Channel to a call that waits.
enum Waiter {
    Call(oneshot::Sender<Result<Answer, Status>>),
    Stream { outgoing: mpsc::UnboundedSender<Outgoing>, credit: Arc<Semaphore> },
}

/// All calls and streams that have not ended. Used by the I/O thread alone, except that a `Client` also opens calls and
/// streams from Python's thread.
#[derive(Default)]
pub struct Calls {
    next: AtomicU64,
    waiting: Mutex<HashMap<Token, Waiter>>,
}

impl Calls {
    /// Return the token of a new unary call, and the receiver of its reply.
    pub fn open_call(&self) -> (Token, oneshot::Receiver<Result<Answer, Status>>) {
        let (sender, receiver) = oneshot::channel();
        (self.insert(Waiter::Call(sender)), receiver)
    }

    /// Return the token of a new stream, and the receiver of its messages. Only Python bounds that queue, by `Sent`.
    pub fn open_stream(&self, credit: Arc<Semaphore>) -> (Token, mpsc::UnboundedReceiver<Outgoing>) {
        let (outgoing, receiver) = mpsc::unbounded_channel();
        (self.insert(Waiter::Stream { outgoing, credit }), receiver)
    }

    /// Return the token of a call that this side makes. The task that makes it reports its end to Python, unless Python
    /// ended it.
    pub fn make_call(&self) -> Token {
        self.open_call().0
    }

    fn insert(&self, waiter: Waiter) -> Token {
        let token = self.next.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(token, waiter);
        token
    }

    /// Deliver an item that Python gave. It is dropped if the caller is gone.
    pub fn deliver(&self, given: Given, inbox: &Arc<Inbox>) {
        let mut waiting = self.lock();
        match given {
            Given::Reply { token, body, wants_taken } => {
                // Created in any case: a reply to a caller that is gone counts as taken too.
                let told = wants_taken.then(|| Told::new(Arrival::Taken { token }, inbox));
                if let Some(Waiter::Call(sender)) = waiting.remove(&token) {
                    let _ = sender.send(Ok(Answer { body, told }));
                }
            }
            Given::End { token, status } => match waiting.remove(&token) {
                Some(Waiter::Call(sender)) => drop(sender.send(Err(status))),
                Some(Waiter::Stream { outgoing, .. }) => drop(outgoing.send(Outgoing::End(status))),
                None => {}
            },
            Given::Send { token, body, wants_sent } => {
                if let Some(Waiter::Stream { outgoing, .. }) = waiting.get(&token) {
                    let _ = outgoing.send(Outgoing::Message { body, wants_sent });
                }
            }
            Given::Credit { token, messages } => {
                if let Some(Waiter::Stream { credit, .. }) = waiting.get(&token) {
                    credit.add_permits(messages.min(Semaphore::MAX_PERMITS / 2));
                }
            }
        }
    }

    /// End the call; true if it had not ended before.
    pub fn forget(&self, token: Token) -> bool {
        self.lock().remove(&token).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Token, Waiter>> {
        // The lock cannot be poisoned: no code under it panics.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard held by the task that waits for a call or stream: if dropped before the end, it reports `Gone` to Python.
pub struct Presence {
    token: Token,
    calls: Arc<Calls>,
    inbox: Arc<Inbox>,
}

impl Presence {
    pub fn new(token: Token, calls: Arc<Calls>, inbox: Arc<Inbox>) -> Self {
        Self { token, calls, inbox }
    }

    pub fn token(&self) -> Token {
        self.token
    }

    /// End the call without a report, because Python does not know of it.
    pub fn never_mind(&self) {
        self.calls.forget(self.token);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if self.calls.forget(self.token) {
            self.inbox.push(Arrival::Gone { token: self.token });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::InboxLimits;

    fn presence(calls: &Arc<Calls>, inbox: &Arc<Inbox>, token: Token) -> Presence {
        Presence::new(token, Arc::clone(calls), Arc::clone(inbox))
    }

    #[test]
    fn a_caller_who_goes_early_is_reported_and_one_who_was_answered_is_not() {
        let calls = Arc::new(Calls::default());
        let inbox = Arc::new(Inbox::new(InboxLimits { calls_max: 9, bytes_max: 9 }).unwrap());
        let (impatient, _receiver) = calls.open_call();
        let (patient, mut answer) = calls.open_call();
        drop(presence(&calls, &inbox, impatient));
        let waiting = presence(&calls, &inbox, patient);
        calls
            .deliver(Given::Reply { token: patient, body: Bytes::from_static(b"a").into(), wants_taken: true }, &inbox);
        drop(waiting);
        let answer = answer.try_recv().unwrap().unwrap();
        assert_eq!(answer.body.len(), 1);
        assert!(matches!(inbox.take(9)[..], [Arrival::Gone { token }] if token == impatient));
        drop(answer);
        assert!(matches!(inbox.take(9)[..], [Arrival::Taken { token }] if token == patient));
    }

    #[test]
    fn what_comes_for_nobody_is_dropped() {
        let calls = Calls::default();
        let inbox = Arc::new(Inbox::new(InboxLimits { calls_max: 9, bytes_max: 9 }).unwrap());
        let (token, receiver) = calls.open_call();
        drop(receiver);
        calls.deliver(Given::Reply { token, body: Pieces::default(), wants_taken: true }, &inbox);
        calls.deliver(Given::End { token, status: Status::internal("again") }, &inbox);
        calls.deliver(Given::Send { token: 99, body: Bytes::new(), wants_sent: true }, &inbox);
        assert!(!calls.forget(token));
        assert!(matches!(inbox.take(9)[..], [Arrival::Taken { token: given }] if given == token));
    }

    #[test]
    fn credit_lets_a_stream_read_on() {
        let calls = Calls::default();
        let credit = Arc::new(Semaphore::new(0));
        let inbox = Arc::new(Inbox::new(InboxLimits { calls_max: 9, bytes_max: 9 }).unwrap());
        let (token, mut outgoing) = calls.open_stream(Arc::clone(&credit));
        calls.deliver(Given::Credit { token, messages: 3 }, &inbox);
        assert_eq!(credit.available_permits(), 3);
        calls.deliver(Given::End { token, status: Status::ok("") }, &inbox);
        assert!(matches!(outgoing.try_recv(), Ok(Outgoing::End(status)) if status.code() == Code::Ok));
    }
}
