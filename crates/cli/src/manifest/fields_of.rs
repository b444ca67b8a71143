//! The fields of channels, rules and silences, of files and of the server, in one form: to compare and to write.

use punctual_client::{AddSilence, ChannelBody, RuleBody, SelectorBody, SetChannel, SetRule, SilenceBody};
use serde_json::{Map, Value, json};

/// In place of a value that the server does not return.
pub const HIDDEN: &str = "(hidden)";

/// The fields of a channel of a file, without its name, to compare and to write.
pub fn channel(channel: &SetChannel) -> Map<String, Value> {
    let mut fields = members(channel);
    fields.remove("name");
    fields.retain(|name, value| name != "include_logs" || *value != Value::Bool(false));
    fields
}

/// The same of a channel of the server. Values that it does not return are hidden.
pub fn stored_channel(channel: &ChannelBody) -> Map<String, Value> {
    let mut fields = members(channel);
    let is_state = |name: &str| {
        let state = ["name", "hidden", "references", "disabled", "configured", "created_at", "updated_at"];
        state.contains(&name)
    };
    fields.retain(|name, value| !is_state(name) && (name != "include_logs" || *value != Value::Bool(false)));
    for field in &channel.hidden {
        fields.insert(field.clone(), HIDDEN.into());
    }
    for (field, secret) in &channel.references {
        fields.insert(field.clone(), json!({ "$secret": secret }));
    }
    fields
}

/// The fields of a rule of a file, without its name and without defaults.
pub fn rule(rule: &SetRule) -> Map<String, Value> {
    without_defaults(members(rule))
}

/// The same of a rule of the server.
pub fn stored_rule(rule: &RuleBody) -> Map<String, Value> {
    without_defaults(members(rule))
}

fn without_defaults(mut fields: Map<String, Value>) -> Map<String, Value> {
    let left_out = ["name", "created_at", "updated_at"];
    let defaults =
        [("failures", json!(1)), ("successes", json!(1)), ("disabled", json!(false)), ("match", json!({}))];
    fields.retain(|name, value| {
        !left_out.contains(&name.as_str())
            && !defaults.iter().any(|(field, default)| field == name && default == value)
    });
    fields
}

/// The fields of a silence of the server, as a file has them.
pub fn stored_silence(silence: &SilenceBody) -> Map<String, Value> {
    let SilenceBody { jobs, starts_at, ends_at, reason, .. } = silence;
    let body = AddSilence {
        jobs: Some(jobs.clone()).filter(|jobs| *jobs != SelectorBody::default()),
        starts_at: Some(*starts_at),
        ends_at: Some(*ends_at),
        duration: None,
        reason: reason.clone(),
    };
    members(&body)
}

fn members(value: &impl serde::Serialize) -> Map<String, Value> {
    let Ok(Value::Object(mut members)) = serde_json::to_value(value) else { return Map::new() };
    members.retain(|_, value| !value.is_null());
    if let Some(Value::Object(mute)) = members.get_mut("mute") {
        mute.retain(|name, value| name != "then" || *value != "send");
    }
    members
}
