//! Levels of log lines. A line carries its level as a prefix such as `<3>`, the number of syslog, as programs write
//! it for systemd. The store keeps the line as it is; readers see the level and the rest.

/// How severe a line is, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    pub const ALL: [LogLevel; 4] = [LogLevel::Debug, LogLevel::Info, LogLevel::Warn, LogLevel::Error];

    pub const fn word(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Warn => "warn",
            LogLevel::Error => "error",
        }
    }

    /// What a line of this level begins with.
    pub const fn prefix(self) -> &'static str {
        match self {
            LogLevel::Debug => "<7>",
            LogLevel::Info => "<6>",
            LogLevel::Warn => "<4>",
            LogLevel::Error => "<3>",
        }
    }

    /// The level of a line, if it has one, and the line without it.
    pub fn split(line: &str) -> (Option<LogLevel>, &str) {
        let level = match line.as_bytes() {
            [b'<', b'0'..=b'3', b'>', ..] => LogLevel::Error,
            [b'<', b'4', b'>', ..] => LogLevel::Warn,
            [b'<', b'5' | b'6', b'>', ..] => LogLevel::Info,
            [b'<', b'7', b'>', ..] => LogLevel::Debug,
            _ => return (None, line),
        };
        (Some(level), &line[LogLevel::Error.prefix().len()..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_level() {
        for level in LogLevel::ALL {
            let line = format!("{}disk full", level.prefix());
            assert_eq!(LogLevel::split(&line), (Some(level), "disk full"), "{}", level.word());
        }
        assert_eq!(LogLevel::split("<0>x"), (Some(LogLevel::Error), "x"));
        assert_eq!(LogLevel::split("<5>"), (Some(LogLevel::Info), ""));
        for line in ["", "<8>x", "<p>x", "<33>x", "x<3>", "<3"] {
            assert_eq!(LogLevel::split(line), (None, line));
        }
        assert!(LogLevel::Error > LogLevel::Warn);
    }
}
