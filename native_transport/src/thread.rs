//! The thread that does all I/O: one runtime without further workers, from the start to the end of its last connection.

use std::any::Any;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use crate::calls::{Calls, Given};
use crate::connection::{Connections, incoming};
use crate::inbox::{Arrival, Inbox};
use crate::service::Service;

/// Limit of streams that a caller reset before they were processed, beyond which h2 ends its connection. It is more
/// than [`frames`] allows of all resets, so that [`frames`] ends a flood first, and counts it.
///
/// [`frames`]: crate::frames
const EARLY_RESETS_MAX: usize = 4_000;
/// Limit of streams that this side reset because of a caller's errors, beyond which its connection is ended. It is more
/// than [`frames`] allows of refused calls in a minute, each of which may be two such streams. So [`frames`] ends a
/// flood first, and counts it.
const ERRORS_MAX: usize = 20_000;
/// Bytes of a connection, and of one call, that may arrive before they are read.
pub const CONNECTION_WINDOW_BYTES: u32 = 4 * 1024 * 1024;
pub const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;
/// Largest incoming frame: large requests come in fewer pieces than with HTTP/2's 16 KiB.
pub const FRAME_BYTES_MAX: u32 = 256 * 1024;

/// Keepalive and limits of connections.
#[derive(Clone, Copy)]
pub struct ConnectionOptions {
    pub keepalive: Duration,
    pub keepalive_timeout: Duration,
    pub age_max: Duration,
    /// Time that a connection may go on with its calls once it was asked to end.
    pub age_grace: Duration,
    /// Maximum number of unfinished calls and streams of one connection.
    pub streams_max: u32,
}

/// Everything that the thread begins with.
pub struct Work {
    pub sockets: Vec<OwnedFd>,
    pub options: ConnectionOptions,
    pub connections: Arc<Connections>,
    pub service: Service,
    pub given: mpsc::UnboundedReceiver<Vec<Given>>,
    pub stop: oneshot::Receiver<Duration>,
}

/// Run the server. Report its end to Python, even if a panic causes it.
pub fn run(work: Work) {
    let inbox = Arc::clone(&work.service.inbox);
    let failure = match catch_unwind(AssertUnwindSafe(|| serve_until_stopped(work))) {
        Ok(Ok(())) => None,
        Ok(Err(failure)) => Some(failure.to_string()),
        Err(panic) => Some(words_of(panic.as_ref())),
    };
    inbox.push(Arrival::Stopped { failure });
}

fn serve_until_stopped(work: Work) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Remaining connections end here too, when the runtime is dropped.
    runtime.block_on(async {
        let (calls, inbox) = (Arc::clone(&work.service.calls), Arc::clone(&work.service.inbox));
        tokio::select! {
            ended = serve(work.sockets, work.options, &work.connections, work.service, work.stop) => ended,
            // Here and not in a task of its own, so that its panic would end the thread, and be reported.
            () = deliver(work.given, &calls, &inbox) => Ok(()),
        }
    })
}

/// Deliver Python's items to the calls that wait, until Python has dropped the server.
async fn deliver(mut given: mpsc::UnboundedReceiver<Vec<Given>>, calls: &Calls, inbox: &Arc<Inbox>) {
    while let Some(batch) = given.recv().await {
        for each in batch {
            calls.deliver(each, inbox);
        }
    }
}

async fn serve(
    sockets: Vec<OwnedFd>,
    options: ConnectionOptions,
    connections: &Arc<Connections>,
    service: Service,
    stop: oneshot::Receiver<Duration>,
) -> io::Result<()> {
    let listeners: io::Result<Vec<TcpListener>> =
        sockets.into_iter().map(|socket| TcpListener::from_std(socket.into())).collect();
    let connections = incoming(listeners?, connections, options.age_max + options.age_grace);
    let (drain, drained) = oneshot::channel::<()>();
    let serving = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(options.keepalive))
        .http2_keepalive_timeout(Some(options.keepalive_timeout))
        // Without tonic's own grace: with one, tonic cuts connections without asking them to end. `Connection` cuts.
        .max_connection_age(options.age_max)
        .max_concurrent_streams(options.streams_max)
        .http2_max_pending_accept_reset_streams(Some(EARLY_RESETS_MAX))
        .http2_max_local_error_reset_streams(Some(ERRORS_MAX))
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .max_frame_size(FRAME_BYTES_MAX)
        .serve_with_incoming_shutdown(service, connections, async {
            // An error means that the sender is gone, which counts as a request to stop.
            let _ = drained.await;
        });
    let grace = async {
        let grace = stop.await.unwrap_or_default();
        let _ = drain.send(());
        sleep(grace).await;
    };
    tokio::select! {
        ended = serving => ended.map_err(io::Error::other),
        () = grace => Ok(()),
    }
}

pub fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
    format!("a defect of the native transport: {}", words.unwrap_or("a panic without words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_put_into_words() {
        for panic in [catch_unwind(|| panic!("no {}", "way")), catch_unwind(|| panic!("no way"))] {
            assert_eq!(words_of(panic.unwrap_err().as_ref()), "a defect of the native transport: no way");
        }
    }
}
