//! Generates the template and the reference page from the tables of settings.

use crate::settings::{self, Default, Setting};
use crate::value::Raw;
use serde_json::Value as Json;
use std::fmt::Write as _;
use std::path::Path;

/// Characters per line of a comment.
const COMMENT_CHARS_MAX: usize = 100;

const TEMPLATE_OPENING: &str = "\
# Configuration of Punctual: every setting, with its default. Remove the # before those that you change.
# Flags take precedence over variables, variables over this file, and this file over defaults.
# The file is punctual.toml in the working directory, or the one given by --config or PUNCTUAL_CONFIG. Paths are
# relative to the directory of this file. Secrets are not allowed here: they have separate files.
# `punctual config check` reports problems, `punctual config show` the effective values and their sources.
";

/// A file with every setting commented out.
pub fn template() -> String {
    let mut text = TEMPLATE_OPENING.to_owned();
    let mut table = "";
    for setting in settings::all() {
        if setting.table() != table {
            table = setting.table();
            let _ = write!(text, "\n[{table}]\n");
        }
        let about = format!("{}. {}", setting.about, setting.limits);
        let _ = write!(text, "\n{}\n{}", comment(&about), comment(&allowed(setting, "")));
        let _ = writeln!(text, "\n#{} = {}", setting.name(), toml(&example(setting)));
    }
    text
}

const PAGE_OPENING: &str = "\
# Configuration

Every setting of `punctual serve`, `api`, `scheduler` and `worker`, and those that commands use to find a server.
[punctual.toml](punctual.toml) is a file with all of them, as `punctual config template` prints it.

A setting can be given in three ways. Flags take precedence over variables, variables over the file, and the file over
defaults:

```
punctual serve --drain-grace 1m              # a flag
PUNCTUAL_DRAIN_GRACE=1m punctual serve       # a variable; an empty one counts as unset
drain_grace = \"1m\"                           # punctual.toml
```

- The file is `punctual.toml` in the working directory if it exists, or the one given by `--config` or `PUNCTUAL_CONFIG`.
- `log.level` is the key `level` below `[log]`. Its flag is `--log-level` and its variable `PUNCTUAL_LOG_LEVEL`. Those of
  `[client]` omit the name of the table, and `store.url` is `--store` and `PUNCTUAL_STORE`.
- Durations are `30s`, `5m`, `1h30m`, `1d` or ISO 8601 such as `PT1M`. Lists are arrays of strings in the file; flags and
  variables separate items with commas, and a flag can be repeated.
- Paths in the file are relative to the file, those of flags and variables to the working directory.
- An unknown key or an invalid value is an error (exit code 2), reported with file and line. An unknown variable that
  begins with `PUNCTUAL_` causes a warning.
- Secrets have separate files (`token_file`, `signing_key_file`, `password_file`) and are not allowed in the file. Commands
  also read a token from the variable `PUNCTUAL_TOKEN`, and servers the password of their database from
  `PUNCTUAL_STORE_PASSWORD` and the keys for secrets from `PUNCTUAL_SECRETS_KEY`. The flags `--token` and `--store-password`
  are for tests: other users of the machine can see flags, and the shell keeps them. URLs are always shown without the password.

`punctual config show` prints the effective settings and the source of each value, `punctual config check [FILE]` reports
problems. Commands that start no server use only `data_dir` and `[client]`, but reject a file with an error anywhere.
";

/// The reference page.
pub fn reference() -> String {
    let mut page = PAGE_OPENING.to_owned();
    let mut table = None;
    for setting in settings::all() {
        if table != Some(setting.table()) {
            table = Some(setting.table());
            let heading = match setting.table() {
                "" => "Top-level settings".to_owned(),
                name => format!("`[{name}]`"),
            };
            let _ = write!(page, "\n## {heading}\n");
        }
        let _ = write!(page, "\n### `{}`\n\n{}. {}\n\n", setting.key, setting.about, setting.limits);
        let _ = writeln!(page, "- {}", allowed(setting, "`").trim_end_matches('.'));
        let _ = writeln!(page, "- `--{}`, `{}`", setting.flag(), setting.variable());
    }
    page
}

/// The accepted values and the default; `quote` encloses values.
fn allowed(setting: &Setting, quote: &str) -> String {
    let kind = (setting.kind)();
    let mut letters = kind.chars();
    let kind: String = letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect();
    match setting.default {
        Default::Is(_) => format!("{kind}; {quote}{}{quote} by default.", toml(&example(setting))),
        Default::Unset { .. } => format!("{kind}; not set by default."),
    }
}

/// The default, or an example value.
fn example(setting: &Setting) -> Json {
    let (Default::Is(text) | Default::Unset { such_as: text }) = setting.default;
    (setting.check)(&Raw::word(text), Path::new("")).expect("defaults and examples are right")
}

/// A value in TOML syntax.
pub fn toml(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        // Strings have the same syntax in both.
        value => value.to_string(),
    }
}

/// The text as lines that begin with `# `.
fn comment(text: &str) -> String {
    let mut lines = vec![String::from("#")];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is a line");
        if line.chars().count() + 1 + word.chars().count() > COMMENT_CHARS_MAX {
            lines.push(format!("# {word}"));
        } else {
            *line += &format!(" {word}");
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ConfigFile;

    #[test]
    fn the_committed_page_and_template_are_the_ones_that_are_written() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        for (file, text) in [("configuration.md", reference()), ("punctual.toml", template())] {
            let path = directory.join(file);
            if std::env::var_os("UPDATE_DOCS").is_some() {
                std::fs::create_dir_all(&directory).unwrap();
                std::fs::write(&path, &text).unwrap();
            }
            let committed = std::fs::read_to_string(&path).unwrap_or_default();
            let difference = committed.lines().zip(text.lines()).find(|(old, new)| old != new);
            assert!(
                committed == text,
                "docs/reference/{file} is not what the settings say: regenerate it with `UPDATE_DOCS=1 cargo nextest \
                 run -p punctual-config -E 'test(/page/)'`. First difference: {difference:#?}"
            );
        }
    }

    #[test]
    fn the_template_can_be_used_as_it_is_and_with_everything_in_it() {
        let path = Path::new("punctual.toml");
        ConfigFile::parse(path, &template()).unwrap();
        let uncommented: String = template()
            .lines()
            .map(|line| match line.strip_prefix('#') {
                Some(rest) if !rest.starts_with(' ') => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let file = ConfigFile::parse(path, &uncommented).unwrap();
        for setting in settings::all() {
            let entry = file.entry(setting).unwrap_or_else(|| panic!("{} is missing", setting.key));
            assert_eq!((setting.check)(&entry.raw, Path::new("")), Ok(example(setting)), "{}", setting.key);
        }
    }
}
