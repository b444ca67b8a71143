//! TLS of a client: which servers it trusts, and its own certificate.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, InvalidMessage, RootCertStore};
use std::error::Error;
use std::io;
use std::sync::Arc;

/// How a client connects to `https` servers. By default it trusts the well-known certificate authorities,
/// whose certificates are compiled in, and has no certificate of its own.
#[derive(Debug, Clone)]
pub struct ClientTls(ClientConfig);

/// The client's own certificate chain and its private key, as PEM.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub certificate_pem: &'a [u8],
    pub key_pem: &'a [u8],
}

#[derive(Debug, thiserror::Error)]
pub enum ClientTlsError {
    /// The certificates of authorities cannot be used.
    #[error("{0}")]
    Authority(String),
    /// The client's own certificate cannot be used.
    #[error("{0}")]
    Certificate(String),
    /// The key of the client's certificate cannot be used.
    #[error("{0}")]
    Key(String),
}

impl Default for ClientTls {
    fn default() -> Self {
        ClientTls::new(None, None).expect("the compiled-in certificates are right")
    }
}

impl ClientTls {
    /// Trusts the authorities in `ca_pem` instead of the well-known ones, and presents `identity` to servers
    /// that ask for a certificate.
    pub fn new(ca_pem: Option<&[u8]>, identity: Option<Identity<'_>>) -> Result<Self, ClientTlsError> {
        let roots = match ca_pem {
            Some(pem) => authorities(pem)?,
            None => RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() },
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| ClientTlsError::Authority(error.to_string()))?
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate_pem, key_pem }) => {
                let chain = certificates(certificate_pem).map_err(ClientTlsError::Certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| {
                    ClientTlsError::Key("contains no private key as PEM without a passphrase".to_owned())
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        ClientTlsError::Key("is not the key of the certificate".to_owned())
                    }
                    error => ClientTlsError::Certificate(error.to_string()),
                })?
            }
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(ClientTls(config))
    }

    /// The beginning of an HTTP client that connects this way.
    pub fn http(&self) -> reqwest::ClientBuilder {
        reqwest::Client::builder().tls_backend_preconfigured(self.0.clone())
    }
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, ClientTlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem).map_err(ClientTlsError::Authority)? {
        roots.add(certificate).map_err(|error| ClientTlsError::Authority(error.to_string()))?;
    }
    Ok(roots)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err("contains no certificate as PEM".to_owned()),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

/// Why two ends do not trust each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// The server does not use TLS.
    NoTls,
    /// The server's certificate has expired or is not valid yet, by the clock of this machine.
    ByTime,
    /// This client does not trust the server's certificate.
    OfServer,
    /// The server does not accept this client without, or with, its certificate; or it has closed the
    /// connection without saying why.
    OfClient,
}

impl Distrust {
    /// The reason of a failed request, if it is one of these.
    pub fn of(error: &reqwest::Error) -> Option<Self> {
        Distrust::behind(error).or_else(|| {
            // With TLS 1.3 a server rejects a client after the client's handshake. If it closes the connection
            // before the client has read the reason, nothing else tells it.
            let is_https = error.url().is_some_and(|url| url.scheme() == "https");
            let is_closed = error.is_request() && !error.is_connect() && !error.is_timeout();
            (is_https && is_closed).then_some(Distrust::OfClient)
        })
    }

    fn behind(error: &(dyn Error + 'static)) -> Option<Self> {
        let causes = std::iter::successors(Some(error), |cause| (*cause).source());
        causes.filter_map(tls_error).find_map(|error| match error {
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Some(Distrust::NoTls),
            rustls::Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => Some(Distrust::ByTime),
            rustls::Error::InvalidCertificate(_) => Some(Distrust::OfServer),
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateUnknown
                | AlertDescription::DecryptError
                | AlertDescription::HandshakeFailure
                | AlertDescription::UnknownCA,
            ) => Some(Distrust::OfClient),
            _ => None,
        })
    }
}

/// The TLS error in an error, which an error of input and output may hold as its content.
fn tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let held = error.downcast_ref::<io::Error>().and_then(|error| error.get_ref());
    let held = held.and_then(|held| {
        let held: &(dyn Error + 'static) = held;
        tls_error(held)
    });
    error.downcast_ref().or(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_certificates_is_refused() {
        for wrong in ["", "no PEM", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let refused = ClientTls::new(Some(wrong.as_bytes()), None);
            assert!(matches!(refused, Err(ClientTlsError::Authority(_))), "{wrong}");
        }
    }

    #[test]
    fn distrust_is_found_behind_other_errors() {
        let error = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let wrapped = io::Error::other(io::Error::other(error));
        assert_eq!(Distrust::behind(&wrapped), Some(Distrust::OfServer));
        let expired = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        assert_eq!(Distrust::behind(&io::Error::other(expired)), Some(Distrust::ByTime));
        assert_eq!(Distrust::behind(&io::Error::other("no answer")), None);
    }
}
