//! Calls that leave Punctual for targets that users have chosen: one client whose connections are checked
//! ([`guard`], [`connect`]), and the channels of notifications ([`channels`]).
//!
//! It must not know jobs, the store or the engine: it gets messages and sends them.

#[cfg(feature = "channels")]
pub mod channels;
mod connect;
mod guard;

pub use connect::{Connector, HttpClient, client};
pub use guard::{AddressGuard, Allow, ParseAllowError, RefusedAddress};

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("no certificate in PEM found")]
    NoCertificate,
    #[error("not a certificate in PEM: {0}")]
    BadCertificate(String),
}

/// TLS with the well-known authorities, and these in PEM.
pub fn tls_config(more_roots_pem: &[u8]) -> Result<ClientConfig, OutboundError> {
    let mut roots = punctual_tls::public_roots();
    let well_known = roots.len();
    for certificate in CertificateDer::pem_slice_iter(more_roots_pem) {
        let bad = |error: &dyn std::fmt::Display| OutboundError::BadCertificate(error.to_string());
        let certificate = certificate.map_err(|error| bad(&error))?;
        roots.add(certificate).map_err(|error| bad(&error))?;
    }
    if !more_roots_pem.is_empty() && roots.len() == well_known {
        return Err(OutboundError::NoCertificate);
    }
    Ok(punctual_tls::trusting(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_roots_must_be_certificates() {
        assert!(tls_config(b"").is_ok());
        assert!(matches!(tls_config(b"hello"), Err(OutboundError::NoCertificate)));
        let nonsense = b"-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
        assert!(matches!(tls_config(nonsense), Err(OutboundError::BadCertificate(_))));
    }
}
