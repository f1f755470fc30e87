//! The class that Python uses: it starts the I/O thread, takes arrivals, and gives replies.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use tokio::sync::{mpsc, oneshot};

use crate::calls::{Calls, Given};
use crate::connection::Connections;
use crate::gathering::{GATHERED_BYTES_MAX, Gathering};
use crate::inbox::{Inbox, InboxLimits};
use crate::service::{Rules, Service};
use crate::thread::{ConnectionOptions, Work, run};
use crate::tls::configuration;

const THREAD_NAME: &str = "grpc-io";

/// One gRPC server.
#[pyclass(frozen, module = "txn_native_transport")]
pub struct Server {
    service: Service,
    options: ConnectionOptions,
    connections: Arc<Connections>,
    given: mpsc::UnboundedSender<Vec<Given>>,
    state: Mutex<State>,
    process: u32,
}

enum State {
    New(mpsc::UnboundedReceiver<Vec<Given>>),
    Running(oneshot::Sender<Duration>),
    Ended,
}

#[pymethods]
impl Server {
    #[new]
    #[pyo3(signature = (*, streams, message_bytes_max, stream_credit, waiting_calls_max, waiting_bytes_max,
        keepalive_ms, keepalive_timeout_ms, connection_age_ms_max, connection_age_grace_ms, connections_max,
        streams_max, unauthenticated_max, open_methods=None))]
    #[expect(clippy::too_many_arguments, reason = "Python names each of them")]
    fn new(
        streams: Vec<String>,
        message_bytes_max: usize,
        stream_credit: usize,
        waiting_calls_max: usize,
        waiting_bytes_max: usize,
        keepalive_ms: u64,
        keepalive_timeout_ms: u64,
        connection_age_ms_max: u64,
        connection_age_grace_ms: u64,
        connections_max: usize,
        streams_max: u32,
        unauthenticated_max: usize,
        open_methods: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let limits = InboxLimits { calls_max: waiting_calls_max, bytes_max: waiting_bytes_max };
        let inbox = Arc::new(Inbox::new(limits)?);
        let (given, receiver) = mpsc::unbounded_channel();
        let connections = Connections::new(
            connections_max,
            unauthenticated_max,
            open_methods.is_some(),
            streams_max,
            Arc::clone(&inbox),
        );
        let connections = Arc::new(connections);
        Ok(Self {
            service: Service {
                rules: Arc::new(Rules { streams, message_bytes_max, open_methods, stream_credit }),
                calls: Arc::new(Calls::default()),
                inbox,
                connections: Arc::clone(&connections),
                gathering: Arc::new(Gathering::new(GATHERED_BYTES_MAX)),
            },
            connections,
            options: ConnectionOptions {
                keepalive: Duration::from_millis(keepalive_ms),
                keepalive_timeout: Duration::from_millis(keepalive_timeout_ms),
                age_max: Duration::from_millis(connection_age_ms_max),
                age_grace: Duration::from_millis(connection_age_grace_ms),
                streams_max,
            },
            given,
            state: Mutex::new(State::New(receiver)),
            process: std::process::id(),
        })
    }

    /// Return the descriptor that is readable while `take` has something.
    fn fileno(&self) -> RawFd {
        self.service.inbox.descriptor()
    }

    /// Serve the listening sockets of these descriptors, which belong to the server from now on.
    fn start(&self, sockets: Vec<RawFd>) -> PyResult<()> {
        self.check_process()?;
        let (sender, stop) = oneshot::channel();
        let State::New(given) = self.replace_state(State::Running(sender)) else {
            self.replace_state(State::Ended);
            return Err(PyRuntimeError::new_err("a server starts once"));
        };
        let work = Work {
            sockets: sockets.into_iter().map(owned).collect(),
            options: self.options,
            connections: Arc::clone(&self.connections),
            service: self.service.clone(),
            given,
            stop,
        };
        std::thread::Builder::new().name(THREAD_NAME.into()).spawn(move || run(work))?;
        Ok(())
    }

    /// Return up to `count` of the waiting arrivals, as tuples.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.check_process()?;
        self.service.inbox.take(count).into_iter().map(|arrival| arrival.into_tuple(py)).collect()
    }

    /// Hand over all of these, in this order.
    fn give(&self, given: &Bound<'_, PyList>) -> PyResult<()> {
        self.check_process()?;
        let batch: PyResult<Vec<Given>> = given.iter().map(|each| Given::from_tuple(each.cast()?)).collect();
        // Fails only after the end of the I/O thread, when no caller is left.
        let _ = self.given.send(batch?);
        Ok(())
    }

    /// Serve connections made from now on with TLS, with these PEM files. Callable from any thread, at any time.
    fn set_credentials(
        &self,
        certificate: &[u8],
        key: &[u8],
        client_ca: Option<&[u8]>,
        is_required: bool,
    ) -> PyResult<()> {
        let config = configuration(certificate, key, client_ca, is_required)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.connections.credentials.replace(config);
        Ok(())
    }

    /// Return the number of open connections, of TLS handshakes begun, and of incidents of each kind of abuse.
    fn connections(&self) -> (usize, u64, Vec<(&'static str, u64)>) {
        self.connections.numbers()
    }

    /// Take no further calls, and end when those under way have ended or the grace is over. STOPPED follows.
    fn stop(&self, grace_ms: u64) -> PyResult<()> {
        self.check_process()?;
        if let State::Running(stop) = self.replace_state(State::Ended) {
            let _ = stop.send(Duration::from_millis(grace_ms));
        }
        Ok(())
    }
}

impl Server {
    /// Refuse to work in a forked child: it has no I/O thread, and shares its sockets and descriptors with the parent.
    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("the native transport does not work in a forked process: start it there anew"))
    }

    fn replace_state(&self, state: State) -> State {
        // The lock cannot be poisoned: no code under it panics.
        std::mem::replace(&mut *self.state.lock().unwrap_or_else(PoisonError::into_inner), state)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let state = self.replace_state(State::Ended);
        if std::process::id() != self.process {
            // Not dropped in a forked child: dropping the channels would wake the parent.
            std::mem::forget(state);
        }
    }
}

/// Take ownership of the socket behind a descriptor that Python detached.
#[expect(unsafe_code, reason = "a number cannot be turned into an owned descriptor in any other way")]
fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: the caller hands over an open descriptor that no other owner closes (`socket.detach`).
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}
