//! TLS of a server: its current credentials, and the socket of one connection, with TLS or without.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

/// HTTP/2, the only protocol of gRPC.
const ALPN: &[u8] = b"h2";
/// Maximum time for a peer's handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The credentials for connections made from now on; None without TLS.
#[derive(Default)]
pub struct Credentials(Mutex<Option<Arc<ServerConfig>>>);

impl Credentials {
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        // The lock cannot be poisoned: no code under it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, config: ServerConfig) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(config));
    }
}

/// Return the configuration for TLS 1.2 and 1.3 with these PEM files. With a CA, callers show a certificate that it
/// signed; they must if it is required.
pub fn configuration(
    certificate: &[u8],
    key: &[u8],
    client_ca: Option<&[u8]>,
    is_required: bool,
) -> Result<ServerConfig, Box<dyn Error>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let builder = match client_ca {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for each in CertificateDer::pem_slice_iter(pem) {
                roots.add(each?)?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
            builder.with_client_cert_verifier(verifier.build()?)
        }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let mut config = builder.with_single_cert(chain?, PrivateKeyDer::from_pem_slice(key)?)?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(config)
}

/// Make the handshake. The error describes the peer's mistake, for the operator alone.
pub async fn shake_hands(stream: TcpStream, config: Arc<ServerConfig>) -> Result<Socket, String> {
    match timeout(HANDSHAKE_MAX, TlsAcceptor::from(config).accept(stream)).await {
        Err(_) => Err(format!("no handshake within {} s", HANDSHAKE_MAX.as_secs())),
        Ok(Err(error)) => Err(error.to_string()),
        Ok(Ok(stream)) if stream.get_ref().1.alpn_protocol() == Some(ALPN) => Ok(Socket::Safe(Box::new(stream))),
        Ok(Ok(_)) => Err("the peer does not ask for HTTP/2, as a client of gRPC does".into()),
    }
}

/// The bytes of one connection, as HTTP/2 sees them.
pub enum Socket {
    Plain(TcpStream),
    Safe(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Return the peer's certificates, verified in the handshake: its own first.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        match self {
            Self::Plain(_) => &[],
            Self::Safe(stream) => stream.get_ref().1.peer_certificates().unwrap_or_default(),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Safe(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buffer),
            Self::Safe(stream) => Pin::new(stream).poll_write(cx, buffer),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Safe(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Safe(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
            Self::Safe(stream) => Pin::new(stream).poll_write_vectored(cx, buffers),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Safe(stream) => stream.is_write_vectored(),
        }
    }
}
