//! Dead letters: listing, redriving and discarding them.

use super::{UseCase, UseCaseError, UseCases};
use crate::ControlError;
use punctual_core::ids::OccurrenceId;
use punctual_core::ports::{DeadLetter, DeadLetterQuery, Page};

/// The dead letters to act on.
#[derive(Debug, Clone, PartialEq)]
pub enum DeadLetterChoice {
    Ids(Vec<OccurrenceId>),
    /// One page of those that match.
    Matching(DeadLetterQuery),
}

/// What happened to each chosen dead letter, and where the next page starts.
#[derive(Debug)]
pub struct DeadLetterOutcomes {
    pub items: Vec<(OccurrenceId, Result<(), ControlError>)>,
    pub next: Option<u64>,
}

impl UseCases {
    pub async fn dead_letters(&self, query: DeadLetterQuery) -> Result<Page<DeadLetter, u64>, UseCaseError> {
        self.permit(UseCase::ReadDeadLetters)?;
        Ok(self.read_in_scope(query).await?)
    }

    /// Redrives the chosen dead letters, each independently.
    pub async fn redrive(&self, choice: DeadLetterChoice) -> Result<DeadLetterOutcomes, UseCaseError> {
        self.permit(UseCase::Redrive)?;
        let chosen = self.chosen(choice).await?;
        let ids = chosen.ids.clone();
        let audit = self.audited_ids(UseCase::Redrive, &ids);
        let outcomes = if ids.is_empty() { vec![] } else { self.engine.redrive(ids, audit).await? };
        Ok(chosen.with(outcomes.into_iter().map(|outcome| outcome.map(|_| ()))))
    }

    /// Deletes the chosen dead letters.
    pub async fn discard(&self, choice: DeadLetterChoice) -> Result<DeadLetterOutcomes, UseCaseError> {
        self.permit(UseCase::Discard)?;
        let chosen = self.chosen(choice).await?;
        let ids = chosen.ids.clone();
        let audit = self.audited_ids(UseCase::Discard, &ids);
        let existed = if ids.is_empty() { vec![] } else { self.engine.discard(ids, audit).await? };
        Ok(chosen.with(
            existed.into_iter().map(|existed| if existed { Ok(()) } else { Err(ControlError::NotThere) }),
        ))
    }

    /// The chosen dead letters. Those outside of the caller's scope are treated like unknown ones.
    async fn chosen(&self, choice: DeadLetterChoice) -> Result<Chosen, UseCaseError> {
        match choice {
            DeadLetterChoice::Ids(ids) => {
                let visible = self.in_scope(ids.iter().map(|id| id.job)).await?;
                let (ids, unknown) = ids.into_iter().partition(|id| visible.has(id.job));
                Ok(Chosen { ids, unknown, next: None })
            }
            DeadLetterChoice::Matching(query) => {
                let page = self.read_in_scope(query).await?;
                let ids = page.items.into_iter().map(|letter| letter.occurrence).collect();
                Ok(Chosen { ids, unknown: vec![], next: page.next })
            }
        }
    }
}

struct Chosen {
    ids: Vec<OccurrenceId>,
    unknown: Vec<OccurrenceId>,
    next: Option<u64>,
}

impl Chosen {
    fn with(self, outcomes: impl Iterator<Item = Result<(), ControlError>>) -> DeadLetterOutcomes {
        let unknown = self.unknown.into_iter().map(|id| (id, Err(ControlError::NotThere)));
        DeadLetterOutcomes {
            items: self.ids.into_iter().zip(outcomes).chain(unknown).collect(),
            next: self.next,
        }
    }
}
