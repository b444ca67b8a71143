//! What the dashboard does with much of everything: rows and lines that it draws, and requests that it sends. How fast it is
//! depends on the machine: `cargo xtask dashboard-speed` measures that.

use crate::dashboard::origin;
use crate::real_browser::Chromium;
use crate::server::{Server, eventually};
use serde_json::{Value, json};

const MANY: usize = 700;

async fn submit_many(server: &Server, job: impl Fn(usize) -> Value) {
    let jobs: Vec<Value> = (0..MANY).map(job).collect();
    let (status, made) = server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await;
    assert!(status.is_success(), "{made}");
}

/// Scrolls to the end of what a list has loaded until it has loaded all, and returns the most rows that were in the page.
fn scroll_to_the_end(chromium: &mut Chromium) -> u64 {
    let script = format!(
        "(async () => {{ let most = 0; const loaded = () => Number(document.querySelector('main table').getAttribute('aria-rowcount')); \
         while (loaded() !== {} || scrollY + innerHeight < document.documentElement.scrollHeight - 2) {{ \
         scrollTo(0, document.documentElement.scrollHeight); await new Promise(requestAnimationFrame); \
         most = Math.max(most, document.querySelectorAll('main tbody tr').length); }} return most; }})()",
        MANY + 1
    );
    chromium.evaluate(&script).as_u64().expect("a number")
}

#[tokio::test]
async fn a_long_list_has_few_rows_in_the_page_and_reads_each_page_once() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    submit_many(
        &server,
        |number| json!({"name": format!("job {number}"), "job_type": "noop", "interval": "1d"}),
    )
    .await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "jobs");
    let most = scroll_to_the_end(&mut chromium);
    assert!((10..100).contains(&most), "{most} rows");
    chromium.find(&format!("tr[aria-rowindex='{}']:has-text('job ')", MANY + 1));
    let continued = "performance.getEntriesByType('resource').filter(({name}) => name.includes('/jobs?') && name.includes('cursor=')).length";
    assert_eq!(chromium.evaluate(continued), MANY.div_ceil(100) - 1);
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn what_ends_in_between_neither_moves_nor_lengthens_a_list() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    let run = |batch: usize| move |number: usize| json!({"name": format!("run {batch} {number}"), "job_type": "noop"});
    let ended = async |count: usize| {
        eventually("they have run", async || {
            server.get("/api/v1/stats").await.1["jobs"]["completed"] == count
        })
        .await;
    };
    submit_many(&server, run(1)).await;
    ended(MANY).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "executions?status=SUCCEEDED");
    scroll_to_the_end(&mut chromium);
    let shown = "document.querySelector('main tbody tr:not([aria-hidden]) a').textContent";
    let before = chromium.evaluate(shown);
    // A reader of older rows keeps them, although more than a page of new ones has ended.
    submit_many(&server, run(2)).await;
    ended(2 * MANY).await;
    let reads =
        "performance.getEntriesByType('resource').filter(({name}) => name.includes('/executions?')).length";
    let read = chromium.evaluate(reads).as_u64().expect("a number");
    let again = format!(
        "new Promise((done) => {{ const timer = setInterval(() => {{ if ({reads} > {}) {{ clearInterval(timer); done(true); }} }}, 50); }})",
        read + 1
    );
    chromium.evaluate(&again);
    assert_eq!(chromium.evaluate(shown), before);
    // At the top, the list begins with the latest, and has no gap after them.
    chromium.evaluate("scrollTo(0, 0)");
    chromium.find("tr[aria-rowindex='2']:has-text('run 2')");
    let count = "Number(document.querySelector('main table').getAttribute('aria-rowcount'))";
    assert_eq!(chromium.evaluate(count), -1, "older ones are loaded when the reader gets there");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn a_list_of_jobs_reads_few_of_those_that_run() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    submit_many(&server, |number| json!({"name": format!("job {number}"), "job_type": "noop", "interval": "1d", "tags": ["all"]})).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "jobs");
    chromium.find(".top:has-text('Live')");
    chromium.evaluate("performance.setResourceTimingBufferSize(100000)");
    let all = json!({"action": "trigger", "filter": {"tag": ["all"]}}).to_string();
    let (status, operation) = server.post("/api/v1/bulk", &all).await;
    assert!(status.is_success(), "{operation}");
    chromium.find("tbody .status:has-text('succeeded')");
    let path = format!("/api/v1/bulk/{}", operation["operation_id"].as_str().expect("an id"));
    eventually("all are triggered", async || server.get(&path).await.1["status"] == "COMPLETED").await;
    eventually("all have run", async || {
        let live = &server.get("/api/v1/stats").await.1["live"];
        live["queued"] == 0 && live["running"] == 0
    })
    .await;
    let singles =
        "performance.getEntriesByType('resource').filter(({name}) => /jobs.[0-9a-f-]{36}$/.test(name))";
    let (reads, seconds) = (
        chromium.evaluate(&format!("{singles}.length")).as_u64().expect("a number"),
        chromium.evaluate("Math.ceil(performance.now() / 1000)").as_u64().expect("a number"),
    );
    assert!(reads <= 5 * seconds, "{reads} requests in {seconds} s");
    assert_eq!(chromium.errors(), json!([]));
}
