//! The certificates of TLS connections to brokers.

use punctual_core::service_url::{ClientCertificate, Tls};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug, thiserror::Error)]
pub enum BrokerOpenError {
    #[error("the certificates in {path} cannot be used: {reason}")]
    Certificates { path: PathBuf, reason: String },
    #[error("{0}")]
    Options(String),
}

/// The configuration with the given authority, or the public ones, and the certificate of this client.
pub(crate) fn config(tls: &Tls) -> Result<ClientConfig, BrokerOpenError> {
    let mut trusted = RootCertStore::empty();
    match &tls.ca {
        None => trusted.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            for certificate in certificates(path)? {
                trusted.add(certificate).map_err(|error| unusable(path, &error))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| BrokerOpenError::Options(error.to_string()))?;
    let builder = builder.with_root_certificates(trusted);
    match &tls.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(ClientCertificate { certificate, key }) => {
            let chain = certificates(certificate)?;
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
            builder.with_client_auth_cert(chain, secret).map_err(|error| unusable(certificate, &error))
        }
    }
}

/// Reads at least one certificate.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, BrokerOpenError> {
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unusable(path, &error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| unusable(path, &error))?;
    if found.is_empty() {
        return Err(unusable(path, &"it contains no certificate; it must be in PEM"));
    }
    Ok(found)
}

/// Reads a PEM file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, BrokerOpenError> {
    let text = std::fs::read(path).map_err(|error| unusable(path, &error))?;
    if !text.windows(5).any(|bytes| bytes == b"-----") {
        return Err(unusable(path, &"it contains nothing in PEM"));
    }
    Ok(text)
}

fn unusable(path: &Path, reason: &dyn std::fmt::Display) -> BrokerOpenError {
    BrokerOpenError::Certificates { path: path.to_owned(), reason: reason.to_string() }
}
