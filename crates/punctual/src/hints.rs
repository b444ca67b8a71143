//! What the server says to do over HTTP, as the command that does the same.

/// What stands around the one thing that varies, in the server's words and in the command's.
struct Hint {
    said: [&'static str; 2],
    command: [&'static str; 2],
}

const HINTS: [Hint; 5] = [
    Hint { said: ["POST /api/v1/jobs/", "/resume"], command: ["`punctual job resume ", "`"] },
    Hint { said: ["POST /api/v1/queues/", "/resume"], command: ["`punctual queue resume ", "`"] },
    Hint {
        said: ["POST /api/v1/dead-letters/redrive with {\"ids\": [\"", "\"]}"],
        command: ["`punctual dlq redrive ", "`"],
    },
    Hint { said: ["If-Match: \"", "\""], command: ["--if-version ", ""] },
    Hint { said: ["{\"override\": ", "true}"], command: ["--override", ""] },
];

pub fn as_commands(text: &str) -> String {
    let mut text = text.to_owned();
    for Hint { said: [opening, closing], command: [before, after] } in &HINTS {
        let mut from = 0;
        while let Some(start) = text[from..].find(opening).map(|place| from + place) {
            let inner = start + opening.len();
            let Some(end) = text[inner..].find(closing).map(|place| inner + place) else { break };
            let command = format!("{before}{}{after}", &text[inner..end]);
            text.replace_range(start..end + closing.len(), &command);
            from = start + command.len();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_become_commands() {
        for (said, shown) in [
            ("held until POST /api/v1/jobs/17/resume.", "held until `punctual job resume 17`."),
            (
                "until POST /api/v1/queues/mail/resume or POST /api/v1/queues/b/resume",
                "until `punctual queue resume mail` or `punctual queue resume b`",
            ),
            (
                "and POST /api/v1/dead-letters/redrive with {\"ids\": [\"17.1\"]} runs it",
                "and `punctual dlq redrive 17.1` runs it",
            ),
            ("send it with If-Match: \"2\"", "send it with --if-version 2"),
            ("trigger with {\"override\": true} to run", "trigger with --override to run"),
            ("POST /api/v1/jobs/", "POST /api/v1/jobs/"),
        ] {
            assert_eq!(as_commands(said), shown);
        }
    }
}
