//! Blobs in a directory or in an S3-compatible store. It knows the names of blobs only as texts: which of them are in
//! use is decided elsewhere.

mod object;
mod options;
#[cfg(test)]
mod tests;

pub use object::{OpenBlobsError, open};
pub use options::{BlobOptions, BlobUrlError, S3Login, S3Options};
