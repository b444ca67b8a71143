//! How strictly a server's certificate is verified, by the parameters of the URL.

use crate::postgres::PostgresOptions;
use crate::postgres::connection::connect;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server that accepts TLS and then sends nothing. It records whether a client continued.
struct Greeter {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Greeter {
    /// With a certificate for this name, which is also written to a file.
    async fn new(name: &str, file: &Path) -> Self {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        std::fs::write(file, cert.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(signing_key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Greeter { listener, acceptor: TlsAcceptor::from(Arc::new(config)) }
    }

    /// Whether a client with these parameters in its URL sends its user name over TLS.
    async fn is_trusted(&self, words: &str) -> bool {
        let port = self.listener.local_addr().unwrap().port();
        let options = PostgresOptions::new(format!("postgres://ann@localhost:{port}/payroll?{words}"));
        let target = options.target().unwrap();
        let served = async {
            let (mut stream, _) = self.listener.accept().await.unwrap();
            let mut request = [0; 8];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(b"S").await.unwrap();
            let mut first = [0; 1];
            match self.acceptor.accept(stream).await {
                Ok(mut stream) => stream.read_exact(&mut first).await.is_ok(),
                Err(_) => false,
            }
        };
        let (is_trusted, connected) = tokio::join!(served, connect(&target));
        assert!(connected.is_err(), "the server never answers after the handshake");
        is_trusted
    }
}

#[tokio::test]
async fn certificates_are_verified_as_the_url_requires() {
    let folder = tempfile::tempdir().unwrap();
    let (own, others) = (folder.path().join("own.pem"), folder.path().join("others.pem"));
    let named = Greeter::new("localhost", &own).await;
    let root = format!("sslrootcert={}", own.display());
    assert!(named.is_trusted(&format!("sslmode=verify-full&{root}")).await);
    assert!(named.is_trusted("sslmode=require").await, "only encryption was requested");
    assert!(!named.is_trusted("sslmode=verify-full").await, "no well-known authority has signed it");

    let misnamed = Greeter::new("elsewhere", &others).await;
    let others = format!("sslrootcert={}", others.display());
    assert!(misnamed.is_trusted(&format!("sslmode=verify-ca&{others}")).await);
    assert!(misnamed.is_trusted(&format!("sslmode=require&{others}")).await);
    assert!(
        !misnamed.is_trusted(&format!("sslmode=verify-full&{others}")).await,
        "the certificate has another name"
    );
    assert!(
        !misnamed.is_trusted(&format!("sslmode=require&{root}")).await,
        "naming an authority enables its verification"
    );
}
