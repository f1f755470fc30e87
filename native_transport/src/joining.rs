//! Joining of columns of Arrow payloads, one payload after the other: Arrow's several steps in one pass.

use bytes::Bytes;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::arrow::{Columns, OFFSET_BYTES, TIME_BYTES, Texts, columns, is_present};
use crate::held::HeldBytes;
use crate::pieces::viewed;

/// Alignment of buffers, at which any type of number may be read.
const ALIGNMENT: usize = 8;

/// A view of a payload, the number of records that it must hold, and the range of those that are wanted.
type Asked<'py> = (Bound<'py, PyAny>, usize, usize, usize);

/// Start of a buffer in the joined bytes, and its size.
type Place = (usize, usize);

/// Number of nulls of a column, and its buffers: validity, offsets and data. Numbers have no offsets.
type Column = (usize, Option<Place>, Option<Place>, Place);

/// Some records of a payload.
struct Part<'a> {
    columns: Columns<'a>,
    start: usize,
    end: usize,
}

/// Return the wanted ones of key, value and timestamp of the records, and the place of each in the bytes. None: some
/// payload is not as writers make it, or all together are too large for a column.
#[pyfunction]
#[pyo3(signature = (asked, wanted, /))]
pub fn join_arrow(asked: Vec<Asked<'_>>, wanted: [bool; 3]) -> PyResult<Option<(HeldBytes, Vec<Column>)>> {
    let views = asked.into_iter().map(|(payload, rows, start, end)| Ok((View::of(&payload)?, rows, start, end)));
    let views = views.collect::<PyResult<Vec<_>>>()?;
    let parts = views.iter().map(|(view, rows, start, end)| part(view.as_ref()?.bytes()?, *rows, *start, *end));
    Ok(parts.collect::<Option<Vec<_>>>().and_then(|parts| joined(&parts, wanted)))
}

/// A view, and the owner of its bytes.
struct View<'py> {
    owner: Owner<'py>,
    address: usize,
    size: usize,
}

enum Owner<'py> {
    Python(Bound<'py, PyBytes>),
    Held(Bound<'py, HeldBytes>),
}

impl<'py> View<'py> {
    /// Return the view; None if its bytes might change.
    fn of(payload: &Bound<'py, PyAny>) -> PyResult<Option<Self>> {
        let view = PyBuffer::<u8>::get(payload)?;
        if !view.is_c_contiguous() {
            return Ok(None);
        }
        let owner = payload.getattr("obj")?;
        let owner = match owner.cast_into::<HeldBytes>() {
            Ok(bytes) => Some(Owner::Held(bytes)),
            Err(other) => other.into_inner().cast_into::<PyBytes>().ok().map(Owner::Python),
        };
        Ok(owner.map(|owner| Self { owner, address: view.buf_ptr() as usize, size: view.len_bytes() }))
    }

    fn bytes(&self) -> Option<&[u8]> {
        let all = match &self.owner {
            Owner::Python(bytes) => bytes.as_bytes(),
            Owner::Held(bytes) => bytes.get().as_bytes(),
        };
        viewed(all, self.address, self.size)
    }
}

fn part(payload: &[u8], rows: usize, start: usize, end: usize) -> Option<Part<'_>> {
    let columns = columns(payload)?;
    (columns.rows == rows && start <= end && end <= rows).then_some(Part { columns, start, end })
}

fn joined(parts: &[Part<'_>], [key, value, times]: [bool; 3]) -> Option<(HeldBytes, Vec<Column>)> {
    let rows: usize = parts.iter().map(|part| part.end - part.start).sum();
    let texts = [(key, (|part| &part.columns.key) as TextsOf), (value, |part| &part.columns.value)];
    let texts = texts.into_iter().filter_map(|(is_wanted, column)| is_wanted.then_some(column)).collect::<Vec<_>>();
    let sizes = texts.iter().map(|column| parts.iter().map(|part| size(part, *column)).sum::<usize>());
    let sizes = sizes.collect::<Vec<_>>();
    if sizes.iter().any(|&size| i32::try_from(size).is_err()) {
        return None;
    }
    let rest = (rows + 1) * (TIME_BYTES + 2 * (OFFSET_BYTES + 1)) + 8 * ALIGNMENT;
    let mut bytes = Vec::with_capacity(sizes.iter().sum::<usize>() + rest);
    let mut made = Vec::new();
    for column in texts {
        made.push(joined_texts(&mut bytes, parts, rows, column)?);
    }
    if times {
        made.push((0, None, None, joined_times(&mut bytes, parts)));
    }
    Some((HeldBytes::new(Bytes::from(bytes)), made))
}

type TextsOf = for<'p, 'a> fn(&'p Part<'a>) -> &'p Texts<'a>;

fn size(part: &Part<'_>, column: TextsOf) -> usize {
    column(part).between(part.start, part.end).len()
}

fn joined_texts(bytes: &mut Vec<u8>, parts: &[Part<'_>], rows: usize, column: TextsOf) -> Option<Column> {
    let (nulls, present) = if parts.iter().any(|part| column(part).present.is_some()) {
        let (nulls, place) = joined_bits(bytes, parts, rows, column);
        (nulls, (nulls > 0).then_some(place))
    } else {
        (0, None)
    };
    let offsets_at = aligned(bytes);
    let mut before = 0;
    bytes.extend_from_slice(&0_i32.to_le_bytes());
    for part in parts {
        let texts = column(part);
        let first = texts.offset(part.start);
        for place in part.start + 1..=part.end {
            bytes.extend_from_slice(&i32::try_from(before + texts.offset(place) - first).ok()?.to_le_bytes());
        }
        before += texts.offset(part.end) - first;
    }
    let offsets = (offsets_at, bytes.len() - offsets_at);
    let data_at = aligned(bytes);
    for part in parts {
        bytes.extend_from_slice(column(part).between(part.start, part.end));
    }
    Some((nulls, present, Some(offsets), (data_at, bytes.len() - data_at)))
}

/// Append the validity bits; return the number of nulls, and the place of the bits.
fn joined_bits(bytes: &mut Vec<u8>, parts: &[Part<'_>], rows: usize, column: TextsOf) -> (usize, Place) {
    let at = aligned(bytes);
    bytes.resize(at + rows.div_ceil(8), 0);
    let places = parts.iter().flat_map(|part| (part.start..part.end).map(move |place| (column(part).present, place)));
    let mut nulls = 0;
    for (row, (present, place)) in places.enumerate() {
        if present.is_none_or(|bits| is_present(bits, place)) {
            bytes[at + row / 8] |= 1 << (row % 8);
        } else {
            nulls += 1;
        }
    }
    (nulls, (at, bytes.len() - at))
}

fn joined_times(bytes: &mut Vec<u8>, parts: &[Part<'_>]) -> Place {
    let at = aligned(bytes);
    for part in parts {
        bytes.extend_from_slice(&part.columns.times[part.start * TIME_BYTES..part.end * TIME_BYTES]);
    }
    (at, bytes.len() - at)
}

/// Pad the bytes; return the start of the next buffer.
fn aligned(bytes: &mut Vec<u8>) -> usize {
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrow::tests::{example, without_null_keys};

    #[test]
    fn parts_of_payloads_follow_each_other() {
        let payload = example();
        let parts =
            [part(&payload, 3, 1, 3).unwrap(), part(&payload, 3, 0, 0).unwrap(), part(&payload, 3, 0, 2).unwrap()];
        let (held, columns) = joined(&parts, [true; 3]).unwrap();
        let at = |(start, size): Place| &held.as_bytes()[start..start + size];
        let [key, value, times] = columns[..] else { panic!("three columns were asked for") };
        // null, "", "k", null
        assert_eq!((key.0, at(key.1.unwrap())), (2, &[0b0110][..]));
        assert_eq!(at(key.2.unwrap()), [0, 0, 0, 1, 1].map(i32::to_le_bytes).concat());
        assert_eq!(at(key.3), b"k");
        // "", null, "one", ""
        assert_eq!((value.0, at(value.1.unwrap())), (1, &[0b1101][..]));
        assert_eq!(at(value.2.unwrap()), [0, 0, 0, 3, 3].map(i32::to_le_bytes).concat());
        assert_eq!(at(value.3), b"one");
        assert_eq!((times.0, times.1, times.2), (0, None, None));
        assert_eq!(at(times.3), [2_i64, 3, 1, 2].map(i64::to_le_bytes).concat());
    }

    #[test]
    fn only_what_is_wanted_is_joined() {
        let payload = example();
        let parts = [part(&payload, 3, 0, 1).unwrap(), part(&payload, 3, 0, 1).unwrap()];
        let (_, columns) = joined(&parts, [false, true, false]).unwrap();
        assert!(matches!(columns[..], [(0, None, Some(_), (_, 6))]), "{columns:?}");
    }

    #[test]
    fn nulls_among_parts_without_any_stay_where_they_are() {
        let with_nulls = example();
        // The same, but the node has no nulls in the keys, so that the bits are not read.
        let without = without_null_keys();
        for (payloads, bits) in [([&without, &with_nulls], 0b10_1111), ([&with_nulls, &without], 0b11_1101)] {
            let parts = payloads.map(|payload| part(payload, 3, 0, 3).unwrap());
            let (held, columns) = joined(&parts, [true, false, false]).unwrap();
            let [(nulls, Some((at, 1)), _, _)] = columns[..] else { panic!("{columns:?}") };
            assert_eq!((nulls, held.as_bytes()[at]), (1, bits));
        }
    }

    #[test]
    fn a_payload_holds_as_many_records_as_it_must() {
        let payload = example();
        assert!(part(&payload, 2, 0, 2).is_none());
        assert!(part(&payload, 3, 2, 4).is_none());
        assert!(part(&payload, 3, 2, 1).is_none());
    }

    #[test]
    fn buffers_begin_where_numbers_may_be_read() {
        let payload = example();
        let (_, columns) = joined(&[part(&payload, 3, 0, 3).unwrap()], [true; 3]).unwrap();
        let starts = columns.iter().flat_map(|(_, bits, offsets, data)| [*bits, *offsets, Some(*data)]);
        assert!(starts.flatten().all(|(start, _)| start % ALIGNMENT == 0));
    }
}
