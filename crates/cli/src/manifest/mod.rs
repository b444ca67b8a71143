//! Files for `plan` and `apply`: which jobs they hold, by owner and name, and which channels, rules and silences, with
//! references replaced.

mod as_read;
pub mod documents;
pub mod fields_of;
mod notifications;
mod raw_object;
pub mod substitution;

pub use as_read::submittable;
pub use notifications::{ManifestNotification, NotificationBody, NotificationType};
pub use raw_object::RawObject;

use anyhow::Context;
use documents::STDIN;
use punctual_client::ChannelNames;
use punctual_config::exit::{CliError, Exit};
use punctual_config::output::one_line;
use punctual_config::suggest::did_you_mean;
use punctual_core::ids::JobId;
use punctual_core::names::name_problem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use substitution::ReferenceSources;

/// Begins the tag of a job that belongs to a file with `managed_by`.
pub const LABEL: &str = "managed_by:";
/// What a document with lists may have.
const KEYS: [&str; 6] = ["jobs", "channels", "rules", "silences", "managed_by", "$schema"];
/// The kinds of files that are read from a directory.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

#[derive(Debug, clap::Args)]
pub struct ManifestArgs {
    /// A JSON or YAML file with jobs, or a directory of such files (- for standard input); can be given more than once
    #[arg(short = 'f', long = "file", value_name = "FILE|DIR", required = true)]
    files: Vec<PathBuf>,
}

/// What all files say.
pub struct Manifest {
    pub jobs: Vec<ManifestJob>,
    /// Channels, then rules, then silences.
    pub notifications: Vec<ManifestNotification>,
    /// Each file with its label.
    files: Vec<(String, Option<String>)>,
}

/// A job of a file.
pub struct ManifestJob {
    pub owner: String,
    pub name: String,
    /// File, document, number and name, for messages.
    pub place: String,
    /// As submitted, except that `depends_on` may contain names.
    fields: RawObject,
    /// The fields before references were replaced. Values from the environment are not displayed.
    source: RawObject,
}

/// What one file has, before owners are known.
#[derive(Default)]
struct FileContent {
    managed_by: Option<String>,
    jobs: Vec<(String, Box<RawValue>)>,
    notifications: Vec<(NotificationType, String, Box<RawValue>)>,
    errors: Vec<String>,
}

impl ManifestArgs {
    /// Reads all files. A job without an owner belongs to `owner`.
    pub fn read(&self, owner: &str) -> anyhow::Result<Manifest> {
        let mut files = Vec::new();
        for path in expanded(&self.files)? {
            let read = documents::read(&path)?;
            files.push((path, read));
        }
        Manifest::of_files(files, owner)
    }
}

impl Manifest {
    /// The jobs of one document that is not in a file.
    pub fn of_document(name: &str, document: &RawValue, owner: &str) -> anyhow::Result<Self> {
        Manifest::of_files(vec![(PathBuf::from(name), vec![document.to_owned()])], owner)
    }

    fn of_files(files: Vec<(PathBuf, Vec<Box<RawValue>>)>, owner: &str) -> anyhow::Result<Self> {
        let mut manifest = Manifest { jobs: vec![], notifications: vec![], files: vec![] };
        let mut errors = Vec::new();
        let mut places: BTreeMap<(String, String), String> = BTreeMap::new();
        for (path, read) in files {
            let shown = shown(&path);
            let file = FileContent::of(&shown, &read);
            errors.extend(file.errors);
            let directory = path.parent().unwrap_or(Path::new(""));
            for (place, job) in &file.jobs {
                let job = match ManifestJob::of(job, place, directory, (owner, file.managed_by.as_deref())) {
                    Ok(job) => job,
                    Err(error) => {
                        errors.push(error);
                        continue;
                    }
                };
                let key = (job.owner.clone(), job.name.clone());
                if let Some(first) = places.insert(key, job.place.clone()) {
                    let place = &job.place;
                    errors
                        .push(format!("{place} has the same owner and name as {first}: rename one of them"));
                }
                manifest.jobs.push(job);
            }
            for (kind, place, fields) in &file.notifications {
                match ManifestNotification::of(*kind, fields, place, directory) {
                    Ok(found) => manifest.notifications.push(found),
                    Err(found) => errors.extend(found),
                }
            }
            manifest.files.push((shown, file.managed_by));
        }
        manifest.notifications.sort_by_key(|one| one.kind());
        errors.extend(notifications::namesakes(&manifest.notifications));
        match errors.is_empty() {
            true => Ok(manifest),
            false => Err(CliError::refused(errors.join("\n")).into()),
        }
    }

    /// The labels whose jobs may be deleted. Without a label it is unknown which jobs a file has created.
    pub fn labels(&self) -> Result<BTreeSet<&str>, CliError> {
        if let Some((file, _)) = self.files.iter().find(|(_, label)| label.is_none()) {
            let message = format!(
                "--prune deletes only jobs with the label of their file, and {file} has none: add managed_by: NAME to it"
            );
            return Err(CliError { exit: Exit::Misunderstood, message });
        }
        Ok(self.files.iter().filter_map(|(_, label)| label.as_deref()).collect())
    }
}

impl FileContent {
    fn of(file: &str, documents: &[Box<RawValue>]) -> Self {
        let mut found = FileContent::default();
        for (index, document) in documents.iter().enumerate() {
            let place = match documents.len() {
                1 => file.to_owned(),
                _ => format!("{file}, document {}", index + 1),
            };
            if let Err(error) = found.add(&place, document) {
                found.errors.push(format!("{place}: {error}"));
            }
        }
        let is_empty = found.jobs.is_empty() && found.notifications.is_empty();
        if found.errors.is_empty() && is_empty && found.managed_by.is_none() {
            found.errors.push(format!("{file} contains no job"));
        }
        found
    }

    /// Adds the content of a document: `jobs` and other lists with a label, a list of jobs, or one job.
    fn add(&mut self, place: &str, document: &RawValue) -> Result<(), String> {
        let jobs: Vec<Box<RawValue>> = match document.get().trim_start().as_bytes().first() {
            Some(b'[') => serde_json::from_str(document.get()).map_err(|error| error.to_string())?,
            Some(b'{') => {
                let object: RawObject =
                    serde_json::from_str(document.get()).map_err(|error| error.to_string())?;
                if object.get("jobs").is_none() && object.get("name").is_some() {
                    vec![document.to_owned()]
                } else {
                    self.add_label(&object)?;
                    let has_others = self.add_notifications(place, &object)?;
                    match object.get("jobs") {
                        None if has_others => vec![],
                        _ => object.read("jobs").ok_or("jobs must be a list of jobs")?,
                    }
                }
            }
            _ => {
                return Err(
                    "must be an object with `jobs`, a list of jobs, or a job with a `name`".to_owned()
                );
            }
        };
        for (index, job) in jobs.into_iter().enumerate() {
            self.jobs.push((format!("{place}: job {}", index + 1), job));
        }
        Ok(())
    }

    /// Adds channels, rules and silences. Returns whether there is a list of them.
    fn add_notifications(&mut self, place: &str, object: &RawObject) -> Result<bool, String> {
        let mut has_any = false;
        for kind in NotificationType::ALL {
            let (list, word) = (kind.list(), kind.word());
            if object.get(list).is_none() {
                continue;
            }
            has_any = true;
            let items: Vec<Box<RawValue>> =
                object.read(list).ok_or_else(|| format!("{list} must be a list of {list}"))?;
            for (index, item) in items.into_iter().enumerate() {
                self.notifications.push((kind, format!("{place}: {word} {}", index + 1), item));
            }
        }
        Ok(has_any)
    }

    fn add_label(&mut self, object: &RawObject) -> Result<(), String> {
        if let Some(unknown) = object.names().find(|name| !KEYS.contains(name)) {
            let meant = match did_you_mean(unknown, KEYS) {
                meant if meant.is_empty() => {
                    "; expected jobs, channels, rules, silences and managed_by".to_owned()
                }
                meant => meant,
            };
            return Err(format!("unknown key {}{meant}", one_line(unknown)));
        }
        let Some(label) = object.get("managed_by") else { return Ok(()) };
        let label: String =
            serde_json::from_str(label.get()).map_err(|_| "managed_by must be a text, such as billing")?;
        if label.is_empty() {
            return Err("managed_by must not be empty".to_owned());
        }
        if let Some(problem) = name_problem(&format!("{LABEL}{label}")).or_else(|| name_problem(&label)) {
            return Err(format!("managed_by {problem}"));
        }
        match self.managed_by.replace(label.clone()) {
            Some(other) if other != label => {
                Err(format!("managed_by is {label} here and {other} before: a file has one label"))
            }
            _ => Ok(()),
        }
    }
}

impl ManifestJob {
    fn of(
        job: &RawValue,
        place: &str,
        directory: &Path,
        (owner, label): (&str, Option<&str>),
    ) -> Result<Self, String> {
        let mut fields: RawObject =
            serde_json::from_str(job.get()).map_err(|error| format!("{place}: {error}"))?;
        let source = fields.clone();
        let place = match fields.read::<String>("name") {
            Some(name) => format!("{place} ({})", one_line(&name)),
            None => place.to_owned(),
        };
        let at_place = |error: String| format!("{place}: {error}");
        if fields.get("job_id").is_some() {
            // A job as read. Its texts are those of the server, so they contain no references.
            submittable(&mut fields);
        } else {
            let sources = ReferenceSources { variable: &substitution::variable, directory };
            for (name, value) in fields.iter_mut() {
                *value = substitution::substituted(value, &sources)
                    .map_err(|error| at_place(format!("{name}: {error}")))?;
            }
        }
        let Some(name) = fields.read::<String>("name").filter(|name| !name.is_empty()) else {
            return Err(at_place("has no name; owner and name identify a job".to_owned()));
        };
        if let Some(label) = label {
            add_label(&mut fields, label).map_err(at_place)?;
        }
        let owner = fields.read("owner_id").unwrap_or_else(|| owner.to_owned());
        Ok(ManifestJob { owner, name, place, fields, source })
    }

    /// The job with this JSON.
    #[cfg(test)]
    pub fn for_test(json: &str) -> Self {
        let json = RawValue::from_string(json.to_owned()).unwrap();
        ManifestJob::of(&json, "file", Path::new(""), ("me", None)).unwrap()
    }

    /// The names in `depends_on`, without ids.
    pub fn parents(&self) -> Vec<String> {
        let mut parents: Vec<String> = self.fields.read("depends_on").unwrap_or_default();
        parents.retain(|parent| parent.parse::<JobId>().is_err());
        parents
    }

    /// The body of a request, with ids in place of names in `depends_on`. Names without an id are left out.
    pub fn body(&self, ids: &BTreeMap<String, JobId>) -> Result<RawObject, serde_json::Error> {
        let mut body = self.fields.clone();
        if !self.parents().is_empty() {
            let parents: Vec<String> = self.fields.read("depends_on").unwrap_or_default();
            let ids: Vec<JobId> = parents
                .iter()
                .filter_map(|parent| parent.parse().ok().or(ids.get(parent).copied()))
                .collect();
            body.set_to("depends_on", &ids)?;
        }
        Ok(body)
    }

    /// Removes these channels from the `notify` of a body; returns the names that were removed.
    pub fn without_channels(
        body: &mut RawObject,
        channels: &BTreeSet<&str>,
    ) -> Result<BTreeSet<String>, serde_json::Error> {
        let Some(mut notify) = body.read::<BTreeMap<String, ChannelNames>>("notify") else {
            return Ok(BTreeSet::new());
        };
        let mut removed = BTreeSet::new();
        for ChannelNames(names) in notify.values_mut() {
            removed.extend(names.iter().filter(|name| channels.contains(name.as_str())).cloned());
            names.retain(|name| !channels.contains(name.as_str()));
        }
        notify.retain(|_, ChannelNames(names)| !names.is_empty());
        if !removed.is_empty() {
            body.set_to("notify", &notify)?;
        }
        Ok(removed)
    }

    /// The value at a path before references in it were replaced, if it has any.
    pub fn reference_at(&self, path: &[String]) -> Option<Value> {
        let (field, path) = path.split_first()?;
        let field = self.source.value(field)?;
        let value = path.iter().try_fold(&field, |value, key| value.get(key.as_str()))?;
        (self.source.get("job_id").is_none() && substitution::has_reference(value)).then(|| value.clone())
    }
}

/// Adds the tag of a label. The server rejects tags that are not a list of texts.
fn add_label(fields: &mut RawObject, label: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct Tags(Option<Vec<String>>);
    let mut tags = match fields.get("tags").map(|tags| serde_json::from_str(tags.get())) {
        None => Vec::new(),
        Some(Ok(Tags(tags))) => tags.unwrap_or_default(),
        Some(Err(_)) => return Ok(()),
    };
    let tag = format!("{LABEL}{label}");
    if let Some(other) = tags.iter().find(|other| other.starts_with(LABEL) && **other != tag) {
        return Err(format!("has the tag {other}, but the file has managed_by: {label}; remove the tag"));
    }
    if !tags.contains(&tag) {
        tags.push(tag);
    }
    fields.set_to("tags", &tags).map_err(|error| error.to_string())
}

/// The files of all paths, those of directories and their subdirectories in the order of their names. Hidden
/// files are left out.
fn expanded(paths: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if path == Path::new(STDIN) || !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        add_directory(path, &mut files)?;
        if files.len() == before {
            let shown = path.display();
            return Err(CliError::refused(format!("{shown} contains no .yaml, .yml or .json file")).into());
        }
    }
    Ok(files)
}

fn add_directory(directory: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let reading = || format!("cannot read {}", directory.display());
    let mut entries: Vec<_> = std::fs::read_dir(directory)
        .with_context(reading)?
        .collect::<Result<_, _>>()
        .with_context(reading)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let is_file_of_jobs = path
            .extension()
            .and_then(|extension| extension.to_str())
            .is_some_and(|extension| EXTENSIONS.contains(&extension));
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        // Links to directories are not followed: they may lead in a circle.
        if entry.file_type().with_context(reading)?.is_dir() {
            add_directory(&path, files)?;
        } else if is_file_of_jobs && !path.is_dir() {
            files.push(path);
        }
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".to_owned() } else { path.display().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The jobs of files with these names and texts, as owner, name and body; or the error.
    fn read(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let shown = format!("{}/", directory.path().display());
        let manifest = ManifestArgs { files: vec![directory.path().to_owned()] }.read("me");
        let manifest = manifest.map_err(|error| error.to_string().replace(&shown, ""))?;
        let told = manifest.jobs.iter().map(|job| {
            let body = serde_json::to_string(&job.body(&BTreeMap::new()).unwrap()).unwrap();
            format!("{}/{} {body}", job.owner, job.name)
        });
        Ok(told.collect())
    }

    #[test]
    fn files_of_a_directory_hold_jobs_in_several_forms() {
        let files = [
            ("a.yaml", "managed_by: team\njobs:\n- name: one\n  tags: [x]\n---\nname: two\nowner_id: you\n"),
            (
                "b.json",
                r#"[{"name": "three", "payload": {"n": 1.50}}] {"jobs": [{"name": "four"}], "$schema": "x"}"#,
            ),
            ("deeper/c.yml", "name: five\n"),
            (".hidden.yaml", "name: six\n"),
            ("README.md", "name: seven\n"),
        ];
        assert_eq!(
            read(&files).unwrap(),
            [
                r#"me/one {"name":"one","tags":["x","managed_by:team"]}"#,
                r#"you/two {"name":"two","owner_id":"you","tags":["managed_by:team"]}"#,
                r#"me/three {"name":"three","payload":{"n": 1.50}}"#,
                r#"me/four {"name":"four"}"#,
                r#"me/five {"name":"five"}"#,
            ]
        );
    }

    #[test]
    fn every_error_says_where_it_is() {
        for (text, error) in [
            ("jobs: []", "a.yaml contains no job"),
            ("", "a.yaml contains no job"),
            ("jobs: {a: 1}", "a.yaml: jobs must be a list of jobs"),
            ("job: [{name: a}]", "a.yaml: unknown key job; did you mean jobs?"),
            (
                "x: [{name: a}]",
                "a.yaml: unknown key x; expected jobs, channels, rules, silences and managed_by",
            ),
            ("text", "a.yaml: must be an object with `jobs`, a list of jobs, or a job with a `name`"),
            ("jobs: [{name: a}]\nmanaged_by: 7", "a.yaml: managed_by must be a text, such as billing"),
            ("jobs: [{queue: a}]", "a.yaml: job 1: has no name; owner and name identify a job"),
            (
                "name: a\n---\nname: b\npayload: '${env:NO_SUCH_VARIABLE_1}'",
                "a.yaml, document 2: job 1 (b): payload: the variable NO_SUCH_VARIABLE_1 is not set: set it, or write \
                 ${env:NO_SUCH_VARIABLE_1:-default} to give a default",
            ),
            (
                "jobs: [{name: a}, {name: a, owner_id: me}]",
                "a.yaml: job 2 (a) has the same owner and name as a.yaml: job 1 (a): rename one of them",
            ),
            (
                "managed_by: x\njobs: []\n---\nmanaged_by: y\njobs: []",
                "a.yaml, document 2: managed_by is y here and x before: a file has one label",
            ),
            (
                "managed_by: x\njobs: [{name: a, tags: ['managed_by:y']}]",
                "a.yaml: job 1 (a): has the tag managed_by:y, but the file has managed_by: x; remove the tag",
            ),
        ] {
            assert_eq!(read(&[("a.yaml", text)]), Err(error.to_owned()), "{text}");
        }
        assert!(read(&[("a.txt", "")]).unwrap_err().contains("contains no .yaml, .yml or .json file"));
    }

    #[test]
    fn a_job_as_read_is_taken_without_its_state_and_as_it_is() {
        let text = "job_id: 0197e9a0-5b7e-7c3a-9d52-6a1f0c4e8b11\nname: a\ninterval: 1h\nstatus: ACTIVE\nversion: 3\n\
                    interval_anchor: '2026-11-15T08:30:00Z'\npayload: '${env:HOME}'\nresult: null\n";
        assert_eq!(
            read(&[("a.yaml", text)]).unwrap(),
            [
                r#"me/a {"name":"a","interval":"1h","payload":"${env:HOME}","start_at":"2026-11-15T08:30:00Z"}"#
            ]
        );
    }

    #[test]
    fn a_value_from_outside_is_known_by_its_reference() {
        let job =
            r#"{"name": "a", "payload": {"key": "${env:PATH}", "list": ["${env:PATH}"], "plain": "x"}}"#;
        let job = ManifestJob::for_test(job);
        let at = |path: &str| job.reference_at(&path.split('.').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(at("payload.key"), Some(Value::from("${env:PATH}")));
        assert_eq!(at("payload.list"), Some(serde_json::json!(["${env:PATH}"])));
        assert_eq!(at("payload.plain"), None);
        assert_eq!(at("payload.absent"), None);
    }
}
