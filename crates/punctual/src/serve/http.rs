//! Web calls as the operator wants them: where they may go, how they are signed, whom they trust.

use crate::exit::{CliError, Exit};
use punctual_core::ports::{Executor, Host};
use punctual_worker::http::{Allow, HttpConfig, HttpExecutor, SigningKey};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(clap::Args)]
pub struct HttpArgs {
    /// Where http jobs may go beyond the public internet, such as 10.0.0.0/8 or internal.example:8080; give it once for
    /// each, or separate them by commas
    #[arg(long, env = "PUNCTUAL_HTTP_ALLOW", value_name = "NETWORK|HOST", value_delimiter = ',')]
    http_allow: Vec<String>,
    /// A file with the key that signs the calls of http jobs which bring none of their own
    #[arg(long, env = "PUNCTUAL_HTTP_SIGNING_KEY_FILE", value_name = "FILE")]
    http_signing_key_file: Option<PathBuf>,
    /// A file with certificates (PEM) that http jobs trust beside the well-known ones
    #[arg(long, env = "PUNCTUAL_HTTP_CA_FILE", value_name = "FILE")]
    http_ca_file: Option<PathBuf>,
}

impl HttpArgs {
    pub fn executor(&self, host: &Host) -> Result<Arc<dyn Executor>, CliError> {
        let config = HttpConfig {
            allow: self.allow()?,
            signing_key: self.http_signing_key_file.as_deref().map(read_key).transpose()?,
            root_certificates_pem: self.http_ca_file.as_deref().map_or(Ok(Vec::new()), read_certificates)?,
        };
        let executor = HttpExecutor::new(config, host).map_err(|error| {
            let file = self.http_ca_file.as_deref().unwrap_or(Path::new("")).display().to_string();
            CliError::cannot_start(format!("--http-ca-file {file}: {:#}", anyhow::Error::from(error)))
        })?;
        Ok(Arc::new(executor))
    }

    fn allow(&self) -> Result<Vec<Allow>, CliError> {
        // An empty variable and a trailing comma allow nothing.
        let given = self.http_allow.iter().map(|text| text.trim()).filter(|text| !text.is_empty());
        let parse = |text: &str| {
            text.parse().map_err(|error| CliError {
                exit: Exit::Misunderstood,
                message: format!("--http-allow {text}: {error}"),
            })
        };
        given.map(parse).collect()
    }
}

/// The key in a file, without the line end that editors leave.
fn read_key(file: &Path) -> Result<SigningKey, CliError> {
    let text = read("--http-signing-key-file", file)?;
    let key = text.strip_suffix(b"\n").unwrap_or(&text);
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    SigningKey::new(key).map_err(|error| {
        CliError::cannot_start(format!("--http-signing-key-file {}: {error}", file.display()))
    })
}

fn read_certificates(file: &Path) -> Result<Vec<u8>, CliError> {
    let text = read("--http-ca-file", file)?;
    // An empty file would trust nobody more, which is not what was meant.
    if text.is_empty() {
        return Err(CliError::cannot_start(format!("--http-ca-file {}: the file is empty", file.display())));
    }
    Ok(text)
}

fn read(option: &str, file: &Path) -> Result<Vec<u8>, CliError> {
    std::fs::read(file)
        .map_err(|error| CliError::cannot_start(format!("{option} {}: {error}", file.display())))
}
