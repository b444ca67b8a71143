//! The calendars as this node knows them. They are read when a schedule names one, and again while any are known:
//! every node sees a change within [`limits::CALENDARS_REFRESH`].

use crate::EngineContext;
use punctual_core::calendar::{Calendar, CalendarSpec, Calendars};
use punctual_core::limits;
use punctual_core::ports::{DocumentKind, FireOutcome, FireRequest, StoreError};
use punctual_core::time::{Monotonic, Timestamp};
use std::sync::Arc;
use tokio::sync::Mutex;

/// What was read, and when.
#[derive(Default)]
pub(crate) struct KnownCalendars(Mutex<Option<(Monotonic, Arc<Calendars>)>>);

impl EngineContext {
    /// Fires schedules under the calendars that they name. Calendars about which this node knows nothing are read
    /// first, so a new calendar applies from its first occurrence.
    pub(crate) async fn fire_under_calendars(
        &self,
        now: Timestamp,
        fires: Vec<FireRequest>,
    ) -> Result<Vec<FireOutcome>, StoreError> {
        let known = self.known_calendars().await;
        let mut outcomes = self.store.fire_under(now, fires.clone(), known).await?;
        let mut missing = Vec::new();
        // Each round knows more about at least one name.
        for _ in 0..=limits::CALENDARS_OF_JOB_MAX {
            let unknown = |outcome: &FireOutcome| match outcome {
                FireOutcome::UnknownCalendar(name) => Some(name.clone()),
                _ => None,
            };
            let names: Vec<String> = outcomes.iter().filter_map(unknown).collect();
            if names.is_empty() {
                break;
            }
            missing.extend(names);
            let places: Vec<usize> =
                (0..outcomes.len()).filter(|place| unknown(&outcomes[*place]).is_some()).collect();
            let again = places.iter().map(|place| FireRequest { reservation: None, ..fires[*place] });
            let again: Vec<FireRequest> = again.collect();
            let fired = match self.read_calendars(&missing).await {
                Ok(calendars) => self.store.fire_under(now, again, calendars).await,
                Err(error) => Err(error),
            };
            match fired {
                Ok(fired) => {
                    for (place, outcome) in places.into_iter().zip(fired) {
                        outcomes[place] = outcome;
                    }
                }
                Err(error) => {
                    // The others were fired. These stay due, and the next scan finds them.
                    tracing::warn!(%error, "schedules with calendars could not be fired");
                    places.into_iter().for_each(|place| outcomes[place] = FireOutcome::NotDue);
                }
            }
        }
        Ok(outcomes)
    }

    /// The calendars as last read; read again if that was some time ago.
    async fn known_calendars(&self) -> Arc<Calendars> {
        let known = self.calendars.0.lock().await.clone();
        match known {
            None => Arc::default(),
            Some((read_at, known)) if self.is_fresh(read_at) || known.names().next().is_none() => known,
            Some((_, known)) => self.read_calendars(&[]).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "calendars could not be read; the last known ones apply");
                known
            }),
        }
    }

    /// Calendars that include all of these names, or know that they are missing.
    pub(crate) async fn calendars_named(&self, names: &[String]) -> Result<Arc<Calendars>, StoreError> {
        let known = self.calendars.0.lock().await.clone();
        match known {
            Some((read_at, known))
                if self.is_fresh(read_at) && names.iter().all(|name| known.get(name).is_some()) =>
            {
                Ok(known)
            }
            _ => self.read_calendars(names).await,
        }
    }

    fn is_fresh(&self, read_at: Monotonic) -> bool {
        self.host.clock.monotonic().since(read_at) < limits::CALENDARS_REFRESH
    }

    /// Reads all calendars. Those of these names that do not exist are known to be missing.
    pub(crate) async fn read_calendars(&self, names: &[String]) -> Result<Arc<Calendars>, StoreError> {
        let read_at = self.host.clock.monotonic();
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self
                .store
                .documents(DocumentKind::Calendar, after.as_deref(), limits::PAGE_ITEMS_MAX)
                .await?;
            for document in &page.items {
                let spec: CalendarSpec = document.read()?;
                match Calendar::new(spec) {
                    Ok(calendar) => found.push((document.name.clone(), calendar)),
                    Err(problems) => {
                        let problem = problems.first().map(ToString::to_string).unwrap_or_default();
                        let name = &document.name;
                        return Err(StoreError::Broken(format!(
                            "the calendar {name} is not valid: {problem}"
                        )));
                    }
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut calendars = Calendars::new(found);
        names.iter().for_each(|name| calendars.set_missing(name));
        let calendars = Arc::new(calendars);
        *self.calendars.0.lock().await = Some((read_at, calendars.clone()));
        Ok(calendars)
    }
}
