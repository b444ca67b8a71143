//! Executors for the commands that the operator allows.

use punctual_config::Allowed;
use punctual_config::exit::CliError;
use punctual_config::value::word;
use punctual_core::ports::{Executor, Host};
use punctual_shim::containment::{Contained, ContainmentMode, InForce, end_leftovers};
use punctual_worker::process::{process_executor, shell_executor};
use std::sync::Arc;

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
    Ok(allowed.iter().map(|allowed| executor(*allowed, contained.clone(), host)).collect())
}

fn executor(allowed: Allowed, contained: Arc<Contained>, host: &Host) -> Arc<dyn Executor> {
    let shim = punctual_shim::command(contained);
    match allowed {
        Allowed::Process => process_executor(shim, host),
        Allowed::Shell => shell_executor(shim, host),
    }
}
