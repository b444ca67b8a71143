//! Log lines on the wire.

use crate::client::{Client, ClientError, PageQuery};
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::ports::{LogLine, LogStream};
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

/// One line that a handler has written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogLineBody {
    pub timestamp: Timestamp,
    pub stream: LogStreamBody,
    /// How important it is; null for what a command has written.
    pub level: Option<String>,
    pub message: String,
    /// The attempt that has written it.
    pub execution_id: ExecutionId,
}

/// Where a line was written to: a command's stdout or stderr, or the log that Punctual itself writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogStreamBody {
    Stdout,
    Stderr,
    Log,
}

impl From<LogStream> for LogStreamBody {
    fn from(stream: LogStream) -> Self {
        match stream {
            LogStream::Stdout => LogStreamBody::Stdout,
            LogStream::Stderr => LogStreamBody::Stderr,
            LogStream::Log => LogStreamBody::Log,
        }
    }
}

impl From<LogStreamBody> for LogStream {
    fn from(stream: LogStreamBody) -> Self {
        match stream {
            LogStreamBody::Stdout => LogStream::Stdout,
            LogStreamBody::Stderr => LogStream::Stderr,
            LogStreamBody::Log => LogStream::Log,
        }
    }
}

impl From<LogLine> for LogLineBody {
    fn from(line: LogLine) -> Self {
        LogLineBody {
            timestamp: line.timestamp,
            stream: line.stream.into(),
            level: (line.stream == LogStream::Log).then(|| "info".to_owned()),
            message: line.message,
            execution_id: line.execution,
        }
    }
}

/// One page of log lines, in the order in which they were written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogsPage {
    pub items: Vec<LogLineBody>,
    /// Opaque: give it back as `cursor` to read on; null when there are no further lines now.
    pub next_cursor: Option<String>,
    /// Opaque: give it back as `cursor` to read what is written after this page, now or later; null as long as
    /// nothing has run.
    pub follow_cursor: Option<String>,
}

impl Client {
    /// The lines of one execution.
    pub async fn execution_logs(
        &self,
        id: ExecutionId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<LogsPage, ClientError> {
        let query = PageQuery { limit, cursor };
        self.send(self.request(Method::GET, &format!("/executions/{id}/logs")).query(&query)).await
    }

    /// The lines of a job's latest run, attempt by attempt, and of what runs after it.
    pub async fn job_logs(
        &self,
        id: JobId,
        limit: Option<usize>,
        cursor: Option<&str>,
    ) -> Result<LogsPage, ClientError> {
        let query = PageQuery { limit, cursor };
        self.send(self.request(Method::GET, &format!("/jobs/{id}/logs")).query(&query)).await
    }
}
