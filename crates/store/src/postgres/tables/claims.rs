//! Claims of one connection: a statement that reserves windows of crowded lanes, and one that locks rows in these
//! windows, or from the beginning of the lanes.

use super::PostgresTables;
use super::read_set::ReadRound;
use crate::codecs::{fact_columns, limit};
use crate::fault::Fault;
use crate::layout::live_columns;
use crate::postgres::claim_heads::HeadsToMove;
use crate::postgres::rows::uuid;
use crate::postgres::wire::{StatementCall, column, value};
use crate::server::loaded::Gathering;
use crate::unit_of_work::{ReadSet, RequestedClaims};
use punctual_core::readmission::QueuePosition;
use std::sync::Arc;
use std::time::Instant;
use tokio_postgres::Row;

/// Lanes of a claim that has windows. Claims over more lanes scan them from the beginning.
const WINDOW_LANES_MAX: usize = 256;

/// Reserves the next positions of these lanes, the lowest over all of them, and moves the heads of crowded lanes
/// behind them. The windows stay in a variable of the connection, with this number, for [`CLAIM`]. If there are fewer
/// positions than requested, there are no windows, and the heads return to the beginning.
///
/// Now and then one of the callers also looks at everything before the place that the head had at the last look.
/// Rows behind that place may belong to claimers that have not locked them yet.
///
/// Its commit does not wait for the disk: a read may have cleaned up a page, which is written to the log, and others wait for
/// the head meanwhile.
///
/// The era of a head rises every few reservations: an open transaction keeps the old versions of its row, and the
/// search for the latest era meets only a few of them.
pub(crate) const RESERVE: &str = "WITH head AS MATERIALIZED \
       (SELECT latest.* FROM unnest($1::bigint[], $2::boolean[]) AS asked(lane, crowded) CROSS JOIN LATERAL \
          (SELECT * FROM claim_heads WHERE claim_heads.lane = asked.lane ORDER BY claim_heads.era DESC LIMIT 1 FOR UPDATE) \
          AS latest \
        WHERE asked.crowded), \
     served AS MATERIALIZED \
       (SELECT asked.lane, asked.crowded, head.lane IS NOT NULL AS has_head, coalesce(head.era, 0) AS era, \
          CASE WHEN back.is_lower THEN asked.back_rank ELSE coalesce(head.rank, -9223372036854775808) END AS rank, \
          CASE WHEN back.is_lower THEN asked.back_job \
            ELSE coalesce(head.job, '00000000-0000-0000-0000-000000000000') END AS job, \
          CASE WHEN back.is_lower THEN asked.back_occurrence ELSE coalesce(head.occurrence, 0) END AS occurrence, \
          head.settled_rank, head.settled_job, head.settled_occurrence, head.looked_at, \
          coalesce(head.look_rest, interval '100 ms') AS look_rest, \
          head.lane IS NOT NULL \
            AND clock_timestamp() NOT BETWEEN head.looked_at AND head.looked_at + head.look_rest AS looks \
        FROM unnest($1::bigint[], $2::boolean[], $3::bigint[], $4::uuid[], $5::bigint[]) \
          AS asked(lane, crowded, back_rank, back_job, back_occurrence) \
        LEFT JOIN head ON head.lane = asked.lane \
        CROSS JOIN LATERAL (SELECT asked.back_rank IS NOT NULL AND (head.lane IS NULL \
          OR (asked.back_rank, asked.back_job, asked.back_occurrence) < (head.rank, head.job, head.occurrence)) AS is_lower) AS back), \
     best AS MATERIALIZED \
       (SELECT served.lane, next.* FROM served CROSS JOIN LATERAL \
          (SELECT live.rank, live.job, live.occurrence FROM live WHERE live.lane = served.lane AND live.state = 1 \
             AND (live.rank, live.job, live.occurrence) > (served.rank, served.job, served.occurrence) \
           ORDER BY live.rank, live.job, live.occurrence LIMIT $6) AS next \
        ORDER BY next.rank, next.job, next.occurrence LIMIT $6), \
     whole AS MATERIALIZED \
       (SELECT count(*) >= $6 AS is_full, set_config('synchronous_commit', 'off', true) FROM best), \
     reserved AS MATERIALIZED \
       (SELECT served.lane, served.rank AS from_rank, served.job AS from_job, served.occurrence AS from_occurrence, \
          coalesce(ends.rank, served.rank) AS to_rank, coalesce(ends.job, served.job) AS to_job, \
          coalesce(ends.occurrence, served.occurrence) AS to_occurrence, coalesce(ends.count, 0) AS count, \
          CASE WHEN served.looks THEN served.settled_rank END AS look_rank, served.settled_job AS look_job, \
          served.settled_occurrence AS look_occurrence \
        FROM served \
        LEFT JOIN (SELECT DISTINCT ON (best.lane) best.*, count(*) OVER (PARTITION BY best.lane) AS count FROM best \
          ORDER BY best.lane, best.rank DESC, best.job DESC, best.occurrence DESC) AS ends ON ends.lane = served.lane \
        WHERE (SELECT whole.is_full FROM whole) AND (ends.lane IS NOT NULL OR served.looks)), \
     moved AS \
       (INSERT INTO claim_heads (lane, era, rank, job, occurrence, reserved, settled_rank, settled_job, settled_occurrence, \
          looked_at, look_rest) \
        SELECT served.lane, served.era, coalesce(reserved.to_rank, -9223372036854775808), \
          coalesce(reserved.to_job, '00000000-0000-0000-0000-000000000000'), coalesce(reserved.to_occurrence, 0), 0, \
          settled.*, CASE WHEN served.looks OR NOT served.has_head THEN clock_timestamp() ELSE served.looked_at END, \
          CASE WHEN $7::bigint > 0 THEN greatest($7 * interval '1 us', interval '100 ms') ELSE served.look_rest END \
        FROM served LEFT JOIN reserved ON reserved.lane = served.lane \
        CROSS JOIN LATERAL (SELECT served.settled_rank, served.settled_job, served.settled_occurrence \
            WHERE served.has_head AND NOT served.looks AND reserved.lane IS NOT NULL \
          UNION ALL SELECT coalesce(reserved.from_rank, -9223372036854775808), \
            coalesce(reserved.from_job, '00000000-0000-0000-0000-000000000000'), coalesce(reserved.from_occurrence, 0) \
            WHERE served.looks OR NOT served.has_head OR reserved.lane IS NULL) AS settled \
        WHERE served.crowded AND (reserved.lane IS NOT NULL OR (served.has_head AND NOT (SELECT whole.is_full FROM whole))) \
        ORDER BY served.lane \
        ON CONFLICT (lane, era) DO UPDATE SET rank = excluded.rank, job = excluded.job, occurrence = excluded.occurrence, \
          settled_rank = excluded.settled_rank, settled_job = excluded.settled_job, \
          settled_occurrence = excluded.settled_occurrence, looked_at = excluded.looked_at, \
          look_rest = excluded.look_rest, reserved = claim_heads.reserved + 1, era = (claim_heads.reserved + 1) / 64) \
     SELECT reserved.lane, reserved.to_rank, reserved.look_rank IS NOT NULL, \
       (SELECT set_config('punctual.reserved', \
          jsonb_build_object('number', $8::bigint, 'windows', jsonb_agg(to_jsonb(reserved)))::text, false) IS NOT NULL FROM reserved) \
     FROM reserved";

/// Locks the rows of the windows with this number, or if there are none, the lowest ranks from the beginning of these
/// lanes. Where a claim looks, it first takes what it finds before the head; then it leaves its windows alone.
///
/// A scan reads the heads of all lanes without locks to see how the lowest ranks are distributed over them, and then
/// locks that many in each: a row that another transaction has locked is replaced by the next in its lane. The ids of
/// the jobs stay in a variable of the transaction, for [`CLAIMED_FACTS`].
pub(crate) const CLAIM: &str = concat!(
    "WITH reserved AS MATERIALIZED \
       (SELECT reserved.* FROM (SELECT nullif(current_setting('punctual.reserved', true), '')::jsonb AS stored) AS variable \
        CROSS JOIN LATERAL jsonb_to_recordset(CASE WHEN (variable.stored ->> 'number')::bigint = $3 \
          THEN variable.stored -> 'windows' END) AS reserved(lane bigint, from_rank bigint, from_job uuid, \
          from_occurrence bigint, to_rank bigint, to_job uuid, to_occurrence bigint, count bigint, look_rank bigint, \
          look_job uuid, look_occurrence bigint)), \
     scanned AS MATERIALIZED \
       (SELECT reserved.lane, reserved.look_rank AS rank, reserved.look_job AS job, reserved.look_occurrence AS occurrence \
        FROM reserved WHERE reserved.look_rank IS NOT NULL \
        UNION ALL SELECT served.lane, 9223372036854775807, 'ffffffff-ffff-ffff-ffff-ffffffffffff', 9223372036854775807 \
        FROM unnest($1::bigint[]) AS served(lane) WHERE NOT EXISTS (SELECT FROM reserved)), \
     first AS MATERIALIZED \
       (SELECT live.* FROM \
          (SELECT best.lane, best.to_rank, best.to_job, best.to_occurrence, count(*) AS count FROM \
             (SELECT scanned.lane, scanned.rank AS to_rank, scanned.job AS to_job, scanned.occurrence AS to_occurrence \
              FROM scanned CROSS JOIN LATERAL \
                (SELECT live.rank, live.job, live.occurrence FROM live WHERE live.lane = scanned.lane AND live.state = 1 \
                   AND (live.rank, live.job, live.occurrence) <= (scanned.rank, scanned.job, scanned.occurrence) \
                 ORDER BY live.rank, live.job, live.occurrence LIMIT $2) AS head \
              ORDER BY head.rank, head.job, head.occurrence LIMIT $2) AS best \
           GROUP BY best.lane, best.to_rank, best.to_job, best.to_occurrence) AS share \
        CROSS JOIN LATERAL (SELECT * FROM live WHERE live.lane = share.lane AND live.state = 1 \
             AND (live.rank, live.job, live.occurrence) <= (share.to_rank, share.to_job, share.to_occurrence) \
           ORDER BY live.rank, live.job, live.occurrence LIMIT share.count FOR UPDATE SKIP LOCKED) AS live), \
     claimed AS MATERIALIZED \
       (SELECT * FROM first UNION ALL \
        SELECT live.* FROM (SELECT * FROM reserved WHERE NOT EXISTS (SELECT FROM first)) AS reserved CROSS JOIN LATERAL \
          (SELECT * FROM live WHERE live.lane = reserved.lane AND live.state = 1 \
             AND (live.rank, live.job, live.occurrence) > (reserved.from_rank, reserved.from_job, reserved.from_occurrence) \
             AND (live.rank, live.job, live.occurrence) <= (reserved.to_rank, reserved.to_job, reserved.to_occurrence) \
           ORDER BY live.rank, live.job, live.occurrence LIMIT reserved.count FOR UPDATE SKIP LOCKED) AS live) \
     SELECT ",
    live_columns!(),
    ", EXISTS (SELECT FROM first) AS is_first, \
       (SELECT set_config('punctual.claimed', array_agg(claimed.job)::text, true) IS NOT NULL FROM claimed) FROM claimed AS live"
);

/// The data of the jobs whose rows [`CLAIM`] has locked, as it is then.
pub(crate) const CLAIMED_FACTS: &str = concat!(
    "SELECT jobs.id, jobs.lane, ",
    fact_columns!(),
    " FROM jobs WHERE jobs.id = ANY(nullif(current_setting('punctual.claimed', true), '')::uuid[])"
);

/// Windows that a connection has reserved.
#[derive(Debug, Clone)]
pub(super) struct ReservedWindows {
    number: i64,
    lanes: Vec<i64>,
    count: usize,
}

/// The windows of one connection.
#[derive(Debug, Default)]
pub(super) struct ClaimWindows {
    /// The number of the last windows.
    number: i64,
    /// Windows whose claim has looked and found enough before the head.
    unused: Option<ReservedWindows>,
    /// The lanes in which the current transaction has claimed.
    open: Vec<i64>,
}

impl ClaimWindows {
    /// The current transaction has taken its rows.
    pub(super) fn committed(&mut self) {
        self.open.clear();
    }
}

/// Where the windows of a claim come from.
pub(super) enum WindowUse {
    /// The claim scans its lanes from the beginning.
    None,
    /// It uses windows that are already in the variable of the connection.
    Unused(ReservedWindows),
    Reserve(ReservedWindows, HeadsToMove),
}

impl WindowUse {
    /// The number of the windows; zero belongs to none.
    pub fn number(&self) -> i64 {
        match self {
            WindowUse::None => 0,
            WindowUse::Unused(windows) | WindowUse::Reserve(windows, _) => windows.number,
        }
    }

    /// The statement that reserves them.
    pub fn reserve(&self) -> Option<StatementCall<'static>> {
        let WindowUse::Reserve(windows, heads) = self else { return None };
        let back = || heads.back.clone().into_iter();
        let position = |position: Option<QueuePosition>| position.map(|position| position.occurrence);
        Some(StatementCall::new(
            RESERVE,
            [
                value(windows.lanes.clone()),
                value(heads.crowded.clone()),
                column(back().map(|back| back.map(|back| back.rank))),
                column(back().map(move |back| position(back).map(|id| uuid(id.job)))),
                column(back().map(move |back| position(back).map(|id| i64::from(id.number)))),
                value(limit(windows.count)),
                value(i64::try_from(heads.look_rest.as_micros()).unwrap_or(i64::MAX)),
                value(windows.number),
            ],
        ))
    }
}

impl PostgresTables {
    /// The windows for the claims of this read set. Reserving is a transaction of its own, and so comes before this one.
    pub(super) fn windows_for(&mut self, read_set: &ReadSet, is_first: bool) -> WindowUse {
        let [RequestedClaims { lanes, count }] = &read_set.claims[..] else { return WindowUse::None };
        // Heads are locked in the order of the lanes.
        let mut lanes = lanes.clone();
        lanes.sort_unstable();
        // If the transaction fails, what it has locked is before the heads.
        self.windows.open.extend(&lanes);
        if let Some(windows) = self.windows.unused.take() {
            if windows.lanes == lanes && windows.count <= *count {
                return WindowUse::Unused(windows);
            }
            self.shared.heads.look(&windows.lanes);
        }
        let heads = if !is_first || lanes.len() > WINDOW_LANES_MAX {
            None
        } else {
            self.shared.heads.to_move(&lanes)
        };
        match heads {
            None => WindowUse::None,
            Some(heads) => {
                self.windows.number += 1;
                let windows = ReservedWindows { number: self.windows.number, lanes, count: *count };
                WindowUse::Reserve(windows, heads)
            }
        }
    }

    /// Concludes from a claim whether its lanes are crowded and where their heads belong, and scans the lanes if the
    /// windows were empty.
    pub(super) async fn conclude_claims(
        &mut self,
        read_set: &ReadSet,
        used: WindowUse,
        round: WindowedClaim,
        gathering: &mut Gathering,
    ) -> Result<(), Fault> {
        let heads = Arc::clone(&self.shared.heads);
        let windows = match used {
            WindowUse::None => None,
            WindowUse::Unused(windows) => Some(windows),
            // Without rows there are no windows: the claim was a scan.
            WindowUse::Reserve(..) if round.reserved.is_empty() => None,
            WindowUse::Reserve(windows, _) => {
                let mut ends = Vec::with_capacity(round.reserved.len());
                let mut looks = false;
                for row in &round.reserved {
                    ends.push((row.try_get(0)?, row.try_get(1)?));
                    looks |= row.try_get::<_, bool>(2)?;
                }
                heads.reserved(ends);
                if looks {
                    heads.looked(round.began.elapsed());
                }
                Some(windows)
            }
        };
        if let Some(windows) = windows {
            match gathering.found_claims(0) {
                // Only a scan tells that the lanes are empty.
                0 => {
                    self.gather(None, ReadRound::claims(read_set, &[0]), gathering).await?;
                }
                found if found < windows.count => {
                    self.windows.unused = round.is_first.then_some(windows);
                    return Ok(());
                }
                _ if !round.is_first => {
                    heads.crowded(gathering.places_of_claim(0).map(|(lane, _)| lane));
                    return Ok(());
                }
                // More may be before the heads.
                _ => {}
            }
        }
        for (index, claims) in read_set.claims.iter().enumerate() {
            if gathering.found_claims(index) < claims.count {
                heads.emptied(&claims.lanes);
            } else {
                heads.scanned(&claims.lanes, gathering.places_of_claim(index));
            }
        }
        Ok(())
    }

    /// The current transaction takes nothing of what it has locked.
    pub(super) fn leave_windows(&mut self) {
        self.shared.heads.look(&std::mem::take(&mut self.windows.open));
    }
}

/// The result of a round with claims.
pub(super) struct WindowedClaim {
    pub began: Instant,
    /// The rows of [`RESERVE`].
    pub reserved: Vec<Row>,
    /// Whether the claim found rows by a scan or look.
    pub is_first: bool,
}
