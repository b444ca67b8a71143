//! The command line of `cargo xtask fresh`.

use anyhow::{Context, Result, bail};
use std::path::PathBuf;

pub const USAGE: &str = "\
cargo xtask fresh [--user root|ordinary|both] [--command serve|test|both] [--root DIR] [--target-dir DIR] [--keep] [-- COMMAND…]
                            runs the two commands of the README, or another one, on the last commit in a minimal Debian, as root
                            and as an ordinary user; needs root. --root keeps the base Debian for the next run, --target-dir the
                            compiled files, --keep the files of each user";

#[derive(Debug, PartialEq, Eq)]
pub struct FreshOptions {
    user: Choice<FreshUser>,
    command: Choice<ReadmeCommand>,
    pub root: Option<PathBuf>,
    pub target_dir: Option<PathBuf>,
    pub keep: bool,
    /// Replaces the commands of the README.
    pub own_command: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice<T> {
    One(T),
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreshUser {
    Root,
    /// Cannot become root.
    Ordinary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadmeCommand {
    Serve,
    Test,
}

impl FreshUser {
    pub fn word(self) -> &'static str {
        match self {
            FreshUser::Root => "root",
            FreshUser::Ordinary => "ordinary",
        }
    }
}

impl FreshOptions {
    pub fn parse(words: &[&str]) -> Result<Self> {
        let (words, own_command) = match words.iter().position(|word| *word == "--") {
            Some(at) => (&words[..at], &words[at + 1..]),
            None => (words, &[][..]),
        };
        let mut options = FreshOptions {
            user: Choice::Both,
            command: Choice::Both,
            root: None,
            target_dir: None,
            keep: false,
            own_command: own_command.iter().map(|word| (*word).to_owned()).collect(),
        };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value =
                || rest.next().copied().with_context(|| format!("{word} takes a value\n\n{USAGE}"));
            match *word {
                "--user" => {
                    options.user = chosen(
                        word,
                        value()?,
                        [("root", FreshUser::Root), ("ordinary", FreshUser::Ordinary)],
                    )?
                }
                "--command" => {
                    let commands = [("serve", ReadmeCommand::Serve), ("test", ReadmeCommand::Test)];
                    options.command = chosen(word, value()?, commands)?;
                }
                "--root" => options.root = Some(std::path::absolute(value()?)?),
                "--target-dir" => options.target_dir = Some(std::path::absolute(value()?)?),
                "--keep" => options.keep = true,
                _ => bail!("fresh does not take {word}\n\n{USAGE}"),
            }
        }
        Ok(options)
    }

    pub fn users(&self) -> Vec<FreshUser> {
        [FreshUser::Root, FreshUser::Ordinary].into_iter().filter(|user| self.user.includes(*user)).collect()
    }

    pub fn runs_serve(&self) -> bool {
        self.command.includes(ReadmeCommand::Serve)
    }

    pub fn runs_test(&self) -> bool {
        self.command.includes(ReadmeCommand::Test)
    }
}

impl<T: PartialEq> Choice<T> {
    fn includes(&self, other: T) -> bool {
        match self {
            Choice::One(one) => *one == other,
            Choice::Both => true,
        }
    }
}

fn chosen<T: Copy>(option: &str, word: &str, known: [(&str, T); 2]) -> Result<Choice<T>> {
    if word == "both" {
        return Ok(Choice::Both);
    }
    let found = known.iter().find(|(name, _)| *name == word);
    let (_, value) = found
        .with_context(|| format!("{option} takes {}, {} or both, not {word:?}", known[0].0, known[1].0))?;
    Ok(Choice::One(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_runs_by_default() {
        let all = FreshOptions::parse(&[]).unwrap();
        assert_eq!(all.users(), [FreshUser::Root, FreshUser::Ordinary]);
        assert!(all.runs_serve() && all.runs_test() && !all.keep);
        let some =
            FreshOptions::parse(&["--user", "ordinary", "--command", "test", "--keep", "--root", "/r"])
                .unwrap();
        assert_eq!(some.users(), [FreshUser::Ordinary]);
        assert!(!some.runs_serve() && some.runs_test() && some.keep);
        assert_eq!(some.root, Some("/r".into()));
        assert_eq!(FreshOptions::parse(&["--user", "both", "--command", "both"]).unwrap(), all);
    }

    #[test]
    fn invalid_arguments_are_reported() {
        let error = |words: &[&str]| FreshOptions::parse(words).unwrap_err().to_string();
        assert_eq!(error(&["--user", "ann"]), "--user takes root, ordinary or both, not \"ann\"");
        assert!(error(&["--root"]).starts_with("--root takes a value"));
        assert!(error(&["--kep"]).starts_with("fresh does not take --kep"));
    }
}
