//! Dead letters: listing, redriving and discarding them.

use crate::auth::Call;
use crate::cursors::{self, place_in};
use crate::error::ApiError;
use crate::extract::{BODY_BYTES_MAX, JsonBody};
use crate::json::{self, DocumentShape};
use crate::query::QueryParams;
use crate::routes::control::reason_of;
use crate::views;
use axum::Json;
use punctual_client::{
    DeadLetterBody, DeadLetterFilter, DeadLetterSelection, DiscardAnswer, Page, RedriveAnswer, RefusedLetter,
};
use punctual_core::limits;
use punctual_core::ports::DeadLetterQuery;
use punctual_engine::{ControlError, DeadLetterChoice, DeadLetterOutcomes};

const LIST: &str = "dead-letters";

pub async fn list(call: Call, mut query: QueryParams) -> Result<Json<Page<DeadLetterBody>>, ApiError> {
    let filter = filter(&mut query);
    let (before, limit) = (query.cursor(LIST), query.limit());
    query.finish()?;
    let page = call.cases.dead_letters(matching(filter, before, limit)).await?;
    Ok(Json(Page {
        items: page.items.into_iter().map(views::dead_letter).collect(),
        next_cursor: call.next_cursor(LIST, page.next).await?,
    }))
}

/// The dead letters that the parameters select.
pub fn filter(query: &mut QueryParams) -> DeadLetterFilter {
    DeadLetterFilter {
        job_id: query.parsed("job_id"),
        name: query.text("name"),
        job_type: query.text("job_type"),
        queue: query.text("queue"),
        owner: query.text("owner"),
        died_from: query.time("died_from"),
        died_until: query.time("died_until"),
        error: query.text("error"),
    }
}

pub fn matching(filter: DeadLetterFilter, before: Option<u64>, limit: usize) -> DeadLetterQuery {
    DeadLetterQuery {
        before,
        limit,
        job: filter.job_id,
        name: filter.name,
        job_type: filter.job_type,
        queue: filter.queue,
        owner: filter.owner,
        died_from: filter.died_from,
        died_until: filter.died_until,
        error: filter.error,
    }
}

/// Redrives the selected dead letters, each independently.
pub async fn redrive(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Json<RedriveAnswer>, ApiError> {
    let outcomes = call.cases.redrive(chosen(selection(&call, &body.bytes).await?)?).await?;
    let next_cursor = call.next_cursor(LIST, outcomes.next).await?;
    let (redriven, refused) = counted(outcomes);
    Ok(Json(RedriveAnswer { redriven, refused, next_cursor }))
}

/// Deletes the selected dead letters.
pub async fn discard(call: Call, body: JsonBody<BODY_BYTES_MAX>) -> Result<Json<DiscardAnswer>, ApiError> {
    let outcomes = call.cases.discard(chosen(selection(&call, &body.bytes).await?)?).await?;
    let next_cursor = call.next_cursor(LIST, outcomes.next).await?;
    let (discarded, refused) = counted(outcomes);
    Ok(Json(DiscardAnswer { discarded, refused, next_cursor }))
}

/// The selection in a body, with a readable cursor.
async fn selection(call: &Call, body: &[u8]) -> Result<DeadLetterSelection, ApiError> {
    let mut selection: DeadLetterSelection = json::parse(body, DocumentShape::DeadLetters)?;
    if let Some(cursor) = selection.cursor.take() {
        selection.cursor = Some(cursors::opened(&call.api, cursor).await?);
    }
    Ok(selection)
}

/// How many succeeded, and which were refused.
fn counted(outcomes: DeadLetterOutcomes) -> (u64, Vec<RefusedLetter>) {
    let (mut done, mut refused) = (0, Vec::new());
    for (occurrence_id, outcome) in outcomes.items {
        match outcome {
            Ok(()) => done += 1,
            Err(error) => refused.push(RefusedLetter { occurrence_id, reason: reason(&error) }),
        }
    }
    (done, refused)
}

fn reason(error: &ControlError) -> String {
    match error {
        ControlError::NotThere => "there is no such dead letter".to_owned(),
        ControlError::Refused(refusal) => reason_of(refusal),
        ControlError::Invalid(_) | ControlError::Unavailable(_) => error.to_string(),
    }
}

fn chosen(selection: DeadLetterSelection) -> Result<DeadLetterChoice, ApiError> {
    const MAX: usize = limits::STORE_BATCH_MAX;
    let DeadLetterSelection { ids, filter, limit, cursor } = selection;
    let only_with_filter =
        |field| Err(ApiError::field(field, "only applies to a filter: leave it out with ids"));
    match (ids, filter) {
        (Some(_), Some(_)) => {
            Err(ApiError::field("filter", "cannot be combined with ids: give one of the two"))
        }
        (None, None) => Err(ApiError::field("ids", "is needed, or a filter; {\"filter\": {}} means all")),
        (Some(_), None) if limit.is_some() => only_with_filter("limit"),
        (Some(_), None) if cursor.is_some() => only_with_filter("cursor"),
        (Some(ids), None) if ids.is_empty() || ids.len() > MAX => {
            Err(ApiError::field("ids", format!("must name 1 to {MAX} dead letters, not {}", ids.len())))
        }
        (Some(ids), None) => Ok(DeadLetterChoice::Ids(ids)),
        (None, Some(filter)) => {
            let limit = limit.unwrap_or(MAX);
            if limit == 0 || limit > MAX {
                return Err(ApiError::field("limit", format!("must be a number from 1 to {MAX}")));
            }
            let before = match cursor {
                None => None,
                Some(cursor) => Some(place_in(LIST, &cursor).ok_or_else(|| {
                    ApiError::field("cursor", "must be a next_cursor of this same route or of the list")
                })?),
            };
            Ok(DeadLetterChoice::Matching(matching(filter, before, limit)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<DeadLetterChoice, ApiError> {
        chosen(json::parse(body.as_bytes(), DocumentShape::DeadLetters)?)
    }

    fn refused(body: &str) -> String {
        match read(body) {
            Err(ApiError::InvalidFields(errors)) => errors[0].field.clone(),
            other => panic!("{body} gave {other:?}"),
        }
    }

    const ID: &str = "0197e9a0-0000-7000-8000-000000000001.2";

    #[test]
    fn dead_letters_are_chosen_by_ids_or_by_a_filter() {
        assert_eq!(
            read(&format!(r#"{{"ids":["{ID}"]}}"#)).unwrap(),
            DeadLetterChoice::Ids(vec![ID.parse().unwrap()])
        );
        let all = DeadLetterQuery { limit: limits::STORE_BATCH_MAX, ..DeadLetterQuery::default() };
        assert_eq!(read(r#"{"filter":{}}"#).unwrap(), DeadLetterChoice::Matching(all));
        let some = DeadLetterQuery {
            before: Some(17),
            limit: 5,
            queue: Some("mail".to_owned()),
            ..DeadLetterQuery::default()
        };
        let body = r#"{"filter":{"queue":"mail"},"limit":5,"cursor":"dead-letters~17"}"#;
        assert_eq!(read(body).unwrap(), DeadLetterChoice::Matching(some));
    }

    #[test]
    fn an_unclear_choice_is_refused_with_the_field_in_the_way() {
        assert_eq!(refused("{}"), "ids");
        assert_eq!(refused(&format!(r#"{{"ids":["{ID}"],"filter":{{}}}}"#)), "filter");
        assert_eq!(refused(r#"{"ids":[]}"#), "ids");
        assert_eq!(refused(r#"{"ids":["x"]}"#), "ids[0]");
        assert_eq!(refused(&format!(r#"{{"ids":["{ID}"],"limit":5}}"#)), "limit");
        assert_eq!(refused(r#"{"filter":{},"limit":1001}"#), "limit");
        assert_eq!(refused(r#"{"filter":{},"cursor":"jobs~17"}"#), "cursor");
        assert_eq!(refused(r#"{"filter":{"que":"x"}}"#), "filter.que");
        assert_eq!(refused(r#"{"filter":[]}"#), "filter");
    }
}
