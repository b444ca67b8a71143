//! Writes each sample to a file as a line of JSON as soon as it is taken, so that hours of measurements survive a
//! crash of the run.

use punctual_config::exit::CliError;
use serde::Serialize;
use std::fs::File;
use std::io::Write;
use std::path::Path;

pub struct SampleFile {
    file: File,
    name: String,
    /// Whether the user has been warned that writing failed.
    has_failed: bool,
}

impl SampleFile {
    /// Opens the file for appending.
    pub fn open(path: &Path) -> Result<Self, CliError> {
        let name = path.display().to_string();
        let file = File::options().create(true).append(true).open(path);
        let file =
            file.map_err(|error| CliError::cannot_start(format!("--samples {name}: cannot write: {error}")))?;
        Ok(SampleFile { file, name, has_failed: false })
    }

    /// Writes a sample. A write error does not end the measurement; it is reported once.
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
