//! The data migration: its preconditions, the copy page by page, and the comparison at the end.

use super::cells::{Checksum, CopyPosition};
use super::side::{MigrationSide, Notes, Portion};
use super::{CopyProgress, CopyStage, CopyStart, DataMigrationError, Migrated, MigratedTable, StoreRole};
use crate::cells::{Cell, Cells};
use crate::fault::Fault;
use crate::layout::{Layout, TABLES, is_never_empty};
use punctual_core::ids::JobId;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often to check whether processes that were just stopped are gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);

// Keys of the notes in a target.
const SOURCE: &str = "source";
/// How many rows the source had. If the number differs later, the source was used since then.
const TOTALS: &str = "totals";
const STAGE: &str = "stage";
/// Prefix of a table's name: how far it was copied.
const TABLE: &str = "table:";

// Values of the stage. Any other value means that everything must be copied again.
const COPYING: &str = "copying";
const COPIED: &str = "copied";
const EMPTYING: &str = "emptying";
const DIFFERENT: &str = "different";

pub(super) struct DataMigration<'a> {
    pub source: Box<dyn MigrationSide>,
    pub target: Box<dyn MigrationSide>,
    pub report_progress: &'a mut (dyn FnMut(CopyProgress) + Send),
    /// How long processes that were just stopped may take to disconnect.
    pub leave_max: Duration,
}

type RowTotals = BTreeMap<&'static str, u64>;

impl DataMigration<'_> {
    pub async fn run(mut self) -> Result<Migrated, DataMigrationError> {
        must_be_idle(&mut *self.source, StoreRole::Source, self.leave_max).await?;
        must_be_idle(&mut *self.target, StoreRole::Target, self.leave_max).await?;
        if !self.source.notes().await.map_err(DataMigrationError::at(StoreRole::Source))?.is_empty() {
            return Err(DataMigrationError::SourceUnfinished);
        }
        let totals = self.totals().await?;
        if let Some(filled) = self.filled_without_note().await? {
            return self.recognise(filled, &totals).await;
        }
        let beginning = self.begin(&totals).await?;
        if self.stage().await? == COPYING {
            self.copy_all(&totals).await?;
        }
        let Compared { tables, different } = self.compare_all(&totals).await?;
        if !different.is_empty() {
            self.target.note(STAGE, DIFFERENT).await.map_err(DataMigrationError::at(StoreRole::Target))?;
            return Err(DataMigrationError::Differ(different));
        }
        self.target.release().await.map_err(DataMigrationError::at(StoreRole::Target))?;
        Ok(Migrated { beginning, tables })
    }

    /// The first table with rows in a target in which no copy has begun, or that is released.
    async fn filled_without_note(&mut self) -> Result<Option<Filled>, DataMigrationError> {
        if self.target_notes().await?.contains_key(SOURCE) {
            return Ok(None);
        }
        for table in TABLES.iter().filter(|table| !is_never_empty(table)) {
            let rows = self.target.count(table).await.map_err(DataMigrationError::at(StoreRole::Target))?;
            if rows > 0 {
                return Ok(Some(Filled { table: table.name, rows }));
            }
        }
        Ok(None)
    }

    /// Such a target was used, or it is the complete copy of this source: it was released, and the reply
    /// was lost. In the latter case source and target are equal. Nothing is written to it.
    async fn recognise(
        &mut self,
        filled: Filled,
        totals: &RowTotals,
    ) -> Result<Migrated, DataMigrationError> {
        let served = DataMigrationError::TargetServed { table: filled.table, rows: filled.rows };
        for table in TABLES {
            let rows = self.target.count(table).await.map_err(DataMigrationError::at(StoreRole::Target))?;
            if rows != totals[table.name] {
                return Err(served);
            }
        }
        let Compared { tables, different } = self.compare_all(totals).await?;
        if different.is_empty() {
            Ok(Migrated { beginning: CopyStart::Resumed, tables })
        } else {
            Err(served)
        }
    }

    async fn totals(&mut self) -> Result<RowTotals, DataMigrationError> {
        let mut totals = RowTotals::new();
        for table in TABLES {
            let rows = self.source.count(table).await.map_err(DataMigrationError::at(StoreRole::Source))?;
            totals.insert(table.name, rows);
        }
        Ok(totals)
    }

    async fn target_notes(&mut self) -> Result<Notes, DataMigrationError> {
        self.target.notes().await.map_err(DataMigrationError::at(StoreRole::Target))
    }

    async fn stage(&mut self) -> Result<String, DataMigrationError> {
        Ok(self.target_notes().await?.remove(STAGE).unwrap_or_default())
    }

    /// Prepares the target for the next page: empty, or as an earlier copy of the same source left it.
    async fn begin(&mut self, totals: &RowTotals) -> Result<CopyStart, DataMigrationError> {
        let identity = self.source.identity().await.map_err(DataMigrationError::at(StoreRole::Source))?;
        let notes = self.target_notes().await?;
        let totals = json!(totals).to_string();
        let Some(source) = notes.get(SOURCE) else {
            self.start_over(&identity, &totals).await?;
            return Ok(CopyStart::New);
        };
        if *source != identity {
            return Err(DataMigrationError::OtherSource(source.clone()));
        }
        let is_sound = matches!(notes.get(STAGE).map(String::as_str), Some(COPYING | COPIED));
        if is_sound && notes.get(TOTALS) == Some(&totals) {
            return Ok(CopyStart::Resumed);
        }
        self.start_over(&identity, &totals).await?;
        Ok(CopyStart::Restarted)
    }

    /// The source is recorded first: from then on, the target cannot be opened.
    async fn start_over(&mut self, identity: &str, totals: &str) -> Result<(), DataMigrationError> {
        let fill = async |target: &mut dyn MigrationSide| {
            target.note(STAGE, EMPTYING).await?;
            target.note(SOURCE, identity).await?;
            target.empty(TABLE).await?;
            target.note(TOTALS, totals).await?;
            target.note(STAGE, COPYING).await
        };
        fill(&mut *self.target).await.map_err(DataMigrationError::at(StoreRole::Target))
    }

    async fn copy_all(&mut self, totals: &RowTotals) -> Result<(), DataMigrationError> {
        for table in TABLES {
            self.copy(table, totals[table.name]).await?;
        }
        let at_target = DataMigrationError::at(StoreRole::Target);
        self.target.settle().await.map_err(&at_target)?;
        self.target.note(STAGE, COPIED).await.map_err(at_target)
    }

    async fn copy(&mut self, table: &'static Layout, rows_total: u64) -> Result<(), DataMigrationError> {
        let note = format!("{TABLE}{}", table.name);
        let known = self.target_notes().await?.remove(&note);
        let known = known
            .as_deref()
            .map(CopyPosition::from_text)
            .transpose()
            .map_err(DataMigrationError::at(StoreRole::Target))?;
        let mut place = known.unwrap_or(CopyPosition { key: vec![], rows: 0, last_line: 0 });
        loop {
            (self.report_progress)(CopyProgress {
                stage: CopyStage::Copying,
                table: table.name,
                rows_done: place.rows,
                rows_total,
            });
            let after = (!place.key.is_empty()).then_some(&place.key[..]);
            let rows =
                self.source.page(table, after).await.map_err(DataMigrationError::at(StoreRole::Source))?;
            let Some(last) = rows.last() else { return Ok(()) };
            let next = CopyPosition {
                key: last[..table.key].to_vec(),
                rows: place.rows + rows.len() as u64,
                last_line: place.last_line,
            };
            place = self.put(table, rows, (&place, next), &note).await?;
        }
    }

    /// Writes a page. Returns the new position of the copy.
    async fn put(
        &mut self,
        table: &'static Layout,
        mut rows: Vec<Cells>,
        (was, mut next): (&CopyPosition, CopyPosition),
        note: &str,
    ) -> Result<CopyPosition, DataMigrationError> {
        let at_source = DataMigrationError::at(StoreRole::Source);
        rows.iter_mut().for_each(|row| lose_session(table, row));
        if table.name == "lines" {
            next.last_line = number_lines(&mut rows, was).map_err(at_source)?;
        }
        let text = next.to_text();
        let portion = Portion { table, rows: &rows, note: (note, &text) };
        self.target.put(portion).await.map_err(DataMigrationError::at(StoreRole::Target))?;
        Ok(next)
    }

    /// Reads both sides again completely. This also finds changes made to the source since it was copied.
    async fn compare_all(&mut self, totals: &RowTotals) -> Result<Compared, DataMigrationError> {
        let mut tables = Vec::with_capacity(TABLES.len());
        let mut different = Vec::new();
        for table in TABLES {
            let rows_total = totals[table.name];
            let report_progress = &mut *self.report_progress;
            let mut report = |rows_done| {
                report_progress(CopyProgress {
                    stage: CopyStage::Verifying,
                    table: table.name,
                    rows_done,
                    rows_total,
                });
            };
            let left = checksum(&mut *self.source, table, &mut report)
                .await
                .map_err(DataMigrationError::at(StoreRole::Source))?;
            let right = checksum(&mut *self.target, table, &mut |_| ())
                .await
                .map_err(DataMigrationError::at(StoreRole::Target))?;
            if left != right {
                different.push(difference(table, left, right));
            }
            tables.push(MigratedTable { name: table.name, rows: right.rows, checksum: right.to_hex() });
        }
        Ok(Compared { tables, different })
    }
}

/// A table of the target that has rows.
struct Filled {
    table: &'static str,
    rows: u64,
}

/// Both sides as read.
struct Compared {
    tables: Vec<MigratedTable>,
    /// A description of each difference.
    different: Vec<String>,
}

fn difference(table: &Layout, left: Checksum, right: Checksum) -> String {
    let name = table.name;
    if left.rows == right.rows {
        format!("{name} (the contents of its {} rows)", left.rows)
    } else {
        format!("{name} ({} rows and {} rows)", left.rows, right.rows)
    }
}

/// Processes that were stopped a moment ago may still be disconnecting.
pub(super) async fn must_be_idle(
    side: &mut dyn MigrationSide,
    end: StoreRole,
    leave_max: Duration,
) -> Result<(), DataMigrationError> {
    let mut waited = Duration::ZERO;
    loop {
        match side.users().await.map_err(DataMigrationError::at(end))? {
            None => return Ok(()),
            Some(by) if waited >= leave_max => return Err(DataMigrationError::InUse { end, by }),
            Some(_) => {
                tokio::time::sleep(LOOK_EVERY).await;
                waited += LOOK_EVERY;
            }
        }
    }
}

/// A worker cannot continue a session in a store that it has never connected to.
fn lose_session(table: &Layout, row: &mut [Cell<'_>]) {
    if table.name == "sessions"
        && let Some(lost) = table.position("lost")
    {
        row[lost] = Cell::Number(1);
    }
}

/// Numbers lines the way server stores do: by their time, but not before their job was created, and above
/// the previous line of the same execution. Returns the last number.
fn number_lines(rows: &mut [Cells], was: &CopyPosition) -> Result<i64, Fault> {
    let mut before: Cells = was.key.iter().take(EXECUTION).cloned().collect();
    let mut last = was.last_line;
    for row in rows {
        if row[..EXECUTION] != before[..] {
            before = row[..EXECUTION].to_vec();
            last = i64::MIN;
        }
        let id = row[0].bytes("lines.job")?;
        let id: [u8; 16] = id.try_into().map_err(|_| Fault::damaged("lines.job", format!("{id:?}")))?;
        let made_at = JobId::from_bytes(id).made_at().as_micros();
        let time = row[LINE_TIME].number("lines.timestamp")?;
        last = time.max(made_at).max(last.saturating_add(1));
        row[LINE_NUMBER] = Cell::Number(last);
    }
    Ok(last)
}

/// Columns that identify the execution of a line; its number and its time follow.
const EXECUTION: usize = 3;
const LINE_NUMBER: usize = 3;
const LINE_TIME: usize = 4;

async fn checksum(
    side: &mut dyn MigrationSide,
    table: &'static Layout,
    report: &mut (dyn FnMut(u64) + Send),
) -> Result<Checksum, Fault> {
    let mut sum = Checksum::default();
    let mut after: Option<Cells> = None;
    let mut place_of_line = 0;
    loop {
        report(sum.rows);
        let rows = side.page(table, after.as_deref()).await?;
        let Some(last) = rows.last() else { return Ok(sum) };
        let next = last[..table.key].to_vec();
        let mut before: Cells = after.unwrap_or_default();
        for mut row in rows {
            if table.name == "lines" {
                let is_same = before.get(..EXECUTION) == Some(&row[..EXECUTION]);
                before = row[..EXECUTION].to_vec();
                place_of_line = if is_same { place_of_line + 1 } else { 1 };
                row[LINE_NUMBER] = Cell::Number(place_of_line);
            }
            lose_session(table, &mut row);
            row.iter_mut().for_each(without_nul);
            sum.add(&row);
        }
        after = Some(next);
    }
}

/// PostgreSQL cannot store NUL and keeps another character instead.
fn without_nul(cell: &mut Cell<'_>) {
    if let Cell::Text(text) = cell
        && text.contains('\0')
    {
        *text = text.replace('\0', "\u{FFFD}").into();
    }
}
