//! Counts the records of a payload: parses the message `Records` of `log.proto` as protobuf does, without keeping any
//! of it. [`convert`](crate::convert) reads the fields with the same parser.
//!
//! Versions of protobuf disagree about some bytes that no writer makes. This parser counts those as no message, and the
//! caller then asks the installed protobuf.

/// Fields of `Records`, `Record` and `Header`.
pub const RECORDS: u32 = 1;
pub const HEADERS: u32 = 4;
pub const KEY: u32 = 1;

/// Maximum depth of nested groups in `Records` itself; one less in each message further in.
pub const GROUPS_MAX: u32 = 100;
const NUMBER_BYTES_MAX: u32 = 10;
const TAG_BYTES_MAX: u32 = 5;
/// Some versions accept more.
const SIZE_BYTES_MAX: u32 = 5;

pub enum Field<'a> {
    Bytes(u32, &'a [u8]),
    Number(u32, u64),
    GroupEnd(u32),
    Other,
}

/// Return the number of records in a payload; None if it is not such a message.
pub fn count(payload: &[u8]) -> Option<usize> {
    let mut count = 0;
    each_field(payload, GROUPS_MAX, |number, record| {
        if number == RECORDS {
            count += 1;
            each_field(record, GROUPS_MAX - 1, check_field_of_record)?;
        }
        Some(())
    })?;
    Some(count)
}

fn check_field_of_record(number: u32, header: &[u8]) -> Option<()> {
    if number == HEADERS { each_field(header, GROUPS_MAX - 2, check_field_of_header) } else { Some(()) }
}

fn check_field_of_header(number: u32, key: &[u8]) -> Option<()> {
    if number == KEY { std::str::from_utf8(key).ok().map(drop) } else { Some(()) }
}

/// Show the fields of a message that are bytes. A field of the wrong type counts as an unknown field.
fn each_field(message: &[u8], groups_max: u32, mut show: impl FnMut(u32, &[u8]) -> Option<()>) -> Option<()> {
    let mut rest = message;
    while !rest.is_empty() {
        match take_field(&mut rest, groups_max)? {
            Field::Bytes(number, content) => show(number, content)?,
            Field::GroupEnd(_) => return None,
            Field::Number(..) | Field::Other => {}
        }
    }
    Some(())
}

/// Take one field; None if the bytes do not begin with one.
pub fn take_field<'a>(rest: &mut &'a [u8], groups_max: u32) -> Option<Field<'a>> {
    let tag = u32::try_from(take_number(rest, TAG_BYTES_MAX)?).ok()?;
    let number = tag >> 3;
    if number == 0 {
        return None;
    }
    match tag & 7 {
        0 => take_number(rest, NUMBER_BYTES_MAX).map(|content| Field::Number(number, content)),
        1 => take(rest, 8).map(|_| Field::Other),
        2 => {
            let size = take_number(rest, SIZE_BYTES_MAX)?;
            take(rest, usize::try_from(size).ok()?).map(|content| Field::Bytes(number, content))
        }
        3 => take_group(rest, number, groups_max).map(|()| Field::Other),
        4 => Some(Field::GroupEnd(number)),
        5 => take(rest, 4).map(|_| Field::Other),
        _ => None,
    }
}

fn take_group(rest: &mut &[u8], number: u32, groups_max: u32) -> Option<()> {
    let further_in = groups_max.checked_sub(1)?;
    loop {
        if let Field::GroupEnd(ended) = take_field(rest, further_in)? {
            return (ended == number).then_some(());
        }
    }
}

fn take_number(rest: &mut &[u8], bytes_max: u32) -> Option<u64> {
    let mut number = 0;
    for place in 0..bytes_max {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(number);
        }
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

    /// Return a field that is bytes. Its size takes two.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let [low, high] = [content.len() % 128, content.len() / 128].map(|part| u8::try_from(part).unwrap());
        [&[number << 3 | 2, 0x80 | low, high], content].concat()
    }

    fn record(content: &[u8]) -> Vec<u8> {
        field(1, content)
    }

    fn groups(depth: usize) -> Vec<u8> {
        [vec![0x1b; depth], vec![0x1c; depth]].concat()
    }

    #[test]
    fn records_are_counted_whatever_they_hold() {
        let header = field(4, &[field(1, "ä".as_bytes()), field(2, &[0xff])].concat());
        let full = [field(1, b"key"), field(2, &[0xff]), vec![0x18, 5], header, vec![0x28, 1]].concat();
        assert_eq!(count(&[]), Some(0));
        assert_eq!(count(&[record(&full), record(&[])].concat()), Some(2));
    }

    #[test]
    fn what_a_newer_writer_adds_is_passed_over() {
        let unknown =
            [&[0x38, 1][..], &[0x39, 0, 0, 0, 0, 0, 0, 0, 0], &[0x3d, 0, 0, 0, 0], &field(7, b"x"), &[0x3b, 0x3c]];
        let unknown = unknown.concat();
        assert_eq!(count(&[record(&unknown), unknown].concat()), Some(1));
    }

    #[test]
    fn a_number_may_take_more_bytes_than_it_needs_and_no_end_of_them() {
        assert_eq!(count(&[0x8a, 0x80, 0x80, 0x80, 0, 0]), Some(1));
        assert_eq!(count(&[0x8a, 0x80, 0x80, 0x80, 0x80, 0, 0]), None);
        assert_eq!(count(&[0x8a, 0x80, 0x80, 0x80, 0x10, 0]), None, "a tag of 33 bits");
        assert_eq!(count(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0]), Some(1));
        assert_eq!(count(&[0x0a, 0x80, 0x80, 0x80, 0x80, 0x80, 0]), None);
        assert_eq!(count(&record(&[&[0x18][..], &[0xff; 9], &[0x7f]].concat())), Some(1));
        assert_eq!(count(&record(&[&[0x18][..], &[0x80; 10], &[0]].concat())), None);
    }

    #[test]
    fn names_of_headers_are_text() {
        let named = |name: &[u8]| record(&field(4, &field(1, name)));
        assert_eq!(count(&named(b"\xf4\x8f\xbf\xbf")), Some(1));
        for no_text in [&b"\xff"[..], b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x82"] {
            assert_eq!(count(&named(no_text)), None);
        }
    }

    #[test]
    fn groups_end_as_they_began_and_are_not_deep() {
        assert_eq!((count(&groups(100)), count(&groups(101))), (Some(0), None));
        assert_eq!((count(&record(&groups(99))), count(&record(&groups(100)))), (Some(1), None));
        assert_eq!(count(&[0x1b, 0x24]), None);
        assert_eq!(count(&[0x1b]), None);
        assert_eq!(count(&[0x1c]), None);
        assert_eq!(count(&[0x1b, 0, 0, 0x1c]), None, "no field is number 0");
    }

    proptest! {
        #[test]
        fn what_is_cut_off_is_no_message_or_holds_fewer(sizes in vec(0..100_usize, 1..20), cut in 1..1_000_usize) {
            let whole: Vec<u8> = sizes.iter().flat_map(|&size| record(&field(2, &vec![7; size]))).collect();
            prop_assert_eq!(count(&whole), Some(sizes.len()));
            let left = whole.len().saturating_sub(cut);
            prop_assert!(count(&whole[..left]).is_none_or(|found| found < sizes.len()));
        }

        #[test]
        fn whatever_comes_is_judged(payload in vec(any::<u8>(), 0..200)) {
            prop_assert!(count(&payload).is_none_or(|found| 2 * found <= payload.len()));
        }
    }
}
