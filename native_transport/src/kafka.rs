//! Counts the records of a Kafka batch of magic 2, and checks every number in them.
//!
//! A pure function, which `coordinator_protocol/kafka_payload.py` also has in Python.

const HEADERS_MAX: i32 = 1 << 17;
const INT_BITS: u32 = 32;
const LONG_BITS: u32 = 64;
const NULL: i64 = -1;

/// Return the number of records in an unpacked payload. Offset deltas must ascend up to `last_offset_delta`.
///
/// None: the payload is not made of such records, or has more records and headers than `items_max` together.
pub fn count(payload: &[u8], last_offset_delta: i32, items_max: usize) -> Option<usize> {
    let (mut rest, mut found, mut items_left, mut behind) = (payload, 0, items_max, -1);
    while !rest.is_empty() {
        let length = usize::try_from(take_number(&mut rest, INT_BITS)?).ok()?;
        let mut record = take(&mut rest, length)?;
        let (delta, header_count) = take_record(&mut record)?;
        items_left = items_left.checked_sub(1 + usize::try_from(header_count).ok()?)?;
        if header_count > HEADERS_MAX {
            return None;
        }
        for _ in 0..header_count {
            take_name(&mut record)?;
            take_bytes(&mut record)?;
        }
        if !record.is_empty() || delta <= behind || delta > i64::from(last_offset_delta) {
            return None;
        }
        behind = delta;
        found += 1;
    }
    Some(found)
}

/// Take all of a record before its headers. Return its offset delta and the number of headers.
fn take_record(record: &mut &[u8]) -> Option<(i64, i32)> {
    take(record, 1)?;
    take_number(record, LONG_BITS)?;
    let delta = take_number(record, INT_BITS)?;
    take_bytes(record)?;
    take_bytes(record)?;
    Some((delta, i32::try_from(take_number(record, INT_BITS)?).ok()?))
}

fn take_name(rest: &mut &[u8]) -> Option<()> {
    let length = usize::try_from(take_number(rest, INT_BITS)?).ok()?;
    take(rest, length).map(drop)
}

/// Take bytes that may be null.
fn take_bytes(rest: &mut &[u8]) -> Option<()> {
    match take_number(rest, INT_BITS)? {
        NULL => Some(()),
        length => take(rest, usize::try_from(length).ok()?).map(drop),
    }
}

/// Take a zig-zag number of at most so many bits.
fn take_number(rest: &mut &[u8], bits: u32) -> Option<i64> {
    let (mut number, mut shift) = (0_u64, 0);
    while shift < bits {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        let part = u64::from(byte & 0x7f);
        if shift + 7 > bits && part >> (bits - shift) != 0 {
            return None;
        }
        number |= part << shift;
        if byte < 0x80 {
            return Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
        shift += 7;
    }
    None
}

fn take<'a>(rest: &mut &'a [u8], size: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(size)?;
    *rest = behind;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const MANY: usize = 1 << 20;

    fn number(value: i64) -> Vec<u8> {
        let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
        let mut written = Vec::new();
        while rest >= 0x80 {
            written.push(u8::try_from(rest & 0x7f).unwrap() | 0x80);
            rest >>= 7;
        }
        written.push(u8::try_from(rest).unwrap());
        written
    }

    fn sized(content: Option<&[u8]>) -> Vec<u8> {
        content.map_or_else(
            || number(-1),
            |content| [number(i64::try_from(content.len()).unwrap()), content.to_vec()].concat(),
        )
    }

    fn record(delta_ms: i64, delta: i64, value: Option<&[u8]>, headers: &[Vec<u8>]) -> Vec<u8> {
        let body = [
            vec![0],
            number(delta_ms),
            number(delta),
            sized(None),
            sized(value),
            number(i64::try_from(headers.len()).unwrap()),
            headers.concat(),
        ];
        sized(Some(&body.concat()))
    }

    fn header(name: &[u8], value: Option<&[u8]>) -> Vec<u8> {
        [sized(Some(name)), sized(value)].concat()
    }

    #[test]
    fn records_are_counted_whatever_they_hold() {
        let headers = [header(b"name", None), header(b"", Some(b"value"))];
        let payload = [record(0, 0, None, &[]), record(i64::MIN, 1, Some(&[7; 300]), &headers)].concat();
        assert_eq!(count(&payload, 1, MANY), Some(2));
        assert_eq!(count(&[], 0, MANY), Some(0));
    }

    #[test]
    fn places_ascend_up_to_the_last() {
        let placed = |deltas: &[i64]| deltas.iter().flat_map(|&delta| record(0, delta, None, &[])).collect::<Vec<u8>>();
        assert_eq!(count(&placed(&[0, 3, 5]), 5, MANY), Some(3));
        for wrong in [&[0, 0][..], &[1, 0], &[0, 6], &[-1, 0]] {
            assert_eq!(count(&placed(wrong), 5, MANY), None);
        }
    }

    #[test]
    fn no_more_is_looked_at_than_was_asked() {
        let payload = record(0, 0, None, &[header(b"a", None), header(b"b", None)]);
        assert_eq!((count(&payload, 0, 3), count(&payload, 0, 2)), (Some(1), None));
    }

    #[test]
    fn a_number_fits_its_type() {
        assert_eq!(take_number(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..], INT_BITS), Some(i64::from(i32::MIN)));
        assert_eq!(take_number(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..], INT_BITS), None);
        assert_eq!(take_number(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..], INT_BITS), None);
        assert_eq!(take_number(&mut &[0x80, 0][..], INT_BITS), Some(0));
        assert_eq!(take_number(&mut &number(i64::MIN)[..], LONG_BITS), Some(i64::MIN));
        assert_eq!(take_number(&mut &[&[0xff; 9][..], &[2]].concat()[..], LONG_BITS), None);
    }

    #[test]
    fn lengths_are_never_below_that_of_null() {
        assert_eq!(take_bytes(&mut &number(-2)[..]), None);
        assert_eq!(take_name(&mut &number(-1)[..]), None);
    }

    proptest! {
        #[test]
        fn what_is_cut_off_is_no_payload_or_holds_fewer(sizes in vec(0..100_usize, 1..20), cut in 1..1_000_usize) {
            let whole: Vec<u8> =
                sizes.iter().zip(0..).flat_map(|(&size, delta)| record(5, delta, Some(&vec![7; size]), &[])).collect();
            prop_assert_eq!(count(&whole, 19, MANY), Some(sizes.len()));
            let left = whole.len().saturating_sub(cut);
            prop_assert!(count(&whole[..left], 19, MANY).is_none_or(|found| found < sizes.len()));
        }

        #[test]
        fn whatever_comes_is_judged(payload in vec(any::<u8>(), 0..200)) {
            prop_assert!(count(&payload, 300, MANY).is_none_or(|found| 7 * found <= payload.len()));
        }
    }
}
