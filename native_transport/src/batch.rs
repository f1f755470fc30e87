//! Examination of an incoming batch for the log: a pure function, which `partition_log/codec.py` also has in Python.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::records;

const MAGIC: u8 = 2;
/// Magic and checksum, which precede the bytes that the checksum covers.
const UNCOVERED_BYTES: usize = 5;

/// Return the rest of the header with the checksum, the checksum, and, if `counts`, the number of records in the
/// payload.
#[pyfunction]
#[pyo3(signature = (covered, payload, counts, /))]
pub fn examine_batch<'py>(
    py: Python<'py>,
    covered: &[u8],
    payload: &[u8],
    counts: bool,
) -> PyResult<(Bound<'py, PyBytes>, u32, Option<usize>)> {
    let crc = checksum(covered, payload);
    let rest_of_header = PyBytes::new_with(py, UNCOVERED_BYTES + covered.len(), |header| {
        header[0] = MAGIC;
        header[1..UNCOVERED_BYTES].copy_from_slice(&crc.to_be_bytes());
        header[UNCOVERED_BYTES..].copy_from_slice(covered);
        Ok(())
    })?;
    Ok((rest_of_header, crc, if counts { records::count(payload) } else { None }))
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
