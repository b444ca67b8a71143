//! Inspecting a store from outside.

use super::open;
use crate::sqlite::{Inspection, StoreState, inspect};
use std::collections::BTreeMap;
use std::path::Path;

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
    entries
        .map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap()))
        .collect()
}

#[test]
fn an_inspection_reports_the_state_of_a_store_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    // Characters with a meaning in a URI.
    let dir = directory.path().join("50% of #1?");
    let store = open(&dir);
    assert_eq!(inspect(&dir).unwrap(), StoreState::InUse);
    drop(store);
    let before = files(&dir);
    let StoreState::Closed(Inspection { version, version_known, problems }) = inspect(&dir).unwrap() else {
        panic!("the store is closed");
    };
    assert_eq!((version, problems), (version_known, vec![]));
    assert_eq!(files(&dir), before);
    std::fs::write(dir.join("punctual.db-wal"), "left behind").unwrap();
    assert_eq!(inspect(&dir).unwrap(), StoreState::NotClosed { log_bytes: 11 });
}

#[test]
fn an_inspection_finds_damage() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let file = directory.path().join("punctual.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4_096].fill(0xff);
    std::fs::write(&file, bytes).unwrap();
    match inspect(directory.path()) {
        Ok(StoreState::Closed(found)) => assert!(!found.problems.is_empty()),
        Ok(state) => panic!("{state:?}"),
        // SQLite may fail before it reads anything.
        Err(_) => {}
    }
    std::fs::write(&file, "this is not a database, whatever its name says. ".repeat(100)).unwrap();
    assert!(inspect(directory.path()).is_err());
}
