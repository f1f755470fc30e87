//! Clients of Kafka's protocol on a port for gRPC, recognised by the first bytes of their connection.

/// Size, key and version of a request: its first fields, all big-endian.
const START_BYTES: usize = 8;
/// Largest first request. It asks for versions or metadata.
const SIZE_MAX: u32 = 1 << 20;
/// Smallest request: a header without a client id.
const SIZE_MIN: u32 = 8;
const API_KEY_MAX: u16 = 100;
const API_VERSION_MAX: u16 = 20;

/// The first bytes of a connection.
#[derive(Debug, Default)]
pub struct FirstBytes {
    seen: [u8; START_BYTES],
    filled: usize,
}

impl FirstBytes {
    /// Look at the next bytes; true once they complete the beginning of a request of Kafka's protocol.
    pub fn are_kafka(&mut self, bytes: &[u8]) -> bool {
        let taken = bytes.len().min(START_BYTES - self.filled);
        if taken == 0 {
            return false;
        }
        self.seen[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        self.filled == START_BYTES && is_kafka(self.seen)
    }
}

fn is_kafka(seen: [u8; START_BYTES]) -> bool {
    let [a, b, c, d, key @ .., version_high, version_low] = seen;
    let (size, key) = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes(key));
    let version = u16::from_be_bytes([version_high, version_low]);
    (SIZE_MIN..=SIZE_MAX).contains(&size) && key <= API_KEY_MAX && version <= API_VERSION_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ApiVersions` in version 4, as a Java client begins.
    const KAFKA: [u8; 12] = [0, 0, 0, 40, 0, 18, 0, 4, 0, 0, 0, 1];

    #[test]
    fn a_request_of_kafka_is_one_however_its_bytes_are_cut() {
        for cut in 0..KAFKA.len() {
            let mut first = FirstBytes::default();
            let found = [first.are_kafka(&KAFKA[..cut]), first.are_kafka(&KAFKA[cut..])];
            assert_eq!(found.iter().filter(|each| **each).count(), 1, "{cut}");
        }
    }

    #[test]
    fn later_bytes_are_not_looked_at() {
        let mut first = FirstBytes::default();
        assert!(!first.are_kafka(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        assert!(!first.are_kafka(&KAFKA));
    }

    #[test]
    fn other_protocols_are_none() {
        let others: [&[u8]; 5] = [
            b"GET / HTTP/1.1\r\n",
            &[0x16, 3, 1, 2, 0, 1, 0, 1],
            &[0, 0, 0, 40, 0, 101, 0, 4],
            &[0, 0, 0, 40, 0, 18, 0, 21],
            &[0, 0, 0, 7, 0, 18, 0, 4],
        ];
        for other in others {
            assert!(!FirstBytes::default().are_kafka(other));
        }
    }
}
