//! Certificates for tests, and servers and clients that use them.

use crate::server::Server;
use hyper::body::Body;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use punctual_client::{Client, ClientTls, Identity};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub pem: String,
}

/// A certificate and its key, as PEM.
pub struct Pair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate whose issuer has its own name is self-signed.
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    pub fn issue(&self, hosts: &[&str]) -> Pair {
        self.issue_with(hosts, |_| {})
    }

    pub fn issue_with(&self, hosts: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Pair { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// The names of a server on this machine.
pub const HERE: [&str; 2] = ["localhost", "127.0.0.1"];

/// A folder with an authority and a certificate of a server.
pub struct Certificates {
    folder: TempDir,
    pub authority: Authority,
}

impl Certificates {
    pub fn new() -> Self {
        let authority = Authority::new("an authority");
        let certificates = Certificates { folder: tempfile::tempdir().unwrap(), authority };
        certificates.write("ca.pem", &certificates.authority.pem);
        certificates.replace(&certificates.authority.issue(&HERE));
        certificates
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes a file that only its owner can read.
    pub fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::write(self.path(name), text).unwrap();
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Gives the server another certificate.
    pub fn replace(&self, pair: &Pair) {
        self.write("server.pem", &pair.certificate);
        self.write("server.key", &pair.key);
    }

    /// Writes the files of a client's certificate.
    pub fn give(&self, name: &str, pair: &Pair) {
        self.write(&format!("{name}.pem"), &pair.certificate);
        self.write(&format!("{name}.key"), &pair.key);
    }

    pub fn server_options(&self) -> Vec<String> {
        ["--tls-cert".to_owned(), self.text("server.pem"), "--tls-key".to_owned(), self.text("server.key")]
            .into()
    }

    /// A server with TLS and further options.
    pub fn serve(&self, options: &[&str]) -> Server {
        let own = self.server_options();
        let own = own.iter().map(String::as_str);
        Server::start_with(&own.chain(options.iter().copied()).collect::<Vec<_>>())
    }

    /// A client that trusts the authority.
    pub fn client(&self, server: &Server, identity: Option<&Pair>) -> Client {
        let identity = identity.map(|pair| Identity {
            certificate_pem: pair.certificate.as_bytes(),
            key_pem: pair.key.as_bytes(),
        });
        let tls = ClientTls::new(Some(self.authority.pem.as_bytes()), identity).unwrap();
        Client::with_tls(&format!("https://{}", server.address), server.token.clone(), &tls).unwrap()
    }

    /// A connection that trusts the authority and offers these protocols.
    pub async fn connect(&self, server: &Server, protocols: &[&str]) -> io::Result<TlsStream<TcpStream>> {
        self.connect_with(server, protocols, rustls::ALL_VERSIONS).await
    }

    pub async fn connect_with(
        &self,
        server: &Server,
        protocols: &[&str],
        versions: &[&'static SupportedProtocolVersion],
    ) -> io::Result<TlsStream<TcpStream>> {
        self.connect_by(server, &Arc::new(self.config(protocols, versions))).await
    }

    /// How a client connects that trusts the authority.
    pub fn config(&self, protocols: &[&str], versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        config
    }

    pub async fn connect_by(
        &self,
        server: &Server,
        config: &Arc<ClientConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(&server.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(config.clone()).connect(name, stream).await
    }

    /// The certificate that the server presents.
    pub async fn presented(&self, server: &Server) -> Option<Vec<u8>> {
        let stream = self.connect(server, &[]).await.ok()?;
        Some(stream.get_ref().1.peer_certificates()?.first()?.to_vec())
    }

    /// An HTTP/2 connection.
    pub async fn http2(&self, server: &Server) -> SendRequest<String> {
        self.http2_with_window(server, 65_535).await
    }

    /// An HTTP/2 connection whose client makes room for this many bytes of each response at first.
    pub async fn http2_with_window<B>(&self, server: &Server, bytes: u32) -> SendRequest<B>
    where
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static,
    {
        let stream = self.connect(server, &["h2"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let mut builder = Builder::new(TokioExecutor::new());
        let connection = builder.initial_stream_window_size(bytes).handshake(TokioIo::new(stream));
        let (sender, connection) = connection.await.unwrap();
        tokio::spawn(connection);
        sender
    }
}

/// The certificate in a file.
pub fn certificate_in(file: &Path) -> Vec<u8> {
    CertificateDer::from_pem_file(file).unwrap().to_vec()
}
