//! TLS to the database, with rustls and `ring` as everywhere in Punctual.

use punctual_tls::roots;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// How strictly the server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verification {
    /// The connection is encrypted, but the server is not authenticated.
    Nothing,
    /// An authority has signed it, for any name.
    Authority,
    AuthorityAndName,
}

/// A TLS connector with these rules. The authorities are those of the file, or else the well-known ones.
pub(crate) fn connector(
    verification: Verification,
    root_certificate: Option<&Path>,
) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let authorities = || roots(root_certificate).map_err(|error| error.to_string());
    let authority = match verification {
        Verification::Nothing => None,
        Verification::Authority => Some(
            WebPkiServerVerifier::builder_with_provider(Arc::new(authorities()?), Arc::clone(&provider))
                .build()
                .map_err(|error| error.to_string())?,
        ),
        Verification::AuthorityAndName => {
            let config = builder.with_root_certificates(authorities()?).with_no_client_auth();
            return Ok(MakeRustlsConnect::new(config));
        }
    };
    let verifier = Arc::new(LenientVerifier { authority, provider });
    let config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Verifies less than rustls would.
#[derive(Debug)]
struct LenientVerifier {
    /// It must have signed the certificate, for any name: servers behind one address each have their own. Without it every
    /// certificate is accepted, for users who requested only encryption.
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for LenientVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(certificate, intermediates, name, ocsp_response, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
