//! Connections: accepted from the listening sockets that Python bound, counted, named, and ended when they are too old
//! or abusive.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt, select_all, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tokio_rustls::rustls::ServerConfig;
use tonic::transport::server::Connected;

use crate::frames::{Farewell, Flood, Watch};
use crate::identity::{FailedHosts, Shown};
use crate::inbox::{Arrival, Inbox};
use crate::other_protocol::FirstBytes;
use crate::peer::Peer;
use crate::tls::{Credentials, Socket, shake_hands};
use crate::unauthenticated::{Entry, Unauthenticated, UnauthenticatedConnection};

/// Pause after a connection could not be accepted, usually because the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time within which the first byte of a connection must arrive.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(20);

/// Least time between two arrivals that report the same kind of abuse.
const ABUSE_INTERVAL: Duration = Duration::from_secs(10);

/// Frames of one connection that are processed before the other connections have their turn.
const FRAMES_PER_TURN: usize = 64;
/// Time that a flooding connection is kept, unread, before it is cut, so that its peer reconnects no sooner.
const FLOOD_PAUSE: Duration = Duration::from_secs(1);

/// Kinds of abuse: requests and connections that were refused or cut, so that others are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abuse {
    /// A connection beyond the maximum.
    Connections,
    /// A connection that could not be accepted: the process has no file left, or the system lacks another resource.
    NotTaken,
    /// A peer that failed in the TLS handshake: it has no valid certificate, or does not speak TLS.
    Handshakes,
    /// A connection of a host whose handshakes failed too often recently.
    FailedHosts,
    /// An unauthenticated connection that was cut for a newer one, or a newer one that was refused.
    Unauthenticated,
    /// A message that exceeds the size limit, as sent or once it is decompressed.
    Messages,
    /// A partly received request, given up because all of them together held too much.
    Requests,
    /// A connection of a client of Kafka's protocol.
    KafkaClient,
    /// A connection that HTTP/2 ended because its peer broke the rules, or requested more than it allows.
    Rules,
    /// A connection with repeated unauthenticated calls.
    Unknown,
    /// A connection that reset streams repeatedly.
    Resets,
    /// A connection that repeatedly sent frames without a call.
    Control,
    /// A connection that repeatedly began calls and did not send their requests.
    Unfinished,
    /// A connection that repeatedly began more calls than may be open at once.
    Refused,
}

impl Abuse {
    const ALL: [Self; 14] = [
        Self::Connections,
        Self::NotTaken,
        Self::Handshakes,
        Self::FailedHosts,
        Self::Unauthenticated,
        Self::Messages,
        Self::Requests,
        Self::KafkaClient,
        Self::Rules,
        Self::Unknown,
        Self::Resets,
        Self::Control,
        Self::Unfinished,
        Self::Refused,
    ];

    /// Return the name that Python uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::NotTaken => "not_taken",
            Self::Handshakes => "handshakes",
            Self::FailedHosts => "strangers",
            Self::Unauthenticated => "unauthenticated",
            Self::Messages => "messages",
            Self::Requests => "requests",
            Self::KafkaClient => "kafka_client",
            Self::Rules => "rules",
            Self::Unknown => "unknown_calls",
            Self::Resets => "resets",
            Self::Control => "control_frames",
            Self::Unfinished => "unfinished_calls",
            Self::Refused => "refused_calls",
        }
    }
}

impl From<Flood> for Abuse {
    fn from(flood: Flood) -> Self {
        match flood {
            Flood::Resets => Self::Resets,
            Flood::Control => Self::Control,
            Flood::Unfinished => Self::Unfinished,
            Flood::Refused => Self::Refused,
            Flood::Unknown => Self::Unknown,
        }
    }
}

/// The connections of one server: the number of open ones, their limits, and counts of those refused or cut.
pub struct Connections {
    pub credentials: Credentials,
    open_max: usize,
    streams_max: u32,
    inbox: Arc<Inbox>,
    /// Connections that are not authenticated yet.
    unauthenticated: Arc<Unauthenticated>,
    /// True if callers must authenticate. If false, a connection counts as authenticated after its TLS handshake.
    is_asking: bool,
    numbers: Mutex<Numbers>,
}

#[derive(Default)]
struct Numbers {
    open: usize,
    next: u64,
    abuses: [u64; Abuse::ALL.len()],
    told: [Option<Instant>; Abuse::ALL.len()],
    failed: FailedHosts,
    handshakes: u64,
}

impl Connections {
    pub fn new(
        open_max: usize,
        unauthenticated_max: usize,
        is_asking: bool,
        streams_max: u32,
        inbox: Arc<Inbox>,
    ) -> Self {
        let (credentials, unauthenticated) =
            (Credentials::default(), Arc::new(Unauthenticated::new(unauthenticated_max)));
        Self { credentials, open_max, streams_max, inbox, unauthenticated, is_asking, numbers: Mutex::default() }
    }

    /// Return true if new connections are unauthenticated at first.
    fn bounds_unauthenticated(&self) -> bool {
        self.is_asking || self.credentials.current().is_some()
    }

    /// Return the number of open connections, of handshakes begun, and of incidents of each kind of abuse.
    pub fn numbers(&self) -> (usize, u64, Vec<(&'static str, u64)>) {
        let numbers = self.lock();
        (
            numbers.open,
            numbers.handshakes,
            Abuse::ALL.iter().map(|abuse| (abuse.name(), numbers.abuses[*abuse as usize])).collect(),
        )
    }

    /// Count one more connection and return its number; None if the maximum is reached.
    fn enter(&self) -> Option<u64> {
        let mut numbers = self.lock();
        if numbers.open >= self.open_max {
            return None;
        }
        numbers.open += 1;
        numbers.next += 1;
        Some(numbers.next)
    }

    /// Return true if the handshakes of this host failed too often recently.
    fn has_failed_often(&self, host: &str) -> bool {
        self.lock().failed.is_too_often(host, Instant::now())
    }

    async fn shake_hands(&self, stream: TcpStream, config: Arc<ServerConfig>) -> Result<Socket, String> {
        self.lock().handshakes += 1;
        shake_hands(stream, config).await
    }

    /// Count the incident, and report it to Python unless the same kind was reported within `ABUSE_INTERVAL`.
    pub fn met(&self, abuse: Abuse, host: &str) {
        let mut numbers = self.lock();
        numbers.abuses[abuse as usize] += 1;
        let now = Instant::now();
        if numbers.told[abuse as usize].is_some_and(|told| now - told < ABUSE_INTERVAL) {
            return;
        }
        numbers.told[abuse as usize] = Some(now);
        drop(numbers);
        self.inbox.push(Arrival::Abuse { name: abuse.name(), host: host.into() });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Numbers> {
        // The lock cannot be poisoned: no code under it panics.
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place among the connections, and among the unauthenticated ones. Dropping it releases both.
struct Entered {
    among: Arc<Connections>,
    connection: u64,
    unauthenticated: Option<Arc<UnauthenticatedConnection>>,
    is_told_of: Arc<AtomicBool>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.among.lock().open -= 1;
        if let Some(unauthenticated) = &self.unauthenticated {
            unauthenticated.leave();
        }
        if self.is_told_of.load(Ordering::Relaxed) {
            self.among.inbox.push(Arrival::Left { connection: self.connection });
        }
    }
}

/// Return all connections of all listeners, endlessly. After a failed accept it tries again.
pub fn incoming(
    listeners: Vec<TcpListener>,
    connections: &Arc<Connections>,
    age_max: Duration,
) -> impl Stream<Item = Result<Connection, Infallible>> {
    select_all(listeners.into_iter().map(|listener| of_one(listener, Arc::clone(connections), age_max)))
}

fn of_one(
    listener: TcpListener,
    connections: Arc<Connections>,
    age_max: Duration,
) -> BoxStream<'static, Result<Connection, Infallible>> {
    // Handshakes run concurrently, so that a slow one does not delay the others.
    unfold(
        (listener, connections, FuturesUnordered::new()),
        move |(listener, connections, mut handshakes)| async move {
            loop {
                tokio::select! {
                    Some(made) = handshakes.next() => {
                        if let Some(connection) = made {
                            return Some((Ok(connection), (listener, connections, handshakes)));
                        }
                    }
                    taken = take(&listener, &connections) => match taken {
                        Ok(Some(taken)) => handshakes.push(taken.connected(age_max)),
                        // Refused by closing it: a peer that waited in the system's queue instead would not learn the
                        // reason.
                        Ok(None) => {}
                        Err(error) => {
                            connections.met(Abuse::NotTaken, &error.to_string());
                            sleep(ACCEPT_PAUSE).await;
                        }
                    }
                }
            }
        },
    )
    .boxed()
}

/// A connection that was accepted, before its TLS handshake.
struct Taken {
    stream: TcpStream,
    peer: Peer,
    cut: Cut,
    entered: Entered,
}

async fn take(listener: &TcpListener, connections: &Arc<Connections>) -> io::Result<Option<Taken>> {
    let (stream, address) = listener.accept().await?;
    let host: Arc<str> = address.ip().to_canonical().to_string().into();
    if connections.has_failed_often(&host) {
        connections.met(Abuse::FailedHosts, &host);
        return Ok(None);
    }
    let Some(connection) = connections.enter() else {
        connections.met(Abuse::Connections, &host);
        return Ok(None);
    };
    let is_told_of = Arc::<AtomicBool>::default();
    let mut entered = Entered {
        among: Arc::clone(connections),
        connection,
        unauthenticated: None,
        is_told_of: Arc::clone(&is_told_of),
    };
    let mut cut = Cut(None);
    if connections.bounds_unauthenticated() {
        match connections.unauthenticated.enter(&host, connection, Instant::now()) {
            Entry::Refused => {
                connections.met(Abuse::Unauthenticated, &host);
                return Ok(None);
            }
            Entry::Taken { unauthenticated, cut: told, has_cut } => {
                if has_cut {
                    connections.met(Abuse::Unauthenticated, &host);
                }
                entered.unauthenticated = Some(unauthenticated);
                cut = Cut(Some(told));
            }
        }
    }
    // A failure means that the caller is gone, which is noticed soon enough.
    let _ = stream.set_nodelay(true);
    let (unauthenticated, backlog) = (entered.unauthenticated.clone(), Arc::default());
    let peer = Peer { host, connection, shown: Arc::default(), unauthenticated, is_told_of, backlog };
    Ok(Some(Taken { stream, peer, cut, entered }))
}

/// Future that is ready once the connection must make room for another. Authentication on the connection cancels it.
struct Cut(Option<oneshot::Receiver<()>>);

impl Future for Cut {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(told) = &mut self.0 else { return Poll::Pending };
        let is_told = ready!(Pin::new(told).poll(cx)).is_ok();
        self.0 = None;
        if is_told { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Taken {
    /// Shake hands if the server has TLS credentials; None for a peer that failed in the handshake.
    async fn connected(self, age_max: Duration) -> Option<Connection> {
        let Self { stream, mut peer, mut cut, entered } = self;
        let connections = &entered.among;
        let stream = match connections.credentials.current() {
            None => Socket::Plain(stream),
            Some(config) => {
                let made = tokio::select! {
                    made = connections.shake_hands(stream, config) => made,
                    () = &mut cut => return None,
                };
                match made {
                    Ok(stream) => {
                        peer.shown = Arc::new(Shown::new(stream.certificates()));
                        if !connections.is_asking {
                            peer.becomes_known();
                        }
                        stream
                    }
                    Err(problem) => {
                        connections.lock().failed.count(&peer.host, Instant::now());
                        connections.met(Abuse::Handshakes, &format!("{}: {problem}", peer.host));
                        return None;
                    }
                }
            }
        };
        let now = Instant::now();
        Some(Connection {
            stream,
            peer,
            is_silent: true,
            is_flooded: false,
            oldest: now + age_max,
            end: Box::pin(sleep_until(now + FIRST_BYTE_MAX)),
            first: FirstBytes::default(),
            watch: Watch::new(entered.among.streams_max, now),
            farewell: Farewell::default(),
            turn_frames: 0,
            cut,
            entered,
        })
    }
}

/// One connection. It breaks if nothing arrives for a while, if its peer floods it, or at its maximum age. Before that
/// age tonic asks callers to reconnect; the cut is for those that do not.
pub struct Connection {
    stream: Socket,
    peer: Peer,
    is_silent: bool,
    /// True if the connection is not read any more, and about to be cut.
    is_flooded: bool,
    oldest: Instant,
    end: Pin<Box<Sleep>>,
    first: FirstBytes,
    watch: Watch,
    farewell: Farewell,
    /// Frames processed since the other connections had their turn.
    turn_frames: usize,
    cut: Cut,
    entered: Entered,
}

impl Connection {
    fn sent<'a>(
        &mut self,
        buffers: impl IntoIterator<Item = &'a [u8]>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.watch.sent(bytes);
            let mut left = bytes;
            for buffer in buffers {
                let gone = &buffer[..buffer.len().min(left)];
                left -= gone.len();
                if self.farewell.is_in(gone) {
                    self.entered.among.met(Abuse::Rules, &self.peer.host);
                }
            }
        }
        written
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if Pin::new(&mut self.cut).poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if self.is_flooded {
            return Poll::Pending;
        }
        if self.turn_frames >= FRAMES_PER_TURN {
            self.turn_frames = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(self.peer.backlog.poll_capacity(cx));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        if self.first.are_kafka(&buffer.filled()[before..]) {
            self.entered.among.met(Abuse::KafkaClient, &self.peer.host);
            buffer.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let (served, refused, now) =
            (self.peer.backlog.take_served(), self.peer.backlog.take_refused(), Instant::now());
        self.watch.served(served);
        let flood = self.watch.unknown(refused, now);
        if let Some(flood) = flood.or_else(|| self.watch.received(&buffer.filled()[before..], now)) {
            self.entered.among.met(flood.into(), &self.peer.host);
            buffer.set_filled(before);
            self.is_flooded = true;
            self.end.as_mut().reset(Instant::now() + FLOOD_PAUSE);
            return self.poll_read(cx, buffer);
        }
        self.turn_frames += self.watch.take_frames();
        if self.is_silent {
            self.is_silent = false;
            let oldest = self.oldest;
            self.end.as_mut().reset(oldest);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, buffer);
        self.sent([buffer], written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, buffers);
        self.sent(buffers.iter().map(|buffer| &**buffer), written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
