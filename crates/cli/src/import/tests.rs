//! Files in the style of real ones, with the jobs and reports that they become.

use super::*;
use punctual_client::SubmitJob;

/// In November 2026, in Berlin.
fn context(has_users: bool) -> ImportContext {
    ImportContext {
        zone: "Europe/Berlin".to_owned(),
        now: "2026-11-18T09:00:00Z".parse().unwrap(),
        has_users,
    }
}

fn file(name: &str, text: &str) -> SourceFile {
    SourceFile { name: name.to_owned(), text: text.to_owned() }
}

fn import_of(kind: SourceKind, files: &[SourceFile]) -> Import {
    let mut import = imported(kind, files, &context(false)).unwrap();
    finish(&mut import, None);
    for job in import.entries.iter().flat_map(|entry| &entry.jobs) {
        let json = serde_json::to_string(&file_entry(job).unwrap()).unwrap();
        serde_json::from_str::<SubmitJob>(&json).unwrap_or_else(|error| panic!("{error}: {json}"));
    }
    import
}

/// The jobs as JSON, one per line.
fn jobs(import: &Import) -> String {
    let jobs = import.entries.iter().flat_map(|entry| &entry.jobs);
    jobs.map(|job| serde_json::to_string(&file_entry(job).unwrap()).unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_crontab_keeps_its_meaning_or_says_what_changes() {
    let import = import_of(SourceKind::Crontab, &[file("crontab", include_str!("samples/crontab.txt"))]);
    insta::assert_snapshot!("crontab_jobs", jobs(&import));
    insta::assert_snapshot!("crontab_report", report::told(&import, "cron"));
}

#[test]
fn a_crontab_of_the_system_has_users() {
    let files = [file("cron.d/system", include_str!("samples/cron.d-system"))];
    let mut import = imported(SourceKind::Crontab, &files, &context(true)).unwrap();
    finish(&mut import, Some("system"));
    insta::assert_snapshot!("system_crontab_jobs", jobs(&import));
    insta::assert_snapshot!("system_crontab_report", report::told(&import, "cron"));
}

#[test]
fn jobs_are_named_after_what_a_line_mainly_runs() {
    // Forms that packages of Debian install.
    for (script, name) in [
        (
            "[ -x /etc/init.d/x ] && if [ ! -d /run/systemd/system ]; then /usr/sbin/invoke-rc.d x start; fi",
            "invoke-rc.d",
        ),
        ("if [ -x /usr/sbin/logcheck ]; then nice -n10 /usr/sbin/logcheck -R; fi", "logcheck"),
        ("[ -d /run/systemd/system ] || /usr/share/atop/atop.daily&", "atop.daily"),
        (
            "test -x /usr/bin/certbot -a \\! -d /run/systemd/system && perl -e 'sleep int(rand(43200))' && certbot -q renew",
            "certbot",
        ),
        (
            "test -x /usr/sbin/t && { [ -r \"$DEFAULT\" ] && . \"$DEFAULT\" ; nice -n$NICE /usr/sbin/tigercron -q ; }",
            "tigercron",
        ),
        (
            "php /usr/share/cacti/site/poller.php 2>&1 >/dev/null | if [ -f /usr/bin/ts ] ; then ts ; fi",
            "poller.php",
        ),
        ("command -v debian-sa1 > /dev/null && debian-sa1 1 1", "debian-sa1"),
    ] {
        assert_eq!(crontab::name_of(script), name, "{script}");
    }
}

#[test]
fn conditions_of_a_timer_and_its_service_are_reported() {
    let files = [
        file(
            "apt-daily.timer",
            "[Timer]\nOnCalendar=*-*-* 6,18:00\nRandomizedDelaySec=12h\nPersistent=true\n",
        ),
        file(
            "apt-daily.service",
            "[Unit]\nConditionACPower=true\nConditionPathExists=!/run/x\n[Service]\nType=oneshot\n\
             ExecStartPre=-/usr/lib/apt/apt-helper wait-online\nExecStart=/usr/lib/apt/apt.systemd.daily update\n",
        ),
    ];
    let import = import_of(SourceKind::Systemd, &files);
    let [entry] = &import.entries[..] else { panic!("one entry") };
    let changes: Vec<&str> = entry.changes.iter().map(|change| change.what.as_str()).collect();
    assert_eq!(
        changes,
        [
            "it runs even if these conditions of systemd do not hold: ConditionACPower=true, ConditionPathExists=!/run/x"
        ]
    );
    assert_eq!(entry.jobs[0]["cron_expression"], "0 6,18 * * *");
    assert_eq!(entry.jobs[0]["jitter"], "43200s");
}

#[test]
fn a_template_needs_its_instances() {
    let timer = "[Timer]\nOnCalendar=weekly\n";
    let service = "[Service]\nExecStart=/usr/bin/pg_backupcluster %i dump\n";
    let files = [
        file("pg_dump@.timer", timer),
        file("pg_dump@15-main.timer", timer),
        file("pg_dump@.service", service),
    ];
    let import = import_of(SourceKind::Systemd, &files);
    let why = import.entries[0].impossible.as_deref().unwrap();
    assert!(why.starts_with("it is a template: pass a copy for each instance"), "{why}");
    let job = &import.entries[1].jobs[0];
    assert_eq!(job["name"], "pg_dump@15-main");
    assert_eq!(
        job["payload"]["command"],
        serde_json::json!(["/usr/bin/pg_backupcluster", "15-main", "dump"])
    );
}

#[test]
fn a_timer_is_imported_with_its_service() {
    let files = [
        file("/etc/systemd/system/backup.timer", include_str!("samples/backup.timer")),
        file("/etc/systemd/system/backup.service", include_str!("samples/backup.service")),
        file("cleanup.timer", include_str!("samples/cleanup.timer")),
        file("cleanup.service", include_str!("samples/cleanup.service")),
        file("boot.timer", include_str!("samples/boot.timer")),
        file("lonely.timer", "[Timer]\nOnCalendar=daily\n"),
    ];
    let import = import_of(SourceKind::Systemd, &files);
    insta::assert_snapshot!("systemd_jobs", jobs(&import));
    insta::assert_snapshot!("systemd_report", report::told(&import, "systemd"));
}

#[test]
fn cron_jobs_of_kubernetes_become_commands() {
    let import =
        import_of(SourceKind::Kubernetes, &[file("cronjobs.yaml", include_str!("samples/cronjobs.yaml"))]);
    insta::assert_snapshot!("kubernetes_jobs", jobs(&import));
    insta::assert_snapshot!("kubernetes_report", report::told(&import, "Kubernetes"));
}

#[test]
fn a_schedule_of_sidekiq_names_classes() {
    let import =
        import_of(SourceKind::SidekiqCron, &[file("schedule.yml", include_str!("samples/schedule.yml"))]);
    insta::assert_snapshot!("sidekiq_jobs", jobs(&import));
    insta::assert_snapshot!("sidekiq_report", report::told(&import, "sidekiq-cron"));
    let error = imported(SourceKind::SidekiqCron, &[file("s.yml", "a: {cron: <%= x %>}")], &context(false));
    assert_eq!(error.err().unwrap(), "s.yml: contains ERB (<% … %>): render it first");
}

#[test]
fn a_schedule_of_celery_is_python_or_json() {
    let files = [
        file("celeryconfig.py", include_str!("samples/celeryconfig.py")),
        file("beat.json", include_str!("samples/beat.json")),
    ];
    let import = import_of(SourceKind::CeleryBeat, &files);
    insta::assert_snapshot!("celery_jobs", jobs(&import));
    insta::assert_snapshot!("celery_report", report::told(&import, "Celery"));
}

#[test]
fn jobs_and_triggers_of_quartz_belong_together() {
    let import =
        import_of(SourceKind::Quartz, &[file("quartz_jobs.xml", include_str!("samples/quartz_jobs.xml"))]);
    insta::assert_snapshot!("quartz_jobs", jobs(&import));
    insta::assert_snapshot!("quartz_report", report::told(&import, "Quartz"));
}

#[test]
fn a_file_that_is_not_of_its_kind_is_an_error() {
    for (kind, text) in [
        (SourceKind::Kubernetes, "kind: [\n"),
        (SourceKind::SidekiqCron, "text"),
        (SourceKind::CeleryBeat, "x = 1\n"),
        (SourceKind::CeleryBeat, "{]"),
        (SourceKind::Quartz, "<a>"),
        (SourceKind::Quartz, "<a/>"),
    ] {
        let error = imported(kind, &[file("broken.yaml", text)], &context(false)).err().unwrap();
        assert!(error.starts_with("broken.yaml: "), "{kind:?}: {error}");
    }
}

#[test]
fn texts_that_look_like_references_stay_as_they_are() {
    let import = import_of(SourceKind::Crontab, &[file("crontab", "0 1 * * * echo ${env:HOME} ${HOME}\n")]);
    assert!(jobs(&import).contains(r#""script":"echo $${env:HOME} ${HOME}""#), "{}", jobs(&import));
}
