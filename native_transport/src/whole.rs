//! A large reply on its way out: HTTP/2 sends its bytes from Python's buffer. (tonic would copy them into a buffer of
//! its own.)
//!
//! Source: gRPC over HTTP/2, "Length-Prefixed-Message" and "Trailers".

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body::Frame;

use crate::pieces::Pieces;

const PREFIX_BYTES: usize = 5;
const IS_COMPRESSED: u8 = 0;
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const OK: HeaderValue = HeaderValue::from_static("0");

/// The body of a response with one message that ended well.
#[derive(Clone, Debug)]
pub struct Whole {
    left: VecDeque<Bytes>,
    has_ended: bool,
}

impl Whole {
    /// Return the body; None if it has more bytes than a message can have.
    pub fn new(message: Pieces) -> Option<Self> {
        let size = u32::try_from(message.len()).ok()?;
        let mut prefix = BytesMut::with_capacity(PREFIX_BYTES);
        prefix.put_u8(IS_COMPRESSED);
        prefix.put_u32(size);
        let left = std::iter::once(prefix.freeze()).chain(message).collect();
        Some(Self { left, has_ended: false })
    }

    fn next(&mut self) -> Option<Frame<Bytes>> {
        if let Some(bytes) = self.left.pop_front() {
            return Some(Frame::data(bytes));
        }
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        Some(Frame::trailers(HeaderMap::from_iter([(STATUS, OK)])))
    }
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_its_length_itself_and_a_good_end() {
        let message = Bytes::from(vec![7; 0x0001_0203]);
        let mut whole = Whole::new(message.clone().into()).unwrap();
        assert_eq!(whole.next().unwrap().into_data().unwrap(), &[0, 0, 1, 2, 3][..]);
        let sent = whole.next().unwrap().into_data().unwrap();
        assert_eq!((sent.as_ptr(), sent.len()), (message.as_ptr(), message.len()), "it is not copied");
        assert!(!http_body::Body::is_end_stream(&whole));
        assert_eq!(whole.next().unwrap().into_trailers().unwrap()["grpc-status"], "0");
        assert!(http_body::Body::is_end_stream(&whole));
        assert!(whole.next().is_none());
    }
}
