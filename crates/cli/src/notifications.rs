//! `punctual channel`, `punctual notify` and `punctual silence`: who is notified when jobs fail or do not run.

use crate::grant::joined;
use crate::list_args::ListArgs;
use anyhow::Context;
use clap::Subcommand;
use punctual_client::{
    AddSilence, AlertBody, ChannelBody, Client, ClientError, DeliveryBody, EscalationBody, MuteBody, Page,
    RuleBody, SelectorBody, SetChannel, SetRule, SilenceBody, Span,
};
use punctual_config::args;
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::{OutputArgs, details, print_text, table, time};
use punctual_core::notify::{ChannelSecret, ChannelType, MailTls, MutedThen, RuleEvent};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum ChannelCommand {
    /// Create or replace a channel
    Set(Box<SetArgs>),
    /// List channels, without their secrets
    List(ListArgs),
    /// Show a channel, without its secrets
    Show(ShowArgs),
    /// Remove channels; messages that wait for them are given up
    Remove(ChannelRemoveArgs),
}

#[derive(Subcommand)]
pub enum NotifyCommand {
    /// Send a test message over a channel, and show what the receiver answered
    Test(ShowArgs),
    /// List problems that last: jobs that fail or do not run, and conditions of rules
    Alerts(ListArgs),
    /// Acknowledge an alert, so that it is not repeated
    Ack(ShowArgs),
    /// List messages that wait, were sent or were given up
    Deliveries(DeliveriesArgs),
    /// Send a message once more
    Replay(ShowArgs),
    /// Set, list and remove rules, which send events of many jobs to channels
    #[command(subcommand)]
    Rule(RuleCommand),
    /// Show whether notifications are sent, and how many wait
    Status(ListArgs),
    /// Send notifications from a store that was forked
    Resume(ListArgs),
}

#[derive(Subcommand)]
pub enum RuleCommand {
    /// Create or replace a rule
    Set(Box<RuleSetArgs>),
    /// List rules
    List(ListArgs),
    /// Remove rules
    Remove(RemoveArgs),
}

#[derive(Subcommand)]
pub enum SilenceCommand {
    /// Suppress notifications about jobs for a time
    Add(Box<SilenceAddArgs>),
    /// List silences
    List(ListArgs),
    /// End silences
    Remove(RemoveArgs),
}

#[derive(clap::Args)]
pub struct SetArgs {
    /// The name of the channel, for the notify of jobs and for rules
    #[arg(value_name = "NAME", value_parser = args::path_name)]
    name: String,
    /// webhook, slack, teams, discord, pagerduty, opsgenie, sms or email
    #[arg(long = "type", value_name = "TYPE")]
    kind: ChannelType,
    /// The URL of a webhook, or another base URL of PagerDuty, Opsgenie or Twilio
    #[arg(long)]
    url: Option<String>,
    /// The name of the secret (`punctual secret set`) with the signing key, URL of a chat, key, token or password
    #[arg(long, value_name = "SECRET", conflicts_with = "secret_file")]
    secret: Option<String>,
    /// A file with that value, which the server encrypts
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A recipient: a mail address or phone number; can be given more than once
    #[arg(long)]
    to: Vec<String>,
    /// The sender: a mail address or phone number
    #[arg(long)]
    from: Option<String>,
    /// The mail server
    #[arg(long)]
    host: Option<String>,
    /// The port of the mail server
    #[arg(long)]
    port: Option<u16>,
    /// How the connection to the mail server is encrypted: starttls, tls or none
    #[arg(long)]
    tls: Option<MailTls>,
    /// The user at the mail server
    #[arg(long)]
    username: Option<String>,
    /// The id of the Twilio account
    #[arg(long)]
    account_sid: Option<String>,
    /// A file with a Jinja template for the text
    #[arg(long, value_name = "FILE")]
    template: Option<PathBuf>,
    /// Add the last lines of the log to messages; they may have data of jobs
    #[arg(long)]
    include_logs: bool,
    #[command(flatten)]
    mute: MuteArgs,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct ShowArgs {
    /// The name of the channel, or the id of the alert or delivery
    #[arg(value_name = "NAME", value_parser = args::path_name)]
    name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct RemoveArgs {
    /// The names or ids
    #[arg(value_name = "NAME", required = true, value_parser = args::path_name)]
    names: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(clap::Args)]
pub struct ChannelRemoveArgs {
    #[command(flatten)]
    args: RemoveArgs,
    /// Remove them although rules, users or unfinished jobs use them
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
pub struct DeliveriesArgs {
    /// How many to list at most
    #[arg(long, value_name = "COUNT", default_value_t = 50)]
    limit: u32,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which jobs a rule or silence is about.
#[derive(clap::Args)]
struct SelectorArgs {
    /// Jobs with this tag, or with tags like back*; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    tag: Vec<String>,
    /// Jobs in this queue; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    queue: Vec<String>,
    /// Jobs of this owner; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    owner: Vec<String>,
    /// Jobs of this type; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    job_type: Vec<String>,
    /// Jobs with this name; can be given more than once
    #[arg(long, value_name = "PATTERN")]
    job_name: Vec<String>,
}

impl SelectorArgs {
    fn body(self) -> Option<SelectorBody> {
        let SelectorArgs { tag, queue, owner, job_type, job_name } = self;
        let body =
            SelectorBody { tags: tag, queues: queue, owners: owner, job_types: job_type, names: job_name };
        Some(body).filter(|body| *body != SelectorBody::default())
    }
}

/// When a rule or channel is quiet.
#[derive(clap::Args)]
struct MuteArgs {
    /// Send nothing while this calendar excludes the time; can be given more than once
    #[arg(long, value_name = "CALENDAR")]
    mute: Vec<String>,
    /// What happens to messages of that time: send them afterwards, or drop them
    #[arg(long, value_name = "send|drop", requires = "mute")]
    muted: Option<MutedThen>,
}

impl MuteArgs {
    fn body(self) -> Option<MuteBody> {
        let MuteArgs { mute, muted } = self;
        (!mute.is_empty()).then_some(MuteBody { calendars: mute, then: muted })
    }
}

/// A time and a channel, such as 15m=duty.
fn escalation(text: &str) -> Result<EscalationBody, String> {
    let fix = "must be a time and a channel, such as 15m=duty";
    let (after, to) = text.split_once('=').filter(|(_, to)| !to.is_empty()).ok_or(fix)?;
    Ok(EscalationBody { after: args::span(after)?, to: to.to_owned() })
}

#[derive(clap::Args)]
pub struct RuleSetArgs {
    /// The name of the rule
    #[arg(value_name = "NAME", value_parser = args::path_name)]
    name: String,
    /// failed, recovered, succeeded, missed, late, running_long, dead_letters, queue_old, limit_full, worker_lost or
    /// node_not_ready; can be given more than once
    #[arg(long, value_name = "EVENT", required = true)]
    event: Vec<RuleEvent>,
    /// The channel that is notified, or owner for the preferred one of the owner of the job; can be given more than once
    #[arg(long, required = true)]
    channel: Vec<String>,
    #[command(flatten)]
    jobs: SelectorArgs,
    /// How many failures in a row it takes
    #[arg(long, value_name = "COUNT")]
    failures: Option<u32>,
    /// How many successes in a row it takes to recover
    #[arg(long, value_name = "COUNT")]
    successes: Option<u32>,
    /// For late: by more than this
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    late_by: Option<Span>,
    /// For running_long: longer than this
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    longer_than: Option<Span>,
    /// For running_long: longer than this percentage of the time that 95 % of the recent runs took
    #[arg(long, value_name = "PERCENT")]
    longer_than_usual: Option<u32>,
    /// For dead_letters: more than this number
    #[arg(long, value_name = "COUNT")]
    dead_letters_above: Option<u64>,
    /// For queue_old: the oldest execution has waited for longer than this
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    queue_older_than: Option<Span>,
    /// For limit_full: executions have waited for the limits of a queue for longer than this
    #[arg(long, value_name = "DURATION", value_parser = args::span)]
    limit_full_for: Option<Span>,
    /// For node_not_ready: also if fewer nodes than this are ready
    #[arg(long, value_name = "COUNT")]
    ready_nodes_below: Option<u32>,
    #[command(flatten)]
    mute: MuteArgs,
    /// A channel that is notified if nobody acknowledges the alert for a time, such as 15m=duty
    #[arg(long, value_name = "DURATION=CHANNEL", value_parser = escalation)]
    escalate: Option<EscalationBody>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(clap::Args)]
pub struct SilenceAddArgs {
    #[command(flatten)]
    jobs: SelectorArgs,
    /// How long, such as 2h
    #[arg(long = "for", value_name = "DURATION", value_parser = args::span)]
    duration: Span,
    /// Why
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run_channel(command: ChannelCommand) -> anyhow::Result<Exit> {
    match command {
        ChannelCommand::Set(args) => set(*args).await?,
        ChannelCommand::List(args) => {
            let channels = args.connect.client()?.channels().await?;
            args.output.print(&channels, channels_table)?;
        }
        ChannelCommand::Show(args) => {
            let channel = args.connect.client()?.channel(&args.name).await?;
            args.output.print(&channel, described)?;
        }
        ChannelCommand::Remove(args) => {
            let ChannelRemoveArgs { args, force } = args;
            let remove = async |client: &Client, name: &str| match force {
                true => client.remove_channel_in_use(name).await,
                false => client.remove_channel(name).await,
            };
            removed(&args, "channel", remove).await?;
        }
    }
    Ok(Exit::Done)
}

fn template(file: &PathBuf) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| {
        format!("--template takes the name of a file with the template: cannot read {}", file.display())
    })
}

async fn set(args: SetArgs) -> anyhow::Result<()> {
    let read = |file: &PathBuf| {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
    };
    let secret = match (&args.secret, &args.secret_file) {
        (Some(name), _) => Some(ChannelSecret::Reference { name: name.clone() }),
        (None, Some(file)) => Some(ChannelSecret::Plain(read(file)?.trim_end().to_owned())),
        (None, None) => None,
    };
    let mut channel = SetChannel {
        name: None,
        kind: args.kind,
        url: args.url.map(ChannelSecret::Plain),
        secret: None,
        routing_key: None,
        api_key: None,
        auth_token: None,
        password: None,
        account_sid: args.account_sid,
        username: args.username,
        from: args.from,
        to: (!args.to.is_empty()).then_some(args.to),
        host: args.host,
        port: args.port,
        tls: args.tls,
        template: args.template.as_ref().map(template).transpose()?,
        include_logs: args.include_logs.then_some(true),
        mute: args.mute.body(),
    };
    if secret.is_some() {
        let field = match args.kind {
            ChannelType::Webhook => &mut channel.secret,
            ChannelType::Slack | ChannelType::Teams | ChannelType::Discord => &mut channel.url,
            ChannelType::PagerDuty => &mut channel.routing_key,
            ChannelType::Opsgenie => &mut channel.api_key,
            ChannelType::Sms => &mut channel.auth_token,
            ChannelType::Email => &mut channel.password,
            ChannelType::Command => {
                let message =
                    "a command channel has no secret, and only punctual.toml can have one".to_owned();
                return Err(CliError { exit: Exit::Misunderstood, message }.into());
            }
        };
        *field = secret;
    }
    let channel = args.connect.client()?.set_channel(&args.name, &channel).await?;
    args.output.print(&channel, described)?;
    Ok(())
}

pub async fn run_notify(command: NotifyCommand) -> anyhow::Result<Exit> {
    match command {
        NotifyCommand::Test(args) => {
            let tested = args.connect.client()?.test_channel(&args.name).await?;
            args.output.print(&tested, |tested| match &tested.error {
                None => format!("delivered {} to {}", tested.message_id, args.name),
                Some(error) => format!("not delivered: {error}"),
            })?;
            return Ok(if tested.delivered { Exit::Done } else { Exit::Failed });
        }
        NotifyCommand::Alerts(args) => {
            let alerts = args.connect.client()?.alerts().await?;
            args.output.print(&alerts, alerts_table)?;
        }
        NotifyCommand::Ack(args) => {
            let alert = args.connect.client()?.acknowledge_alert(&args.name).await?;
            args.output.print(&alert, |alert| format!("acknowledged {}", alert.alert_id))?;
        }
        NotifyCommand::Deliveries(args) => {
            let deliveries = args.connect.client()?.deliveries(args.limit).await?;
            args.output.print(&deliveries, deliveries_table)?;
        }
        NotifyCommand::Replay(args) => {
            let delivery = args.connect.client()?.replay_delivery(&args.name).await?;
            args.output.print(&delivery, |delivery| format!("will send {}", delivery.delivery_id))?;
        }
        NotifyCommand::Rule(command) => run_rule(command).await?,
        NotifyCommand::Status(args) => {
            let state = args.connect.client()?.notifications().await?;
            args.output.print(&state, state_text)?;
        }
        NotifyCommand::Resume(args) => {
            let state = args.connect.client()?.resume_notifications().await?;
            args.output.print(&state, state_text)?;
        }
    }
    Ok(Exit::Done)
}

fn state_text(state: &punctual_client::NotificationsBody) -> String {
    let sending = match &state.stopped {
        None => "notifications are sent".to_owned(),
        Some(reason) => format!("nothing is sent: {reason}"),
    };
    format!("{sending}; {} deliveries wait, {} alerts", state.pending, state.alerts)
}

async fn run_rule(command: RuleCommand) -> anyhow::Result<()> {
    match command {
        RuleCommand::Set(args) => {
            let args = *args;
            let rule = SetRule {
                name: None,
                events: args.event,
                channels: args.channel,
                jobs: args.jobs.body(),
                failures: args.failures,
                successes: args.successes,
                late_by: args.late_by,
                longer_than: args.longer_than,
                longer_than_usual_percent: args.longer_than_usual,
                dead_letters_above: args.dead_letters_above,
                queue_older_than: args.queue_older_than,
                limit_full_for: args.limit_full_for,
                ready_nodes_below: args.ready_nodes_below,
                mute: args.mute.body(),
                escalate: args.escalate,
                disabled: None,
            };
            let rule = args.connect.client()?.set_notification_rule(&args.name, &rule).await?;
            args.output
                .print(&rule, |rule| rules_table(&Page { items: vec![rule.clone()], next_cursor: None }))?;
        }
        RuleCommand::List(args) => {
            let rules = args.connect.client()?.notification_rules().await?;
            args.output.print(&rules, rules_table)?;
        }
        RuleCommand::Remove(args) => {
            removed(&args, "rule", async |client, name| client.remove_notification_rule(name).await).await?;
        }
    }
    Ok(())
}

pub async fn run_silence(command: SilenceCommand) -> anyhow::Result<Exit> {
    match command {
        SilenceCommand::Add(args) => {
            let args = *args;
            let silence = AddSilence {
                jobs: args.jobs.body(),
                starts_at: None,
                ends_at: None,
                duration: Some(args.duration),
                reason: args.reason,
            };
            let silence = args.connect.client()?.add_silence(&silence).await?;
            args.output.print(&silence, |silence| {
                format!("silence {} until {}", silence.silence_id, time(silence.ends_at))
            })?;
        }
        SilenceCommand::List(args) => {
            let silences = args.connect.client()?.silences().await?;
            args.output.print(&silences, silences_table)?;
        }
        SilenceCommand::Remove(args) => {
            removed(&args, "silence", async |client, name| client.remove_silence(name).await).await?;
        }
    }
    Ok(Exit::Done)
}

/// Removes each of the named things.
async fn removed(
    args: &RemoveArgs,
    what: &str,
    remove: impl AsyncFn(&Client, &str) -> Result<(), ClientError>,
) -> anyhow::Result<()> {
    let client = args.connect.client()?;
    for name in &args.names {
        remove(&client, name).await?;
        print_text(&format!("removed {what} {name}"))?;
    }
    Ok(())
}

fn target(channel: &ChannelBody) -> String {
    let url = channel.url.clone().or_else(|| channel.host.clone());
    [url, joined(&channel.to)].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn described(channel: &ChannelBody) -> String {
    let references: Vec<String> =
        channel.references.iter().map(|(field, name)| format!("{field}: {name}")).collect();
    details([
        ("channel", Some(channel.name.clone())),
        ("type", Some(channel.kind.to_string())),
        ("target", Some(target(channel)).filter(|target| !target.is_empty())),
        ("encrypted", joined(&channel.hidden)),
        ("secrets", joined(&references)),
        ("quiet", channel.mute.as_ref().and_then(|mute| joined(&mute.calendars))),
        ("logs", Some(if channel.include_logs { "included" } else { "not included" }.to_owned())),
        ("disabled", channel.disabled.clone()),
        ("from", channel.configured.then(|| "the configuration file".to_owned())),
        ("set", Some(time(channel.updated_at))),
    ])
}

fn channels_table(page: &Page<ChannelBody>) -> String {
    if page.items.is_empty() {
        return "no channels".to_owned();
    }
    let rows = page.items.iter().map(|channel| {
        let state = channel.disabled.as_ref().map_or("ready", |_| "disabled");
        vec![channel.name.clone(), channel.kind.to_string(), target(channel), state.to_owned()]
    });
    table(&["CHANNEL", "TYPE", "TARGET", "STATE"], rows)
}

fn selected(jobs: &SelectorBody) -> String {
    let SelectorBody { tags, queues, owners, job_types, names } = jobs;
    let lists = [("tag", tags), ("queue", queues), ("owner", owners), ("type", job_types), ("name", names)];
    let shown: Vec<String> =
        lists.iter().filter_map(|(what, list)| Some(format!("{what} {}", joined(list)?))).collect();
    if shown.is_empty() { "all".to_owned() } else { shown.join("; ") }
}

fn rules_table(page: &Page<RuleBody>) -> String {
    if page.items.is_empty() {
        return "no rules".to_owned();
    }
    let rows = page.items.iter().map(|rule| {
        let events: Vec<String> = rule.events.iter().map(ToString::to_string).collect();
        vec![rule.name.clone(), events.join(", "), selected(&rule.jobs), rule.channels.join(", ")]
    });
    table(&["RULE", "EVENTS", "JOBS", "CHANNELS"], rows)
}

fn silences_table(page: &Page<SilenceBody>) -> String {
    if page.items.is_empty() {
        return "no silences".to_owned();
    }
    let rows = page.items.iter().map(|silence| {
        let state = if silence.active { "active" } else { "not active" };
        vec![
            silence.silence_id.clone(),
            selected(&silence.jobs),
            time(silence.ends_at),
            state.to_owned(),
            silence.created_by.clone(),
            silence.reason.clone().unwrap_or_default(),
        ]
    });
    table(&["SILENCE", "JOBS", "UNTIL", "STATE", "BY", "REASON"], rows)
}

fn alerts_table(page: &Page<AlertBody>) -> String {
    if page.items.is_empty() {
        return "no alerts".to_owned();
    }
    let rows = page.items.iter().map(|alert| {
        vec![
            alert.alert_id.clone(),
            alert.kind.to_string(),
            alert.name.clone(),
            alert.state.clone(),
            time(alert.since),
            alert.count.to_string(),
            alert.explanation.clone(),
        ]
    });
    table(&["ALERT", "TYPE", "NAME", "STATE", "SINCE", "COUNT", "WHY"], rows)
}

fn deliveries_table(page: &Page<DeliveryBody>) -> String {
    let rows = page.items.iter().map(|delivery| {
        vec![
            delivery.delivery_id.clone(),
            delivery
                .to
                .as_ref()
                .map_or_else(|| delivery.channel.clone(), |to| format!("{} <{to}>", delivery.channel)),
            delivery.kind.to_string(),
            delivery.state.to_string(),
            delivery.count.to_string(),
            delivery.attempts.to_string(),
            time(delivery.created_at),
            delivery.last_error.clone().unwrap_or_default(),
        ]
    });
    table(&["DELIVERY", "CHANNEL", "TYPE", "STATE", "EVENTS", "TRIES", "CREATED", "ERROR"], rows)
}
