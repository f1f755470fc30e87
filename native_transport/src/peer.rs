//! The other end of a connection, which its calls and streams carry into the inbox.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backlog::Backlog;
use crate::identity::Shown;
use crate::unauthenticated::UnauthenticatedConnection;

/// The peer of a call.
#[derive(Clone, Debug)]
pub struct Peer {
    pub host: Arc<str>,
    /// Number of the connection. Never used again.
    pub connection: u64,
    pub shown: Arc<Shown>,
    /// Its place among the unauthenticated connections; None if the server does not count those.
    pub unauthenticated: Option<Arc<UnauthenticatedConnection>>,
    /// True if Python was asked about a caller of the connection, and so needs a report of its end.
    pub is_told_of: Arc<AtomicBool>,
    pub backlog: Arc<Backlog>,
}

impl Peer {
    /// Mark the connection as authenticated. Idempotent.
    pub fn becomes_known(&self) {
        if let Some(unauthenticated) = &self.unauthenticated {
            unauthenticated.leave();
        }
    }
}
