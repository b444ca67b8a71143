//! Checks the machine: its clock, its user, its limits, and whether it can run commands.

use super::finding::Finding;
use super::isolation;
use punctual_config::ServeSettings;
use punctual_shim::containment::{ContainmentMode, InForce, trial};
use punctual_shim::sandbox::Sandboxes;

use punctual_core::recurrence::{bundled_tzdb_version, install_zones};
use punctual_node::zones;
use punctual_worker::process::protocol::{CommandEnd, How};
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Descriptors that the server needs besides its connections: files of the store, pipes of commands.
const DESCRIPTORS_BESIDE: u64 = 256;
/// The timeout for the trial of a command.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Files that show an active time synchronisation service, and its name.
const CLOCK_KEEPERS: [(&str, &str); 5] = [
    ("/run/systemd/timesync/synchronized", "systemd-timesyncd"),
    ("/run/chrony/chronyd.pid", "chrony"),
    ("/run/chronyd.pid", "chrony"),
    ("/run/ntpd.pid", "ntpd"),
    ("/var/run/openntpd.sock", "openntpd"),
];

/// `hidden` are the files and directories of the server that commands must not read; `served` are the types of
/// commands that the worker of the running server accepts.
pub async fn check(settings: &ServeSettings, served: &[String], hidden: Vec<PathBuf>) -> Vec<Finding> {
    let mut findings = vec![
        clock_keeper(),
        time_zones(settings),
        isolation::user(&settings.worker, served),
        open_files(settings),
    ];
    findings.extend(commands(settings, served, hidden).await);
    findings
}

/// The data of `time.tzdata_dir` is checked as a server would use it.
fn time_zones(settings: &ServeSettings) -> Finding {
    let built_in = bundled_tzdb_version();
    let Some(directory) = &settings.time.tzdata_dir else {
        return Finding::good("time zones", format!("tzdata {built_in} is built in"));
    };
    let place = directory.display();
    let used = zones::read(directory).map_err(|error| error.to_string()).and_then(|files| {
        let version = files.version.clone();
        install_zones(files).map(|()| version).map_err(|error| error.to_string())
    });
    match used {
        Ok(version) => {
            Finding::good("time zones", format!("tzdata {version} of {place}; {built_in} is built in"))
        }
        Err(error) => Finding::failed(
            "time zones",
            format!("time.tzdata_dir {place} cannot be used: {error}"),
            "name a directory with compiled time zone data, such as /usr/share/zoneinfo, or remove the setting",
        ),
    }
}

fn clock_keeper() -> Finding {
    match CLOCK_KEEPERS.iter().find(|(trace, _)| Path::new(trace).exists()) {
        Some((_, keeper)) => Finding::good("clock", format!("synchronized by {keeper}")),
        None => {
            let found = "cannot tell whether NTP is active (a container uses the clock of its host)";
            Finding::skipped("clock", found)
        }
    }
}

/// The server raises its soft limit to the hard one, so only the hard limit counts.
fn open_files(settings: &ServeSettings) -> Finding {
    let needed = settings.api.connections_max.get() + DESCRIPTORS_BESIDE;
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < needed => {
            let found = format!(
                "limit {limit}, but {} connections need {needed}",
                settings.api.connections_max.get()
            );
            let fix = format!("raise the limit (LimitNOFILE={needed} in the unit), or lower connections_max");
            Finding::warning("open files", found, fix)
        }
        Some(limit) => Finding::good("open files", format!("limit {limit}, {needed} needed")),
        None => Finding::good("open files", "not limited"),
    }
}

async fn commands(settings: &ServeSettings, served: &[String], hidden: Vec<PathBuf>) -> Vec<Finding> {
    if settings.worker.allow.is_empty() {
        if !served.is_empty() {
            // Its flags may also choose their user and their isolation.
            return vec![Finding::skipped(
                "commands",
                format!(
                    "the running server allows {} jobs, with settings that doctor does not see: their isolation is \
                     not checked",
                    served.join(" and ")
                ),
            )];
        }
        let found = "the settings that doctor reads do not allow process and shell jobs; `serve --allow \
                     process,shell`, which doctor does not see, allows them";
        return vec![Finding::skipped("commands", found)];
    }
    let examined = settings.clone();
    let chosen = tokio::task::spawn_blocking(move || {
        let (sandboxes, mut findings) = isolation::check(&examined, hidden);
        let in_force = match InForce::choose(examined.worker.containment) {
            Ok(in_force) => {
                findings.push(contained(in_force.clone(), &sandboxes));
                in_force
            }
            Err(problem) => {
                findings.push(cannot_contain(problem));
                InForce::trial()
            }
        };
        (in_force, sandboxes, findings)
    });
    let (in_force, sandboxes, findings) = match chosen.await {
        Ok(chosen) => chosen,
        Err(error) => return vec![failed_trial(format!("it was interrupted: {error}"))],
    };
    let run = tokio::task::spawn_blocking(move || trial::run("true", &[], &in_force, &sandboxes));
    let outcome = match tokio::time::timeout(TRIAL_TIMEOUT, run).await {
        Ok(Ok(outcome)) => outcome.map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("`true` did not finish within {}s", TRIAL_TIMEOUT.as_secs())),
    };
    let trial = match outcome {
        Ok(CommandEnd { how: How::Exited { code: 0 }, .. }) => {
            Finding::good("commands", "allowed; a test run of `true` succeeded")
        }
        Ok(ended) => failed_trial(format!("{:?}", ended.how)),
        Err(error) => failed_trial(error),
    };
    [vec![trial], findings, vec![cgroups()]].concat()
}

fn contained(in_force: InForce, sandboxes: &Sandboxes) -> Finding {
    if let (InForce::ShimOnly { .. }, true) = (&in_force, sandboxes.has_namespaces()) {
        return Finding::good(
            "containment",
            "a PID namespace for each command; all its processes end with it",
        );
    }
    let InForce::ShimOnly { because } = in_force else {
        return Finding::good("containment", format!("{in_force}; all processes of a command end with it"));
    };
    let found = format!("{because}; a command that kills its shim can leave daemons behind");
    let fix = match InForce::choose(ContainmentMode::Auto) {
        Ok(InForce::Cgroup { .. }) => {
            "set worker.containment = \"auto\": cgroups can be used here".to_owned()
        }
        _ => match InForce::choose(ContainmentMode::Namespace) {
            Ok(_) => {
                "allow the server to create cgroups (Delegate=yes in the unit), or set worker.containment = \
                      \"namespace\" if no command needs sudo or signals processes outside"
                    .to_owned()
            }
            Err(_) => "allow the server to create cgroups (Delegate=yes in the unit)".to_owned(),
        },
    };
    Finding::warning("containment", found, fix)
}

fn cannot_contain(problem: String) -> Finding {
    let fix =
        "set worker.containment = \"auto\", or provide what is missing; the server does not start otherwise";
    Finding::failed("containment", problem, fix)
}

fn failed_trial(how: String) -> Finding {
    let fix = "check that processes can be started on this machine and that /proc is mounted";
    Finding::failed("commands", format!("allowed, but a test run of `true` failed: {how}"), fix)
}

fn cgroups() -> Finding {
    let missing: Vec<&str> = ["memory", "pids"]
        .into_iter()
        .filter(|controller| punctual_shim::cgroup_place(controller).is_none())
        .collect();
    if missing.is_empty() {
        return Finding::good("cgroups", "limits of commands apply to their whole process trees");
    }
    let found = format!(
        "cannot create a cgroup for {}: limits apply to single processes only",
        missing.join(" and ")
    );
    Finding::warning(
        "cgroups",
        found,
        "needed only if jobs rely on limits for all their processes; see the guide on running commands",
    )
}
