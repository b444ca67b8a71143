//! Executors for the commands that the operator allows, and the sandbox that these run in.

use punctual_config::exit::{CliError, Exit};
use punctual_config::value::word;
use punctual_config::{Allowed, WorkerSettings};
use punctual_core::ports::{Executor, Host};
use punctual_shim::containment::{Contained, InForce, end_leftovers};
use punctual_shim::sandbox::{Accounts, SandboxChoice, Sandboxes, ScratchPlace, scratch};
use punctual_worker::process::{process_executor, shell_executor};
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// Refuses settings with which no commands can run, before anything is created.
pub fn check(settings: &WorkerSettings) -> Result<(), CliError> {
    if settings.allow.is_empty() {
        return Ok(());
    }
    refuse_root(settings)?;
    sandbox_choice(settings, vec![]).map(|_| ())
}

/// The executors of everything that is allowed. Logs how their commands are contained and isolated, and first
/// ends commands that dead workers have left on this machine. `hidden` are the files and directories of the
/// worker that commands must not read. They should exist: of the others, only those that commands could not create
/// are denied.
pub async fn executors(
    settings: &WorkerSettings,
    hidden: Vec<PathBuf>,
    host: &Host,
) -> Result<Vec<Arc<dyn Executor>>, CliError> {
    if settings.allow.is_empty() {
        return Ok(vec![]);
    }
    refuse_root(settings)?;
    let choice = sandbox_choice(settings, hidden)?;
    let sandboxes = Sandboxes::choose(choice).map_err(CliError::cannot_start)?;
    let mode = settings.containment;
    let in_force = InForce::choose(mode).map_err(|problem| {
        CliError::cannot_start(format!(
            "worker.containment is {}: {problem}; choose auto to use what this machine supports",
            word(&mode)
        ))
    })?;
    in_force.announce(&sandboxes);
    sandboxes.announce();
    end_leftovers(&*host.clock).await;
    scratch::remove_leftovers(sandboxes.base());
    let contained = Arc::new(Contained::new(&in_force, sandboxes));
    Ok(settings.allow.iter().map(|allowed| executor(*allowed, contained.clone(), host)).collect())
}

/// The sandbox that the settings ask for.
pub fn sandbox_choice(settings: &WorkerSettings, hidden: Vec<PathBuf>) -> Result<SandboxChoice, CliError> {
    let by_queue: Vec<_> =
        settings.run_as_by_queue.iter().map(|entry| (entry.queue.clone(), entry.user.clone())).collect();
    let usual = settings.run_as.as_ref().map(|run_as| &run_as.0);
    let accounts = Accounts::resolve(usual, &by_queue)
        .map_err(|message| CliError { exit: Exit::Misunderstood, message })?;
    let scratch = ScratchPlace::new(settings.scratch_dir.as_deref());
    // Commands have another working directory.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    let hidden = hidden.into_iter().map(absolute).collect::<BTreeSet<_>>().into_iter().collect();
    Ok(SandboxChoice { mode: settings.isolation, accounts, scratch, hidden })
}

/// Refuses commands as root, unless the operator insists.
fn refuse_root(settings: &WorkerSettings) -> Result<(), CliError> {
    if !geteuid().is_root() || settings.run_as.is_some() || settings.allow_root_commands.0 {
        return Ok(());
    }
    let allowed: Vec<String> = settings.allow.iter().map(word).collect();
    let message = format!(
        "this process runs as root, and {} jobs would do so, too: set worker.run_as (--worker-run-as) to the user that \
         commands should have, or start this process as another user, or accept the risk with allow_root_commands \
         (--allow-root-commands)",
        allowed.join(" and ")
    );
    Err(CliError { exit: Exit::Misunderstood, message })
}

fn executor(allowed: Allowed, contained: Arc<Contained>, host: &Host) -> Arc<dyn Executor> {
    let shim = punctual_shim::command(contained);
    match allowed {
        Allowed::Process => process_executor(shim, host),
        Allowed::Shell => shell_executor(shim, host),
    }
}
