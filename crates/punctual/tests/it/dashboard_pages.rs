//! What single pages of the dashboard say, in a real browser.

use crate::dashboard::{busy, origin};
use crate::real_browser::Chromium;
use crate::server::{Server, answer, eventually};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

/// Waits until the figures over time include what has ended.
async fn counted(server: &Server) {
    let path = "/api/v1/series?metric=lateness&by=queue&step=60m";
    eventually("figures", async || server.get(path).await.1["series"][0].is_object()).await;
}

#[tokio::test]
async fn the_overview_names_jobs_that_finish_while_it_is_open() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "");
    chromium.find(".top:has-text('Live')");
    chromium.find("section:has-text('Just finished') li:has-text('big')");
    server.submit(json!({"name": "while you look", "job_type": "noop"})).await;
    chromium.find("section:has-text('Just finished') li a[href^='executions/']:has-text('while you look')");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn a_running_execution_says_for_how_long() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    let job = json!({"name": "slow", "job_type": "sleep", "payload": {"ms": 600_000}, "interval": "1h"});
    let job = server.submit(job).await;
    let (status, run) = server.post(&format!("/api/v1/jobs/{job}/trigger"), "{}").await;
    assert!(status.is_success(), "{run}");
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "executions");
    chromium.find("tr:has-text('slow') td.num:has-text('running for')");
    // Times within the sentences of the server are in the zone of the reader, too.
    chromium.see(&origin, &format!("jobs/{job}"));
    chromium.find(".head p:has-text('counted from')");
    let said = [chromium.text(".head"), chromium.text("main section >> nth=0")].concat();
    assert!(said.contains(" UTC") && !said.contains("+00:00"), "{said}");
}

#[tokio::test]
async fn frequent_jobs_and_what_happened_are_in_the_calendar() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    let job = |name: &str, queue: &str, schedule: Value| {
        let mut job =
            json!({"name": name, "job_type": "noop", "queue": queue, "start_at": "2099-01-01T00:00:00Z"});
        job.as_object_mut().expect("an object").extend(schedule.as_object().expect("an object").clone());
        job
    };
    server.submit(job("often", "a", json!({"interval": "30s"}))).await;
    server.submit(job("office hours", "b", json!({"cron_expression": "* 9-16 * * MON-FRI"}))).await;
    server.submit(job("daily", "b", json!({"cron_expression": "0 3 * * *"}))).await;
    chromium.enter(&origin, &server.token);
    // Monday is the fifth.
    chromium.see(&origin, "calendar?zone=UTC&day=2099-01-05&queue=a");
    chromium.find(".frequent .chip:has-text('often'):has-text('20,160')");
    chromium.find(".column:nth-child(4) .cell:has-text('+120')");
    chromium.see(&origin, "calendar?zone=UTC&day=2099-01-05&queue=b");
    chromium.find(".column:nth-child(2) .cell:nth-of-type(10):has-text('+60')");
    chromium.find(".column:nth-child(7) .cell:nth-of-type(4):has-text('1 planned')");
    let at_night = "[...document.querySelectorAll('.column')].slice(1).map((column) => [...column.querySelectorAll('.cell')].filter((cell) => cell.textContent.includes('+')).length)";
    chromium.find(".column:nth-child(7):not(:has-text('+'))");
    assert_eq!(chromium.evaluate(at_night), json!([8, 8, 8, 8, 8, 0, 0]), "hours with frequent jobs");
    chromium.see(&origin, "calendar?zone=UTC&view=day&day=2099-01-05&queue=a");
    chromium.find("li:has-text('about 120 of frequent jobs')");
    chromium.see(&origin, "calendar?zone=UTC&view=month&day=2099-01-05&queue=b");
    chromium.find(".day:has-text('+480 frequent')");
    // The job that failed and those that ran.
    counted(&server).await;
    chromium.see(&origin, "calendar?zone=UTC");
    chromium.find("button.cell.failed:has-text('1 failed')");
    chromium.click("button.cell.failed");
    chromium.click("a:has-text('Failed executions')");
    chromium.find("tr:has-text('broken')");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn a_late_hour_leads_to_its_executions() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    counted(&server).await;
    chromium.enter(&origin, &server.token);
    for range in ["1d", "7d"] {
        chromium.see(&origin, &format!("punctuality?range={range}"));
        chromium.click("table.heat tr:has-text('default') button.cell");
        chromium.find(".filters .chip:has-text('ended')");
        chromium.find("tr:has-text('big')");
        chromium.find(".filters:has-text('1 found')");
    }
    // Another hour has none of them.
    chromium.see(&origin, "executions?status=SUCCEEDED&from=2020-01-01T00:00:00Z&until=2020-01-01T01:00:00Z");
    chromium.find(".empty:has-text('No execution of this time succeeded')");
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn a_queue_without_a_worker_says_so_and_is_not_full() {
    let Some(mut chromium) = Chromium::start() else { return };
    let server = Server::start();
    let origin = origin(&server);
    server.submit(json!({"name": "waits", "job_type": "nobody-runs-this", "queue": "lonely"})).await;
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "queues");
    chromium.find("tr:has-text('lonely'):has-text('no worker for nobody-runs-this')");
    let bar = "(({className, style}) => [className, parseFloat(style.width) < 5])(document.querySelector('.meter i'))";
    assert_eq!(chromium.evaluate(bar), json!(["calm", true]));
    chromium.see(&origin, "queues/lonely");
    chromium.find(".notice:has-text('No connected worker runs nobody-runs-this')");
    chromium.find(".tile:has-text('Running'):has-text('of 0 slots')");
}

#[tokio::test]
async fn a_pause_of_the_cluster_is_shown_and_ended() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    let pause = server.request(Method::PUT, "/api/v1/pause").json(&json!({"reason": "<b>upgrade</b>"}));
    assert_eq!(answer(pause).await.0, StatusCode::OK);
    chromium.enter(&origin, &server.token);
    for page in ["", "queues", "queues/default"] {
        chromium.see(&origin, page);
        chromium.find(".notice:has-text('The whole cluster is paused'):has-text('<b>upgrade</b>')");
    }
    chromium.click(".notice button:has-text('Resume the cluster')");
    chromium.click("dialog button.primary");
    chromium.find("main:not(:has-text('The whole cluster is paused'))");
    assert_eq!(server.get("/api/v1/pause").await.1["paused"], false);
    assert_eq!(chromium.errors(), json!([]));
}

#[tokio::test]
async fn alerts_say_that_nobody_would_be_notified() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    chromium.see(&origin, "alerts");
    chromium.find(".empty:has-text('No alert is firing'):has-text('1 job is failing')");
    chromium.find(".notice:has-text('nobody would be notified')");
    chromium.click(".notice a:has-text('Add a channel')");
    chromium.fill("dialog input[name=name]", "hook");
    chromium.fill("dialog input[name=url]", "https://example.org/hook");
    chromium.click("dialog button.primary");
    chromium.click(".notice a:has-text('Add a rule')");
    chromium.fill("dialog input[name=name]", "failures");
    chromium.click("dialog button.primary");
    chromium.find("td:has-text('failures')");
    chromium.find("main:not(:has-text('There are no rules'))");
    let (_, rule) = server.get("/api/v1/notifications/rules/failures").await;
    assert_eq!(rule["channels"], json!(["hook"]), "{rule}");
}

#[tokio::test]
async fn actions_of_a_table_are_in_sight_and_their_menu_is_not_cut_off() {
    let Some(mut chromium) = Chromium::start() else { return };
    let (server, ..) = busy().await;
    let origin = origin(&server);
    chromium.enter(&origin, &server.token);
    for width in [360, 1024, 1400] {
        chromium.done(json!({"step": "resize", "width": width, "height": 800}));
        for page in ["workers", "jobs"] {
            chromium.see(&origin, page);
            chromium.find("td.actions button");
            let is_seen =
                "document.querySelector('td.actions button').getBoundingClientRect().right <= innerWidth";
            assert_eq!(chromium.evaluate(is_seen), true, "{page} at {width} px");
            chromium.click("tr:last-child td.actions button");
            chromium.find("td.actions .popup .item");
            let is_whole = "(() => { const last = [...document.querySelectorAll('.popup .item')].at(-1); const {left, right, top, bottom} = last.getBoundingClientRect(); return last.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2)); })()";
            assert_eq!(chromium.evaluate(is_whole), true, "{page} at {width} px");
            chromium.press("Escape");
        }
    }
}
