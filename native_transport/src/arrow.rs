//! Parser of one Arrow record batch of the agreed schema, without Arrow: `coordinator_protocol/arrow_payload.py` in
//! Rust. It rejects any batch that is not exactly as writers make it, and the caller then asks Arrow itself.
//!
//! Source: the Arrow columnar format, "Encapsulated message format" and "`RecordBatch` message"; the schema in
//! `log.proto`.

const CONTINUATION: u32 = u32::MAX;
const PREFIX_BYTES: usize = 8;
const ALIGNMENT: usize = 8;
pub const OFFSET_BYTES: usize = 4;
pub const TIME_BYTES: usize = 8;

/// Fields of the tables, by their place in the vtable.
const MESSAGE_VERSION: usize = 0;
const MESSAGE_HEADER_TYPE: usize = 1;
const MESSAGE_HEADER: usize = 2;
const MESSAGE_BODY_LENGTH: usize = 3;
const MESSAGE_METADATA: usize = 4;
const BATCH_LENGTH: usize = 0;
const BATCH_NODES: usize = 1;
const BATCH_BUFFERS: usize = 2;
const BATCH_COMPRESSION: usize = 3;
const BATCH_VARIADIC: usize = 4;

/// V4 and V5, in which a record batch of this schema looks the same.
const VERSIONS: [u16; 2] = [3, 4];
const HEADER_IS_BATCH: u8 = 3;
const NODES: usize = 7;
const BUFFERS: usize = 17;

/// The columns of a payload with the contents of records.
#[derive(Debug)]
pub struct Columns<'a> {
    pub rows: usize,
    pub key: Texts<'a>,
    pub value: Texts<'a>,
    /// Numbers of `TIME_BYTES`, little-endian.
    pub times: &'a [u8],
}

/// A column of bytes.
#[derive(Debug)]
pub struct Texts<'a> {
    /// Validity bits, one for each place, the lowest first; 1 = not null. None: no place is null.
    pub present: Option<&'a [u8]>,
    offsets: &'a [u8],
    data: &'a [u8],
}

impl<'a> Texts<'a> {
    /// Return the offset in the data at which a place begins. There is one more offset than there are places.
    pub fn offset(&self, place: usize) -> usize {
        number_at(self.offsets, place).unwrap_or(0)
    }

    /// Return the bytes of some adjacent places.
    pub fn between(&self, start: usize, end: usize) -> &'a [u8] {
        self.data.get(self.offset(start)..self.offset(end)).unwrap_or_default()
    }
}

/// Return true if a place is not null.
pub fn is_present(bits: &[u8], place: usize) -> bool {
    bits.get(place / 8).is_some_and(|byte| byte >> (place % 8) & 1 == 1)
}

/// Return the columns of a payload, with every offset and text checked, as Arrow's own full validation does.
pub fn columns(payload: &[u8]) -> Option<Columns<'_>> {
    let described = describe(payload)?;
    let mut buffers = described.buffers.iter().copied();
    let mut next = move || buffers.next();
    let [key, value, times, headers, header, name, content] = described.nodes;
    let rows = described.rows;
    if [key, value, times, headers].iter().any(|node| node.length != rows)
        || [name, content].iter().any(|node| node.length != header.length)
    {
        return None;
    }
    let key = texts(key, [next()?, next()?, next()?])?;
    let value = texts(value, [next()?, next()?, next()?])?;
    let _none_is_null = next()?;
    let times = without_nulls(times).and(next()?.get(..rows.checked_mul(TIME_BYTES)?))?;
    present(headers, next()?)?;
    offsets(rows, next()?, header.length)?;
    without_nulls(header).and(next())?;
    let names = without_nulls(name).and(texts(name, [next()?, next()?, next()?]))?;
    texts(content, [next()?, next()?, next()?])?;
    for place in 0..name.length {
        std::str::from_utf8(names.between(place, place + 1)).ok()?;
    }
    Some(Columns { rows, key, value, times })
}

fn texts(node: Node, [nulls, places, data]: [&[u8]; 3]) -> Option<Texts<'_>> {
    let present = present(node, nulls)?;
    Some(Texts { present, offsets: offsets(node.length, places, data.len())?, data })
}

fn without_nulls(node: Node) -> Option<()> {
    (node.nulls == 0).then_some(())
}

/// Return the validity bits of a column that has nulls, if its number of nulls is right. Without nulls the bits are not
/// checked.
#[expect(clippy::option_option, reason = "no bits are right, and wrong bits are another thing")]
fn present(node: Node, bits: &[u8]) -> Option<Option<&[u8]>> {
    if node.nulls == 0 {
        return Some(None);
    }
    let bits = bits.get(..node.length.div_ceil(8))?;
    let found = (0..node.length).filter(|&place| is_present(bits, place)).count();
    (found.checked_add(node.nulls)? == node.length).then_some(Some(bits))
}

/// Return the offsets of this many places, if they ascend up to `end` at most.
fn offsets(length: usize, places: &[u8], end: usize) -> Option<&[u8]> {
    if length == 0 && places.is_empty() {
        return Some(places);
    }
    let places = places.get(..length.checked_add(1)?.checked_mul(OFFSET_BYTES)?)?;
    let mut before = 0;
    for place in 0..=length {
        let offset = number_at(places, place)?;
        if offset < before || offset > end {
            return None;
        }
        before = offset;
    }
    Some(places)
}

/// Return one of a row of offsets; None for a negative one.
fn number_at(numbers: &[u8], place: usize) -> Option<usize> {
    let at = place * OFFSET_BYTES;
    let bytes = numbers.get(at..at + OFFSET_BYTES)?;
    usize::try_from(i32::from_le_bytes(bytes.try_into().ok()?)).ok()
}

/// Length of an array, and its number of nulls.
#[derive(Clone, Copy, Debug)]
struct Node {
    length: usize,
    nulls: usize,
}

/// Parsed description of a message.
struct Described<'a> {
    rows: usize,
    nodes: [Node; NODES],
    buffers: Vec<&'a [u8]>,
}

fn describe(payload: &[u8]) -> Option<Described<'_>> {
    let start = Flat(payload.get(..PREFIX_BYTES)?);
    let body_at = PREFIX_BYTES.checked_add(usize::try_from(start.u32_at(4)?).ok()?)?;
    if start.u32_at(0)? != CONTINUATION || body_at == PREFIX_BYTES || body_at % ALIGNMENT != 0 {
        return None;
    }
    let flat = Flat(payload.get(PREFIX_BYTES..body_at)?);
    let body = payload.get(body_at..)?;
    let message = flat.table(flat.followed(0)?)?;
    if !VERSIONS.contains(&message.u16(MESSAGE_VERSION)?)
        || message.u8(MESSAGE_HEADER_TYPE)? != HEADER_IS_BATCH
        || message.at(MESSAGE_METADATA).is_some()
        || message.number(MESSAGE_BODY_LENGTH)? != body.len()
    {
        return None;
    }
    let batch = flat.table(flat.followed(message.at(MESSAGE_HEADER)?)?)?;
    if batch.at(BATCH_COMPRESSION).is_some() || batch.at(BATCH_VARIADIC).is_some() {
        return None;
    }
    let nodes = batch.pairs(BATCH_NODES)?.into_iter().map(|(length, nulls)| Node { length, nulls });
    let nodes = nodes.collect::<Vec<_>>().try_into().ok()?;
    let pairs = batch.pairs(BATCH_BUFFERS)?;
    if pairs.len() != BUFFERS || pairs.iter().any(|(at, _)| at % ALIGNMENT != 0) {
        return None;
    }
    let buffers = pairs.into_iter().map(|(at, size)| body.get(at..at.checked_add(size)?));
    Some(Described { rows: batch.number(BATCH_LENGTH)?, nodes, buffers: buffers.collect::<Option<_>>()? })
}

/// A flatbuffer. Reads outside of it, and unaligned reads, fail.
#[derive(Clone, Copy)]
struct Flat<'a>(&'a [u8]);

impl<'a> Flat<'a> {
    fn bytes_at<const SIZE: usize>(self, at: usize) -> Option<[u8; SIZE]> {
        if !at.is_multiple_of(SIZE) {
            return None;
        }
        self.0.get(at..at.checked_add(SIZE)?)?.try_into().ok()
    }

    fn u32_at(self, at: usize) -> Option<u32> {
        self.bytes_at(at).map(u32::from_le_bytes)
    }

    fn u16_at(self, at: usize) -> Option<u16> {
        self.bytes_at(at).map(u16::from_le_bytes)
    }

    fn number_at(self, at: usize) -> Option<usize> {
        usize::try_from(i64::from_le_bytes(self.bytes_at(at)?)).ok()
    }

    /// Return the target of the reference at `at`.
    fn followed(self, at: usize) -> Option<usize> {
        let distance = usize::try_from(self.u32_at(at)?).ok()?;
        (distance > 0 && distance < self.0.len().checked_sub(at)?).then(|| at + distance)
    }

    fn table(self, at: usize) -> Option<Table<'a>> {
        let back = i32::from_le_bytes(self.bytes_at(at)?);
        let vtable = usize::try_from(i64::try_from(at).ok()? - i64::from(back)).ok()?;
        let vtable_bytes = usize::from(self.u16_at(vtable)?);
        if vtable_bytes % 2 != 0 || vtable.checked_add(vtable_bytes)? > self.0.len() {
            return None;
        }
        Some(Table { flat: self, at, vtable, vtable_bytes })
    }
}

struct Table<'a> {
    flat: Flat<'a>,
    at: usize,
    vtable: usize,
    vtable_bytes: usize,
}

impl Table<'_> {
    /// Return the position of a field; None if the table does not have it.
    fn at(&self, field: usize) -> Option<usize> {
        let place = 4 + 2 * field;
        if place + 2 > self.vtable_bytes {
            return None;
        }
        let distance = self.flat.u16_at(self.vtable + place)?;
        (distance != 0).then(|| self.at + usize::from(distance))
    }

    /// Return a number, 0 if the table does not have it; None if it is negative or cut off.
    fn number(&self, field: usize) -> Option<usize> {
        self.at(field).map_or(Some(0), |at| self.flat.number_at(at))
    }

    fn u16(&self, field: usize) -> Option<u16> {
        self.at(field).map_or(Some(0), |at| self.flat.u16_at(at))
    }

    fn u8(&self, field: usize) -> Option<u8> {
        self.at(field).map_or(Some(0), |at| self.flat.0.get(at).copied())
    }

    /// Return a list of pairs of numbers: nodes, or places of buffers.
    fn pairs(&self, field: usize) -> Option<Vec<(usize, usize)>> {
        let at = self.flat.followed(self.at(field)?)?;
        let count = usize::try_from(self.flat.u32_at(at)?).ok()?;
        if count > BUFFERS {
            return None;
        }
        let begins_at = at + 4;
        (0..count)
            .map(|number| begins_at + 16 * number)
            .map(|pair| Some((self.flat.number_at(pair)?, self.flat.number_at(pair + 8)?)))
            .collect()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Arrow's encoding of three records: ("k", "one", 1), (null, "", 2) and ("", null, 3). The first and the last have
    /// a header, "h" and "ä".
    const EXAMPLE: &[&str] = &[
        "ffffffffd801000014000000000000000c0016000600050008000c000c0000000003040018000000a000000000000000",
        "00000a0018000c00040008000a0000002c01000010000000030000000000000000000000110000000000000000000000",
        "010000000000000008000000000000001000000000000000180000000000000001000000000000002000000000000000",
        "010000000000000028000000000000001000000000000000380000000000000003000000000000004000000000000000",
        "000000000000000040000000000000001800000000000000580000000000000000000000000000005800000000000000",
        "100000000000000068000000000000000000000000000000680000000000000000000000000000006800000000000000",
        "0c0000000000000078000000000000000300000000000000800000000000000001000000000000008800000000000000",
        "0c0000000000000098000000000000000100000000000000000000000700000003000000000000000100000000000000",
        "030000000000000001000000000000000300000000000000000000000000000003000000000000000000000000000000",
        "020000000000000000000000000000000200000000000000000000000000000002000000000000000100000000000000",
        "0500000000000000000000000100000001000000010000006b0000000000000003000000000000000000000003000000",
        "03000000030000006f6e6500000000000100000000000000020000000000000003000000000000000000000001000000",
        "01000000020000000000000001000000030000000000000068c3a4000000000001000000000000000000000001000000",
        "01000000000000007800000000000000",
    ];

    pub fn example() -> Vec<u8> {
        let digits = EXAMPLE.concat();
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
    }

    fn replaced(from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut payload = example();
        let at = payload.windows(from.len()).rposition(|found| found == from).unwrap();
        payload[at..at + to.len()].copy_from_slice(to);
        payload
    }

    // The arrays, by their nodes.
    const KEY: usize = 0;
    const VALUE: usize = 1;
    const TIMES: usize = 2;
    const HEADERS: usize = 3;
    const HEADER: usize = 4;
    const NAME: usize = 5;
    const CONTENT: usize = 6;

    /// Return the example with another length and number of nulls in a node.
    fn with_node(node: usize, (length, nulls): (i64, i64)) -> Vec<u8> {
        let mut payload = example();
        let at = pair_at(NODES, node);
        payload[at..at + 16].copy_from_slice(&[length, nulls].map(i64::to_le_bytes).concat());
        payload
    }

    pub fn without_null_keys() -> Vec<u8> {
        with_node(KEY, (3, 0))
    }

    /// Return the position of a buffer's entry in the example: its start, and then its size.
    fn buffer_at(buffer: usize) -> usize {
        pair_at(BUFFERS, buffer)
    }

    /// Return the position of a pair in the example's list of `count` pairs. The lists begin with their length, and no
    /// two have the same.
    fn pair_at(count: usize, number: usize) -> usize {
        let count = u32::try_from(count).unwrap().to_le_bytes();
        let payload = example();
        let lists = (4..payload.len()).step_by(8).filter(|&at| payload[at..at + 4] == count).collect::<Vec<_>>();
        let [list] = lists[..] else { panic!("{lists:?}") };
        list + 4 + 16 * number
    }

    #[test]
    fn columns_are_found_where_they_lie() {
        let payload = example();
        let found = columns(&payload).unwrap();
        assert_eq!(found.rows, 3);
        assert_eq!(found.key.between(0, 3), b"k");
        assert_eq!((found.value.between(0, 1), found.value.between(1, 3)), (&b"one"[..], &b""[..]));
        assert_eq!((found.value.offset(0), found.value.offset(1), found.value.offset(3)), (0, 3, 3));
        let present =
            |texts: &Texts<'_>| (0..3).map(|place| is_present(texts.present.unwrap(), place)).collect::<Vec<_>>();
        assert_eq!(present(&found.key), [true, false, true]);
        assert_eq!(present(&found.value), [true, true, false]);
        assert_eq!(found.times, [1_i64, 2, 3].map(i64::to_le_bytes).concat());
    }

    #[test]
    fn offsets_that_fall_or_lead_outside_are_none() {
        let [good, falling, outside] = [[0, 1, 1, 1], [0, 1, 0, 1], [0, 1, 1, 4]]
            .map(|offsets: [i32; 4]| offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect::<Vec<u8>>());
        assert!(columns(&replaced(&good, &good)).is_some());
        assert!(columns(&replaced(&good, &falling)).is_none());
        assert!(columns(&replaced(&good, &outside)).is_none());
    }

    #[test]
    fn offsets_may_lead_to_the_very_end_and_no_further() {
        let [good, behind] =
            [[0, 1, 1, 1], [0, 1, 1, 2]].map(|offsets: [i32; 4]| offsets.map(i32::to_le_bytes).concat());
        assert!(columns(&replaced(&good, &behind)).is_none(), "the keys are one byte together");
    }

    #[test]
    fn an_array_of_nothing_needs_no_offsets() {
        assert_eq!(offsets(0, &[], 0), Some(&[][..]));
        assert_eq!(offsets(1, &[], 0), None);
    }

    #[test]
    fn headers_are_those_of_the_records() {
        let [good, falling, outside] =
            [[0, 1, 1, 2], [0, 1, 0, 2], [0, 1, 1, 3]].map(|offsets: [i32; 4]| offsets.map(i32::to_le_bytes).concat());
        assert!(columns(&replaced(&good, &good)).is_some());
        assert!(columns(&replaced(&good, &falling)).is_none());
        assert!(columns(&replaced(&good, &outside)).is_none(), "there are two");
    }

    #[test]
    fn arrays_are_as_long_as_those_beside_them() {
        // Without nulls, so that the bits are not checked.
        for (node, length) in [KEY, VALUE, TIMES, HEADERS, HEADER, NAME, CONTENT].into_iter().zip([3, 3, 3, 3, 2, 2, 2])
        {
            assert!(columns(&with_node(node, (length, 0))).is_some());
            for wrong in [length - 1, length + 1] {
                assert!(columns(&with_node(node, (wrong, 0))).is_none(), "{wrong} places in array {node}");
            }
        }
    }

    #[test]
    fn neither_times_nor_headers_nor_their_names_are_null() {
        for (node, length) in [(TIMES, 3), (HEADER, 2), (NAME, 2)] {
            let mut payload = with_node(node, (length, 1));
            // The validity bits of the keys, which have one null among the first two, and among all three.
            let bits = [0_i64, 1].map(i64::to_le_bytes).concat();
            let at = buffer_at(match node {
                TIMES => 6,
                HEADER => 10,
                _ => 11,
            });
            payload[at..at + bits.len()].copy_from_slice(&bits);
            assert!(columns(&payload).is_none(), "a null in array {node}");
        }
    }

    #[test]
    fn a_list_of_headers_is_null_only_where_bits_say_so() {
        assert!(columns(&with_node(HEADERS, (3, 1))).is_none());
    }

    #[test]
    fn buffers_are_aligned() {
        let mut payload = example();
        let empty_one = buffer_at(10);
        payload[empty_one..empty_one + 8].copy_from_slice(&4_i64.to_le_bytes());
        assert!(columns(&payload).is_none());
    }

    #[test]
    fn both_versions_of_the_format_are_read() {
        for (version, is_read) in [(2, false), (3, true), (4, true), (5, false)] {
            // The kind of the message, a batch, and then the version.
            assert_eq!(columns(&replaced(&[0, 3, 4, 0], &[0, 3, version, 0])).is_some(), is_read, "{version}");
        }
    }

    #[test]
    fn a_description_that_has_more_than_writers_put_there_is_none() {
        // Both vtables gain a field at the end. They begin two bytes earlier, where there is only padding.
        let of_batch = [0, 10, 24, 12, 4, 8, 10, 0].map(u16::to_le_bytes).concat();
        let with_compression = [12, 24, 12, 4, 8, 4, 12, 0].map(u16::to_le_bytes).concat();
        assert!(columns(&replaced(&of_batch, &with_compression)).is_none());
        let of_message = [0, 12, 22, 6, 5, 8, 12, 12, 0].map(u16::to_le_bytes).concat();
        let with_metadata = [14, 22, 6, 5, 8, 12, 8, 14, 0].map(u16::to_le_bytes).concat();
        assert!(columns(&replaced(&of_message, &with_metadata)).is_none());
    }

    #[test]
    fn names_of_headers_are_text() {
        assert!(columns(&replaced("hä".as_bytes(), "hö".as_bytes())).is_some());
        assert!(columns(&replaced("hä".as_bytes(), b"h\xc3h")).is_none());
        assert!(columns(&replaced("hä".as_bytes(), b"\xc3\xa4h")).is_none(), "the first one is a single byte long");
    }

    #[test]
    fn nulls_are_as_many_as_is_said() {
        let mut payload = example();
        // The key, at the beginning of the body, and its number of nulls, in the first of the nodes.
        let body_at = PREFIX_BYTES + 0x1d8;
        assert_eq!(payload[body_at], 0b101);
        payload[body_at] = 0b100;
        assert!(columns(&payload).is_none());
    }

    #[test]
    fn what_is_cut_off_or_goes_on_is_none() {
        let payload = example();
        assert!((0..payload.len()).all(|end| columns(&payload[..end]).is_none()));
        assert!(columns(&[payload, vec![0; 8]].concat()).is_none());
    }

    proptest! {
        #[test]
        fn whatever_is_damaged_is_judged(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            let mut payload = example();
            for (place, byte) in changes {
                let at = place.index(payload.len());
                payload[at] = byte;
            }
            if let Some(found) = columns(&payload) {
                prop_assert!(found.key.between(0, found.rows).len() <= payload.len());
                prop_assert_eq!(found.times.len(), found.rows * TIME_BYTES);
            }
        }

        #[test]
        fn whatever_comes_is_judged(payload in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(columns(&payload).is_none());
        }
    }
}
