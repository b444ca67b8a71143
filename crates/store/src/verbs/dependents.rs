//! Jobs that depend on others. When a job that others depend on ends, the verb writes a row to
//! `resolutions`. The same transaction resolves as many of its children as fit; the next call of resolve
//! handles the rest.

use super::begin::effects;
use super::missing_rows::Gaps;
use super::settle::{self, start_next_waiting};
use super::wait_lists;
use crate::fault::Fault;
use crate::rows::{JobTerms, LiveRow, Rows};
use punctual_core::defects::{Defect, planted};
use punctual_core::dependencies::{self, Parent, Parents};
use punctual_core::gates::Gate;
use punctual_core::ids::JobId;
use punctual_core::occurrence::OccurrenceFlags;
use punctual_core::ports::{CommitEffects, ParentProblem, Resolved};
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;

pub(super) fn parents_of<R: Rows>(
    rows: &mut R,
    depends_on: &[JobId],
) -> Result<Result<Parents, (JobId, ParentProblem)>, Fault> {
    let mut gaps = Gaps::default();
    let mut found = Vec::with_capacity(depends_on.len());
    for id in depends_on {
        found.extend(gaps.pass(parent(rows, *id))?);
    }
    Ok(dependencies::parents(gaps.close(found)?))
}

fn parent<R: Rows>(rows: &mut R, id: JobId) -> Result<Result<Parent, JobId>, Fault> {
    let Some(terms) = rows.terms_of(id)? else { return Ok(Err(id)) };
    Ok(Ok(Parent {
        id,
        mark: terms.mark,
        is_one_shot: terms.settings.schedule.is_one_shot(),
        is_unfinished: rows.is_unfinished(id)?,
    }))
}

/// Makes a child wait for its unfinished parents, and flags the parents.
pub(super) fn add_dependencies<R: Rows>(rows: &mut R, child: JobId, parents: &[JobId]) -> Result<(), Fault> {
    for parent in parents {
        rows.insert_dependency(*parent, child)?;
        rows.set_schedule_awaited(*parent)?;
        // The last occurrence that ends resolves the children.
        rows.add_flags_to_open(*parent, OccurrenceFlags { awaited: true, ..OccurrenceFlags::default() })?;
    }
    Ok(())
}

/// Records that an occurrence of a job that others depend on has ended.
pub(super) fn ended<R: Rows>(rows: &mut R, parent: JobId, succeeded: bool) -> Result<(), Fault> {
    if dependencies::is_told(succeeded, rows.is_unfinished(parent)?) {
        rows.insert_resolution(parent, succeeded)?;
    }
    Ok(())
}

/// Resolves up to `count` children of finished jobs, and their children in turn.
pub(super) fn resolve<R: Rows>(rows: &mut R, now: Timestamp, count: usize) -> Result<Resolved, Fault> {
    let mut resolved = Resolved::default();
    let mut gaps = Gaps::default();
    while let Some(Some((parent, succeeded))) = gaps.pass(rows.next_resolution())? {
        let left = count - resolved.dependents;
        let children = gaps.pass(rows.children(parent, left.saturating_add(1)))?.unwrap_or_default();
        for child in children.iter().take(left) {
            gaps.skip_malformed(resolve_child(rows, parent, *child, succeeded, now, &mut resolved.effects))?;
        }
        resolved.dependents += children.len().min(left);
        if children.len() > left {
            resolved.more = true;
            break;
        }
        rows.delete_resolution(parent)?;
    }
    gaps.close(resolved)
}

fn resolve_child<R: Rows>(
    rows: &mut R,
    parent: JobId,
    child: JobId,
    succeeded: bool,
    now: Timestamp,
    all_effects: &mut CommitEffects,
) -> Result<(), Fault> {
    rows.delete_dependency(parent, child)?;
    if !succeeded {
        return skip(rows, child, parent, now, all_effects);
    }
    if rows.has_parent(child)? && !planted(Defect::ReleaseByAnyParent) {
        return Ok(());
    }
    // A child that is not due yet checks its parents when it fires.
    let Some(row) = rows.first_behind(child, Gate::Dependency)? else { return Ok(()) };
    let lane = rows.lane(row.lane)?;
    let opened = row.live.gate_opened(Gate::Dependency, now)?;
    let opened = wait_lists::pass_by_job(rows, opened, &lane, now)?;
    rows.update_live(&row, &opened)?;
    all_effects.add(effects(&opened, &lane));
    Ok(())
}

/// Skips a child of a job that did not succeed.
pub(super) fn skip<R: Rows>(
    rows: &mut R,
    child: JobId,
    parent: JobId,
    now: Timestamp,
    effects: &mut CommitEffects,
) -> Result<(), Fault> {
    rows.forget_parents(child)?;
    let before = rows.status_of(child)?;
    let Some(row) = unstarted(rows, child, now)? else { return Ok(()) };
    let terms = rows.terms_of(child)?;
    let why = format!("job {parent}, on which it depended, did not succeed");
    let terms = terms.as_ref().map(JobTerms::terms);
    let settled = row.live.skipped(SkipReason::Dependency, why, terms, now)?;
    effects.ended.push((settled.finished.id, settled.finished.status));
    settle::write(rows, &row, settled, now)?;
    let after = rows.status_of(child)?;
    rows.counters().job(before, after);
    if row.live.flags.followed {
        effects.add(start_next_waiting(rows, child, now)?);
    }
    if row.live.flags.awaited {
        ended(rows, child, false)?;
    }
    Ok(())
}

/// The only occurrence of a child, open or still to come. In the latter case its schedule is deleted.
fn unstarted<R: Rows>(rows: &mut R, child: JobId, now: Timestamp) -> Result<Option<LiveRow>, Fault> {
    if let Some(row) = rows.first_behind(child, Gate::Dependency)? {
        return Ok(Some(row));
    }
    let Some(row) = rows.schedule(child)? else { return Ok(None) };
    let live = row.state.unfired(now);
    rows.delete_schedule(child)?;
    if live.id.number > 1 {
        rows.set_numbered(child, live.id.number)?;
    }
    Ok(Some(LiveRow { live, lane: row.lane, is_sole: false }))
}
