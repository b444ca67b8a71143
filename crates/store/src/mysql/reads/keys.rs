//! How many keys are combined into one statement.

use mysql_async::Value;
use punctual_core::ids::{JobId, OccurrenceId};

/// Keys of a `UNION ALL`. Few sizes, so that each statement is prepared a few times and not once for every
/// number.
const SIZES: [usize; 3] = [1, 10, VIEWS_AT_ONCE];
/// Jobs that are looked up together: as many as the largest of [`SIZES`].
pub(super) const VIEWS_AT_ONCE: usize = 50;
/// A key that no job has, to fill up a size.
const NOBODY: [u8; 16] = [0; 16];

/// A job's id as a parameter.
pub(super) fn key(job: JobId) -> Value {
    Value::Bytes(job.as_bytes().to_vec())
}

/// Job ids for `JSON_TABLE`.
pub(super) fn json_of_jobs(jobs: impl IntoIterator<Item = JobId>) -> String {
    json(jobs.into_iter().map(|job| format!("[\"{}\"]", hex(job))))
}

/// Occurrences for `JSON_TABLE`.
pub(super) fn json_of_occurrences(ids: impl IntoIterator<Item = OccurrenceId>) -> String {
    json(ids.into_iter().map(|id| format!("[\"{}\",{}]", hex(id.job), id.number)))
}

/// Numbers for `JSON_TABLE`.
pub(super) fn json_of_numbers(numbers: impl IntoIterator<Item = i64>) -> String {
    json(numbers.into_iter().map(|number| format!("[{number}]")))
}

/// Pairs of numbers for `JSON_TABLE`.
pub(super) fn json_of_pairs(pairs: impl IntoIterator<Item = (i64, i64)>) -> String {
    json(pairs.into_iter().map(|(one, other)| format!("[{one},{other}]")))
}

fn json(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn hex(job: JobId) -> String {
    job.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// This branch for each of at least this many keys, which must be no more than [`VIEWS_AT_ONCE`].
pub(crate) fn branches(branch: &str, keys: usize) -> String {
    vec![branch; size(keys)].join(" UNION ALL ")
}

/// The parameters of [`branches`] whose only parameter is the id of a job.
pub(crate) fn keys_of_jobs(jobs: &[JobId]) -> Vec<Value> {
    let mut keys: Vec<Value> = jobs.iter().copied().map(key).collect();
    keys.resize(size(jobs.len()), Value::Bytes(NOBODY.to_vec()));
    keys
}

fn size(keys: usize) -> usize {
    debug_assert!(keys <= VIEWS_AT_ONCE, "{keys} keys");
    SIZES.into_iter().find(|size| *size >= keys).unwrap_or(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::time::Timestamp;

    #[test]
    fn statements_come_in_few_sizes() {
        let job = JobId::new(Timestamp::from_micros(1), 2);
        for (keys, size) in [(1, 1), (2, 10), (10, 10), (11, 50), (50, 50)] {
            assert_eq!(branches("(?)", keys).matches('?').count(), size);
            assert_eq!(keys_of_jobs(&vec![job; keys]).len(), size);
        }
    }

    #[test]
    fn keys_are_one_document() {
        let job = JobId::from_bytes([0xAB; 16]);
        assert_eq!(json_of_jobs([]), "[]");
        assert_eq!(json_of_jobs([job]), format!("[[\"{}\"]]", "ab".repeat(16)));
        let occurrences = [job.occurrence(7), job.occurrence(8)];
        let hex = "ab".repeat(16);
        assert_eq!(json_of_occurrences(occurrences), format!("[[\"{hex}\",7],[\"{hex}\",8]]"));
        assert_eq!(json_of_numbers([1, -2]), "[[1],[-2]]");
        assert_eq!(json_of_pairs([(1, 2), (3, 4)]), "[[1,2],[3,4]]");
    }
}
