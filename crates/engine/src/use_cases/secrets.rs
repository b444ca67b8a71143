//! Secrets: setting, listing and removing them, re-encrypting them, and whether a job may refer to them. No use
//! case returns a value.
//!
//! Names are shared by all owners. A caller sees the secrets that jobs in its scope may use. One that is limited to an
//! owner changes those that only jobs of the owner may use.

use super::uses::UsedThing;
use super::{Forbidden, Removal, UseCase, UseCaseError, UseCases};
use crate::sealed_store::PayloadsResealed;
use crate::secrets::NOT_USABLE;
use punctual_core::access::{NamePattern, pattern_list};
use punctual_core::ids::JobId;
use punctual_core::job::{InvalidField, JobSpec};
use punctual_core::limits;
use punctual_core::ports::{
    CipherError, DirectoryChange, DirectoryOutcome, Page, SecretAbout, SecretCipher, StoreError, StoredSecret,
};
use punctual_core::secrets::{
    SecretRule, SecretRuleChange, references, secret_name_problem, secret_value_problem,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// How often a change is computed again because the secret was changed concurrently.
const CHANGE_TRIES_MAX: usize = 20;

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretView {
    pub name: String,
    pub version: u64,
    pub key_id: String,
    /// Whether this node has the key.
    pub is_readable: bool,
    pub about: SecretAbout,
}

/// What a step of a rotation has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretsRotated {
    /// The current key.
    pub key_id: String,
    pub rotated: usize,
    /// Payloads of jobs that were encrypted with it.
    pub payloads: usize,
    /// What this node cannot decrypt, with the reason.
    pub unreadable: Vec<String>,
    /// Where the next step continues; `None` at the end.
    pub next: Option<RotationPlace>,
}

/// Where a rotation continues: first come the secrets by name, then the payloads of jobs, latest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RotationPlace {
    Secret(String),
    Payload(Option<JobId>),
}

/// The rules of secrets that were read for one request; `None` for one that does not exist.
pub(super) type SecretRules = BTreeMap<String, Option<SecretRule>>;

impl UseCases {
    /// The secrets that the caller may see, by name. A page may be empty although more follow.
    pub async fn secrets(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<SecretView, String>, UseCaseError> {
        self.permit(UseCase::ReadSecrets)?;
        let page = self.store().secrets(after, limit).await?;
        let visible = page.items.into_iter().filter(|secret| self.sees_secret(&secret.about.rule));
        Ok(Page { items: visible.map(|secret| self.secret_view(secret)).collect(), next: page.next })
    }

    pub async fn secret(&self, name: &str) -> Result<SecretView, UseCaseError> {
        self.permit(UseCase::ReadSecrets)?;
        let secret = self.stored_secret(name).await?;
        let visible = secret.filter(|secret| self.sees_secret(&secret.about.rule));
        let visible = visible.ok_or_else(|| UseCaseError::NoSuchSecret(name.to_owned()))?;
        Ok(self.secret_view(visible))
    }

    /// Stores the value of a secret, and changes its rule. A new secret is for all queues and job types, unless the
    /// change says otherwise. Without owners, only jobs of the caller's own owner may use it. Returns whether it is
    /// new.
    pub async fn set_secret(
        &self,
        name: &str,
        value: &str,
        change: SecretRuleChange,
    ) -> Result<(SecretView, bool), UseCaseError> {
        self.permit(UseCase::SetSecret)?;
        let named = [("name", secret_name_problem(name)), ("value", secret_value_problem(value))];
        let problems = named.into_iter().filter_map(|(field, fix)| Some(InvalidField::new(field, fix?)));
        let given = change.applied_to(&SecretRule::default());
        let problems: Vec<InvalidField> = problems.chain(given.problems()).collect();
        if !problems.is_empty() {
            return Err(UseCaseError::Invalid(problems));
        }
        let object = format!("secret {name}");
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_secret(name).await?;
            let mut rule = match &stored {
                Some(stored) => change.applied_to(&stored.about.rule),
                None => given.clone(),
            };
            if rule.owners.is_empty() {
                rule.owners = vec![self.own_pattern()?];
            }
            // First, because the kept part of its rule is not for everyone.
            if let Some(stored) = &stored {
                self.noted(UseCase::SetSecret, &object, self.check_replaces(&stored.about.rule))?;
            }
            self.noted(UseCase::SetSecret, &object, self.check_manages(&rule))?;
            if stored.is_none() {
                self.check_room_for_secret().await?;
            }
            self.check_key_is_not_lost(name).await?;
            let now = self.now();
            let version = stored.as_ref().map_or(0, |stored| stored.version) + 1;
            let sealed = self.cipher()?.seal(value, &StoredSecret::bound_to(name, version, &rule))?;
            let about = SecretAbout {
                rule: rule.clone(),
                created_at: stored.as_ref().map_or(now, |stored| stored.about.created_at),
                set_at: now,
                set_by: self.caller.name.clone(),
            };
            let secret = StoredSecret { name: name.to_owned(), version, sealed, about };
            let before = stored.as_ref().map(described_secret);
            let details = json!({ "before": before, "after": described_secret(&secret) });
            let entry = self.audited_with(UseCase::SetSecret, &object, &details);
            let change = match &stored {
                Some(stored) => {
                    DirectoryChange::ReplaceSecret { secret: secret.clone(), expected: stored.clone() }
                }
                None => DirectoryChange::AddSecret(secret.clone()),
            };
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.secrets.are_present();
                return Ok((self.secret_view(secret), stored.is_none()));
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Removes a secret. One in use stays, unless the removal is forced.
    pub async fn remove_secret(&self, name: &str, removal: Removal) -> Result<(), UseCaseError> {
        self.permit(UseCase::RemoveSecret)?;
        let object = format!("secret {name}");
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_secret(name).await?;
            let stored = stored.filter(|stored| self.sees_secret(&stored.about.rule));
            let stored = stored.ok_or_else(|| UseCaseError::NoSuchSecret(name.to_owned()))?;
            self.noted(UseCase::RemoveSecret, &object, self.check_manages(&stored.about.rule))?;
            self.check_unused(UsedThing::Secret(name), removal).await?;
            let details = json!({ "before": described_secret(&stored) });
            let entry = self.audited_with(UseCase::RemoveSecret, &object, &details);
            let change = DirectoryChange::RemoveSecret(stored);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                return Ok(());
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Encrypts the next secrets, or the payloads of the next jobs, with the current key, as far as one call goes.
    pub async fn rotate_secrets(&self, after: Option<RotationPlace>) -> Result<SecretsRotated, UseCaseError> {
        self.permit(UseCase::RotateSecrets)?;
        let cipher = self.cipher()?;
        self.check_key_is_not_lost("").await?;
        let key_id = cipher.current_key().ok_or(CipherError::NoKey)?;
        let none = SecretsRotated { key_id, rotated: 0, payloads: 0, unreadable: vec![], next: None };
        let done = match after {
            None => {
                let (channels, problems) = self.rotate_channels().await?;
                let mut done = self.rotate_from(none, None).await?;
                done.rotated += channels;
                done.unreadable.extend(problems);
                done
            }
            Some(RotationPlace::Secret(name)) => self.rotate_from(none, Some(&name)).await?,
            Some(RotationPlace::Payload(job)) => self.rotate_payloads(none, job).await?,
        };
        let details = json!({
            "key_id": done.key_id,
            "rotated": done.rotated,
            "payloads": done.payloads,
            "unreadable": done.unreadable.len(),
        });
        self.record(UseCase::RotateSecrets, "secrets".to_owned(), Some(&details)).await;
        Ok(done)
    }

    async fn rotate_from(
        &self,
        mut done: SecretsRotated,
        after: Option<&str>,
    ) -> Result<SecretsRotated, UseCaseError> {
        let cipher = self.cipher()?;
        let page = self.store().secrets(after, limits::SECRETS_ROTATED_MAX).await?;
        for secret in page.items.into_iter().filter(|secret| secret.sealed.key_id != done.key_id) {
            let name = secret.name.clone();
            match resealed(cipher, &secret) {
                // One that was changed meanwhile has the current key.
                Ok(new) => {
                    let change = DirectoryChange::ReplaceSecret { secret: new, expected: secret };
                    let outcome = self.store().change_directory(change, None).await?;
                    done.rotated += usize::from(outcome == DirectoryOutcome::Done);
                }
                Err(error) => done.unreadable.push(format!("{name}: {error}")),
            }
        }
        done.next = Some(page.next.map_or(RotationPlace::Payload(None), RotationPlace::Secret));
        Ok(done)
    }

    async fn rotate_payloads(
        &self,
        done: SecretsRotated,
        after: Option<JobId>,
    ) -> Result<SecretsRotated, UseCaseError> {
        let sealed = self.engine.context.sealed.as_ref().ok_or(CipherError::NoKey)?;
        let PayloadsResealed { resealed, unreadable, next } =
            sealed.reseal_payloads(self.now(), after, limits::PAYLOADS_ROTATED_MAX).await?;
        let unreadable = unreadable.iter().map(ToString::to_string).collect();
        let next = next.map(|job| RotationPlace::Payload(Some(job)));
        Ok(SecretsRotated { payloads: resealed, unreadable, next, ..done })
    }

    /// What is wrong with the references of a job. A secret that it may not use is like one that does not exist.
    pub(super) async fn secret_problem(
        &self,
        spec: &JobSpec,
        rules: &mut SecretRules,
    ) -> Result<Option<InvalidField>, StoreError> {
        let found = match references(&spec.payload) {
            Ok(found) => found,
            Err(problem) => return Ok(Some(problem)),
        };
        for reference in found {
            let name = &reference.name;
            if !rules.contains_key(name) {
                let rule = self.store().secret(name).await?.map(|secret| secret.about.rule);
                rules.insert(name.clone(), rule);
            }
            let rule = rules.get(name).and_then(Option::as_ref);
            if !rule.is_some_and(|rule| rule.allows(&spec.owner, &spec.queue, &spec.job_type)) {
                let fix = format!("must refer to a secret that the job may use, not {name}: {NOT_USABLE}");
                return Ok(Some(InvalidField::new(reference.path, fix)));
            }
        }
        Ok(None)
    }

    /// One with an invalid name does not exist. Databases refuse some texts instead of finding nothing.
    async fn stored_secret(&self, name: &str) -> Result<Option<StoredSecret>, StoreError> {
        if secret_name_problem(name).is_some() { Ok(None) } else { self.store().secret(name).await }
    }

    fn sees_secret(&self, rule: &SecretRule) -> bool {
        rule.may_allow_in(&self.caller.grant.scope)
    }

    /// Refuses a rule that reaches beyond the caller's scope.
    fn check_manages(&self, rule: &SecretRule) -> Result<(), Forbidden> {
        let scope = &self.caller.grant.scope;
        if !scope.queues.is_empty() || !scope.job_types.is_empty() {
            return Err(Forbidden(
                "secrets are not limited to the queues and job types that the token is limited to".to_owned(),
            ));
        }
        match &scope.owner {
            Some(own) if rule.owners.iter().any(|owner| owner.as_str() != own) => Err(Forbidden(format!(
                "jobs of {} may use the secret, and the token is limited to the owner {own}",
                pattern_list(&rule.owners)
            ))),
            _ => Ok(()),
        }
    }

    /// Refuses to replace a secret that the caller does not manage. About one that it cannot see, the reason says
    /// nothing.
    fn check_replaces(&self, rule: &SecretRule) -> Result<(), Forbidden> {
        match &self.caller.grant.scope.owner {
            Some(own) if !self.sees_secret(rule) => Err(Forbidden(format!(
                "this name cannot be used by a token that is limited to the owner {own}: choose another name"
            ))),
            _ => self.check_manages(rule),
        }
    }

    /// The caller's own owner as a rule.
    fn own_pattern(&self) -> Result<NamePattern, UseCaseError> {
        let owner = &self.caller.grant.owner;
        if owner.contains('*') {
            let fix = format!(
                "must be given (--owner): the default would be your own owner {owner}, whose * would stand for any text"
            );
            return Err(UseCaseError::Invalid(vec![InvalidField::new("owners", fix)]));
        }
        Ok(NamePattern::new(owner.clone()))
    }

    /// Refuses to go on without any key while there are other secrets than this one. A new key would hide that
    /// theirs is missing.
    async fn check_key_is_not_lost(&self, name: &str) -> Result<(), UseCaseError> {
        let cipher = self.cipher()?;
        if cipher.current_key().is_some() {
            return Ok(());
        }
        let stored = self.store().secrets(None, 2).await?.items;
        match stored.into_iter().find(|secret| secret.name != name) {
            Some(other) => {
                let (secret, key_id, place) = (other.name, other.sealed.key_id, cipher.key_place());
                Err(CipherError::LostKey { secret, key_id, place }.into())
            }
            None => Ok(()),
        }
    }

    async fn check_room_for_secret(&self) -> Result<(), UseCaseError> {
        let (mut count, mut after) = (0, None);
        loop {
            let page = self.store().secrets(after.as_deref(), limits::PAGE_ITEMS_MAX).await?;
            count += page.items.len();
            after = page.next;
            if count >= limits::SECRETS_MAX {
                return Err(UseCaseError::DirectoryFull { what: "secrets", max: limits::SECRETS_MAX });
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }

    fn cipher(&self) -> Result<&dyn SecretCipher, CipherError> {
        self.engine.context.config.secret_cipher.as_deref().ok_or(CipherError::NoKey)
    }

    fn secret_view(&self, secret: StoredSecret) -> SecretView {
        let StoredSecret { name, version, sealed, about } = secret;
        let is_readable = self.cipher().is_ok_and(|cipher| cipher.has_key(&sealed.key_id));
        SecretView { name, version, key_id: sealed.key_id, is_readable, about }
    }
}

/// The same secret, encrypted with the current key.
fn resealed(cipher: &dyn SecretCipher, secret: &StoredSecret) -> Result<StoredSecret, CipherError> {
    let value = cipher.open(&secret.sealed, &secret.own_binding())?;
    let version = secret.version + 1;
    let bound_to = StoredSecret::bound_to(&secret.name, version, &secret.about.rule);
    Ok(StoredSecret { version, sealed: cipher.seal(&value, &bound_to)?, ..secret.clone() })
}

/// A secret without its value.
fn described_secret(secret: &StoredSecret) -> Value {
    json!({ "version": secret.version, "key_id": secret.sealed.key_id, "rule": secret.about.rule })
}
