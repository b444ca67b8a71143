//! Jobs as the server describes them, as jobs that can be submitted.

use super::RawObject;
use punctual_client::schema::names_of;
use punctual_client::{JobBody, SubmitJob};

/// When an interval without `start_at` began to count.
const INTERVAL_ANCHOR: &str = "interval_anchor";

/// Removes the state of a job as read. An interval keeps the time that it counts from.
pub fn submittable(fields: &mut RawObject) {
    let anchor = fields.remove(INTERVAL_ANCHOR).filter(|anchor| anchor.get() != "null");
    let (submitted, read) = (names_of::<SubmitJob>(), names_of::<JobBody>());
    let is_state = |name: &str| read.contains(&name) && !submitted.contains(&name);
    fields.retain(|name, value| !is_state(name) && value.get() != "null");
    if let Some(anchor) = anchor
        && (fields.get("interval").is_some() || fields.get("rrule").is_some())
        && fields.get("start_at").is_none()
    {
        fields.set("start_at", anchor);
    }
}
