//! Both kinds of store, through `object_store`. It writes a file completely, with fsync, before it gives it its name,
//! and completes an upload to S3 at its end: until then there is no blob.

use crate::options::{BlobOptions, S3Options};
use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::buffered::BufWriter;
use object_store::client::{HttpClient, HttpConnector};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use punctual_core::causes::in_full;
use punctual_core::ports::{BlobError, BlobKeys, BlobParts, BlobStore};
use punctual_core::service_url::Tls;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;

/// Bytes in memory before they are sent: the smallest part that S3 accepts. At most two are in memory.
const UPLOAD_PART_BYTES: usize = 5 * 1024 * 1024;
/// How long S3 may take to accept a connection, and to send the next bytes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request to S3 is repeated that fails.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);
/// Age of a file that was not completed after which it is deleted: its server was killed.
const UNFINISHED_KEPT: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, thiserror::Error)]
pub enum OpenBlobsError {
    #[error("the directory {} cannot be used", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Tls(#[from] punctual_tls::TlsFileError),
    #[error("the HTTP client cannot be built")]
    Client(#[from] reqwest::Error),
    #[error("the settings cannot be used: {0}")]
    Options(String),
}

/// Opens the place of blobs. Does not connect to S3 yet: a server starts without it.
pub fn open(options: &BlobOptions) -> Result<Arc<dyn BlobStore>, OpenBlobsError> {
    let (store, prefix): (Arc<dyn ObjectStore>, Path) = match options {
        BlobOptions::Directory(path) => {
            let failed = |source| OpenBlobsError::Directory { path: path.clone(), source };
            DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
            delete_unfinished(path).map_err(failed)?;
            let directory = LocalFileSystem::new_with_prefix(path).map_err(unusable)?;
            (Arc::new(directory.with_fsync(true).with_automatic_cleanup(true)), Path::default())
        }
        BlobOptions::S3(options) => {
            let prefix = Path::parse(&options.prefix).map_err(|error| unusable(error.into()))?;
            (Arc::new(s3(options)?), prefix)
        }
    };
    Ok(Arc::new(ObjectBlobs { store, prefix }))
}

fn unusable(error: Error) -> OpenBlobsError {
    OpenBlobsError::Options(in_full(&error))
}

fn s3(options: &S3Options) -> Result<object_store::aws::AmazonS3, OpenBlobsError> {
    let tls = punctual_tls::client_config(&Tls { ca: options.ca.clone(), ..Tls::default() })?;
    let client = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .build()?;
    // The callers try again as well, and somebody may wait for the answer.
    let retry = RetryConfig { max_retries: 3, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() };
    // Reads the variables of AWS, for keys and for roles.
    let mut builder = AmazonS3Builder::from_env()
        .with_retry(retry)
        .with_bucket_name(&options.bucket)
        .with_region(&options.region)
        .with_http_connector(S3Connector(client));
    if let Some(endpoint) = &options.endpoint {
        let address = endpoint.as_str().trim_end_matches('/');
        builder = builder.with_endpoint(address).with_allow_http(endpoint.scheme() == "http");
    }
    if let Some(login) = &options.login {
        builder = builder.with_access_key_id(&login.access_key).with_secret_access_key(&login.secret_key);
    }
    builder.build().map_err(unusable)
}

/// The client with the TLS of this program.
#[derive(Debug)]
struct S3Connector(reqwest::Client);

impl HttpConnector for S3Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

/// Deletes files that were being written when their server was killed, and that no list shows.
fn delete_unfinished(directory: &std::path::Path) -> io::Result<()> {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let about = entry.metadata()?;
            if about.is_dir() {
                directories.push(entry.path());
                continue;
            }
            let name = entry.file_name();
            // The name of a blob, and a number.
            let is_unfinished = name.to_string_lossy().contains('#');
            let age = about.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
            if is_unfinished && age.is_some_and(|age| age > UNFINISHED_KEPT) {
                tracing::info!(file = %entry.path().display(), "deleted a blob that was not written to its end");
                std::fs::remove_file(entry.path())?;
            }
        }
    }
    Ok(())
}

#[derive(Debug)]
struct ObjectBlobs {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
}

impl ObjectBlobs {
    fn path(&self, key: &str) -> Path {
        key.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }
}

#[async_trait]
impl BlobStore for ObjectBlobs {
    async fn put(&self, key: &str, parts: &mut dyn BlobParts) -> Result<(), BlobError> {
        let writer = BufWriter::with_capacity(self.store.clone(), self.path(key), UPLOAD_PART_BYTES);
        let mut writer = writer.with_max_concurrency(1);
        let written = async {
            while let Some(part) = parts.next().await? {
                writer.put(part.into()).await.map_err(failed)?;
            }
            Ok(())
        }
        .await;
        match written {
            Ok(()) => writer.shutdown().await.map_err(|error| BlobError::Unavailable(in_full(&error))),
            Err(error) => {
                // What is left of it is not visible.
                let _ = writer.abort().await;
                Err(error)
            }
        }
    }

    async fn get(&self, key: &str) -> Result<Box<dyn BlobParts>, BlobError> {
        let found = self.store.get(&self.path(key)).await.map_err(failed)?;
        let parts = found.into_stream().map(|part| part.map(|bytes| bytes.to_vec()).map_err(failed)).boxed();
        Ok(Box::new(StoredParts(parts)))
    }

    async fn delete(&self, key: &str) -> Result<(), BlobError> {
        match self.store.delete(&self.path(key)).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    fn keys(&self) -> Box<dyn BlobKeys> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        Box::new(StoredKeys { found: self.store.list(prefix), prefix: self.prefix.clone() })
    }
}

struct StoredParts(BoxStream<'static, Result<Vec<u8>, BlobError>>);

#[async_trait]
impl BlobParts for StoredParts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        while let Some(part) = self.0.next().await {
            let part = part?;
            if !part.is_empty() {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

struct StoredKeys {
    found: BoxStream<'static, object_store::Result<ObjectMeta>>,
    prefix: Path,
}

#[async_trait]
impl BlobKeys for StoredKeys {
    async fn next(&mut self) -> Result<Option<String>, BlobError> {
        let Some(found) = self.found.next().await else { return Ok(None) };
        let location = found.map_err(failed)?.location;
        let key = location.as_ref().strip_prefix(self.prefix.as_ref()).unwrap_or_default();
        Ok(Some(key.trim_start_matches('/').to_owned()))
    }
}

fn failed(error: Error) -> BlobError {
    match error {
        Error::NotFound { .. } => BlobError::NotFound,
        error => BlobError::Unavailable(in_full(&error)),
    }
}
