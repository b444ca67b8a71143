//! The URL of the place of blobs. It never contains credentials.

use crate::value::{Raw, Value};
use punctual_blobs::BlobOptions;
use serde_json::Value as Json;

const FORMS: &str = "a URL such as file:///var/lib/punctual/blobs or s3://BUCKET/PREFIX";

/// The value of the setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobUrl(pub BlobOptions);

impl Value for BlobUrl {
    fn kind() -> String {
        FORMS.to_owned()
    }

    fn placeholder() -> String {
        "URL".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = raw.text().ok_or_else(|| format!("must be {FORMS}"))?;
        BlobOptions::parse(text).map(BlobUrl).map_err(|error| error.to_string())
    }

    /// A malformed value may contain a password.
    fn found(_: &Raw) -> Option<String> {
        None
    }

    fn written(&self) -> Json {
        self.0.to_string().into()
    }
}
