//! Jobs in files that name their dependencies: names are looked up in the file, then on the server, and
//! replaced by ids.

use crate::job::which;
use punctual_client::Client;
use punctual_core::ids::JobId;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;

/// A job's name and dependencies. The server rejects other forms.
#[derive(Deserialize)]
struct Depending {
    #[serde(default)]
    name: String,
    #[serde(default)]
    depends_on: Vec<String>,
}

/// The jobs of one file, by index.
pub struct JobFamily {
    names: Vec<String>,
    /// The parents that each job refers to by name, without those given by id.
    parents: Vec<Vec<String>>,
}

/// What to do with a job.
#[derive(Debug, PartialEq, Eq)]
pub enum Turn {
    /// A parent in the same file was not submitted yet.
    Waits,
    /// All parents in the same file exist: their ids, by name.
    Ready(BTreeMap<String, JobId>),
    /// It cannot be submitted, and why.
    Hopeless(String),
}

/// The outcome of a job of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileJobState {
    Open,
    Taken(JobId),
    Refused,
}

impl JobFamily {
    pub fn of(jobs: &[Box<RawValue>]) -> JobFamily {
        let read = jobs.iter().map(|job| {
            let Depending { name, mut depends_on } = serde_json::from_str(job.get())
                .unwrap_or_else(|_| Depending { name: String::new(), depends_on: vec![] });
            depends_on.retain(|parent| parent.parse::<JobId>().is_err());
            (name, depends_on)
        });
        let (names, parents) = read.unzip();
        JobFamily { names, parents }
    }

    /// Whether the job at this index can be submitted, given the outcomes of all.
    pub fn turn(&self, place: usize, states: &[FileJobState]) -> Turn {
        let mut ids = BTreeMap::new();
        for parent in &self.parents[place] {
            let mut named = self.names.iter().zip(states).filter(|(name, _)| *name == parent);
            match (named.next(), named.next()) {
                (None, _) => {}
                (Some((_, FileJobState::Open)), None) => return Turn::Waits,
                (Some((_, FileJobState::Taken(id))), None) => drop(ids.insert(parent.clone(), *id)),
                (Some((_, FileJobState::Refused)), None) => {
                    return Turn::Hopeless(format!("depends_on names {parent}, which was refused"));
                }
                (Some(_), Some(_)) => {
                    let message = format!(
                        "depends_on names {parent}, which is the name of more than one job in the file"
                    );
                    return Turn::Hopeless(message);
                }
            }
        }
        Turn::Ready(ids)
    }

    /// The job with its parents' names replaced by ids: known ones, or those that the server finds.
    pub async fn with_ids(
        &self,
        client: &Client,
        (place, job): (usize, &RawValue),
        mut known: BTreeMap<String, JobId>,
    ) -> anyhow::Result<Box<RawValue>> {
        if self.parents[place].is_empty() {
            return Ok(job.to_owned());
        }
        for parent in &self.parents[place] {
            if !known.contains_key(parent) {
                known.insert(parent.clone(), which::find(client, parent).await?);
            }
        }
        // All other values stay as written.
        let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(job.get())?;
        let Depending { depends_on, .. } = serde_json::from_str(job.get())?;
        let ids = depends_on.into_iter().map(|parent| known.get(&parent).map_or(parent, JobId::to_string));
        fields.insert("depends_on".to_owned(), to_raw_value(&ids.collect::<Vec<_>>())?);
        Ok(to_raw_value(&fields)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::time::Timestamp;

    #[test]
    fn a_job_waits_for_its_parents_in_the_file() {
        let id = JobId::new(Timestamp::EPOCH, 1);
        let file = format!(
            r#"[{{"name":"load","depends_on":["fetch","{id}"]}},{{"name":"fetch"}},{{"name":"x","depends_on":["twin"]}},
                {{"name":"twin"}},{{"name":"twin"}},{{"name":"y","depends_on":["elsewhere"]}},{{"depends_on":1}}]"#
        );
        let jobs: Vec<Box<RawValue>> = serde_json::from_str(&file).unwrap();
        let family = JobFamily::of(&jobs);
        let mut states = vec![FileJobState::Open; jobs.len()];
        assert_eq!(family.turn(0, &states), Turn::Waits);
        assert_eq!(family.turn(1, &states), Turn::Ready(BTreeMap::new()));
        assert!(matches!(family.turn(2, &states), Turn::Hopeless(why) if why.contains("more than one job")));
        assert_eq!(family.turn(5, &states), Turn::Ready(BTreeMap::new()));
        assert_eq!(family.turn(6, &states), Turn::Ready(BTreeMap::new()));
        states[1] = FileJobState::Taken(id);
        assert_eq!(family.turn(0, &states), Turn::Ready(BTreeMap::from([("fetch".to_owned(), id)])));
        states[1] = FileJobState::Refused;
        assert!(matches!(family.turn(0, &states), Turn::Hopeless(why) if why.contains("was refused")));
    }
}
