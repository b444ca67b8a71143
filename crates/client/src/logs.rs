//! Log lines on the wire.

use crate::client::{Client, ClientError, PageQuery};
use crate::stream::EventStream;
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

/// Which lines to read. Everything left out matches all.
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

/// What a followed log says next.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowedLine {
    Line(LogLineBody),
    /// Whoever wrote it is finished: there will be no more lines.
    End,
}

/// A log that is read as it is written.
#[derive(Debug)]
pub struct FollowedLogs(EventStream);

impl FollowedLogs {
    /// What comes next; `None` when the connection is over: follow again after [`FollowedLogs::cursor`].
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

    /// The place after the last line that came.
    pub fn cursor(&self) -> Option<&str> {
        self.0.last_id()
    }
}

impl Client {
    /// The lines of one execution that the query names.
    pub async fn execution_log_lines(
        &self,
        id: ExecutionId,
        query: &LogQuery,
    ) -> Result<LogsPage, ClientError> {
        self.send(self.request(Method::GET, &format!("/executions/{id}/logs")).query(query)).await
    }

    /// The lines of a job's latest run, and of what runs after it, that the query names.
    pub async fn job_log_lines(&self, id: JobId, query: &LogQuery) -> Result<LogsPage, ClientError> {
        self.send(self.request(Method::GET, &format!("/jobs/{id}/logs")).query(query)).await
    }

    /// Follows the log of one execution until that is finished.
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
