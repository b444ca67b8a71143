//! Searching the logs of all jobs.

use crate::auth::Call;
use crate::error::ApiError;
use crate::query::QueryParams;
use axum::Json;
use punctual_client::{FoundLine, FoundLogs, LogLevelBody, LogLineBody, SearchedLogs};
use punctual_core::log_level::LogLevel;
use punctual_engine::{FoundLogLine, LogFilter};

pub async fn search(call: Call, mut query: QueryParams) -> Result<Json<FoundLogs>, ApiError> {
    let filter = LogFilter {
        queue: query.text("queue"),
        job_type: query.text("job_type"),
        owner: query.text("owner"),
        tag: query.text("tag"),
        since: query.time("since"),
        until: query.time("until"),
        text: query.text("grep"),
        level: query.word::<LogLevelBody>("level").map(LogLevel::from),
    };
    let limit = query.limit();
    query.finish()?;
    let found = call.cases.search_logs(&filter, limit).await?;
    let searched = SearchedLogs {
        executions: found.executions as u64,
        lines: found.lines_read as u64,
        complete: found.back_to.is_none(),
        back_to: found.back_to,
    };
    Ok(Json(FoundLogs { items: found.lines.into_iter().map(view).collect(), searched }))
}

fn view(found: FoundLogLine) -> FoundLine {
    let FoundLogLine { line, job_name, job_type, queue } = found;
    let LogLineBody { timestamp, stream, level, message, execution_id, .. } = line.into();
    FoundLine { timestamp, stream, level, message, execution_id, job_name, job_type, queue }
}
