//! The place of blobs, from a URL. Credentials are never part of it.

use std::fmt;
use std::path::PathBuf;
use url::Url;

/// Where blobs are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "a process has one value, which it reads at its start")]
pub enum BlobOptions {
    /// A directory, which is created if it does not exist.
    Directory(PathBuf),
    S3(S3Options),
}

/// A place in an S3-compatible store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Options {
    pub bucket: String,
    /// The beginning of all names, without slashes around it; may be empty.
    pub prefix: String,
    /// The address of a store other than Amazon's.
    pub endpoint: Option<Url>,
    pub region: String,
    /// By default the environment of the server, or the role of its machine.
    pub login: Option<S3Login>,
    /// A file with the authorities (PEM) to trust instead of the well-known ones.
    pub ca: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct S3Login {
    pub access_key: String,
    pub secret_key: String,
}

/// Without the secret.
impl fmt::Debug for S3Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Login").field("access_key", &self.access_key).finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobUrlError {
    #[error("must be file:///DIRECTORY or s3://BUCKET/PREFIX")]
    Form,
    #[error(
        "must not contain a user or password: write the keys of S3 to the file that blobs.credentials_file names"
    )]
    Credentials,
    #[error(
        "must not have a query or fragment: the other settings of S3 are blobs.endpoint and blobs.region"
    )]
    Query,
}

impl BlobOptions {
    /// Parses the URL; the other options of S3 have their defaults.
    pub fn parse(text: &str) -> Result<Self, BlobUrlError> {
        let url = Url::parse(text.trim()).map_err(|_| BlobUrlError::Form)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BlobUrlError::Credentials);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(BlobUrlError::Query);
        }
        match (url.scheme(), url.host_str()) {
            ("file", None) if text.trim().starts_with("file:///") => {
                url.to_file_path().map(BlobOptions::Directory).map_err(|()| BlobUrlError::Form)
            }
            ("s3", Some(bucket)) if !bucket.is_empty() && url.port().is_none() => {
                let prefix = url.path().trim_matches('/');
                if prefix.split('/').any(|part| matches!(part, "." | "..")) || prefix.contains("//") {
                    return Err(BlobUrlError::Form);
                }
                Ok(BlobOptions::S3(S3Options {
                    bucket: bucket.to_owned(),
                    prefix: prefix.to_owned(),
                    endpoint: None,
                    region: String::new(),
                    login: None,
                    ca: None,
                }))
            }
            _ => Err(BlobUrlError::Form),
        }
    }
}

/// As a URL.
impl fmt::Display for BlobOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobOptions::Directory(path) => write!(f, "file://{}", path.display()),
            BlobOptions::S3(S3Options { bucket, prefix, .. }) if prefix.is_empty() => {
                write!(f, "s3://{bucket}")
            }
            BlobOptions::S3(S3Options { bucket, prefix, .. }) => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}
