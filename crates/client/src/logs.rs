//! Log lines on the wire.

use crate::client::{Client, ClientError, PageQuery};
use crate::stream::EventStream;
use crate::wire::wire;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::ports::{LogLine, LogStream};
use punctual_core::time::Timestamp;
use reqwest::Method;
use serde::{Deserialize, Serialize};

wire! {
    /// One line that a handler has written.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct LogLineBody as "LogLine" {
        /// When.
        pub timestamp: Timestamp,
        /// Which stream it was written to.
        pub stream: LogStreamBody,
        /// The severity; null for output of a command.
        pub level: Option<String>,
        /// The line; at most 16 KiB.
        pub message: String,
        /// The attempt that wrote it.
        pub execution_id: ExecutionId,
    }
}

/// The stream of a line: a command's stdout or stderr, or the log that Punctual itself writes to.
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

wire! {
    /// One page of log lines, in the order in which they were written.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct LogsPage as "LogPage" {
        /// The lines.
        pub items: Vec<LogLineBody>,
        /// Opaque: pass it as `cursor` to read on; null when there are no further lines now.
        pub next_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
        /// Opaque: pass it as `cursor` to read what is written after this page, now or later; null as long as
        /// nothing has run.
        pub follow_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
    }
}

/// Filters for log lines. Absent filters match all.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Only the last lines, this many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
    /// Only lines written from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only lines written before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// The next item of a followed log.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowedLine {
    Line(LogLineBody),
    /// The writer has finished: no more lines will follow.
    End,
}

/// A log that is read while it is written.
#[derive(Debug)]
pub struct FollowedLogs(EventStream);

impl FollowedLogs {
    /// The next item; `None` when the connection has ended: follow again after [`FollowedLogs::cursor`].
    pub async fn next(&mut self) -> Result<Option<FollowedLine>, ClientError> {
        while let Some(event) = self.0.next().await? {
            match event.kind.as_str() {
                "line" => {
                    let line = serde_json::from_str(&event.data);
                    let line = line.map_err(|error| ClientError::Unexpected(error.to_string()))?;
                    return Ok(Some(FollowedLine::Line(line)));
                }
                "end" => return Ok(Some(FollowedLine::End)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The position after the last received line.
    pub fn cursor(&self) -> Option<&str> {
        self.0.last_id()
    }
}

impl Client {
    /// The lines of one execution that match the query.
    pub async fn execution_log_lines(
        &self,
        id: ExecutionId,
        query: &LogQuery,
    ) -> Result<LogsPage, ClientError> {
        self.send(self.request(Method::GET, &format!("/executions/{id}/logs")).query(query)).await
    }

    /// The lines of a job's latest run, and of later runs, that match the query.
    pub async fn job_log_lines(&self, id: JobId, query: &LogQuery) -> Result<LogsPage, ClientError> {
        self.send(self.request(Method::GET, &format!("/jobs/{id}/logs")).query(query)).await
    }

    /// Follows the log of one execution until it is finished.
    pub async fn follow_execution_logs(
        &self,
        id: ExecutionId,
        query: &LogQuery,
        after: Option<&str>,
    ) -> Result<FollowedLogs, ClientError> {
        self.follow(&format!("/executions/{id}/logs"), query, after).await
    }

    /// Follows the log of a job, across its attempts and runs, until the job is finished.
    pub async fn follow_job_logs(
        &self,
        id: JobId,
        query: &LogQuery,
        after: Option<&str>,
    ) -> Result<FollowedLogs, ClientError> {
        self.follow(&format!("/jobs/{id}/logs"), query, after).await
    }

    async fn follow(
        &self,
        path: &str,
        query: &LogQuery,
        after: Option<&str>,
    ) -> Result<FollowedLogs, ClientError> {
        let request = self.request(Method::GET, path).query(query).query(&[("follow", "true")]);
        self.open_stream(request, after).await.map(FollowedLogs)
    }

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

    /// The lines of a job's latest run, attempt by attempt, and of later runs.
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
