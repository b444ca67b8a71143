//! Finished attempts, skipped occurrences and dead letters.

use super::{Tx, hot_statement};
use crate::codecs::{self, LETTER_COLUMNS};
use crate::codes::Code;
use crate::fault::Fault;
use crate::layout::sqlite_dead_letter_columns as dead_letter_columns;
use crate::new_rows::{dead_letter_cells, skipped_cells};
use crate::rows::EndedAttempt;
use crate::server::changes::TableChange;
use crate::sqlite::rows::{
    INSERT_HISTORY, counter, decode, insert_history, insertion, one_readable, write_row,
};
use punctual_core::ids::{Epoch, ExecutionId, JobId, OccurrenceId, SessionId};
use punctual_core::occurrence::Finished;
use punctual_core::ports::DeadLetter;
use punctual_core::schedule::SkipRange;
use punctual_core::time::Timestamp;
use rusqlite::{Row, params};
use std::sync::LazyLock;

const ENDED: &str = "SELECT epoch, session, status FROM history \
     WHERE job = ?1 AND occurrence = ?2 AND attempt = ?3";
pub(crate) const LENGTHEN_SKIPPED: &str =
    "UPDATE skipped SET last = ?4, count = count + ?5 WHERE job = ?1 AND last = ?2 AND reason = ?3";
static INSERT_SKIPPED: LazyLock<String> = LazyLock::new(|| insertion(TableChange::InsertSkipped));
static INSERT_DEAD_LETTER: LazyLock<String> = LazyLock::new(|| insertion(TableChange::InsertDeadLetters));

/// A cross join, which makes SQLite start with the dead letters: they are few, and jobs are many.
macro_rules! from_dead_letters {
    () => {
        ", jobs.name, jobs.owner, jobs.lane FROM dead_letters CROSS JOIN jobs ON jobs.id = dead_letters.job "
    };
}
pub(crate) use from_dead_letters;

pub(crate) const DEAD_LETTER: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    from_dead_letters!(),
    "WHERE dead_letters.job = ?1 AND dead_letters.occurrence = ?2"
);
pub(crate) const LATEST_DEAD_LETTER: &str = concat!(
    "SELECT ",
    dead_letter_columns!(),
    from_dead_letters!(),
    "WHERE dead_letters.job = ?1 ORDER BY dead_letters.occurrence DESC LIMIT 1"
);

pub(super) fn append_history(tx: &mut Tx<'_>, finished: &Finished, worker: Option<i64>) -> Result<(), Fault> {
    let seq = tx.memory.history.next(tx.conn)?;
    insert_history(
        hot_statement(tx.conn, &mut tx.hot.append_history, &INSERT_HISTORY)?,
        finished,
        worker,
        seq,
    )
}

pub(super) fn ended(tx: &mut Tx<'_>, execution: ExecutionId) -> Result<Option<EndedAttempt>, Fault> {
    let OccurrenceId { job, number } = execution.occurrence;
    let key = params![job.as_bytes(), number, execution.attempt];
    one_readable(&mut *tx.conn.prepare_cached(ENDED)?, key, |row| {
        Ok(EndedAttempt {
            epoch: Epoch(row.get(0)?),
            session: row.get::<_, Option<i64>>(1)?.map(SessionId),
            status: decode(row, 2, "history.status")?,
        })
    })
}

pub(super) fn lengthen_skipped(
    tx: &mut Tx<'_>,
    job: JobId,
    last: Timestamp,
    by: &SkipRange,
) -> Result<bool, Fault> {
    let lengthened = tx.conn.prepare_cached(LENGTHEN_SKIPPED)?.execute(params![
        job.as_bytes(),
        last.as_micros(),
        by.reason.code(),
        by.last.as_micros(),
        counter(by.count),
    ])?;
    Ok(lengthened > 0)
}

pub(super) fn insert_skipped(tx: &mut Tx<'_>, job: JobId, range: &SkipRange) -> Result<(), Fault> {
    write_row(tx.conn, &INSERT_SKIPPED, &skipped_cells(job, range))
}

pub(super) fn dead_letter(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<Option<DeadLetter>, Fault> {
    let mut select = tx.conn.prepare_cached(DEAD_LETTER)?;
    one_readable(&mut select, params![id.job.as_bytes(), id.number], |row| read_dead_letter(tx, row))
}

pub(super) fn latest_dead_letter(tx: &mut Tx<'_>, job: JobId) -> Result<Option<DeadLetter>, Fault> {
    let mut select = tx.conn.prepare_cached(LATEST_DEAD_LETTER)?;
    one_readable(&mut select, [job.as_bytes()], |row| read_dead_letter(tx, row))
}

fn read_dead_letter(tx: &mut Tx<'_>, row: &Row<'_>) -> Result<DeadLetter, Fault> {
    let lane = tx.memory.lanes.lane(tx.conn, row.get(LETTER_COLUMNS - 1)?)?;
    codecs::read_dead_letter(row, 0, &lane)
}

pub(super) fn insert_dead_letter(
    tx: &mut Tx<'_>,
    finished: &Finished,
    noted: bool,
    now: Timestamp,
) -> Result<(), Fault> {
    write_row(tx.conn, &INSERT_DEAD_LETTER, &dead_letter_cells(finished, noted, now))?;
    tx.memory.counters.dead_letters(1);
    Ok(())
}

pub(super) fn delete_dead_letter(tx: &mut Tx<'_>, id: OccurrenceId) -> Result<bool, Fault> {
    let mut delete = tx.conn.prepare_cached("DELETE FROM dead_letters WHERE job = ?1 AND occurrence = ?2")?;
    let gone = delete.execute(params![id.job.as_bytes(), id.number])?;
    tx.memory.counters.dead_letters(-(gone as i64));
    Ok(gone > 0)
}

pub(super) fn forget_dead_letters(tx: &mut Tx<'_>, job: JobId) -> Result<(), Fault> {
    let gone =
        tx.conn.prepare_cached("DELETE FROM dead_letters WHERE job = ?1")?.execute([job.as_bytes()])?;
    tx.memory.counters.dead_letters(-(gone as i64));
    Ok(())
}
