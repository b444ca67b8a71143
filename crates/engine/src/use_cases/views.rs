//! Saved views. Each caller has its own, and no other caller can see them.

use super::{UseCase, UseCaseError, UseCases};
use punctual_core::limits;
use punctual_core::ports::{
    DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, StoreError, StoredDocument,
};
use punctual_core::saved_view::{SavedView, SavedViews, views_of};

/// How often a change is made again because of a concurrent one.
const CHANGE_TRIES_MAX: usize = 10;
/// The kinds of callers.
const USER: &str = "user";
const TOKEN: &str = "token";

impl UseCases {
    /// The views of the caller, by name.
    pub async fn views(&self) -> Result<SavedViews, UseCaseError> {
        self.permit(UseCase::ReadViews)?;
        Ok(self.stored_views(&self.own_views()).await?.1)
    }

    /// Saves a view of the caller. Returns whether its name is new.
    pub async fn set_view(&self, name: &str, view: SavedView) -> Result<bool, UseCaseError> {
        self.permit(UseCase::SetView)?;
        let problems = view.problems(name);
        if !problems.is_empty() {
            return Err(UseCaseError::Invalid(problems));
        }
        self.change_views(|views| {
            let is_new = views.insert(name.to_owned(), view.clone()).is_none();
            match views.len() <= limits::VIEWS_OF_CALLER_MAX {
                true => Ok(is_new),
                false => {
                    Err(UseCaseError::DirectoryFull { what: "saved views", max: limits::VIEWS_OF_CALLER_MAX })
                }
            }
        })
        .await
    }

    pub async fn remove_view(&self, name: &str) -> Result<(), UseCaseError> {
        self.permit(UseCase::RemoveView)?;
        self.change_views(|views| match views.remove(name) {
            Some(_) => Ok(()),
            None => Err(UseCaseError::NoSuchDocument { what: "saved view", name: name.to_owned() }),
        })
        .await
    }

    async fn change_views<T>(
        &self,
        change: impl Fn(&mut SavedViews) -> Result<T, UseCaseError>,
    ) -> Result<T, UseCaseError> {
        let document = self.own_views();
        for _ in 0..CHANGE_TRIES_MAX {
            let (stored, mut views) = self.stored_views(&document).await?;
            let answer = change(&mut views)?;
            let change = match stored {
                None => DocumentChange::Add(StoredDocument::new(DocumentKind::View, &*document, &views)),
                Some(stored) => DocumentChange::Replace(stored.changed(&views)),
            };
            let change = DirectoryChange::Documents(vec![change]);
            if self.store().change_directory(change, None).await? == DirectoryOutcome::Done {
                return Ok(answer);
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Removes the views of a token that is gone.
    pub(super) async fn forget_views_of_token(&self, id: &str) -> Result<(), StoreError> {
        self.forget_views(views_of(TOKEN, id)).await
    }

    /// Removes the views of a user who is gone.
    pub(super) async fn forget_views_of_user(&self, id: &str) -> Result<(), StoreError> {
        self.forget_views(views_of(USER, id)).await
    }

    async fn forget_views(&self, name: String) -> Result<(), StoreError> {
        let Some(stored) = self.store().document(DocumentKind::View, &name).await? else { return Ok(()) };
        let change = DocumentChange::Remove { kind: stored.kind, name, version: stored.version };
        self.store().change_directory(DirectoryChange::Documents(vec![change]), None).await.map(drop)
    }

    /// The document with the views of the caller: of the person, or of the token behind the session of a browser.
    fn own_views(&self) -> String {
        let caller = &self.caller;
        match (&caller.user, &caller.session_of) {
            (Some(user), _) => views_of(USER, user),
            (None, Some(token)) => views_of(TOKEN, token),
            (None, None) => views_of(TOKEN, &caller.token_id),
        }
    }

    async fn stored_views(&self, document: &str) -> Result<(Option<StoredDocument>, SavedViews), StoreError> {
        let stored = self.store().document(DocumentKind::View, document).await?;
        let views = stored.as_ref().map(StoredDocument::read).transpose()?.unwrap_or_default();
        Ok((stored, views))
    }
}
