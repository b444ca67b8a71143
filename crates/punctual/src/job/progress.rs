//! How far the handler of an execution says it has come.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a handler has reported, as far as it has.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// 0 to 100.
    pub percent: Option<f64>,
    pub message: Option<String>,
}

impl Progress {
    /// The `progress` of an execution as it is on the wire: an object, or a bare percentage.
    pub fn of(execution: &impl Serialize) -> Option<Progress> {
        let execution = serde_json::to_value(execution).ok()?;
        let progress = match execution.get("progress")? {
            Value::Number(percent) => Progress { percent: percent.as_f64(), message: None },
            object @ Value::Object(_) => Progress::deserialize(object).ok()?,
            _ => return None,
        };
        (progress != Progress::default()).then_some(progress)
    }

    /// Whole percents that a bar can show.
    pub fn whole_percent(&self) -> Option<u64> {
        self.percent.map(|percent| percent.clamp(0.0, 100.0) as u64)
    }

    /// `40% copying`, as short as it can be said.
    pub fn told(&self) -> String {
        let percent = self.whole_percent().map(|percent| format!("{percent}%"));
        let parts: Vec<String> = percent.into_iter().chain(self.message.clone()).collect();
        parts.join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn progress_is_read_from_an_object_or_a_number() {
        let told = |progress| Progress::of(&json!({"progress": progress})).map(|progress| progress.told());
        assert_eq!(told(json!({"percent": 40.6, "message": "copying"})).as_deref(), Some("40% copying"));
        assert_eq!(told(json!({"percent": 250})).as_deref(), Some("100%"));
        assert_eq!(told(json!({"message": "copying"})).as_deref(), Some("copying"));
        assert_eq!(told(json!(7)).as_deref(), Some("7%"));
        for nothing in [json!(null), json!({}), json!("soon")] {
            assert_eq!(told(nothing), None);
        }
        assert_eq!(Progress::of(&json!({})), None);
    }
}
