//! TLS configurations of clients: which authorities they trust, and the certificate that they present.
//!
//! `ring` is passed as a value everywhere, so that nothing is installed for the whole process.

use punctual_core::service_url::{ClientCertificate, Tls};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file with certificates or a key cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificates in {path} cannot be used: {reason}")]
pub struct TlsFileError {
    pub path: PathBuf,
    pub reason: String,
}

/// The configuration for a service: its authority, and the certificate of this client.
pub fn client_config(tls: &Tls) -> Result<ClientConfig, TlsFileError> {
    let builder = trusting(roots(tls.ca.as_deref())?);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(ClientCertificate { certificate, key }) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(certificate, &error))
        }
    }
}

/// The beginning of a configuration that trusts these authorities.
pub fn trusting(roots: RootCertStore) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has ciphers for all versions")
        .with_root_certificates(roots)
}

/// The authorities in the file, or else the public ones.
pub fn roots(ca: Option<&Path>) -> Result<RootCertStore, TlsFileError> {
    let Some(path) = ca else {
        return Ok(public_roots());
    };
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| unusable(path, &error))?;
    }
    Ok(roots)
}

/// Mozilla's root certificates, which are compiled in.
pub fn public_roots() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

/// Reads at least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it contains no certificate; it must be in PEM"));
    }
    Ok(found)
}

/// Reads a file in PEM, for libraries that parse it themselves.
pub fn pem_file(path: &Path) -> Result<Vec<u8>, TlsFileError> {
    let text = std::fs::read(path).map_err(|error| unusable(path, &error))?;
    if !text.windows(5).any(|bytes| bytes == b"-----") {
        return Err(unusable(path, &"it contains nothing in PEM"));
    }
    Ok(text)
}

fn unusable(path: &Path, reason: &dyn Display) -> TlsFileError {
    TlsFileError { path: path.to_owned(), reason: reason.to_string() }
}
