//! Conversion of the records of a stored batch into another encoding: pure functions, which
//! `partition_log/conversion.py` also has in Python.
//!
//! A payload that is not as its header says is not converted. The caller then asks the functions in Python, which say
//! what is wrong.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::records::{self, Field, GROUPS_MAX, HEADERS, RECORDS, take_field};

/// Fields of `Record` and `Header` besides those of `records`.
const VALUE: u32 = 2;
const TIMESTAMP: u32 = 3;
const OFFSET_DELTA: u32 = 5;
/// Largest number of fields of a record, as in `partition_log/batch_checks.py`.
const FIELDS_MAX: usize = 1 << 17;

const INT_BITS: u32 = 32;
const LONG_BITS: u32 = 64;
const NULL: i64 = -1;
/// Bytes that a record takes beside its contents, about.
const OVERHEAD_BYTES: usize = 16;

/// Buffers of an Arrow payload, by their position: validity, offsets and content of an array follow each other.
const ARROW_KEY: usize = 0;
const ARROW_VALUE: usize = 3;
const ARROW_TIMES: usize = 7;
const ARROW_HEADERS: usize = 8;
const ARROW_HEADER_KEY: usize = 11;
const ARROW_HEADER_VALUE: usize = 14;
const ARROW_DELTAS: usize = 18;
/// Arrays of an Arrow payload that may have nulls, by their position.
const NULLS_OF_KEY: usize = 0;
const NULLS_OF_VALUE: usize = 1;
const NULLS_OF_HEADERS: usize = 3;
const NULLS_OF_HEADER_KEY: usize = 5;
const NULLS_OF_HEADER_VALUE: usize = 6;

#[derive(Default)]
struct Record<'a> {
    offset_delta: i64,
    timestamp_ms: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: Vec<(&'a [u8], Option<&'a [u8]>)>,
}

/// The records that a header promises: their number, and places that ascend up to the last one.
struct Places {
    left: usize,
    behind: i64,
    last: i64,
}

impl Places {
    fn new(record_count: usize, last_offset_delta: i64) -> Self {
        Self { left: record_count, behind: -1, last: last_offset_delta }
    }

    /// The place of the next record; None if it is one too many, or lies elsewhere.
    fn next(&mut self, offset_delta: Option<i64>) -> Option<i64> {
        let place = offset_delta.unwrap_or(self.behind + 1);
        self.left = self.left.checked_sub(1)?;
        if place <= self.behind || place > self.last {
            return None;
        }
        self.behind = place;
        Some(place)
    }

    fn are_all_there(&self) -> bool {
        self.left == 0
    }
}

/// Convert a message `Records` into Kafka's records.
#[pyfunction]
#[pyo3(signature = (plain, has_deltas, record_count, last_offset_delta, base_timestamp_ms, /))]
pub fn kafka_of_records<'py>(
    py: Python<'py>,
    plain: &[u8],
    has_deltas: bool,
    record_count: usize,
    last_offset_delta: i64,
    base_timestamp_ms: i64,
) -> Option<Bound<'py, PyBytes>> {
    let places = Places::new(record_count, last_offset_delta);
    records_to_kafka(plain, has_deltas, places, base_timestamp_ms).map(|converted| PyBytes::new(py, &converted))
}

/// Convert an Arrow payload, of which the caller checked the buffers, into Kafka's records.
#[pyfunction]
#[pyo3(signature = (plain, places, null_counts, record_count, last_offset_delta, base_timestamp_ms, /))]
#[expect(clippy::needless_pass_by_value, reason = "lists of Python are copied anyway")]
pub fn kafka_of_arrow<'py>(
    py: Python<'py>,
    plain: &[u8],
    places: Vec<(usize, usize)>,
    null_counts: Vec<usize>,
    record_count: usize,
    last_offset_delta: i64,
    base_timestamp_ms: i64,
) -> Option<Bound<'py, PyBytes>> {
    let columns = Columns { plain, places: &places, null_counts: &null_counts };
    arrow_to_kafka(&columns, record_count, last_offset_delta, base_timestamp_ms)
        .map(|converted| PyBytes::new(py, &converted))
}

/// Convert Kafka's records into a message `Records`.
#[pyfunction]
#[pyo3(signature = (plain, has_deltas, record_count, last_offset_delta, base_timestamp_ms, /))]
pub fn records_of_kafka<'py>(
    py: Python<'py>,
    plain: &[u8],
    has_deltas: bool,
    record_count: usize,
    last_offset_delta: i64,
    base_timestamp_ms: i64,
) -> Option<Bound<'py, PyBytes>> {
    let places = Places::new(record_count, last_offset_delta);
    kafka_to_records(plain, has_deltas, places, base_timestamp_ms).map(|converted| PyBytes::new(py, &converted))
}

fn records_to_kafka(plain: &[u8], has_deltas: bool, mut places: Places, base_timestamp_ms: i64) -> Option<Vec<u8>> {
    let mut writer = KafkaWriter::new(plain.len(), places.left, base_timestamp_ms);
    let mut record = Record::default();
    let mut rest = plain;
    while !rest.is_empty() {
        match take_field(&mut rest, GROUPS_MAX)? {
            Field::Bytes(RECORDS, content) => {
                read_record(content, &mut record)?;
                record.offset_delta = places.next(has_deltas.then_some(record.offset_delta))?;
                writer.write(&record)?;
            }
            Field::GroupEnd(_) => return None,
            _ => {}
        }
    }
    places.are_all_there().then_some(writer.written)
}

/// Read a message `Record`. As protobuf has it, the last of equal fields counts.
fn read_record<'a>(content: &'a [u8], record: &mut Record<'a>) -> Option<()> {
    (record.offset_delta, record.timestamp_ms, record.key, record.value) = (0, 0, None, None);
    record.headers.clear();
    let (mut rest, mut fields_left) = (content, FIELDS_MAX);
    while !rest.is_empty() {
        fields_left = fields_left.checked_sub(1)?;
        match take_field(&mut rest, GROUPS_MAX - 1)? {
            Field::Bytes(records::KEY, key) => record.key = Some(key),
            Field::Bytes(VALUE, value) => record.value = Some(value),
            Field::Bytes(HEADERS, header) => record.headers.push(read_header(header)?),
            Field::Number(TIMESTAMP, time) => record.timestamp_ms = time.cast_signed(),
            Field::Number(OFFSET_DELTA, delta) => record.offset_delta = i64::from(low_half(delta)?),
            Field::GroupEnd(_) => return None,
            _ => {}
        }
    }
    Some(())
}

fn read_header(content: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (mut rest, mut name, mut value) = (content, &[][..], None);
    while !rest.is_empty() {
        match take_field(&mut rest, GROUPS_MAX - 2)? {
            Field::Bytes(records::KEY, key) => name = std::str::from_utf8(key).ok()?.as_bytes(),
            Field::Bytes(VALUE, content) => value = Some(content),
            Field::GroupEnd(_) => return None,
            _ => {}
        }
    }
    Some((name, value))
}

/// Protobuf's reading of a number that is too large for its type.
fn low_half(number: u64) -> Option<i32> {
    u32::try_from(number & u64::from(u32::MAX)).ok().map(u32::cast_signed)
}

struct KafkaWriter {
    written: Vec<u8>,
    record: Vec<u8>,
    base_timestamp_ms: i64,
}

impl KafkaWriter {
    fn new(content_bytes: usize, record_count: usize, base_timestamp_ms: i64) -> Self {
        // A header may promise more records than there are bytes.
        let capacity = content_bytes + OVERHEAD_BYTES * record_count.min(content_bytes);
        Self { written: Vec::with_capacity(capacity), record: Vec::new(), base_timestamp_ms }
    }

    fn write(&mut self, record: &Record) -> Option<()> {
        let body = &mut self.record;
        body.clear();
        body.push(0);
        write_zigzag(body, record.timestamp_ms.wrapping_sub(self.base_timestamp_ms));
        write_zigzag(body, record.offset_delta);
        write_bytes(body, record.key)?;
        write_bytes(body, record.value)?;
        write_zigzag(body, i64::try_from(record.headers.len()).ok()?);
        for &(name, value) in &record.headers {
            write_bytes(body, Some(name))?;
            write_bytes(body, value)?;
        }
        write_bytes(&mut self.written, Some(body))
    }
}

fn write_bytes(written: &mut Vec<u8>, content: Option<&[u8]>) -> Option<()> {
    let Some(content) = content else {
        write_zigzag(written, NULL);
        return Some(());
    };
    write_zigzag(written, i64::from(i32::try_from(content.len()).ok()?));
    written.extend_from_slice(content);
    Some(())
}

fn write_zigzag(written: &mut Vec<u8>, number: i64) {
    write_number(written, ((number << 1) ^ (number >> 63)).cast_unsigned());
}

fn write_number(written: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        let [low, ..] = number.to_le_bytes();
        written.push(low | 0x80);
        number >>= 7;
    }
    let [low, ..] = number.to_le_bytes();
    written.push(low);
}

fn kafka_to_records(plain: &[u8], has_deltas: bool, mut places: Places, base_timestamp_ms: i64) -> Option<Vec<u8>> {
    let mut written = Vec::with_capacity(plain.len() + OVERHEAD_BYTES * places.left.min(plain.len()));
    let (mut message, mut header) = (Vec::new(), Vec::new());
    let mut rest = plain;
    while !rest.is_empty() {
        let mut record = take_bytes(&mut rest)??;
        message.clear();
        take(&mut record, 1)?;
        let timestamp_ms = base_timestamp_ms.wrapping_add(take_zigzag(&mut record, LONG_BITS)?);
        let place = places.next(Some(take_zigzag(&mut record, INT_BITS)?))?;
        write_field(&mut message, records::KEY, take_bytes(&mut record)?);
        write_field(&mut message, VALUE, take_bytes(&mut record)?);
        if timestamp_ms != 0 {
            write_number(&mut message, u64::from(TIMESTAMP << 3));
            write_number(&mut message, timestamp_ms.cast_unsigned());
        }
        let header_count = u32::try_from(take_zigzag(&mut record, INT_BITS)?).ok()?;
        for _ in 0..header_count {
            header.clear();
            let name = String::from_utf8_lossy(take_bytes(&mut record)??);
            write_field(&mut header, records::KEY, Some(name.as_bytes()).filter(|name| !name.is_empty()));
            write_field(&mut header, VALUE, take_bytes(&mut record)?);
            write_field(&mut message, HEADERS, Some(&header));
        }
        if has_deltas && place != 0 {
            write_number(&mut message, u64::from(OFFSET_DELTA << 3));
            write_number(&mut message, place.cast_unsigned());
        }
        if !record.is_empty() {
            return None;
        }
        write_field(&mut written, RECORDS, Some(&message));
    }
    places.are_all_there().then_some(written)
}

fn write_field(written: &mut Vec<u8>, number: u32, content: Option<&[u8]>) {
    if let Some(content) = content {
        write_number(written, u64::from(number << 3 | 2));
        write_number(written, content.len() as u64);
        written.extend_from_slice(content);
    }
}

/// Take bytes after their length. None if that is impossible; `Some(None)` stands for null.
#[expect(clippy::option_option, reason = "the outer one is an error")]
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match take_zigzag(rest, INT_BITS)? {
        NULL => Some(None),
        length => take(rest, usize::try_from(length).ok()?).map(Some),
    }
}

/// Take a zig-zag number of at most so many bits.
fn take_zigzag(rest: &mut &[u8], bits: u32) -> Option<i64> {
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

fn arrow_to_kafka(
    columns: &Columns,
    record_count: usize,
    last_offset_delta: i64,
    base_timestamp_ms: i64,
) -> Option<Vec<u8>> {
    let mut places = Places::new(record_count, last_offset_delta);
    let mut writer = KafkaWriter::new(columns.plain.len(), record_count, base_timestamp_ms);
    let has_deltas = columns.places.len() > ARROW_DELTAS;
    let mut record = Record::default();
    for row in 0..record_count {
        let delta = if has_deltas { Some(i64::from(columns.int(ARROW_DELTAS, row)?)) } else { None };
        record.offset_delta = places.next(delta)?;
        record.timestamp_ms = columns.long(ARROW_TIMES, row)?;
        record.key = columns.content(ARROW_KEY, NULLS_OF_KEY, row)?;
        record.value = columns.content(ARROW_VALUE, NULLS_OF_VALUE, row)?;
        record.headers.clear();
        if columns.is_there(ARROW_HEADERS, NULLS_OF_HEADERS, row)? {
            let (start, end) = columns.range(ARROW_HEADERS, row)?;
            for header in start..end {
                let name = columns.content(ARROW_HEADER_KEY, NULLS_OF_HEADER_KEY, header)??;
                record.headers.push((name, columns.content(ARROW_HEADER_VALUE, NULLS_OF_HEADER_VALUE, header)?));
            }
        }
        writer.write(&record)?;
    }
    Some(writer.written)
}

/// The columns of an Arrow payload: start and end of each buffer, and the number of nulls of each array.
struct Columns<'a> {
    plain: &'a [u8],
    places: &'a [(usize, usize)],
    null_counts: &'a [usize],
}

impl<'a> Columns<'a> {
    fn buffer(&self, buffer: usize) -> Option<&'a [u8]> {
        let &(start, end) = self.places.get(buffer)?;
        self.plain.get(start..end)
    }

    fn int(&self, buffer: usize, row: usize) -> Option<i32> {
        let bytes = self.buffer(buffer)?.get(4 * row..4 * row + 4)?;
        bytes.try_into().ok().map(i32::from_le_bytes)
    }

    fn long(&self, buffer: usize, row: usize) -> Option<i64> {
        let bytes = self.buffer(buffer)?.get(8 * row..8 * row + 8)?;
        bytes.try_into().ok().map(i64::from_le_bytes)
    }

    /// The range of an element in the content of an array that begins at this buffer.
    fn range(&self, array: usize, row: usize) -> Option<(usize, usize)> {
        let (start, end) = (self.int(array + 1, row)?, self.int(array + 1, row + 1)?);
        Some((usize::try_from(start).ok()?, usize::try_from(end).ok()?))
    }

    fn is_there(&self, array: usize, nulls: usize, row: usize) -> Option<bool> {
        if *self.null_counts.get(nulls)? == 0 {
            return Some(true);
        }
        Some(self.buffer(array)?.get(row / 8)? >> (row % 8) & 1 == 1)
    }

    /// An element that is bytes; `Some(None)` stands for null.
    #[expect(clippy::option_option, reason = "the outer one is an error")]
    fn content(&self, array: usize, nulls: usize, row: usize) -> Option<Option<&'a [u8]>> {
        if !self.is_there(array, nulls, row)? {
            return Some(None);
        }
        let (start, end) = self.range(array, row)?;
        self.buffer(array + 2)?.get(start..end).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn to_kafka(plain: &[u8], record_count: usize, last: i64) -> Option<Vec<u8>> {
        records_to_kafka(plain, true, Places::new(record_count, last), 1_000)
    }

    fn to_records(plain: &[u8], record_count: usize, last: i64) -> Option<Vec<u8>> {
        kafka_to_records(plain, true, Places::new(record_count, last), 1_000)
    }

    /// One record of all fields, byte by byte: key "k", value "", time 1,001, a header "h" that is null, place 2.
    const MESSAGE: &[u8] =
        &[0x0a, 15, 0x0a, 1, b'k', 0x12, 0, 0x18, 0xe9, 0x07, 0x22, 3, 0x0a, 1, b'h', 0x28, 2];
    const KAFKA: &[u8] = &[0x14, 0, 2, 4, 2, b'k', 0, 2, 2, b'h', 1];

    #[test]
    fn every_field_is_converted_both_ways() {
        assert_eq!(to_kafka(MESSAGE, 1, 2).as_deref(), Some(KAFKA));
        assert_eq!(to_records(KAFKA, 1, 2).as_deref(), Some(MESSAGE));
    }

    #[test]
    fn records_that_the_header_does_not_have_are_left_to_python() {
        for (count, last) in [(0, 2), (2, 2), (1, 1)] {
            assert_eq!((to_kafka(MESSAGE, count, last), to_records(KAFKA, count, last)), (None, None));
        }
        assert_eq!(to_kafka(&[MESSAGE, MESSAGE].concat(), 2, 2), None);
        assert_eq!(to_records(&[KAFKA, KAFKA].concat(), 2, 2), None);
    }

    #[test]
    fn the_last_of_equal_fields_counts_and_others_are_passed_over() {
        let message = &[0x0a, 13, 0x0a, 1, b'x', 0x0a, 1, b'k', 0x10, 1, 0x28, 2, 0x38, 9, 0x3d][..];
        assert_eq!(to_kafka(message, 1, 2), None, "the last field is cut off");
        let message = [&[0x0a, 12][..], &message[2..14], &[0x10, 1]].concat();
        assert_eq!(to_kafka(&message, 1, 2), Some(vec![0x10, 0, 0xcf, 0x0f, 4, 2, b'k', 1, 0]));
    }

    #[test]
    fn times_wrap_around() {
        let far = [&[0x0a, 11, 0x18][..], &i64_field(i64::MIN)].concat();
        let kafka = to_kafka(&far, 1, 0).unwrap();
        assert_eq!(to_records(&kafka, 1, 0), Some(far));
    }

    fn i64_field(number: i64) -> Vec<u8> {
        let mut written = Vec::new();
        write_number(&mut written, number.cast_unsigned());
        written
    }

    #[test]
    fn a_name_that_is_no_text_is_replaced() {
        let kafka = &[0x12, 0, 0, 0, 1, 1, 2, 2, 0xff, 1][..];
        let message = to_records(kafka, 1, 0).unwrap();
        assert!(message.windows(3).any(|part| part == "\u{fffd}".as_bytes()));
    }

    #[test]
    fn a_number_fits_its_type() {
        assert_eq!(take_zigzag(&mut &[0xff, 0xff, 0xff, 0xff, 0x0f][..], INT_BITS), Some(i64::from(i32::MIN)));
        assert_eq!(take_zigzag(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..], INT_BITS), None);
        assert_eq!(take_zigzag(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..], INT_BITS), None);
        assert_eq!(take_zigzag(&mut &[&[0xff; 9][..], &[2]].concat()[..], LONG_BITS), None);
    }

    proptest! {
        #[test]
        fn numbers_are_read_as_written(number in any::<i64>()) {
            let mut written = Vec::new();
            write_zigzag(&mut written, number);
            prop_assert_eq!(take_zigzag(&mut &written[..], LONG_BITS), Some(number));
        }

        #[test]
        fn whatever_comes_is_converted_or_left_to_python(plain in vec(any::<u8>(), 0..200), count in 0..5_usize) {
            to_kafka(&plain, count, 300);
            to_records(&plain, count, 300);
        }
    }
}
