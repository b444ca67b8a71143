//! The certificate of a listener: reading its files, and reading them again when they change.

use punctual_api::{ServerTls, Traffic};
use punctual_config::exit::{CliError, Exit};
use punctual_config::{ApiSettings, ClientAuth, ListenerSettings, exposure};
use punctual_core::ports::Host;
use punctual_core::time::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// How often the files are compared with the certificate in use.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Bytes of a file with certificates or a key: it is read at every check.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// The protocols that a handshake offers, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of a listener's certificate.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    certificate: NamedTlsFile,
    key: NamedTlsFile,
    client_ca: Option<NamedTlsFile>,
    client_auth: ClientAuth,
}

/// A file named by a setting.
#[derive(Debug, Clone)]
struct NamedTlsFile {
    origin: String,
    path: PathBuf,
}

/// What is in the files, to notice changes.
#[derive(Clone, PartialEq, Eq)]
struct TlsFileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

/// A certificate in use, and what its files contained.
pub struct LoadedTls {
    files: TlsFiles,
    contents: TlsFileContents,
    tls: ServerTls,
}

impl TlsFiles {
    /// The files that the settings name; `None` without TLS. `origin` returns where a setting was found.
    pub fn named(
        listener: &ListenerSettings,
        api: Option<&ApiSettings>,
        origin: impl Fn(&str) -> String,
    ) -> Result<Option<Self>, CliError> {
        let file = |key: &str, path: &Path| NamedTlsFile { origin: origin(key), path: path.to_owned() };
        let alone = |key: &str, other: &str| CliError {
            exit: Exit::Misunderstood,
            message: format!("{} needs {other} as well: set what is missing, or remove this", origin(key)),
        };
        let client_ca = api.and_then(|api| api.tls_client_ca.as_deref());
        if client_ca.is_none() && api.is_some_and(|api| api.tls_client_auth == ClientAuth::Workers) {
            return Err(alone("tls_client_auth", "tls_client_ca"));
        }
        match (&listener.tls_cert, &listener.tls_key) {
            (Some(certificate), Some(key)) => Ok(Some(TlsFiles {
                certificate: file("tls_cert", certificate),
                key: file("tls_key", key),
                client_ca: client_ca.map(|path| file("tls_client_ca", path)),
                client_auth: api.map_or(ClientAuth::All, |api| api.tls_client_auth),
            })),
            (Some(_), None) => Err(alone("tls_cert", "tls_key")),
            (None, Some(_)) => Err(alone("tls_key", "tls_cert")),
            (None, None) if client_ca.is_some() => Err(alone("tls_client_ca", "tls_cert and tls_key")),
            (None, None) => Ok(None),
        }
    }

    /// Reads and checks all files.
    pub fn load(self) -> Result<LoadedTls, CliError> {
        let contents = self.read().map_err(CliError::cannot_start)?;
        let tls = self.tls(&contents).map_err(CliError::cannot_start)?;
        Ok(LoadedTls { files: self, contents, tls })
    }

    fn read(&self) -> Result<TlsFileContents, String> {
        Ok(TlsFileContents {
            certificate: self.certificate.read()?,
            key: self.key.read()?,
            client_ca: self.client_ca.as_ref().map(NamedTlsFile::read).transpose()?,
        })
    }

    fn tls(&self, contents: &TlsFileContents) -> Result<ServerTls, String> {
        let chain = self.certificate.certificates(&contents.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&contents.key).map_err(|_| {
            let fix = "`openssl pkey -in FILE -out NEW_FILE` writes one without a passphrase";
            self.key.wrong(format!("contains no private key as PEM without a passphrase; {fix}"))
        })?;
        let names = dns_names(&chain).map_err(|error| self.certificate.wrong(error))?;
        let expires_at = chain.first().and_then(|own| expiry(own));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| self.certificate.wrong(error))?;
        let is_for_workers = self.client_auth == ClientAuth::Workers;
        let builder = match (&self.client_ca, &contents.client_ca) {
            (Some(file), Some(pem)) => {
                let mut roots = RootCertStore::empty();
                for certificate in file.certificates(pem)? {
                    roots.add(certificate).map_err(|error| file.wrong(error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if is_for_workers { verifier.allow_unauthenticated() } else { verifier };
                builder.with_client_cert_verifier(verifier.build().map_err(|error| file.wrong(error))?)
            }
            _ => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => self.key.wrong(format!(
                "is not the key of the first certificate in {}: name the files of one pair, and put the server's own \
                 certificate before its chain",
                self.certificate.path.display()
            )),
            error => self.certificate.wrong(error),
        })?;
        if self.client_ca.is_some() {
            // A resumed session does not show that the client's certificate is still valid.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        if let Ok(Some(exposed)) = exposure(&self.key.path) {
            tracing::warn!("{exposed}");
        }
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(ServerTls {
            config: Arc::new(config),
            names,
            workers_need_certificate: self.client_ca.is_some() && is_for_workers,
            named_by: self.certificate.named(),
            expires_at,
        })
    }
}

impl NamedTlsFile {
    fn read(&self) -> Result<Vec<u8>, String> {
        let unreadable = |error| self.wrong(format!("cannot be read: {error}"));
        let about = std::fs::metadata(&self.path).map_err(unreadable)?;
        if !about.is_file() {
            return Err(self.wrong("is not a regular file"));
        }
        if about.len() > FILE_BYTES_MAX {
            return Err(self.wrong(format!("is larger than {FILE_BYTES_MAX} bytes")));
        }
        std::fs::read(&self.path).map_err(unreadable)
    }

    /// At least one.
    fn certificates(&self, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates.map_err(|error| self.wrong(error))?;
        if certificates.is_empty() {
            let expected = "contains no certificate: it must be PEM, with -----BEGIN CERTIFICATE-----";
            return Err(self.wrong(expected));
        }
        Ok(certificates)
    }

    fn named(&self) -> String {
        format!("{} {}", self.origin, self.path.display())
    }

    fn wrong(&self, problem: impl fmt::Display) -> String {
        format!("{}: {problem}", self.named())
    }
}

/// When a certificate ends; `None` if it does not say.
fn expiry(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let since_epoch = certificate.tbs_certificate.validity.not_after.to_unix_duration();
    Some(Timestamp::EPOCH.plus(since_epoch))
}

fn dns_names(chain: &[CertificateDer<'_>]) -> Result<Vec<String>, String> {
    let Some(own) = chain.first() else { return Ok(vec![]) };
    let certificate = webpki::EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
    Ok(certificate.valid_dns_names().map(str::to_owned).collect())
}

impl LoadedTls {
    /// A warning if the certificate has ended, or is about to.
    pub fn warning(&self, now: Timestamp) -> Option<String> {
        self.tls.warning(now)
    }

    /// The certificate for new connections. Follows the files until `stopping` turns true.
    pub fn follow(
        self,
        host: &Host,
        traffic: Arc<Traffic>,
        mut stopping: watch::Receiver<bool>,
    ) -> watch::Receiver<Arc<ServerTls>> {
        let LoadedTls { files, contents, tls, .. } = self;
        let sender = watch::Sender::new(Arc::new(tls));
        let receiver = sender.subscribe();
        let clock = host.clock.clone();
        host.spawn.spawn(Box::pin(async move {
            let mut follower = TlsFileFollower { settled: Ok(contents), latest: None };
            loop {
                tokio::select! {
                    () = clock.sleep(CHECK_INTERVAL) => {}
                    _ = stopping.wait_for(|is_stopping| *is_stopping) => return,
                }
                let reading = files.clone();
                let Ok(read) = tokio::task::spawn_blocking(move || reading.read()).await else { return };
                let Some(changed) = follower.changed(read) else { continue };
                match changed.and_then(|contents| files.tls(&contents)) {
                    Ok(tls) => {
                        let warning = tls.warning(clock.wall());
                        sender.send_replace(Arc::new(tls));
                        tracing::info!("the TLS files have changed: new connections use them");
                        if let Some(warning) = warning {
                            tracing::warn!("{warning}");
                        }
                    }
                    Err(problem) => {
                        traffic.reload_failed();
                        tracing::warn!(problem, "the TLS files have changed, but cannot be used: the server keeps the previous ones");
                    }
                }
            }
        }));
        receiver
    }
}

/// What was read from the files.
type TlsFilesRead = Result<TlsFileContents, String>;

/// Decides when a change counts: when two reads in a row have found the same. Files are replaced one after
/// another, and a new certificate does not fit the old key.
struct TlsFileFollower {
    /// The last result that counted.
    settled: TlsFilesRead,
    /// The result of the last read, if it is another one.
    latest: Option<TlsFilesRead>,
}

impl TlsFileFollower {
    /// A change that counts from now on.
    fn changed(&mut self, read: TlsFilesRead) -> Option<TlsFilesRead> {
        if read == self.settled {
            self.latest = None;
            return None;
        }
        if self.latest.as_ref() != Some(&read) {
            self.latest = Some(read);
            return None;
        }
        self.latest = None;
        self.settled = read.clone();
        Some(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> TlsFilesRead {
        Ok(TlsFileContents { certificate: text.into(), key: text.into(), client_ca: None })
    }

    #[test]
    fn a_change_counts_when_two_reads_agree() {
        let mut follower = TlsFileFollower { settled: read("old"), latest: None };
        assert!(follower.changed(read("old")).is_none());
        assert!(follower.changed(read("half")).is_none());
        assert!(follower.changed(read("new")).is_none());
        assert!(follower.changed(read("new")) == Some(read("new")));
        assert!(follower.changed(read("new")).is_none());
        assert!(follower.changed(Err("gone".to_owned())).is_none());
        assert!(follower.changed(Err("gone".to_owned())).is_some_and(|read| read.is_err()));
        assert!(follower.changed(Err("gone".to_owned())).is_none(), "it is reported once");
        assert!(follower.changed(read("new")).is_none());
        assert!(follower.changed(read("new")).is_some(), "the file is back");
    }
}
