//! Calendars, recurrence rules, and single occurrences of recurring jobs, on a driven clock.

use crate::driven::{DAY, HOUR, advance, at, standing_at, standing_in};
use crate::server::{Server, answer};
use punctual_client::{ExecutionStatus, SkipRangeBody};
use punctual_core::ids::JobId;
use punctual_core::schedule::SkipReason;
use punctual_core::time::Timestamp;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

async fn put(server: &Server, name: &str, body: &Value) -> (StatusCode, Value) {
    let path = format!("/api/v1/calendars/{name}");
    answer(
        server.request(Method::PUT, &path).body(body.to_string()).header("content-type", "application/json"),
    )
    .await
}

fn weekend() -> Value {
    json!({"timezone": "Europe/Berlin", "entries": [{"weekdays": ["SAT", "SUN"]}]})
}

/// A job for every noon in Berlin.
fn noon(calendars: &[&str]) -> Value {
    json!({"name": "noon", "job_type": "noop", "cron_expression": "0 12 * * *", "timezone": "Europe/Berlin",
        "calendars": calendars})
}

/// The days of May on which a job has run, and what was skipped.
async fn ran(server: &Server, job: JobId) -> (Vec<String>, Vec<(u64, SkipReason)>) {
    let page = server.client().executions(job, Some(1_000), None).await.unwrap();
    let day = |time: Timestamp| time.to_string()[8..10].to_owned();
    let days = page.items.iter().rev().inspect(|run| assert_eq!(run.status, ExecutionStatus::Succeeded));
    let days = days.map(|run| day(run.scheduled_time)).collect();
    let skipped = page.skipped.iter().rev().map(|SkipRangeBody { count, reason, .. }| (*count, *reason));
    (days, skipped.collect())
}

#[tokio::test]
async fn a_calendar_skips_days_in_runs_previews_and_history() {
    // A Friday.
    let server = standing_at(at("2026-05-01T00:00:00Z"));
    let (status, refused) = server.post("/api/v1/jobs", &noon(&["closed"]).to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert!(refused.to_string().contains("calendars[0]"), "{refused}");
    let (status, stored) = put(&server, "closed", &weekend()).await;
    assert_eq!(
        (status, &stored["version"], &stored["mode"]),
        (StatusCode::CREATED, &json!(1), &json!("exclude"))
    );
    let job = server.submit(noon(&["closed"])).await;
    let path = format!("/api/v1/jobs/{job}");
    let next = server.get(&format!("{path}/next?count=4")).await.1;
    let marks: Vec<&Value> =
        next["occurrences"].as_array().unwrap().iter().map(|one| &one["excluded_by"]).collect();
    assert_eq!(marks, [&Value::Null, &json!("closed"), &json!("closed"), &Value::Null], "{next}");
    let shown =
        server.said(&["schedule", "preview", "--cron", "0 12 * * *", "--calendar", "closed", "--count", "3"]);
    assert!(shown.contains("skipped: calendar closed"), "{shown}");

    advance(&server, at("2026-05-01T12:00:00Z")).await;
    let seen = server.get(&path).await.1;
    assert_eq!(
        seen["next_run_time"],
        json!("2026-05-04T10:00:00Z"),
        "the next run is the one that runs: {seen}"
    );
    assert!(seen["schedule_description"].as_str().unwrap().contains("calendar closed"), "{seen}");
    advance(&server, at("2026-05-05T12:00:00Z")).await;
    assert_eq!(
        ran(&server, job).await,
        (["01", "04", "05"].map(str::to_owned).to_vec(), vec![(2, SkipReason::Calendar)])
    );
    let told = server.said(&["job", "explain", &job.to_string()]);
    assert!(told.contains("closed"), "{told}");

    // A change applies from the next occurrence on.
    let holiday =
        json!({"timezone": "Europe/Berlin", "entries": [{"dates": ["05-06", "2026-05-08/2026-05-09"]}]});
    assert_eq!(put(&server, "closed", &holiday).await.1["version"], json!(2));
    advance(&server, at("2026-05-10T12:00:00Z")).await;
    let (days, skipped) = ran(&server, job).await;
    assert_eq!(days, ["01", "04", "05", "07", "10"]);
    assert_eq!(skipped, [(2, SkipReason::Calendar), (1, SkipReason::Calendar), (2, SkipReason::Calendar)]);
}

#[tokio::test]
async fn several_calendars_apply_together_and_one_in_use_cannot_be_removed() {
    let server = standing_at(at("2026-05-01T00:00:00Z"));
    put(&server, "weekend", &weekend()).await;
    let import = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:Day off\nDTSTART;VALUE=DATE:20200504\nRRULE:FREQ=YEARLY\nEND:VEVENT\n\
        BEGIN:VEVENT\nSUMMARY:Odd\nDTSTART;VALUE=DATE:20200504\nRRULE:FREQ=HOURLY\nEND:VEVENT\nEND:VCALENDAR\n";
    let file = server.data_dir().join("holidays.ics");
    std::fs::write(&file, import).unwrap();
    let output = server.cli(&[
        "calendar",
        "import",
        "holidays",
        "--timezone",
        "Europe/Berlin",
        "-f",
        file.to_str().unwrap(),
    ]);
    let (out, warned) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.code() == Some(4) && out.contains("1 entries") && warned.contains("Odd was left out"),
        "{out} {warned}"
    );
    let job = server.submit(noon(&["weekend", "holidays"])).await;
    advance(&server, at("2026-05-06T00:00:00Z")).await;
    assert_eq!(
        ran(&server, job).await,
        (["01", "05"].map(str::to_owned).to_vec(), vec![(3, SkipReason::Calendar)])
    );

    let remove = async || answer(server.request(Method::DELETE, "/api/v1/calendars/holidays")).await;
    let (status, refused) = remove().await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains(&format!("noon ({job})")), "{refused}");
    let (status, changed) =
        server.patch(&format!("/api/v1/jobs/{job}"), &json!({"calendars": ["weekend"]})).await;
    assert_eq!((status, &changed["calendars"]), (StatusCode::OK, &json!(["weekend"])), "{changed}");
    let path = format!("/api/v1/jobs/{job}");
    let (status, changed) = server.patch(&path, &json!({"calendar": "holidays"})).await;
    assert_eq!((status, &changed["calendars"]), (StatusCode::OK, &json!(["holidays"])), "{changed}");
    let (status, changed) = server.patch(&path, &json!({"calendar": ["weekend"]})).await;
    assert_eq!((status, &changed["calendars"]), (StatusCode::OK, &json!(["weekend"])), "{changed}");
    let (status, channel) = answer(server.request(Method::PUT, "/api/v1/channels/ops").json(&json!({
        "type": "slack", "url": "https://hooks.example.org/1",
        "mute": {"calendars": ["holidays"], "then": "drop"},
    })))
    .await;
    assert_eq!(status, StatusCode::CREATED, "{channel}");
    let (status, refused) = remove().await;
    let detail = refused["detail"].as_str().unwrap();
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    assert!(detail.starts_with("the calendar holidays is in use by channel ops:"), "{detail}");
    server.said(&["calendar", "remove", "holidays", "--force"]);
    assert_eq!(remove().await.0, StatusCode::NOT_FOUND);
    let listed = server.said(&["calendar", "list"]);
    assert!(listed.contains("weekend") && !listed.contains("holidays"), "{listed}");
    let shown = server.said(&["calendar", "show", "weekend"]);
    assert!(shown.contains("SAT, SUN") && shown.contains("jobs do not run at these times"), "{shown}");
}

/// Weekdays at nine in Berlin, which is eight in UTC, and every four hours from midnight UTC.
fn two_schedules() -> Value {
    json!([
        {"name": "office", "cron_expression": "0 9 * * MON-FRI", "timezone": "Europe/Berlin"},
        {"interval": "4h", "start_at": "2026-01-05T00:00:00Z"},
    ])
}

#[tokio::test]
async fn a_job_with_several_schedules_runs_at_their_union() {
    // A Monday.
    let server = standing_at(at("2026-01-05T00:00:00Z"));
    let job =
        json!({"name": "both", "job_type": "noop", "schedules": two_schedules(), "overlap_policy": "ALLOW"});
    let id = server.submit(job.clone()).await;
    let path = format!("/api/v1/jobs/{id}");
    let (_, stored) = server.get(&path).await;
    assert_eq!(stored["schedules"], two_schedules(), "{stored}");
    let (_, next) = server.get(&format!("{path}/next?count=4")).await;
    let shown: Vec<_> = next["occurrences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            (one["local_time"].as_str().unwrap().to_owned(), one["schedule"].as_str().map(str::to_owned))
        })
        .collect();
    let expected = [
        ("2026-01-05T04:00:00+00:00", None),
        ("2026-01-05T09:00:00+01:00", Some("office")),
        ("2026-01-05T12:00:00+00:00", None),
        ("2026-01-05T16:00:00+00:00", None),
    ];
    assert_eq!(shown, expected.map(|(time, name)| (time.to_owned(), name.map(str::to_owned))));

    advance(&server, at("2026-01-05T13:00:00Z")).await;
    let ran = server.client().executions(id, None, None).await.unwrap().items;
    assert_eq!(ran.len(), 3, "two schedules at eight o'clock are one run: {ran:?}");
    let (status, same) = answer(
        server
            .request(Method::PUT, "/api/v1/jobs/by-name/kept")
            .body(json!({"job_type": "noop", "schedules": two_schedules()}).to_string())
            .header("content-type", "application/json"),
    )
    .await;
    assert_eq!(status, StatusCode::CREATED, "{same}");
    let exported = server.said(&["export", "-o", "yaml"]);
    let file = server.data_dir().join("jobs.yaml");
    std::fs::write(&file, &exported).unwrap();
    let planned = server.cli(&["plan", "-f", file.to_str().unwrap()]);
    let told = String::from_utf8_lossy(&planned.stdout).into_owned();
    // The other one only gets its name.
    assert!(told.contains("0 to create, 1 to update, 0 to delete, 1 unchanged"), "{told}\n{exported}");
    assert!(!told.contains("kept"), "what is exported changes nothing: {told}");

    let (status, cron) = server.patch(&path, &json!({"cron_expression": "0 5 * * *"})).await;
    assert_eq!((status, cron.get("schedules")), (StatusCode::OK, None), "{cron}");
    for (bad, field) in [
        (json!({"schedules": []}), "schedules"),
        (json!({"schedules": [{"interval": "30s"}]}), "schedules"),
        (json!({"schedules": [{"cron_expression": "x"}]}), "schedules[0].cron_expression"),
        (json!({"schedules": [{"interval": "1h", "rrule": "FREQ=DAILY"}]}), "schedules[0].cron_expression"),
        (json!({"schedules": [{"interval": "1h", "timezone": "Berlin"}]}), "schedules[0].timezone"),
        (json!({"schedules": two_schedules(), "interval": "1h"}), "interval"),
        (json!({"schedules": two_schedules(), "dst_gap": "SKIP"}), "dst_gap"),
    ] {
        let mut body = bad.clone();
        body["name"] = json!("bad");
        let (status, refused) = server.post("/api/v1/jobs", &body.to_string()).await;
        let fields: Vec<_> =
            refused["errors"].as_array().unwrap().iter().map(|error| &error["field"]).collect();
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{bad}: {refused}");
        assert!(fields.contains(&&json!(field)), "{bad}: {refused}");
    }
}

#[tokio::test]
async fn calendar_is_another_spelling_of_calendars() {
    let server = Server::start();
    put(&server, "weekend", &weekend()).await;
    let mut job = noon(&[]);
    job.as_object_mut().unwrap().remove("calendars");
    job["calendar"] = json!("weekend");
    let id = server.submit(job.clone()).await;
    let (_, stored) = server.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!((&stored["calendars"], stored.get("calendar")), (&json!(["weekend"]), None), "{stored}");
    let preview = json!({"cron_expression": "0 12 * * *", "calendar": ["weekend"], "count": 7}).to_string();
    let (_, preview) = server.post("/api/v1/schedules/preview", &preview).await;
    let excluded = preview["occurrences"].as_array().unwrap().iter();
    assert_eq!(excluded.filter(|one| one["excluded_by"] == "weekend").count(), 2, "{preview}");
    job["calendars"] = json!(["weekend"]);
    let (status, refused) = server.post("/api/v1/jobs", &job.to_string()).await;
    assert_eq!(
        (status, &refused["errors"][0]["field"]),
        (StatusCode::UNPROCESSABLE_ENTITY, &json!("calendar"))
    );
}

#[tokio::test]
async fn bad_calendars_are_refused_with_the_field() {
    let server = Server::start();
    for (body, field) in [
        (json!({"entries": [{"weekdays": ["SATURNDAY"]}]}), "entries[0].weekdays[0]"),
        (json!({"entries": [{"dates": ["2026-13-01"]}]}), "entries[0].dates[0]"),
        (json!({"entries": [], "timezone": "Mars"}), "timezone"),
        (json!({"mode": "maybe", "entries": [{"dates": ["12-25"]}]}), "mode"),
        (json!({"icalendar": "nothing"}), "icalendar"),
        (json!({}), "entries"),
    ] {
        let (status, refused) = put(&server, "bad", &body).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
        assert!(refused["errors"].to_string().contains(field), "{field}: {refused}");
    }
    assert_eq!(server.get("/api/v1/calendars").await.1["items"], json!([]));
}

#[tokio::test]
async fn the_next_run_can_be_skipped_or_moved() {
    let directory = tempfile::tempdir().unwrap();
    let server = standing_in(directory.path(), at("2026-05-01T00:00:00Z"));
    let daily = json!({"name": "daily", "job_type": "noop", "cron_expression": "0 12 * * *"});
    let job = server.submit(daily).await;
    let said = server.said(&["job", "skip-next", "daily"]);
    assert!(said.contains("it runs again at 2026-05-02T12:00:00Z"), "{said}");
    let path = format!("/api/v1/jobs/{job}/run-next-at");
    let (status, refused) = server.post(&path, &json!({"at": "2026-05-03T12:00:00Z"}).to_string()).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let (status, moved) = server.post(&path, &json!({"at": "2026-05-02T18:00:00Z"}).to_string()).await;
    assert_eq!(status, StatusCode::CREATED, "{moved}");
    let told = server.get(&format!("/api/v1/jobs/{job}/explain")).await.1.to_string();
    assert!(told.contains("2026-05-02T18:00:00Z"), "{told}");
    server.kill();

    let server = standing_in(directory.path(), at("2026-05-01T00:00:00Z"));
    advance(&server, at("2026-05-03T13:00:00Z")).await;
    let page = server.client().executions(job, None, None).await.unwrap();
    let runs: Vec<(String, String, bool)> = page
        .items
        .iter()
        .rev()
        .map(|run| (run.scheduled_time.to_string(), run.started_at.unwrap().to_string(), run.moved))
        .collect();
    let run = |scheduled: &str, started: &str, moved| (scheduled.to_owned(), started.to_owned(), moved);
    assert_eq!(
        runs,
        [
            run("2026-05-02T12:00:00Z", "2026-05-02T18:00:00Z", true),
            run("2026-05-03T12:00:00Z", "2026-05-03T12:00:00Z", false),
        ]
    );
    let [skipped] = &page.skipped[..] else { panic!("{:?}", page.skipped) };
    assert_eq!((skipped.first, skipped.reason), (at("2026-05-01T12:00:00Z"), SkipReason::Requested));
    let once = server.submit(json!({"name": "once", "job_type": "noop", "delay": "1h"})).await;
    assert_eq!(server.post(&format!("/api/v1/jobs/{once}/skip-next"), "").await.0, StatusCode::CONFLICT);
}

#[tokio::test]
async fn a_past_range_is_filled_in_at_its_rate() {
    let server = standing_at(at("2026-05-01T00:30:00Z"));
    put(&server, "morning", &json!({"entries": [{"times": ["05:00-07:00"]}]})).await;
    let hourly = json!({"name": "hourly", "job_type": "noop", "cron_expression": "0 * * * *", "calendars": ["morning"],
        "overlap_policy": "ALLOW"});
    let job = server.submit(hourly).await;
    advance(&server, at("2026-05-01T10:30:00Z")).await;
    let path = format!("/api/v1/jobs/{job}/backfill");
    let range =
        json!({"from": "2026-05-01T04:00:00Z", "to": "2026-05-01T23:00:00Z", "rate": "1/m", "dry_run": true});
    let (status, plan) = server.post(&path, &range.to_string()).await;
    assert_eq!(status, StatusCode::OK, "{plan}");
    assert_eq!((&plan["count"], &plan["last"]), (&json!(5), &json!("2026-05-01T10:00:00Z")));
    assert_eq!(plan["excluded"], json!(2));
    assert_eq!(plan["occurrences"][1]["excluded_by"], json!("morning"));
    assert_eq!(server.client().executions(job, None, None).await.unwrap().items.len(), 8);

    let said = server.said(&[
        "job",
        "backfill",
        "hourly",
        "--from",
        "2026-05-01T04:00:00Z",
        "--to",
        "2026-05-01T23:00:00Z",
        "--limit",
        "6",
        "--rate",
        "1/m",
    ]);
    assert!(said.contains("backfill of 4 occurrences"), "{said}");
    assert!(said.ends_with(" started; calendars exclude 2 more\n"), "{said}");
    let (status, refused) = server.post(&path, &range.to_string().replace("true", "false")).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    advance(&server, at("2026-05-01T10:50:00Z")).await;
    let page = server.client().executions(job, None, None).await.unwrap();
    let filled: Vec<_> =
        page.items.iter().filter(|run| json!(run.origin) == json!("backfill")).rev().collect();
    let scheduled: Vec<String> =
        filled.iter().map(|run| run.scheduled_time.to_string()[11..13].to_owned()).collect();
    assert_eq!(scheduled, ["04", "07", "08", "09"], "what the calendar excludes is left out");
    let started: Vec<_> =
        filled.iter().map(|run| run.started_at.unwrap().to_string()[11..16].to_owned()).collect();
    assert_eq!(started, ["10:30", "10:31", "10:32", "10:33"]);
    assert_eq!(page.skipped.len(), 1, "a backfill records no skips");
}

#[tokio::test]
async fn a_recurrence_rule_fires_previews_and_is_exported_as_it_was_given() {
    let server = standing_at(at("2026-05-01T00:00:00Z"));
    let rule = "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=18;BYMINUTE=0;BYSECOND=0";
    let job = json!({"name": "last-friday", "job_type": "noop", "rrule": rule, "timezone": "Europe/Berlin"});
    let id = server.submit(job).await;
    let next = server.get(&format!("/api/v1/jobs/{id}/next?count=2")).await.1;
    let times: Vec<&Value> =
        next["occurrences"].as_array().unwrap().iter().map(|one| &one["scheduled_time"]).collect();
    assert_eq!(times, [&json!("2026-05-29T16:00:00Z"), &json!("2026-06-26T16:00:00Z")], "{next}");
    assert!(next["description"].as_str().unwrap().contains("the last Friday at 18:00"), "{next}");
    advance(&server, at("2026-05-01T00:00:00Z").plus(30 * DAY + HOUR)).await;
    assert_eq!(ran(&server, id).await.0, ["29"]);
    let exported = server.said(&["export", "-o", "yaml"]);
    assert!(exported.contains(rule) && exported.contains("start_at"), "{exported}");
    let file = server.data_dir().join("jobs.yaml");
    std::fs::write(&file, &exported).unwrap();
    let plan = server.cli(&["plan", "-f", file.to_str().unwrap()]);
    let shown = format!("{}{}", String::from_utf8_lossy(&plan.stdout), String::from_utf8_lossy(&plan.stderr));
    assert!(!shown.contains("rrule"), "the schedule does not change: {shown}");
    let (status, refused) =
        server.post("/api/v1/jobs", &json!({"name": "x", "rrule": "FREQ=HOURLY"}).to_string()).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused["errors"][0]["field"] == "rrule" && refused.to_string().contains("FREQ"), "{refused}");
}
