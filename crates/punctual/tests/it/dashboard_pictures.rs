//! How the dashboard looks, in a real browser: the layout of its pages in both themes, in print and for people who use a
//! keyboard or a screen reader. `UPDATE_DOCS=1` writes the references, and the pictures of the guide.

use crate::dashboard::origin;
use crate::real_browser::Chromium;
use crate::server::{PATIENCE, Server, eventually};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Instant;

/// Thousandths of a picture that may differ: fonts and the ids of jobs do.
const UNLIKE_MAX: u64 = 15;
const REFERENCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/pictures");
const PICTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/pictures");
/// The width of pictures in the guide.
const GUIDE_PX: u64 = 900;

fn is_update() -> bool {
    std::env::var_os("UPDATE_DOCS").is_some()
}

/// A server whose time stands still, with jobs of each kind. Returns the ids of a job and of an execution with a log.
async fn frozen() -> (Server, String, String) {
    let server = Server::start_with(&[
        "--clock",
        "manual",
        "--clock-start",
        "2027-03-25T06:00:00Z",
        "--allow",
        "shell",
    ]);
    let nightly = json!({"name": "nightly-report", "job_type": "noop", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin", "tags": ["finance"], "queue": "reports"});
    let nightly = server.submit(nightly).await;
    server
        .submit(json!({"name": "sync-customers", "job_type": "noop", "interval": "15m", "queue": "sync"}))
        .await;
    server.submit(json!({"name": "invoice-run", "job_type": "noop", "cron_expression": "0 9 * * MON-FRI", "queue": "billing"})).await;
    server.submit(json!({"name": "import-orders", "job_type": "sleep", "payload": {"wrong": true}, "interval": "6h", "max_retries": 0, "queue": "sync"})).await;
    for number in 1..=6 {
        server.submit(json!({"name": format!("resize-image-{number}"), "job_type": "ImageProcessing", "queue": "images", "priority": if number > 4 { 9 } else { 3 }})).await;
    }
    let script = "for i in $(seq 1 40); do echo \"copied batch $i of 40\"; done; echo 'warning: 2 rows without a customer' >&2";
    let talks = server
        .submit(json!({"name": "copy-archive", "job_type": "shell", "payload": {"script": script}}))
        .await;
    let put = async |path: &str, body: Value| {
        let sent = server.request(Method::PUT, path).json(&body).send().await.expect("an answer");
        assert!(sent.status().is_success(), "{path}");
    };
    put("/api/v1/channels/ops", json!({"type": "webhook", "url": "https://example.org/hook"})).await;
    put("/api/v1/notifications/rules/failures", json!({"events": ["worker_lost"], "channels": ["ops"]}))
        .await;
    // A step ends after a while on a slow machine.
    loop {
        let (status, moved) = server.post("/api/v1/clock/advance", r#"{"to": "2027-03-26T08:00:00Z"}"#).await;
        assert!(status.is_success(), "{moved}");
        if moved["more"] == false {
            break;
        }
    }
    eventually("everything has run", async || {
        let live = &server.get("/api/v1/stats").await.1["live"];
        live["running"] == 0 && live["queued"] == 6
    })
    .await;
    eventually("figures", async || {
        let path = "/api/v1/series?metric=executions&by=all&since=2027-03-25T06:00:00Z";
        server.get(path).await.1["series"][0]["executions"].as_u64().is_some_and(|ended| ended >= 108)
    })
    .await;
    (server, nightly.to_string(), format!("{talks}.1.1"))
}

#[tokio::test]
async fn pages_look_as_they_did_in_both_themes() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, job, execution) = frozen().await;
    let origin = origin(&server);
    chromium.begin(json!({"viewport": {"width": 1280, "height": 860}, "timezoneId": "Europe/Berlin", "reducedMotion": "reduce"}));
    chromium.enter(&origin, &server.token);
    let pages = [
        ("overview", "?range=1d".to_owned(), "section:has-text('Just finished') li"),
        ("jobs", "jobs?sort=name".to_owned(), "tr:has-text('sync-customers')"),
        ("job", format!("jobs/{job}"), "table.fires tr >> nth=20"),
        ("execution", format!("executions/{execution}"), ".log .line:has-text('batch 40')"),
        ("calendar", "calendar?day=2027-03-28".to_owned(), ".column header:has-text('23 h')"),
        ("queue", "queues/images".to_owned(), "section:has-text('Next to start') li"),
        ("queues", "queues".to_owned(), "tr:has-text('images')"),
        ("alerts", "alerts?tab=rules".to_owned(), "tr:has-text('failures')"),
    ];
    let mut unlike = Vec::new();
    for theme in ["light", "dark"] {
        chromium.evaluate(&format!("localStorage.setItem('punctual.theme', '\"{theme}\"')"));
        for (name, page, what) in &pages {
            chromium.see(&origin, page);
            chromium.find(what);
            // Charts are drawn when their figures are there.
            chromium.find("main:not(:has-text('Reading…'))");
            let path = format!("{REFERENCES}/{name}-{theme}.webp");
            let layout = json!({"step": "layout", "path": path, "write": is_update()});
            // Some parts of a page are read after others.
            let start = Instant::now();
            let unlike_in = loop {
                let thousandths = chromium.done(layout.clone());
                let is_alike = thousandths.as_u64().is_some_and(|share| share <= UNLIKE_MAX);
                if is_alike || start.elapsed() > PATIENCE {
                    break (!is_alike).then_some(thousandths);
                }
            };
            if let Some(thousandths) = unlike_in {
                unlike.push(format!("{name} in {theme}: {thousandths} thousandths"));
            }
            if is_update() && theme == "light" && ["job", "execution", "calendar", "queue"].contains(name) {
                let path = format!("{PICTURES}/dashboard-{name}.webp");
                chromium.done(json!({"step": "picture", "path": path, "width": GUIDE_PX}));
            }
        }
    }
    assert_eq!(unlike, [""; 0], "look at the pages, and run with UPDATE_DOCS=1 if they are right");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn what_opens_over_a_page_has_no_faults_and_obeys_the_keyboard() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    chromium.open(&format!("{origin}/ui/"));
    chromium.find("#token");
    for theme in ["light", "dark", "contrast"] {
        chromium.evaluate(&format!("localStorage.setItem('punctual.theme', '\"{theme}\"'); document.documentElement.dataset.theme = '{theme}'"));
        assert_eq!(chromium.faults(), json!([]), "login in {theme}");
    }
    chromium.enter(&origin, &server.token);
    // An empty server greets, and says how to add a worker in each language.
    chromium.find("h2:has-text('Three things to try')");
    for (language, word) in
        [("Python", "HANDLERS"), ("Rust", "Worker::builder"), ("Any language", "/worker/poll")]
    {
        chromium.click(&format!("[aria-label=Language] button:has-text('{language}')"));
        chromium.find(&format!("pre[aria-label=Example]:has-text('{word}')"));
    }
    for theme in ["light", "dark", "contrast"] {
        chromium.evaluate(&format!("localStorage.setItem('punctual.theme', '\"{theme}\"')"));
        chromium.see(&origin, "");
        assert_eq!(chromium.faults(), json!([]), "greeting in {theme}");
        chromium.press("Control+k");
        chromium.find("dialog li");
        assert_eq!(chromium.faults(), json!([]), "palette in {theme}");
        chromium.press("Escape");
        chromium.press("?");
        chromium.find("dialog:has-text('Keyboard shortcuts')");
        assert_eq!(chromium.faults(), json!([]), "keys in {theme}");
        chromium.press("Escape");
        chromium.click("button[aria-label='Account']");
        chromium.find(".popup .item");
        assert_eq!(chromium.faults(), json!([]), "menu in {theme}");
        chromium.press("Escape");
        for (page, button) in [
            ("alerts?tab=rules", "New rule"),
            ("alerts?tab=channels", "New channel"),
            ("access", "New token"),
        ] {
            chromium.see(&origin, page);
            chromium.click(&format!("main button:has-text('{button}')"));
            chromium.find("dialog form");
            assert_eq!(chromium.faults(), json!([]), "{button} in {theme}");
            chromium.press("Escape");
        }
    }
    // The first job, without a mouse.
    chromium.see(&origin, "");
    chromium.evaluate("[...document.querySelectorAll('.tries button')][1].focus()");
    chromium.press("Enter");
    chromium.find("h1:has-text('heartbeat')");
    chromium.press("Tab");
    for _ in 0..4 {
        if chromium.evaluate("document.activeElement.textContent === 'Pause'") == true {
            break;
        }
        chromium.press("Tab");
    }
    assert_eq!(
        chromium.evaluate("document.activeElement.textContent"),
        "Pause",
        "the first tabs of a page lead to its actions"
    );
    let ring = "getComputedStyle(document.activeElement).outlineStyle";
    assert_eq!(chromium.evaluate(ring), "solid", "the focus is visible");
    chromium.press("Enter");
    chromium.find("dialog[open] button:focus");
    chromium.press("Escape");
    chromium.find("body:not(:has(dialog))");
    assert_eq!(chromium.evaluate("document.activeElement.textContent"), "Pause", "the focus returns");
    chromium.press("Enter");
    chromium.find("dialog[open] button:focus");
    chromium.press("Tab");
    chromium.find("dialog button.primary:focus");
    chromium.press("Enter");
    chromium.find(".head .status:has-text('paused')");
    // Print shows the content alone; reduced motion moves nothing.
    chromium.done(json!({"step": "emulate", "media": {"media": "print", "reducedMotion": "reduce"}}));
    let hidden = "['.side', '.top', '.tabs'].every((part) => getComputedStyle(document.querySelector(part)).display === 'none')";
    assert_eq!(chromium.evaluate(hidden), true);
    assert!(chromium.text("main").contains("heartbeat"));
    let moves = "[...document.querySelectorAll('*')].filter((one) => getComputedStyle(one).animationName !== 'none' || parseFloat(getComputedStyle(one).transitionDuration) > 0).length";
    assert_eq!(chromium.evaluate(moves), 0);
    // A viewer is not offered to try anything.
    let other = Server::start();
    let (_, token) = other.post("/api/v1/tokens", r#"{"name": "looker", "role": "viewer"}"#).await;
    chromium.begin(json!({}));
    let origin = crate::dashboard::origin(&other);
    chromium.enter(&origin, token["secret"].as_str().expect("a secret"));
    chromium.find("h2:has-text('There are no jobs yet')");
    assert!(!chromium.text("main").contains("Try it"));
    assert_eq!(chromium.errors(), json!([]));
}
