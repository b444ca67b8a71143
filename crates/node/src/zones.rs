//! Reads compiled time zone data from a directory.

use punctual_config::TimeSettings;
use punctual_config::exit::CliError;
use punctual_core::limits;
use punctual_core::mix::mix;
use punctual_core::recurrence::{ZoneFiles, install_zones};
use std::fs;
use std::io;
use std::path::Path;

/// The first bytes of compiled data. Other files, such as tables and leap seconds, are passed over.
const MAGIC: &[u8] = b"TZif";
/// Copies of all zones in other forms, and names that depend on the machine.
const NOT_ZONES: [&str; 5] = ["posix", "right", "localtime", "posixrules", "Factory"];
/// Names that files of one directory can have; deeper ones do not exist.
const DEPTH_MAX: usize = 4;

/// Uses the zones of `time.tzdata_dir`, if it is set, for the rest of the process.
pub fn install(settings: &TimeSettings) -> Result<(), CliError> {
    let Some(directory) = &settings.tzdata_dir else { return Ok(()) };
    let refused = |problem: String| {
        CliError::cannot_start(format!("time.tzdata_dir {} cannot be used: {problem}", directory.display()))
    };
    let files = read(directory).map_err(|error| refused(error.to_string()))?;
    tracing::info!(directory = %directory.display(), version = files.version, "time zones of the directory are used");
    install_zones(files).map_err(|error| refused(error.to_string()))
}

/// All compiled zones below a directory, and their version: that of a file `+VERSION` or `version`, or of the first line of
/// `tzdata.zi`. Without these it is made from the data, so that nodes can compare it.
pub fn read(directory: &Path) -> io::Result<ZoneFiles> {
    let mut files = vec![];
    collect(directory, "", 0, &mut files)?;
    files.sort();
    let version = ["+VERSION", "version"].iter().find_map(|name| first_line(&directory.join(name)));
    let version = version.or_else(|| {
        first_line(&directory.join("tzdata.zi"))?
            .strip_prefix("# version ")
            .map(|version| version.trim().to_owned())
    });
    let version = version.filter(|version| !version.is_empty() && version.len() <= 32);
    Ok(ZoneFiles { version: version.unwrap_or_else(|| fingerprint(&files)), files })
}

fn collect(
    directory: &Path,
    prefix: &str,
    depth: usize,
    files: &mut Vec<(String, Vec<u8>)>,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other("it has too many levels of directories"));
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if depth == 0 && NOT_ZONES.contains(&name.as_str()) {
            continue;
        }
        let (path, name) = (entry.path(), format!("{prefix}{name}"));
        let kind = fs::metadata(&path)?;
        if kind.is_dir() {
            collect(&path, &format!("{name}/"), depth + 1, files)?;
        } else if kind.is_file() {
            let bytes = fs::read(&path)?;
            if bytes.starts_with(MAGIC) {
                files.push((name, bytes));
            }
        }
        if files.len() > limits::ZONE_FILES_MAX {
            return Err(io::Error::other(format!("it has more than {} zones", limits::ZONE_FILES_MAX)));
        }
    }
    Ok(())
}

fn first_line(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

fn fingerprint(files: &[(String, Vec<u8>)]) -> String {
    let mut hash = 0;
    for (name, bytes) in files {
        for byte in name.bytes().chain(bytes.iter().copied()) {
            hash = mix(hash ^ u64::from(byte));
        }
    }
    format!("unknown-{:08x}", hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_their_version_are_read_from_a_tree() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir_all(at("Europe")).unwrap();
        fs::create_dir_all(at("right/Europe")).unwrap();
        for name in ["Europe/Berlin", "right/Europe/Berlin", "UTC"] {
            fs::write(at(name), b"TZif2").unwrap();
        }
        fs::write(at("zone.tab"), "# a table").unwrap();
        let names = |read: &ZoneFiles| read.files.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let unnamed = read(directory.path()).unwrap();
        assert_eq!(names(&unnamed), ["Europe/Berlin", "UTC"]);
        assert!(unnamed.version.starts_with("unknown-"), "{}", unnamed.version);
        fs::write(at("tzdata.zi"), "# version 2027a\nR A 1 2").unwrap();
        assert_eq!(read(directory.path()).unwrap().version, "2027a");
        fs::write(at("+VERSION"), "2027b\n").unwrap();
        assert_eq!(read(directory.path()).unwrap().version, "2027b");
        assert!(read(&at("missing")).is_err());
    }
}
