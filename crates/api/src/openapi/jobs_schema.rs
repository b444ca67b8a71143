//! The JSON Schema of files of jobs, for editors: docs/reference/jobs.schema.json, which `punctual schema` prints.

use super::types;
use serde_json::{Map, Value, json};

const OF_DOCUMENT: &str = "#/components/schemas/";
const OF_FILE: &str = "#/$defs/";

/// A file with `jobs` and what notifies about them, a list of jobs, or one job.
fn schema() -> Value {
    let mut named = types::all().named;
    // In a file, jobs refer to others by name.
    named["SubmitJob"]["properties"]["depends_on"]["items"] = json!({"type": "string", "description": "The name of a job of the same owner that runs once, or its id."});
    let mut used = Map::new();
    for name in ["SubmitJob", "SetChannel", "SetRule", "AddSilence"] {
        collect(name, &mut named, &mut used);
    }
    let file = json!({
        "type": "object", "additionalProperties": false,
        "anyOf": [{"required": ["jobs"]}, {"required": ["channels"]}, {"required": ["rules"]}, {"required": ["silences"]}],
        "properties": {
            "managed_by": {
                "type": "string", "minLength": 1, "maxLength": 180,
                "description": "The label of all jobs of the file, as the tag managed_by:NAME. `apply --prune` deletes \
                                jobs with the label that are no longer in the file.",
            },
            "jobs": {
                "type": "array", "items": {"$ref": "#/$defs/SubmitJob"},
                "description": "The jobs. Owner and name identify a job.",
            },
            "channels": {
                "type": "array", "items": {"$ref": "#/$defs/SetChannel"},
                "description": "Channels of notifications. Secret values are references such as {$secret: NAME}.",
            },
            "rules": {
                "type": "array", "items": {"$ref": "#/$defs/SetRule"},
                "description": "Rules that send events of jobs to channels.",
            },
            "silences": {
                "type": "array", "items": {"$ref": "#/$defs/AddSilence"},
                "description": "Silences, each with ends_at.",
            },
            "$schema": {"type": "string", "description": "This schema."},
        },
    });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Jobs of Punctual",
        "description": "A file for `punctual apply`.",
        "anyOf": [
            file,
            {"type": "array", "items": {"$ref": "#/$defs/SubmitJob"}},
            {"$ref": "#/$defs/SubmitJob"},
        ],
        "$defs": used,
    })
}

/// Moves the schema with this name, and all that it refers to.
fn collect(name: &str, named: &mut Map<String, Value>, used: &mut Map<String, Value>) {
    let Some(mut schema) = named.remove(name) else { return };
    let mut references = Vec::new();
    rewrite(&mut schema, &mut references);
    used.insert(name.to_owned(), schema);
    for reference in references {
        collect(&reference, named, used);
    }
}

/// Refers to the definitions of the file, and drops what is only for the API's own pages.
fn rewrite(value: &mut Value, references: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.remove("x-order");
            if let Some(Value::String(reference)) = members.get_mut("$ref") {
                let name = reference.trim_start_matches(OF_DOCUMENT).to_owned();
                *reference = format!("{OF_FILE}{name}");
                references.push(name);
            }
            members.values_mut().for_each(|member| rewrite(member, references));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, references)),
        _ => {}
    }
}

#[test]
fn the_committed_schema_of_files_follows_from_the_wire_types() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/jobs.schema.json");
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == text,
        "docs/reference/jobs.schema.json differs from the wire types; regenerate it with `UPDATE_DOCS=1 \
         cargo nextest run -p punctual-api openapi`"
    );
    assert!(!text.contains(OF_DOCUMENT), "a reference leads out of the file");
}
