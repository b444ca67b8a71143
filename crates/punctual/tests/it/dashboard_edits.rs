//! What people change with the dashboard, in a real browser: nothing is lost that a form does not show, and each action
//! does what it says.

use crate::dashboard::{busy, origin};
use crate::real_browser::Chromium;
use crate::server::{Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

impl Chromium {
    pub fn select(&mut self, what: &str, value: &str) {
        self.done(json!({"step": "select", "what": what, "value": value}));
    }

    pub fn back(&mut self) {
        self.done(json!({"step": "back"}));
    }

    /// Continues in a new browser profile, without a login.
    pub fn begin(&mut self, options: Value) {
        assert_eq!(self.errors(), json!([]));
        self.done(json!({"step": "context", "options": options}));
    }

    /// Chooses an action in the menu with this label.
    fn choose(&mut self, menu: &str, action: &str) {
        self.click(&format!("button[aria-label='{menu}']"));
        self.click(&format!(".popup .item:has-text('{action}')"));
    }

    fn confirm(&mut self) {
        self.click("dialog button.primary");
        self.find("body:not(:has(dialog))");
    }
}

async fn put(server: &Server, path: &str, body: Value) -> Value {
    let (status, stored) = answer(server.request(Method::PUT, path).json(&body)).await;
    assert!(status.is_success(), "{path}: {stored}");
    stored
}

/// The dashboard edits all fields that the API has: one that it does not know would be lost.
#[test]
fn the_job_form_knows_every_field_of_a_job() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = std::fs::read_to_string(format!("{root}/dashboard/definition.js")).expect("a script");
    let fields = script.split("export const FIELDS = {").nth(1).and_then(|rest| rest.split("};").next());
    let known: BTreeSet<&str> = fields
        .expect("a list")
        .split(", ")
        .filter_map(|field| field.split_once(": "))
        .map(|(name, _)| name.trim())
        .collect();
    let document = std::fs::read_to_string(format!("{root}/docs/openapi.json")).expect("a document");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let submitted = document["components"]["schemas"]["SubmitJob"]["properties"].as_object().expect("fields");
    // A job shows a delay as its time, and one calendar as a list.
    let expected: BTreeSet<&str> =
        submitted.keys().map(String::as_str).filter(|name| !["delay", "calendar"].contains(name)).collect();
    assert_eq!(known, expected);
}

#[tokio::test]
async fn an_edit_keeps_what_the_forms_do_not_show() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    let schedules = json!([{"cron_expression": "0 9 * * MON-FRI"}, {"cron_expression": "0 11 * * SAT", "timezone": "UTC"}]);
    let job = json!({"name": "office", "job_type": "noop", "schedules": schedules, "timezone": "Europe/Berlin",
        "max_open": 7, "jitter": "30s"});
    let job = server.submit(job).await;
    let path = format!("/api/v1/jobs/{job}");
    let (_, before) = server.get(&path).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, &format!("jobs/{job}/edit"));
    chromium.find(".segmented [aria-current=true]:has-text('Several')");
    chromium.find("section:has-text('When it runs') tbody tr >> nth=11");
    chromium.fill("form textarea >> nth=0", r#"{"edited": true}"#);
    chromium.click("form button.primary");
    chromium.find("pre[aria-label=Payload]:has-text('edited')");
    let (_, mut after) = server.get(&path).await;
    assert_eq!((&after["payload"], &after["version"]), (&json!({"edited": true}), &json!(2)));
    for changed in ["payload", "version", "updated_at"] {
        after[changed] = before[changed].clone();
    }
    assert_eq!(after, before);
    // A schedule that is changed shows its fires next to those before.
    chromium.see(&origin, &format!("jobs/{job}/edit"));
    chromium.fill("textarea >> nth=1", r#"[{"cron_expression": "0 7 * * *"}]"#);
    chromium.find("section:has-text('Before the change') tbody tr >> nth=11");
    chromium.find("section:has-text('When it runs') td.new >> nth=11");
    chromium.click("form button.primary");
    chromium.find("h1:has-text('office')");
    assert_eq!(server.get(&path).await.1["schedules"], json!([{"cron_expression": "0 7 * * *"}]));

    put(&server, "/api/v1/calendars/nights", json!({"entries": [{"times": ["00:00-06:00"]}]})).await;
    put(&server, "/api/v1/channels/hook", json!({"type": "webhook", "url": "https://example.org/hook"}))
        .await;
    let rule = json!({"events": ["failed", "running_long"], "channels": ["hook"], "failures": 3, "longer_than": "1h",
        "mute": {"calendars": ["nights"]}, "escalate": {"after": "15m", "to": "hook"}});
    let path = "/api/v1/notifications/rules/pager";
    let (status, stored) = answer(server.request(Method::PUT, path).json(&rule)).await;
    assert!(status.is_success(), "{stored}");
    let (_, mut before) = server.get(path).await;
    chromium.see(&origin, "alerts?tab=rules");
    chromium.choose("Actions on rule pager", "Change");
    chromium.fill("dialog input[name=events]", "failed, running_long, limit_full, node_not_ready");
    chromium.fill("dialog input[name=limit_full_for]", "10m");
    chromium.confirm();
    chromium.find("td:has-text('node_not_ready')");
    let (_, mut after) = server.get(path).await;
    assert_eq!(after["limit_full_for"], "10m");
    assert_eq!(after["events"], json!(["failed", "running_long", "limit_full", "node_not_ready"]));
    for rule in [&mut before, &mut after] {
        let fields = rule.as_object_mut().expect("an object");
        fields.retain(|name, _| !["events", "updated_at", "limit_full_for"].contains(&name.as_str()));
    }
    assert_eq!(after, before, "thresholds, quiet hours and escalation stay");
    // A channel of another kind asks for other settings.
    chromium.see(&origin, "alerts?tab=channels");
    chromium.click("button:has-text('New channel')");
    chromium.fill("dialog input[name=name]", "mail");
    chromium.select("dialog select[name=type]", "email");
    for (field, value) in
        [("host", "mail.example.org"), ("from", "p@example.org"), ("to", "a@example.org, b@example.org")]
    {
        chromium.fill(&format!("dialog input[name={field}]"), value);
    }
    chromium.confirm();
    chromium.find("td:has-text('mail')");
    let (_, mail) = server.get("/api/v1/channels/mail").await;
    assert_eq!(
        (&mail["type"], &mail["to"]),
        (&json!("email"), &json!(["a@example.org", "b@example.org"])),
        "{mail}"
    );
    assert_eq!(chromium.errors(), json!([]));
}

/// Browsers without a way to keep the text of numbers in JSON would round them.
#[tokio::test]
async fn numbers_stay_exact_in_browsers_that_would_round_them() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    let payload =
        r#"{"id":9007199254740993,"text":"9007199254740993 \"1e400\"","list":[0.1000000000000000055]}"#;
    let body = format!(r#"{{"name": "exact", "job_type": "noop", "payload": {payload}}}"#);
    let (status, made) = server.post("/api/v1/jobs", &body).await;
    assert_eq!(status, StatusCode::CREATED, "{made}");
    let path = format!("/api/v1/jobs/{}", made["job_id"].as_str().expect("an id"));
    let stored = async || {
        server.request(Method::GET, &path).send().await.expect("an answer").text().await.expect("a text")
    };
    let payload_of = |text: &str| {
        text.split("\"payload\":").nth(1).map(|rest| rest.split('}').next().unwrap_or_default().to_owned())
    };
    let before = payload_of(&stored().await);
    chromium.done(json!({"step": "before", "script": "delete JSON.rawJSON"}));
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, &format!("{}/edit", &path["/api/v1/".len()..]));
    assert_eq!(chromium.evaluate("'rawJSON' in JSON"), false);
    chromium.fill("input[name=name]", "still exact");
    chromium.click("form button.primary");
    chromium.find("h1:has-text('still exact')");
    chromium.find("pre:has-text('9007199254740993'):has-text('0.1000000000000000055')");
    assert_eq!(payload_of(&stored().await), before);
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn the_back_button_undoes_a_choice_but_not_each_letter() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    let query =
        |chromium: &mut Chromium| chromium.evaluate("location.pathname.split('/').at(-1) + location.search");
    chromium.see(&origin, "jobs");
    chromium.select("select[aria-label=Status]", "COMPLETED");
    chromium.find("tr:has-text('big')");
    chromium.select("select[aria-label=Order]", "name");
    chromium.fill("input[aria-label='Search jobs']", "big");
    chromium.press("Enter");
    chromium.find("tbody:not(:has-text('digest'))");
    assert_eq!(query(&mut chromium), "jobs?status=COMPLETED&sort=name&q=big");
    chromium.back();
    chromium.find("select[aria-label=Order]:has-text('Newest first')");
    assert_eq!(query(&mut chromium), "jobs?status=COMPLETED");
    chromium.back();
    chromium.find("tr:has-text('digest')");
    assert_eq!(query(&mut chromium), "jobs");
    chromium.see(&origin, "executions?status=SUCCEEDED");
    chromium.select("select[aria-label=Status]", "FAILED");
    chromium.find("tr:has-text('broken')");
    chromium.back();
    chromium.find("tr:has-text('big')");
    chromium.see(&origin, "");
    chromium.click(".segmented button:has-text('7 d')");
    chromium.find("section:has-text('Executions') .segmented [aria-current=true]:has-text('7 d')");
    chromium.back();
    chromium.find("section:has-text('Executions') .segmented [aria-current=true]:has-text('3 h')");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn each_action_on_a_job_does_what_it_says() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, _, execution) = busy().await;
    let origin = origin(&server);
    let daily = json!({"name": "daily", "job_type": "noop", "cron_expression": "0 9 * * *", "payload": {"day": 1}, "tags": ["a", "b"],
        "queue": "reports", "retry": {"strategy": "fixed", "delay": "5s"}});
    let job = server.submit(daily).await;
    let path = format!("/api/v1/jobs/{job}");
    chromium.enter(&origin, &server.token);
    // Trigger and rerun with another payload.
    chromium.see(&origin, &format!("jobs/{job}"));
    chromium.click(".head button:has-text('Run now')");
    chromium.fill("dialog textarea", r#"{"day": 12345678901234567890}"#);
    chromium.confirm();
    chromium.find(".head .status:has-text('succeeded')");
    chromium.find("section:has-text('Payload of this run') pre:has-text('12345678901234567890')");
    chromium.see(&origin, &format!("executions/{execution}"));
    chromium.click(".head button:has-text('Run again')");
    chromium.fill("dialog textarea", r#"{"again": true}"#);
    chromium.confirm();
    chromium.find("section:has-text('Payload of this run') pre:has-text('again')");
    chromium.find("dt:has-text('Repeats')");
    // The definition is what `punctual apply` takes.
    chromium.see(&origin, &format!("jobs/{job}?tab=definition"));
    let manifest = chromium.text("pre[aria-label=Definition]");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("jobs.yaml");
    std::fs::write(&file, manifest.replace("name: daily", "name: applied")).expect("written");
    let file = file.to_str().expect("a path");
    server.said(&["apply", "-f", file]);
    let (_, found) = server.get("/api/v1/jobs?name=applied").await;
    let (_, original) = server.get(&path).await;
    for field in ["cron_expression", "payload", "queue", "tags", "retry", "job_type"] {
        assert_eq!(found["items"][0][field], original[field], "{field}");
    }
    // Clone, cancel, delete.
    chromium.see(&origin, &format!("jobs/{job}"));
    chromium.choose("More actions", "Clone");
    chromium.find("h1:has-text('Clone a job')");
    chromium.click("form button.primary");
    chromium.find("h1:has-text('daily copy')");
    chromium.choose("More actions", "Cancel");
    chromium.find("dialog:has-text('cannot be resumed')");
    chromium.confirm();
    chromium.find(".head .status:has-text('cancelled')");
    chromium.choose("More actions", "Delete");
    chromium.find("dialog:has-text('cannot be undone')");
    chromium.confirm();
    chromium.find("h1 :text-is('Jobs')");
    // The page may have read the job once more after it was gone; the browser writes each 404 to its console.
    let errors = chromium.errors();
    let unexpected: Vec<&Value> = errors
        .as_array()
        .expect("a list")
        .iter()
        .filter(|error| !error.to_string().contains("404"))
        .collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
    let names = async |query: &str| -> Vec<String> {
        let (_, page) = server.get(&format!("/api/v1/jobs?{query}")).await;
        let items = page["items"].as_array().expect("a list").iter();
        items.map(|job| job["name"].as_str().expect("a name").to_owned()).collect()
    };
    assert!(names("q=daily").await == ["daily"], "the copy is gone");
    // Advice of the explanation is a button.
    let (status, _) = server.post(&format!("{path}/pause"), "{}").await;
    assert_eq!(status, StatusCode::OK);
    chromium.see(&origin, &format!("jobs/{job}?tab=why"));
    chromium.click("main button:has-text('Resume the job')");
    chromium.find(".head .status:has-text('active')");
    // Columns and orders.
    chromium.see(&origin, "jobs");
    chromium.choose("Columns", "Priority");
    chromium.find("th:has-text('Priority')");
    chromium.press("Escape");
    chromium.select("select[aria-label=Order]", "name");
    chromium.find("tbody tr >> nth=0 >> text=applied");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn each_action_on_the_server_does_what_it_says() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start_with(&["--clock", "manual", "--clock-start", "2027-03-26T12:00:00Z"]);
    let origin = origin(&server);
    server.submit(json!({"name": "hourly", "job_type": "noop", "interval": "1h"})).await;
    for number in 1..=20 {
        if number == 16 {
            let (status, moved) = server.post("/api/v1/clock/advance", r#"{"by": "1s"}"#).await;
            assert!(status.is_success(), "{moved}");
        }
        let priority = if number > 15 { 9 } else { 2 };
        server.submit(json!({"name": format!("waits {number}"), "job_type": "nobody", "queue": "mail", "priority": priority})).await;
    }
    chromium.enter(&origin, &server.token);
    // Queues: limits, the order of claims, pause.
    chromium.see(&origin, "queues");
    chromium.choose("Actions on mail", "Change limits");
    chromium.fill("dialog input[name=concurrency]", "3");
    chromium.fill("dialog input[name=weights]", "ann=3, bob=1");
    chromium.confirm();
    chromium.find("tr:has-text('mail'):has-text('concurrency 3')");
    chromium.see(&origin, "queues/mail");
    chromium.click(".head button:has-text('Pause')");
    chromium.confirm();
    chromium.find(".head .status:has-text('paused')");
    let (_, queue) = server.get("/api/v1/queues/mail").await;
    assert_eq!(
        (&queue["paused"], &queue["concurrency"], &queue["weights"]["ann"]),
        (&json!(true), &json!(3), &json!(3))
    );
    chromium.click(".head button:has-text('Resume')");
    chromium.confirm();
    chromium.find(".head .status:has-text('active')");
    // Without the limit, all are queued, in the order of claims.
    put(&server, "/api/v1/queues/mail", json!({})).await;
    let next = "/api/v1/executions?status=QUEUED&queue=mail&order=claim&limit=12";
    eventually("all are queued", async || {
        server.get(next).await.1["items"].as_array().is_some_and(|all| all.len() == 12)
    })
    .await;
    let (_, page) = server.get(next).await;
    let expected: Vec<Value> =
        page["items"].as_array().expect("a list").iter().map(|one| one["name"].clone()).collect();
    assert_eq!(expected[..5], ["waits 16", "waits 17", "waits 18", "waits 19", "waits 20"].map(Value::from));
    assert_eq!(expected[5..7], ["waits 1", "waits 2"].map(Value::from));
    for wrong in [
        "order=claim",
        "order=claim&status=QUEUED",
        "order=claim&queue=mail",
        "order=age&status=QUEUED&queue=mail",
        "ended_from=2027-01-01T00:00:00Z",
    ] {
        let (status, problem) = server.get(&format!("/api/v1/executions?{wrong}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {problem}");
    }
    chromium.see(&origin, "queues/mail");
    chromium.find("section:has-text('Next to start') li:has-text('priority or share')");
    let shown = "[...[...document.querySelectorAll('section')].find((one) => one.textContent.startsWith('Next to start')).querySelectorAll('li a.main')].map((link) => link.textContent)";
    assert_eq!(chromium.evaluate(shown), json!(expected));
    // Tokens and users: the secret is shown once.
    chromium.see(&origin, "access");
    chromium.click("main button:has-text('New token')");
    chromium.fill("dialog input[name=name]", "ci");
    chromium.click("dialog button.primary");
    chromium.find("dialog:has-text('pt_')");
    let secret = chromium.evaluate("document.querySelector('dialog').innerText.match(/pt_\\w+/)[0]");
    chromium.click("dialog button.primary");
    chromium.find("tr:has-text('ci')");
    assert!(!chromium.text("main").contains(secret.as_str().expect("a secret")));
    let own = server.anonymous(Method::GET, "/api/v1/me").bearer_auth(secret.as_str().expect("a secret"));
    assert_eq!(own.send().await.expect("an answer").status(), StatusCode::OK);
    // A worker is sent away.
    chromium.see(&origin, "workers");
    chromium.click("td.actions button");
    chromium.click(".popup .item:has-text('Pause')");
    chromium.confirm();
    chromium.find("tr:has-text('paused')");
    chromium.click("td.actions button");
    chromium.click(".popup .item:has-text('Drain')");
    chromium.find("dialog:has-text('cannot be undone')");
    chromium.confirm();
    chromium.find("section:has-text('Workers') tbody:not(:has-text('paused'))");
    // Silences.
    chromium.see(&origin, "alerts?tab=silences");
    chromium.click("button:has-text('New silence')");
    chromium.fill("dialog input[name=reason]", "<i>maintenance</i>");
    chromium.confirm();
    chromium.find("td:has-text('<i>maintenance</i>')");
    chromium.click("td.actions button:has-text('End')");
    chromium.find(".empty:has-text('Nothing is silenced')");
    // The clock moves only here.
    chromium.see(&origin, "simulator");
    let at = server.get("/api/v1/clock").await.1["now"].as_str().expect("a time").to_owned();
    assert!(at.starts_with("2027-03-26T12:00"), "{at}");
    chromium.find(".notice:has-text('manual clock')");
    chromium.click("main button:text-is('1h')");
    chromium.click("main button:has-text('Advance')");
    eventually("the clock has moved", async || {
        server.get("/api/v1/clock").await.1["now"].as_str().is_some_and(|now| now >= "2027-03-26T13")
    })
    .await;
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn two_people_with_different_roles_work_at_the_same_time() {
    let (Some(mut operator), Some(mut viewer)) = (Chromium::start(), Chromium::start()) else { return };
    let (server, job, _) = busy().await;
    let origin = origin(&server);
    let token = async |role: &str| {
        let (_, token) =
            server.post("/api/v1/tokens", &json!({"name": role, "role": role}).to_string()).await;
        token["secret"].as_str().expect("a secret").to_owned()
    };
    operator.enter(&origin, &token("operator").await);
    viewer.enter(&origin, &token("viewer").await);
    for chromium in [&mut operator, &mut viewer] {
        chromium.see(&origin, &format!("jobs/{job}"));
    }
    server.submit(json!({"name": "shared", "job_type": "noop", "interval": "1h"})).await;
    operator.see(&origin, "jobs?q=shared");
    viewer.see(&origin, "jobs?q=shared");
    operator.choose("Actions on shared", "Pause");
    operator.confirm();
    viewer.find("tr:has-text('shared') .status:has-text('paused')");
    assert_eq!(viewer.evaluate("document.querySelectorAll('main tbody button').length"), 0);
    // 200 failures at once: both see them, and nothing breaks.
    let failing: Vec<Value> = (0..200).map(|number| json!({"name": format!("fails {number}"), "job_type": "sleep", "payload": {"wrong": number}, "max_retries": 0, "tags": ["burst"]})).collect();
    operator.see(&origin, "");
    viewer.see(&origin, "");
    let (status, made) = server.post("/api/v1/jobs/batch", &json!({ "jobs": failing }).to_string()).await;
    assert!(status.is_success(), "{made}");
    for chromium in [&mut operator, &mut viewer] {
        chromium.find(".tile:has-text('Dead letters') .value:has-text('201')");
        chromium.find("section:has-text('Just finished') li:has-text('fails')");
    }
    operator.see(&origin, "executions?status=FAILED");
    operator.find("tr:has-text('fails')");
    for chromium in [&mut operator, &mut viewer] {
        assert_eq!(chromium.errors(), json!([]));
    }
}
