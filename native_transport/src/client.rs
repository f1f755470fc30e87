//! The class for callers: it starts an I/O thread with one connection, opens streams, makes calls, and takes arrivals.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tokio::sync::{Semaphore, mpsc};
use tonic::transport::Endpoint;

use crate::calls::{Calls, Given};
use crate::dialing::{Asking, Opening, Order, Streams, run};
use crate::inbox::{Inbox, InboxLimits, Token};
use crate::pieces::bytes_of;

const THREAD_NAME: &str = "grpc-client-io";

/// Streams and calls to one server.
#[pyclass(frozen, module = "txn_native_transport")]
pub struct Client {
    calls: Arc<Calls>,
    inbox: Arc<Inbox>,
    credit: usize,
    /// Channel to the I/O thread; None once closed, and then the thread ends.
    orders: Mutex<Option<mpsc::UnboundedSender<Order>>>,
    process: u32,
}

#[pymethods]
impl Client {
    #[new]
    #[pyo3(signature = (address, *, message_bytes_max, stream_credit, keepalive_ms, keepalive_timeout_ms,
        connect_timeout_ms))]
    fn new(
        address: &str,
        message_bytes_max: usize,
        stream_credit: usize,
        keepalive_ms: u64,
        keepalive_timeout_ms: u64,
        connect_timeout_ms: u64,
    ) -> PyResult<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))
            .map_err(|error| PyValueError::new_err(format!("{address:?} is no address: {error}")))?
            .connect_timeout(Duration::from_millis(connect_timeout_ms))
            .http2_keep_alive_interval(Duration::from_millis(keepalive_ms))
            .keep_alive_timeout(Duration::from_millis(keepalive_timeout_ms));
        let calls = Arc::new(Calls::default());
        let inbox = Arc::new(Inbox::new(InboxLimits { calls_max: 0, bytes_max: 0 })?);
        let (sender, orders) = mpsc::unbounded_channel();
        let streams = Streams { calls: Arc::clone(&calls), inbox: Arc::clone(&inbox), message_bytes_max };
        std::thread::Builder::new().name(THREAD_NAME.into()).spawn(move || run(endpoint, &streams, orders))?;
        let process = std::process::id();
        Ok(Self { calls, inbox, credit: stream_credit, orders: Mutex::new(Some(sender)), process })
    }

    /// Return the descriptor that is readable while `take` has something.
    fn fileno(&self) -> RawFd {
        self.inbox.descriptor()
    }

    /// Open a stream of this method, connecting if need be, and return its token.
    fn open(&self, method: &str) -> PyResult<Token> {
        self.check_process()?;
        let method = path_of(method)?;
        let credit = Arc::new(Semaphore::new(self.credit));
        let (token, outgoing) = self.calls.open_stream(Arc::clone(&credit));
        self.order(Order::Open(Opening { token, method, outgoing, credit }));
        Ok(token)
    }

    /// Make a unary call of this method, connecting if need be, and return its token.
    fn call(&self, method: &str, body: Bound<'_, PyBytes>, timeout_ms: u64) -> PyResult<Token> {
        self.check_process()?;
        let (method, body, timeout) = (path_of(method)?, bytes_of(body), Duration::from_millis(timeout_ms));
        let token = self.calls.make_call();
        self.order(Order::Ask(Asking { token, method, body, timeout }));
        Ok(token)
    }

    /// Return up to `count` of the waiting arrivals, as tuples.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        self.check_process()?;
        self.inbox.take(count).into_iter().map(|arrival| arrival.into_tuple(py)).collect()
    }

    /// Hand over all of these, in this order.
    fn give(&self, given: &Bound<'_, PyList>) -> PyResult<()> {
        self.check_process()?;
        let batch: PyResult<Vec<Given>> = given.iter().map(|each| Given::from_tuple(each.cast()?)).collect();
        self.order(Order::Deliver(batch?));
        Ok(())
    }

    /// Cut everything and end the thread. Arrivals after that have no meaning.
    fn close(&self) -> PyResult<()> {
        self.check_process()?;
        drop(self.orders().take());
        Ok(())
    }
}

fn path_of(method: &str) -> PyResult<PathAndQuery> {
    method.parse().map_err(|error| PyValueError::new_err(format!("{method:?} is no method: {error}")))
}

impl Client {
    fn order(&self, order: Order) {
        // Fails only after the end of the thread, which Python caused or has a report of (`Stopped`).
        if let Some(orders) = &*self.orders() {
            let _ = orders.send(order);
        }
    }

    fn orders(&self) -> std::sync::MutexGuard<'_, Option<mpsc::UnboundedSender<Order>>> {
        // The lock cannot be poisoned: no code under it panics.
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuse to work in a forked child: it has no I/O thread, and shares its sockets and descriptors with the parent.
    fn check_process(&self) -> PyResult<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("the native transport does not work in a forked process: open another one there"))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // Not dropped in a forked child: dropping the channel would wake the parent.
            std::mem::forget(self.orders().take());
        }
    }
}
