//! `punctual import`: files of other programs become files that a server accepts.

use crate::server::{BINARY, Server};
use punctual_client::SetSecret;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A sample of the importer's own tests.
fn sample(name: &str) -> String {
    let samples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../cli/src/import/samples");
    samples.join(name).to_str().unwrap().to_owned()
}

/// Imports without a server.
fn import(arguments: &[&str]) -> Output {
    let output = Command::new(BINARY).arg("import").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_server_accepts_the_jobs_of_every_kind_of_file() {
    let directory = tempfile::tempdir().unwrap();
    let timers = [sample("backup.timer"), sample("cleanup.timer")];
    for (kind, files, count) in [
        ("crontab", vec![sample("crontab.txt")], 10),
        ("systemd", timers.to_vec(), 3),
        ("kubernetes", vec![sample("cronjobs.yaml")], 3),
        ("sidekiq-cron", vec![sample("schedule.yml")], 3),
        ("celery-beat", vec![sample("celeryconfig.py"), sample("beat.json")], 6),
        ("quartz", vec![sample("quartz_jobs.xml")], 4),
    ] {
        // Some names are in several files.
        let server = Server::start();
        // The report of the CronJobs says that the secrets are needed.
        let secret = SetSecret { value: "correct horse".to_owned(), ..SetSecret::default() };
        for name in ["db-password", "api-token"] {
            server.client().set_secret(name, &secret).await.unwrap();
        }
        let written = directory.path().join(format!("{kind}.yaml"));
        let written = written.to_str().unwrap();
        let mut arguments =
            vec![kind, "--timezone", "Europe/Berlin", "--managed-by", kind, "--write", written];
        arguments.extend(files.iter().map(String::as_str));
        let report = text(&import(&arguments).stdout);
        assert!(report.contains("imported"), "{report}");

        let applied = server.said(&["apply", "-f", written, "--prune"]);
        let end = format!("{count} created, 0 updated, 0 deleted, 0 unchanged\n");
        assert!(applied.ends_with(&end), "{kind}: {applied}");
        let again = server.said(&["apply", "-f", written, "--prune"]);
        assert_eq!(again, format!("0 to create, 0 to update, 0 to delete, {count} unchanged\n"), "{kind}");
    }
}

#[test]
fn jobs_go_to_standard_output_and_the_report_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let crontab = directory.path().join("crontab");
    std::fs::write(&crontab, "30 2 * * * backup\n@reboot warm\n").unwrap();
    let crontab = crontab.to_str().unwrap();
    let report_file = directory.path().join("report.json");
    let output = import(&[
        "crontab",
        crontab,
        "--timezone",
        "UTC",
        "-o",
        "json",
        "--report",
        report_file.to_str().unwrap(),
    ]);
    let jobs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(jobs["jobs"][0]["cron_expression"], "30 2 * * *");
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1);
    let told = text(&output.stderr);
    assert!(
        told.contains("2 entries: 1 imported, 0 imported with changed meaning, 1 not possible"),
        "{told}"
    );
    let report: Value =
        serde_json::from_str(&std::fs::read_to_string(Path::new(&report_file)).unwrap()).unwrap();
    assert_eq!(report["entries"][0]["jobs"][0], "backup");
    assert!(report["entries"][1]["impossible"].as_str().unwrap().starts_with("@reboot"));
}

#[test]
fn an_import_can_be_applied_at_once() {
    let server = Server::start();
    let directory = tempfile::tempdir().unwrap();
    let crontab = directory.path().join("crontab");
    std::fs::write(&crontab, "30 2 * * * backup\n").unwrap();
    let applied = server.said(&["import", "crontab", crontab.to_str().unwrap(), "--apply"]);
    assert!(applied.ends_with("1 created, 0 updated, 0 deleted, 0 unchanged\n"), "{applied}");
    assert!(server.said(&["job", "list"]).contains("backup"));
}
