//! Which jobs may have their large results stored as blobs.

use super::UseCases;
use punctual_core::job::{InvalidField, JobSpec, ResultOverflow};
use punctual_core::secrets::{may_have_references, references};

impl UseCases {
    /// Why the large results of a job could not be stored.
    pub(super) fn blob_problem(&self, spec: &JobSpec) -> Option<InvalidField> {
        if spec.settings.result_overflow != ResultOverflow::Blob {
            return None;
        }
        let has_secrets = may_have_references(&spec.payload)
            && references(&spec.payload).is_ok_and(|found| !found.is_empty());
        let why = match (self.engine.has_blobs(), has_secrets) {
            (false, _) => "this server has no place for blobs (blobs.url)",
            (true, true) => "the payload refers to secrets, and they could not be removed from a blob",
            (true, false) => return None,
        };
        Some(InvalidField::new("result_overflow", format!("must be truncate or fail: {why}")))
    }
}
