//! What the operator allows jobs to do: run commands here, and reach beyond the public internet.

use crate::config::value::{Item, one_of, word, words};
use crate::shim;
use punctual_core::ports::Executor;
use punctual_worker::process::{process_executor, shell_executor};
use std::sync::Arc;

/// A way to run commands that the operator may allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Allowed {
    /// Programs with arguments
    Process,
    /// Scripts through `sh -c`
    Shell,
}

impl Allowed {
    pub fn executor(self) -> Arc<dyn Executor> {
        match self {
            Allowed::Process => process_executor(shim::command()),
            Allowed::Shell => shell_executor(shim::command()),
        }
    }
}

impl Item for Allowed {
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

/// A network or host that http jobs may reach, as it was written. A build without http jobs takes any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network(pub String);

impl Item for Network {
    fn kind_of_list() -> String {
        "a list of networks and hosts, such as [\"10.0.0.0/8\", \"internal.example:8080\"]".to_owned()
    }

    fn placeholder() -> String {
        "NETWORK|HOST".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        #[cfg(feature = "http")]
        text.parse::<punctual_worker::http::Allow>().map_err(|error| error.to_string())?;
        Ok(Network(text.to_owned()))
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}
