//! Faults below the real database files: power failures under load, and a disk whose syncs fail.
//!
//! A small library between SQLite and the C library records every write and sync. When the server is killed,
//! every write that was not synced is torn as a power failure may tear it: kept, lost or filled with garbage,
//! by sector. Everything that was acknowledged must have been synced.

use crate::kill::{Acknowledged, Chance, Load, audit, setting};
use crate::server::{BINARY, Server, answer, eventually};
use punctual_client::SubmitJob;
use reqwest::{Method, StatusCode};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const SECTOR_BYTES: u64 = 512;

/// A data directory on a disk that is recorded.
struct Disk {
    directory: TempDir,
}

impl Disk {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/power/disk.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(directory.path().join("disk.so"))
            .arg(source)
            .status()
            .expect("a C compiler, as for the build");
        assert!(compiled.success());
        Disk { directory }
    }

    fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("disk.log")
    }

    /// The file whose presence makes syncs fail.
    fn fails(&self) -> PathBuf {
        self.directory.path().join("fails")
    }

    fn start(&self) -> Server {
        let library = self.directory.path().join("disk.so");
        let environment = [("LD_PRELOAD", library), ("DISK_LOG", self.log()), ("DISK_FAILS", self.fails())];
        let environment = environment.map(|(name, value)| format!("{name}={}", value.display()));
        let mut launcher = vec!["env"];
        launcher.extend(environment.iter().map(String::as_str));
        launcher.push(BINARY);
        Server::start_through(&launcher, &self.data_dir())
    }

    /// The effect of a power failure on the files: everything that was not synced may be old, new or neither.
    /// Returns how many bytes were torn.
    fn tear(&self, chance: &mut Chance) -> u64 {
        let log = std::fs::read_to_string(self.log()).unwrap();
        let mut torn = 0;
        for (path, ranges) in unsynced(&log) {
            let Ok(file) = OpenOptions::new().write(true).open(&path) else { continue };
            let length = file.metadata().unwrap().len();
            for (offset, bytes) in ranges {
                torn += tear_range(&file, offset, bytes.min(length.saturating_sub(offset)), chance);
            }
        }
        std::fs::remove_file(self.log()).unwrap();
        torn
    }
}

/// The parts of each file that were written and that no finished sync covers, by offset and length. A line
/// that was cut off by the kill belongs to a write that had not begun.
fn unsynced(log: &str) -> BTreeMap<PathBuf, Vec<(u64, u64)>> {
    let mut written: BTreeMap<PathBuf, Vec<(u64, u64)>> = BTreeMap::new();
    // How many of a file's writes came before a sync that is in progress.
    let mut syncing: HashMap<(PathBuf, u64), usize> = HashMap::new();
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    for line in whole.lines() {
        let (kind, rest) = line.split_once(' ').expect("a kind");
        let (number, rest) = rest.split_once(' ').expect("a number");
        let number: u64 = number.parse().expect("a number");
        match kind {
            "W" => {
                let (length, path) = rest.split_once(' ').expect("a length");
                written.entry(path.into()).or_default().push((number, length.parse().expect("a length")));
            }
            "T" => {}
            "B" => {
                let covered = written.get(Path::new(rest)).map_or(0, Vec::len);
                syncing.insert((rest.into(), number), covered);
            }
            "S" => {
                let covered = syncing.remove(&(rest.into(), number)).expect("a sync that began");
                // Those that began earlier and end later cover less than this one.
                for ((path, _), earlier) in &mut syncing {
                    if path == Path::new(rest) {
                        *earlier = earlier.saturating_sub(covered);
                    }
                }
                if let Some(writes) = written.get_mut(Path::new(rest)) {
                    writes.drain(..covered.min(writes.len()));
                }
            }
            other => panic!("unknown line {other}"),
        }
    }
    written
}

fn tear_range(file: &File, offset: u64, length: u64, chance: &mut Chance) -> u64 {
    let mut torn = 0;
    let mut at = offset;
    while at < offset + length {
        let sector = (SECTOR_BYTES - at % SECTOR_BYTES).min(offset + length - at);
        let bytes = match chance.below(3) {
            0 => None,
            1 => Some(vec![0; sector as usize]),
            _ => Some((0..sector).map(|_| chance.below(256) as u8).collect()),
        };
        if let Some(bytes) = bytes {
            file.write_all_at(&bytes, at).unwrap();
            torn += sector;
        }
        at += sector;
    }
    torn
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_power_fails() {
    let rounds = setting("PUNCTUAL_POWER_ROUNDS", 5);
    let seed = setting("PUNCTUAL_POWER_SEED", u64::from(std::process::id()));
    println!("PUNCTUAL_POWER_SEED={seed} PUNCTUAL_POWER_ROUNDS={rounds}");
    let mut chance = Chance(seed);
    let disk = Disk::new();
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    let names = Arc::new(AtomicU64::new(0));
    let mut torn = 0;
    for _ in 0..rounds {
        let server = disk.start();
        let load = Load { client: server.client(), names: names.clone(), acknowledged: acknowledged.clone() };
        let tasks = load.begin();
        // The moment of the failure is the input of this test, not a wait for something.
        tokio::time::sleep(Duration::from_millis(50 + chance.below(750))).await;
        server.kill();
        for task in tasks {
            task.await.unwrap();
        }
        torn += disk.tear(&mut chance);
    }
    println!("{torn} bytes torn");
    assert!(torn > 0, "no power failure ever met a write that was not synced: the test has lost its teeth");
    let server = Server::start_in(&disk.data_dir(), &[]);
    let acknowledged = acknowledged.lock().unwrap().clone();
    audit(&server.client(), &acknowledged).await;
    assert!(server.stop().success());
    let check = Command::new(BINARY).arg("check").arg("--data-dir").arg(disk.data_dir()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}

/// A disk that reports failed writes: nothing is acknowledged until it works again, nothing that was
/// acknowledged is missing, and the server recovers by itself.
#[tokio::test]
async fn a_disk_whose_syncs_fail_is_not_believed() {
    let disk = Disk::new();
    let server = disk.start();
    let client = server.client();
    let job = |name: String| SubmitJob::named(name).with_type("noop");
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        for number in 0..20 {
            let submitted = client.submit(&job(format!("good-{round}-{number}"))).await.unwrap();
            acknowledged.push(submitted.job_id);
        }
        std::fs::write(disk.fails(), "").unwrap();
        for number in 0..5 {
            let refused = client.submit(&job(format!("bad-{round}-{number}"))).await.unwrap_err();
            assert!(refused.is_retryable(), "{refused}");
        }
        let (status, problem) = answer(server.anonymous(Method::GET, "/readyz")).await;
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{problem}");
        std::fs::remove_file(disk.fails()).unwrap();
        eventually("the server is ready again", async || {
            answer(server.anonymous(Method::GET, "/readyz")).await.0 == StatusCode::OK
        })
        .await;
    }
    server.kill();
    let server = Server::start_in(&disk.data_dir(), &[]);
    for job in acknowledged {
        let job = server.client().wait(job).await.unwrap();
        assert!(job.is_finished());
    }
    assert!(server.stop().success());
    let check = Command::new(BINARY).arg("check").arg("--data-dir").arg(disk.data_dir()).output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stdout));
}
