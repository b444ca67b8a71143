//! The log quota: chatty jobs lose their oldest lines, and nothing else.

use crate::server::Server;
use reqwest::Method;

const MIB: u64 = 1 << 20;
/// Jobs that write two megabytes each.
const JOBS: usize = 8;
const SCRIPT: &str = "i=0; while [ $i -lt 10000 ]; do i=$((i+1)); echo \"$i $LINE\"; done";

#[tokio::test]
async fn chatty_jobs_lose_their_oldest_lines_and_the_file_stays_small() {
    let server = Server::start_with(&["--allow", "shell", "--logs-total-size-max", "4MiB"]);
    let script = format!("LINE={}; {SCRIPT}", "x".repeat(200));
    for number in 0..JOBS {
        server.said(&["job", "submit", &format!("chatty-{number}"), "--shell", &script, "--wait"]);
    }
    let used = std::fs::metadata(server.data_dir().join("logs.db")).unwrap().len();
    assert!(used <= 6 * MIB, "{used} bytes after {JOBS} jobs of 2 MiB");

    // The first job has only the line that says so; the last one has all its lines.
    let said = |number: usize| server.said(&["job", "logs", &format!("chatty-{number}")]);
    let first = said(0);
    assert!(first.contains("logs.total_size_max") && !first.contains("xxx"), "{first}");
    let last = said(JOBS - 1);
    assert!(last.lines().next().unwrap().starts_with("1 xxx"), "it begins with its first line");
    assert_eq!(last.lines().count(), 10_000);

    let metrics = server.request(Method::GET, "/metrics").send().await.unwrap().text().await.unwrap();
    let removed =
        metrics.lines().find_map(|line| line.strip_prefix("punctual_store_log_lines_removed_total "));
    assert!(removed.unwrap().parse::<u64>().unwrap() > 10_000, "{removed:?}");
}
