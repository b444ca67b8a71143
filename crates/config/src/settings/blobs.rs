//! Settings of blobs: results that are too large for the database.

use super::{Setting, SettingsTable, is, unset};
use crate::blob_url::BlobUrl;
use crate::layers::Layers;
use crate::oidc::{PublicUrl, Text};
use crate::value::{self, SizeMax, Value};
use std::path::PathBuf;

settings! {
    /// Where results are stored that are too large for the database.
    pub struct BlobSettings {
        /// The place of results of more than 64 KiB, for jobs with result_overflow = blob: file:///DIRECTORY or s3://BUCKET/PREFIX. By default the directory blobs beside a SQLite store; none with another database
        url: Option<BlobUrl> = "blobs.url", unset("s3://jobs/punctual"),
            "All servers, and workers that use the store, must reach the same place. Give each cluster a place of its own: blobs that its database does not refer to are deleted, so a copy of the database must not use the same place. A directory is created. Blobs are deleted with the history of their executions (keep_history).";
        /// The address of an S3-compatible store other than Amazon's
        endpoint: Option<PublicUrl> = "blobs.endpoint", unset("https://minio.example.org:9000"),
            "Buckets are in the path of requests, not in the name of the host.";
        /// The region of the bucket
        region: Text = "blobs.region", is("us-east-1"),
            "Stores other than Amazon's accept any.";
        /// A file with the access key and the secret key of S3, one per line; by default AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of the machine
        credentials_file: Option<PathBuf> = "blobs.credentials_file", unset("/etc/punctual/s3.key"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// A file with CA certificates (PEM) to trust for blobs.endpoint instead of the well-known ones
        ca_file: Option<PathBuf> = "blobs.ca_file", unset("/etc/punctual/ca.pem"),
            "Read at startup.";
        /// Maximum size of one blob
        size_max: SizeMax = "blobs.size_max", is("64MiB"),
            "A larger result fails its execution, without retry. At most 1GiB, and so is off.";
    }
}
