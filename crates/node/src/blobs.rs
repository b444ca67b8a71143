//! Where large results go. The only place that names that adapter.

use crate::store::StorePlace;
use punctual_blobs::{BlobOptions, S3Login, S3Options, open};
use punctual_config::exit::CliError;
use punctual_config::{BlobSettings, PublicUrl};
use punctual_core::causes::in_full;
use punctual_core::limits;
use punctual_engine::BlobConfig;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The directory of blobs beside an embedded store.
pub const DIRECTORY: &str = "blobs";

/// The place of blobs; `None` if there is none. Creates a directory, and does not connect to S3 yet.
pub fn config(settings: &BlobSettings, place: &StorePlace) -> Result<Option<BlobConfig>, CliError> {
    let options = match (&settings.url, place) {
        (Some(url), _) => completed(url.0.clone(), settings)?,
        (None, StorePlace::Sqlite(directory)) => BlobOptions::Directory(directory.join(DIRECTORY)),
        (None, StorePlace::Server(_)) => return Ok(None),
    };
    let store = open(&options)
        .map_err(|error| CliError::cannot_start(format!("blobs.url {options}: {}", in_full(&error))))?;
    let bytes_max = settings.size_max.0.unwrap_or(limits::BLOB_BYTES_MAX).min(limits::BLOB_BYTES_MAX);
    Ok(Some(BlobConfig { store, bytes_max }))
}

/// A directory of blobs that commands must not read.
pub fn hidden(settings: &BlobSettings) -> Option<PathBuf> {
    match &settings.url.as_ref()?.0 {
        BlobOptions::Directory(directory) => Some(directory.clone()),
        BlobOptions::S3(_) => None,
    }
}

/// Copies a directory of blobs, if there is one, and returns how many there are. Those that are being written have a
/// name of their own and are left out; those that retention deletes meanwhile are gone from the copy as well.
pub fn copy(from: &Path, to: &Path) -> io::Result<u64> {
    let mut copied = 0;
    let mut directories = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = directories.pop() {
        let entries = match std::fs::read_dir(&from) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
        for entry in entries {
            let entry = entry?;
            let (name, target) = (entry.file_name(), to.join(entry.file_name()));
            if entry.file_type()?.is_dir() {
                directories.push((entry.path(), target));
            } else if !name.to_string_lossy().contains('#') {
                match std::fs::copy(entry.path(), &target) {
                    Err(gone) if gone.kind() == io::ErrorKind::NotFound => continue,
                    result => result?,
                };
                File::open(&target)?.sync_all()?;
                copied += 1;
            }
        }
    }
    Ok(copied)
}

fn completed(options: BlobOptions, settings: &BlobSettings) -> Result<BlobOptions, CliError> {
    let BlobOptions::S3(s3) = options else { return Ok(options) };
    let endpoint = settings.endpoint.as_ref().map(|PublicUrl(text)| {
        text.parse().map_err(|error| CliError::cannot_start(format!("blobs.endpoint {text}: {error}")))
    });
    Ok(BlobOptions::S3(S3Options {
        endpoint: endpoint.transpose()?,
        region: settings.region.0.clone(),
        login: settings.credentials_file.as_deref().map(login).transpose()?,
        ca: settings.ca_file.clone(),
        ..s3
    }))
}

fn login(file: &Path) -> Result<S3Login, CliError> {
    let text = crate::password_file::read("blobs.credentials_file", file)?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    match lines[..] {
        [access_key, secret_key] => {
            Ok(S3Login { access_key: access_key.to_owned(), secret_key: secret_key.to_owned() })
        }
        _ => Err(CliError::cannot_start(format!(
            "blobs.credentials_file {}: it must have two lines, the access key and the secret key",
            file.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_blobs::BlobOptions;
    use punctual_client::host;
    use punctual_core::blobs::{BlobKey, BlobReference, HeldBlob};
    use punctual_core::ids::{BlobId, ExecutionId, JobId};
    use punctual_core::job::{JobSpec, JobStatus};
    use punctual_core::ports::{BlobSource, ExecutionContext, Executor, Host, Outcome, Store, Task};
    use punctual_core::time::Timestamp;
    use punctual_engine::{Engine, EngineConfig};
    use punctual_store::sqlite::{SqliteOptions, SqliteStore};
    use punctual_worker::{Worker, WorkerConfig};
    use std::sync::Arc;
    use std::time::{Duration, Instant};
    use tokio::sync::watch;

    /// Its handler returns this text.
    struct Returns(String);

    impl Executor for Returns {
        fn job_types(&self) -> Vec<String> {
            vec!["returns".to_owned()]
        }

        fn execute(&self, _: ExecutionContext) -> Task<Outcome> {
            Box::pin(std::future::ready(Outcome::Succeeded { result: Some(self.0.clone()) }))
        }
    }

    async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let start = Instant::now();
        while !condition().await {
            assert!(start.elapsed() < Duration::from_secs(60), "never came true: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn key(execution: ExecutionId, made_at: Timestamp) -> BlobKey {
        BlobKey { execution, id: BlobId::new(made_at, 7) }
    }

    #[tokio::test]
    async fn blobs_that_no_result_refers_to_are_deleted_after_a_day() {
        let directory = tempfile::tempdir().unwrap();
        let host: Host = host::this_machine().unwrap();
        let store = SqliteStore::open(&SqliteOptions::new(directory.path()), host.calendar.clone()).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let place = directory.path().join("blobs");
        let blobs = open(&BlobOptions::Directory(place.clone())).unwrap();
        let now = host.clock.wall();
        let long_ago = now.minus(limits::BLOB_UNUSED_KEPT + Duration::from_secs(60));

        let config = EngineConfig {
            retain_interval: Duration::from_millis(20),
            retention_hold: Duration::ZERO,
            blobs: Some(BlobConfig { store: blobs.clone(), bytes_max: 100 }),
            ..EngineConfig::default()
        };
        // The result of an execution refers to a blob; its key is known once the job is.
        let first = Engine::new(EngineConfig { blobs: None, ..config.clone() }, host.clone(), store.clone());
        first.start().await.unwrap();
        let loops = tokio::spawn(first.clone().run());
        let spec = JobSpec { job_type: "returns".to_owned(), ..JobSpec::named("returns") };
        let job: JobId = first.submit(vec![spec]).await.remove(0).unwrap().job;
        let execution = job.occurrence(1).attempt(1);
        let used = key(execution, long_ago);
        let reference = BlobReference { id: used.id, bytes: 1, sha256: String::new() };
        let (drain, draining) = watch::channel(false);
        let executors: Vec<Arc<dyn Executor>> = vec![Arc::new(Returns(reference.to_json()))];
        let worker = Worker::new(WorkerConfig::default(), host.clone(), first.clone(), executors);
        tokio::spawn(worker.run(draining));
        eventually("the job is done", async || {
            store.job(job).await.unwrap().unwrap().status() == JobStatus::Completed
        })
        .await;
        drop(drain);
        loops.abort();

        let unknown = JobId::new(long_ago, 1).occurrence(1).attempt(1);
        let orphans = [key(unknown, long_ago), BlobKey { execution, id: BlobId::new(long_ago, 8) }];
        let kept = [used, key(unknown, now)];
        for key in orphans.iter().chain(&kept) {
            blobs.put(&key.to_string(), &mut *HeldBlob(vec![1]).open().await.unwrap()).await.unwrap();
        }
        std::fs::write(place.join("results/notes-of-an-operator.txt"), "x").unwrap();

        let engine = Engine::new(config, host.clone(), store.clone());
        engine.start().await.unwrap();
        tokio::spawn(engine.clone().run());
        let is_there = async |key: &BlobKey| blobs.get(&key.to_string()).await.is_ok();
        eventually("both orphans are deleted", async || {
            !is_there(&orphans[0]).await && !is_there(&orphans[1]).await
        })
        .await;
        for key in &kept {
            assert!(is_there(key).await, "{key}");
        }
        assert!(place.join("results/notes-of-an-operator.txt").exists());
    }

    #[test]
    fn a_copy_leaves_out_what_is_being_written() {
        let directory = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| directory.path().join(name));
        assert_eq!(copy(&from, &to).unwrap(), 0);
        assert!(!to.exists());
        std::fs::create_dir_all(from.join("results/a")).unwrap();
        for (name, text) in [("results/a/one", "1"), ("results/a/two#1", "2")] {
            std::fs::write(from.join(name), text).unwrap();
        }
        assert_eq!(copy(&from, &to).unwrap(), 1);
        assert_eq!(std::fs::read_to_string(to.join("results/a/one")).unwrap(), "1");
        assert!(!to.join("results/a/two#1").exists());
    }
}
