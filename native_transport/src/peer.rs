//! The other end of a connection, as its calls and streams carry it into the inbox.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::backlog::Backlog;
use crate::identity::Shown;
use crate::strangers::Stranger;

/// Who calls.
#[derive(Clone, Debug)]
pub struct Peer {
    pub host: Arc<str>,
    /// Names the connection. Never used again.
    pub connection: u64,
    pub shown: Arc<Shown>,
    /// Its place among those of whom nobody is known; None where there are no strangers.
    pub stranger: Option<Arc<Stranger>>,
    /// Whether Python was asked about a caller of the connection, and so wants to hear when it ends.
    pub is_told_of: Arc<AtomicBool>,
    pub backlog: Arc<Backlog>,
}

impl Peer {
    /// Its connection is no stranger's any more. Idempotent.
    pub fn becomes_known(&self) {
        if let Some(stranger) = &self.stranger {
            stranger.leave();
        }
    }
}
