//! The trace that a request belongs to, by its headers. As W3C Trace Context demands, invalid ones are ignored and never an
//! error.

use axum::http::HeaderMap;
use punctual_core::trace_context::TraceContext;

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

/// `None` if there is no valid `traceparent`, or more than one.
pub fn trace_context(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (parent, None) = (parents.next()?, parents.next()) else { return None };
    let states: Option<Vec<&str>> =
        headers.get_all(TRACESTATE).iter().map(|state| state.to_str().ok()).collect();
    TraceContext::of_headers(parent.to_str().ok()?, &states.unwrap_or_default().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn parsed(headers: &[(&'static str, &[u8])]) -> Option<(String, Option<String>)> {
        let headers = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap()));
        let mut map = HeaderMap::new();
        headers.for_each(|(name, value)| {
            map.append(name, value);
        });
        let context = trace_context(&map)?;
        Some((context.traceparent(), context.tracestate().map(str::to_owned)))
    }

    #[test]
    fn several_states_are_one_list_and_several_parents_are_none() {
        let parent = (TRACEPARENT, PARENT.as_bytes());
        assert_eq!(parsed(&[]), None);
        assert_eq!(parsed(&[parent]), Some((PARENT.to_owned(), None)));
        let states: [(&'static str, &[u8]); 2] = [(TRACESTATE, b"a=1, b=2"), (TRACESTATE, b"c=3")];
        assert_eq!(
            parsed(&[parent, states[0], states[1]]),
            Some((PARENT.to_owned(), Some("a=1,b=2,c=3".to_owned())))
        );
        assert_eq!(parsed(&[parent, parent]), None);
        assert_eq!(parsed(&[(TRACEPARENT, b"garbage"), states[0]]), None);
        assert_eq!(parsed(&[(TRACEPARENT, b"\xff")]), None);
        assert_eq!(parsed(&[parent, (TRACESTATE, b"a=\xff")]), Some((PARENT.to_owned(), None)));
    }
}
