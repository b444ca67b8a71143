//! Requests that carry a key, so that repeating one does nothing twice.

use crate::sqlite::core::Tx;
use crate::sqlite::fault::Fault;
use crate::sqlite::rows::{one, time};
use punctual_core::ports::{NewRequest, RequestKey, RequestState, StoredAnswer};
use punctual_core::time::Timestamp;
use rusqlite::{Row, params};

const FIND: &str = "SELECT fingerprint, begun_at, seed, status, location, body FROM requests \
     WHERE token = ?1 AND key = ?2";

pub(super) fn begin(tx: &mut Tx<'_>, now: Timestamp, new: NewRequest) -> Result<RequestState, Fault> {
    let RequestKey { token, key } = &new.request;
    let found = one(&mut *tx.conn.prepare_cached(FIND)?, params![token, key], |row| {
        Ok((row.get::<_, [u8; 32]>(0)?, state(row)?))
    })?;
    match found {
        Some((fingerprint, _)) if fingerprint != new.fingerprint => Ok(RequestState::Mismatch),
        Some((_, state)) => Ok(state),
        None => {
            tx.conn
                .prepare_cached(
                    "INSERT INTO requests (token, key, fingerprint, begun_at, seed) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![token, key, new.fingerprint, now.as_micros(), new.seed.cast_signed()])?;
            Ok(RequestState::Begun { at: now, seed: new.seed, is_new: true })
        }
    }
}

fn state(row: &Row<'_>) -> Result<RequestState, Fault> {
    Ok(match row.get::<_, Option<u16>>(3)? {
        Some(status) => {
            let body: Option<String> = row.get(5)?;
            let body = body.unwrap_or_default();
            RequestState::Answered(StoredAnswer { status, location: row.get(4)?, body })
        }
        None => RequestState::Begun {
            at: time(row, 1)?,
            seed: row.get::<_, i64>(2)?.cast_unsigned(),
            is_new: false,
        },
    })
}

pub(super) fn answer(tx: &mut Tx<'_>, request: &RequestKey, answer: &StoredAnswer) -> Result<(), Fault> {
    tx.conn
        .prepare_cached(
            "UPDATE requests SET status = ?3, location = ?4, body = ?5 WHERE token = ?1 AND key = ?2",
        )?
        .execute(params![request.token, request.key, answer.status, answer.location, answer.body])?;
    Ok(())
}
