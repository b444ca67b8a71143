//! The users that commands run as, in settings.

use crate::args;
use crate::value::{ListItem, Raw, Value};
use punctual_shim::sandbox::CommandUser;
use serde_json::Value as Json;

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunAs(pub CommandUser);

impl Value for RunAs {
    fn kind() -> String {
        "a user, such as jobs, 1001 or 1001:1001".to_owned()
    }

    fn placeholder() -> String {
        "USER|UID[:GID]".to_owned()
    }

    fn read(raw: &Raw) -> Result<Self, String> {
        let text = match raw {
            Raw::Number(number) => Some(number.as_str()),
            raw => raw.text(),
        };
        let user = text.and_then(|text| text.trim().parse().ok());
        user.map(RunAs).ok_or_else(|| format!("must be {}", Self::kind()))
    }

    fn written(&self) -> Json {
        self.0.to_string().into()
    }
}

/// The user for the commands of one queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueUser {
    pub queue: String,
    pub user: CommandUser,
}

impl ListItem for QueueUser {
    fn kind_of_list() -> String {
        "a list of QUEUE=USER, such as [\"reports=reports\", \"mail=1001:1001\"]".to_owned()
    }

    fn placeholder() -> String {
        "QUEUE=USER".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let (queue, user) =
            text.rsplit_once('=').ok_or("must be QUEUE=USER, such as reports=reports or mail=1001:1001")?;
        let user = user.trim().parse();
        Ok(QueueUser {
            queue: args::queue(queue.trim())?,
            user: user.map_err(|()| format!("must end with = and {}", RunAs::kind()))?,
        })
    }

    fn written(&self) -> String {
        format!("{}={}", self.queue, self.user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_name_or_numbers() {
        let user = |raw: Raw| RunAs::read(&raw).map(|RunAs(user)| user.to_string());
        assert_eq!(user(Raw::word("jobs")).as_deref(), Ok("jobs"));
        assert_eq!(user(Raw::Number("1001".to_owned())).as_deref(), Ok("1001"));
        assert_eq!(user(Raw::Text("1001:100".to_owned())).as_deref(), Ok("1001:100"));
        let problem = "must be a user, such as jobs, 1001 or 1001:1001".to_owned();
        assert_eq!(user(Raw::word("a b")), Err(problem));
    }

    #[test]
    fn a_queue_has_a_user() {
        let read = |text: &str| QueueUser::read(text).map(|entry| entry.written());
        assert_eq!(read("reports = jobs").as_deref(), Ok("reports=jobs"));
        assert_eq!(read("a=b=1:2").as_deref(), Ok("a=b=1:2"));
        for (wrong, said) in [
            ("reports", "must be QUEUE=USER"),
            ("=jobs", "must be the name of a queue"),
            ("reports=", "must end with = and a user"),
        ] {
            assert!(read(wrong).unwrap_err().starts_with(said), "{wrong}");
        }
    }
}
