//! The timeout of a caller, from the header `grpc-timeout`: up to eight digits and a unit.

use std::time::Duration;

use http::HeaderMap;

const DIGITS_MAX: usize = 8;

/// Return the time that the caller waits for the answer; None if the header is missing or malformed.
pub fn time_left(headers: &HeaderMap) -> Option<Duration> {
    parse(headers.get("grpc-timeout")?.to_str().ok()?)
}

fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > DIGITS_MAX || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(number * 3600)),
        "M" => Some(Duration::from_secs(number * 60)),
        "S" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_millis(number)),
        "u" => Some(Duration::from_micros(number)),
        "n" => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        assert_eq!(parse("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(parse("3M"), Some(Duration::from_secs(180)));
        assert_eq!(parse("4S"), Some(Duration::from_secs(4)));
        assert_eq!(parse("99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(parse("5u"), Some(Duration::from_micros(5)));
        assert_eq!(parse("6n"), Some(Duration::from_nanos(6)));
    }

    #[test]
    fn what_is_no_timeout_is_none() {
        for text in ["", "S", "1", "1x", "-1S", "+1S", "1.5S", "123456789S", "1\u{b5}"] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
