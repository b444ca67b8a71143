//! `punctual nodes`: the processes of the cluster.

use punctual_client::{NodeBody, Page};
use punctual_config::connect::ConnectArgs;
use punctual_config::exit::Exit;
use punctual_config::output::{OutputArgs, table, time_to_millis};

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
            if node.leader { "yes".to_owned() } else { String::new() },
            if node.segments > 0 { node.segments.to_string() } else { String::new() },
            node.version.clone(),
            format!("{} {}", node.store, node.schema_version),
            if node.coordination.is_empty() { "-".to_owned() } else { node.coordination.clone() },
            match (node.ready_queue.is_empty(), node.ready_queue_connected) {
                (true, _) => "-".to_owned(),
                (false, true) => node.ready_queue.clone(),
                (false, false) => format!("{} (down)", node.ready_queue),
            },
            node.tzdb_version.clone(),
            format!("{} ms", node.clock_offset_ms),
            time_to_millis(node.started_at),
        ]
    });
    let headers = [
        "NODE",
        "ADDRESS",
        "ROLES",
        "LEADER",
        "SEGMENTS",
        "VERSION",
        "STORE",
        "COORDINATION",
        "READY QUEUE",
        "TZDB",
        "CLOCK OFFSET",
        "STARTED",
    ];
    let mut text = table(&headers, rows);
    for node in &page.items {
        for warning in &node.warnings {
            text += &format!("\n{}: {warning}", node.node_id);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::time::Timestamp;

    #[test]
    fn a_warning_stands_below_the_table_with_the_node_it_is_about() {
        let node = NodeBody {
            node_id: "db-7".to_owned(),
            version: "1.2.3".to_owned(),
            started_at: Timestamp::EPOCH,
            roles: vec!["scheduler".to_owned()],
            address: "127.0.0.1:7071".to_owned(),
            tzdb_version: "2025b".to_owned(),
            clock_offset_ms: 45_000,
            store: "postgres".to_owned(),
            schema_version: 2,
            embedded_store: false,
            host: "db".to_owned(),
            pid: 7,
            leader: true,
            segments: 22,
            answering: true,
            others_unknown: false,
            coordination: "store".to_owned(),
            ready_queue: "redis".to_owned(),
            ready_queue_connected: false,
            warnings: vec!["its clock is wrong".to_owned()],
        };
        let text = nodes_table(&Page { items: vec![node], next_cursor: None });
        assert!(text.contains("LEADER") && text.contains("22") && text.contains("45000 ms"), "{text}");
        assert!(text.contains("redis (down)"), "{text}");
        assert!(text.ends_with("\ndb-7: its clock is wrong"), "{text}");
    }
}
