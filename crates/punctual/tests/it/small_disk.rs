//! A real file system of 64 MB that becomes full: reads continue, the server rejects writes that it
//! cannot store, and it recovers when there is room again.

use crate::server::{Server, eventually};
use punctual_client::{ClientError, JobFilter, SubmitJob};
use punctual_core::ids::JobId;
use reqwest::{Method, StatusCode};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const DISK_BYTES: u64 = 64 * 1024 * 1024;
/// A file on the disk from the beginning; deleting it makes room.
const BALLAST_BYTES: usize = 16 * 1024 * 1024;

/// A file system in a file. Only root may mount one.
pub(crate) struct SmallDisk {
    directory: TempDir,
}

impl SmallDisk {
    pub(crate) fn mount() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(DISK_BYTES).unwrap();
        let disk = SmallDisk { directory };
        std::fs::create_dir(disk.path()).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(disk.path()));
        disk
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("disk")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A server that was just killed may still be closing its files.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn put_ballast(path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![1; BALLAST_BYTES]).unwrap();
    file.sync_all().unwrap();
}

#[tokio::test]
async fn a_disk_of_64_megabytes_gets_full_and_all_resumes_when_there_is_room() {
    if !is_root() {
        assert!(std::env::var_os("CI").is_none(), "CI must be able to mount a file system");
        eprintln!("only root can mount a file system: not tested");
        return;
    }
    let disk = SmallDisk::mount();
    let ballast = disk.path().join("ballast");
    put_ballast(&ballast);
    let data = disk.path().join("data");
    let elsewhere = tempfile::tempdir().unwrap();
    let log = elsewhere.path().join("log");
    let script = format!("exec \"$0\" \"$@\" 2>'{}'", log.display());
    let server = Server::start_through(&["sh", "-c", &script, crate::server::BINARY], &data);
    let client = server.client();

    let large = SubmitJob {
        delay: Some("1h".parse().unwrap()),
        ..SubmitJob::named("large").with_payload(&"x".repeat(100_000)).unwrap()
    };
    let mut acknowledged: Vec<JobId> = Vec::new();
    let refused = loop {
        match client.submit(&large).await {
            Ok(submitted) => acknowledged.push(submitted.job_id),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 1_000, "the disk never gets full");
    };
    assert!(matches!(&refused, ClientError::Refused(problem) if problem.status == 503), "{refused}");
    // The server, its log and the command line name the reason in the same words.
    let is_named = |text: &str| text.contains("the disk of the store is full");
    assert!(is_named(&refused.to_string()), "{refused}");
    let payload = serde_json::to_string(&"x".repeat(100_000)).unwrap();
    let submit = ["job", "submit", "large", "--delay", "1h", "--payload", &payload, "--retry-time", "0s"];
    let output = server.cli(&submit);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && is_named(&said), "{said}");
    let logged = std::fs::read_to_string(&log).unwrap();
    assert!(logged.lines().any(is_named), "{logged}");
    let status = async |path| server.anonymous(Method::GET, path).send().await.unwrap().status();
    eventually("it says that it is not ready", async || {
        status("/readyz").await == StatusCode::SERVICE_UNAVAILABLE
    })
    .await;
    let ready = server.anonymous(Method::GET, "/readyz").send().await.unwrap().text().await.unwrap();
    assert!(is_named(&ready), "{ready}");
    assert_eq!(status("/livez").await, StatusCode::OK);
    let page = client.jobs(&JobFilter::default()).await.unwrap();
    assert!(!page.items.is_empty(), "reading goes on");

    std::fs::remove_file(&ballast).unwrap();
    eventually("it is ready again", async || status("/readyz").await == StatusCode::OK).await;
    acknowledged.push(client.submit(&large).await.unwrap().job_id);
    for id in &acknowledged {
        client.job(*id).await.unwrap();
    }
    server.kill();

    let check =
        Command::new(crate::server::BINARY).arg("check").arg("--data-dir").arg(&data).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
    let server = Server::start_in(&data, &[]);
    let client = server.client();
    for id in acknowledged {
        client.job(id).await.unwrap();
    }
}
