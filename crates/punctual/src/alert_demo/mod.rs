//! `punctual demo --alerts`: alerts from end to end on a private server, with a receiver that verifies them. It tells what happens
//! while it happens: a job that succeeds, one that fails and one that does not run, the messages about them, and their recovery.

mod receiver;
mod server;

pub use server::{SUBCOMMAND, run as run_server};

use anyhow::{Context, bail};
use punctual_cli::demo::AlertDemo;
use punctual_client::{Client, EventFilter, ExecutionBody, ExecutionStatus, SetChannel, StreamedEvent};
use punctual_config::exit::Exit;
use punctual_config::output::{self, OutputArgs};
use punctual_core::ids::JobId;
use receiver::{ReceivedMessage, WebhookReceiver};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use server::PrivateServer;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

const CHANNEL: &str = "receiver";
const QUEUE: &str = "demo-night";
const TICK: &str = "demo-tick";
const REPORT: &str = "demo-report";
const BACKUP: &str = "demo-backup";
/// Successes of the tick that the demo prints.
const TICKS_TOLD: usize = 3;
/// Without an end, it runs until it is interrupted.
const FOREVER: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

/// What the receiver got.
#[derive(Debug, Default, Serialize)]
struct AlertDemoReport {
    messages: Vec<AlertDemoMessage>,
}

#[derive(Debug, Serialize)]
struct AlertDemoMessage {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    explanation: String,
    /// Whether its signature is right.
    verified: bool,
}

pub async fn run(args: AlertDemo) -> anyhow::Result<Exit> {
    let mut signals = DemoSignals::listen()?;
    let server = tokio::select! {
        biased;
        () = signals.next() => return Ok(Exit::Done),
        server = PrivateServer::start() => server?,
    };
    let mut receiver = WebhookReceiver::start().await?;
    let mut story = DemoStory::new(args.output, &server, &receiver)?;
    let ends_at = Instant::now() + args.length.unwrap_or(FOREVER);
    let shown = tokio::select! {
        biased;
        () = signals.next() => Ok(()),
        () = sleep_until(ends_at) => Ok(()),
        shown = story.show(&mut receiver) => shown,
    };
    let report = story.report;
    let stopped = server.stop().await;
    shown?;
    stopped?;
    args.output.print(&report, summary)?;
    let is_verified = report.messages.iter().all(|message| message.verified);
    Ok(if is_verified { Exit::Done } else { Exit::Failed })
}

struct DemoSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl DemoSignals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (interrupt, terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        Ok(DemoSignals { interrupt, terminate })
    }

    async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// What has happened so far, and what follows.
struct DemoStory {
    client: Client,
    output: OutputArgs,
    began_at: Instant,
    jobs: BTreeMap<JobId, &'static str>,
    ticks: usize,
    is_waiting_told: bool,
    /// Jobs that have recovered.
    recovered: BTreeSet<String>,
    report: AlertDemoReport,
}

impl DemoStory {
    fn new(output: OutputArgs, server: &PrivateServer, receiver: &WebhookReceiver) -> anyhow::Result<Self> {
        let story = DemoStory {
            client: server.client.clone(),
            output,
            began_at: Instant::now(),
            jobs: BTreeMap::new(),
            ticks: 0,
            is_waiting_told: false,
            recovered: BTreeSet::new(),
            report: AlertDemoReport::default(),
        };
        let PrivateServer { url, token_file, directory, .. } = server;
        let intro = [
            (
                "Server",
                Some(format!(
                    "{url}, private; its data in {} is removed at the end",
                    directory.path().display()
                )),
            ),
            ("Dashboard", Some(format!("{url}/ui/ (log in with the token in {})", token_file.display()))),
            ("Receiver", Some(format!("{} verifies the signature of each message", receiver.url))),
        ];
        story.print(&output::details(intro))?;
        story.print("")?;
        Ok(story)
    }

    async fn show(&mut self, receiver: &mut WebhookReceiver) -> anyhow::Result<()> {
        let mut events = self.client.events(&EventFilter::default(), None).await?;
        self.begin(receiver).await?;
        loop {
            tokio::select! {
                biased;
                Some(message) = receiver.messages.recv() => self.received(message).await?,
                event = events.next() => match event? {
                    Some(StreamedEvent::Execution(execution)) => self.execution(&execution)?,
                    Some(StreamedEvent::Gap) => {}
                    Some(StreamedEvent::Stop) | None => bail!("the server has ended"),
                },
            }
        }
    }

    /// Sets the channel, and submits the jobs.
    async fn begin(&mut self, receiver: &WebhookReceiver) -> anyhow::Result<()> {
        let channel = json!({"type": "webhook", "url": receiver.url, "secret": receiver.secret});
        let channel: SetChannel = serde_json::from_value(channel)?;
        self.client.set_channel(CHANNEL, &channel).await?;
        self.tell("set the channel \"receiver\": a webhook with a key that signs its messages")?;
        self.client.pause_queue(QUEUE).await?;
        let tick = json!({"job_type": "noop", "interval": "2s"});
        self.submit(TICK, tick, "runs every 2 seconds").await?;
        let report = json!({
            "job_type": "sleep", "payload": {"ms": 60_000}, "timeout_secs": 1, "max_retries": 0, "interval": "3s",
            "notify": {"on_failure": CHANNEL, "on_recovery": CHANNEL},
        });
        self.submit(REPORT, report, "runs every 3 seconds, and takes longer than its time limit of 1 second")
            .await?;
        let backup = json!({
            "job_type": "noop", "queue": QUEUE, "interval": "2s", "misfire_grace": "1s", "overlap_policy": "ALLOW",
            "notify": {"on_missed": CHANNEL, "on_recovery": CHANNEL},
        });
        self.submit(BACKUP, backup, "should run every 2 seconds, but somebody has paused its queue").await
    }

    async fn submit(&mut self, name: &'static str, mut job: Value, what: &str) -> anyhow::Result<()> {
        job["name"] = name.into();
        let job_id = self.client.submit_json(&RawValue::from_string(job.to_string())?).await?.job_id;
        self.jobs.insert(job_id, name);
        self.tell(&format!("submitted {name}: {what}"))
    }

    fn execution(&mut self, execution: &ExecutionBody) -> anyhow::Result<()> {
        let Some(name) = self.jobs.get(&execution.job_id).copied() else { return Ok(()) };
        match execution.status {
            ExecutionStatus::Queued if name == BACKUP && !self.is_waiting_told => {
                self.is_waiting_told = true;
                self.tell(&format!("{name} was fired, and waits"))
            }
            ExecutionStatus::Succeeded => self.succeeded(name, execution),
            ExecutionStatus::TimedOut | ExecutionStatus::Failed | ExecutionStatus::Lost => {
                let error = execution.error_message.as_deref().unwrap_or("it exceeded its time limit");
                self.tell(&format!("{name} was fired and failed: {error}"))
            }
            _ => Ok(()),
        }
    }

    fn succeeded(&mut self, name: &str, execution: &ExecutionBody) -> anyhow::Result<()> {
        if name == TICK {
            self.ticks += 1;
        }
        let is_known = if name == TICK { self.ticks > TICKS_TOLD } else { self.recovered.contains(name) };
        if is_known {
            return Ok(());
        }
        let started_at = execution.started_at.unwrap_or(execution.scheduled_time);
        let late = started_at.since(execution.scheduled_time).as_millis();
        let more = if name == TICK && self.ticks == TICKS_TOLD { "; and so on" } else { "" };
        self.tell(&format!("{name} was fired and succeeded, {late} ms after its scheduled time{more}"))
    }

    /// Tells a message, and solves the problem that it is about.
    async fn received(&mut self, message: ReceivedMessage) -> anyhow::Result<()> {
        let ReceivedMessage { is_verified, body } = message;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, data) = (text(&body["type"]), &body["data"]);
        let (name, explanation) = (text(&data["name"]), text(&data["explanation"]));
        let signature = if is_verified { "signature verified" } else { "WRONG SIGNATURE" };
        self.tell(&format!("ALERT RECEIVED, {signature}: {kind} {name}: {explanation}"))?;
        match (kind.as_str(), name.as_str()) {
            ("job.failed", REPORT) => {
                let job = self.jobs.iter().find(|(_, name)| **name == REPORT).map(|(id, _)| *id);
                let working = json!({"job_type": "noop", "payload": null});
                self.client.update(job.context("the job was not submitted")?, &working, None).await?;
                self.tell(&format!("repaired {name}: from now on it is quick"))?;
            }
            ("job.missed", BACKUP) => {
                self.client.resume_queue(QUEUE).await?;
                self.tell(&format!("resumed the queue of {name}"))?;
            }
            ("job.recovered", _) => {
                self.recovered.insert(name.clone());
                self.tell(&format!("{name} has recovered"))?;
                if self.recovered.len() == 2 {
                    self.tell("both problems were reported, and are solved; look around in the dashboard, Ctrl-C ends the demo")?;
                }
            }
            _ => {}
        }
        self.report.messages.push(AlertDemoMessage { kind, name, explanation, verified: is_verified });
        Ok(())
    }

    fn tell(&self, text: &str) -> anyhow::Result<()> {
        self.print(&format!("{:5.1} s  {text}", self.began_at.elapsed().as_secs_f64()))
    }

    /// Lines for people go to standard output, unless a program reads a report there.
    fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.output.is_table() {
            return output::print_text(text);
        }
        output::tell(text);
        Ok(())
    }
}

fn summary(report: &AlertDemoReport) -> String {
    let verified = report.messages.iter().filter(|message| message.verified).count();
    let count = report.messages.len();
    format!(
        "\nThe receiver got {count} messages, {verified} of them with the right signature. The server has ended, and its data \
         is removed."
    )
}
