//! Bytes that Python gives to be sent, in the pieces that it has them in. Stored batches are sent from the buffer they
//! were read into.
//!
//! Each piece becomes frames of HTTP/2 of its own. So only large ones stay in place; small ones between them are
//! joined.

use bytes::{Bytes, BytesMut};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

/// Size from which on Python's bytes stay in place; smaller ones are copied.
pub const COPIED_BYTES_MAX: usize = 32 * 1024;

/// The bytes of an answer, one piece after the other. Most answers have one.
#[derive(Debug, Default)]
pub struct Pieces {
    first: Bytes,
    others: Vec<Bytes>,
}

impl Pieces {
    /// Convert `bytes`, or a list of `bytes` and of views. Views of anything but `bytes` are copied.
    pub fn from_python(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Ok(list) = given.cast::<PyList>() else {
            return Ok(bytes_of(given.clone().cast_into::<PyBytes>()?).into());
        };
        let mut gathered = Gathered::default();
        for piece in list.iter() {
            gathered.add(&piece)?;
        }
        Ok(gathered.into_pieces())
    }

    pub fn len(&self) -> usize {
        self.first.len() + self.others.iter().map(Bytes::len).sum::<usize>()
    }

    /// Return all of it, copied if it is more than one piece.
    pub fn joined(self) -> Bytes {
        if self.others.is_empty() {
            return self.first;
        }
        self.into_iter()
            .fold(BytesMut::new(), |mut whole, piece| {
                whole.extend_from_slice(&piece);
                whole
            })
            .freeze()
    }

    /// Return the last piece, which HTTP/2 drops after all others.
    pub fn last_mut(&mut self) -> &mut Bytes {
        self.others.last_mut().unwrap_or(&mut self.first)
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        Self { first: bytes, others: Vec::new() }
    }
}

impl IntoIterator for Pieces {
    type Item = Bytes;
    type IntoIter = std::iter::Chain<std::iter::Once<Bytes>, std::vec::IntoIter<Bytes>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.others)
    }
}

/// Pieces as they are found: large ones, and small ones that wait to be joined.
#[derive(Default)]
struct Gathered {
    pieces: Vec<Bytes>,
    small: BytesMut,
}

impl Gathered {
    fn add(&mut self, piece: &Bound<'_, PyAny>) -> PyResult<()> {
        if let Ok(bytes) = piece.cast::<PyBytes>() {
            self.add_part_of(bytes, bytes.as_bytes());
            return Ok(());
        }
        let view = PyBuffer::<u8>::get(piece)?;
        let owner = piece.getattr("obj")?;
        let owner = owner.cast::<PyBytes>().ok().filter(|_| view.is_c_contiguous());
        let part = owner.and_then(|owner| viewed(owner.as_bytes(), view.buf_ptr() as usize, view.len_bytes()));
        match (owner, part) {
            (Some(owner), Some(part)) => self.add_part_of(owner, part),
            // Copied: its owner might change it, or be freed.
            _ => self.small.extend_from_slice(&view.to_vec(piece.py())?),
        }
        Ok(())
    }

    /// The owner of a large part returns to Python during some later call of this module.
    fn add_part_of(&mut self, owner: &Bound<'_, PyBytes>, part: &[u8]) {
        if part.len() < COPIED_BYTES_MAX {
            self.small.extend_from_slice(part);
            return;
        }
        self.end_small();
        self.pieces.push(Bytes::from_owner(PyBackedBytes::from(owner.clone())).slice_ref(part));
    }

    fn end_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }

    fn into_pieces(mut self) -> Pieces {
        self.end_small();
        let mut pieces = self.pieces.into_iter();
        let first = pieces.next().unwrap_or_default();
        Pieces { first, others: pieces.collect() }
    }
}

/// Return the same bytes for the I/O thread. Large ones stay in place, and return to Python during some later call of
/// this module. For small ones that costs more than a copy.
pub fn bytes_of(body: Bound<'_, PyBytes>) -> Bytes {
    if body.as_bytes().len() < COPIED_BYTES_MAX {
        Bytes::copy_from_slice(body.as_bytes())
    } else {
        Bytes::from_owner(PyBackedBytes::from(body))
    }
}

/// Return the bytes of `owner` that a view at this address shows; None if they are not its own.
pub fn viewed(owner: &[u8], address: usize, size: usize) -> Option<&[u8]> {
    let start = address.checked_sub(owner.as_ptr() as usize)?;
    owner.get(start..start.checked_add(size)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(sizes: &[usize]) -> Pieces {
        let mut all =
            sizes.iter().enumerate().map(|(place, &size)| Bytes::from(vec![b'a' + u8::try_from(place).unwrap(); size]));
        let first = all.next().unwrap_or_default();
        Pieces { first, others: all.collect() }
    }

    #[test]
    fn pieces_are_joined_in_their_order() {
        assert_eq!(pieces(&[1, 2, 3]).joined(), "abbccc");
        assert_eq!(pieces(&[1, 2, 3]).len(), 6);
        assert_eq!((Pieces::default().len(), Pieces::default().joined()), (0, Bytes::new()));
    }

    #[test]
    fn one_piece_stays_where_it_is() {
        let bytes = Bytes::from(vec![7; 9]);
        assert_eq!(Pieces::from(bytes.clone()).joined().as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn the_last_piece_is_the_last_to_leave() {
        assert_eq!(pieces(&[3]).last_mut(), "aaa");
        assert_eq!(pieces(&[3, 2]).last_mut(), "bb");
    }

    #[test]
    fn a_view_shows_bytes_of_its_owner_and_no_others() {
        let owner = b"0123456789";
        let address = owner.as_ptr() as usize;
        assert_eq!(viewed(owner, address + 3, 4), Some(&b"3456"[..]));
        assert_eq!(viewed(owner, address, 10), Some(&owner[..]));
        assert_eq!(viewed(owner, address + 10, 0), Some(&b""[..]));
        assert_eq!(viewed(owner, address + 7, 4), None);
        assert_eq!(viewed(owner, address - 1, 1), None);
        assert_eq!(viewed(owner, address, usize::MAX), None);
    }
}
