//! Requests with an idempotency key.

use super::Tx;
use crate::fault::Fault;
use crate::new_rows::request_cells;
use crate::rows::RequestRow;
use crate::server::changes::TableChange;
use crate::sqlite::rows::{insertion, one, time, write_row};
use punctual_core::ports::{NewRequest, RequestKey, StoredAnswer};
use punctual_core::time::Timestamp;
use rusqlite::{Row, params};
use std::sync::LazyLock;

const FIND: &str = "SELECT fingerprint, begun_at, seed, status, location, body FROM requests \
     WHERE token = ?1 AND key = ?2";
static INSERT: LazyLock<String> = LazyLock::new(|| insertion(TableChange::InsertRequests));
const ANSWER: &str =
    "UPDATE requests SET status = ?3, location = ?4, body = ?5 WHERE token = ?1 AND key = ?2";

pub(super) fn request(tx: &mut Tx<'_>, key: &RequestKey) -> Result<Option<RequestRow>, Fault> {
    one(&mut *tx.conn.prepare_cached(FIND)?, params![key.token, key.key], |row| {
        Ok(RequestRow {
            fingerprint: row.get(0)?,
            begun_at: time(row, 1)?,
            seed: row.get::<_, i64>(2)?.cast_unsigned(),
            answer: read_answer(row)?,
        })
    })
}

fn read_answer(row: &Row<'_>) -> Result<Option<StoredAnswer>, Fault> {
    let Some(status) = row.get(3)? else { return Ok(None) };
    let body: Option<String> = row.get(5)?;
    Ok(Some(StoredAnswer { status, location: row.get(4)?, body: body.unwrap_or_default() }))
}

pub(super) fn insert_request(tx: &mut Tx<'_>, new: &NewRequest, now: Timestamp) -> Result<(), Fault> {
    write_row(tx.conn, &INSERT, &request_cells(new, now))
}

pub(super) fn answer_request(tx: &mut Tx<'_>, key: &RequestKey, answer: &StoredAnswer) -> Result<(), Fault> {
    tx.conn.prepare_cached(ANSWER)?.execute(params![
        key.token,
        key.key,
        answer.status,
        answer.location,
        answer.body
    ])?;
    Ok(())
}
