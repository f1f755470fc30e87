//! Encoding of a stored transactional id: a pure function, which `txn_coordinator/codec.py` also has in Python.

use std::collections::BTreeSet;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::frozen::frozen;
use crate::message::{Message, zigzag};

/// Initial capacity; enough for most ids.
const ROOM_BYTES: usize = 192;
/// Producer id and epoch that are stored if there was no `InitProducerId`.
const NOBODY: Identity = (-1, -1);

/// A named tuple in Python: producer id and epoch.
type Identity = (i64, i32);

frozen! {
    Transaction<'py> {
        producer_id: i64,
        producer_epoch: i32,
        last_producer_epoch: i32,
        prev_producer_id: i64,
        next_producer_id: i64,
        next_producer_epoch: i32,
        txn_timeout_ms: i32,
        state: u32,
        partitions: BTreeSet<u32>,
        groups: BTreeSet<String>,
        start_ms: i64,
        last_update_ms: i64,
        client_txn_version: u32,
        txn_epoch: i32,
        csn: u64,
        init: Option<InitAnswer<'py>>,
        prepared_ms: Option<i64>,
        transact_id: Bound<'py, PyBytes>,
        member: Option<Member>,
    } besides { transactional_id, cause }
}

frozen! {
    InitAnswer<'py> { request_id: Bound<'py, PyBytes>, identity: Identity, ongoing: Option<Identity> }
}

frozen! {
    Member { batch_id: i64, attempt: String }
}

/// The fields of the named tuple, in the form of `KNOWN`.
pub const IDENTITY: (&str, &[&str]) = ("Identity", &["producer_id", "producer_epoch"]);

/// Return the bytes of the message `TransactionValue`. The caller supplies the number of the cause.
#[pyfunction]
#[pyo3(signature = (transaction, cause, /))]
pub fn transaction_value<'py>(transaction: &Bound<'py, PyAny>, cause: u32) -> PyResult<Bound<'py, PyBytes>> {
    let stored = transaction.extract::<Transaction>()?.stored(cause);
    Ok(PyBytes::new(transaction.py(), stored.as_bytes()))
}

impl Transaction<'_> {
    fn stored(&self, cause: u32) -> Message {
        let mut message = Message::with_room(ROOM_BYTES);
        self.write_identities(&mut message);
        self.write_progress(&mut message);
        InitAnswer::write(self.init.as_ref(), &mut message);
        message.unsigned(18, cause.into());
        message.signed(19, self.txn_epoch.into());
        if let Some(prepared_ms) = self.prepared_ms {
            message.present(20, prepared_ms.cast_unsigned());
        }
        InitAnswer::write_ongoing(self.init.as_ref(), &mut message);
        message.content(23, self.transact_id.as_bytes());
        if let Some(member) = &self.member {
            message.present(24, member.batch_id.cast_unsigned());
            message.content(25, member.attempt.as_bytes());
        }
        message
    }

    fn write_identities(&self, message: &mut Message) {
        message.plain(1, self.producer_id);
        message.signed(2, self.producer_epoch.into());
        message.signed(3, self.last_producer_epoch.into());
        message.signed(4, self.prev_producer_id);
        message.signed(5, self.next_producer_id);
        message.signed(6, self.next_producer_epoch.into());
    }

    fn write_progress(&self, message: &mut Message) {
        message.plain(7, self.txn_timeout_ms.into());
        message.unsigned(8, self.state.into());
        message.packed(9, self.partitions.iter().copied());
        self.groups.iter().for_each(|group| message.element(10, group.as_bytes()));
        message.signed(11, self.start_ms);
        message.signed(12, self.last_update_ms);
        message.unsigned(13, self.client_txn_version.into());
        message.unsigned(14, self.csn);
    }
}

impl InitAnswer<'_> {
    fn write(init: Option<&Self>, message: &mut Message) {
        if let Some(init) = init {
            message.content(15, init.request_id.as_bytes());
        }
        let (producer_id, producer_epoch) = init.map_or(NOBODY, |init| init.identity);
        message.signed(16, producer_id);
        message.signed(17, producer_epoch.into());
    }

    fn write_ongoing(init: Option<&Self>, message: &mut Message) {
        if let Some((producer_id, producer_epoch)) = init.and_then(|init| init.ongoing) {
            message.present(21, producer_id.cast_unsigned());
            message.present(22, zigzag(producer_epoch.into()));
        }
    }
}
