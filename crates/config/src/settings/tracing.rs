//! The settings of traces.

use super::{Setting, SettingsTable, is, unset};
use crate::layers::Layers;
use crate::oidc::Text;
use crate::tracing_values::{CollectorUrl, Ratio};
use crate::value::{self, Value};
use std::path::PathBuf;

settings! {
    /// Where spans are sent.
    pub struct TracingSettings {
        /// The OpenTelemetry collector that gets the spans of jobs, by OTLP over HTTP; without it there are none
        endpoint: Option<CollectorUrl> = "tracing.endpoint", unset("http://localhost:4318"),
            "Spans are sent to /v1/traces below it, or to the URL itself if it ends so. An unreachable collector costs spans and nothing else. Use the same value for all processes of a cluster.";
        /// The share of traces that are recorded, from 0 to 1
        sample: Ratio = "tracing.sample", is("1"),
            "For runs whose trace begins here. A run that extends the trace of a caller is recorded if the caller records it. Use the same value for all processes of a cluster.";
        /// A file with headers for the collector, one `Name: value` per line, such as an API key
        headers_file: Option<PathBuf> = "tracing.headers_file", unset("/etc/punctual/otlp.headers"),
            "Read at startup. Only its owner should be able to read it; the server logs a warning otherwise.";
        /// A file with CA certificates (PEM) that sign the certificate of the collector, instead of the well-known ones
        ca_file: Option<PathBuf> = "tracing.ca_file", unset("/etc/punctual/otlp-ca.pem"),
            "Read at startup.";
        /// The service.name of the spans
        service: Text = "tracing.service", is("punctual"),
            "Distinguishes several installations that share a collector.";
    }
}
