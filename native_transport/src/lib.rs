//! The compiled gRPC transport of the transaction coordinator, for servers and for the SDK: tonic in one thread that
//! never waits for Python.
//!
//! Two queues connect this I/O thread with the thread of Python's event loop. On a server the I/O thread puts requests
//! of callers into the [`inbox`] and wakes the event loop through one file descriptor. Python takes everything that
//! waits in one call. It gives all its replies back in one call too, and the I/O thread hands each to the call that
//! waits for it ([`calls`]). The I/O thread never takes the interpreter's lock, so neither side holds up the other. A
//! client ([`client`]) uses the same two queues for its own calls and their answers.
//!
//! HTTP/2, flow control and gRPC's framing are tonic's; bodies are bytes here, and names of methods are text.
//!
//! The module also has `examine_batch` ([`batch`]), which the log calls for every incoming batch, because Python is
//! slower at it. So it has the conversion of batches for readers of another encoding ([`convert`]). Neither keeps state,
//! nor decides anything.

mod backlog;
mod batch;
mod calls;
mod client;
mod codec;
mod connection;
mod convert;
mod deadline;
mod dialing;
mod frames;
mod gathering;
mod held;
mod identity;
mod inbox;
mod kafka;
mod other_protocol;
mod peer;
mod pieces;
mod records;
mod server;
mod service;
mod taken;
mod thread;
mod tls;
mod unauthenticated;
mod wake;
mod whole;

use pyo3::prelude::*;

/// Changes when Python must call this module differently; the adapter in Python refuses a version that it does not
/// know.
const INTERFACE: u32 = 16;

/// The module as Python sees it; `txn_native_transport.pyi` documents each name.
#[pymodule]
fn txn_native_transport(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("INTERFACE", INTERFACE)?;
    module.add("CALL", inbox::CALL)?;
    module.add("STREAM", inbox::STREAM)?;
    module.add("MESSAGE", inbox::MESSAGE)?;
    module.add("HALF_CLOSED", inbox::HALF_CLOSED)?;
    module.add("SENT", inbox::SENT)?;
    module.add("GONE", inbox::GONE)?;
    module.add("STOPPED", inbox::STOPPED)?;
    module.add("ENDED", inbox::ENDED)?;
    module.add("TAKEN", inbox::TAKEN)?;
    module.add("ANSWERED", inbox::ANSWERED)?;
    module.add("ABUSE", inbox::ABUSE)?;
    module.add("CALLER", inbox::CALLER)?;
    module.add("LEFT", inbox::LEFT)?;
    module.add("REPLY", calls::REPLY)?;
    module.add("END", calls::END)?;
    module.add("SEND", calls::SEND)?;
    module.add("CREDIT", calls::CREDIT)?;
    module.add_function(wrap_pyfunction!(batch::examine_batch, module)?)?;
    module.add_function(wrap_pyfunction!(convert::kafka_of_records, module)?)?;
    module.add_function(wrap_pyfunction!(convert::kafka_of_arrow, module)?)?;
    module.add_function(wrap_pyfunction!(convert::records_of_kafka, module)?)?;
    module.add_class::<held::HeldBytes>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<server::Server>()
}
