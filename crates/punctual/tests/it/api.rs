//! The HTTP API with valid requests.

use crate::server::{Server, eventually};
use punctual_client::{BatchItem, DeadLetterFilter, ExecutionStatus, JobFilter, SubmitJob};
use punctual_core::ids::JobId;
use punctual_core::job::JobStatus;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::HashSet;

#[tokio::test]
async fn a_submitted_job_runs_and_can_be_read() {
    let server = Server::start();
    let request = server.request(Method::POST, "/api/v1/jobs");
    let response = request.json(&json!({"name": "hello", "job_type": "noop"})).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::CREATED);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let body: Value = response.json().await.unwrap();
    assert_eq!(location, format!("/api/v1/jobs/{}", body["job_id"].as_str().unwrap()));
    assert_eq!(body["status"], "ACTIVE");

    let client = server.client();
    let job = client.wait(body["job_id"].as_str().unwrap().parse().unwrap()).await.unwrap();
    assert_eq!(job.status, JobStatus::Completed);
    let page = client.executions(job.job_id, None, None).await.unwrap();
    assert_eq!(page.items.len(), 1);
    let execution = client.execution(page.items[0].execution_id).await.unwrap();
    assert_eq!(execution.status, ExecutionStatus::Succeeded);
    assert_eq!((execution.attempt_number, execution.worker_id.as_deref()), (1, Some("embedded")));
    assert!(execution.started_at.unwrap() <= execution.completed_at.unwrap());
}

#[tokio::test]
async fn a_job_reads_as_it_was_submitted() {
    let server = Server::start();
    let submitted = json!({
        "name": "report", "job_type": "build-report", "payload": {"month": 11, "deep": [1.50, null]},
        "queue": "reports", "priority": 8, "schedule_type": "RECURRING", "interval": "1h30m",
        "max_runs": 7, "start_at": "2099-01-01T00:00:00Z", "end_at": "2099-12-31T00:00:00Z",
        "overlap_policy": "ALLOW", "max_retries": 2, "retry": {"strategy": "ladder", "steps": ["1m", "5m"]},
        "timeout_secs": 90, "owner_id": "finance", "tags": ["monthly", "pdf"],
    });
    let (status, body) = server.post("/api/v1/jobs", &submitted.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let (_, job) = server.get(&format!("/api/v1/jobs/{}", body["job_id"].as_str().unwrap())).await;
    for (field, value) in submitted.as_object().unwrap() {
        assert_eq!(&job[field], value, "{field}");
    }
    assert_eq!(job["next_run_time"], "2099-01-01T00:00:00Z");
    assert_eq!((&job["status"], &job["version"]), (&json!("ACTIVE"), &json!(1)));
}

#[tokio::test]
async fn a_cron_job_reads_as_it_was_submitted_and_tells_when_it_runs() {
    let server = Server::start();
    let submitted = json!({
        "name": "backup", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin",
        "dst_gap": "SKIP", "dst_overlap": "SECOND", "misfire_policy": "RUN_ALL", "misfire_grace": "5m",
        "misfire_limit": 10, "max_lateness": "1d", "replay_rate": "10/m", "jitter": "30s", "max_runs": 7,
        "start_at": "2099-03-28T12:00:00Z", "end_at": "2099-12-31T00:00:00Z",
    });
    let (status, body) = server.post("/api/v1/jobs", &submitted.to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let path = format!("/api/v1/jobs/{}", body["job_id"].as_str().unwrap());
    let (_, job) = server.get(&path).await;
    for (field, value) in submitted.as_object().unwrap() {
        assert_eq!(&job[field], value, "{field}");
    }
    assert_eq!(job["next_run_time"], body["next_run_time"]);
    let (_, next) = server.get(&format!("{path}/next?count=2")).await;
    assert_eq!(next["occurrences"][0]["local_time"], "2099-03-30T02:30:00+02:00", "the day before skips it");
    assert_eq!(next["occurrences"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_schedule_can_be_previewed_with_what_clocks_do_to_it() {
    let server = Server::start();
    let asked = json!({
        "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin",
        "after": "2026-10-24T12:00:00Z", "count": 2,
    });
    let (status, body) = server.post("/api/v1/schedules/preview", &asked.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    assert_eq!(
        body["occurrences"],
        json!([
            {"scheduled_time": "2026-10-25T00:30:00Z", "local_time": "2026-10-25T02:30:00+02:00",
             "dst": "OVERLAP_FIRST"},
            {"scheduled_time": "2026-10-26T01:30:00Z", "local_time": "2026-10-26T02:30:00+01:00", "dst": null},
        ])
    );
    assert!(body["description"].as_str().unwrap().contains("02:30"), "{body}");
    for refused in [json!({"cron_expression": "@daily", "count": 1_001}), json!({"count": 5})] {
        let (status, _) = server.post("/api/v1/schedules/preview", &refused.to_string()).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    }
}

#[tokio::test]
async fn words_and_iso_durations_are_understood() {
    let server = Server::start();
    let submitted = r#"{"name":"x","priority":"high","delay":"PT3H"}"#;
    let (status, body) = server.post("/api/v1/jobs", submitted).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let (_, job) = server.get(&format!("/api/v1/jobs/{}", body["job_id"].as_str().unwrap())).await;
    assert_eq!((&job["priority"], &job["schedule_type"]), (&json!(8), &json!("ONE_TIME")));
    assert_eq!(job["execute_at"], job["next_run_time"]);
}

#[tokio::test]
async fn a_one_time_job_in_the_past_runs_at_once() {
    let server = Server::start();
    let client = server.client();
    let past = SubmitJob {
        execute_at: Some("2020-01-01T00:00:00Z".parse().unwrap()),
        ..SubmitJob::named("late").with_type("noop")
    };
    let job = client.wait(client.submit(&past).await.unwrap().job_id).await.unwrap();
    assert_eq!(job.status, JobStatus::Completed);
}

#[tokio::test]
async fn an_interval_job_runs_as_often_as_it_should_and_in_its_rhythm() {
    let server = Server::start();
    let client = server.client();
    let every = SubmitJob {
        interval: Some("100ms".to_owned()),
        max_runs: Some(5),
        ..SubmitJob::named("tick").with_type("noop")
    };
    let id = client.submit(&every).await.unwrap().job_id;
    let job = client.wait(id).await.unwrap();
    assert_eq!(job.status, JobStatus::Completed);
    let page = client.executions(id, None, None).await.unwrap();
    let mut times: Vec<i64> = page.items.iter().map(|e| e.scheduled_time.as_micros()).collect();
    times.sort_unstable();
    assert_eq!(times.len(), 5);
    let anchor = times[0];
    assert!(times.iter().all(|time| (time - anchor) % 100_000 == 0), "{times:?} from {anchor}");
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
}

#[tokio::test]
async fn each_job_of_a_batch_gets_its_own_outcome() {
    let server = Server::start();
    let all_good = json!({"jobs": [{"name": "a", "job_type": "noop"}, {"name": "b", "job_type": "noop"}]});
    let (status, body) = server.post("/api/v1/jobs/batch", &all_good.to_string()).await;
    assert_eq!((status, body["items"].as_array().unwrap().len()), (StatusCode::CREATED, 2));

    let mixed = json!({"jobs": [
        {"name": "c", "job_type": "noop"},
        {"name": "d", "pirority": 3},
        {"name": ""},
        {"name": "e", "delay": "1m", "interval": "1m"},
        {"name": "f", "job_type": "noop", "payload": {"kept": true}},
    ]});
    let (status, body) = server.post("/api/v1/jobs/batch", &mixed.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{body}");
    let items = body["items"].as_array().unwrap();
    assert!(items[0]["job_id"].is_string() && items[4]["job_id"].is_string(), "{body}");
    for (place, field) in [(1, "jobs[1].pirority"), (2, "jobs[2].name"), (3, "jobs[3].delay")] {
        let error = &items[place]["error"]["errors"][0];
        assert_eq!(error["field"], field, "{error}");
        assert!(!error["detail"].as_str().unwrap().contains("line"), "{error}");
    }
    let client = server.client();
    let names = client.jobs(&JobFilter::default()).await.unwrap().items;
    let names: HashSet<String> = names.into_iter().map(|job| job.name).collect();
    assert_eq!(names, ["a", "b", "c", "f"].map(str::to_owned).into());
}

#[tokio::test]
async fn lists_are_filtered_and_paged_without_loss_or_repetition() {
    let server = Server::start();
    let client = server.client();
    let jobs: Vec<SubmitJob> = (0..25)
        .map(|n| SubmitJob {
            queue: Some(if n % 2 == 0 { "even" } else { "odd" }.to_owned()),
            delay: Some("1h".parse().unwrap()),
            owner_id: Some(format!("owner-{}", n % 5)),
            ..SubmitJob::named(format!("job-{n}"))
        })
        .collect();
    let answer = client.submit_batch(&jobs).await.unwrap();
    assert!(answer.items.iter().all(|item| matches!(item, BatchItem::Submitted(_))));

    let mut filter = JobFilter { queue: Some("even".to_owned()), limit: Some(4), ..JobFilter::default() };
    let mut names = Vec::new();
    loop {
        let page = client.jobs(&filter).await.unwrap();
        assert!(page.items.len() <= 4);
        names.extend(page.items.into_iter().map(|job| job.name));
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    let distinct: HashSet<&String> = names.iter().collect();
    assert_eq!((names.len(), distinct.len()), (13, 13));

    for (query, count) in [
        ("owner=owner-3", 5),
        ("status=ACTIVE", 25),
        ("status=active", 25),
        ("status=COMPLETED", 0),
        ("name=job-7", 1),
        ("job_type=job-7", 1),
        ("priority=medium", 25),
        ("priority=Medium", 25),
        ("priority=1", 0),
    ] {
        let (status, body) = server.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(
            (status, body["items"].as_array().map(Vec::len)),
            (StatusCode::OK, Some(count)),
            "{query}"
        );
    }
}

#[tokio::test]
async fn what_fails_for_good_is_a_dead_letter() {
    let server = Server::start();
    let client = server.client();
    let broken = SubmitJob::named("broken").with_type("sleep");
    let job = client.wait(client.submit(&broken).await.unwrap().job_id).await.unwrap();
    assert_eq!(job.status, JobStatus::Failed);
    assert!(job.last_error.unwrap().contains("payload"));
    assert_eq!(job.status_reason.as_deref(), Some("attempt 1 failed and cannot be retried"));
    let letters = client.dead_letters(&DeadLetterFilter::default(), None, None).await.unwrap();
    assert_eq!(letters.items.len(), 1);
    assert_eq!((letters.items[0].job_id, letters.items[0].attempts), (job.job_id, 1));
}

#[tokio::test]
async fn a_job_without_a_worker_says_what_it_waits_for() {
    let server = Server::start();
    let client = server.client();
    let id = client.submit(&SubmitJob::named("nobody-runs-this")).await.unwrap().job_id;
    let reason = "waits for a worker that has a handler for nobody-runs-this; none is connected";
    let job = client.job(id).await.unwrap();
    assert_eq!((job.status, job.status_reason.as_deref()), (JobStatus::Active, Some(reason)));
}

#[tokio::test]
async fn the_root_of_the_api_leads_on() {
    let server = Server::start();
    for path in ["/api/v1", "/api/v1/"] {
        let (status, body) = server.get(path).await;
        assert_eq!((status, &body["jobs"]), (StatusCode::OK, &json!("/api/v1/jobs")), "{path}");
        for root in ["executions", "schedules", "workers", "nodes", "me", "events", "worker"] {
            let leads_to = body[root].as_str().unwrap_or_default();
            assert!(leads_to.starts_with(&format!("/api/v1/{root}")), "{root} of {path}: {body}");
        }
    }
    let anonymous = server.anonymous(Method::GET, "/").send().await.unwrap();
    assert_eq!(anonymous.status(), StatusCode::OK, "the front door is open to all");
}

#[tokio::test]
async fn an_attempt_that_runs_out_of_time_is_retried_later() {
    let server = Server::start();
    let client = server.client();
    let slow = SubmitJob {
        timeout_secs: Some(punctual_client::Seconds::from_millis(50)),
        ..SubmitJob::named("slow").with_type("sleep").with_payload(&json!({"ms": 60_000})).unwrap()
    };
    let id = client.submit(&slow).await.unwrap().job_id;
    eventually("the job waits for its retry", async || {
        client.job(id).await.unwrap().next_retry_time.is_some()
    })
    .await;
    let page = client.executions(id, None, None).await.unwrap();
    let seen: Vec<(u32, ExecutionStatus)> =
        page.items.iter().map(|execution| (execution.attempt_number, execution.status)).collect();
    assert_eq!(seen, [(2, ExecutionStatus::Waiting), (1, ExecutionStatus::TimedOut)]);
}

#[tokio::test]
async fn what_is_shown_of_many_queues_is_bounded_and_read_in_pages() {
    const QUEUES: usize = 1_100;
    let server = Server::start();
    let client = server.client();
    let job = |number: usize| SubmitJob {
        queue: Some(format!("queue-{number:05}")),
        ..SubmitJob::named("nobody-runs-this")
    };
    client.submit_batch(&(0..QUEUES).map(job).collect::<Vec<_>>()).await.unwrap();
    let stats = client.stats().await.unwrap();
    assert_eq!((stats.live.lanes, stats.live.queued, stats.live.sessions), (QUEUES as u64, QUEUES as u64, 1));
    assert_eq!((stats.queues.len(), stats.truncated), (200, true));
    for (route, first) in [("queues", 1_000), ("autoscaling", 1_000)] {
        let (status, page) = server.get(&format!("/api/v1/{route}")).await;
        assert_eq!((status, page["items"].as_array().unwrap().len()), (StatusCode::OK, first));
        let cursor = page["next_cursor"].as_str().unwrap();
        let (_, rest) = server.get(&format!("/api/v1/{route}?limit=50&cursor={cursor}")).await;
        assert_eq!(rest["items"][0]["queue"], "queue-01000");
        assert_eq!(rest["items"].as_array().unwrap().len(), 50);
        let (status, problem) = server.get(&format!("/api/v1/{route}?cursor=jobs~7")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{problem}");
    }
    assert_eq!(client.queues().await.unwrap().items.len(), QUEUES, "the client reads all pages");
    let scaling = client.autoscaling().await.unwrap();
    assert_eq!((scaling.items.len(), scaling.total.queued), (QUEUES, QUEUES as u64));
    let metrics = client.metrics().await.unwrap();
    let named = metrics.lines().filter(|line| line.starts_with("punctual_executions{queue=\"queue-")).count();
    assert_eq!(named, 200 * 3, "{named} lines name a lane");
    // The list contains settings that were stored a moment ago.
    client.pause_queue("queue-00007").await.unwrap();
    assert!(client.queue("queue-00007").await.unwrap().paused);
}

#[tokio::test]
async fn stats_and_metrics_count_what_happened() {
    let server = Server::start();
    let client = server.client();
    let done = client.submit(&SubmitJob::named("noop")).await.unwrap().job_id;
    client.wait(done).await.unwrap();
    client.submit(&SubmitJob::named("nobody-runs-this")).await.unwrap();
    let stats = client.stats().await.unwrap();
    assert_eq!((stats.counters.submitted, stats.counters.succeeded), (2, 1));
    assert_eq!((stats.workers.len(), stats.workers[0].worker_id.as_str()), (1, "embedded"));
    let lane = stats.queues.iter().find(|lane| lane.job_type == "nobody-runs-this").unwrap();
    assert_eq!((lane.queue.as_str(), lane.queued), ("default", 1));

    let (status, text) = server.get("/metrics").await;
    let text = text.as_str().unwrap();
    assert_eq!(status, StatusCode::OK);
    assert!(text.contains("\npunctual_jobs_submitted_total 2\n"), "{text}");
    let queued = "punctual_executions{queue=\"default\",job_type=\"nobody-runs-this\",state=\"queued\"} 1\n";
    assert!(text.contains(queued), "{text}");
}

#[tokio::test]
async fn jobs_are_found_by_tags_schedule_type_and_text() {
    let server = Server::start();
    let client = server.client();
    let eu = server.submit(json!({"name": "Invoices", "job_type": "noop", "tags": ["eu", "mail"]})).await;
    let us = server.submit(json!({"name": "invoices-us", "job_type": "noop", "tags": ["us", "mail"]})).await;
    let daily = json!({"name": "report", "job_type": "noop", "interval": "1h", "tags": ["eu"]});
    let daily = server.submit(daily).await;
    let found = async |filter: JobFilter| -> Vec<JobId> {
        client.jobs(&filter).await.unwrap().items.into_iter().map(|job| job.job_id).collect()
    };
    let tagged = |tags: &[&str]| JobFilter {
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..JobFilter::default()
    };
    assert_eq!(found(tagged(&["mail"])).await, [us, eu]);
    assert_eq!(found(tagged(&["eu", "mail"])).await, [eu]);
    let text = |text: &str| JobFilter { text: Some(text.to_owned()), ..JobFilter::default() };
    assert_eq!(found(text("INVOICE")).await, [us, eu]);
    assert_eq!(found(text(&daily.to_string())).await, [daily]);
    assert_eq!(found(JobFilter { tags: vec!["eu".to_owned()], ..text("invoice") }).await, [eu]);
    let recurring = Some(punctual_client::ScheduleType::Recurring);
    assert_eq!(found(JobFilter { schedule_type: recurring, ..JobFilter::default() }).await, [daily]);

    for (query, said) in [
        ("schedule_type=weekly", "schedule_type must be one of IMMEDIATE, ONE_TIME, RECURRING"),
        ("tags=eu", "did you mean tag?"),
        ("status=done", "status must be one of ACTIVE"),
    ] {
        let (status, problem) = server.get(&format!("/api/v1/jobs?{query}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{query}: {problem}");
        assert!(problem["detail"].as_str().unwrap().contains(said), "{query}: {problem}");
    }
    let listed = server.said(&["job", "list", "--tag", "eu", "--schedule-type", "recurring", "-q", "REP"]);
    assert!(listed.contains(&daily.to_string()) && !listed.contains(&eu.to_string()), "{listed}");
}
