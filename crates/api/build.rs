//! Lists the files of the dashboard, which become part of the binary.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

fn main() -> io::Result<()> {
    let variable = |name| PathBuf::from(std::env::var_os(name).expect("cargo sets it"));
    let folder = variable("CARGO_MANIFEST_DIR").join("../../dashboard").canonicalize()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.sort();
    let entry = |file: &PathBuf| {
        let name = file.strip_prefix(&folder).expect("it was found there").display();
        format!("({:?}, include_bytes!({:?}).as_slice()),\n", name.to_string(), file.display().to_string())
    };
    let list: String = files.iter().map(entry).collect();
    fs::write(variable("OUT_DIR").join("dashboard.rs"), format!("&[\n{list}]"))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(path),
        }
    }
    Ok(())
}
