//! Responses are bounded in bytes: a page of large jobs is short and has a cursor, and clients that do not
//! read cost little memory.

use crate::raw::{HERE, Raw, head};
use crate::server::{Server, eventually};
use punctual_client::{BatchItem, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::limits;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const JOBS: usize = 320;
const PAYLOAD_BYTES: usize = 250_000;
/// Jobs that fit into one batch of at most 8 MiB.
const PER_BATCH: usize = 32;
const READERS: usize = 20;

/// Submits jobs that never run, with large payloads.
async fn submit_large_jobs(server: &Server) -> BTreeSet<JobId> {
    let payload = json!({"text": "x".repeat(PAYLOAD_BYTES)});
    let mut ids = BTreeSet::new();
    for _ in 0..JOBS / PER_BATCH {
        let one = || SubmitJob::named("large").with_type("nobody").with_payload(&payload).unwrap();
        let jobs: Vec<SubmitJob> = (0..PER_BATCH).map(|_| one()).collect();
        for item in server.client().submit_batch(&jobs).await.unwrap().items {
            match item {
                BatchItem::Submitted(submitted) => ids.insert(submitted.job_id),
                BatchItem::Refused { error } => panic!("{error}"),
            };
        }
    }
    ids
}

/// The server's peak memory.
fn peak_memory_kib(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse().expect("kilobytes")
}

/// How many requests for lists of jobs the server has answered, up to writing to the connection.
async fn lists_asked_for(server: &Server) -> usize {
    let response = server.request(reqwest::Method::GET, "/metrics").send().await.expect("metrics");
    let text = response.text().await.expect("text");
    let is_list = |line: &&str| line.starts_with("punctual_http_requests_total") && line.contains("/jobs\"");
    let counts = text.lines().filter(is_list).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    counts.sum::<f64>() as usize
}

#[tokio::test]
async fn a_page_of_large_jobs_is_short_leads_on_and_costs_little_memory() {
    let server = Server::start();
    let submitted = submit_large_jobs(&server).await;
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let (status, page) = server.get(&format!("/api/v1/jobs?limit=1000{cursor}")).await;
        assert_eq!(status, StatusCode::OK);
        let items = page["items"].as_array().expect("items");
        assert!((1..=limits::PAGE_BYTES_MAX / PAYLOAD_BYTES).contains(&items.len()), "{}", items.len());
        found.extend(items.iter().map(|job| job["job_id"].as_str().unwrap().parse::<JobId>().unwrap()));
        match &page["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            _ => break,
        }
    }
    assert_eq!(found, submitted);
    let listed: Value =
        serde_json::from_str(&server.said(&["job", "list", "--limit", "50", "-o", "json"])).unwrap();
    let listed = listed["items"].as_array().or(listed.as_array()).expect("jobs").len();
    assert_eq!(listed, 50, "the command line goes on until it has what it was asked for");

    let (before, asked) = (peak_memory_kib(&server), lists_asked_for(&server).await);
    let mut silent = Vec::new();
    for _ in 0..READERS {
        let mut raw = Raw::open(&server.address, HERE).await;
        raw.send((head(&server, "GET", "/api/v1/jobs?limit=1000") + "\r\n").as_bytes()).await;
        silent.push(raw);
    }
    eventually("all were answered", async || lists_asked_for(&server).await >= asked + READERS).await;
    let grown = peak_memory_kib(&server).saturating_sub(before) / 1024;
    // Without a bound, each of them would hold 80 MB. With it, a page is 1 MiB, held a few times over.
    assert!(grown < 200, "{grown} MiB for {READERS} readers");
}
