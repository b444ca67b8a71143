//! Files that hold one password.

use punctual_config::exit::CliError;
use std::path::Path;

/// The password in a file; `setting` is the key that names the file. Warns if others can read it.
pub fn read(setting: &str, file: &Path) -> Result<String, CliError> {
    let wrong = |why: String| CliError::cannot_start(format!("{setting} {}: {why}", file.display()));
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(wrong("the file is empty".to_owned()));
    }
    if let Ok(Some(exposed)) = punctual_config::exposure(file) {
        tracing::warn!("{exposed}");
    }
    Ok(text.to_owned())
}
