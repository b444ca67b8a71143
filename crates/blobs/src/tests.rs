//! What both kinds of store must do.

use crate::{BlobOptions, BlobUrlError, S3Login, S3Options, open};
use punctual_core::blobs::HeldBlob;
use punctual_core::ports::{BlobError, BlobParts, BlobSource, BlobStore};

const KEY: &str = "results/01a1ed14-ae56-7dc6-bf2a-8bb8b586faee/1.1/01a1ed14-ae56-7dc6-bf2a-8bb8b586faff";
/// More than S3 takes in one request here.
const LARGE: usize = 12 * 1024 * 1024 + 17;

/// Parts of 64 KiB, and then the end or an error.
struct Parts {
    left: usize,
    end: Option<BlobError>,
}

#[async_trait::async_trait]
impl BlobParts for Parts {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, BlobError> {
        if self.left == 0 {
            return self.end.take().map_or(Ok(None), Err);
        }
        let part = self.left.min(64 * 1024);
        self.left -= part;
        Ok(Some(vec![b'x'; part]))
    }
}

async fn read(store: &dyn BlobStore, key: &str) -> Result<usize, BlobError> {
    let mut parts = store.get(key).await?;
    let mut bytes = 0;
    while let Some(part) = parts.next().await? {
        assert!(part.iter().all(|byte| *byte == b'x'));
        bytes += part.len();
    }
    Ok(bytes)
}

async fn keys(store: &dyn BlobStore) -> Vec<String> {
    let (mut keys, mut found) = (store.keys(), vec![]);
    while let Some(key) = keys.next().await.unwrap() {
        found.push(key);
    }
    found.sort();
    found
}

async fn conforms(store: &dyn BlobStore) {
    assert_eq!(read(store, KEY).await, Err(BlobError::NotFound));
    for bytes in [1, 70_000, LARGE] {
        store.put(KEY, &mut Parts { left: bytes, end: None }).await.unwrap();
        assert_eq!(read(store, KEY).await, Ok(bytes));
    }
    let other = KEY.replace("1.1", "1.2");
    store.put(&other, &mut *HeldBlob(b"xxx".to_vec()).open().await.unwrap()).await.unwrap();
    assert_eq!(keys(store).await, [KEY, &other]);

    // An upload that breaks off leaves nothing, however much of it was sent.
    for sent in [10, LARGE] {
        let broken = KEY.replace("1.1", "1.3");
        let end = BlobError::TooLarge { bytes_max: 7 };
        let put = store.put(&broken, &mut Parts { left: sent, end: Some(end.clone()) }).await;
        assert_eq!(put, Err(end));
        assert_eq!(read(store, &broken).await, Err(BlobError::NotFound));
    }
    assert_eq!(keys(store).await, [KEY, &other]);

    for _ in 0..2 {
        store.delete(KEY).await.unwrap();
    }
    assert_eq!(read(store, KEY).await, Err(BlobError::NotFound));
    assert_eq!(keys(store).await, [other]);
}

#[tokio::test]
async fn a_directory_keeps_blobs() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&BlobOptions::Directory(directory.path().join("blobs"))).unwrap();
    conforms(&*store).await;
}

#[tokio::test]
async fn files_that_a_killed_server_has_left_are_deleted_when_they_are_old() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (directory.path().join("results/a/blob#1"), directory.path().join("results/a/blob#2"));
    std::fs::create_dir_all(old.parent().unwrap()).unwrap();
    for file in [&old, &new] {
        std::fs::write(file, "x").unwrap();
    }
    let two_days_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 3_600);
    std::fs::File::options().write(true).open(&old).unwrap().set_modified(two_days_ago).unwrap();
    let store = open(&BlobOptions::Directory(directory.path().to_owned())).unwrap();
    assert_eq!((old.exists(), new.exists()), (false, true));
    assert_eq!(keys(&*store).await, [""; 0]);
}

#[tokio::test]
async fn s3_keeps_blobs() {
    conforms(&*open(&BlobOptions::S3(s3_of_tests("conformance"))).unwrap()).await;
}

#[tokio::test]
async fn a_bucket_that_s3_does_not_have_is_an_error() {
    let options = S3Options { bucket: "no-such-bucket".to_owned(), ..s3_of_tests("missing") };
    let store = open(&BlobOptions::S3(options)).unwrap();
    let error = store.put(KEY, &mut Parts { left: 3, end: None }).await.unwrap_err();
    assert!(matches!(&error, BlobError::Unavailable(_) | BlobError::NotFound), "{error}");
}

/// A place of its own in the store of `cargo xtask services run s3`: http://KEY:SECRET@HOST/BUCKET.
fn s3_of_tests(prefix: &str) -> S3Options {
    let url = std::env::var("PUNCTUAL_TEST_S3").expect(
        "PUNCTUAL_TEST_S3: use `cargo xtask services run s3 -- cargo nextest run`, or `cargo xtask test`",
    );
    let url: url::Url = url.parse().unwrap();
    let endpoint = format!("http://{}:{}", url.host_str().unwrap(), url.port().unwrap());
    S3Options {
        bucket: url.path().trim_matches('/').to_owned(),
        prefix: prefix.to_owned(),
        endpoint: Some(endpoint.parse().unwrap()),
        region: "us-east-1".to_owned(),
        login: Some(S3Login {
            access_key: url.username().to_owned(),
            secret_key: url.password().unwrap().to_owned(),
        }),
        ca: None,
    }
}

#[test]
fn urls_read_back_and_others_say_what_is_wrong() {
    for url in ["file:///var/lib/punctual/blobs", "s3://bucket", "s3://bucket/a/b"] {
        assert_eq!(BlobOptions::parse(url).unwrap().to_string(), url);
    }
    assert_eq!(BlobOptions::parse("s3://bucket/a/").unwrap().to_string(), "s3://bucket/a");
    for (url, error) in [
        ("blobs", BlobUrlError::Form),
        ("file://blobs", BlobUrlError::Form),
        ("s3://", BlobUrlError::Form),
        ("gs://bucket", BlobUrlError::Form),
        ("s3://key:secret@bucket", BlobUrlError::Credentials),
        ("s3://bucket?region=x", BlobUrlError::Query),
    ] {
        assert_eq!(BlobOptions::parse(url), Err(error), "{url}");
    }
}
