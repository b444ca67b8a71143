//! The part of Python that schedules of Celery are written in: literals, products and sums of numbers, and calls
//! such as `crontab(minute=0)`.

/// A value as written.
#[derive(Debug, Clone, PartialEq)]
pub enum PythonValue {
    None,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<PythonValue>),
    Dict(Vec<(PythonValue, PythonValue)>),
    /// A call: its name without modules, arguments and named arguments.
    Call(String, Vec<PythonValue>, Vec<(String, PythonValue)>),
    /// Any other name, such as a constant of another module.
    Name(String),
}

impl PythonValue {
    /// The value of a dictionary, by a text as key.
    pub fn get(&self, name: &str) -> Option<&PythonValue> {
        let PythonValue::Dict(members) = self else { return None };
        members.iter().find(|(key, _)| *key == PythonValue::Text(name.to_owned())).map(|(_, value)| value)
    }

    pub fn text(&self) -> Option<&str> {
        match self {
            PythonValue::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As JSON, if it is data alone.
    pub fn json(&self) -> Result<serde_json::Value, String> {
        use serde_json::Value;
        Ok(match self {
            PythonValue::None => Value::Null,
            PythonValue::Bool(flag) => Value::from(*flag),
            PythonValue::Number(number) if number.fract() == 0.0 && number.abs() < 9e15 => {
                Value::from(*number as i64)
            }
            PythonValue::Number(number) => Value::from(*number),
            PythonValue::Text(text) => Value::from(text.as_str()),
            PythonValue::List(items) => {
                Value::Array(items.iter().map(PythonValue::json).collect::<Result<_, _>>()?)
            }
            PythonValue::Dict(members) => {
                let member = |(key, value): &(PythonValue, PythonValue)| {
                    let key = key.text().ok_or("a key is not a text")?;
                    Ok::<_, String>((key.to_owned(), value.json()?))
                };
                Value::Object(members.iter().map(member).collect::<Result<_, _>>()?)
            }
            PythonValue::Call(name, ..) => {
                return Err(format!("{name}(…) is not data: replace it by its value"));
            }
            PythonValue::Name(name) => return Err(format!("{name} is not data: replace it by its value")),
        })
    }
}

/// The value that a text begins with.
pub fn parsed(text: &str) -> Result<PythonValue, String> {
    PythonReader { text, place: 0 }.sum()
}

struct PythonReader<'a> {
    text: &'a str,
    place: usize,
}

impl PythonReader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.place..]
    }

    /// Skips white space, comments and continued lines.
    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches(|one: char| one.is_whitespace() || one == '\\');
            let skipped = match trimmed.starts_with('#') {
                true => rest.len() - trimmed.find('\n').map_or("", |end| &trimmed[end..]).len(),
                false => rest.len() - trimmed.len(),
            };
            self.place += skipped;
            if skipped == 0 || self.rest().is_empty() {
                return self.rest().chars().next();
            }
        }
    }

    fn takes(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(mark);
        if found {
            self.place += mark.len_utf8();
        }
        found
    }

    fn error(&self, what: &str) -> String {
        let line = self.text[..self.place].matches('\n').count() + 1;
        format!("line {line} of the schedule: {what}")
    }

    fn sum(&mut self) -> Result<PythonValue, String> {
        let mut value = self.product()?;
        while self.peek() == Some('+') {
            self.place += 1;
            value = match (value, self.product()?) {
                (PythonValue::Number(one), PythonValue::Number(other)) => PythonValue::Number(one + other),
                (PythonValue::Text(one), PythonValue::Text(other)) => PythonValue::Text(one + &other),
                _ => return Err(self.error("only numbers and texts can be added")),
            };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<PythonValue, String> {
        let mut value = self.one()?;
        while self.peek() == Some('*') && !self.rest().starts_with("**") {
            self.place += 1;
            value = match (value, self.one()?) {
                (PythonValue::Number(one), PythonValue::Number(other)) => PythonValue::Number(one * other),
                _ => return Err(self.error("only numbers can be multiplied")),
            };
        }
        Ok(value)
    }

    fn one(&mut self) -> Result<PythonValue, String> {
        match self.peek() {
            Some('{') => self.dict(),
            Some('[') => Ok(PythonValue::List(self.items('[', ']')?)),
            Some('(') => {
                let start = self.place;
                let mut items = self.items('(', ')')?;
                // One value in parentheses is not a tuple, unless a comma follows it.
                let is_tuple = self.text[start..self.place].trim_end_matches(')').trim_end().ends_with(',');
                match items.pop() {
                    Some(one) if items.is_empty() && !is_tuple => Ok(one),
                    last => Ok(PythonValue::List(items.into_iter().chain(last).collect())),
                }
            }
            Some('-') => {
                self.place += 1;
                match self.one()? {
                    PythonValue::Number(number) => Ok(PythonValue::Number(-number)),
                    _ => Err(self.error("- must be before a number")),
                }
            }
            Some(one) if one.is_ascii_digit() || one == '.' => self.number(),
            Some('"' | '\'') => self.texts(),
            Some(one) if one.is_alphabetic() || one == '_' => self.name(),
            Some(other) => Err(self.error(&format!("cannot read {other}"))),
            None => Err(self.error("the value is not complete")),
        }
    }

    fn items(&mut self, open: char, close: char) -> Result<Vec<PythonValue>, String> {
        self.takes(open);
        let mut items = Vec::new();
        while !self.takes(close) {
            items.push(self.sum()?);
            if !self.takes(',') && self.peek() != Some(close) {
                return Err(self.error(&format!("expected , or {close}")));
            }
        }
        Ok(items)
    }

    fn dict(&mut self) -> Result<PythonValue, String> {
        self.takes('{');
        let mut members = Vec::new();
        while !self.takes('}') {
            let key = self.sum()?;
            if !self.takes(':') {
                return Err(self.error("expected : after a key"));
            }
            members.push((key, self.sum()?));
            if !self.takes(',') && self.peek() != Some('}') {
                return Err(self.error("expected , or }"));
            }
        }
        Ok(PythonValue::Dict(members))
    }

    fn number(&mut self) -> Result<PythonValue, String> {
        let is_part = |one: char| one.is_ascii_alphanumeric() || one == '.' || one == '_';
        let end = self.rest().find(|one: char| !is_part(one)).unwrap_or(self.rest().len());
        let digits = self.rest()[..end].replace('_', "");
        let number = digits.parse().map_err(|_| self.error(&format!("{digits} is not a number")))?;
        self.place += end;
        Ok(PythonValue::Number(number))
    }

    /// Adjacent texts are one.
    fn texts(&mut self) -> Result<PythonValue, String> {
        let mut all = String::new();
        while matches!(self.peek(), Some('"' | '\'')) {
            all += &self.quoted(false)?;
        }
        Ok(PythonValue::Text(all))
    }

    fn quoted(&mut self, is_raw: bool) -> Result<String, String> {
        let rest = self.rest();
        let mark = &rest[..1];
        let triple = mark.repeat(3);
        let mark = if rest.starts_with(&triple) { triple } else { mark.to_owned() };
        self.place += mark.len();
        let mut text = String::new();
        loop {
            if self.rest().starts_with(&mark) {
                self.place += mark.len();
                return Ok(text);
            }
            let mut letters = self.rest().chars();
            let Some(letter) = letters.next() else { return Err(self.error("a text does not end")) };
            let next = letters.next();
            self.place += letter.len_utf8();
            match (letter, next) {
                ('\\', Some(next)) if !is_raw => {
                    self.place += next.len_utf8();
                    match next {
                        'n' => text.push('\n'),
                        't' => text.push('\t'),
                        'r' => text.push('\r'),
                        '\n' => {}
                        '\\' | '\'' | '"' => text.push(next),
                        other => text.extend(['\\', other]),
                    }
                }
                ('\n', _) if mark.len() == 1 => return Err(self.error("a text does not end")),
                _ => text.push(letter),
            }
        }
    }

    /// A constant, a call, or a text with a prefix.
    fn name(&mut self) -> Result<PythonValue, String> {
        let is_part = |one: char| one.is_alphanumeric() || one == '_' || one == '.';
        let end = self.rest().find(|one: char| !is_part(one)).unwrap_or(self.rest().len());
        let name = self.rest()[..end].to_owned();
        self.place += end;
        if matches!(name.as_str(), "r" | "R" | "u" | "b" | "f") && self.rest().starts_with(['"', '\'']) {
            return match name.as_str() {
                "f" => Err(self.error("a text with replacements (f\"…\") is not data")),
                name => self.quoted(name.eq_ignore_ascii_case("r")).map(PythonValue::Text),
            };
        }
        match name.as_str() {
            "None" => return Ok(PythonValue::None),
            "True" => return Ok(PythonValue::Bool(true)),
            "False" => return Ok(PythonValue::Bool(false)),
            _ => {}
        }
        let last = name.rsplit('.').next().unwrap_or_default().to_owned();
        if !self.rest().starts_with('(') {
            return Ok(PythonValue::Name(name));
        }
        self.takes('(');
        let (mut items, mut named) = (Vec::new(), Vec::new());
        while !self.takes(')') {
            let value = self.sum()?;
            match value {
                PythonValue::Name(name) if self.peek() == Some('=') => {
                    self.takes('=');
                    named.push((name, self.sum()?));
                }
                value => items.push(value),
            }
            if !self.takes(',') && self.peek() != Some(')') {
                return Err(self.error("expected , or )"));
            }
        }
        Ok(PythonValue::Call(last, items, named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_calls_and_arithmetic_are_read() {
        let text = r#"{  # comment
            'a': {"task": 'x.' 'y', 'schedule': 60.0 * 5, 'args': (1, "two", None), },
            "b": celery.schedules.crontab(minute='*/5', hour=[1, 2]),
            'c': (timedelta(days=1)), 'd': ("one",), 'e': r'\d', 'f': settings.QUEUE, 'g': -1,
        }
        other = 5"#;
        let value = parsed(text).unwrap();
        let a = value.get("a").unwrap();
        assert_eq!(
            a.json().unwrap(),
            serde_json::json!({"task": "x.y", "schedule": 300, "args": [1, "two", null]})
        );
        let list = PythonValue::List(vec![PythonValue::Number(1.0), PythonValue::Number(2.0)]);
        let named =
            vec![("minute".to_owned(), PythonValue::Text("*/5".to_owned())), ("hour".to_owned(), list)];
        assert_eq!(value.get("b"), Some(&PythonValue::Call("crontab".to_owned(), vec![], named)));
        assert!(matches!(value.get("c"), Some(PythonValue::Call(name, _, _)) if name == "timedelta"));
        assert_eq!(value.get("d").unwrap().json().unwrap(), serde_json::json!(["one"]));
        assert_eq!(value.get("e").unwrap().text(), Some(r"\d"));
        assert_eq!(
            value.get("f").unwrap().json().unwrap_err(),
            "settings.QUEUE is not data: replace it by its value"
        );
        assert_eq!(value.get("g"), Some(&PythonValue::Number(-1.0)));
    }

    #[test]
    fn errors_name_their_line() {
        assert_eq!(parsed("{\n'a': 1\n'b': 2}").unwrap_err(), "line 3 of the schedule: expected , or }");
        assert_eq!(parsed("{'a").unwrap_err(), "line 1 of the schedule: a text does not end");
        assert!(parsed("{**other}").is_err());
        assert!(parsed("").is_err());
    }
}
