//! What a token or a user may do, as arguments and in tables.

use punctual_client::MeBody;
use punctual_config::args;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::shortened;
use punctual_core::access::{Permission, Role};
use serde_json::{Map, Value, json};

/// Characters of a scope in a table. The other formats contain all of it.
const SCOPE_CHARS_MAX: usize = 60;

/// The owner and the scope.
#[derive(clap::Args)]
pub struct ScopeArgs {
    /// The owner of its jobs, such as a team; without --all-owners, it sees no others
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,
    /// See and control the jobs of all owners, also with an owner of its own
    #[arg(long)]
    pub all_owners: bool,
    /// Limit it to this queue, or to queues like mail-*; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub queue: Vec<String>,
    /// Limit it to this job type, or to types like send-*; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    pub job_type: Vec<String>,
    /// Add a permission to those of the role, such as payload:read; can be given more than once
    #[arg(long, value_name = "PERMISSION", value_parser = permission)]
    pub permission: Vec<Permission>,
}

impl ScopeArgs {
    /// The fields that the flags set, for a patch.
    pub fn changes(&self) -> [(&'static str, Option<Value>); 5] {
        let list = |values: &[String]| (!values.is_empty()).then(|| json!(values));
        [
            ("owner_id", self.owner.as_ref().map(|owner| json!(owner))),
            ("all_owners", self.all_owners().map(Value::from)),
            ("queues", list(&self.queue)),
            ("job_types", list(&self.job_type)),
            ("permissions", (!self.permission.is_empty()).then(|| json!(self.permission))),
        ]
    }

    /// `None` where the server decides.
    pub fn all_owners(&self) -> Option<bool> {
        self.all_owners.then_some(true)
    }
}

/// A patch that sets these fields and resets the others.
pub fn patch(
    fields: impl IntoIterator<Item = (&'static str, Option<Value>)>,
    unset: &[&str],
) -> Result<Map<String, Value>, CliError> {
    let given = fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?)));
    let mut patch: Map<String, Value> = given.collect();
    for field in unset {
        if patch.insert((*field).to_owned(), Value::Null).is_some_and(|value| !value.is_null()) {
            return Err(misunderstood(format!("--unset {field} conflicts with another flag that sets it")));
        }
    }
    if patch.is_empty() {
        let message = "nothing to change: pass at least one field, such as --role viewer or --unset owner";
        return Err(misunderstood(message.to_owned()));
    }
    Ok(patch)
}

pub fn misunderstood(message: String) -> CliError {
    CliError { exit: Exit::Misunderstood, message }
}

/// A field by its own name or by that of its flag.
pub fn field_of(fields: &[(&'static str, &'static str)], text: &str) -> Result<&'static str, String> {
    let found = fields.iter().find(|(flag, field)| text == *flag || text == *field);
    let flags: Vec<&str> = fields.iter().map(|(flag, _)| *flag).collect();
    found.map(|(_, field)| *field).ok_or_else(|| format!("must be one of {}", flags.join(", ")))
}

pub fn role(text: &str) -> Result<Role, String> {
    args::small_word(text)
}

fn permission(text: &str) -> Result<Permission, String> {
    args::small_word(text)
}

/// The owner column of a table. Queues and job types may limit the scope further, and have a column of their own.
pub fn owner(owner: Option<&String>, all_owners: bool) -> String {
    match owner {
        Some(owner) if all_owners => format!("{owner} (scope: all owners)"),
        Some(owner) => owner.clone(),
        None => "-".to_owned(),
    }
}

/// The jobs that a caller reaches, as a text for people.
pub fn scope(me: &MeBody) -> String {
    let jobs = match me.all_owners {
        true => "the jobs of all owners".to_owned(),
        false => format!("the jobs of {}", me.owner_id),
    };
    let limited = |what: &str, names: &[String]| match names {
        [] => String::new(),
        names => format!(" {what} {}", names.join(", ")),
    };
    jobs + &limited("in the queues", &me.queues) + &limited("of the types", &me.job_types)
}

/// The scope and further permissions, for a table; `-` if there are none.
pub fn limits(queues: &[String], job_types: &[String], permissions: &[String]) -> String {
    let parts = [("queues", queues), ("types", job_types), ("also", permissions)];
    let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(what, names)| format!("{what}: {}", names.join(", "))).collect();
    if parts.is_empty() { "-".to_owned() } else { shortened(&parts.join("; "), SCOPE_CHARS_MAX) }
}

/// A list for the details of one object; `None` if it is empty.
pub fn joined(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_words_are_answered_with_the_known_ones() {
        assert_eq!(role("Viewer"), Ok(Role::Viewer));
        assert_eq!(role("root"), Err("must be viewer, submitter, operator, admin or worker".to_owned()));
        assert!(permission("all").unwrap_err().starts_with("must be jobs:read, payload:read, "));
    }

    #[test]
    fn a_scope_names_all_its_limits() {
        let me = |all_owners, queues: &[&str], job_types: &[&str]| {
            let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            scope(&MeBody {
                token_id: "t1".to_owned(),
                name: String::new(),
                role: "operator".to_owned(),
                user_id: None,
                owner_id: "foo".to_owned(),
                all_owners,
                queues: texts(queues),
                job_types: texts(job_types),
                permissions: vec![],
            })
        };
        assert_eq!(me(true, &[], &[]), "the jobs of all owners");
        assert_eq!(me(true, &["mail-*", "sms"], &[]), "the jobs of all owners in the queues mail-*, sms");
        assert_eq!(me(false, &["mail"], &["send"]), "the jobs of foo in the queues mail of the types send");
        let foo = "foo".to_owned();
        assert_eq!(owner(Some(&foo), true), "foo (scope: all owners)");
        assert_eq!(owner(Some(&foo), false), "foo");
    }

    #[test]
    fn limits_are_named_by_what_they_limit() {
        let [queues, types] = [vec!["mail-*".to_owned()], vec!["send".to_owned(), "bounce".to_owned()]];
        assert_eq!(limits(&queues, &types, &[]), "queues: mail-*; types: send, bounce");
        assert_eq!(limits(&[], &[], &["payload:read".to_owned()]), "also: payload:read");
        assert_eq!(limits(&[], &[], &[]), "-");
    }
}
