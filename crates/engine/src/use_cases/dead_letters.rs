//! Dead letters: listing, redriving and discarding them.

use super::{Permission, UseCaseError, UseCases};
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
        self.permit(Permission::Read)?;
        Ok(self.store().dead_letters(query).await?)
    }

    /// Redrives the chosen dead letters, each independently.
    pub async fn redrive(&self, choice: DeadLetterChoice) -> Result<DeadLetterOutcomes, UseCaseError> {
        let (ids, next) = self.chosen(choice).await?;
        let outcomes = if ids.is_empty() { vec![] } else { self.engine.redrive(ids.clone()).await? };
        let outcomes = outcomes.into_iter().map(|outcome| outcome.map(|_| ()));
        Ok(DeadLetterOutcomes { items: ids.into_iter().zip(outcomes).collect(), next })
    }

    /// Deletes the chosen dead letters.
    pub async fn discard(&self, choice: DeadLetterChoice) -> Result<DeadLetterOutcomes, UseCaseError> {
        let (ids, next) = self.chosen(choice).await?;
        let existed = if ids.is_empty() { vec![] } else { self.engine.discard(ids.clone()).await? };
        let outcomes =
            existed.into_iter().map(|existed| if existed { Ok(()) } else { Err(ControlError::NotThere) });
        Ok(DeadLetterOutcomes { items: ids.into_iter().zip(outcomes).collect(), next })
    }

    async fn chosen(
        &self,
        choice: DeadLetterChoice,
    ) -> Result<(Vec<OccurrenceId>, Option<u64>), UseCaseError> {
        self.permit(Permission::Change)?;
        match choice {
            DeadLetterChoice::Ids(ids) => Ok((ids, None)),
            DeadLetterChoice::Matching(query) => {
                self.permit(Permission::Operate)?;
                let page = self.store().dead_letters(query).await?;
                Ok((page.items.into_iter().map(|letter| letter.occurrence).collect(), page.next))
            }
        }
    }
}
