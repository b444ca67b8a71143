//! The messages of OTLP that spans need, as in `opentelemetry/proto/trace/v1/trace.proto`, version 1. Only fields that are
//! sent are declared. Knows nothing of queues and HTTP.

use prost::{Message, Oneof};
use punctual_core::ports::{FinishedSpan, SpanEvent, SpanKind, SpanValue};
use punctual_core::time::Timestamp;
use punctual_core::trace_context::{SpanId, TraceContext};

#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<ExportTracePartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportTracePartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_spans: i64,
}

impl ExportTraceServiceResponse {
    /// How many spans of the request the collector has not accepted.
    pub fn rejected(&self) -> u64 {
        let rejected = self.partial_success.as_ref().map_or(0, |partial| partial.rejected_spans);
        rejected.try_into().unwrap_or(0)
    }
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<OtlpAttribute>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    spans: Vec<OtlpSpan>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<OtlpAttribute>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<OtlpEvent>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<OtlpLink>,
    #[prost(message, optional, tag = "15")]
    status: Option<OtlpStatus>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpEvent {
    #[prost(fixed64, tag = "1")]
    time_unix_nano: u64,
    #[prost(string, tag = "2")]
    name: String,
    #[prost(message, repeated, tag = "3")]
    attributes: Vec<OtlpAttribute>,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpLink {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(string, tag = "3")]
    trace_state: String,
    #[prost(fixed32, tag = "6")]
    flags: u32,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

#[derive(Clone, PartialEq, Message)]
struct OtlpAttribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    StringValue(String),
    #[prost(int64, tag = "3")]
    IntValue(i64),
}

/// `STATUS_CODE_ERROR`. Spans without an error have no status, as the conventions recommend.
const STATUS_ERROR: i32 = 2;
/// The flag of sampled traces.
const SAMPLED: u32 = 1;

/// The process that spans come from.
#[derive(Debug, Clone)]
pub struct SpanSource {
    pub service: String,
    /// Distinguishes the processes of a cluster.
    pub instance: String,
    pub host: String,
}

impl SpanSource {
    pub fn request(&self, spans: &[FinishedSpan]) -> ExportTraceServiceRequest {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = [
            ("service.name", self.service.as_str()),
            ("service.instance.id", &self.instance),
            ("service.version", version),
            ("host.name", &self.host),
        ];
        let attributes = attributes.map(|(key, value)| key_value(key, &SpanValue::text(value)));
        let scope = InstrumentationScope { name: "punctual".to_owned(), version: version.to_owned() };
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource { attributes: attributes.into() }),
                scope_spans: vec![ScopeSpans {
                    scope: Some(scope),
                    spans: spans.iter().map(OtlpSpan::from).collect(),
                }],
            }],
        }
    }
}

impl From<&FinishedSpan> for OtlpSpan {
    fn from(span: &FinishedSpan) -> Self {
        let context = &span.context;
        OtlpSpan {
            trace_id: context.trace.to_bytes().to_vec(),
            span_id: context.span.to_bytes().to_vec(),
            trace_state: context.tracestate().unwrap_or_default().to_owned(),
            parent_span_id: span.parent.map(SpanId::to_bytes).map(Vec::from).unwrap_or_default(),
            name: span.name.clone(),
            kind: match span.kind {
                SpanKind::Internal => 1,
                SpanKind::Producer => 4,
                SpanKind::Consumer => 5,
            },
            start_time_unix_nano: unix_nanos(span.started_at),
            end_time_unix_nano: unix_nanos(span.ended_at),
            attributes: key_values(&span.attributes),
            events: span.events.iter().map(OtlpEvent::from).collect(),
            links: span.links.iter().map(OtlpLink::from).collect(),
            status: span.error.clone().map(|message| OtlpStatus { message, code: STATUS_ERROR }),
            flags: flags(context),
        }
    }
}

impl From<&SpanEvent> for OtlpEvent {
    fn from(event: &SpanEvent) -> Self {
        OtlpEvent {
            time_unix_nano: unix_nanos(event.at),
            name: event.name.to_owned(),
            attributes: key_values(&event.attributes),
        }
    }
}

impl From<&TraceContext> for OtlpLink {
    fn from(context: &TraceContext) -> Self {
        OtlpLink {
            trace_id: context.trace.to_bytes().to_vec(),
            span_id: context.span.to_bytes().to_vec(),
            trace_state: context.tracestate().unwrap_or_default().to_owned(),
            flags: flags(context),
        }
    }
}

fn flags(context: &TraceContext) -> u32 {
    if context.is_sampled { SAMPLED } else { 0 }
}

fn key_values(attributes: &[(&'static str, SpanValue)]) -> Vec<OtlpAttribute> {
    attributes.iter().map(|(key, value)| key_value(key, value)).collect()
}

fn key_value(key: &str, value: &SpanValue) -> OtlpAttribute {
    let value = match value {
        SpanValue::Text(text) => AnyValueKind::StringValue(text.clone()),
        SpanValue::Number(number) => AnyValueKind::IntValue(*number),
    };
    OtlpAttribute { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }) }
}

fn unix_nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros()).unwrap_or(0).saturating_mul(1_000)
}
