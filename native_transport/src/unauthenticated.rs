//! Unauthenticated connections: bounded in number, so that they leave room for others.
//!
//! A connection is unauthenticated until the first of its calls is accepted. If there is one too many, the oldest of
//! the host with the most of them is cut. So a host that opens many connections only crowds out itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Minimum time that a connection has to authenticate, while newer ones of its own host arrive.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// The unauthenticated connections of one server.
#[derive(Debug)]
pub struct Unauthenticated {
    at_most: usize,
    hosts: Mutex<Hosts>,
}

#[derive(Debug, Default)]
struct Hosts {
    /// By host, the oldest first.
    waiting: HashMap<Arc<str>, VecDeque<Waiting>>,
    number: usize,
}

#[derive(Debug)]
struct Waiting {
    connection: u64,
    since: Instant,
    cut: oneshot::Sender<()>,
}

/// Result of the request for a place for a new connection.
pub enum Entry {
    /// There is a place. The receiver fires if it must make room for another.
    Taken {
        unauthenticated: Arc<UnauthenticatedConnection>,
        cut: oneshot::Receiver<()>,
        /// True if another connection was cut for it.
        has_cut: bool,
    },
    /// All places are taken, most of them by its own host, and none of those for long.
    Refused,
}

impl Unauthenticated {
    pub fn new(at_most: usize) -> Self {
        Self { at_most, hosts: Mutex::default() }
    }

    /// Add a connection of this host.
    pub fn enter(self: &Arc<Self>, host: &Arc<str>, connection: u64, now: Instant) -> Entry {
        let mut hosts = self.lock();
        let has_cut = hosts.number >= self.at_most;
        if has_cut && !hosts.make_room(host, now) {
            return Entry::Refused;
        }
        let (sender, cut) = oneshot::channel();
        hosts.waiting.entry(Arc::clone(host)).or_default().push_back(Waiting { connection, since: now, cut: sender });
        hosts.number += 1;
        let unauthenticated =
            Arc::new(UnauthenticatedConnection { among: Arc::clone(self), host: Arc::clone(host), connection });
        Entry::Taken { unauthenticated, cut, has_cut }
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        // The lock cannot be poisoned: no code under it panics.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hosts {
    /// Cut the oldest connection of the host with the most, unless that host is the newcomer's own and the oldest is
    /// younger than `LEFT_ALONE`.
    fn make_room(&mut self, newcomer: &Arc<str>, now: Instant) -> bool {
        let own = self.waiting.get(newcomer).map_or(0, VecDeque::len);
        let Some((host, most)) = self.waiting.iter().max_by_key(|(_, waiting)| waiting.len()) else { return false };
        let host = if own >= most.len() { newcomer } else { host };
        let host = Arc::clone(host);
        let Some(oldest) = self.waiting.get(&host).and_then(VecDeque::front) else { return false };
        if host == *newcomer && now - oldest.since < LEFT_ALONE {
            return false;
        }
        let connection = oldest.connection;
        if let Some(gone) = self.remove(&host, connection) {
            // Fails if that connection has ended meanwhile.
            let _ = gone.cut.send(());
        }
        true
    }

    fn remove(&mut self, host: &Arc<str>, connection: u64) -> Option<Waiting> {
        let waiting = self.waiting.get_mut(host)?;
        let place = waiting.iter().position(|each| each.connection == connection)?;
        let gone = waiting.remove(place);
        if waiting.is_empty() {
            self.waiting.remove(host);
        }
        self.number -= 1;
        gone
    }
}

/// A place among the unauthenticated connections.
#[derive(Debug)]
pub struct UnauthenticatedConnection {
    among: Arc<Unauthenticated>,
    host: Arc<str>,
    connection: u64,
}

impl UnauthenticatedConnection {
    /// Release the place: the caller has authenticated, or is gone. Idempotent.
    pub fn leave(&self) {
        self.among.lock().remove(&self.host, self.connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(entry: Entry) -> (Arc<UnauthenticatedConnection>, oneshot::Receiver<()>) {
        match entry {
            Entry::Taken { unauthenticated, cut, .. } => (unauthenticated, cut),
            Entry::Refused => panic!("refused"),
        }
    }

    fn is_cut(cut: &mut oneshot::Receiver<()>) -> bool {
        cut.try_recv() == Ok(())
    }

    #[test]
    fn a_host_that_has_most_makes_room_for_another() {
        let (unauthenticated, now) = (Arc::new(Unauthenticated::new(3)), Instant::now());
        let (many, other): (Arc<str>, Arc<str>) = ("many".into(), "other".into());
        let mut held: Vec<_> = (0..3).map(|number| taken(unauthenticated.enter(&many, number, now))).collect();
        let (_other, mut cut) = taken(unauthenticated.enter(&other, 9, now));
        assert!(!is_cut(&mut cut));
        assert_eq!(held.iter_mut().map(|(_, cut)| is_cut(cut)).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn a_host_that_crowds_out_itself_waits_until_its_oldest_had_a_moment() {
        let (unauthenticated, now) = (Arc::new(Unauthenticated::new(2)), Instant::now());
        let host: Arc<str> = "a".into();
        let (_first, mut first_cut) = taken(unauthenticated.enter(&host, 1, now));
        let (_second, mut second_cut) = taken(unauthenticated.enter(&host, 2, now));
        assert!(matches!(unauthenticated.enter(&host, 3, now), Entry::Refused));
        let entry = unauthenticated.enter(&host, 4, now + LEFT_ALONE);
        assert!(matches!(entry, Entry::Taken { has_cut: true, .. }));
        assert_eq!((is_cut(&mut first_cut), is_cut(&mut second_cut)), (true, false));
    }

    #[test]
    fn of_hosts_that_have_as_many_the_newcomer_gives_way_to_none_but_its_own() {
        let (unauthenticated, now) = (Arc::new(Unauthenticated::new(2)), Instant::now());
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let (_one, mut one_cut) = taken(unauthenticated.enter(&one, 1, now));
        let (_other, mut other_cut) = taken(unauthenticated.enter(&other, 2, now));
        assert!(matches!(unauthenticated.enter(&one, 3, now), Entry::Refused));
        let _third = taken(unauthenticated.enter(&one, 4, now + LEFT_ALONE));
        assert_eq!((is_cut(&mut one_cut), is_cut(&mut other_cut)), (true, false));
    }

    #[test]
    fn whoever_is_known_or_gone_gives_the_place_back_once() {
        let (unauthenticated, now) = (Arc::new(Unauthenticated::new(1)), Instant::now());
        let host: Arc<str> = "a".into();
        let (connection, _cut) = taken(unauthenticated.enter(&host, 1, now));
        connection.leave();
        connection.leave();
        let entry = unauthenticated.enter(&host, 2, now);
        assert!(matches!(entry, Entry::Taken { has_cut: false, .. }));
        assert_eq!(unauthenticated.lock().number, 1);
    }
}
