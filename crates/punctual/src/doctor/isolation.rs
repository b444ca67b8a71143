//! Checks what commands can reach: their user, their sandbox, and the files of the server.

use super::finding::Finding;
use punctual_config::{ServeSettings, WorkerSettings};
use punctual_node::serve::sandbox_choice;
use punctual_shim::sandbox::{IsolationMode, Sandboxes};
use rustix::process::geteuid;
use std::path::PathBuf;

const CHECK: &str = "isolation";

/// The user of this process, and of the commands if the server runs as the same user. `served` are the types of
/// commands that the worker of the running server accepts.
pub fn user(settings: &WorkerSettings, served: &[String]) -> Finding {
    let user = geteuid();
    if !user.is_root() {
        return Finding::good("user", format!("user {}, not root", user.as_raw()));
    }
    match &settings.run_as {
        Some(run_as) => Finding::good("user", format!("root; commands run as {} (worker.run_as)", run_as.0)),
        None if settings.allow.is_empty() && !served.is_empty() => Finding::skipped(
            "user",
            "running as root; the user of commands is not checked, because the running server has settings that doctor \
             does not see",
        ),
        None if settings.allow.is_empty() => Finding::warning(
            "user",
            "running as root, without process and shell jobs; with them, the server does not start unless worker.run_as is set",
            "run the server as a dedicated user",
        ),
        None if settings.allow_root_commands.0 => Finding::warning(
            "user",
            "running as root, and the commands of jobs do so, too (allow_root_commands)",
            "run the server as a dedicated user, or set worker.run_as to the user that commands should have",
        ),
        None => Finding::failed(
            "user",
            "running as root, and process or shell jobs are allowed without a user of their own: the server does not start",
            "set worker.run_as to the user that commands should have, or run the server as a dedicated user",
        ),
    }
}

/// The sandboxes of commands, and what is to be said about them.
pub fn check(settings: &ServeSettings, hidden: Vec<PathBuf>) -> (Sandboxes, Vec<Finding>) {
    let mode = settings.worker.isolation;
    let chosen = sandbox_choice(&settings.worker, hidden).map_err(|error| error.message);
    let sandboxes = match chosen.and_then(Sandboxes::choose) {
        Ok(sandboxes) => sandboxes,
        Err(problem) => {
            let fix = "fix it, or set worker.isolation = \"auto\"; the server does not start otherwise";
            return (Sandboxes::plain(), vec![Finding::failed(CHECK, problem, fix)]);
        }
    };
    let mut findings = vec![match (mode, sandboxes.missing().as_slice()) {
        (_, []) => Finding::good(CHECK, format!("commands run {sandboxes}")),
        (IsolationMode::None, _) => {
            let found = "worker.isolation is none: commands can read the environment and the files of the server, if \
                         they run as its user";
            Finding::warning(CHECK, found, "set worker.isolation = \"auto\"")
        }
        (_, missing) => {
            let found = format!("commands run {sandboxes}; {}", missing.join("; "));
            Finding::warning(CHECK, found, how_to_get(&sandboxes))
        }
    }];
    let exposed: Vec<String> = sandboxes.exposed().iter().map(|path| path.display().to_string()).collect();
    if !exposed.is_empty() {
        findings.push(Finding::warning(
            "server files",
            format!("commands can read {}", exposed.join(", ")),
            "let commands have namespaces; or start the server as root and set worker.run_as; or move them to directories that only root can write to, \
             such as /var/lib/punctual, where Landlock can deny them",
        ));
    }
    let changeable: Vec<String> =
        sandboxes.changeable().iter().map(|path| path.display().to_string()).collect();
    if !changeable.is_empty() {
        findings.push(Finding::warning(
            "permissions",
            format!(
                "commands cannot read {}, but they can change its permissions, so that other users of this machine can \
                 read it: Landlock does not cover that",
                changeable.join(", ")
            ),
            NAMESPACES_FIX,
        ));
    }
    (sandboxes, findings)
}

/// How commands of an ordinary user get namespaces.
const NAMESPACES_FIX: &str = "allow user namespaces for everyone (user.max_user_namespaces, kernel.unprivileged_userns_clone \
                              and kernel.apparmor_restrict_unprivileged_userns in sysctl); or start the worker as root with \
                              worker.run_as set to this user";

fn how_to_get(sandboxes: &Sandboxes) -> String {
    let mut steps = Vec::new();
    if !sandboxes.has_namespaces() {
        steps.push(match geteuid().is_root() {
            true => "give the server CAP_SYS_ADMIN, so that it can create namespaces",
            false => NAMESPACES_FIX,
        });
    }
    if sandboxes.has_namespaces() && !sandboxes.protects_kernel() {
        steps.push("set worker.run_as, so that commands do not run as root");
    }
    if !sandboxes.has_landlock() {
        steps.push("use Linux 5.19 or later with Landlock enabled (lsm=landlock,…)");
    }
    steps.join("; ")
}
