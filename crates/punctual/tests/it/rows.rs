//! `job submit -f` with rows, and `job clone`.

use crate::server::Server;
use serde_json::{Value, json};
use std::process::Output;

fn written(directory: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Exit code, standard output and standard error.
fn ended(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn items(server: &Server, arguments: &[&str]) -> Vec<Value> {
    let listed: Value = serde_json::from_str(&server.said(arguments)).unwrap();
    listed["items"].as_array().unwrap().clone()
}

#[test]
fn rows_of_a_csv_file_become_jobs_and_refused_lines_can_be_corrected() {
    let (server, directory) = (Server::start(), tempfile::tempdir().unwrap());
    let text = "name,customer,amount,priority\nbill,7,12.5,high\nbill,8,1,urgent\nbill,7,12.5,high\n";
    let file = written(&directory, "bills.csv", text);
    let submit = [
        "job",
        "submit",
        "-f",
        &file,
        "--map",
        "customer=payload.customer",
        "--map",
        "amount=payload.amount:json",
    ];
    let (code, _, told) = ended(&server.cli(&submit));
    assert_ne!(code, 0);
    assert!(told.contains("refused line 3: "), "{told}");
    assert!(told.contains("lines that were accepted are not submitted twice"), "{told}");
    let list = ["job", "list", "--name", "bill", "-o", "json"];
    assert_eq!(items(&server, &list).len(), 2);

    // The same file again, with the line corrected: only that line is submitted.
    written(&directory, "bills.csv", &text.replace("urgent", "low"));
    server.said(&submit);
    let jobs = items(&server, &list);
    assert_eq!(jobs.len(), 3);
    assert!(
        jobs.iter()
            .any(|job| job["payload"] == json!({"customer": "8", "amount": 1}) && job["priority"] == 2)
    );
    let (_, _, told) = ended(&server.cli(&submit));
    assert!(told.contains("pass --resume-key KEY to submit them again"), "{told}");
    assert_eq!(items(&server, &list).len(), 3);
    server.said(&[&submit[..], &["--resume-key", "today"]].concat());
    assert_eq!(items(&server, &list).len(), 6);

    let (code, _, told) = ended(&server.cli(&["job", "submit", "-f", &file]));
    assert_ne!(code, 0);
    assert!(told.contains("column customer: customer is not a field of a job"), "{told}");
}

#[test]
fn a_template_makes_jobs_of_lines() {
    let (server, directory) = (Server::start(), tempfile::tempdir().unwrap());
    let rows: String = (0..60).map(|n| format!("{{\"n\": {n}, \"who\": \"c{n}\"}}\n")).collect();
    let rows = written(&directory, "rows.ndjson", &rows);
    let template = written(
        &directory,
        "job.yaml",
        "name: 'greet-{{who}}'\njob_type: noop\npayload: {n: '{{n}}', text: 'Hello {{who}}'}\n",
    );
    let said = server.said(&["job", "submit", "-f", &rows, "--template", &template]);
    assert_eq!(said, "60 submitted, 0 submitted before, 0 refused\n");
    let said = server.said(&["job", "submit", "-f", &rows, "--template", &template]);
    assert_eq!(said, "0 submitted, 60 submitted before, 0 refused\n");
    let job = &items(&server, &["job", "list", "--name", "greet-c59", "-o", "json"])[0];
    assert_eq!(job["payload"], json!({"n": 59, "text": "Hello c59"}));

    let broken = written(&directory, "broken.jsonl", "{\"name\": \"a\"}\n{\"name\": \n");
    let (code, _, told) = ended(&server.cli(&["job", "submit", "-f", &broken]));
    assert_ne!(code, 0);
    assert!(told.contains("broken.jsonl: line 2: "), "{told}");
    assert!(items(&server, &["job", "list", "--name", "a", "-o", "json"]).is_empty());
}

#[test]
fn a_job_can_be_cloned_with_changes() {
    let server = Server::start();
    server.said(&[
        "job",
        "submit",
        "report",
        "--type",
        "noop",
        "--cron",
        "30 2 * * *",
        "--timezone",
        "Europe/Berlin",
        "--payload",
        r#"{"n": 1}"#,
        "--tag",
        "x",
        "--idempotency-key",
        "k",
    ]);
    server.said(&["job", "clone", "report"]);
    let copy = &items(&server, &["job", "list", "--name", "report-copy", "-o", "json"])[0];
    assert_eq!(copy["cron_expression"], "30 2 * * *");
    assert_eq!(
        (&copy["payload"], &copy["tags"], &copy["job_type"]),
        (&json!({"n": 1}), &json!(["x"]), &json!("noop"))
    );

    server.said(&[
        "job",
        "clone",
        "report",
        "--name",
        "once",
        "--delay",
        "1h",
        "--payload",
        "7",
        "--queue",
        "other",
    ]);
    let once = &items(&server, &["job", "list", "--name", "once", "-o", "json"])[0];
    assert_eq!(once["schedule_type"], "ONE_TIME");
    assert_eq!((&once["payload"], &once["queue"]), (&json!(7), &json!("other")));

    // A second copy with the name would double the schedule.
    let (code, _, told) = ended(&server.cli(&["job", "clone", "report"]));
    assert_ne!(code, 0);
    assert!(told.contains("a recurring job named report-copy exists already"), "{told}");
}
