//! `punctual nodes`: the server that answers.

use crate::connect::ConnectArgs;
use crate::exit::Exit;
use crate::output::{OutputArgs, table, time_to_millis};
use punctual_client::{NodeBody, Page};

#[derive(clap::Args)]
pub struct NodesArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    output: OutputArgs,
}

pub async fn run(args: NodesArgs) -> anyhow::Result<Exit> {
    let nodes = args.connect.client()?.nodes().await?;
    args.output.print(&nodes, nodes_table)?;
    Ok(Exit::Done)
}

fn nodes_table(page: &Page<NodeBody>) -> String {
    let rows = page.items.iter().map(|node| {
        vec![
            node.node_id.clone(),
            node.address.clone(),
            node.roles.join(","),
            node.version.clone(),
            format!("{} {}", node.store, node.schema_version),
            node.tzdb_version.clone(),
            format!("{} ms", node.clock_offset_ms),
            time_to_millis(node.started_at),
        ]
    });
    let listed =
        table(&["NODE", "ADDRESS", "ROLES", "VERSION", "STORE", "TZDB", "CLOCK OFFSET", "STARTED"], rows);
    // The list must not look complete where it need not be.
    if page.items.iter().all(|node| node.embedded_store) {
        return listed;
    }
    format!("{listed}\n\nthis is the process that answered; others on the same store are not listed")
}
