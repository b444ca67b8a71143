//! The operator's settings for web calls: permitted targets, signatures and trusted certificates.

use punctual_config::exit::CliError;
use punctual_config::{AllowedNetwork, WorkerSettings, exposure};
use punctual_core::ports::{Executor, Host};
use punctual_worker::http::{Allow, HttpConfig, HttpExecutor, SigningKey};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The executor of http jobs. `origin` returns where a setting comes from, for errors.
pub fn executor(
    settings: &WorkerSettings,
    origin: impl Fn(&str) -> String,
    host: &Host,
) -> Result<Arc<dyn Executor>, CliError> {
    let named = |key: &str, path| NamedHttpFile { origin: origin(key), path };
    let key = settings.http_signing_key_file.as_deref().map(|path| named("http.signing_key_file", path));
    let certificates = settings.http_ca_file.as_deref().map(|path| named("http.ca_file", path));
    let config = HttpConfig {
        allow: allow(settings)?,
        signing_key: key.as_ref().map(signing_key).transpose()?,
        root_certificates_pem: certificates
            .as_ref()
            .map(NamedHttpFile::read)
            .transpose()?
            .unwrap_or_default(),
    };
    let executor = HttpExecutor::new(config, host).map_err(|error| {
        let error = format!("{:#}", anyhow::Error::from(error));
        // Only certificates can be wrong by now.
        certificates.as_ref().map_or_else(|| CliError::cannot_start(&error), |file| file.wrong(&error))
    })?;
    Ok(Arc::new(executor))
}

fn allow(settings: &WorkerSettings) -> Result<Vec<Allow>, CliError> {
    let parse = |network: &AllowedNetwork| {
        let wrong = |error| CliError::cannot_start(format!("http.allow {}: {error}", network.0));
        network.0.parse().map_err(wrong)
    };
    settings.http_allow.iter().map(parse).collect()
}

/// The key in a file, without a trailing line break.
fn signing_key(file: &NamedHttpFile<'_>) -> Result<SigningKey, CliError> {
    let text = file.read()?;
    if let Ok(Some(exposed)) = exposure(file.path) {
        tracing::warn!("{exposed}");
    }
    let key = text.strip_suffix(b"\n").unwrap_or(&text);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    SigningKey::new(key).map_err(|error| file.wrong(error))
}

/// A file named by a setting.
struct NamedHttpFile<'a> {
    origin: String,
    path: &'a Path,
}

impl NamedHttpFile<'_> {
    /// Its contents. An empty file is an error: it would sign with an empty key or add no trust.
    fn read(&self) -> Result<Vec<u8>, CliError> {
        match std::fs::read(self.path) {
            Ok(text) if text.is_empty() => Err(self.wrong("the file is empty")),
            Ok(text) => Ok(text),
            Err(error) => Err(self.wrong(error)),
        }
    }

    fn wrong(&self, problem: impl fmt::Display) -> CliError {
        CliError::cannot_start(format!("{} {}: {problem}", self.origin, self.path.display()))
    }
}
