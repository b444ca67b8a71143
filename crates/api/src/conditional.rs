//! The version of a job as an ETag, and `If-Match` conditions on changes.

use crate::error::ApiError;
use axum::extract::FromRequestParts;
use axum::http::HeaderValue;
use axum::http::header::IF_MATCH;
use axum::http::request::Parts;

/// The version in `If-Match`, if any. `*` and a missing header both mean any version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpectedVersion(pub Option<u32>);

impl<S: Send + Sync> FromRequestParts<S> for ExpectedVersion {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let mut values = parts.headers.get_all(IF_MATCH).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(ExpectedVersion(None)),
            (Some(value), None) => expected(value),
            (Some(_), Some(_)) => Err(malformed()),
        }
    }
}

fn expected(value: &HeaderValue) -> Result<ExpectedVersion, ApiError> {
    let text = value.to_str().map_err(|_| malformed())?.trim();
    if text == "*" {
        return Ok(ExpectedVersion(None));
    }
    let version = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let version = version.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    version.and_then(|digits| digits.parse().ok()).map(Some).map(ExpectedVersion).ok_or_else(malformed)
}

fn malformed() -> ApiError {
    let detail = "must be one ETag of the job, such as \"3\" including its quotes, or *".to_owned();
    ApiError::InvalidHeader { header: "If-Match", detail }
}

pub fn etag(version: u32) -> HeaderValue {
    HeaderValue::try_from(format!("\"{version}\"")).expect("digits in quotes are a header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_names_one_version_or_any() {
        let read = |text: &'static str| expected(&HeaderValue::from_static(text)).map(|version| version.0);
        assert_eq!(read("\"3\"").unwrap(), Some(3));
        assert_eq!(read("*").unwrap(), None);
        assert_eq!(expected(&etag(17)).unwrap(), ExpectedVersion(Some(17)));
        for bad in ["3", "\"\"", "\"+3\"", "W/\"3\"", "\"3\", \"4\"", "\"abc\"", "", "\"99999999999\""] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
