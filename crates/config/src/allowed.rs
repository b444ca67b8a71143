//! What the operator allows jobs to do: run commands here, and connect to targets beyond the public internet.

use crate::value::{ListItem, one_of, word, words};

/// A way to run commands that the operator may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Allowed {
    /// Programs with arguments
    Process,
    /// Scripts through `sh -c`
    Shell,
}

impl ListItem for Allowed {
    fn kind_of_list() -> String {
        format!("a list of {}", words::<Allowed>(" and "))
    }

    fn placeholder() -> String {
        words::<Allowed>("|")
    }

    fn read(text: &str) -> Result<Self, String> {
        one_of(text)
    }

    fn written(&self) -> String {
        word(self)
    }
}

/// A network or host that http jobs may connect to, as written. A build without http jobs accepts any value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowedNetwork(pub String);

impl ListItem for AllowedNetwork {
    fn kind_of_list() -> String {
        "a list of networks and hosts, such as [\"10.0.0.0/8\", \"internal.example:8080\"]".to_owned()
    }

    fn placeholder() -> String {
        "NETWORK|HOST".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse::<punctual_worker::http::Allow>().map_err(|error| error.to_string())?;
        Ok(AllowedNetwork(text.to_owned()))
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}
