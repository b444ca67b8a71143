//! What the operator allows jobs to do: run commands here, and connect to targets beyond the public internet.

use crate::config::value::{Item, one_of, word, words};
use crate::containment::{Contained, ContainmentMode, InForce, end_leftovers};
use crate::exit::CliError;
use crate::shim;
use punctual_core::ports::{Executor, Host};
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
    fn executor(self, contained: Arc<Contained>, host: &Host) -> Arc<dyn Executor> {
        match self {
            Allowed::Process => process_executor(shim::command(contained), host),
            Allowed::Shell => shell_executor(shim::command(contained), host),
        }
    }
}

/// The executors of everything that is allowed. Logs how their commands are contained, and first ends
/// commands that dead workers have left on this machine.
pub async fn executors(
    allowed: &[Allowed],
    mode: ContainmentMode,
    host: &Host,
) -> Result<Vec<Arc<dyn Executor>>, CliError> {
    if allowed.is_empty() {
        return Ok(vec![]);
    }
    let in_force = InForce::choose(mode).map_err(|problem| {
        CliError::cannot_start(format!(
            "worker.containment is {}: {problem}; choose auto to use what this machine supports",
            word(&mode)
        ))
    })?;
    in_force.announce();
    end_leftovers(&*host.clock).await;
    let contained = Arc::new(Contained::new(&in_force));
    Ok(allowed.iter().map(|allowed| allowed.executor(contained.clone(), host)).collect())
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

/// A network or host that http jobs may connect to, as written. A build without http jobs accepts any value.
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
        text.parse::<punctual_worker::http::Allow>().map_err(|error| error.to_string())?;
        Ok(Network(text.to_owned()))
    }

    fn written(&self) -> String {
        self.0.clone()
    }
}
