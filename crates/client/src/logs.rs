//! Log lines on the wire.

use crate::client::{Client, ClientError, PageQuery};
use crate::stream::EventStream;
use crate::wire::wire;
use punctual_core::ids::{ExecutionId, JobId};
use punctual_core::log_level::LogLevel;
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
        /// The severity (`debug`, `info`, `warn` or `error`), if the line was written with one; null for other output of a
        /// command.
        pub level: Option<String> = text().example("error"),
        /// The line; at most 16 KiB.
        pub message: String,
        /// The attempt that wrote it.
        pub execution_id: ExecutionId,
        /// Its place among the lines of this attempt, from 1. A line that Punctual adds before them has 0.
        #[serde(default)]
        pub number: u64,
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

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevelBody {
    Debug,
    Info,
    Warn,
    Error,
}

impl From<LogLevelBody> for LogLevel {
    fn from(level: LogLevelBody) -> Self {
        match level {
            LogLevelBody::Debug => LogLevel::Debug,
            LogLevelBody::Info => LogLevel::Info,
            LogLevelBody::Warn => LogLevel::Warn,
            LogLevelBody::Error => LogLevel::Error,
        }
    }
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
        let (level, message) = LogLevel::split(&line.message);
        let level = level.or((line.stream == LogStream::Log).then_some(LogLevel::Info));
        LogLineBody {
            timestamp: line.timestamp,
            stream: line.stream.into(),
            level: level.map(|level| level.word().to_owned()),
            message: message.to_owned(),
            execution_id: line.execution,
            number: line.number,
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
        /// Opaque: pass it as `before` to read the lines before this page; null if there are none of this execution, or
        /// of this run of the job.
        #[serde(default)]
        pub previous_cursor: Option<String> = text().example(CURSOR_EXAMPLE),
    }
}

wire! {
    /// Lines of several jobs that a search found.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct FoundLogs as "FoundLogs" {
        /// The latest matching lines, in the order of their times.
        pub items: Vec<FoundLine>,
        /// How far the search looked.
        pub searched: SearchedLogs,
    }

    /// A line with its job.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct FoundLine as "FoundLine" {
        /// When.
        pub timestamp: Timestamp,
        /// Which stream it was written to.
        pub stream: LogStreamBody,
        /// The severity, if the line was written with one.
        pub level: Option<String> = text().example("error"),
        /// The line; at most 16 KiB.
        pub message: String,
        /// The attempt that wrote it.
        pub execution_id: ExecutionId,
        /// The name of its job.
        pub job_name: String = text().example("nightly-report"),
        /// The type of its job.
        pub job_type: String = text().example("shell"),
        /// The queue of its job.
        pub queue: String = text().example("default"),
    }

    /// How far a search of logs looked.
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    pub struct SearchedLogs as "SearchedLogs" {
        /// How many executions it examined.
        pub executions: u64,
        /// How many lines it read.
        pub lines: u64,
        /// It examined everything that the filters select.
        pub complete: bool,
        /// If not: it examined all executions that ended at or after this time. Pass it as `until` to search on.
        pub back_to: Option<Timestamp>,
    }
}

/// What to search logs for. Absent filters match all.
#[derive(Debug, Clone, Default, Serialize)]
pub struct LogSearch {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// A text in the line, in any case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grep: Option<String>,
    /// Lines of this level or a more severe one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<LogLevelBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

impl Client {
    /// Searches the logs of all jobs that the caller may see.
    pub async fn search_logs(&self, search: &LogSearch) -> Result<FoundLogs, ClientError> {
        self.send(self.request(Method::GET, "/logs").query(search)).await
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
    /// Only lines before those of a page with this `previous_cursor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
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
