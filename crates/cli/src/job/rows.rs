//! Jobs in files of rows: NDJSON with a job per line, and CSV with a header. Errors name lines.
//!
//! Each row without an `idempotency_key` gets one that follows from its job, so that a file can be submitted again
//! after an interruption or a fix: rows that were accepted before return their jobs.

use crate::manifest::{RawObject, documents};
use punctual_client::SubmitJob;
use punctual_client::schema::names_of;
use punctual_config::exit::CliError;
use punctual_config::suggest::did_you_mean;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Fields whose values are numbers in JSON.
const NUMBERS: [&str; 8] = [
    "max_retries",
    "max_runs",
    "max_open",
    "overlap_limit",
    "misfire_limit",
    "timeout_secs",
    "payload",
    "retry",
];
/// Fields that are lists; a cell separates the items by semicolons.
const LISTS: [&str; 3] = ["tags", "depends_on", "calendars"];
/// A column that is left out.
const LEFT_OUT: &str = "-";
/// Ends a target whose cells are JSON.
const AS_JSON: &str = ":json";
/// Begins a key that follows from a row.
const KEY_PREFIX: &str = "row-";

#[derive(Debug, clap::Args)]
pub struct RowArgs {
    /// Kind of the file; by default from its extension: json, yaml or yml, ndjson or jsonl, csv
    #[arg(long = "format", value_enum, requires = "file")]
    file_format: Option<RowFormat>,
    /// Set a field from a column of a CSV file, such as customer=payload.customer, amount=payload.amount:json for a cell with JSON,
    /// or note=- to leave a column out; can be given more than once
    #[arg(long, value_name = "COLUMN=FIELD", requires = "file", value_parser = mapping)]
    map: Vec<(String, String)>,
    /// A JSON or YAML file with a job whose texts contain {{column}}: each row makes a job of it
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with = "map")]
    template: Option<PathBuf>,
    /// Submit rows again that were submitted before with another key, or without one
    #[arg(long, value_name = "KEY", requires = "file")]
    resume_key: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum RowFormat {
    /// One JSON document after another, or one list
    Json,
    Yaml,
    /// A JSON object per line
    #[value(alias = "jsonl")]
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

/// A job and the line of the file that it comes from.
#[derive(Debug)]
pub struct RowJob {
    pub line: u64,
    pub job: Box<RawValue>,
}

/// A row before it becomes a job.
struct FileRow {
    line: u64,
    cells: Map<String, Value>,
}

impl RowArgs {
    /// Whether the file has rows. Other files have documents.
    pub fn has_rows(&self, file: &Path) -> bool {
        match (self.file_format, file.extension().and_then(|extension| extension.to_str())) {
            (Some(format), _) => matches!(format, RowFormat::Ndjson | RowFormat::Csv),
            (None, Some("ndjson" | "jsonl" | "csv")) => true,
            (None, _) => self.template.is_some() || !self.map.is_empty(),
        }
    }

    fn is_csv(&self, file: &Path) -> bool {
        let by_name =
            || !matches!(file.extension().and_then(|name| name.to_str()), Some("ndjson" | "jsonl" | "json"));
        self.file_format.map_or_else(by_name, |format| format == RowFormat::Csv)
    }

    /// The jobs of a file of rows, or everything that is wrong with it.
    pub fn read(&self, file: &Path) -> anyhow::Result<Vec<RowJob>> {
        let text = documents::text_of(file)?;
        let template = self.template.as_deref().map(template).transpose()?;
        let jobs = self.jobs(&text, self.is_csv(file), template.as_ref());
        let jobs = jobs.map_err(|errors| {
            let errors: Vec<String> =
                errors.iter().map(|error| format!("{}: {error}", file.display())).collect();
            CliError::refused(errors.join("\n"))
        })?;
        match jobs.is_empty() {
            true => Err(CliError::refused(format!("{} contains no job", file.display())).into()),
            false => Ok(jobs),
        }
    }

    fn jobs(&self, text: &str, is_csv: bool, template: Option<&Value>) -> Result<Vec<RowJob>, Vec<String>> {
        let text = text.trim_start_matches('\u{feff}');
        let rows = match (is_csv, template) {
            (false, None) => ndjson_jobs(text)?,
            (false, Some(template)) => filled(ndjson_rows(text)?, template)?,
            (true, Some(template)) => filled(csv_rows(text)?.1, template)?,
            (true, None) => self.mapped(csv_rows(text)?)?,
        };
        Ok(with_keys(rows, self.resume_key.as_deref()))
    }

    /// The rows of a CSV file as jobs, by the names of columns and by `--map`.
    fn mapped(&self, (columns, rows): (Vec<String>, Vec<FileRow>)) -> Result<Vec<RowJob>, Vec<String>> {
        let mut errors = Vec::new();
        for (column, _) in self.map.iter().filter(|(column, _)| !columns.contains(column)) {
            errors.push(format!(
                "--map {column}: there is no such column{}",
                did_you_mean(column, columns.iter().map(String::as_str))
            ));
        }
        let targets: Vec<(String, String)> = columns
            .iter()
            .filter_map(|column| match self.target(column) {
                Ok(target) => Some((column.clone(), target)),
                Err(error) => {
                    errors.push(error);
                    None
                }
            })
            .collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let mut jobs = Vec::with_capacity(rows.len());
        for row in rows {
            match mapped_job(&row, &targets) {
                Ok(job) => jobs.push(RowJob { line: row.line, job }),
                Err(error) => errors.push(format!("line {}: {error}", row.line)),
            }
        }
        if errors.is_empty() { Ok(jobs) } else { Err(errors) }
    }

    fn target(&self, column: &str) -> Result<String, String> {
        let target = match self.map.iter().find(|(from, _)| from == column) {
            Some((_, target)) => target.as_str(),
            None => column,
        };
        let field = target.strip_suffix(AS_JSON).unwrap_or(target).split('.').next().unwrap_or_default();
        let known = names_of::<SubmitJob>();
        match target == LEFT_OUT || known.contains(&field) {
            true => Ok(target.to_owned()),
            false => Err(format!(
                "column {column}: {field} is not a field of a job{}; map it with --map {column}=payload.{column}, or leave it out \
                 with --map {column}=-",
                did_you_mean(field, known.iter().copied())
            )),
        }
    }
}

fn mapping(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((column, field)) if !column.is_empty() && !field.is_empty() => {
            Ok((column.to_owned(), field.to_owned()))
        }
        _ => Err("must look like column=field, such as customer=payload.customer".to_owned()),
    }
}

fn template(file: &Path) -> anyhow::Result<Value> {
    let documents = documents::read(file)?;
    let [document] = &documents[..] else {
        return Err(CliError::refused(format!("{}: a template is one job", file.display())).into());
    };
    Ok(serde_json::from_str(document.get())?)
}

/// The objects of the lines that are not blank.
fn ndjson_rows(text: &str) -> Result<Vec<FileRow>, Vec<String>> {
    let parsed = |line: u64, text: &str| match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(cells) => Ok(FileRow { line, cells }),
        Err(error) => Err(format!("line {line}: {}", of_line(&error))),
    };
    all(lines(text).map(|(line, text)| parsed(line, text)))
}

/// The jobs of the lines that are not blank, as written.
fn ndjson_jobs(text: &str) -> Result<Vec<RowJob>, Vec<String>> {
    let parsed = |line: u64, text: &str| match serde_json::from_str::<RawObject>(text) {
        Ok(_) => RawValue::from_string(text.trim().to_owned())
            .map(|job| RowJob { line, job })
            .map_err(|error| error.to_string()),
        Err(error) => Err(format!("line {line}: {}", of_line(&error))),
    };
    all(lines(text).map(|(line, text)| parsed(line, text)))
}

fn lines(text: &str) -> impl Iterator<Item = (u64, &str)> {
    (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty())
}

/// The message without its own line, which is always 1.
fn of_line(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column", " at column")
}

fn all<T>(results: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, Vec<String>> {
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

/// The header and the rows. Every row has as many cells as the header.
fn csv_rows(text: &str) -> Result<(Vec<String>, Vec<FileRow>), Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| vec![error.to_string()])?;
    let columns: Vec<String> = header.iter().map(|column| column.trim().to_owned()).collect();
    let repeated = columns.iter().enumerate().find(|(place, column)| columns[..*place].contains(column));
    if let Some((_, column)) = repeated {
        return Err(vec![format!("the header has the column {column} twice")]);
    }
    let rows = reader.records().map(|record| {
        let record = record.map_err(|error| error.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != columns.len() {
            return Err(format!("line {line}: has {} cells, the header has {}", record.len(), columns.len()));
        }
        let cells = columns.iter().cloned().zip(record.iter().map(Value::from)).collect();
        Ok(FileRow { line, cells })
    });
    let rows = all(rows)?;
    Ok((columns, rows))
}

/// A job from a row. Empty cells set nothing.
fn mapped_job(row: &FileRow, targets: &[(String, String)]) -> Result<Box<RawValue>, String> {
    let mut job = Value::Object(Map::new());
    for (column, target) in targets.iter().filter(|(_, target)| target != LEFT_OUT) {
        let Some(Value::String(cell)) = row.cells.get(column).filter(|cell| cell.as_str() != Some("")) else {
            continue;
        };
        let (path, is_json) = match target.strip_suffix(AS_JSON) {
            Some(path) => (path, true),
            None => (target.as_str(), NUMBERS.contains(&target.as_str())),
        };
        let value = match is_json {
            true => {
                serde_json::from_str(cell).map_err(|error| format!("column {column}: {}", of_line(&error)))?
            }
            false if LISTS.contains(&path) => cell.split(';').map(|item| Value::from(item.trim())).collect(),
            false => Value::from(cell.as_str()),
        };
        let mut place = &mut job;
        for name in path.split('.') {
            if !place.is_object() {
                return Err(format!("column {column}: {path} is inside a field that another column sets"));
            }
            place = &mut place[name];
            if place.is_null() {
                *place = Value::Object(Map::new());
            }
        }
        *place = value;
    }
    to_raw_value(&job).map_err(|error| error.to_string())
}

/// The template with the cells of each row.
fn filled(rows: Vec<FileRow>, template: &Value) -> Result<Vec<RowJob>, Vec<String>> {
    let job = |row: FileRow| {
        let job = fill(template, &row.cells).map_err(|error| format!("line {}: {error}", row.line))?;
        let job = to_raw_value(&job).map_err(|error| error.to_string())?;
        Ok(RowJob { line: row.line, job })
    };
    all(rows.into_iter().map(job))
}

/// The value with `{{column}}` in its texts replaced. A text that is nothing else becomes the cell itself, and
/// `{{column:json}}` parses it.
fn fill(value: &Value, cells: &Map<String, Value>) -> Result<Value, String> {
    match value {
        Value::String(text) => fill_text(text, cells),
        Value::Array(items) => items.iter().map(|item| fill(item, cells)).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| Ok((name.clone(), fill(value, cells)?)));
            members.collect::<Result<Map<_, _>, String>>().map(Value::Object)
        }
        other => Ok(other.clone()),
    }
}

fn fill_text(text: &str, cells: &Map<String, Value>) -> Result<Value, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((name, after)) = after.split_once("}}") else { break };
        let cell = cell(name.trim(), cells)?;
        if before.is_empty() && after.is_empty() && filled.is_empty() {
            return Ok(cell);
        }
        filled += before;
        match &cell {
            Value::String(text) => filled += text,
            other => filled += &other.to_string(),
        }
        rest = after;
    }
    Ok(Value::String(filled + rest))
}

fn cell(name: &str, cells: &Map<String, Value>) -> Result<Value, String> {
    let (column, is_json) = match name.strip_suffix(AS_JSON) {
        Some(column) => (column, true),
        None => (name, false),
    };
    let cell = cells.get(column).ok_or_else(|| {
        format!(
            "the template names {column}, which the row does not have{}",
            did_you_mean(column, cells.keys().map(String::as_str))
        )
    })?;
    match (cell, is_json) {
        (Value::String(text), true) => {
            serde_json::from_str(text).map_err(|error| format!("{column}: {}", of_line(&error)))
        }
        (cell, _) => Ok(cell.clone()),
    }
}

/// Adds keys to the jobs without one. Identical rows are counted, so that each is its own job.
fn with_keys(mut jobs: Vec<RowJob>, resume_key: Option<&str>) -> Vec<RowJob> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for row in &mut jobs {
        let Ok(mut fields) = serde_json::from_str::<RawObject>(row.job.get()) else { continue };
        if fields.get("idempotency_key").is_some() {
            continue;
        }
        let mut digest = Sha256::new();
        digest.update(resume_key.unwrap_or_default().as_bytes());
        digest.update([0]);
        digest.update(row.job.get().as_bytes());
        let digest: String = digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let count = seen.entry(digest.clone()).or_default();
        *count += 1;
        let key = match *count {
            1 => format!("{KEY_PREFIX}{digest}"),
            count => format!("{KEY_PREFIX}{digest}-{count}"),
        };
        let keyed = fields.set_to("idempotency_key", &key).and_then(|()| to_raw_value(&fields));
        if let Ok(keyed) = keyed {
            row.job = keyed;
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(map: &[&str]) -> RowArgs {
        let map = map.iter().map(|text| mapping(text).unwrap()).collect();
        RowArgs { file_format: None, map, template: None, resume_key: None }
    }

    /// The jobs without their keys, with their lines.
    fn shown(jobs: Result<Vec<RowJob>, Vec<String>>) -> Result<Vec<String>, Vec<String>> {
        let shown = |row: &RowJob| {
            let mut fields: RawObject = serde_json::from_str(row.job.get()).unwrap();
            assert!(fields.remove("idempotency_key").is_some());
            format!("{} {}", row.line, serde_json::to_string(&fields).unwrap())
        };
        jobs.map(|jobs| jobs.iter().map(shown).collect())
    }

    #[test]
    fn columns_set_fields() {
        let text = "name,customer,amount,tags,priority,payload.note\na,7,12.5,x;y,high,\"one, \"\"two\"\"\nlines\"\nb,8,3,,5,\n";
        let jobs = args(&["customer=payload.customer", "amount=payload.amount:json"]).jobs(text, true, None);
        assert_eq!(
            shown(jobs).unwrap(),
            [
                r#"2 {"name":"a","payload":{"amount":12.5,"customer":"7","note":"one, \"two\"\nlines"},"priority":"high","tags":["x","y"]}"#,
                r#"4 {"name":"b","payload":{"amount":3,"customer":"8"},"priority":"5"}"#,
            ]
        );
        let jobs = args(&[]).jobs("name,calendars\na,weekend; holidays\n", true, None);
        assert_eq!(shown(jobs).unwrap(), [r#"2 {"calendars":["weekend","holidays"],"name":"a"}"#]);
    }

    #[test]
    fn errors_name_lines_and_columns() {
        let errors =
            |map: &[&str], text: &str| shown(args(map).jobs(text, true, None)).unwrap_err().join("\n");
        assert!(
            errors(&[], "name,custmer\na,1\n").starts_with("column custmer: custmer is not a field of a job")
        );
        assert!(
            errors(&["nme=name"], "name\na\n")
                .contains("--map nme: there is no such column; did you mean name?")
        );
        assert_eq!(
            errors(&[], "name,queue\na\nb,c,d\n"),
            "line 2: has 1 cells, the header has 2\nline 3: has 3 cells, the header has 2"
        );
        assert!(
            errors(&["n=payload.n:json"], "name,n\na,1\nb,x\n")
                .starts_with("line 3: column n: expected value")
        );
        assert_eq!(errors(&[], "name,name\n"), "the header has the column name twice");
        let ndjson =
            shown(args(&[]).jobs("{\"name\": \"a\"}\n\n{\"name\": }\n[1]\n", false, None)).unwrap_err();
        assert_eq!(ndjson.len(), 2);
        assert!(ndjson[0].starts_with("line 3: expected value at column"), "{ndjson:?}");
        assert!(ndjson[1].starts_with("line 4: "), "{ndjson:?}");
    }

    #[test]
    fn a_template_takes_cells() {
        let template = serde_json::json!({"name": "bill-{{id}}", "job_type": "bill", "payload": {"id": "{{id:json}}", "to": ["{{mail}}"], "n": 1}});
        let csv = shown(args(&[]).jobs("id,mail\n7,a@example.com\n", true, Some(&template))).unwrap();
        assert_eq!(
            csv,
            [r#"2 {"job_type":"bill","name":"bill-7","payload":{"id":7,"n":1,"to":["a@example.com"]}}"#]
        );
        let rows = "{\"id\": 7, \"mail\": null}\n";
        let ndjson = shown(args(&[]).jobs(rows, false, Some(&template))).unwrap();
        assert_eq!(ndjson, [r#"1 {"job_type":"bill","name":"bill-7","payload":{"id":7,"n":1,"to":[null]}}"#]);
        let error = shown(args(&[]).jobs("id,mial\n7,x\n", true, Some(&template))).unwrap_err();
        assert!(
            error[0].contains("the template names mail, which the row does not have; did you mean mial?"),
            "{error:?}"
        );
    }

    #[test]
    fn keys_follow_from_rows_and_not_from_the_file() {
        let keys = |text: &str, resume_key: Option<&str>| {
            let args = RowArgs { resume_key: resume_key.map(str::to_owned), ..args(&[]) };
            let key = |row: &RowJob| {
                serde_json::from_str::<RawObject>(row.job.get())
                    .unwrap()
                    .read::<String>("idempotency_key")
                    .unwrap()
            };
            args.jobs(text, false, None).unwrap().iter().map(key).collect::<Vec<_>>()
        };
        let first = keys("{\"name\":\"a\"}\n{\"name\":\"b\"}\n{\"name\":\"a\"}\n", None);
        assert_eq!(first[2], format!("{}-2", first[0]));
        assert_eq!(keys("{\"name\":\"fixed\"}\n{\"name\":\"a\"}\n", None)[1], first[0]);
        assert_ne!(keys("{\"name\":\"a\"}\n", Some("today")), first[..1]);
        assert_eq!(keys("{\"name\":\"a\",\"idempotency_key\":\"k\"}\n", None), ["k"]);
    }
}
