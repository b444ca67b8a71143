//! Raw connections: tests write the bytes themselves, without a correct client.

use crate::server::Server;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The default source address of connections.
pub const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Another source address: all of 127.0.0.0/8 is this machine.
pub const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

pub struct Raw(pub TcpStream);

impl Raw {
    pub async fn open(address: &str, from: Ipv4Addr) -> Self {
        let address: SocketAddr = address.parse().expect("an address");
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(SocketAddr::new(IpAddr::V4(from), 0)).expect("an address of this machine");
        Raw(socket.connect(address).await.expect("a connection"))
    }

    /// Whether the server still accepts data.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).await.is_ok()
    }

    /// Makes a small request, and leaves the connection open.
    pub async fn is_answered(&mut self) -> bool {
        let mut text = String::new();
        let mut part = [0; 1024];
        self.send(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await;
        while !text.ends_with("{\"status\":\"live\"}") {
            match self.0.read(&mut part).await {
                Ok(0) | Err(_) => return false,
                Ok(count) => text += &String::from_utf8_lossy(&part[..count]),
            }
        }
        true
    }

    /// Everything that arrives until the server closes.
    pub async fn rest(mut self) -> String {
        let mut bytes = Vec::new();
        // A reset is an end as well.
        let _ = self.0.read_to_end(&mut bytes).await;
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The status of the first response; `None` if the server closes without one.
    pub async fn status(mut self) -> Option<u16> {
        let mut bytes = Vec::new();
        let mut part = [0; 1024];
        while !bytes.windows(2).any(|end| end == b"\r\n") {
            match self.0.read(&mut part).await {
                Ok(0) | Err(_) => break,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
            }
        }
        String::from_utf8_lossy(&bytes).split(' ').nth(1)?.parse().ok()
    }
}

/// The head of a request with the admin token, without the end, so that headers can follow.
pub fn head(server: &Server, method: &str, path: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n",
        server.address, server.token
    )
}
