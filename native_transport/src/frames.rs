//! Flood protection: a peer's traffic is watched frame by frame, and a peer that causes much work without calls is cut.
//!
//! HTTP/2 bounds the streams that are open at once and the bytes in flight. Neither stops a peer that resets each
//! stream as soon as it is open, or sends pings endlessly. A peer may send a number of such frames at once. It earns
//! more as time passes, as it reads the server's bytes, and as it sends requests. That covers the window updates and
//! pings of an honest reader.

use tokio::time::Instant;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;

/// Reason for which a peer is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// Calls without their requests, beyond the number that may be open at once.
    Unfinished,
    /// Calls that were begun while the maximum number was open.
    Refused,
    /// Unauthenticated calls.
    Unknown,
    /// Streams that were reset.
    Resets,
    /// Frames that carry no call: pings, settings, priorities, windows, empty data, pieces of headers.
    Control,
}

/// Number of frames of one kind that may arrive.
#[derive(Clone, Copy, Debug)]
pub struct Allowance {
    pub at_once: u32,
    pub per_second: u32,
}

/// A caller with short deadlines resets as many streams as it opens; a server answers many more calls than this.
const RESETS: Allowance = Allowance { at_once: 2_000, per_second: 1_000 };
const CONTROLS: Allowance = Allowance { at_once: 10_000, per_second: 2_000 };
/// Bytes sent to the peer that allow it one more frame. Windows are opened in larger steps.
const BYTES_PER_CONTROL: usize = 512;
/// Additional frames for each piece of a request. For an answer of any size, gRPC's own client opens the windows of its
/// call and of the connection again. Other clients send a ping besides.
const CONTROLS_PER_DATA: usize = 4;

/// Calls without their requests, in addition to those that may be open at once. A call that the server ended first is
/// never finished.
const UNFINISHED: Allowance = Allowance { at_once: 500, per_second: 100 };

/// Calls that were not served: HTTP/2 refuses them while the maximum number is open. A peer that has read the server's
/// settings begins none. But as many calls as fit into one read are seen here before the first of them is served.
const REFUSED: Allowance = Allowance { at_once: 4_000, per_second: 100 };

/// Unauthenticated calls, for example of a client that lost its token and has not noticed yet.
const UNKNOWN: Allowance = Allowance { at_once: 200, per_second: 10 };

/// Remaining part of an allowance.
#[derive(Debug)]
struct Left {
    allowance: Allowance,
    frames: u32,
    since: Instant,
}

impl Left {
    fn new(allowance: Allowance, now: Instant) -> Self {
        Self { allowance, frames: allowance.at_once, since: now }
    }

    /// Use up one frame; true if it is allowed.
    fn takes(&mut self, now: Instant) -> bool {
        if self.frames == 0 {
            let earned = (now - self.since).saturating_mul(self.allowance.per_second).as_secs();
            if earned == 0 {
                return false;
            }
            self.since = now;
            self.add(usize::try_from(earned).unwrap_or(usize::MAX));
        }
        self.frames -= 1;
        true
    }

    fn add(&mut self, frames: usize) {
        let frames = u32::try_from(frames).unwrap_or(u32::MAX);
        self.frames = self.frames.saturating_add(frames).min(self.allowance.at_once);
    }
}

/// Part of the connection that the next byte belongs to.
#[derive(Debug)]
enum Place {
    Preface(usize),
    Header {
        bytes: [u8; HEADER_BYTES],
        filled: usize,
    },
    Payload(usize),
    /// Bytes that are not HTTP/2; their parser reports that.
    Unknown,
}

/// Watches the traffic from one peer.
#[derive(Debug)]
pub struct Watch {
    place: Place,
    resets: Left,
    controls: Left,
    unfinished: Left,
    refused: Left,
    unknown: Left,
    frames: usize,
    sent_bytes: usize,
}

impl Watch {
    /// Return the watch of a peer that may have this many streams open.
    pub fn new(streams_max: u32, now: Instant) -> Self {
        let (resets, controls) = (Left::new(RESETS, now), Left::new(CONTROLS, now));
        let at_once = UNFINISHED.at_once.saturating_add(streams_max);
        let unfinished = Left::new(Allowance { at_once, ..UNFINISHED }, now);
        let (refused, unknown) = (Left::new(REFUSED, now), Left::new(UNKNOWN, now));
        Self { place: Place::Preface(0), resets, controls, unfinished, refused, unknown, frames: 0, sent_bytes: 0 }
    }

    /// Return the number of frames since the last call of this.
    pub fn take_frames(&mut self) -> usize {
        std::mem::take(&mut self.frames)
    }

    /// Count bytes that were sent to the peer.
    pub fn sent(&mut self, bytes: usize) {
        self.sent_bytes += bytes;
        if self.sent_bytes >= BYTES_PER_CONTROL {
            self.controls.add(self.sent_bytes / BYTES_PER_CONTROL);
            self.sent_bytes %= BYTES_PER_CONTROL;
        }
    }

    /// Count calls of the peer that were not refused.
    pub fn served(&mut self, calls: usize) {
        self.refused.add(calls);
    }

    /// Count unauthenticated calls; return a flood if the peer must be cut.
    pub fn unknown(&mut self, calls: usize, now: Instant) -> Option<Flood> {
        (!(0..calls).all(|_| self.unknown.takes(now))).then_some(Flood::Unknown)
    }

    /// Look at the next bytes from the peer; return the reason if the peer must be cut.
    pub fn received(&mut self, mut bytes: &[u8], now: Instant) -> Option<Flood> {
        while !bytes.is_empty() {
            let taken = match &mut self.place {
                Place::Unknown => return None,
                Place::Payload(left) => {
                    let taken = bytes.len().min(*left);
                    *left -= taken;
                    taken
                }
                Place::Preface(seen) => {
                    let taken = bytes.len().min(PREFACE.len() - *seen);
                    if bytes[..taken] != PREFACE[*seen..*seen + taken] {
                        self.place = Place::Unknown;
                        return None;
                    }
                    *seen += taken;
                    taken
                }
                Place::Header { bytes: header, filled } => {
                    let taken = bytes.len().min(HEADER_BYTES - *filled);
                    header[*filled..*filled + taken].copy_from_slice(&bytes[..taken]);
                    *filled += taken;
                    taken
                }
            };
            bytes = &bytes[taken..];
            if let Some(flood) = self.step(now) {
                return Some(flood);
            }
        }
        None
    }

    /// Go on to the next part of the connection where one is complete.
    fn step(&mut self, now: Instant) -> Option<Flood> {
        let next = Place::Header { bytes: [0; HEADER_BYTES], filled: 0 };
        match self.place {
            Place::Preface(seen) if seen == PREFACE.len() => self.place = next,
            Place::Payload(0) => self.place = next,
            Place::Header { bytes, filled: HEADER_BYTES } => {
                let length = usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
                self.place = if length == 0 { next } else { Place::Payload(length) };
                return self.judge(bytes[3], bytes[4], length, now);
            }
            _ => {}
        }
        None
    }

    fn judge(&mut self, kind: u8, flags: u8, length: usize, now: Instant) -> Option<Flood> {
        self.frames += 1;
        let (is_answer, is_end) = (flags & ACK != 0, flags & END_STREAM != 0);
        if kind == DATA && length > 0 {
            self.controls.add(CONTROLS_PER_DATA);
        }
        match kind {
            HEADERS if !self.refused.takes(now) => Some(Flood::Refused),
            HEADERS if is_end => None,
            HEADERS => (!self.unfinished.takes(now)).then_some(Flood::Unfinished),
            DATA if is_end => {
                self.unfinished.add(1);
                None
            }
            DATA if length > 0 => None,
            SETTINGS | PING if is_answer => None,
            RST_STREAM => {
                self.unfinished.add(1);
                (!self.resets.takes(now)).then_some(Flood::Resets)
            }
            _ => (!self.controls.takes(now)).then_some(Flood::Control),
        }
    }
}

/// Looks for the frame by which HTTP/2 ends a connection whose peer has broken its rules, or asked it for more than it
/// takes. Examples are endless header fields, or a request in a great many small pieces.
#[derive(Debug, Default)]
pub struct Farewell {
    begun: [u8; FAREWELL_BYTES],
    filled: usize,
    payload_left: usize,
}

const GOAWAY: u8 = 7;
/// The header of such a frame, the last stream and the reason, which is 0 if nothing is wrong.
const FAREWELL_BYTES: usize = HEADER_BYTES + 8;

impl Farewell {
    /// Look at the next bytes to the peer; true if such a frame is among them.
    pub fn is_in(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_found = false;
        while !bytes.is_empty() {
            let is_goaway = self.filled >= HEADER_BYTES && self.begun[3] == GOAWAY;
            let wanted = if is_goaway { FAREWELL_BYTES } else { HEADER_BYTES };
            if self.payload_left > 0 {
                let taken = bytes.len().min(self.payload_left);
                self.payload_left -= taken;
                bytes = &bytes[taken..];
                continue;
            }
            let taken = bytes.len().min(wanted - self.filled);
            self.begun[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled < wanted || (!is_goaway && self.begun[3] == GOAWAY) {
                continue;
            }
            let length =
                usize::from(self.begun[0]) << 16 | usize::from(self.begun[1]) << 8 | usize::from(self.begun[2]);
            is_found |= is_goaway && self.begun[FAREWELL_BYTES - 4..] != [0; 4];
            self.payload_left = length.saturating_sub(wanted - HEADER_BYTES);
            self.filled = 0;
        }
        is_found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::{Strategy, any, prop_oneof};
    use proptest::sample::Index;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    const STREAMS_MAX: u32 = 100;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
        bytes.extend_from_slice(payload);
        bytes
    }

    fn watch() -> (Watch, Instant) {
        let now = Instant::now();
        let mut watch = Watch::new(STREAMS_MAX, now);
        assert_eq!(watch.received(PREFACE, now), None);
        (watch, now)
    }

    #[test]
    fn resets_beyond_the_allowance_are_a_flood() {
        let (mut watch, now) = watch();
        let reset = frame(RST_STREAM, 0, &[0; 4]);
        for _ in 0..RESETS.at_once {
            assert_eq!(watch.received(&reset, now), None);
        }
        assert_eq!(watch.received(&reset, now), Some(Flood::Resets));
    }

    #[test]
    fn an_allowance_grows_with_time_up_to_what_may_come_at_once() {
        let now = Instant::now();
        let mut left = Left::new(Allowance { at_once: 5, per_second: 1_000 }, now);
        let mut count = |now| (0..20).take_while(|_| left.takes(now)).count();
        assert_eq!(count(now), 5);
        assert_eq!(count(now + Duration::from_millis(3)), 3);
        assert_eq!(count(now + Duration::from_secs(9)), 5);
    }

    #[test]
    fn a_flood_of_pings_is_one_and_answers_to_ours_are_none() {
        let (mut watch, now) = watch();
        for _ in 0..2 * CONTROLS.at_once {
            assert_eq!(watch.received(&frame(PING, ACK, &[0; 8]), now), None);
            assert_eq!(watch.received(&frame(DATA, END_STREAM, &[]), now), None);
            assert_eq!(watch.received(&frame(HEADERS, 4, &[1, 2, 3]), now), None);
            assert_eq!(watch.received(&frame(DATA, 0, &[1]), now), None);
            watch.served(1);
        }
        let ping = frame(PING, 0, &[0; 8]);
        let count = (0..2 * CONTROLS.at_once).take_while(|_| watch.received(&ping, now).is_none()).count();
        assert_eq!(count, CONTROLS.at_once as usize);
    }

    #[test]
    fn calls_whose_requests_never_come_are_a_flood_beyond_those_that_may_be_open() {
        let (mut watch, now) = watch();
        let headers = frame(HEADERS, 4, &[]);
        let begin = |watch: &mut Watch| {
            watch.served(1);
            watch.received(&headers, now)
        };
        let count = (0..9_000).take_while(|_| begin(&mut watch).is_none()).count();
        assert_eq!(count, (STREAMS_MAX + UNFINISHED.at_once) as usize);
        assert_eq!(begin(&mut watch), Some(Flood::Unfinished));
        watch.received(&frame(DATA, END_STREAM, &[]), now);
        watch.received(&frame(RST_STREAM, 0, &[0; 4]), now);
        assert_eq!([(); 3].map(|()| begin(&mut watch)), [None, None, Some(Flood::Unfinished)]);
    }

    #[test]
    fn calls_beyond_those_that_may_be_open_are_a_flood_unless_they_are_served() {
        let (mut watch, now) = watch();
        let call = [frame(HEADERS, 4, &[]), frame(DATA, END_STREAM, &[])].concat();
        for _ in 0..9_000 {
            assert_eq!(watch.received(&call, now), None);
            watch.served(1);
        }
        let count = (0..9_000).take_while(|_| watch.received(&call, now).is_none()).count();
        assert_eq!(count, REFUSED.at_once as usize);
        let without_request = frame(HEADERS, END_STREAM, &[]);
        assert_eq!(watch.received(&without_request, now), Some(Flood::Refused));
    }

    #[test]
    fn calls_of_nobody_that_is_known_are_a_flood_beyond_the_allowance() {
        let (mut watch, now) = watch();
        assert_eq!(watch.unknown(UNKNOWN.at_once as usize, now), None);
        assert_eq!(watch.unknown(0, now), None);
        assert_eq!(watch.unknown(1, now), Some(Flood::Unknown));
        assert_eq!(watch.unknown(UNKNOWN.per_second as usize, now + Duration::from_secs(1)), None);
    }

    #[test]
    fn a_farewell_with_a_reason_is_found_however_the_bytes_are_cut() {
        let data = frame(DATA, 0, &[GOAWAY; 40]);
        let quiet = [data.clone(), frame(SETTINGS, 0, &[]), frame(GOAWAY, 0, &[0; 8]), data.clone()].concat();
        let last = frame(GOAWAY, 0, &[&[0, 0, 0, 9, 0, 0, 0, 11], b"calm".as_slice()].concat());
        for size in 1..60 {
            let mut farewell = Farewell::default();
            assert!(!quiet.chunks(size).any(|piece| farewell.is_in(piece)));
            let loud = [last.clone(), data.clone()].concat();
            assert_eq!(loud.chunks(size).filter(|piece| farewell.is_in(piece)).count(), 1);
            assert!(!quiet.chunks(size).any(|piece| farewell.is_in(piece)));
        }
    }

    #[test]
    fn frames_are_counted_until_somebody_asks() {
        let (mut watch, now) = watch();
        watch.received(&frame(PING, ACK, &[0; 8]).repeat(3), now);
        assert_eq!((watch.take_frames(), watch.take_frames()), (3, 0));
    }

    #[test]
    fn a_reader_may_open_its_windows_as_fast_as_it_reads() {
        let (mut watch, now) = watch();
        let update = frame(8, 0, &[0, 0, 0, 1]);
        for _ in 0..2 * CONTROLS.at_once {
            watch.sent(BYTES_PER_CONTROL);
            assert_eq!(watch.received(&update, now), None);
        }
    }

    /// Frames that gRPC's own client sends for a call with a short answer, as counted.
    #[test]
    fn a_client_with_many_short_calls_is_no_flood() {
        let (mut watch, now) = watch();
        let [headers, request] = [frame(HEADERS, 4, &[0; 40]), frame(DATA, END_STREAM, &[0; 60])];
        let [window, ping] = [frame(8, 0, &[0, 0, 0, 1]), frame(PING, 0, &[0; 8])];
        let call = [headers, request, window.clone(), window, ping].concat();
        for _ in 0..5 * CONTROLS.at_once {
            assert_eq!(watch.received(&call, now), None);
            watch.served(1);
        }
    }

    #[test]
    fn a_session_with_many_short_messages_is_no_flood() {
        let (mut watch, now) = watch();
        let window = frame(8, 0, &[0, 0, 0, 1]);
        let message = [frame(DATA, 0, &[0; 60]), window.clone(), window].concat();
        for _ in 0..5 * CONTROLS.at_once {
            assert_eq!(watch.received(&message, now), None);
        }
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let mut whole = Vec::from(PREFACE);
        let mut expected = 0;
        for payload in [0, 1, 8, 9, 300] {
            whole.extend(frame(HEADERS, 4, &vec![RST_STREAM; payload]));
            whole.extend(frame(RST_STREAM, 0, &[0; 4]));
            expected += 1;
        }
        for size in 1..40 {
            let now = Instant::now();
            let mut watch = Watch::new(STREAMS_MAX, now);
            for piece in whole.chunks(size) {
                assert_eq!(watch.received(piece, now), None);
            }
            assert_eq!(RESETS.at_once - watch.resets.frames, expected, "{size}");
            assert_eq!(watch.controls.frames, CONTROLS.at_once);
        }
    }

    /// Bytes that a peer may send: frames of every kind, and garbage between them.
    fn sent() -> impl Strategy<Value = Vec<u8>> {
        let frames = (0..10_u8, any::<u8>(), vec(any::<u8>(), 0..40))
            .prop_map(|(kind, flags, payload)| frame(kind, flags, &payload));
        vec(prop_oneof![9 => frames, 1 => vec(any::<u8>(), 0..20)], 0..60).prop_map(|parts| parts.concat())
    }

    /// Return a watch after the bytes came in these pieces, and the flood if the peer must be cut.
    fn after(bytes: &[u8], cuts: &[Index], now: Instant) -> (Watch, Option<Flood>) {
        let mut watch = Watch::new(STREAMS_MAX, now);
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let flood = places.windows(2).find_map(|ends| watch.received(&bytes[ends[0]..ends[1]], now));
        (watch, flood)
    }

    proptest! {
        #[test]
        fn whatever_is_sent_is_judged_the_same_however_it_is_cut(
            has_preface in any::<bool>(),
            sent in sent(),
            cuts in vec(any::<Index>(), 0..20),
        ) {
            let preface: &[u8] = if has_preface { PREFACE } else { b"" };
            let bytes = [preface, &sent].concat();
            let now = Instant::now();
            let ((whole, once), (pieces, cut)) = (after(&bytes, &[], now), after(&bytes, &cuts, now));
            prop_assert_eq!(once, cut);
            prop_assert_eq!(whole.frames, pieces.frames);
            prop_assert_eq!(whole.resets.frames, pieces.resets.frames);
            prop_assert_eq!(whole.controls.frames, pieces.controls.frames);
            prop_assert_eq!(whole.unfinished.frames, pieces.unfinished.frames);
            prop_assert_eq!(whole.refused.frames, pieces.refused.frames);
        }

        #[test]
        fn an_allowance_never_gives_more_than_at_once_and_what_time_earned(
            at_once in 1..50_u32,
            per_second in 1..2_000_u32,
            waits_ms in vec(0..3_000_u64, 1..80),
        ) {
            let begin = Instant::now();
            let mut left = Left::new(Allowance { at_once, per_second }, begin);
            let (mut now, mut taken) = (begin, 0_u64);
            for wait in waits_ms {
                now += Duration::from_millis(wait);
                taken += u64::from(left.takes(now));
                let earned = (now - begin).saturating_mul(per_second).as_secs();
                prop_assert!(taken <= u64::from(at_once) + earned);
            }
        }
    }

    #[test]
    fn what_is_no_http2_is_left_to_the_parser() {
        let now = Instant::now();
        let mut watch = Watch::new(STREAMS_MAX, now);
        assert_eq!(watch.received(b"GET / HTTP/1.1\r\n", now), None);
        assert!(matches!(watch.place, Place::Unknown));
    }
}
