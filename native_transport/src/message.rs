//! Writes a protobuf message, field by field, in protobuf's own order: by number.

use bytes::BufMut;

const VARINT: u32 = 0;
const SIZED: u32 = 2;
const TYPE_BITS: u32 = 3;

/// A message being written. A field that is zero or empty is left out, as in proto3, except for those of `present`.
pub struct Message(Vec<u8>);

impl Message {
    pub fn with_room(size_bytes: usize) -> Self {
        Self(Vec::with_capacity(size_bytes))
    }

    /// Write a field of type `uint32` or `uint64`.
    pub fn unsigned(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.present(field, value);
        }
    }

    /// Write a field of type `int32` or `int64`.
    pub fn plain(&mut self, field: u32, value: i64) {
        self.unsigned(field, value.cast_unsigned());
    }

    /// Write a field of type `sint32` or `sint64`.
    pub fn signed(&mut self, field: u32, value: i64) {
        self.unsigned(field, zigzag(value));
    }

    /// Write a number in its encoded form, even if it is zero: for a field that is `optional`, and set.
    pub fn present(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        put_varint(&mut self.0, value);
    }

    /// Write a field of type `bytes` or `string`.
    pub fn content(&mut self, field: u32, content: &[u8]) {
        if !content.is_empty() {
            self.element(field, content);
        }
    }

    /// Write one element of a `repeated` field of type `bytes` or `string`.
    pub fn element(&mut self, field: u32, content: &[u8]) {
        self.tag(field, SIZED);
        put_varint(&mut self.0, content.len() as u64);
        self.0.put_slice(content);
    }

    /// Write all numbers of a field that is `repeated uint32`.
    pub fn packed(&mut self, field: u32, values: impl Iterator<Item = u32>) {
        let mut numbers = Vec::new();
        values.for_each(|value| put_varint(&mut numbers, value.into()));
        self.content(field, &numbers);
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        put_varint(&mut self.0, (field << TYPE_BITS | wire_type).into());
    }
}

/// Encode numbers near zero as small ones, negative or not.
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> (i64::BITS - 1)).cast_unsigned()
}

fn put_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        bytes.put_u8(lowest(value) | 0x80);
        value >>= 7;
    }
    bytes.put_u8(lowest(value));
}

fn lowest(value: u64) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::with_room(0);
        write(&mut message);
        message.as_bytes().to_vec()
    }

    #[test]
    fn what_is_zero_or_empty_is_left_out_unless_it_must_be_there() {
        assert_eq!(
            written(|message| {
                message.unsigned(1, 0);
                message.plain(2, 0);
                message.signed(3, 0);
                message.content(4, b"");
                message.packed(5, [].into_iter());
            }),
            b""
        );
        assert_eq!(written(|message| message.present(20, 0)), [0xa0, 1, 0]);
        assert_eq!(written(|message| message.element(1, b"")), [0x0a, 0]);
    }

    #[test]
    fn numbers_are_written_as_their_types_say() {
        assert_eq!(written(|message| message.unsigned(1, 300)), [8, 0xac, 2]);
        assert_eq!(written(|message| message.plain(1, -1)), [&[8][..], &[0xff; 9], &[1]].concat());
        assert_eq!(written(|message| message.signed(1, -1)), [8, 1]);
        assert_eq!(written(|message| message.packed(1, [0, 1, 128].into_iter())), [0x0a, 4, 0, 1, 0x80, 1]);
    }

    #[test]
    fn numbers_near_zero_become_small_ones() {
        assert_eq!([0, -1, 1, -2].map(zigzag), [0, 1, 2, 3]);
        assert_eq!([i64::MAX, i64::MIN].map(zigzag), [u64::MAX - 1, u64::MAX]);
    }
}
