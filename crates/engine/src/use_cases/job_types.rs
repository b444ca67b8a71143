//! Job types with a schema for their payloads. They are shared by all owners.

use super::{Forbidden, UseCase, UseCaseError, UseCases};
use punctual_core::job::InvalidField;
use punctual_core::limits;
use punctual_core::payload_schema::{PayloadSchema, StoredJobType, job_type_problem};
use punctual_core::payloads::is_built_in;
use punctual_core::ports::{
    DirectoryChange, DirectoryOutcome, DocumentChange, DocumentKind, Page, StoreError, StoredDocument,
};
use punctual_core::time::{Monotonic, Timestamp};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How often a change is computed again because the job type was changed concurrently.
const CHANGE_TRIES_MAX: usize = 20;

/// A job type with its schema.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTypeView {
    pub name: String,
    pub version: u64,
    /// As registered.
    pub schema: String,
    pub description: Option<String>,
    pub set_at: Timestamp,
    pub set_by: String,
    pub by_worker: bool,
    /// Why payloads are not checked with it: this release cannot read it.
    pub problem: Option<InvalidField>,
}

/// The schemas that this node has read, by job type. They are compiled on use.
#[derive(Default)]
pub(crate) struct HeldJobTypes {
    texts: Mutex<Option<(Monotonic, JobTypeSchemas)>>,
    compiled: Mutex<CompiledSchemas>,
}

/// Schemas as registered.
type JobTypeSchemas = Arc<BTreeMap<String, Arc<str>>>;

/// Schemas of job types that were submitted lately, with their texts.
#[derive(Default)]
struct CompiledSchemas {
    by_type: BTreeMap<String, (Arc<str>, CompiledSchema)>,
    bytes: usize,
}

/// A schema, or why this release cannot read it.
type CompiledSchema = Result<Arc<PayloadSchema>, InvalidField>;

impl HeldJobTypes {
    fn known(&self, now: Monotonic) -> Option<JobTypeSchemas> {
        let held = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, schemas) = held.as_ref().filter(|(at, _)| now.since(*at) < limits::JOB_TYPES_KEPT_FOR)?;
        Some(schemas.clone())
    }

    fn keep(&self, held: Option<(Monotonic, JobTypeSchemas)>) {
        *self.texts.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }

    fn compiled(&self, job_type: &str, text: &Arc<str>) -> CompiledSchema {
        let lock = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, schema)) = lock().by_type.get(job_type).filter(|(known, _)| known == text) {
            return schema.clone();
        }
        // A later release may know more keywords, and an earlier one larger patterns. This one does not check what it
        // cannot read.
        let schema = PayloadSchema::parse(text).map(Arc::new).inspect_err(|problem| {
            let (field, fix) = (&problem.field, &problem.fix);
            tracing::warn!(job_type, field, fix, "payloads are not checked: the schema cannot be read");
        });
        lock().add(job_type, text.clone(), schema.clone());
        schema
    }
}

impl CompiledSchemas {
    fn add(&mut self, job_type: &str, text: Arc<str>, schema: CompiledSchema) {
        let bytes = |text: &str, schema: &CompiledSchema| {
            text.len() + schema.as_ref().map_or(0, |schema| schema.bytes())
        };
        if let Some((text, schema)) = self.by_type.remove(job_type) {
            self.bytes -= bytes(&text, &schema);
        }
        self.bytes += bytes(&text, &schema);
        if self.bytes > limits::SCHEMAS_HELD_BYTES_MAX {
            self.by_type.clear();
            self.bytes = bytes(&text, &schema);
        }
        self.by_type.insert(job_type.to_owned(), (text, schema));
    }
}

impl UseCases {
    /// The job types with a schema, by name, as far as they are in the caller's scope.
    pub async fn job_types(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Page<JobTypeView, String>, UseCaseError> {
        self.permit(UseCase::ReadJobTypes)?;
        let page = self.store().documents(DocumentKind::JobType, after, limit).await?;
        let visible = page.items.iter().filter(|document| self.sees_job_type(&document.name));
        Ok(Page {
            items: visible.map(|document| self.job_type_view(document)).collect::<Result<_, _>>()?,
            next: page.next,
        })
    }

    pub async fn job_type(&self, name: &str) -> Result<JobTypeView, UseCaseError> {
        self.permit(UseCase::ReadJobTypes)?;
        let document =
            self.stored_job_type(name).await?.filter(|document| self.sees_job_type(&document.name));
        let document = document.ok_or_else(|| UseCaseError::NoSuchJobType(name.to_owned()))?;
        Ok(self.job_type_view(&document)?)
    }

    /// Registers the schema of a job type. It applies to jobs that are submitted or changed from now on. Returns
    /// whether the job type had none.
    pub async fn set_job_type(
        &self,
        name: &str,
        schema: &str,
        description: Option<String>,
    ) -> Result<(JobTypeView, bool), UseCaseError> {
        let object = format!("job type {name}");
        self.permit_on(UseCase::SetJobType, &object)?;
        check(name, schema).map_err(|problem| UseCaseError::Invalid(vec![problem]))?;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_job_type(name).await?;
            let body = StoredJobType {
                schema: schema.to_owned(),
                description: description.clone(),
                set_at: self.now(),
                set_by: self.caller.name.clone(),
                by_worker: false,
            };
            let (document, change) = match &stored {
                Some(stored) => {
                    let document = stored.changed(&body);
                    (document.clone(), DocumentChange::Replace(document))
                }
                None => {
                    self.check_room_for_job_type().await?;
                    let document = StoredDocument::new(DocumentKind::JobType, name, &body);
                    (document.clone(), DocumentChange::Add(document))
                }
            };
            let entry =
                self.audited_with(UseCase::SetJobType, &object, &json!({ "version": document.version }));
            let change = DirectoryChange::Documents(vec![change]);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.job_types.keep(None);
                return Ok((self.job_type_view(&document)?, stored.is_none()));
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Registers the schemas that a worker brings along. A schema that a person has set stays; of workers, the one that
    /// starts last decides.
    pub async fn register_job_types(&self, schemas: &BTreeMap<String, String>) -> Result<(), UseCaseError> {
        self.permit(UseCase::Work)?;
        if !schemas.is_empty() && !self.caller.grant.scope.queues.is_empty() {
            let why = "a schema applies to jobs in all queues, and the token is limited to some: leave out schemas, and \
                       set them with `punctual type set`";
            return Err(Forbidden(why.to_owned()).into());
        }
        for (name, schema) in schemas {
            if !self.sees_job_type(name) {
                return Err(Forbidden(format!("the job type {name} is not in its scope")).into());
            }
            check(name, schema).map_err(|problem| {
                let field = match problem.field.strip_prefix("schema") {
                    Some(rest) => format!("schemas.{name}{rest}"),
                    None => format!("schemas.{name}"),
                };
                UseCaseError::invalid(&field, problem.fix)
            })?;
        }
        for (name, schema) in schemas {
            self.register_job_type(name, schema).await?;
        }
        Ok(())
    }

    async fn register_job_type(&self, name: &str, schema: &str) -> Result<(), UseCaseError> {
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_job_type(name).await?;
            let known = stored.as_ref().map(StoredDocument::read::<StoredJobType>).transpose()?;
            if known.as_ref().is_some_and(|known| !known.by_worker || known.schema == schema) {
                return Ok(());
            }
            let body = StoredJobType {
                schema: schema.to_owned(),
                description: None,
                set_at: self.now(),
                set_by: self.caller.name.clone(),
                by_worker: true,
            };
            let change = match &stored {
                Some(stored) => DocumentChange::Replace(stored.changed(&body)),
                None => {
                    self.check_room_for_job_type().await?;
                    DocumentChange::Add(StoredDocument::new(DocumentKind::JobType, name, &body))
                }
            };
            let version = stored.map_or(1, |stored| stored.version + 1);
            let entry = self.audited_with(
                UseCase::Work,
                format_args!("job type {name}"),
                &json!({ "version": version }),
            );
            let change = DirectoryChange::Documents(vec![change]);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.job_types.keep(None);
                return Ok(());
            }
        }
        Err(UseCaseError::Busy)
    }

    /// Removes the schema: payloads of this type are no longer checked.
    pub async fn remove_job_type(&self, name: &str) -> Result<(), UseCaseError> {
        let object = format!("job type {name}");
        self.permit_on(UseCase::RemoveJobType, &object)?;
        for _ in 0..CHANGE_TRIES_MAX {
            let stored = self.stored_job_type(name).await?;
            let stored = stored.ok_or_else(|| UseCaseError::NoSuchJobType(name.to_owned()))?;
            let entry =
                self.audited_with(UseCase::RemoveJobType, &object, &json!({ "version": stored.version }));
            let change = DocumentChange::Remove {
                kind: DocumentKind::JobType,
                name: stored.name,
                version: stored.version,
            };
            let change = DirectoryChange::Documents(vec![change]);
            if self.store().change_directory(change, entry).await? == DirectoryOutcome::Done {
                self.engine.context.job_types.keep(None);
                return Ok(());
            }
        }
        Err(UseCaseError::Busy)
    }

    /// What in the payload of a job does not match the schema of its type.
    pub(super) async fn schema_problem(
        &self,
        job_type: &str,
        payload: &str,
    ) -> Result<Option<InvalidField>, StoreError> {
        let schemas = self.job_type_schemas().await?;
        let schema = schemas
            .get(job_type)
            .and_then(|text| self.engine.context.job_types.compiled(job_type, text).ok());
        let problem = schema.and_then(|schema| schema.problem(payload));
        Ok(problem.map(|problem| {
            let fix = format!("{}, as the schema of the job type {job_type} says", problem.fix);
            InvalidField::new(problem.field, fix)
        }))
    }

    /// All schemas. They are few and change rarely, so a node reads them at most every two seconds.
    async fn job_type_schemas(&self) -> Result<JobTypeSchemas, StoreError> {
        let context = &self.engine.context;
        let now = context.host.clock.monotonic();
        if let Some(known) = context.job_types.known(now) {
            return Ok(known);
        }
        let (mut schemas, mut after) = (BTreeMap::new(), None);
        loop {
            let page = self
                .store()
                .documents(DocumentKind::JobType, after.as_deref(), limits::PAGE_ITEMS_MAX)
                .await?;
            for document in page.items {
                let body: StoredJobType = document.read()?;
                schemas.insert(document.name, Arc::from(body.schema));
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let schemas = Arc::new(schemas);
        context.job_types.keep(Some((now, schemas.clone())));
        Ok(schemas)
    }

    fn sees_job_type(&self, name: &str) -> bool {
        self.caller.grant.scope.has_job_type(name)
    }

    fn job_type_view(&self, document: &StoredDocument) -> Result<JobTypeView, StoreError> {
        let StoredJobType { schema, description, set_at, set_by, by_worker } = document.read()?;
        let name = document.name.clone();
        let compiled = self.engine.context.job_types.compiled(&name, &Arc::from(schema.as_str()));
        let version = document.version;
        let problem = compiled.err();
        Ok(JobTypeView { name, version, schema, description, set_at, set_by, by_worker, problem })
    }

    /// One with an invalid name does not exist. Databases refuse some texts instead of finding nothing.
    async fn stored_job_type(&self, name: &str) -> Result<Option<StoredDocument>, StoreError> {
        match job_type_problem(name) {
            Some(_) => Ok(None),
            None => self.store().document(DocumentKind::JobType, name).await,
        }
    }

    async fn check_room_for_job_type(&self) -> Result<(), UseCaseError> {
        let (mut count, mut after) = (0, None);
        loop {
            let page = self
                .store()
                .documents(DocumentKind::JobType, after.as_deref(), limits::PAGE_ITEMS_MAX)
                .await?;
            count += page.items.len();
            after = page.next;
            if count >= limits::JOB_TYPES_MAX {
                return Err(UseCaseError::DirectoryFull { what: "job types", max: limits::JOB_TYPES_MAX });
            }
            if after.is_none() {
                return Ok(());
            }
        }
    }
}

fn check(name: &str, schema: &str) -> Result<(), InvalidField> {
    if let Some(problem) = job_type_problem(name) {
        return Err(InvalidField::new("name", problem));
    }
    if is_built_in(name) {
        return Err(InvalidField::new(
            "name",
            "is a built-in job type, whose payload Punctual checks itself",
        ));
    }
    PayloadSchema::parse(schema).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiled_schemas_take_a_bounded_amount_of_memory() {
        let held = HeldJobTypes::default();
        let parts = vec![r"{}"; 10_000].join(",");
        let large: Arc<str> = format!(r#"{{"anyOf": [{parts}]}}"#).into();
        for job_type in 0..100 {
            assert!(held.compiled(&format!("type-{job_type}"), &large).is_ok());
        }
        let compiled = held.compiled.lock().unwrap();
        assert!(compiled.bytes <= limits::SCHEMAS_HELD_BYTES_MAX, "{}", compiled.bytes);
        assert!((1..100).contains(&compiled.by_type.len()), "{}", compiled.by_type.len());
        assert!(compiled.by_type.contains_key("type-99"));
    }

    #[test]
    fn a_schema_is_compiled_again_when_it_changes() {
        let held = HeldJobTypes::default();
        let text = |text: &str| Arc::<str>::from(text);
        let first = held.compiled("bill", &text("{}")).unwrap();
        assert!(Arc::ptr_eq(&first, &held.compiled("bill", &text("{}")).unwrap()));
        let second = held.compiled("bill", &text("false")).unwrap();
        assert!(second.problem("1").is_some() && first.problem("1").is_none());
        // One that this release cannot read is not checked.
        assert!(held.compiled("bill", &text(r#"{"if": {}}"#)).is_err());
        assert_eq!(held.compiled.lock().unwrap().by_type.len(), 1);
    }
}
