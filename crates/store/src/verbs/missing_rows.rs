//! Continues after missing rows, so that one pass finds all rows that have to be loaded.

use crate::fault::Fault;
use crate::malformed::note;

/// Runs all items of a batch. If rows are missing for one item, the others still run, to find out which
/// rows they need; their results are then discarded.
pub(super) fn each<R, T, U>(
    rows: &mut R,
    items: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
    mut one: impl FnMut(&mut R, T) -> Result<U, Fault>,
) -> Result<Vec<U>, Fault> {
    let items = items.into_iter();
    let mut gaps = Gaps::default();
    let mut results = Vec::with_capacity(items.len());
    for item in items {
        results.extend(gaps.pass(one(rows, item))?);
    }
    gaps.close(results)
}

/// Whether any rows were missing so far.
#[derive(Default)]
pub(super) struct Gaps {
    any: bool,
}

impl Gaps {
    /// The result of one step, or `None` if rows are missing. After the first gap faults are ignored,
    /// because they may come from the missing rows.
    pub fn pass<T>(&mut self, result: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(fault) if self.any || fault.is_unloaded() => {
                self.any = true;
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }

    /// Whether any rows are missing so far, so that faults are meaningless.
    pub fn is_any(&self) -> bool {
        self.any
    }

    /// Like [`Gaps::pass`], for a step that the others do not depend on: it is skipped if its row is
    /// malformed.
    pub fn skip_malformed<T>(&mut self, result: Result<T, Fault>) -> Result<Option<T>, Fault> {
        match result {
            Err(fault) if fault.is_malformed() && !self.any => {
                note(&fault);
                Ok(None)
            }
            result => self.pass(result),
        }
    }

    /// The result of all steps.
    pub fn close<T>(self, value: T) -> Result<T, Fault> {
        if self.any { Err(Fault::Unloaded) } else { Ok(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs items of which some are not loaded and some fail. Returns the items that ran, and the result.
    fn run(items: [&str; 4]) -> (Vec<&str>, Result<Vec<&str>, Fault>) {
        let mut seen = Vec::new();
        let results = each(&mut seen, items, |seen, item| {
            seen.push(item);
            match item {
                "gap" => Err(Fault::Unloaded),
                "fault" => Err(Fault::Missing("a job".to_owned())),
                item => Ok(item),
            }
        });
        (seen, results)
    }

    #[test]
    fn items_are_answered_in_their_order() {
        assert_eq!(run(["a", "b", "c", "d"]).1.unwrap(), ["a", "b", "c", "d"]);
    }

    #[test]
    fn a_gap_does_not_prevent_the_other_items_from_running() {
        let (seen, results) = run(["a", "gap", "gap", "d"]);
        assert_eq!(seen, ["a", "gap", "gap", "d"]);
        assert!(results.unwrap_err().is_unloaded());
    }

    #[test]
    fn a_fault_ends_the_batch_unless_rows_were_missing_before_it() {
        let (seen, results) = run(["a", "fault", "gap", "d"]);
        assert_eq!(seen, ["a", "fault"]);
        assert!(matches!(results.unwrap_err(), Fault::Missing(_)));
        let (seen, results) = run(["a", "gap", "fault", "d"]);
        assert_eq!(seen, ["a", "gap", "fault", "d"]);
        assert!(results.unwrap_err().is_unloaded(), "without the missing rows it may be no fault at all");
    }
}
