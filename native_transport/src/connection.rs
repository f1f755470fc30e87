//! Connections: taken from the listening sockets that Python bound, named, and ended when they are too old.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::{BoxStream, StreamExt, select_all, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep, sleep_until};
use tonic::transport::server::Connected;

/// Pause after a connection could not be taken, above all because the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time until the first byte of a connection must be there.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(20);

/// The host of a caller.
#[derive(Clone, Debug)]
pub struct Peer(pub Arc<str>);

/// All connections of all listeners, for ever. One that cannot be taken is left to the next attempt.
pub fn incoming(listeners: Vec<TcpListener>, age_max: Duration) -> impl Stream<Item = Result<Connection, Infallible>> {
    select_all(listeners.into_iter().map(|listener| of_one(listener, age_max)))
}

fn of_one(listener: TcpListener, age_max: Duration) -> BoxStream<'static, Result<Connection, Infallible>> {
    unfold(listener, move |listener| async move {
        loop {
            match accept(&listener, age_max).await {
                Ok(connection) => return Some((Ok(connection), listener)),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    })
    .boxed()
}

async fn accept(listener: &TcpListener, age_max: Duration) -> io::Result<Connection> {
    let (stream, address) = listener.accept().await?;
    // If that fails the caller is gone, which is noticed soon enough.
    let _ = stream.set_nodelay(true);
    let peer = Peer(address.ip().to_canonical().to_string().into());
    let now = Instant::now();
    let end = Box::pin(sleep_until(now + FIRST_BYTE_MAX));
    Ok(Connection { stream, peer, is_silent: true, oldest: now + age_max, end })
}

/// One connection. It breaks when nothing came for a while, or when it is as old as it may get: tonic asks callers to go
/// elsewhere before that, and this is for those who do not.
pub struct Connection {
    stream: TcpStream,
    peer: Peer,
    is_silent: bool,
    oldest: Instant,
    end: Pin<Box<Sleep>>,
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
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
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
        Pin::new(&mut self.stream).poll_write(cx, buffer)
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
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
