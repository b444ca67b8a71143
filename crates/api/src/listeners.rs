//! Where connections come from: a port, and a Unix socket for commands on the same machine.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixListener as BoundSocket;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::oneshot;

/// The listeners of one server.
pub struct Listeners {
    port: TcpListener,
    socket: Option<UnixListener>,
    /// The socket, once it is bound: it may belong to another server until that one ends.
    later: Option<oneshot::Receiver<BoundSocket>>,
}

/// A new connection.
pub enum AcceptedStream {
    Network(TcpStream),
    /// Only who may use the data directory can connect this way, so it needs no encryption.
    Socket(UnixStream),
}

impl Listeners {
    pub fn new(port: TcpListener, socket: Option<oneshot::Receiver<BoundSocket>>) -> Self {
        Listeners { port, socket: None, later: socket }
    }

    /// The next connection and the address that it comes from: the loopback address for the socket.
    pub(crate) async fn accept(&mut self) -> io::Result<(AcceptedStream, SocketAddr)> {
        loop {
            tokio::select! {
                accepted = self.port.accept() => {
                    return accepted.map(|(stream, from)| (AcceptedStream::Network(stream), from));
                }
                accepted = accept_from(self.socket.as_ref()) => {
                    return accepted.map(|stream| (AcceptedStream::Socket(stream), (Ipv4Addr::LOCALHOST, 0).into()));
                }
                bound = arrival(self.later.as_mut()) => {
                    self.later = None;
                    self.socket = bound.map(listening).transpose()?;
                }
            }
        }
    }
}

fn listening(socket: BoundSocket) -> io::Result<UnixListener> {
    socket.set_nonblocking(true)?;
    UnixListener::from_std(socket)
}

async fn accept_from(socket: Option<&UnixListener>) -> io::Result<UnixStream> {
    match socket {
        Some(socket) => socket.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn arrival(later: Option<&mut oneshot::Receiver<BoundSocket>>) -> Option<BoundSocket> {
    match later {
        Some(later) => later.await.ok(),
        None => std::future::pending().await,
    }
}
