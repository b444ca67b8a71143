//! Checks the server over HTTP as any client would: whether it answers, is ours, and gets its work done.

use super::files::ServerPresence;
use super::finding::Finding;
use super::missed;
use punctual_cli::pause::told;
use punctual_client::{
    Client, ClientError, ClockMode, DeadLetterFilter, Distrust, JobFilter, MeBody, NodeBody, PauseBody,
    QueueBody, SecretBody, StatsBody, WorkerSessionBody, WorkerState, host,
};
use punctual_config::connect::{ConnectionPath, ServerConnect};
use punctual_config::{exit, output};
use punctual_core::causes::innermost;
use punctual_core::job::JobStatus;
use punctual_core::limits;
use punctual_core::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
/// A noticeable difference between two clocks.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(1);
/// Work that has waited longer for a worker is reported. Whether schedules are fired is a different question,
/// which the check of the database answers.
const WAITED_LONG: Duration = Duration::from_secs(60);
/// Job types that run commands, which a server must allow.
const COMMAND_TYPES: [&str; 2] = ["process", "shell"];
/// Names listed in one finding.
const NAMES_MAX: usize = 5;

pub async fn check(connection: &ServerConnect, here: ServerPresence) -> Vec<Finding> {
    let token = connection.token.clone().unwrap_or_default();
    let client = match connection.open(token) {
        Ok(client) => client.without_retries(),
        Err(error) => {
            let fix = match connection.way {
                ConnectionPath::Network => "pass the server's address with --server host:port",
                ConnectionPath::Socket => "fix the data directory, or choose another with --data-dir",
            };
            return vec![Finding::failed("server", error.to_string(), fix)];
        }
    };
    let root = match client.anonymous("/").timeout(TIMEOUT).send().await {
        Ok(answer) => answer.json::<Value>().await.unwrap_or_default(),
        Err(error) => {
            return vec![match Distrust::of(&error) {
                Some(distrust) => distrusted(&client, &error, distrust),
                None => unreachable(connection, &client, here),
            }];
        }
    };
    if root["name"] != "punctual" {
        let found = format!("the server at {} is not Punctual", client.server());
        return vec![Finding::failed("server", found, "pass the right address with --server")];
    }
    let mut findings = vec![ready(&client, connection.token.as_deref()).await, version(&root)];
    if connection.token.is_none() {
        let fix = "pass it with --token-file or PUNCTUAL_TOKEN; the one in a data directory is for its own server only";
        findings.push(Finding::warning("token", "no token found", fix));
        return findings;
    }
    match client.stats().await {
        Ok(_) => {
            findings.push(role(&client).await);
            findings.push(time(&client).await);
            findings.push(cluster(&client).await);
            findings.extend(secrets(&client).await);
            findings.extend(payloads(&client).await);
            findings.extend(job_types(&client).await);
            findings.extend(work(&client).await);
        }
        // The token is good, but not for the whole server.
        Err(ClientError::Refused(problem)) if problem.status == 403 => {
            findings.push(role(&client).await);
            findings.push(time(&client).await);
            let found = "not checked: the token may not see the whole server";
            findings.push(Finding::skipped("cluster", found));
        }
        Err(error) => findings.push(refused(&error)),
    }
    findings
}

/// The types of commands that the worker in the server's process accepts; none if that cannot be found out.
pub async fn served_commands(connection: &ServerConnect) -> Vec<String> {
    let Some(client) = connection.token.clone().and_then(|token| connection.open(token).ok()) else {
        return vec![];
    };
    let client = client.without_retries();
    let workers = tokio::time::timeout(TIMEOUT, client.workers()).await.ok().and_then(Result::ok);
    let embedded = workers.into_iter().flat_map(|page| page.items).filter(|worker| worker.embedded);
    let types: BTreeSet<String> = embedded.flat_map(|worker| worker.job_types).collect();
    types.into_iter().filter(|job_type| COMMAND_TYPES.contains(&job_type.as_str())).collect()
}

fn unreachable(connection: &ServerConnect, client: &Client, here: ServerPresence) -> Finding {
    let found = format!("no server answers at {}", client.server());
    match here {
        ServerPresence::Running => {
            let fix = "a process has the data directory open: see its log, or stop it and start the server";
            Finding::failed("server", found, fix)
        }
        _ if connection.is_named => {
            Finding::failed("server", found, "start it, or choose another with --server")
        }
        ServerPresence::Stopped => {
            Finding::warning("server", "not running", "start it with `punctual serve`")
        }
        ServerPresence::Nothing => {
            Finding::skipped("server", "no server has run on this machine with this data directory")
        }
    }
}

fn distrusted(client: &Client, error: &reqwest::Error, distrust: Distrust) -> Finding {
    let found = format!("no trusted connection to {}: {}", client.server(), innermost(error));
    Finding::failed("server", found, exit::reach_it(Some(distrust)))
}

/// Clients with a token get the full reason.
async fn ready(client: &Client, token: Option<&str>) -> Finding {
    let server = client.server();
    let request = client.anonymous("/readyz").timeout(TIMEOUT);
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request,
    };
    match request.send().await {
        Ok(answer) if answer.status().is_success() => Finding::good("server", format!("ready at {server}")),
        Ok(answer) => {
            let body: Value = answer.json().await.unwrap_or_default();
            let why = body["detail"].as_str().or(body["status"].as_str()).unwrap_or("it gave no reason");
            Finding::failed(
                "server",
                format!("{server} is not ready: {why}"),
                "see its log; run `punctual doctor` on its machine to check its disk and its database",
            )
        }
        Err(error) => Finding::failed("server", format!("{server} does not answer: {error}"), "see its log"),
    }
}

fn version(root: &Value) -> Finding {
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), root["version"].as_str().unwrap_or("unknown"));
    if ours == theirs {
        return Finding::good("version", format!("{ours}, for both the server and this command"));
    }
    let found = format!("the server is {theirs}, this command is {ours}");
    Finding::warning("version", found, "use the same version for both")
}

fn refused(error: &ClientError) -> Finding {
    if let ClientError::Refused(problem) = error
        && problem.status >= 500
    {
        let fix = "look at its log; if its files are damaged, stop it and run `punctual check`";
        return Finding::failed("server", format!("it answers with an error: {error}"), fix);
    }
    let fix = "pass the right one with --token-file or --data-dir, or create a new one with serve --new-admin-token";
    Finding::failed("token", format!("the server rejects it: {error}"), fix)
}

async fn role(client: &Client) -> Finding {
    match client.me().await {
        Ok(MeBody { token_id, role, .. }) => {
            Finding::good("token", format!("{token_id} is accepted; its role is {role}"))
        }
        Err(error) => Finding::warning(
            "token",
            format!("accepted, but its role cannot be read: {error}"),
            "see the server's log",
        ),
    }
}

/// Compares the server's time with ours, corrected by half the round trip.
async fn time(client: &Client) -> Finding {
    let (before, began) = (host::wall_time(), std::time::Instant::now());
    let clock = match client.clock().await {
        Ok(clock) => clock,
        Err(error) => return Finding::skipped("time", format!("cannot read the server's time: {error}")),
    };
    let (after, took) = (host::wall_time(), began.elapsed());
    if clock.mode == ClockMode::Manual {
        let found = format!("the server's clock is manual, at {}", clock.now);
        return Finding::warning("time", found, "nothing falls due until `punctual clock` moves it");
    }
    if distance(after, before.plus(took)) > CLOCK_DIFFERENCE {
        let found = "this machine's clock jumped during the check";
        return Finding::failed("time", found, "synchronize it with NTP, and do not set it by other means");
    }
    let difference = distance(clock.now, before.plus(took / 2));
    let found = format!("the server's clock and this machine's differ by {}", output::span(difference));
    if difference <= CLOCK_DIFFERENCE {
        return Finding::good("time", found);
    }
    Finding::warning("time", found, "synchronize both with NTP; jobs fall due by the server's clock")
}

/// The processes of the cluster: whether there is a leader and all segments have an owner, and the warnings
/// that processes report.
async fn cluster(client: &Client) -> Finding {
    let nodes = match client.nodes().await {
        Ok(nodes) => nodes.items,
        Err(error) => return Finding::skipped("cluster", format!("cannot read its processes: {error}")),
    };
    told_of(&nodes)
}

fn told_of(nodes: &[NodeBody]) -> Finding {
    let warnings = nodes
        .iter()
        .flat_map(|node| node.warnings.iter().map(move |warning| format!("{}: {warning}", node.node_id)));
    let mut wrong: Vec<String> = warnings.collect();
    if nodes.iter().any(|node| node.others_unknown) {
        // They may well be running: schedulers continue without coordination.
        let fix = "check that the service in coordination.url is running, and see the server's log";
        return Finding::warning("cluster", wrong.join("; "), fix);
    }
    if !nodes.iter().any(|node| node.roles.iter().any(|role| role == "scheduler")) {
        wrong.push("no scheduler is running: nothing fires".to_owned());
        return Finding::warning("cluster", wrong.join("; "), "start one: `punctual scheduler`");
    } else if !nodes.iter().any(|node| node.leader) {
        wrong.push("there is no leader at the moment".to_owned());
    }
    if wrong.is_empty() {
        let leader = nodes.iter().find(|node| node.leader).map_or("none", |node| node.node_id.as_str());
        let found = format!("processes: {}, no warnings; leader: {leader}", nodes.len());
        return Finding::good("cluster", found);
    }
    let fix = "`punctual nodes` shows them all";
    Finding::warning("cluster", wrong.join("; "), fix)
}

/// Whether the server has the keys of all secrets; nothing if there are none, or the token may not see them.
async fn secrets(client: &Client) -> Option<Finding> {
    match client.secrets().await {
        Ok(secrets) => told_of_keys(&secrets.items),
        Err(ClientError::Refused(problem)) if problem.status == 403 => None,
        Err(error) => Some(Finding::skipped("secrets", format!("cannot read them: {error}"))),
    }
}

fn told_of_keys(secrets: &[SecretBody]) -> Option<Finding> {
    if secrets.is_empty() {
        return None;
    }
    let unreadable: Vec<&SecretBody> = secrets.iter().filter(|secret| !secret.readable).collect();
    if unreadable.is_empty() {
        return Some(Finding::good("secrets", format!("{}, and the server has their keys", secrets.len())));
    }
    let keys: BTreeSet<&str> = unreadable.iter().map(|secret| secret.key_id.as_str()).collect();
    let keys: Vec<&str> = keys.into_iter().collect();
    let names: Vec<&str> = unreadable.iter().take(NAMES_MAX).map(|secret| secret.name.as_str()).collect();
    let more = if unreadable.len() > NAMES_MAX { " and others" } else { "" };
    let found = format!(
        "the server lacks the key {} of {}{more}: jobs that use them fail",
        keys.join(", "),
        names.join(", ")
    );
    let fix = "put the key back: in secrets.key of the data directory for an embedded store, otherwise in \
               secrets.key_file or PUNCTUAL_SECRETS_KEY of all servers";
    Some(Finding::failed("secrets", found, fix))
}

/// Whether the server has the keys of the latest payloads; nothing if it has, or the token may not see them.
async fn payloads(client: &Client) -> Option<Finding> {
    let jobs = client.jobs(&JobFilter::default()).await.ok()?.items;
    told_of_payloads(jobs.iter().filter_map(|job| job.payload.as_deref().map(RawValue::get)))
}

fn told_of_payloads<'a>(payloads: impl Iterator<Item = &'a str>) -> Option<Finding> {
    /// What the server shows in place of a payload that it cannot decrypt.
    #[derive(Deserialize)]
    struct UnreadablePayload {
        unreadable: String,
    }
    let reason = |payload: &str| serde_json::from_str::<UnreadablePayload>(payload).ok();
    let reasons = payloads.filter_map(reason).map(|payload| payload.unreadable);
    let reasons: Vec<String> = reasons.filter(|reason| reason.contains("cannot be decrypted")).collect();
    let first = reasons.first()?;
    let found =
        format!("{first}; {} of the latest jobs are affected, and their executions fail", reasons.len());
    let fix = "put the key back: in secrets.key of the data directory for an embedded store, otherwise in \
               secrets.key_file or PUNCTUAL_SECRETS_KEY of all servers";
    Some(Finding::failed("payloads", found, fix))
}

/// Whether the schemas of job types are enforced; nothing if there are none, or the token may not see them.
async fn job_types(client: &Client) -> Option<Finding> {
    let all = client.job_types().await.ok()?.items;
    let refused: Vec<(&str, &str)> =
        all.iter().filter_map(|one| Some((one.name.as_str(), one.not_enforced.as_deref()?))).collect();
    let Some((first, reason)) = refused.first() else {
        let found = format!("all schemas are enforced: {}", all.len());
        return (!all.is_empty()).then(|| Finding::good("job types", found));
    };
    let names: Vec<&str> = refused.iter().map(|(name, _)| *name).collect();
    let found = format!(
        "payloads of {} are not checked, because the server does not accept their stored schemas; that of {first}: \
         {reason}",
        listed(&names)
    );
    let fix = "set a schema that it accepts with `punctual type set NAME --schema FILE`";
    Some(Finding::warning("job types", found, fix))
}

fn distance(a: Timestamp, b: Timestamp) -> Duration {
    Duration::from_micros(a.as_micros().abs_diff(b.as_micros()))
}

/// Whether work gets done.
async fn work(client: &Client) -> Vec<Finding> {
    let look = async {
        let stats = client.stats().await?;
        let filter = JobFilter {
            status: Some(JobStatus::Active),
            limit: Some(limits::PAGE_ITEMS_MAX),
            ..JobFilter::default()
        };
        let jobs = client.jobs(&filter).await?;
        let scheduled: LanePairs = jobs.items.into_iter().map(|job| (job.job_type, job.queue)).collect();
        let workers = client.workers().await?.items;
        // With several processes on one store, any of them may lack a worker.
        let has_own_worker = client.nodes().await?.items.iter().any(|node| node.embedded_store);
        let held: Vec<QueueBody> =
            client.queues().await?.items.into_iter().filter(|queue| queue.paused).collect();
        let paused: Vec<String> = held.iter().map(|queue| queue.queue.clone()).collect();
        let letters =
            client.dead_letters(&DeadLetterFilter::default(), Some(limits::PAGE_ITEMS_MAX), None).await?;
        let dead = match letters.next_cursor {
            Some(_) => format!("more than {}", letters.items.len()),
            None => letters.items.len().to_string(),
        };
        Ok::<_, ClientError>(vec![
            handlers(&stats, scheduled, &workers, has_own_worker),
            cluster_pause(stats.pause.as_ref()),
            paused_queues(&held),
            dead_letters(&dead),
            missed::check(client, stats.now).await?,
            queued_work(&stats, &paused),
        ])
    };
    look.await.unwrap_or_else(|error| {
        vec![Finding::failed("work", format!("cannot be checked: {error}"), "see the server's log")]
    })
}

/// Job types, each with a queue that contains it.
type LanePairs = BTreeSet<(String, String)>;

fn handlers(
    stats: &StatsBody,
    scheduled: LanePairs,
    workers: &[WorkerSessionBody],
    has_own_worker: bool,
) -> Finding {
    let waiting = stats.queues.iter().filter(|lane| lane.queued > 0 || lane.waiting > 0);
    let waiting = waiting.map(|lane| (lane.job_type.clone(), lane.queue.clone()));
    let wanted: LanePairs = waiting.chain(scheduled).collect();
    // A worker that is paused, drains or refuses work gets no new work.
    let is_refusing = |worker: &WorkerSessionBody| {
        worker.condition.as_ref().is_some_and(|condition| !condition.refuses.is_empty())
    };
    let open: Vec<&WorkerSessionBody> =
        workers.iter().filter(|worker| worker.state == WorkerState::Open && !is_refusing(worker)).collect();
    let runs =
        |worker: &WorkerSessionBody, job_type: &str| worker.job_types.iter().any(|own| own == job_type);
    let serves = |worker: &WorkerSessionBody, queue: &String| {
        worker.queues.is_empty() || worker.queues.contains(queue)
    };
    let mut orphaned: Vec<String> = wanted
        .iter()
        .filter(|(job_type, queue)| {
            !open.iter().any(|worker| runs(worker, job_type) && serves(worker, queue))
        })
        .map(|(job_type, queue)| match open.iter().any(|worker| runs(worker, job_type)) {
            true => format!("{job_type} in queue {queue}"),
            false => job_type.clone(),
        })
        .collect();
    orphaned.dedup();
    // Such a server has its own worker from its start on, unless it was drained.
    let is_drained = has_own_worker
        && !workers.iter().any(|worker| worker.embedded && worker.state != WorkerState::Draining);
    if orphaned.is_empty() && is_drained && open.is_empty() {
        let found = "no worker runs jobs: the server's own worker is not connected, and there is no other";
        return Finding::warning(
            "handlers",
            found,
            "restart the server; `punctual workers drain` stops a worker until then",
        );
    }
    if orphaned.is_empty() {
        let found = format!("every type of job has a live worker in its queue; workers: {}", open.len());
        return Finding::good("handlers", found);
    }
    let names: Vec<&str> = orphaned.iter().map(String::as_str).collect();
    let fix = if is_drained {
        "restart the server: its own worker is not connected, as after `punctual workers drain`"
    } else {
        "start a worker for them, resume a paused one, check in `punctual workers list` why one refuses work, or allow \
         them with serve --allow process,shell"
    };
    Finding::warning("handlers", format!("no live worker runs jobs of type {}", listed(&names)), fix)
}

fn cluster_pause(pause: Option<&PauseBody>) -> Finding {
    match pause {
        None => Finding::good("pause", "the cluster is not paused"),
        Some(pause) => Finding::warning("pause", told(pause), "`punctual unpause` resumes it"),
    }
}

fn paused_queues(held: &[QueueBody]) -> Finding {
    let unreadable = held.iter().find_map(|queue| Some((&queue.queue, queue.unreadable.as_ref()?)));
    if let Some((queue, reason)) = unreadable {
        let found =
            format!("the settings of the queue {queue} cannot be read, so nothing in it starts: {reason}");
        let fix =
            "set them again with `punctual queue set NAME`; `punctual check` lists every unreadable row";
        return Finding::failed("queues", found, fix);
    }
    if held.is_empty() {
        return Finding::good("queues", "none is paused");
    }
    let fix = "`punctual queue resume NAME` resumes a queue";
    let names: Vec<&str> = held.iter().map(|queue| queue.queue.as_str()).collect();
    Finding::warning("queues", format!("paused: {}", listed(&names)), fix)
}

fn dead_letters(count: &str) -> Finding {
    if count == "0" {
        return Finding::good("dead letters", "none");
    }
    let fix = "`punctual dlq list` shows them, `punctual dlq redrive --all` runs them again";
    Finding::warning("dead letters", format!("runs that failed permanently: {count}"), fix)
}

/// Work in paused queues does not wait for a worker; paused queues have their own finding.
fn queued_work(stats: &StatsBody, paused: &[String]) -> Finding {
    let lanes = stats.queues.iter().filter(|lane| stats.pause.is_none() && !paused.contains(&lane.queue));
    let late = lanes.filter_map(|lane| {
        let waited = stats.now.since(lane.oldest_queued_at?);
        (waited > WAITED_LONG)
            .then(|| format!("{} in {} for {}", lane.job_type, lane.queue, output::span(waited)))
    });
    let late: Vec<String> = late.collect();
    if late.is_empty() {
        let found = format!("nothing has waited longer than {} for a worker", output::span(WAITED_LONG));
        return Finding::good("queued work", found);
    }
    let names: Vec<&str> = late.iter().map(String::as_str).collect();
    let fix = "add slots or workers; `punctual job explain NAME` shows what a job waits for";
    Finding::warning("queued work", format!("waiting: {}", listed(&names)), fix)
}

pub fn listed(names: &[&str]) -> String {
    match names.split_at_checked(NAMES_MAX) {
        Some((first, rest)) if !rest.is_empty() => format!("{} and {} more", first.join(", "), rest.len()),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Severity;
    use clap::Parser;
    use punctual_config::Surroundings;
    use punctual_config::connect::ConnectArgs;

    #[derive(Parser)]
    struct ConnectArgsOnly {
        #[command(flatten)]
        connect: ConnectArgs,
    }

    #[test]
    fn what_waits_in_a_paused_queue_waits_for_no_worker() {
        let text = r#"{"now": "2026-11-16T08:00:00Z", "workers": [], "counters": {}, "queues": [
            {"queue": "mail", "job_type": "send", "waiting": 0, "queued": 1, "running": 0,
             "oldest_queued_at": "2026-11-16T07:00:00Z"}]}"#;
        let stats: StatsBody = serde_json::from_str(text).unwrap();
        assert!(queued_work(&stats, &[]).found.contains("send in mail for 1h"));
        assert_eq!(queued_work(&stats, &["mail".to_owned()]).level, Severity::Good);
    }

    #[test]
    fn a_secret_whose_key_is_missing_is_a_failure() {
        let secret = |name: &str, readable: bool| SecretBody {
            name: name.to_owned(),
            version: 1,
            owners: vec![],
            queues: vec![],
            job_types: vec![],
            key_id: format!("key-{readable}"),
            readable,
            created_at: Timestamp::EPOCH,
            set_at: Timestamp::EPOCH,
            set_by: String::new(),
        };
        assert_eq!(told_of_keys(&[]), None);
        assert_eq!(told_of_keys(&[secret("a", true)]).unwrap().level, Severity::Good);
        let missing = told_of_keys(&[secret("a", true), secret("b", false), secret("c", false)]).unwrap();
        assert_eq!(missing.level, Severity::Failed);
        assert_eq!(missing.found, "the server lacks the key key-false of b, c: jobs that use them fail");
    }

    #[test]
    fn a_payload_whose_key_is_missing_is_a_failure() {
        assert_eq!(told_of_payloads(["null", "{}", r#"{"unreadable": "by Ann"}"#].into_iter()), None);
        let shown = r#"{"unreadable": "the payload of job 7 cannot be decrypted: no key"}"#;
        let missing = told_of_payloads(["{}", shown, shown].into_iter()).unwrap();
        assert_eq!(missing.level, Severity::Failed);
        assert!(missing.found.contains("job 7") && missing.found.contains("2 of the latest"), "{missing:?}");
    }

    #[test]
    fn a_cluster_without_scheduler_or_with_a_warning_is_worth_a_look() {
        let node = |roles: &[&str], leader: bool, warnings: &[&str]| NodeBody {
            node_id: "a-1".to_owned(),
            version: String::new(),
            started_at: Timestamp::EPOCH,
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
            address: String::new(),
            tzdb_version: String::new(),
            clock_offset_ms: 0,
            store: "postgres".to_owned(),
            schema_version: 1,
            embedded_store: false,
            host: String::new(),
            pid: 1,
            leader,
            segments: 0,
            answering: true,
            others_unknown: false,
            coordination: "store".to_owned(),
            ready_queue: String::new(),
            ready_queue_connected: false,
            warnings: warnings.iter().map(|warning| (*warning).to_owned()).collect(),
        };
        let lonely = NodeBody { others_unknown: true, ..node(&["api"], false, &["no answer"]) };
        let alone = told_of(&[lonely]);
        assert!(alone.level == Severity::Warning && !alone.found.contains("no scheduler"), "{alone:?}");
        let api = node(&["api"], false, &[]);
        assert_eq!(told_of(&[api.clone(), node(&["scheduler"], true, &[])]).level, Severity::Good);
        for nodes in [
            vec![api.clone()],
            vec![api.clone(), node(&["scheduler"], false, &[])],
            vec![api, node(&["scheduler"], true, &["its clock is wrong"])],
        ] {
            assert_eq!(told_of(&nodes).level, Severity::Warning, "{nodes:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_never_ran_is_no_failure_and_one_that_should_run_is() {
        let directory = tempfile::tempdir().unwrap();
        let told = ConnectArgsOnly::parse_from(["doctor", "--data-dir", directory.path().to_str().unwrap()]);
        let around = Surroundings { variables: Default::default(), file: None };
        let mut connection = told.connect.connection_within(&around).unwrap();
        // Nothing listens on this port, whatever runs on the machine.
        "127.0.0.1:1".clone_into(&mut connection.server);
        let mut levels = Vec::new();
        for here in [ServerPresence::Nothing, ServerPresence::Stopped, ServerPresence::Running] {
            levels.extend(check(&connection, here).await.iter().map(|finding| finding.level));
        }
        assert_eq!(levels, [Severity::Skipped, Severity::Warning, Severity::Failed]);
        connection.is_named = true;
        assert_eq!(check(&connection, ServerPresence::Nothing).await[0].level, Severity::Failed);
    }
}
