//! `punctual job explain`: explains a job's state.

use crate::job::show::skipped_table;
use crate::job::which::WhichJob;
use punctual_client::{ExplainBody, RecentOccurrence};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::hints;
use punctual_config::output::{OutputArgs, shortened, span, table, time};

#[derive(clap::Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    which: WhichJob,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: ExplainArgs) -> anyhow::Result<Exit> {
    let client = args.connect.client()?;
    let explained = client.explain(args.which.id(&client).await?).await?;
    args.output.print(&explained, told)?;
    Ok(Exit::Done)
}

fn told(explained: &ExplainBody) -> String {
    let is_new = |sentence: &&String| **sentence != explained.summary;
    let mut text = explained.summary.clone();
    for sentence in explained.sentences.iter().filter(is_new) {
        text += &format!("\n{sentence}");
    }
    for execution in &explained.executions {
        text += &format!("\n\n{} is {}", execution.execution_id, execution.status);
        for sentence in execution.sentences.iter().filter(is_new) {
            text += &format!("\n  {sentence}");
        }
    }
    if !explained.advice.is_empty() {
        text += &format!("\n\nWhat may help:{}", hints::lines(&explained.advice));
    }
    if !explained.recent.is_empty() {
        let header = ["SCHEDULED", "STATUS", "LATE BY", "ATTEMPTS", "WHY"];
        text += &format!("\n\nLatest runs:\n{}", table(&header, explained.recent.iter().map(recent_row)));
    }
    if !explained.skipped.is_empty() {
        text += &format!("\n\nDid not run:\n{}", skipped_table(&explained.skipped));
    }
    text
}

fn recent_row(occurrence: &RecentOccurrence) -> Vec<String> {
    let dash = || "-".to_owned();
    vec![
        time(occurrence.scheduled_time),
        occurrence.status.to_string(),
        occurrence.late_by.map_or_else(dash, |late| span(late.get())),
        occurrence.attempts.to_string(),
        occurrence.reason.as_ref().map_or_else(dash, |reason| shortened(reason, 100)),
    ]
}
