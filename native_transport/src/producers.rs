//! Encoding of a partition's stored producers: a pure function, which `partition_log/codec.py` also has in Python.

use bytes::BufMut;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::frozen::frozen;

const VERSION: u8 = 1;
const SEALED_VERSION: u8 = VERSION | 0x80;
const KIND: u8 = 0;
const BATCHES_MAX: usize = 5;
/// Size of an entry with the maximum number of batches.
const ROOM_BYTES: usize = 53 + 16 * BATCHES_MAX;

/// Absent shard, in Python and as stored.
const NO_SHARD: i32 = -1;
const STORED_NO_SHARD: u16 = u16::MAX;
/// Stored for an absent value where only 0 and above have a meaning.
const NOTHING: i64 = -1;

frozen! {
    ProducerEntry<'py> {
        epoch: i16,
        coordinator_epoch: i32,
        last_append_ms: i64,
        batches: Bound<'py, PyTuple>,
        open_transaction: Option<OpenTransaction>,
        last_marker: Option<LastMarker>,
        is_sealed: bool,
        forgotten_csn: u64,
        coordinator_shard: i32,
    }
}

frozen! {
    CachedBatch { base_sequence: i32, last_sequence: i32, base_offset: i64 }
}

frozen! {
    OpenTransaction { first_offset: i64, started_ms: i64 }
}

frozen! {
    LastMarker { txn_epoch: i16, outcome: i8, csn: u64, first_offset: i64 }
}

/// Key and value, as Python gets them.
type Row<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// Return a row for each producer id and its entry.
#[pyfunction]
#[pyo3(signature = (ordinal, producers, /))]
pub fn producer_rows<'py>(ordinal: u32, producers: &Bound<'py, PyAny>) -> PyResult<Vec<Row<'py>>> {
    let py = producers.py();
    let mut value = Vec::with_capacity(ROOM_BYTES);
    let mut rows = Vec::new();
    for producer in producers.try_iter()? {
        let (producer_id, entry) = producer?.extract::<(u64, ProducerEntry)>()?;
        value.clear();
        entry.write(&mut value)?;
        rows.push((PyBytes::new(py, &key(ordinal, producer_id)), PyBytes::new(py, &value)));
    }
    Ok(rows)
}

fn key(ordinal: u32, producer_id: u64) -> [u8; 13] {
    let mut key = [KIND; 13];
    key[..4].copy_from_slice(&ordinal.to_be_bytes());
    key[5..].copy_from_slice(&producer_id.to_be_bytes());
    key
}

impl ProducerEntry<'_> {
    fn write(&self, value: &mut Vec<u8>) -> PyResult<()> {
        value.put_u8(if self.is_sealed { SEALED_VERSION } else { VERSION });
        value.put_i16(self.epoch);
        value.put_i32(self.coordinator_epoch);
        value.put_u16(stored_shard(self.coordinator_shard)?);
        value.put_i64(self.last_append_ms);
        OpenTransaction::write(self.open_transaction.as_ref(), value);
        LastMarker::write(self.last_marker.as_ref(), self.forgotten_csn, value);
        self.write_batches(value)
    }

    fn write_batches(&self, value: &mut Vec<u8>) -> PyResult<()> {
        let count = self.batches.len();
        match u8::try_from(count) {
            Ok(stored) if count <= BATCHES_MAX => value.put_u8(stored),
            _ => return Err(PyValueError::new_err(format!("a producer's entry holds {count} batches"))),
        }
        for batch in self.batches.iter_borrowed() {
            let batch = batch.extract::<CachedBatch>()?;
            value.put_i32(batch.base_sequence);
            value.put_i32(batch.last_sequence);
            value.put_i64(batch.base_offset);
        }
        Ok(())
    }
}

impl OpenTransaction {
    fn write(opened: Option<&Self>, value: &mut Vec<u8>) {
        value.put_i64(opened.map_or(NOTHING, |opened| opened.first_offset));
        value.put_i64(opened.map_or(NOTHING, |opened| opened.started_ms));
    }
}

impl LastMarker {
    /// Write the marker. Without one, the csn that the partition had forgotten is stored in the place of its csn.
    fn write(marker: Option<&Self>, forgotten_csn: u64, value: &mut Vec<u8>) {
        let nothing = Self { txn_epoch: -1, outcome: -1, csn: forgotten_csn, first_offset: NOTHING };
        let marker = marker.unwrap_or(&nothing);
        value.put_i16(marker.txn_epoch);
        value.put_i8(marker.outcome);
        value.put_u64(marker.csn);
        value.put_i64(marker.first_offset);
    }
}

fn stored_shard(shard: i32) -> PyResult<u16> {
    match shard {
        NO_SHARD => Ok(STORED_NO_SHARD),
        _ => u16::try_from(shard).map_err(|_| PyValueError::new_err(format!("no coordinator shard is {shard}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_partition_lie_together_in_the_order_of_their_ids() {
        assert_eq!(key(1, 2), [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert!(key(1, u64::MAX) < key(2, 0));
    }

    #[test]
    fn no_shard_is_stored_as_one_that_cannot_be() {
        assert_eq!([-1, 0, 65_534].map(|shard| stored_shard(shard).ok()), [Some(u16::MAX), Some(0), Some(65_534)]);
    }
}
