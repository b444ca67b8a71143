//! Ways from one process to another that can be cut, blocked and slowed: a proxy of TCP on this machine.

use anyhow::{Context, Result};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const BUFFER_BYTES: usize = 16 * 1024;

/// How a way can be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    Fair,
    /// Connections break off, and new ones end at once.
    Cut,
    /// Nothing comes through in either direction. What was sent meanwhile arrives afterwards, as it does when a network comes
    /// back.
    Held,
    RequestsHeld,
    AnswersHeld,
    /// Each piece is this much longer on its way.
    Slow(Duration),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Answers,
}

impl Weather {
    fn lets_through(self, direction: Direction) -> bool {
        match self {
            Weather::Fair | Weather::Slow(_) => true,
            Weather::Cut | Weather::Held => false,
            Weather::RequestsHeld => direction == Direction::Answers,
            Weather::AnswersHeld => direction == Direction::Requests,
        }
    }
}

/// A way to a server, whose address may change.
pub struct Link {
    /// Where it begins.
    pub address: String,
    target: watch::Sender<String>,
    weather: watch::Sender<Weather>,
}

impl Link {
    /// Opens a way. Whoever takes it before there is a target is turned away.
    pub async fn open(target: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("open a way")?;
        let address = listener.local_addr()?.to_string();
        let (target, weather) = (watch::Sender::new(target.to_owned()), watch::Sender::new(Weather::Fair));
        let (targets, seen) = (target.subscribe(), weather.subscribe());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let target = targets.borrow().clone();
                tokio::spawn(pass(client, target, seen.clone()));
            }
        });
        Ok(Link { address, target, weather })
    }

    pub fn lead_to(&self, target: &str) {
        self.target.send_replace(target.to_owned());
    }

    pub fn set(&self, weather: Weather) {
        self.weather.send_replace(weather);
    }
}

async fn pass(client: TcpStream, target: String, mut weather: watch::Receiver<Weather>) {
    if *weather.borrow() == Weather::Cut || target.is_empty() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (there, back) = (weather.clone(), weather.clone());
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::select! {
        () = pass_on(from_client, to_server, there, Direction::Requests) => {}
        () = pass_on(from_server, to_client, back, Direction::Answers) => {}
        _ = weather.wait_for(|weather| *weather == Weather::Cut) => {}
    }
}

async fn pass_on(
    mut source: impl AsyncRead + Unpin,
    mut sink: impl AsyncWrite + Unpin,
    mut weather: watch::Receiver<Weather>,
    direction: Direction,
) {
    let mut bytes = vec![0; BUFFER_BYTES];
    loop {
        let Ok(read @ 1..) = source.read(&mut bytes).await else { return };
        let Ok(seen) = weather.wait_for(|weather| weather.lets_through(direction)).await.map(|seen| *seen)
        else {
            return;
        };
        if let Weather::Slow(delay) = seen {
            tokio::time::sleep(delay).await;
        }
        if sink.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that says everything again.
    async fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn says(stream: &mut TcpStream) -> std::io::Result<u8> {
        stream.read_u8().await
    }

    #[tokio::test]
    async fn what_is_held_arrives_when_the_way_is_free_again() {
        let link = Link::open(&echo().await).await.unwrap();
        let mut stream = TcpStream::connect(&link.address).await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(says(&mut stream).await.unwrap(), 1);
        for weather in [Weather::Held, Weather::RequestsHeld, Weather::AnswersHeld] {
            link.set(weather);
            stream.write_u8(2).await.unwrap();
            // Nothing can be waited for that must not come.
            let early = tokio::time::timeout(Duration::from_millis(50), says(&mut stream)).await;
            assert!(early.is_err(), "{weather:?} let it through");
            link.set(Weather::Slow(Duration::from_millis(1)));
            assert_eq!(says(&mut stream).await.unwrap(), 2);
        }
    }

    #[tokio::test]
    async fn a_cut_way_breaks_connections_and_takes_no_new_ones() {
        let link = Link::open(&echo().await).await.unwrap();
        let mut stream = TcpStream::connect(&link.address).await.unwrap();
        stream.write_u8(1).await.unwrap();
        assert_eq!(says(&mut stream).await.unwrap(), 1);
        link.set(Weather::Cut);
        assert!(says(&mut stream).await.is_err());
        let mut second = TcpStream::connect(&link.address).await.unwrap();
        assert!(says(&mut second).await.is_err());
        link.set(Weather::Fair);
        let mut third = TcpStream::connect(&link.address).await.unwrap();
        third.write_u8(3).await.unwrap();
        assert_eq!(says(&mut third).await.unwrap(), 3);
    }
}
