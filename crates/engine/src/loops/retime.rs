//! Computes the stored next times of recurring schedules again after a change of the time zone data: another
//! `time.tzdata_dir`, or a binary with newer data. A duty of the leader, which stores the version that it has computed with.
//! Each schedule is compared and swapped, so two leaders do no harm, and after a crash the next one begins again.

use crate::{Duties, EngineContext};
use punctual_core::control::Verb;
use punctual_core::limits;
use punctual_core::ports::{
    AuditEntry, AuditId, Control, DirectoryChange, DocumentChange, DocumentKind, JobQuery, OUTCOME_OK,
    ScheduleKind, StoreError, StoredDocument,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

/// Jobs that are read, and changed, in one step.
const STEP_JOBS: usize = 500;
/// Jobs that the audit log names. The log names all.
const NAMED_MAX: usize = 20;
const NAME: &str = "tzdata";

/// The version that the stored times were computed with.
#[derive(Debug, Serialize, Deserialize)]
struct TzdataCursor {
    version: String,
}

pub(crate) async fn retime(context: &EngineContext) {
    let Some(version) = &context.config.tzdb_version else { return };
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let mut pause = Duration::ZERO;
    loop {
        context.host.clock.sleep(pause).await;
        pause = limits::RETIME_INTERVAL_MIN;
        if !context.leads() {
            continue;
        }
        match round(context, version).await {
            Ok(()) => pause = limits::RETIME_INTERVAL,
            Err(error) => {
                tracing::warn!(%error, "times could not be computed with new time zone data; retrying");
                context.counters.store_errors.add(1);
            }
        }
    }
}

async fn round(context: &EngineContext, version: &str) -> Result<(), StoreError> {
    let stored = context.store.document(DocumentKind::Cursor, NAME).await?;
    let before = stored.as_ref().map(StoredDocument::read::<TzdataCursor>).transpose()?;
    if before.as_ref().is_some_and(|before| before.version == version) {
        return Ok(());
    }
    let (moved, named) = retime_all(context).await?;
    let body = TzdataCursor { version: version.to_owned() };
    let change = match &stored {
        Some(stored) => DocumentChange::Replace(stored.changed(&body)),
        None => DocumentChange::Add(StoredDocument::new(DocumentKind::Cursor, NAME, &body)),
    };
    let from = before.map(|before| before.version);
    if from.is_some() || moved > 0 {
        let from = from.as_deref().unwrap_or("unknown");
        tracing::info!(
            from,
            to = version,
            moved,
            "the time zone data has changed; next runs were computed again"
        );
    }
    let entry = (moved > 0).then(|| entry(context, version, &json!({ "moved": moved, "jobs": named })));
    context.store.change_directory(DirectoryChange::Documents(vec![change]), entry).await.map(drop)
}

/// How many schedules have moved, and the first of them.
async fn retime_all(context: &EngineContext) -> Result<(usize, Vec<Value>), StoreError> {
    let (mut moved, mut named, mut before) = (0, vec![], None);
    loop {
        let now = context.time.now();
        let query = JobQuery {
            before,
            limit: STEP_JOBS,
            schedule: Some(ScheduleKind::Recurring),
            ..JobQuery::default()
        };
        let page = context.store.jobs(query).await?;
        let mut controls = vec![];
        for view in &page.items {
            let Some(state) = &view.schedule else { continue };
            let Some(retimed) = state.retimed(now) else { continue };
            let (id, name) = (view.job.id, &view.job.spec.name);
            let (from, to) = (state.nominal, retimed.nominal);
            tracing::info!(job = %id, name, ?from, ?to, "the next run has moved with the time zone data");
            if named.len() < NAMED_MAX {
                named.push(json!({ "job_id": id, "name": name, "before": from, "after": to }));
            }
            controls.push(Control { job: id, verb: Verb::Retime });
        }
        moved += controls.len();
        if !controls.is_empty() {
            context.store.control(now, controls).await?;
        }
        before = page.next;
        if before.is_none() {
            return Ok((moved, named));
        }
    }
}

fn entry(context: &EngineContext, version: &str, details: &Value) -> AuditEntry {
    let at = context.time.now();
    AuditEntry {
        id: AuditId::new(at, context.host.random.next_u64()),
        at,
        token: String::new(),
        name: "server".to_owned(),
        user: None,
        source: None,
        action: "time.retime".to_owned(),
        object: format!("tzdata {version}"),
        outcome: OUTCOME_OK.to_owned(),
        details: Some(details.to_string()),
    }
    .bounded()
}
