//! The queue to Python: calls, messages of streams, and changes of both.
//!
//! Unary calls wait in a queue for each connection, and the queues have their turns: a connection with many calls only
//! delays itself. All other arrivals come in their order, and have at least half of every turn if they need it.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use tonic::Status;

use crate::backlog::Backlog;
use crate::held::HeldBytes;
use crate::identity::Authorization;
use crate::peer::Peer;
use crate::wake::Bell;

pub const CALL: u8 = 0;
pub const STREAM: u8 = 1;
pub const MESSAGE: u8 = 2;
pub const HALF_CLOSED: u8 = 3;
pub const SENT: u8 = 4;
pub const GONE: u8 = 5;
pub const STOPPED: u8 = 6;
pub const ENDED: u8 = 7;
pub const TAKEN: u8 = 8;
pub const ABUSE: u8 = 9;
pub const CALLER: u8 = 10;
pub const ANSWERED: u8 = 11;
pub const LEFT: u8 = 12;

/// Number of one call or stream until it has ended. Never used again.
pub type Token = u64;

/// One arrival for Python.
#[derive(Debug)]
pub enum Arrival {
    /// A unary call, with its request.
    Call { token: Token, method: Box<str>, body: Bytes, peer: Peer, ms_left: Option<u64>, shown: Option<Authorization> },
    /// A stream began.
    Stream { token: Token, method: Box<str>, peer: Peer, shown: Option<Authorization> },
    /// A caller with credentials that are new on its connection. Its call is not read until Python accepts it.
    Caller { token: Token, peer: Peer, shown: Authorization },
    /// A connection of which Python got a `Caller` has ended. No call of it follows.
    Left { connection: u64 },
    /// A message of a stream.
    Message { token: Token, body: Bytes },
    /// The caller sends no more messages.
    HalfClosed { token: Token },
    /// A message that was sent with `wants_sent` has left the queue. On a server: its bytes are written.
    Sent { token: Token },
    /// The bytes of a reply that was given with `wants_taken` are written, or will never be. Follows the end of its
    /// call.
    Taken { token: Token },
    /// A request or connection was refused or cut, so that others are served: the kind of abuse, and the host. Sent
    /// seldom.
    Abuse { name: &'static str, host: Box<str> },
    /// The caller does not wait any more. Nothing follows.
    Gone { token: Token },
    /// A unary call of this side was answered. Nothing follows.
    Answered { token: Token, body: Bytes },
    /// A stream or call of this side has ended with this status. Nothing follows.
    Ended { token: Token, status: Status },
    /// The I/O thread has ended; after a failure, with the reason. Nothing follows.
    Stopped { failure: Option<String> },
}

impl Arrival {
    /// Return the number of bytes that a new call holds; None for other arrivals.
    fn of_new_call(&self) -> Option<usize> {
        match self {
            Self::Call { body, .. } => Some(body.len()),
            Self::Stream { .. } | Self::Caller { .. } => Some(0),
            _ => None,
        }
    }

    /// Return the connection in whose queue it waits; None for arrivals without a queue.
    fn line(&self) -> Option<u64> {
        match self {
            Self::Call { peer, .. } | Self::Caller { peer, .. } => Some(peer.connection),
            _ => None,
        }
    }

    /// Return the backlog that counts it while it waits in its queue.
    fn backlog(&self) -> Option<&Backlog> {
        match self {
            Self::Call { peer, .. } | Self::Caller { peer, .. } => Some(&peer.backlog),
            _ => None,
        }
    }

    fn token(&self) -> Option<Token> {
        match self {
            Self::Call { token, .. } | Self::Caller { token, .. } | Self::Gone { token } => Some(*token),
            _ => None,
        }
    }

    /// Convert it to the tuple that `txn_native_transport.pyi` describes. Copies the body, except that of an
    /// `Answered`.
    pub fn into_tuple(self, py: Python<'_>) -> PyResult<Bound<'_, PyTuple>> {
        match self {
            Self::Call { token, method, body, peer, ms_left, shown } => {
                let (body, shown) = (PyBytes::new(py, &body), identity(py, &peer, shown.as_ref())?);
                (CALL, token, &*method, body, &*peer.host, peer.connection, ms_left, shown).into_pyobject(py)
            }
            Self::Stream { token, method, peer, shown } => {
                let shown = identity(py, &peer, shown.as_ref())?;
                (STREAM, token, &*method, &*peer.host, peer.connection, shown).into_pyobject(py)
            }
            Self::Caller { token, peer, shown } => {
                (CALLER, token, &*peer.host, peer.connection, peer.shown.tuple(py, &shown)?).into_pyobject(py)
            }
            Self::Left { connection } => (LEFT, connection).into_pyobject(py),
            Self::Message { token, body } => (MESSAGE, token, PyBytes::new(py, &body)).into_pyobject(py),
            Self::Answered { token, body } => (ANSWERED, token, HeldBytes::new(body)).into_pyobject(py),
            Self::HalfClosed { token } => (HALF_CLOSED, token).into_pyobject(py),
            Self::Sent { token } => (SENT, token).into_pyobject(py),
            Self::Taken { token } => (TAKEN, token).into_pyobject(py),
            Self::Abuse { name, host } => (ABUSE, name, &*host).into_pyobject(py),
            Self::Gone { token } => (GONE, token).into_pyobject(py),
            Self::Ended { token, status } => {
                (ENDED, token, i32::from(status.code()), status.message()).into_pyobject(py)
            }
            Self::Stopped { failure } => (STOPPED, failure).into_pyobject(py),
        }
    }
}

/// Return the caller's credentials; None where callers need not authenticate.
fn identity<'py>(py: Python<'py>, peer: &Peer, shown: Option<&Authorization>) -> PyResult<Option<Bound<'py, PyTuple>>> {
    shown.map(|authorization| peer.shown.tuple(py, authorization)).transpose()
}

/// Limits of the number of new calls that wait, and of the bytes of their requests. One call may wait whatever its
/// size.
#[derive(Clone, Copy, Debug)]
pub struct InboxLimits {
    pub calls_max: usize,
    pub bytes_max: usize,
}

/// Error: as many calls wait as may.
#[derive(Debug)]
pub struct Full;

/// The queue from the I/O thread to Python. The descriptor is readable while something waits.
pub struct Inbox {
    limits: InboxLimits,
    bell: Bell,
    waiting: Mutex<Waiting>,
}

/// Maximum number of calls of one connection in one `take`. Python answers these before it takes more, and calls of
/// others come in between.
const LINE_CALLS_PER_TAKE: usize = 16;

#[derive(Default)]
struct Waiting {
    /// Arrivals that belong to no connection's queue.
    arrivals: VecDeque<Arrival>,
    lines: HashMap<u64, VecDeque<Arrival>>,
    /// Connections with a queue, the next one first.
    turns: VecDeque<u64>,
    /// Tokens of queued calls whose callers still wait. Calls of callers that left are skipped.
    wanted: HashSet<Token>,
    calls: usize,
    bytes: usize,
    /// True if the waker was used and Python has not looked since.
    is_rung: bool,
}

impl Waiting {
    fn add(&mut self, arrival: Arrival) {
        match (arrival.line(), arrival.token()) {
            (Some(connection), Some(token)) => {
                self.wanted.insert(token);
                arrival.backlog().inspect(|backlog| backlog.enter());
                let line = self.lines.entry(connection).or_default();
                if line.is_empty() {
                    self.turns.push_back(connection);
                }
                line.push_back(arrival);
            }
            // Python does not know of that call, and needs no report of its end.
            (None, Some(token)) if self.wanted.remove(&token) => {}
            _ => self.arrivals.push_back(arrival),
        }
    }

    fn is_empty(&self) -> bool {
        self.arrivals.is_empty() && self.turns.is_empty()
    }

    fn take(&mut self, count: usize) -> Vec<Arrival> {
        let others = self.arrivals.len().min(count.saturating_sub(self.wanted.len()).max(count.div_ceil(2)));
        let mut taken: Vec<Arrival> = self.arrivals.drain(..others).collect();
        for bytes in taken.iter().filter_map(Arrival::of_new_call) {
            self.calls -= 1;
            self.bytes -= bytes;
        }
        self.take_calls(count - others, &mut taken);
        taken
    }

    /// Take one call of each queue in turn, and at most `LINE_CALLS_PER_TAKE` of any.
    fn take_calls(&mut self, count: usize, taken: &mut Vec<Arrival>) {
        let (mut left, mut rested) = (count, VecDeque::new());
        let mut of_line: HashMap<u64, usize> = HashMap::new();
        while left > 0
            && let Some(connection) = self.turns.pop_front()
        {
            match self.next_of(connection) {
                None => continue,
                Some(call) => taken.push(call),
            }
            left -= 1;
            if !self.lines.contains_key(&connection) {
                continue;
            }
            let number = of_line.entry(connection).or_default();
            *number += 1;
            if *number < LINE_CALLS_PER_TAKE { &mut self.turns } else { &mut rested }.push_back(connection);
        }
        self.turns.append(&mut rested);
    }

    /// Return the next call of a queue whose caller still waits. An empty queue is removed.
    fn next_of(&mut self, connection: u64) -> Option<Arrival> {
        let line = self.lines.get_mut(&connection)?;
        let mut found = None;
        while found.is_none()
            && let Some(call) = line.pop_front()
        {
            self.calls -= 1;
            self.bytes -= call.of_new_call().unwrap_or(0);
            call.backlog().inspect(|backlog| backlog.leave());
            if call.token().is_some_and(|token| self.wanted.remove(&token)) {
                found = Some(call);
            }
        }
        if line.is_empty() {
            self.lines.remove(&connection);
        }
        found
    }
}

impl Inbox {
    pub fn new(limits: InboxLimits) -> io::Result<Self> {
        Ok(Self { limits, bell: Bell::new()?, waiting: Mutex::default() })
    }

    pub fn descriptor(&self) -> RawFd {
        self.bell.descriptor()
    }

    /// Add a new call, unless too many wait.
    pub fn offer(&self, arrival: Arrival) -> Result<(), Full> {
        let bytes = arrival.of_new_call().unwrap_or(0);
        let mut waiting = self.lock();
        let is_below = waiting.calls < self.limits.calls_max && waiting.bytes + bytes <= self.limits.bytes_max;
        if !is_below && waiting.calls > 0 {
            return Err(Full);
        }
        waiting.calls += 1;
        waiting.bytes += bytes;
        self.put(waiting, arrival);
        Ok(())
    }

    /// Add an arrival of a call that Python knows. The number of such calls bounds these arrivals.
    pub fn push(&self, arrival: Arrival) {
        self.put(self.lock(), arrival);
    }

    /// Take up to `count` arrivals. The descriptor stays readable if more are left.
    pub fn take(&self, count: usize) -> Vec<Arrival> {
        // Before looking at the queue, so that a later arrival wakes Python again.
        self.bell.clear();
        let mut waiting = self.lock();
        let taken = waiting.take(count);
        waiting.is_rung = !waiting.is_empty();
        if waiting.is_rung {
            self.bell.ring();
        }
        taken
    }

    fn put(&self, mut waiting: MutexGuard<'_, Waiting>, arrival: Arrival) {
        waiting.add(arrival);
        let must_ring = !waiting.is_rung;
        waiting.is_rung = true;
        drop(waiting);
        if must_ring {
            self.bell.ring();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // The lock cannot be poisoned: no code under it panics.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn call(token: Token, bytes: usize) -> Arrival {
        call_by(1, token, bytes)
    }

    fn call_by(connection: u64, token: Token, bytes: usize) -> Arrival {
        let body = Bytes::from(vec![0; bytes]);
        Arrival::Call {
            token,
            method: "/a/B".into(),
            body,
            peer: Peer {
                host: "here".into(),
                connection,
                shown: Arc::default(),
                unauthenticated: None,
                is_told_of: Arc::default(),
                backlog: Arc::default(),
            },
            ms_left: None,
            shown: None,
        }
    }

    fn inbox(calls_max: usize, bytes_max: usize) -> Inbox {
        Inbox::new(InboxLimits { calls_max, bytes_max }).unwrap()
    }

    #[test]
    fn calls_beyond_the_limit_are_refused_until_some_were_taken() {
        let inbox = inbox(2, 1000);
        inbox.offer(call(1, 1)).unwrap();
        inbox.offer(call(2, 1)).unwrap();
        inbox.offer(call(3, 1)).unwrap_err();
        assert_eq!(inbox.take(1).len(), 1);
        inbox.push(Arrival::Gone { token: 1 });
        inbox.offer(call(3, 1)).unwrap();
        assert_eq!(inbox.take(10).len(), 3);
    }

    fn tokens(taken: &[Arrival]) -> Vec<Token> {
        taken.iter().filter_map(Arrival::token).collect()
    }

    #[test]
    fn a_connection_that_asks_much_waits_behind_itself() {
        let inbox = inbox(100, 1000);
        for token in 0..10 {
            inbox.offer(call_by(1, token, 1)).unwrap();
        }
        inbox.offer(call_by(2, 20, 1)).unwrap();
        inbox.offer(call_by(2, 21, 1)).unwrap();
        inbox.offer(call_by(3, 30, 1)).unwrap();
        assert_eq!(tokens(&inbox.take(6)), [0, 20, 30, 1, 21, 2]);
        assert_eq!(tokens(&inbox.take(99)), [3, 4, 5, 6, 7, 8, 9]);
        assert!(inbox.lock().lines.is_empty());
    }

    #[test]
    fn no_more_of_one_connection_than_it_may_are_taken_at_once() {
        let inbox = inbox(1000, 1000);
        for token in 0..LINE_CALLS_PER_TAKE as Token + 5 {
            inbox.offer(call_by(1, token, 1)).unwrap();
        }
        assert_eq!(inbox.take(256).len(), LINE_CALLS_PER_TAKE);
        assert!(inbox.lock().is_rung);
        assert_eq!(inbox.take(256).len(), 5);
        assert!(!inbox.lock().is_rung);
    }

    #[test]
    fn a_call_whose_caller_left_before_it_was_taken_is_passed_over() {
        let inbox = inbox(2, 1000);
        inbox.offer(call(1, 1)).unwrap();
        inbox.offer(call(2, 1)).unwrap();
        inbox.push(Arrival::Gone { token: 1 });
        inbox.push(Arrival::Gone { token: 2 });
        assert!(inbox.take(9).is_empty());
        let waiting = inbox.lock();
        assert_eq!((waiting.calls, waiting.bytes, waiting.is_rung), (0, 0, false));
        assert!(waiting.is_empty() && waiting.lines.is_empty() && waiting.wanted.is_empty());
    }

    #[test]
    fn what_has_no_line_has_half_of_every_turn() {
        let inbox = inbox(100, 1000);
        for token in 0..20 {
            inbox.offer(call(token, 1)).unwrap();
            inbox.push(Arrival::HalfClosed { token });
        }
        let is_call = |arrival: &&Arrival| matches!(arrival, Arrival::Call { .. });
        assert_eq!(inbox.take(8).iter().filter(is_call).count(), 4);
        assert_eq!(inbox.take(99).iter().filter(is_call).count(), 16);
    }

    #[test]
    fn bytes_are_limited_too_but_one_call_may_always_wait() {
        let inbox = inbox(10, 100);
        inbox.offer(call(1, 500)).unwrap();
        inbox.offer(call(2, 1)).unwrap_err();
        inbox.take(1);
        inbox.offer(call(3, 60)).unwrap();
        inbox.offer(call(4, 40)).unwrap();
        inbox.offer(call(5, 1)).unwrap_err();
    }

    #[test]
    fn what_is_left_keeps_the_descriptor_readable() {
        let inbox = inbox(10, 100);
        inbox.push(Arrival::Gone { token: 1 });
        inbox.push(Arrival::Gone { token: 2 });
        inbox.take(1);
        assert!(inbox.lock().is_rung);
        inbox.take(1);
        assert!(!inbox.lock().is_rung);
    }
}
