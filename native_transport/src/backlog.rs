//! The lead of a connection over Python. A connection with many waiting calls is not read until some were taken. TCP
//! then slows down a caller that sends more than is taken, and its frames take no time from the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Waiting calls of one connection at which it is not read any more. One read may bring some more.
const WAITING_MAX: usize = 256;

/// Calls that one connection has begun.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Calls that HTTP/2 let through since the last `take_served`.
    served: AtomicUsize,
    /// Unauthenticated calls since the last `take_refused`.
    refused: AtomicUsize,
    /// Calls that wait for Python.
    waiting: AtomicUsize,
    reader: AtomicWaker,
}

impl Backlog {
    /// Count a call that HTTP/2 let through.
    pub fn serve(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// Return the number of calls let through since the last call of this.
    pub fn take_served(&self) -> usize {
        self.served.swap(0, Ordering::Relaxed)
    }

    /// Count an unauthenticated call.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Return the number of unauthenticated calls since the last call of this.
    pub fn take_refused(&self) -> usize {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// Count one more waiting call.
    pub fn enter(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// Count one waiting call less. Callable on any thread.
    pub fn leave(&self) {
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == WAITING_MAX {
            self.reader.wake();
        }
    }

    /// Ready once the connection may be read.
    pub fn poll_capacity(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_capacity() {
            return Poll::Ready(());
        }
        self.reader.register(cx.waker());
        // Checked again: a call may have left before the waker was registered.
        if self.has_capacity() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_capacity(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) < WAITING_MAX
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_connection_is_read_again_once_a_call_was_taken() {
        let (backlog, woken) = (Backlog::default(), Arc::<Woken>::default());
        let waker = Waker::from(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        for _ in 0..WAITING_MAX {
            assert!(backlog.poll_capacity(&cx).is_ready());
            backlog.enter();
        }
        backlog.enter();
        assert!(backlog.poll_capacity(&cx).is_pending());
        backlog.leave();
        assert!(!woken.0.load(Ordering::SeqCst));
        backlog.leave();
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(backlog.poll_capacity(&cx).is_ready());
    }
}
