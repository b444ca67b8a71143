//! Requests to etcd's gateway and its answers: JSON, with keys and values in base64 and large numbers as
//! text.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::{Value, json};

/// Several reads and writes in one step, if all comparisons hold.
pub struct EtcdTransaction {
    pub compare: Vec<Compare>,
    pub success: Vec<EtcdOperation>,
    pub failure: Vec<EtcdOperation>,
}

impl EtcdTransaction {
    pub fn body(&self) -> Value {
        let operations = |list: &[EtcdOperation]| list.iter().map(|each| each.0.clone()).collect::<Vec<_>>();
        json!({
            "compare": self.compare.iter().map(|each| each.0.clone()).collect::<Vec<_>>(),
            "success": operations(&self.success),
            "failure": operations(&self.failure),
        })
    }
}

pub struct Compare(Value);

impl Compare {
    pub fn exists(key: &str) -> Self {
        Compare(json!({"key": encoded(key), "target": "CREATE", "result": "GREATER", "create_revision": "0"}))
    }

    pub fn absent(key: &str) -> Self {
        Self::created_in(key, 0)
    }

    /// Created in this revision; zero means that the key does not exist.
    pub fn created_in(key: &str, revision: u64) -> Self {
        let revision = revision.to_string();
        Compare(
            json!({"key": encoded(key), "target": "CREATE", "result": "EQUAL", "create_revision": revision}),
        )
    }

    /// Not written since it was read.
    pub fn unchanged(row: &KeyValue) -> Self {
        let revision = row.mod_revision.to_string();
        Compare(json!({"key": row.raw_key, "target": "MOD", "result": "EQUAL", "mod_revision": revision}))
    }

    pub fn value(key: &str, value: &str) -> Self {
        Compare(json!({"key": encoded(key), "target": "VALUE", "result": "EQUAL", "value": encoded(value)}))
    }
}

pub struct EtcdOperation(Value);

impl EtcdOperation {
    /// Writes a key attached to this lease.
    pub fn put(key: &str, value: &str, lease: i64) -> Self {
        let put = json!({"key": encoded(key), "value": encoded(value), "lease": lease.to_string()});
        EtcdOperation(json!({"request_put": put}))
    }

    pub fn delete(key: &str) -> Self {
        EtcdOperation(json!({"request_delete_range": {"key": encoded(key)}}))
    }

    /// Also works for a key that is not valid UTF-8.
    pub fn delete_row(row: &KeyValue) -> Self {
        EtcdOperation(json!({"request_delete_range": {"key": row.raw_key}}))
    }

    /// All keys with this prefix.
    pub fn range(prefix: &str) -> Self {
        let mut end = prefix.as_bytes().to_vec();
        // The first key after all of them: prefixes end with a slash, which is not the highest byte.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        EtcdOperation(json!({"request_range": {"key": encoded(prefix), "range_end": BASE64.encode(end)}}))
    }
}

fn encoded(text: &str) -> String {
    BASE64.encode(text)
}

/// The result of a transaction.
#[derive(Debug)]
pub struct TransactionResult {
    pub succeeded: bool,
    /// The result of each read.
    pub ranges: Vec<Vec<KeyValue>>,
}

/// Bytes that are not valid UTF-8 are replaced by U+FFFD, which our keys and values do not contain.
#[derive(Debug)]
pub struct KeyValue {
    pub key: String,
    pub value: String,
    pub create_revision: u64,
    /// Whether it is attached to a lease.
    pub is_leased: bool,
    /// The key as etcd sent it.
    raw_key: String,
    mod_revision: u64,
}

/// etcd leaves out values that are zero, false or empty.
#[derive(Deserialize)]
struct RawAnswer {
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<RawResponse>,
}

#[derive(Deserialize)]
struct RawResponse {
    response_range: Option<RawRange>,
}

#[derive(Deserialize)]
struct RawRange {
    #[serde(default)]
    kvs: Vec<RawKeyValue>,
}

#[derive(Deserialize)]
struct RawKeyValue {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    create_revision: String,
    mod_revision: String,
    #[serde(default)]
    lease: String,
}

/// `None` if it is malformed.
pub fn answer(body: &[u8]) -> Option<TransactionResult> {
    let raw: RawAnswer = serde_json::from_slice(body).ok()?;
    let text = |encoded: &str| Some(String::from_utf8_lossy(&BASE64.decode(encoded).ok()?).into_owned());
    let row = |raw: RawKeyValue| {
        Some(KeyValue {
            key: text(&raw.key)?,
            value: text(&raw.value)?,
            create_revision: raw.create_revision.parse().ok()?,
            is_leased: !matches!(raw.lease.as_str(), "" | "0"),
            mod_revision: raw.mod_revision.parse().ok()?,
            raw_key: raw.key,
        })
    };
    let ranges = raw.responses.into_iter().filter_map(|response| response.response_range);
    let ranges = ranges.map(|range| range.kvs.into_iter().map(row).collect::<Option<Vec<_>>>());
    Some(TransactionResult { succeeded: raw.succeeded, ranges: ranges.collect::<Option<_>>()? })
}

/// How many seconds a lease has left after a keep-alive; `None` if it does not exist.
pub fn seconds_left(body: &[u8]) -> Option<i64> {
    let raw: Value = serde_json::from_slice(body).ok()?;
    let left = raw.get("result")?.get("TTL").and_then(Value::as_str).unwrap_or("0");
    left.parse().ok()
}

pub fn token(body: &[u8]) -> Option<String> {
    let raw: Value = serde_json::from_slice(body).ok()?;
    Some(raw.get("token")?.as_str()?.to_owned())
}

/// The message of an error, and its gRPC status code.
pub fn error(body: &[u8]) -> (String, i64) {
    let raw: Value = serde_json::from_slice(body).unwrap_or_default();
    // A streamed answer has its error one level deeper.
    let raw = raw.get("error").filter(|inner| inner.is_object()).unwrap_or(&raw);
    let said = raw.get("message").or_else(|| raw.get("error")).and_then(Value::as_str);
    let code = raw.get("code").or_else(|| raw.get("grpc_code")).and_then(Value::as_i64);
    (said.unwrap_or("no reason was given").to_owned(), code.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_although_etcd_omits_zeros() {
        let body = br#"{"header": {"revision": "7"}, "succeeded": true, "responses": [{"response_range": {"header": {},
            "kvs": [{"key": "YS9i", "create_revision": "5", "mod_revision": "6", "version": "2"}], "count": "1"}},
            {"response_range": {}}]}"#;
        let found = answer(body).unwrap();
        assert!(found.succeeded);
        assert_eq!(found.ranges.len(), 2);
        let row = &found.ranges[0][0];
        assert_eq!((row.key.as_str(), row.value.as_str(), row.create_revision), ("a/b", "", 5));
        assert!(!answer(b"{}").unwrap().succeeded);
        assert!(answer(b"<html>").is_none());
        assert_eq!(seconds_left(br#"{"result": {"ID": "1", "TTL": "3"}}"#), Some(3));
        assert_eq!(seconds_left(br#"{"result": {"ID": "1"}}"#), Some(0));
    }

    #[test]
    fn errors_are_parsed_in_either_form() {
        let flat = br#"{"error": "etcdserver: lease already exists", "code": 9, "message": "etcdserver: lease already exists"}"#;
        assert_eq!(error(flat), ("etcdserver: lease already exists".to_owned(), 9));
        let nested = br#"{"error": {"grpc_code": 14, "message": "etcdserver: no leader"}}"#;
        assert_eq!(error(nested), ("etcdserver: no leader".to_owned(), 14));
        assert_eq!(error(b"").1, 0);
    }
}
