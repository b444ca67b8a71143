//! Names of lanes in the database, and which of them claims query: see [`LaneCache`].

use super::connection::{Argument, ServerCall, ServerConnection, TransactionFrame, value};
use crate::cells::{RowCells, get};
use crate::codecs::limit;
use crate::fault::Fault;
use crate::row_list::{self, List, row};
use crate::unit_of_work::{LANES_ASKED_MAX, LaneCache, LanesToAsk, LanesToRead};
use async_trait::async_trait;
use punctual_core::ports::Lane;
use std::collections::BTreeSet;
use std::time::Instant;

/// A queue and a job type.
pub(crate) type LaneName = (String, String);

/// The statements of a dialect. They return numbers, queues and job types.
#[async_trait]
pub(crate) trait LaneStatements: ServerConnection {
    const LANES_ABOVE: &'static str;
    const LANES_BY_NUMBER: &'static str;
    const LANES_BY_NAME: &'static str;

    /// Creates the missing ones of these lanes in a separate transaction, and returns all. `found` are
    /// those that were found before.
    async fn create_lanes(
        &mut self,
        wanted: &BTreeSet<LaneName>,
        found: Vec<(i64, Lane)>,
    ) -> Result<Vec<(i64, Lane)>, Fault>;

    /// Lanes with queued executions.
    async fn lanes_with_work(&mut self, known: &LaneCache) -> Result<Vec<(i64, Lane)>, Fault>;
}

/// Looks up unknown lanes. Lanes that do not exist are left out.
pub(crate) async fn look_up<C: LaneStatements>(
    known: &LaneCache,
    connection: &mut C,
    numbers: Vec<i64>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let numbers = Argument::Rows(row_list::numbers(numbers));
    let lanes = read_lanes(connection, ServerCall::new(C::LANES_BY_NUMBER, [numbers])).await?;
    known.learn(&lanes);
    Ok(lanes)
}

/// The numbers of these lanes; new ones are created in a separate transaction.
pub(crate) async fn intern<C: LaneStatements>(
    known: &LaneCache,
    connection: &mut C,
    wanted: &BTreeSet<LaneName>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    let mut lanes = by_name(connection, wanted).await?;
    if lanes.len() < wanted.len() {
        lanes = connection.create_lanes(wanted, lanes).await?;
    }
    known.learn(&lanes);
    Ok(lanes)
}

/// The lanes that claims query; `None` if it is too early to read them again.
pub(crate) async fn to_ask<C: LaneStatements>(
    known: &LaneCache,
    connection: &mut C,
) -> Result<Option<LanesToAsk>, Fault> {
    let began = Instant::now();
    let mut reading = known.to_read(began);
    if let LanesToRead::Above(number) = reading {
        let bounds = [value(number), value(limit(LANES_ASKED_MAX + 1))];
        let lanes = read_lanes(connection, ServerCall::new(C::LANES_ABOVE, bounds)).await?;
        if let Some(to_ask) = known.read_above(number, lanes, began) {
            return Ok(Some(to_ask));
        }
        reading = known.to_read(began);
    }
    if reading != LanesToRead::WithWork {
        return Ok(None);
    }
    let began = Instant::now();
    let lanes = connection.lanes_with_work(known).await?;
    Ok(Some(known.read_with_work(lanes, began, Instant::now())))
}

pub(crate) async fn by_name<C: LaneStatements>(
    connection: &mut C,
    wanted: impl IntoIterator<Item = &LaneName>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    read_lanes(connection, ServerCall::new(C::LANES_BY_NAME, [name_list(wanted)])).await
}

/// The names without a lane.
pub(crate) fn missing<'a>(wanted: &'a BTreeSet<LaneName>, found: &[(i64, Lane)]) -> Vec<&'a LaneName> {
    let found: BTreeSet<(&str, &str)> =
        found.iter().map(|(_, lane)| (lane.queue(), lane.job_type())).collect();
    let is_new = |(queue, job_type): &&LaneName| !found.contains(&(queue.as_str(), job_type.as_str()));
    wanted.iter().filter(is_new).collect()
}

pub(crate) fn name_list<'a>(names: impl IntoIterator<Item = &'a LaneName>) -> Argument<'a> {
    let row = |(queue, job_type): &'a LaneName| row![queue.as_str(), job_type.as_str()];
    Argument::Rows(List::of(names.into_iter().map(row)))
}

pub(crate) async fn read_lanes<C: ServerConnection>(
    connection: &mut C,
    call: ServerCall<'_>,
) -> Result<Vec<(i64, Lane)>, Fault> {
    connection.send_one(TransactionFrame::None, call).await?.rows.iter().map(read_lane).collect()
}

fn read_lane(row: &impl RowCells) -> Result<(i64, Lane), Fault> {
    Ok((get(row, 0)?, Lane::new(get::<String>(row, 1)?, get::<String>(row, 2)?)))
}
