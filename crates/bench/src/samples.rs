//! Samples in a file, a line of JSON each, written as they are taken: what was measured in hours outlives whatever ends the
//! run.

use punctual_config::exit::CliError;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub struct SampleFile {
    file: File,
    name: String,
    /// Whether it was said that they are no longer kept.
    has_failed: bool,
}

impl SampleFile {
    /// Appends to what is there already.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let name = path.display().to_string();
        let file = File::options().create(true).append(true).open(path);
        let file =
            file.map_err(|error| CliError::cannot_start(format!("--samples {name}: cannot write: {error}")))?;
        Ok(SampleFile { file, name, has_failed: false })
    }

    /// A file that can no longer be written ends no measurement: it is told once.
    pub fn keep(&mut self, sample: &impl Serialize) {
        if let Err(error) = self.write(sample)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            eprintln!("warning: --samples {}: no longer written: {error}", self.name);
        }
    }

    fn write(&mut self, sample: &impl Serialize) -> std::io::Result<()> {
        let line = serde_json::to_string(sample)? + "\n";
        self.file.write_all(line.as_bytes())
    }
}
