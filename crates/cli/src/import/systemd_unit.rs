//! Unit files of systemd: sections with settings, and command lines in them.

use std::collections::BTreeMap;

/// Section and setting, with all values in order. An empty value removes the earlier ones, as in systemd.
pub struct UnitFile(BTreeMap<(String, String), Vec<String>>);

impl UnitFile {
    pub fn parse(text: &str) -> Self {
        let mut settings: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut section = String::new();
        let joined = text.replace("\\\r\n", " ").replace("\\\n", " ");
        for line in joined.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name.to_owned();
            } else if let Some((name, value)) = line.split_once('=') {
                let values = settings.entry((section.clone(), name.trim().to_owned())).or_default();
                match value.trim() {
                    "" => values.clear(),
                    value => values.push(value.to_owned()),
                }
            }
        }
        UnitFile(settings)
    }

    pub fn all(&self, section: &str, name: &str) -> &[String] {
        self.0.get(&(section.to_owned(), name.to_owned())).map_or(&[], Vec::as_slice)
    }

    pub fn last(&self, section: &str, name: &str) -> Option<&str> {
        self.all(section, name).last().map(String::as_str)
    }

    pub fn is_on(&self, section: &str, name: &str) -> bool {
        self.last(section, name).is_some_and(|value| matches!(value, "yes" | "true" | "on" | "1"))
    }

    /// The settings of a section that have values.
    pub fn names<'a>(&'a self, section: &'a str) -> impl Iterator<Item = &'a str> {
        let set = self
            .0
            .iter()
            .filter(move |((in_section, _), values)| in_section == section && !values.is_empty());
        set.map(|((_, name), _)| name.as_str())
    }
}

/// The words of a command line or of `Environment=`, with quotes removed.
pub fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', _) => word.get_or_insert_default().extend(letters.next()),
            ('"' | '\'', None) => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (letter, Some(mark)) if letter == mark => quote = None,
            (letter, None) if letter.is_whitespace() => words.extend(word.take()),
            (letter, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The unit file that all instances of a template share: `pg_dump@.service` for `pg_dump@main.service`.
pub fn template_of(unit: &str) -> Option<String> {
    let (stem, kind) = unit.rsplit_once('.')?;
    let (prefix, instance) = stem.split_once('@')?;
    (!instance.is_empty()).then(|| format!("{prefix}@.{kind}"))
}

/// The text with the specifiers of the unit's name replaced, or the first one that is unknown here.
pub fn specified(text: &str, unit: &str) -> Result<String, String> {
    let stem = unit.rsplit_once('.').map_or(unit, |(stem, _)| stem);
    let (prefix, instance) = stem.split_once('@').unwrap_or((stem, ""));
    let mut replaced = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            replaced.push(letter);
            continue;
        }
        match letters.next() {
            Some('%') => replaced.push('%'),
            Some('n') => replaced += unit,
            Some('N') => replaced += stem,
            Some('p') => replaced += prefix,
            Some('i') => replaced += instance,
            Some('I') => replaced += &instance.replace('-', "/").replace("\\x2d", "-"),
            other => return Err(format!("%{}", other.map(String::from).unwrap_or_default())),
        }
    }
    Ok(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_repeat_continue_and_are_reset() {
        let unit = UnitFile::parse(
            "[Service]\nEnvironment=A=1\nEnvironment=B=2\n# x\nExecStart=/bin/a \\\n  b\nUser=x\nUser=\n",
        );
        assert_eq!(unit.all("Service", "Environment"), ["A=1", "B=2"]);
        assert_eq!(unit.last("Service", "ExecStart"), Some("/bin/a    b"));
        assert_eq!(unit.last("Service", "User"), None);
        assert_eq!(words(r#"/bin/sh -c "a 'b' \"c" d''e "" "#), ["/bin/sh", "-c", "a 'b' \"c", "de", ""]);
        assert_eq!(specified("%p-%i 100%% %N", "backup@db.service").unwrap(), "backup-db 100% backup@db");
        assert_eq!(specified("%i %I", r"pg@15-main\x2da.service").unwrap(), r"15-main\x2da 15/main-a");
        assert_eq!(specified("%h/x", "a.service"), Err("%h".to_owned()));
    }
}
