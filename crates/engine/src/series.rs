//! Roll-ups: counts finished executions by minute, for charts. A duty of the leader, and correct with two of them: a
//! write stores the figures and the place up to which history was read in one transaction that compares versions.
//!
//! Nothing is written when an execution ends. The leader reads history after its stored place, pauses for a multiple
//! of the time that this took, and catches up later if executions finish faster than it reads.

use crate::notify::{StoredAs, read};
use crate::{Duties, EngineContext};
use punctual_core::limits;
use punctual_core::ports::{
    DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, RunTimes, StoreError, StoredDocument,
};
use punctual_core::series::{ChunkNumber, JobMetricsBound, JobTotals, SeriesChunk, SeriesFamily, SeriesJob};
use punctual_core::time::{Monotonic, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Documents that one transaction deletes.
const REMOVED_AT_ONCE: usize = 20;
/// Up to where history was rolled up.
pub(crate) const CURSOR: (DocumentKind, &str) = (DocumentKind::Cursor, "series");

/// What jobs with metrics of their own did.
pub(crate) const TOTALS: (DocumentKind, &str) = (DocumentKind::Series, JobTotals::DOCUMENT);

/// How executions are rolled up.
#[derive(Debug, Clone)]
pub struct SeriesConfig {
    /// How long figures are kept.
    pub kept: Duration,
    /// Jobs with figures of their own in a quarter of an hour, those with the most executions.
    pub jobs_max: usize,
    /// Names of jobs that always have figures of their own.
    pub named_jobs: BTreeSet<String>,
    /// Which jobs have metrics of their own.
    pub metrics: JobMetricsBound,
}

impl Default for SeriesConfig {
    fn default() -> Self {
        SeriesConfig {
            kept: limits::SERIES_KEPT_DEFAULT,
            jobs_max: limits::SERIES_JOBS_DEFAULT,
            named_jobs: BTreeSet::new(),
            metrics: JobMetricsBound::default(),
        }
    }
}

impl SeriesConfig {
    fn names_max(&self, family: SeriesFamily) -> usize {
        match family {
            SeriesFamily::Queue | SeriesFamily::JobType => limits::SERIES_NAMES_MAX,
            SeriesFamily::Job => self.jobs_max,
        }
    }

    fn is_named(&self, family: SeriesFamily, key: &str) -> bool {
        family == SeriesFamily::Job
            && SeriesJob::parse(key).is_some_and(|key| self.named_jobs.contains(&key.name))
    }
}

/// The place of the leader in history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeriesCursor {
    pub history: u64,
}

pub(crate) async fn roll_up(context: &EngineContext) {
    let Some(config) = &context.config.series else { return };
    if context.config.duties == Duties::OwnCommits {
        return;
    }
    let clock = &context.host.clock;
    let (mut kept, mut pause) = (None, limits::SERIES_INTERVAL);
    loop {
        clock.sleep(pause).await;
        if !context.leads() {
            kept = None;
            continue;
        }
        let began_at = clock.monotonic();
        if let Err(error) = step(context, config, &mut kept).await {
            kept = None;
            tracing::debug!(%error, "executions could not be rolled up; retrying");
        }
        let took = clock.monotonic().since(began_at);
        let rest = took.saturating_mul(limits::SERIES_PAUSE_FACTOR);
        pause = rest.clamp(limits::SERIES_INTERVAL, limits::SERIES_PAUSE_MAX);
    }
}

async fn step(
    context: &EngineContext,
    config: &SeriesConfig,
    kept: &mut Option<RollUp>,
) -> Result<(), StoreError> {
    let roll_up = match kept {
        Some(roll_up) => roll_up,
        None => match RollUp::load(context).await? {
            Some(loaded) => kept.insert(loaded),
            None => return Ok(()),
        },
    };
    let clock = &context.host.clock;
    let began_at = clock.monotonic();
    loop {
        let has_more = roll_up.read_on(context, config).await?;
        let is_over =
            clock.monotonic().since(began_at) * limits::SERIES_PAUSE_FACTOR > limits::SERIES_INTERVAL;
        if !has_more || is_over || roll_up.chunks.len() > limits::SERIES_CHUNKS_HELD_MAX {
            break;
        }
    }
    roll_up.write_if_due(context, config).await
}

/// What a leader has counted and not written yet.
struct RollUp {
    cursor: StoredAs<SeriesCursor>,
    read_to: u64,
    chunks: BTreeMap<(ChunkNumber, SeriesFamily), HeldChunk>,
    totals: JobTotals,
    /// The stored version of the totals; 0 if they are not stored.
    totals_version: u64,
    written_at: Monotonic,
}

struct HeldChunk {
    /// Its stored version; 0 if it is not stored.
    version: u64,
    chunk: SeriesChunk,
    is_changed: bool,
}

impl RollUp {
    /// Continues where the last leader has written. `None` if another one begins at this moment.
    async fn load(context: &EngineContext) -> Result<Option<Self>, StoreError> {
        let store = &*context.store;
        let span = store.history_span().await?;
        let cursor = match read::<SeriesCursor>(store, CURSOR).await? {
            Some(cursor) => cursor,
            None => {
                let first = span.ends_at.saturating_sub(limits::SERIES_FIRST_ROWS_MAX).max(span.begins_after);
                let document = StoredDocument::new(CURSOR.0, CURSOR.1, &SeriesCursor { history: first });
                let change = DirectoryChange::Documents(vec![DocumentChange::Add(document)]);
                store.change_directory(change, None).await?;
                let Some(cursor) = read(store, CURSOR).await? else { return Ok(None) };
                cursor
            }
        };
        // A restored backup may have less history than was rolled up.
        let read_to = cursor.value.history.max(span.begins_after).min(span.ends_at.max(span.begins_after));
        let written_at = context.host.clock.monotonic();
        let totals = store.document(TOTALS.0, TOTALS.1).await?;
        let totals_version = totals.as_ref().map_or(0, |document| document.version);
        let totals = totals.and_then(|document| document.read().ok()).unwrap_or_default();
        Ok(Some(RollUp { cursor, read_to, chunks: BTreeMap::new(), totals, totals_version, written_at }))
    }

    /// Counts the next part of history. Returns whether there may be more.
    async fn read_on(&mut self, context: &EngineContext, config: &SeriesConfig) -> Result<bool, StoreError> {
        let page = context.store.run_times_after(self.read_to, limits::SERIES_ROWS_MAX).await?;
        let oldest = context.time.now().minus(config.kept);
        for run in page.items.iter().filter(|run| run.completed_at >= oldest) {
            self.count(context, config, run).await?;
            self.totals.add(run, &config.metrics);
        }
        self.read_to = page.looked_to;
        Ok(page.more)
    }

    async fn count(
        &mut self,
        context: &EngineContext,
        config: &SeriesConfig,
        run: &RunTimes,
    ) -> Result<(), StoreError> {
        let number = ChunkNumber::at(run.completed_at);
        for family in SeriesFamily::ALL {
            let held = match self.chunks.get_mut(&(number, family)) {
                Some(held) => held,
                None => {
                    let loaded = HeldChunk::load(context, number, family).await?;
                    self.chunks.entry((number, family)).or_insert(loaded)
                }
            };
            held.is_changed = true;
            held.chunk.add(family.key(run), run);
            let most = config.names_max(family);
            if held.chunk.is_too_wide(most) {
                held.chunk.fold(most, |key| config.is_named(family, key));
            }
        }
        Ok(())
    }

    async fn write_if_due(
        &mut self,
        context: &EngineContext,
        config: &SeriesConfig,
    ) -> Result<(), StoreError> {
        let now = context.host.clock.monotonic();
        let is_due = now.since(self.written_at) >= limits::SERIES_WRITE_INTERVAL
            || self.chunks.len() > limits::SERIES_CHUNKS_HELD_MAX;
        if !is_due || self.read_to == self.cursor.value.history {
            return Ok(());
        }
        let mut changes = Vec::new();
        for ((number, family), held) in self.chunks.iter_mut().filter(|(_, held)| held.is_changed) {
            if held.chunk.is_too_wide(config.names_max(*family)) {
                held.chunk.fold(config.names_max(*family), |key| config.is_named(*family, key));
            }
            let document = StoredDocument {
                kind: DocumentKind::Series,
                name: number.document_name(*family),
                version: held.version + 1,
                body: held.chunk.body(),
            };
            let change = if held.version == 0 { DocumentChange::Add } else { DocumentChange::Replace };
            changes.push(change(document));
            held.version += 1;
            held.is_changed = false;
        }
        changes.extend(self.changed_totals(&config.metrics));
        let cursor = SeriesCursor { history: self.read_to };
        let mut document = StoredDocument::new(CURSOR.0, CURSOR.1, &cursor);
        document.version = self.cursor.version + 1;
        changes.push(DocumentChange::Replace(document));
        let change = DirectoryChange::Documents(changes);
        if context.store.change_directory(change, None).await? != DirectoryOutcome::Done {
            return Err(StoreError::Unavailable(
                "another leader has rolled up the same executions".to_owned(),
            ));
        }
        self.cursor = StoredAs { version: self.cursor.version + 1, value: cursor, ..self.cursor.clone() };
        self.written_at = now;
        let current = ChunkNumber::at(context.time.now());
        self.chunks.retain(|(number, _), _| *number >= current);
        Ok(())
    }
}

impl RollUp {
    /// The change of the document with the totals, which exists only while jobs have metrics of their own.
    fn changed_totals(&mut self, bound: &JobMetricsBound) -> Option<DocumentChange> {
        let ((kind, name), version) = (TOTALS, self.totals_version);
        if bound.is_none() {
            self.totals_version = 0;
            return (version > 0).then(|| DocumentChange::Remove { kind, name: name.to_owned(), version });
        }
        self.totals_version += 1;
        let document =
            StoredDocument { version: self.totals_version, ..StoredDocument::new(kind, name, &self.totals) };
        Some(if version == 0 { DocumentChange::Add(document) } else { DocumentChange::Replace(document) })
    }
}

impl HeldChunk {
    async fn load(
        context: &EngineContext,
        number: ChunkNumber,
        family: SeriesFamily,
    ) -> Result<Self, StoreError> {
        let stored = context.store.document(DocumentKind::Series, &number.document_name(family)).await?;
        let version = stored.as_ref().map_or(0, |document| document.version);
        let chunk = stored.map_or_else(SeriesChunk::default, |document| {
            document.read().unwrap_or_else(|error| {
                tracing::warn!(%error, "figures cannot be read, and are counted from zero");
                SeriesChunk::default()
            })
        });
        Ok(HeldChunk { version, chunk, is_changed: false })
    }
}

/// Deletes figures that are older than they are kept.
pub(crate) async fn retain(context: &EngineContext, now: Timestamp) -> Result<(), StoreError> {
    let Some(config) = &context.config.series else { return Ok(()) };
    let oldest = ChunkNumber::at(now.minus(config.kept));
    for family in SeriesFamily::ALL {
        loop {
            let before_all = format!("{}/", family.word());
            let page =
                context.store.documents(DocumentKind::Series, Some(&before_all), REMOVED_AT_ONCE).await?;
            let is_old = |document: &StoredDocument| {
                ChunkNumber::of_document(family, &document.name).is_some_and(|number| number < oldest)
            };
            let removals: Vec<DocumentChange> = page
                .items
                .into_iter()
                .filter(is_old)
                .map(|StoredDocument { kind, name, version, .. }| DocumentChange::Remove {
                    kind,
                    name,
                    version,
                })
                .collect();
            let count = removals.len();
            if count > 0 {
                context.store.change_directory(DirectoryChange::Documents(removals), None).await?;
            }
            if count < REMOVED_AT_ONCE {
                break;
            }
        }
    }
    Ok(())
}
