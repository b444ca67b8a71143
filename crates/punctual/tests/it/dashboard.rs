//! The dashboard in a real browser: every page, for several roles, with hostile data, and across a restart.

use crate::real_browser::Chromium;
use crate::server::{Server, eventually};
use punctual_client::ClientTls;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::tempdir;

/// The pages that need no further name. The first part of each is its path.
const PAGES: [&str; 23] = [
    "",
    "jobs",
    "jobs?tag=none&not_status=FAILED&sort=name",
    "jobs/new",
    "executions",
    "executions?status=SUCCEEDED",
    "dead-letters",
    "alerts",
    "alerts?tab=rules",
    "operations",
    "calendar",
    "calendar?view=month",
    "calendar?view=day",
    "calendar?view=agenda",
    "punctuality",
    "simulator",
    "simulator?mode=jobs&week=2027-03-25",
    "queues",
    "workers",
    "secrets",
    "access",
    "settings",
    "settings?tab=server",
];

impl Chromium {
    pub fn find(&mut self, what: &str) {
        self.done(json!({"step": "find", "what": what}));
    }

    pub fn click(&mut self, what: &str) {
        self.done(json!({"step": "click", "what": what}));
    }

    pub fn press(&mut self, keys: &str) {
        self.done(json!({"step": "press", "keys": keys}));
    }

    pub fn text(&mut self, what: &str) -> String {
        self.done(json!({"step": "text", "what": what})).as_str().expect("a text").to_owned()
    }

    pub fn errors(&mut self) -> Value {
        self.done(json!({"step": "errors"}))
    }

    /// Faults of this page for people who use it with a keyboard or a screen reader.
    pub fn faults(&mut self) -> Value {
        self.done(json!({"step": "axe"}))
    }

    /// Logs in on the page of the dashboard.
    pub fn enter(&mut self, origin: &str, token: &str) {
        self.open(&format!("{origin}/ui/"));
        self.find("#token");
        self.fill("#token", token);
        self.click("form button");
        self.find("header.top");
        // The first request had no session.
        self.errors();
    }

    /// Opens a page of the dashboard and waits until it has its heading and its data.
    pub fn see(&mut self, origin: &str, page: &str) {
        self.open(&format!("{origin}/ui/{page}"));
        self.find("main h1");
        self.find("main:not(:has-text('Loading…'))");
    }
}

pub fn origin(server: &Server) -> String {
    format!("http://{}", server.address)
}

/// A server with a bit of everything, and the ids of a job and of one of its executions.
pub async fn busy() -> (Server, String, String) {
    let server = Server::start();
    server.submit(json!({"name": "digest", "job_type": "noop", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin"})).await;
    server
        .submit(json!({"name": "broken", "job_type": "sleep", "payload": {"minutes": 1}, "max_retries": 0}))
        .await;
    let job = server
        .submit(json!({"name": "big", "job_type": "noop", "payload": {"id": 9_007_199_254_740_993_u64}}))
        .await;
    let path = format!("/api/v1/jobs/{job}/executions");
    eventually("the job has run", async || server.get(&path).await.1["items"][0]["status"] == "SUCCEEDED")
        .await;
    let (_, page) = server.get(&path).await;
    let execution = page["items"][0]["execution_id"].as_str().expect("an id").to_owned();
    (server, job.to_string(), execution)
}

#[tokio::test]
async fn browsers_get_the_dashboard_and_programs_the_links() {
    let server = Server::start();
    let plain = server.anonymous(Method::GET, "/").send().await.expect("an answer");
    assert_eq!(plain.status(), StatusCode::OK);
    let client = ClientTls::default().http().redirect(Policy::none()).build().expect("a client");
    let at = |path: &str| client.get(format!("{}{path}", origin(&server)));
    for path in ["/", "/ui"] {
        let sent = at(path).header(ACCEPT, "text/html,*/*").send().await.expect("an answer");
        assert_eq!(
            (sent.status(), sent.headers()[LOCATION].to_str().ok()),
            (StatusCode::SEE_OTHER, Some("ui/"))
        );
    }
    for (path, base) in [("/ui/", "./"), ("/ui/jobs", "./"), ("/ui/jobs/1/edit", "../../")] {
        let page = at(path).send().await.expect("an answer");
        let policy = page.headers()["content-security-policy"].to_str().expect("a text").to_owned();
        assert!(policy.contains("script-src 'self';") && !policy.contains("unsafe"), "{policy}");
        let text = page.text().await.expect("a text");
        assert!(text.contains(&format!("<base href=\"{base}\">")), "{path}: {text}");
    }
    let page = at("/ui/").send().await.expect("an answer").text().await.expect("a text");
    let script = page.split("src=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a script");
    let file = at(&format!("/ui/{script}")).header(ACCEPT_ENCODING, "gzip").send().await.expect("an answer");
    assert_eq!(
        (file.status(), file.headers()["content-encoding"].to_str().ok()),
        (StatusCode::OK, Some("gzip"))
    );
    let known = at(&format!("/ui/{script}")).header("if-none-match", file.headers()["etag"].clone());
    assert_eq!(known.send().await.expect("an answer").status(), StatusCode::NOT_MODIFIED);
    for path in [
        "/ui/a/x/nothing.js",
        "/ui/a/x/%2e%2e%2fCargo.toml",
        "/ui/a/x/%2e%2e/Cargo.toml",
        "/ui/a/x/vendor/LICENSES",
    ] {
        assert_eq!(at(path).send().await.expect("an answer").status(), StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn every_page_shows_without_errors_and_faults_in_each_theme() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, job, execution) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    let more = [
        format!("jobs/{job}"),
        format!("jobs/{job}?tab=executions"),
        format!("jobs/{job}?tab=why"),
        format!("jobs/{job}?tab=logs"),
        format!("jobs/{job}?tab=definition"),
        format!("jobs/{job}/edit"),
        format!("executions/{execution}"),
        "access?tab=users".to_owned(),
        "queues/default".to_owned(),
        "audit".to_owned(),
        "no-such-page".to_owned(),
    ];
    for theme in ["light", "dark", "contrast"] {
        chromium.evaluate(&format!("localStorage.setItem('punctual.theme', '\"{theme}\"')"));
        for page in PAGES.iter().copied().chain(more.iter().map(String::as_str)) {
            chromium.see(&origin, page);
            assert_eq!(chromium.faults(), json!([]), "{page} in {theme}");
            assert_eq!(chromium.errors(), json!([]), "{page} in {theme}");
        }
    }
    for width in [360, 3840] {
        chromium.done(json!({"step": "resize", "width": width, "height": 800}));
        for page in PAGES.iter().copied().chain(more.iter().map(String::as_str)) {
            chromium.see(&origin, page);
            let beyond = chromium.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(beyond.as_i64() <= Some(0), "{page} is {beyond} px wider than {width} px");
        }
    }
}

#[tokio::test]
async fn a_person_controls_a_job_by_mouse_and_keyboard() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "jobs?name=digest");
    chromium.click("td a:has-text('digest')");
    chromium.find("h1:has-text('digest')");
    for (button, verb, status) in [("Pause", "Pause", "paused"), ("Resume", "Resume", "active")] {
        chromium.click(&format!(".head button:has-text('{button}')"));
        chromium.click(&format!("dialog button.primary:has-text('{verb}')"));
        chromium.find(&format!(".head .status:has-text('{status}')"));
    }
    chromium.click(".head button:has-text('Run now')");
    chromium.click("dialog button.primary");
    chromium.find(".head .status:has-text('succeeded')");
    // A schedule that is edited shows when it fires, before and after.
    chromium.press("g");
    chromium.press("j");
    chromium.find("h1:has-text('Jobs')");
    chromium.press("n");
    chromium.find("h1:has-text('New job')");
    chromium.fill("input[name=name]", "from the dashboard");
    chromium.fill("input[name=job_type]", "noop");
    chromium.fill("textarea >> nth=0", r#"{"id": 12345678901234567890}"#);
    chromium.click("button[type=submit], form button.primary");
    chromium.find("h1:has-text('from the dashboard')");
    chromium.find("pre:has-text('12345678901234567890')");
    chromium.press("?");
    chromium.find("dialog:has-text('Keyboard shortcuts')");
    chromium.press("Escape");
    chromium.press("Control+k");
    chromium.fill("dialog input", "digest");
    chromium.find("dialog li:has-text('digest')");
    chromium.press("Enter");
    chromium.find("h1:has-text('digest')");
    assert_eq!(chromium.errors(), json!([]));
    let (_, jobs) = server.get("/api/v1/jobs?name=from%20the%20dashboard").await;
    assert!(jobs.to_string().contains("12345678901234567890"), "{jobs}");
}

#[tokio::test]
async fn everything_that_matches_is_changed_after_a_dry_run() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    let job = |name: String| json!({"name": name, "job_type": "noop", "interval": "1d", "tags": ["many"]});
    // More than one page of the list.
    let jobs: Vec<Value> = (0..130).map(|number| job(format!("one of many {number}"))).collect();
    let (status, made) = server.post("/api/v1/jobs/batch", &json!({ "jobs": jobs }).to_string()).await;
    assert!(status.is_success(), "{made}");
    server.submit(json!({"name": "another", "job_type": "noop", "interval": "1d"})).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "jobs?tag=many");
    chromium.click("thead input");
    chromium.click("button:has-text('Select everything that matches')");
    chromium.click("[aria-label='Selected jobs'] button:has-text('Pause')");
    chromium.find("dialog:has-text('Pause 130 jobs?')");
    chromium.click("dialog button.primary");
    chromium.find("h1:has-text('pause 130 jobs')");
    chromium.find(".head .status:has-text('completed')");
    let paused = async |filter: &str| {
        let (_, page) = server.get(&format!("/api/v1/jobs?status=PAUSED&limit=1000{filter}")).await;
        page["items"].as_array().expect("a list").len()
    };
    assert_eq!((paused("").await, paused("&tag=many").await), (130, 130));
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn a_saved_view_follows_its_owner_to_another_browser() {
    let (Some(mut chromium), Some(mut elsewhere)) = (Chromium::start(), Chromium::start()) else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "jobs?status=ACTIVE&sort=name");
    chromium.click("button:has-text('Views')");
    chromium.click(".popup button:has-text('Save this view')");
    chromium.fill("dialog input", "<b>active</b> by name");
    chromium.click("dialog button.primary");
    chromium.find(".filters button:has-text('<b>active</b> by name')");
    elsewhere.enter(&origin, &server.token);
    elsewhere.see(&origin, "jobs");
    elsewhere.click("button:has-text('Views')");
    elsewhere.click(".popup button:has-text('<b>active</b> by name')");
    elsewhere.find("select[aria-label=Status]:has-text('active')");
    assert!(elsewhere.evaluate("location.search").as_str().is_some_and(|query| query.contains("sort=name")));
    let (_, token) = server.post("/api/v1/tokens", r#"{"name": "other", "role": "viewer"}"#).await;
    let other = server.anonymous(Method::GET, "/api/v1/views");
    let other = other.bearer_auth(token["secret"].as_str().expect("a secret")).send().await;
    let page: Value = other.expect("an answer").json().await.expect("a page");
    assert_eq!(page["items"], json!([]));
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn the_simulator_shows_what_a_clock_change_does_to_the_jobs() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    for (name, gap) in [("moved", "RUN_AFTER"), ("missing", "SKIP")] {
        let job = json!({"name": name, "job_type": "noop", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin", "dst_gap": gap});
        server.submit(job).await;
    }
    server.submit(json!({"name": "steady", "job_type": "noop", "cron_expression": "0 12 * * *"})).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "simulator?mode=jobs&week=2027-03-25");
    chromium.find("tr:has-text('moved'):has-text('2027-03-28 03:00:00')");
    chromium.find("tr:has-text('missing'):has-text('1 fewer')");
    assert!(!chromium.text("table[aria-label='Jobs whose week differs']").contains("steady"));
}

#[tokio::test]
async fn dead_letters_are_redriven_by_group() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    eventually("a dead letter", async || server.get("/api/v1/dead-letters").await.1["items"][0].is_object())
        .await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "dead-letters");
    chromium.click("li button:has-text('Redrive')");
    chromium.click("dialog button.primary");
    chromium.find(".message:has-text('Redriven: 1')");
}

#[tokio::test]
async fn a_viewer_is_offered_no_change() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, job, execution) = busy().await;
    let origin = origin(&server);
    let (_, token) = server.post("/api/v1/tokens", r#"{"name": "looker", "role": "viewer"}"#).await;
    chromium.enter(&origin, token["secret"].as_str().expect("a secret"));
    let pages = ["", "jobs", "dead-letters", "queues", "workers", "executions"].map(str::to_owned);
    for page in pages.into_iter().chain([format!("jobs/{job}"), format!("executions/{execution}")]) {
        chromium.see(&origin, &page);
        let main = chromium.text("main");
        for word in [
            "New job",
            "Pause",
            "Resume",
            "Run now",
            "Run again",
            "Redrive",
            "Discard",
            "Delete",
            "Edit",
            "Set limits",
            "Payload",
        ] {
            assert!(!main.contains(word), "{page} offers {word}: {main}");
        }
        assert_eq!(
            chromium.evaluate(
                "document.querySelectorAll('main [aria-label^=\"Actions on\"], main tbody input').length"
            ),
            0
        );
    }
    for page in ["access", "audit", "secrets"] {
        chromium.see(&origin, page);
        assert!(chromium.text("main").contains("Not permitted"), "{page}");
    }
    // The server refuses it anyway.
    let sent = format!(
        "fetch('{origin}/api/v1/jobs/{job}/trigger', {{method: 'POST', body: '{{}}', headers: {{'content-type': 'application/json'}}}}).then((answer) => answer.status)"
    );
    assert_eq!(chromium.evaluate(&sent), 403);
}

#[tokio::test]
async fn hostile_names_payloads_and_errors_are_shown_as_text() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    let markup = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>";
    let long = "W".repeat(100_000);
    let job = server
        .submit(json!({"name": markup, "job_type": "sleep", "queue": "a/b?c#d", "tags": ["</script>"], "max_retries": 0,
            "payload": {"ms": markup, "\u{202e}rtl": "\u{202e}txt.exe", "long": long}}))
        .await;
    server.submit(json!({"name": "שלום עולם", "job_type": "noop", "queue": "..,"})).await;
    let wide = json!({"name": "w".repeat(190), "job_type": "noop", "queue": "q".repeat(100), "tags": ["t".repeat(100)],
        "interval": "1h", "start_at": "2099-01-01T00:00:00Z"});
    let wide = server.submit(wide).await;
    eventually("a dead letter", async || server.get("/api/v1/dead-letters").await.1["items"][0].is_object())
        .await;
    chromium.enter(&origin, &server.token);
    let execution = format!("executions/{job}.1.1");
    for page in [
        "",
        "jobs",
        &format!("jobs/{job}"),
        &format!("jobs/{job}?tab=definition"),
        &execution,
        "dead-letters",
        "queues",
        "jobs?queue=a%2Fb%3Fc%23d",
    ] {
        chromium.see(&origin, page);
        let found =
            ["queues", "dead-letters"].contains(&page) || chromium.text("main").contains("<img src=x");
        assert!(found, "{page}");
        assert_eq!(
            chromium.evaluate("document.querySelectorAll('main img, main script').length"),
            0,
            "{page}"
        );
        assert_ne!(chromium.evaluate("document.title"), "owned", "{page}");
        assert_eq!(chromium.errors(), json!([]), "{page}");
    }
    chromium.see(&origin, &execution);
    assert!(
        chromium.text("pre[aria-label=Payload]").contains(r"\u202etxt.exe"),
        "marks that turn text around"
    );
    for width in [360, 1280] {
        chromium.done(json!({"step": "resize", "width": width, "height": 800}));
        for page in [
            "",
            "jobs",
            &format!("jobs/{wide}"),
            &execution,
            "dead-letters",
            "queues",
            "calendar?view=day&day=2099-01-01",
            "calendar?view=agenda&day=2099-01-01",
        ] {
            chromium.see(&origin, page);
            let beyond = chromium.evaluate("document.documentElement.scrollWidth - innerWidth");
            assert!(beyond.as_i64() <= Some(0), "{page} is {beyond} px wider than {width} px");
        }
    }
}

#[tokio::test]
async fn an_open_page_survives_a_restart_of_the_server() {
    let Some(mut chromium) = Chromium::start() else { return };
    let folder = tempdir().expect("a folder");
    // An address of its own, so that nothing takes the port in between.
    let server = Server::start_at("127.0.0.71:0", folder.path());
    let (address, origin) = (server.address.clone(), origin(&server));
    server.submit(json!({"name": "before", "job_type": "noop"})).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "jobs");
    chromium.find("td:has-text('before')");
    server.kill();
    chromium.find(".notice:has-text('cannot be reached')");
    assert!(chromium.text("main").contains("before"), "the list stays");
    let server = Server::start_at(&address, folder.path());
    server.submit(json!({"name": "after", "job_type": "noop"})).await;
    chromium.find("td:has-text('after')");
    chromium.find("main:not(:has-text('cannot be reached'))");
    chromium.find(".top:has-text('Live')");
}

#[tokio::test]
async fn the_calendar_lists_when_the_jobs_in_scope_fire() {
    let server = Server::start();
    let daily = json!({"name": "daily", "job_type": "noop", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin",
        "max_runs": 3, "start_at": "2099-03-27T00:00:00Z"});
    server.submit(daily).await;
    server
        .submit(
            json!({"name": "once", "job_type": "noop", "queue": "b", "execute_at": "2099-03-29T12:00:00Z"}),
        )
        .await;
    server.submit(json!({"name": "often", "job_type": "noop", "queue": "b", "interval": "1s", "start_at": "2099-01-01T00:00:00Z"})).await;
    server.submit(json!({"name": "now", "job_type": "noop"})).await;
    let week = "from=2099-03-27T00:00:00Z&until=2099-04-03T00:00:00Z";
    let (status, page) = server.get(&format!("/api/v1/fires?{week}&per_job=2")).await;
    assert_eq!(status, StatusCode::OK, "{page}");
    let shown = |page: &Value| -> Vec<(String, u64, bool)> {
        let jobs = page["items"].as_array().expect("a list").iter();
        let of = |job: &Value| {
            (
                job["name"].as_str().unwrap().to_owned(),
                job["count"].as_u64().unwrap(),
                job["complete"] == true,
            )
        };
        jobs.map(of).collect()
    };
    let expected = [("often", 604_800, false), ("once", 1, true), ("daily", 3, false)];
    assert_eq!(
        shown(&page),
        expected.map(|(name, count, is_all)| (name.to_owned(), count, is_all)),
        "{page}"
    );
    // Clocks skip 02:30 on the 29th.
    let (_, page) = server.get(&format!("/api/v1/fires?{week}&name=daily")).await;
    let fires: Vec<&str> = page["items"][0]["fires"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|fire| fire["scheduled_time"].as_str().unwrap())
        .collect();
    assert_eq!(fires, ["2099-03-27T01:30:00Z", "2099-03-28T01:30:00Z", "2099-03-29T01:00:00Z"]);
    assert_eq!(page["items"][0]["fires"][2]["dst"], "RUN_AFTER_GAP");
    let (_, page) =
        server.get("/api/v1/fires?from=2099-03-28T02:00:00Z&until=2099-03-28T03:00:00Z&name=daily").await;
    assert_eq!(page["items"], json!([]), "none between its fires");
    // Page by page, the same.
    let (_, first) = server.get(&format!("/api/v1/fires?{week}&limit=2")).await;
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let (_, rest) = server.get(&format!("/api/v1/fires?{week}&limit=2&cursor={cursor}")).await;
    assert_eq!(shown(&first).len() + shown(&rest).len(), 3);
    let (_, token) =
        server.post("/api/v1/tokens", r#"{"name": "b", "role": "viewer", "queues": ["b"]}"#).await;
    let secret = token["secret"].as_str().expect("a secret");
    let limited = server.anonymous(Method::GET, &format!("/api/v1/fires?{week}")).bearer_auth(secret);
    let page: Value = limited.send().await.expect("an answer").json().await.expect("a page");
    assert_eq!(shown(&page).into_iter().map(|(name, ..)| name).collect::<Vec<_>>(), ["often", "once"]);
    for wrong in [
        "until=2000-01-01T00:00:00Z",
        "from=2099-01-01T00:00:00Z&until=2101-01-01T00:00:00Z",
        "per_job=0",
        "days=3",
    ] {
        let (status, problem) = server.get(&format!("/api/v1/fires?{wrong}")).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}: {problem}");
    }
}

#[tokio::test]
async fn the_calendar_draws_days_with_the_hours_that_they_have() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    for (zone, day, hours, cells) in [
        ("Europe/Berlin", "2027-03-28", "23 h", 23),
        ("Europe/Berlin", "2027-10-31", "25 h", 25),
        ("America/New_York", "2027-11-07", "25 h", 25),
        ("Australia/Lord_Howe", "2027-10-03", "23.5 h", 24),
        ("Africa/Cairo", "2027-04-30", "23 h", 23),
    ] {
        chromium.see(&origin, &format!("calendar?zone={zone}&day={day}"));
        chromium.find(&format!(".column header:has-text('{hours}')"));
        let drawn = format!(
            "[...document.querySelectorAll('.column')].find((column) => column.textContent.includes('{hours}')).querySelectorAll('.cell').length"
        );
        assert_eq!(chromium.evaluate(&drawn), cells, "{zone} {day}");
    }
}
