//! The audit log: the entries of use cases, reading it, and verifying its chain.

use super::{Access, Caller, UseCase, UseCaseError, UseCases};
use crate::Engine;
use punctual_core::ids::{ExecutionId, JobId, OccurrenceId};
use punctual_core::job::JobSpec;
use punctual_core::limits;
use punctual_core::ports::{
    AuditEntry, AuditId, AuditQuery, AuditRow, ChainCheck, ChainEnds, ChainPart, OUTCOME_OK, Page, Token,
    User,
};
use punctual_core::queue::QueueSettings;
use serde_json::{Map, Value, json};

/// The action of an entry about a request that was not authenticated.
const AUTHENTICATE: &str = "token.use";
/// The actions of entries about browsers that log in and out.
pub(super) const SESSION_OPEN: &str = "session.open";
pub(super) const SESSION_CLOSE: &str = "session.close";
/// The name in entries about what a server does itself at its start.
const SERVER: &str = "punctual serve";

/// What a verification of a part of the chain has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditVerification {
    pub check: ChainCheck,
    pub ends: ChainEnds,
    /// How many entries are not in the chain yet.
    pub unsealed: u64,
    /// The number after which the next part begins; `None` if this was the last one.
    pub next: Option<u64>,
}

impl AuditVerification {
    fn without_ends(unsealed: u64) -> Self {
        AuditVerification { check: ChainCheck::without_ends(), ends: ChainEnds::EMPTY, unsealed, next: None }
    }
}

impl UseCases {
    /// The entry of a request, for the transaction of its change.
    pub(super) fn audited(&self, case: UseCase, object: impl ToString) -> Option<AuditEntry> {
        Some(self.entry(case, object.to_string(), None))
    }

    /// The same with details: what was before and after.
    pub(super) fn audited_with(
        &self,
        case: UseCase,
        object: impl ToString,
        details: &Value,
    ) -> Option<AuditEntry> {
        Some(self.entry(case, object.to_string(), Some(details)))
    }

    /// The same for a request about several occurrences.
    pub(super) fn audited_ids(&self, case: UseCase, ids: &[OccurrenceId]) -> Option<AuditEntry> {
        if let [id] = ids {
            return self.audited(case, format_args!("dead letter {id}"));
        }
        let first: Vec<String> =
            ids.iter().take(limits::AUDIT_IDS_MAX).map(OccurrenceId::to_string).collect();
        let details = json!({ "dead_letters": ids.len(), "first": first });
        self.audited_with(case, format_args!("{} dead letters", ids.len()), &details)
    }

    /// The entry of a browser that logs in or out.
    pub(super) fn session_entry(&self, action: &str, session: &str, details: Option<&Value>) -> AuditEntry {
        session_entry(&self.engine, &self.caller, action, session, details)
    }

    /// Writes the entry of something that is no change in the store.
    pub(super) async fn record(&self, case: UseCase, object: String, details: Option<&Value>) {
        let entry = self.entry(case, object, details);
        if let Err(error) = self.store().record_audit(vec![entry.clone()]).await {
            tracing::warn!(%error, action = entry.action, "an entry of the audit log was not written; retrying");
            self.engine.context.refusals.put_back(vec![entry]);
        }
    }

    fn entry(&self, case: UseCase, object: String, details: Option<&Value>) -> AuditEntry {
        let entry = entry(&self.engine, &self.caller, case.name(), object);
        AuditEntry { details: details.map(Value::to_string), ..entry }.bounded()
    }

    /// Notes a request that the caller may not make, or that would take away what must stay.
    pub(super) fn note_refusal(&self, case: UseCase, object: String, reason: &str) {
        let entry = self.entry(case, object, None);
        self.engine.context.refusals.add(entry.refused(reason));
    }

    /// Entries that match, latest first. A user is named by id or email address. The id of a job, a dead letter or
    /// an execution may be without the word before it.
    pub async fn audit(&self, mut query: AuditQuery) -> Result<Page<AuditRow, AuditId>, UseCaseError> {
        self.permit(UseCase::ReadAudit)?;
        if let Some(email) = query.user.take_if(|user| user.contains('@')) {
            let user = self.store().user_by_email(&email.to_ascii_lowercase()).await?;
            query.user = Some(user.ok_or(UseCaseError::NoSuchUser(email))?.id);
        }
        query.object = query.object.map(with_kind);
        Ok(self.store().audit(query).await?)
    }

    /// Verifies the chain after this number, as far as one call goes.
    pub async fn verify_audit(&self, after: u64) -> Result<AuditVerification, UseCaseError> {
        self.permit(UseCase::ReadAudit)?;
        let store = self.store();
        let unsealed = store.unsealed_audit().await?;
        let without_ends = || Ok(AuditVerification::without_ends(unsealed));
        let Some(before) = store.audit_ends().await? else { return without_ends() };
        let start = after.min(before.head.number);
        // The row before the first one has the hash that the first one follows.
        let rows_max = limits::AUDIT_VERIFIED_MAX + 1;
        let rows = store.audit_chain(start.saturating_sub(1), rows_max).await?;
        let is_cut_off = rows.len() == rows_max;
        let Some(ends) = store.audit_ends().await? else { return without_ends() };
        let check = ChainPart { before, rows, after: ends, is_cut_off }.check(start);
        let next = (is_cut_off && check.broken.is_none()).then_some(check.last.number);
        Ok(AuditVerification { check, ends, unsealed, next })
    }
}

/// The object of entries about this id; other texts stay as they are.
fn with_kind(object: String) -> String {
    if object.parse::<JobId>().is_ok() {
        format!("job {object}")
    } else if object.parse::<OccurrenceId>().is_ok() {
        format!("dead letter {object}")
    } else if object.parse::<ExecutionId>().is_ok() {
        format!("execution {object}")
    } else {
        object
    }
}

pub(super) fn session_entry(
    engine: &Engine,
    caller: &Caller,
    action: &str,
    session: &str,
    details: Option<&Value>,
) -> AuditEntry {
    let entry = entry(engine, caller, action, format!("session {session}"));
    AuditEntry { details: details.map(Value::to_string), ..entry }.bounded()
}

impl Engine {
    /// The entry of a change of a token that the server makes itself at its start.
    pub fn entry_at_start(&self, case: UseCase, token: &str, details: &Value) -> AuditEntry {
        let at = self.now();
        AuditEntry {
            id: AuditId::new(at, self.context.host.random.next_u64()),
            at,
            token: token.to_owned(),
            name: SERVER.to_owned(),
            user: None,
            source: None,
            action: case.name().to_owned(),
            object: format!("token {token}"),
            outcome: OUTCOME_OK.to_owned(),
            details: Some(details.to_string()),
        }
    }
}

/// Who was refused before it was a caller: what is known of the credential that it has shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RefusedPrincipal {
    /// The id of its token, or the issuer and subject of its JWT.
    pub token_id: String,
    pub name: String,
    pub user: Option<String>,
    pub source: Option<String>,
}

impl Access {
    /// Notes a request that was not authenticated although its credential is known: expired, with a wrong secret,
    /// or of a user who is disabled.
    pub fn record_refusal(&self, who: RefusedPrincipal, reason: &str) {
        let object = format!("token {}", who.token_id);
        self.refused(who, AUTHENTICATE, object, reason);
    }

    /// Notes a browser that could not log in, whatever it has shown.
    pub fn record_refused_login(&self, who: RefusedPrincipal, reason: &str) {
        self.refused(who, SESSION_OPEN, "login".to_owned(), reason);
    }

    fn refused(&self, who: RefusedPrincipal, action: &str, object: String, reason: &str) {
        let RefusedPrincipal { token_id, name, user, source } = who;
        let entry = entry_of(&self.engine, (token_id, name), (user, source), action, object).bounded();
        self.engine.context.refusals.add(entry.refused(reason));
    }
}

fn entry(engine: &Engine, caller: &Caller, action: &str, object: String) -> AuditEntry {
    let token = (caller.token_id.clone(), caller.name.clone());
    entry_of(engine, token, (caller.user.clone(), caller.source.clone()), action, object)
}

fn entry_of(
    engine: &Engine,
    (token, name): (String, String),
    (user, source): (Option<String>, Option<String>),
    action: &str,
    object: String,
) -> AuditEntry {
    let at = engine.now();
    AuditEntry {
        id: AuditId::new(at, engine.context.host.random.next_u64()),
        at,
        token,
        name,
        user,
        source,
        action: action.to_owned(),
        object,
        outcome: OUTCOME_OK.to_owned(),
        details: None,
    }
}

/// The fields of a job that an update changes, before and after. Payloads are not repeated: reading them needs
/// another permission.
pub(super) fn changed_fields(before: &JobSpec, after: &JobSpec) -> Value {
    let (before_fields, after_fields) = (fields(before), fields(after));
    let mut changes = Map::new();
    for name in before_fields.keys().chain(after_fields.keys()) {
        let (was, is) = (before_fields.get(name), after_fields.get(name));
        if was != is {
            changes.insert(name.clone(), json!({ "before": was, "after": is }));
        }
    }
    if before.payload != after.payload {
        changes.insert("payload".to_owned(), json!("changed"));
    }
    Value::Object(changes)
}

/// A token without its secret.
pub(super) fn described_token(token: &Token) -> Value {
    let about = &token.about;
    json!({
        "name": about.name,
        "role": token.role,
        "owner_id": about.terms.owner,
        "scope": about.terms.scope,
        "permissions": about.terms.permissions,
        "user_id": about.user,
        "expires_at": token.expires_at,
    })
}

pub(super) fn described_user(user: &User) -> Value {
    let about = &user.about;
    json!({
        "email": user.email,
        "role": user.role,
        "owner_id": about.terms.owner,
        "scope": about.terms.scope,
        "permissions": about.terms.permissions,
        "is_disabled": about.is_disabled,
    })
}

/// The settings of a queue.
pub(super) fn described(settings: &QueueSettings) -> Value {
    json!({ "max_depth": settings.max_depth, "limits": settings.limits })
}

/// Settings with default values are left out.
fn fields(spec: &JobSpec) -> Map<String, Value> {
    let mut fields = match serde_json::to_value(&spec.settings) {
        Ok(Value::Object(settings)) => settings,
        _ => Map::new(),
    };
    fields.insert("name".to_owned(), json!(spec.name));
    fields.insert("job_type".to_owned(), json!(spec.job_type));
    fields.insert("queue".to_owned(), json!(spec.queue));
    fields.insert("owner_id".to_owned(), json!(spec.owner));
    fields.insert("priority".to_owned(), json!(spec.priority.get()));
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::job::{Priority, Settings};

    #[test]
    fn an_id_alone_stands_for_its_object() {
        let job = JobId::new(punctual_core::time::Timestamp::EPOCH, 7);
        let occurrence = job.occurrence(1);
        for (id, object) in [
            (job.to_string(), format!("job {job}")),
            (occurrence.to_string(), format!("dead letter {occurrence}")),
            (occurrence.attempt(2).to_string(), format!("execution {}", occurrence.attempt(2))),
            ("queue mail".to_owned(), "queue mail".to_owned()),
            ("login".to_owned(), "login".to_owned()),
        ] {
            assert_eq!(with_kind(id), object);
        }
    }

    #[test]
    fn an_update_tells_what_it_changes_but_not_the_payload() {
        let before = JobSpec {
            name: "nightly".to_owned(),
            job_type: "echo".to_owned(),
            queue: "default".to_owned(),
            owner: "ann".to_owned(),
            priority: Priority::default(),
            payload: r#"{"password":"x"}"#.to_owned(),
            settings: Settings::default(),
        };
        let mut after = JobSpec { name: "daily".to_owned(), payload: "{}".to_owned(), ..before.clone() };
        after.settings.max_retries = 7;
        let changes = changed_fields(&before, &after);
        let expected = json!({
            "name": { "before": "nightly", "after": "daily" },
            "max_retries": { "before": null, "after": 7 },
            "payload": "changed",
        });
        assert_eq!(changes, expected);
    }
}
