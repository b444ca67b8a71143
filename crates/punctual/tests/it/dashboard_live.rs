//! What the dashboard shows while things happen: logs, skipped occurrences, events, time zones.

use crate::dashboard::{busy, origin};
use crate::real_browser::Chromium;
use crate::server::{Server, eventually};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// With a few more, as many as the log of an execution keeps.
const LINES: usize = 49_990;

/// The log as it is drawn.
const LOG: &str = "document.querySelector('.log')";

#[tokio::test]
async fn a_log_is_read_back_to_its_beginning_and_searched() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start_with(&["--allow", "shell"]);
    let origin = origin(&server);
    let script = format!(
        "seq 1 {LINES} | sed 's/^/line /'; echo '<img src=x onerror=alert(1)>'; printf '\\342\\200\\256txt.exe\\n'; \
         head -c 15000 /dev/zero | tr '\\0' W; echo; echo oops >&2"
    );
    let job =
        server.submit(json!({"name": "talks", "job_type": "shell", "payload": {"script": script}})).await;
    let path = format!("/api/v1/executions/{job}.1.1");
    eventually("it has run", async || server.get(&path).await.1["status"] == "SUCCEEDED").await;
    // The API reads back page by page.
    let logs = format!("{path}/logs");
    let (_, page) = server.get(&format!("{logs}?tail=2")).await;
    let numbers = |page: &Value| -> Vec<u64> {
        page["items"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|line| line["number"].as_u64().expect("a number"))
            .collect()
    };
    let total = LINES as u64 + 4;
    assert_eq!(numbers(&page), [total - 1, total]);
    let before = page["previous_cursor"].as_str().expect("a cursor");
    let (_, page) = server.get(&format!("{logs}?before={before}&limit=3")).await;
    assert_eq!(numbers(&page), [total - 4, total - 3, total - 2]);
    let (_, page) = server.get(&format!("{logs}?limit=1")).await;
    assert_eq!((numbers(&page), &page["previous_cursor"]), (vec![1], &Value::Null));
    for wrong in
        [format!("before={before}&tail=1"), format!("before={before}&follow=true"), "before=x".to_owned()]
    {
        assert_eq!(server.get(&format!("{logs}?{wrong}")).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }

    chromium.enter(&origin, &server.token);
    chromium.see(&origin, &format!("executions/{job}.1.1"));
    chromium.find(".card:has(.log) header:has-text('complete, lines 48,995 to 49,994 of 49,994')");
    // It begins at the end. Hostile lines are text, and do not turn or widen what is around them.
    for line in ["<img src=x", "txt.exe"] {
        chromium.find(&format!(".log .line:has-text('{line}')"));
    }
    assert_eq!(chromium.evaluate("document.querySelectorAll('main img').length"), 0);
    assert_eq!(chromium.evaluate("document.documentElement.scrollWidth - innerWidth"), 0);
    let isolated = "[...document.querySelectorAll('.log .line > span')].every((one) => getComputedStyle(one).unicodeBidi === 'isolate')";
    assert_eq!(chromium.evaluate(isolated), true);
    assert_eq!(chromium.faults(), json!([]), "a log with lines");
    // Scrolling up loads older lines, to the first one; what the reader looks at stays.
    chromium.evaluate(&format!("{LOG}.scrollTop = 300"));
    chromium.find(".card:has(.log) header:has-text('lines 47,995 to 49,994')");
    let still = format!(
        "(() => {{ const at = {LOG}.getBoundingClientRect().top; return [...document.querySelectorAll('.log .line')].find((one) => one.getBoundingClientRect().top >= at).textContent; }})()"
    );
    assert!(
        chromium.evaluate(&still).as_str().is_some_and(|text| text.contains("line 490")),
        "{}",
        chromium.evaluate(&still)
    );
    let to_the_start = format!(
        "(async () => {{ while (!document.querySelector('.card:has(.log) header').textContent.includes('all 49,994 lines')) {{ \
         {LOG}.scrollTop = 0; await new Promise(requestAnimationFrame); }} {LOG}.scrollTop = 0; return {LOG}.querySelectorAll('.line').length; }})()"
    );
    let drawn = chromium.evaluate(&to_the_start).as_u64().expect("a number");
    assert!((10..200).contains(&drawn), "{drawn} lines are drawn");
    chromium.find(".log .line:has-text('line 1')");
    chromium.fill("input[aria-label='Search in the log']", "line 31415");
    chromium.find(".log mark:has-text('line 31415')");
    chromium.fill("input[aria-label='Search in the log']", "");
    chromium.click("[aria-label=Stream] button:has-text('stderr')");
    chromium.find(".filters:has-text('1 of the latest 49,994')");
    chromium.find(".log .line .stderr:has-text('oops')");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn a_log_that_is_followed_stays_where_its_reader_is() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start_with(&["--allow", "shell"]);
    let origin = origin(&server);
    let script = "seq 1 300; while true; do echo tick; sleep 0.1; done";
    let job =
        server.submit(json!({"name": "ticks", "job_type": "shell", "payload": {"script": script}})).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, &format!("executions/{job}.1.1"));
    chromium.find(".log .line:has-text('tick')");
    let is_at_end = format!("{LOG}.scrollHeight - {LOG}.scrollTop - {LOG}.clientHeight < 40");
    let more = |chromium: &mut Chromium| {
        let height = chromium.evaluate(&format!("{LOG}.scrollHeight")).as_u64().expect("a number");
        chromium.evaluate(&format!(
            "(async () => {{ while ({LOG}.scrollHeight <= {height}) await new Promise(requestAnimationFrame); }})()"
        ));
    };
    more(&mut chromium);
    assert_eq!(chromium.evaluate(&is_at_end), true, "it follows");
    chromium.evaluate(&format!("{LOG}.scrollTop = 1000"));
    chromium.find("button:has-text('To the end')");
    more(&mut chromium);
    assert_eq!(chromium.evaluate(&format!("{LOG}.scrollTop")), 1000);
    chromium.click("button:has-text('To the end')");
    more(&mut chromium);
    assert_eq!(chromium.evaluate(&is_at_end), true);
    chromium.click(".head button:has-text('Cancel')");
    chromium.click("dialog button.primary");
    chromium.find(".card:has(.log) header:has-text('complete')");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn occurrences_that_did_not_run_appear_while_the_page_is_open() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    let job =
        server.submit(json!({"name": "weekly", "job_type": "noop", "cron_expression": "0 9 * * MON"})).await;
    let skip = async || {
        let (status, skipped) = server.post(&format!("/api/v1/jobs/{job}/skip-next"), "{}").await;
        assert!(status.is_success(), "{skipped}");
    };
    skip().await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, &format!("jobs/{job}?tab=executions"));
    chromium.find("section:has-text('Did not run') tr:has-text('somebody asked to skip it')");
    skip().await;
    chromium.find("section:has-text('Did not run') td.num:text-is('2')");
    assert_eq!(chromium.errors(), json!([]));
}

/// Passes connections on to a server, until their event streams fall silent.
struct QuietProxy {
    address: String,
    /// Event streams that were opened.
    streams: Arc<AtomicUsize>,
    /// Streams up to this one get nothing any more, although their connections stay open.
    silent: Arc<AtomicUsize>,
}

impl QuietProxy {
    fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (streams, silent) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let proxy = QuietProxy { address, streams: Arc::clone(&streams), silent: Arc::clone(&silent) };
        let server = server.to_owned();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                // 0: no event stream so far.
                let number = Arc::new(AtomicUsize::new(0));
                let (to_server, to_client) =
                    (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
                let (streams, own) = (Arc::clone(&streams), Arc::clone(&number));
                std::thread::spawn(move || {
                    pass_on(to_server, upstream, |bytes| {
                        if String::from_utf8_lossy(bytes).contains("GET /api/v1/events") {
                            own.store(1 + streams.fetch_add(1, Ordering::SeqCst), Ordering::SeqCst);
                        }
                        true
                    });
                });
                let silent = Arc::clone(&silent);
                std::thread::spawn(move || {
                    pass_on(to_client, client, |_| {
                        let number = number.load(Ordering::SeqCst);
                        number == 0 || number > silent.load(Ordering::SeqCst)
                    });
                });
            }
        });
        proxy
    }

    fn opened(&self) -> usize {
        self.streams.load(Ordering::SeqCst)
    }

    fn silence(&self) {
        self.silent.store(self.opened(), Ordering::SeqCst);
    }
}

/// Copies bytes that are wanted until one side closes.
fn pass_on(mut from: TcpStream, mut to: TcpStream, is_wanted: impl Fn(&[u8]) -> bool) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if is_wanted(&bytes[..count]) && to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[tokio::test]
async fn tabs_share_a_stream_which_is_opened_again_when_it_falls_silent() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let proxy = QuietProxy::start(&server.address);
    let origin = format!("http://{}", proxy.address);
    let feed = |name: &str| format!("section:has-text('Just finished') li:has-text('{name}')");
    chromium.enter(&origin, &server.token);
    chromium.find(".top:has-text('Live')");
    chromium.done(json!({"step": "tab", "number": 1}));
    chromium.see(&origin, "");
    chromium.find(".top:has-text('Live')");
    server.submit(json!({"name": "for both", "job_type": "noop"})).await;
    chromium.find(&feed("for both"));
    assert_eq!(proxy.opened(), 1, "one stream for both tabs");
    chromium.done(json!({"step": "tab", "number": 0}));
    chromium.find(&feed("for both"));
    // The connection stays open and says nothing: for this page, a minute passes at once.
    let before = proxy.opened();
    proxy.silence();
    chromium.evaluate("(() => { const now = Date.now.bind(Date); Date.now = () => now() + 60000; })()");
    eventually("another stream", async || proxy.opened() > before).await;
    server.submit(json!({"name": "after the silence", "job_type": "noop"})).await;
    chromium.find(&feed("after the silence"));
    chromium.find(".top:has-text('Live')");
    // The other tab takes over.
    let before = proxy.opened();
    chromium.open("about:blank");
    eventually("the stream of the other tab", async || proxy.opened() > before).await;
    chromium.done(json!({"step": "tab", "number": 1}));
    server.submit(json!({"name": "for the last", "job_type": "noop"})).await;
    chromium.find(&feed("for the last"));
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn times_are_labelled_in_every_zone_in_the_week_of_a_clock_change() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start_with(&["--clock", "manual", "--clock-start", "2027-03-28T00:30:00Z"]);
    let origin = origin(&server);
    let digest = json!({"name": "digest", "job_type": "noop", "cron_expression": "30 2 * * *", "timezone": "Europe/Berlin"});
    let job = server.submit(digest).await;
    for (zone, first, second, next) in [
        ("America/New_York", "2027-03-27 21:00:00 UTC−4", "2027-03-28 20:30:00 UTC−4", "21:00"),
        ("Europe/Berlin", "2027-03-28 03:00:00 UTC+2", "2027-03-29 02:30:00 UTC+2", "03:00"),
        ("Australia/Lord_Howe", "2027-03-28 12:00:00 UTC+11", "2027-03-29 11:30:00 UTC+11", "12:00"),
    ] {
        chromium.begin(json!({"timezoneId": zone, "viewport": {"width": 1280, "height": 800}}));
        chromium.enter(&origin, &server.token);
        chromium.find(&format!(".top:has-text('{zone}')"));
        chromium.find(&format!("section:has-text('Next hour') li:has-text('digest'):has-text('{next}')"));
        chromium.see(&origin, &format!("jobs/{job}"));
        chromium
            .find(&format!("table.fires tr:has-text('{first}'):has-text('moved: clocks skip this time')"));
        chromium.find(&format!("table.fires tr:has-text('{second}')"));
        chromium.see(&origin, "simulator?mode=jobs&week=2027-03-25");
        chromium.find("tr:has-text('digest'):has-text('2027-03-28 03:00:00')");
        chromium.see(&origin, "calendar?day=2027-03-28");
        chromium.find(".entry:has-text('digest'), .cell:has-text('1')");
    }
    // The job's zone: each time says which one it is in.
    chromium.see(&origin, "jobs");
    chromium.click("button[aria-label^='Time zone']");
    chromium.click(".popup .item:has-text(\"The job's time zone\")");
    chromium.find("tr:has-text('digest') time:has-text('UTC+2')");
    chromium.see(&origin, &format!("jobs/{job}"));
    chromium.find("dd time:has-text('2027-03-28 03:00:00 UTC+2')");
    chromium.click("button[aria-label^='Time zone']");
    chromium.click(".popup .item:text-is('UTC')");
    chromium.find("dd time:has-text('2027-03-28 01:00:00 UTC')");
    // A narrow screen has a short label.
    chromium.done(json!({"step": "resize", "width": 360, "height": 800}));
    assert!(chromium.text("button[aria-label^='Time zone']").contains("UTC"));
    assert_eq!(chromium.errors(), json!([]));
}
