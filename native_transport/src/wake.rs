//! The waker of Python's event loop: one descriptor that becomes readable. An eventfd on Linux, elsewhere a pipe.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A descriptor that is readable after `ring`, until `clear`.
pub struct Bell {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Bell {
    #[cfg(target_os = "linux")]
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let reader = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let writer = reader.try_clone()?;
        Ok(Self { reader, writer })
    }

    #[cfg(not(target_os = "linux"))]
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = rustix::pipe::pipe()?;
        for end in [&reader, &writer] {
            rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(end, true)?;
        }
        Ok(Self { reader, writer })
    }

    /// Return the descriptor that the event loop watches.
    pub fn descriptor(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Make it readable. Fails only if it is full, and then it is readable already.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.writer, &1_u64.to_ne_bytes());
    }

    /// Make it unreadable. One read is enough: it is rung at most once between two looks of Python.
    pub fn clear(&self) {
        let mut buffer = [0_u8; 64];
        let _ = rustix::io::read(&self.reader, &mut buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_readable(bell: &Bell) -> bool {
        let mut buffer = [0_u8; 8];
        let read = rustix::io::read(&bell.reader, &mut buffer);
        read.is_ok_and(|bytes| bytes > 0)
    }

    #[test]
    fn it_is_readable_from_ring_to_clear() {
        let bell = Bell::new().unwrap();
        assert!(!is_readable(&bell));
        bell.ring();
        assert!(is_readable(&bell));
        bell.ring();
        bell.ring();
        bell.clear();
        assert!(!is_readable(&bell));
    }
}
