//! Calendars: setting, listing and removing them, and what they mean for the jobs that name them.

use super::uses::UsedThing;
use super::{Removal, UseCase, UseCaseError, UseCases};
use punctual_core::calendar::{Calendar, CalendarSpec, NamedCalendars, calendar_name_problem};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::ports::{
    DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, JobView, Page, StoreError,
    StoredDocument,
};
use punctual_core::schedule::Schedule;
use serde_json::json;

/// How often a change is computed again because the calendar was changed concurrently.
const CHANGE_TRIES_MAX: usize = 20;

/// A stored calendar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarView {
    pub name: String,
    pub version: u64,
    pub spec: CalendarSpec,
}

impl CalendarView {
    fn of(document: &StoredDocument) -> Result<Self, StoreError> {
        let (name, version) = (document.name.clone(), document.version);
        Ok(CalendarView { name, version, spec: document.read()? })
    }
}

impl UseCases {
    pub async fn calendars(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<CalendarView, String>, UseCaseError> {
        self.permit(UseCase::ReadCalendars)?;
        let page = self.store().documents(DocumentKind::Calendar, after, limit).await?;
        let items: Result<Vec<CalendarView>, StoreError> = page.items.iter().map(CalendarView::of).collect();
        Ok(Page { items: items?, next: page.next })
    }

    pub async fn calendar(&self, name: &str) -> Result<CalendarView, UseCaseError> {
        self.permit(UseCase::ReadCalendars)?;
        let stored = self.stored_calendar(name).await?;
        let stored = stored.ok_or_else(|| UseCaseError::NoSuchCalendar(name.to_owned()))?;
        Ok(CalendarView::of(&stored)?)
    }

    /// Creates or replaces a calendar. Returns whether it is new.
    pub async fn set_calendar(
        &self,
        name: &str,
        spec: CalendarSpec,
    ) -> Result<(CalendarView, bool), UseCaseError> {
        self.permit_on(UseCase::SetCalendar, format_args!("calendar {name}"))?;
        if let Some(fix) = calendar_name_problem(name) {
            return Err(UseCaseError::invalid("name", fix));
        }
        let spec = Calendar::new(spec).map_err(UseCaseError::Invalid)?.spec().clone();
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_calendar(name).await?;
            let (document, change) = match &stored {
                None => {
                    self.check_room_for_calendar().await?;
                    let new = StoredDocument::new(DocumentKind::Calendar, name, &spec);
                    (new.clone(), DocumentChange::Add(new))
                }
                Some(stored) => {
                    let new = stored.changed(&spec);
                    (new.clone(), DocumentChange::Replace(new))
                }
            };
            let details = json!({ "version": document.version, "entries": spec.entries.len() });
            let entry = self.audited_with(UseCase::SetCalendar, format_args!("calendar {name}"), &details);
            let change = DirectoryChange::Documents(vec![change]);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.read_calendars(&[]).await?;
                return Ok((CalendarView::of(&document)?, stored.is_none()));
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Removes a calendar. One in use stays, unless the removal is forced.
    pub async fn remove_calendar(&self, name: &str, removal: Removal) -> Result<(), UseCaseError> {
        self.permit_on(UseCase::RemoveCalendar, format_args!("calendar {name}"))?;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_calendar(name).await?;
            let stored = stored.ok_or_else(|| UseCaseError::NoSuchCalendar(name.to_owned()))?;
            self.check_unused(UsedThing::Calendar(name), removal).await?;
            let entry = self.audited(UseCase::RemoveCalendar, format_args!("calendar {name}"));
            let (kind, version) = (DocumentKind::Calendar, stored.version);
            let change = DocumentChange::Remove { kind, name: name.to_owned(), version };
            let change = DirectoryChange::Documents(vec![change]);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.read_calendars(&[]).await?;
                return Ok(());
            }
        }
        Err(UseCaseError::Busy)
    }

    async fn stored_calendar(&self, name: &str) -> Result<Option<StoredDocument>, StoreError> {
        match calendar_name_problem(name) {
            Some(_) => Ok(None),
            None => self.store().document(DocumentKind::Calendar, name).await,
        }
    }

    async fn check_room_for_calendar(&self) -> Result<(), UseCaseError> {
        let page = self.store().documents(DocumentKind::Calendar, None, limits::CALENDARS_MAX).await?;
        match page.items.len() < limits::CALENDARS_MAX {
            true => Ok(()),
            false => Err(UseCaseError::DirectoryFull { what: "calendars", max: limits::CALENDARS_MAX }),
        }
    }

    /// What is wrong with the calendars that a schedule names.
    pub(super) async fn calendar_problem(
        &self,
        schedule: &Schedule,
    ) -> Result<Option<InvalidField>, StoreError> {
        let Schedule::Recurring(recurring) = schedule else { return Ok(None) };
        if recurring.calendars.is_empty() {
            return Ok(None);
        }
        let known = self.engine.context.calendars_named(&recurring.calendars).await?;
        let missing = recurring.calendars.iter().enumerate().find(|(_, name)| known.get(name).is_none());
        Ok(missing.map(|(index, name)| {
            let fix = format!("must name a calendar that exists: there is none called {name:?}");
            InvalidField::new(format!("calendars[{index}]"), fix)
        }))
    }

    /// The calendars of these names that exist.
    pub async fn calendars_of(&self, names: &[String]) -> Result<NamedCalendars, UseCaseError> {
        if names.is_empty() {
            return Ok(vec![]);
        }
        let known = self.engine.context.calendars_named(names).await?;
        Ok(known.of(names).unwrap_or_default())
    }

    /// The job with the next time that its calendars allow, in place of one that they exclude.
    pub(super) async fn under_calendars(&self, mut view: JobView) -> Result<JobView, UseCaseError> {
        if let Some(state) = view.schedule.take_if(|state| !state.calendars().is_empty()) {
            let calendars = self.calendars_of(state.calendars()).await?;
            view.schedule = Some(state.next_allowed(&calendars));
        }
        Ok(view)
    }
}
