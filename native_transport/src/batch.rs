//! Examination of an incoming batch for the log: a pure function, which `partition_log/codec.py` also has in Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::{kafka, records};

const MAGIC: u8 = 2;
/// Encoding of a batch of Kafka's, whose checksum leaves out the bytes that Kafka's header does not have.
const KAFKA_V2: u8 = 5;
/// Those bytes, at the end of the covered part: encoding, format version, reserved.
const OWN_BYTES: usize = 3;
/// Size of the part of a header from the attributes on.
const COVERED_BYTES: usize = 43;
/// Magic and checksum, which precede the bytes that the checksum covers.
const UNCOVERED_BYTES: usize = 5;

/// Return the rest of the header with the checksum, the checksum, and, unless `items_max` is 0, the number of records in
/// the payload.
#[pyfunction]
#[pyo3(signature = (covered, payload, items_max, /))]
pub fn examine_batch<'py>(
    py: Python<'py>,
    covered: &[u8],
    payload: &[u8],
    items_max: usize,
) -> PyResult<(Bound<'py, PyBytes>, u32, Option<usize>)> {
    let crc = checksum(checked_part(covered), payload);
    let rest_of_header = PyBytes::new_with(py, UNCOVERED_BYTES + covered.len(), |header| {
        header[0] = MAGIC;
        header[1..UNCOVERED_BYTES].copy_from_slice(&crc.to_be_bytes());
        header[UNCOVERED_BYTES..].copy_from_slice(covered);
        Ok(())
    })?;
    Ok((rest_of_header, crc, if items_max > 0 { count(covered, payload, items_max) } else { None }))
}

fn is_kafka(covered: &[u8]) -> bool {
    covered.len() == COVERED_BYTES && covered[COVERED_BYTES - OWN_BYTES] == KAFKA_V2
}

/// Return the part of the header that the checksum covers.
fn checked_part(covered: &[u8]) -> &[u8] {
    if is_kafka(covered) { &covered[..COVERED_BYTES - OWN_BYTES] } else { covered }
}

fn count(covered: &[u8], payload: &[u8], items_max: usize) -> Option<usize> {
    if !is_kafka(covered) {
        return records::count(payload);
    }
    let &[_, _, a, b, c, d, ..] = covered else { return None };
    kafka::count(payload, i32::from_be_bytes([a, b, c, d]), items_max)
}

fn checksum(covered: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(covered), payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(checksum(b"1234", b"56789"), 0xe306_9283);
        assert_eq!(checksum(&[], &[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_checksum_of_a_kafka_batch_leaves_our_bytes_out() {
        let mut covered = [9; COVERED_BYTES];
        assert_eq!(checked_part(&covered), covered);
        covered[COVERED_BYTES - OWN_BYTES] = KAFKA_V2;
        assert_eq!(checked_part(&covered), [9; COVERED_BYTES - OWN_BYTES]);
        assert_eq!(checked_part(&[KAFKA_V2, 1, 0]), [KAFKA_V2, 1, 0]);
    }

    proptest! {
        #[test]
        fn a_changed_bit_is_noticed(bytes in vec(any::<u8>(), 2..2_000), place in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut damaged = bytes.clone();
            damaged[place.index(bytes.len())] ^= 1_u8 << bit;
            let middle = bytes.len() / 2;
            let (whole, changed) = (bytes.split_at(middle), damaged.split_at(middle));
            prop_assert_ne!(checksum(whole.0, whole.1), checksum(changed.0, changed.1));
        }
    }
}
