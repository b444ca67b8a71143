//! A web server for calls: well behaved, silent, endless or broken.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// How it answers a request.
#[derive(Clone)]
pub enum Answer {
    /// With these bytes, and then it closes the connection.
    Bytes(Vec<u8>),
    /// With these bytes, and then neither side closes.
    Hanging(&'static [u8]),
    /// With the status line and the body that a service would answer.
    By(fn(&Asked) -> (String, String)),
    /// With the first, and then it repeats the second until the other side disconnects.
    Endless(&'static [u8], &'static [u8]),
}

impl Answer {
    pub fn status(status: &str, body: &str) -> Self {
        Answer::with_headers(status, "", body)
    }

    /// Each header ends in a line break. The connection ends with the answer, and the answer says so: a client that sends its
    /// next request over it would get none.
    pub fn with_headers(status: &str, headers: &str, body: &str) -> Self {
        let length = body.len();
        Answer::Bytes(
            format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
            )
            .into(),
        )
    }
}

/// One request as received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub line: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert_eq!(found.next(), None, "{name} came twice");
        value
    }
}

/// Listens on 127.0.0.1 until the test ends.
pub struct Web {
    pub address: SocketAddr,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    hung_up: AtomicUsize,
    bytes_written: AtomicUsize,
}

impl Web {
    pub async fn answering(answer: Answer) -> Self {
        Web::start(answer, None).await
    }

    /// With TLS, and this server's self-signed certificate.
    pub async fn with_tls(answer: Answer) -> (Self, String) {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = tokio_rustls::rustls::crypto::ring::default_provider();
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        (Web::start(answer, Some(TlsAcceptor::from(Arc::new(config)))).await, made.cert.pem())
    }

    /// At this address, where an earlier one may have listened.
    pub async fn answering_at(address: SocketAddr, answer: Answer) -> Self {
        Web::listening(TcpListener::bind(address).await.unwrap(), answer, None)
    }

    async fn start(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        Web::listening(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer, tls)
    }

    fn listening(listener: TcpListener, answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let web = Web { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = web.seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                let (answer, seen, tls) = (answer.clone(), seen.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => converse(stream, answer, &seen).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                converse(stream, answer, &seen).await;
                            }
                        }
                    }
                });
            }
        });
        web
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.seen.asked.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// How many connections the other side has closed before the response was complete.
    pub fn hung_up(&self) -> usize {
        self.seen.hung_up.load(Ordering::SeqCst)
    }

    /// How much of endless responses was sent, including data in system buffers.
    pub fn bytes_written(&self) -> usize {
        self.seen.bytes_written.load(Ordering::SeqCst)
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, answer: Answer, seen: &Seen) {
    let mut stream = BufReader::new(stream);
    let Some(asked) = read_request(&mut stream).await else { return };
    seen.asked.lock().unwrap().push(asked.clone());
    let answer = match answer {
        Answer::By(service) => {
            let (status, body) = service(&asked);
            Answer::status(&status, &body)
        }
        answer => answer,
    };
    match answer {
        Answer::By(_) => unreachable!("the service has answered"),
        Answer::Bytes(bytes) => {
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
        }
        Answer::Hanging(bytes) => {
            let _ = stream.write_all(bytes).await;
            let _ = stream.flush().await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
            seen.hung_up.fetch_add(1, Ordering::SeqCst);
        }
        Answer::Endless(head, rest) => {
            let _ = stream.write_all(head).await;
            while stream.write_all(rest).await.is_ok() {
                seen.bytes_written.fetch_add(rest.len(), Ordering::SeqCst);
            }
            seen.hung_up.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn read_request(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<Asked> {
    let mut asked = Asked { line: read_line(stream).await?, headers: vec![], body: vec![] };
    loop {
        let line = read_line(stream).await?;
        match line.split_once(':') {
            Some((name, value)) => asked.headers.push((name.to_owned(), value.trim().to_owned())),
            None => break,
        }
    }
    let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    asked.body.resize(length, 0);
    stream.read_exact(&mut asked.body).await.ok()?;
    Some(asked)
}

async fn read_line(stream: &mut (impl AsyncBufReadExt + Unpin)) -> Option<String> {
    let mut line = String::new();
    let length = stream.read_line(&mut line).await.ok()?;
    (length > 0).then(|| line.trim_end().to_owned())
}
