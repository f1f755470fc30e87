//! Credentials of callers, for Python to check; and hosts whose TLS handshakes fail too often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, header};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use tokio::time::Instant;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Failed handshakes of one host per second, and at once, beyond which its connections are closed unread. A handshake
/// costs less than a millisecond, so one host takes a tenth of a core at most.
const FAILED_PER_SECOND: f64 = 100.0;
const FAILED_AT_ONCE: f64 = 200.0;
/// Maximum number of hosts that are remembered.
const HOSTS_MAX: usize = 4_096;
const DROPPED_EVERY: Duration = Duration::from_secs(1);

/// The `authorization` of one call; None if it has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization(Option<Box<str>>);

impl Authorization {
    /// Read it from the headers. A value that is not text becomes text that no client can mean, so that it does not
    /// count as missing.
    pub fn of(headers: &HeaderMap) -> Self {
        let value = headers.get_all(header::AUTHORIZATION).iter().next_back();
        Self(value.map(|value| String::from_utf8_lossy(value.as_bytes()).into()))
    }
}

/// Certificates that one connection showed in its handshake, and the last authorization that was accepted on it.
#[derive(Debug, Default)]
pub struct Shown {
    chain: Vec<CertificateDer<'static>>,
    accepted: Mutex<Option<Authorization>>,
}

impl Shown {
    pub fn new(chain: &[CertificateDer<'_>]) -> Self {
        Self { chain: chain.iter().map(|each| each.clone().into_owned()).collect(), accepted: Mutex::default() }
    }

    /// Return true if Python accepted the same on this connection before, so that a body may be read. Python checks it
    /// again.
    pub fn is_accepted(&self, authorization: &Authorization) -> bool {
        self.lock().as_ref() == Some(authorization)
    }

    pub fn accept(&self, authorization: Authorization) {
        *self.lock() = Some(authorization);
    }

    /// Return `(authorization, certificates)`.
    pub fn tuple<'py>(&self, py: Python<'py>, authorization: &Authorization) -> PyResult<Bound<'py, PyTuple>> {
        let chain = PyTuple::new(py, self.chain.iter().map(|each| PyBytes::new(py, each)))?;
        (authorization.0.as_deref(), chain).into_pyobject(py)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Authorization>> {
        // The lock cannot be poisoned: no code under it panics.
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Number of recent failed handshakes of each host.
#[derive(Default)]
pub struct FailedHosts {
    failures: HashMap<Arc<str>, Failures>,
    /// Time at which expired entries were dropped last. With the maximum number of hosts that takes time, so it is
    /// rare.
    dropped: Option<Instant>,
}

/// Number of failures that still count, which decreases as time passes.
struct Failures {
    number: f64,
    counted: Instant,
}

impl Failures {
    fn left(&self, now: Instant) -> f64 {
        (self.number - (now - self.counted).as_secs_f64() * FAILED_PER_SECOND).max(0.0)
    }
}

impl FailedHosts {
    pub fn count(&mut self, host: &Arc<str>, now: Instant) {
        if self.failures.len() >= HOSTS_MAX && self.dropped.is_none_or(|dropped| now - dropped >= DROPPED_EVERY) {
            self.failures.retain(|_, failures| failures.left(now) > 0.0);
            self.dropped = Some(now);
        }
        if self.failures.len() < HOSTS_MAX || self.failures.contains_key(host) {
            let number = self.failures.get(host).map_or(0.0, |failures| failures.left(now)) + 1.0;
            self.failures.insert(Arc::clone(host), Failures { number, counted: now });
        }
    }

    /// Return true if the connections of this host are closed unread for now.
    pub fn is_too_often(&self, host: &str, now: Instant) -> bool {
        self.failures.get(host).is_some_and(|failures| failures.left(now) >= FAILED_AT_ONCE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_fails_too_often_is_not_heard_for_a_while_and_others_are() {
        let (mut hosts, now) = (FailedHosts::default(), Instant::now());
        for _ in 0..200 {
            assert!(!hosts.is_too_often("a", now));
            hosts.count(&"a".into(), now);
        }
        assert!(hosts.is_too_often("a", now));
        assert!(!hosts.is_too_often("b", now));
        assert!(!hosts.is_too_often("a", now + Duration::from_millis(10)));
        hosts.count(&"a".into(), now + Duration::from_secs(9));
        assert!(!hosts.is_too_often("a", now + Duration::from_secs(9)));
    }

    #[test]
    fn hosts_without_end_take_no_memory_without_end() {
        let (mut hosts, now) = (FailedHosts::default(), Instant::now());
        for number in 0..2 * HOSTS_MAX {
            hosts.count(&number.to_string().into(), now);
        }
        assert_eq!(hosts.failures.len(), HOSTS_MAX);
        hosts.count(&"later".into(), now + Duration::from_secs(1));
        assert_eq!(hosts.failures.len(), 1);
    }

    #[test]
    fn an_authorization_that_is_no_text_is_there_all_the_same() {
        let mut headers = HeaderMap::new();
        assert_eq!(Authorization::of(&headers), Authorization(None));
        headers.insert(header::AUTHORIZATION, http::HeaderValue::from_bytes(b"Bearer \xff").unwrap());
        assert_eq!(Authorization::of(&headers), Authorization(Some("Bearer \u{fffd}".into())));
        let shown = Shown::default();
        assert!(!shown.is_accepted(&Authorization(None)));
        shown.accept(Authorization(None));
        assert!(shown.is_accepted(&Authorization(None)));
        assert!(!shown.is_accepted(&Authorization::of(&headers)));
    }
}
