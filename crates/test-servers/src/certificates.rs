//! Certificates for TLS servers and their clients.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::Path;
use tempfile::TempDir;

/// A certificate authority, its certificates for a server and for a client, and an unknown authority.
pub struct TestCertificates(TempDir);

impl Default for TestCertificates {
    fn default() -> Self {
        TestCertificates::new()
    }
}

impl TestCertificates {
    /// Panics if they cannot be created.
    pub fn new() -> Self {
        let certificates = TestCertificates(tempfile::tempdir().unwrap());
        let authority = |name: &str| {
            let mut params = CertificateParams::new(vec![]).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            // A certificate whose issuer has its own name is self-signed.
            params.distinguished_name.push(DnType::CommonName, name);
            let key = KeyPair::generate().unwrap();
            certificates.write(name, &params.self_signed(&key).unwrap().pem());
            Issuer::new(params, key)
        };
        let issuer = authority("ca.pem");
        authority("other-ca.pem");
        for (name, host) in [("server", "127.0.0.1"), ("client", "a-scheduler")] {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
            certificates.write(&format!("{name}.pem"), &params.signed_by(&key, &issuer).unwrap().pem());
            certificates.write(&format!("{name}.key"), &key.serialize_pem());
        }
        certificates
    }

    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder().join(name), text).unwrap();
    }

    /// The URL parameters that name files.
    pub fn words(&self, files: &[(&str, &str)]) -> String {
        let word =
            |(setting, file): &(&str, &str)| format!("{setting}={}", self.folder().join(file).display());
        files.iter().map(word).collect::<Vec<_>>().join("&")
    }
}
