//! How far a connection is ahead of Python. One with many calls that wait is not read until some were taken: so whoever
//! sends more than is taken is held up by TCP, and its frames take no time from the others.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Calls of one connection that wait, beyond which it is not read. One read may bring some more.
const WAITING_MAX: usize = 256;

/// What one connection has begun.
#[derive(Debug, Default)]
pub struct Backlog {
    /// Calls that HTTP/2 let through, since they were last looked at.
    served: AtomicUsize,
    /// Calls of nobody that is known, since they were last looked at.
    refused: AtomicUsize,
    /// Calls that wait for Python.
    waiting: AtomicUsize,
    reader: AtomicWaker,
}

impl Backlog {
    /// HTTP/2 let a call through.
    pub fn serve(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// How many calls were let through since this was asked last.
    pub fn take_served(&self) -> usize {
        self.served.swap(0, Ordering::Relaxed)
    }

    /// Nobody knows who made a call.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// How many such calls there were since this was asked last.
    pub fn take_refused(&self) -> usize {
        self.refused.swap(0, Ordering::Relaxed)
    }

    /// One more call waits.
    pub fn enter(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    /// A call does not wait any more. On any thread.
    pub fn leave(&self) {
        if self.waiting.fetch_sub(1, Ordering::SeqCst) == WAITING_MAX {
            self.reader.wake();
        }
    }

    /// Ready once the connection may be read.
    pub fn poll_room(&self, cx: &Context<'_>) -> Poll<()> {
        if self.has_room() {
            return Poll::Ready(());
        }
        self.reader.register(cx.waker());
        // Room that was made before there was somebody to wake.
        if self.has_room() { Poll::Ready(()) } else { Poll::Pending }
    }

    fn has_room(&self) -> bool {
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
            assert!(backlog.poll_room(&cx).is_ready());
            backlog.enter();
        }
        backlog.enter();
        assert!(backlog.poll_room(&cx).is_pending());
        backlog.leave();
        assert!(!woken.0.load(Ordering::SeqCst));
        backlog.leave();
        assert!(woken.0.load(Ordering::SeqCst));
        assert!(backlog.poll_room(&cx).is_ready());
    }
}
