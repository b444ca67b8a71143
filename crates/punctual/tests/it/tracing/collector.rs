//! An OTLP receiver: reads the protobuf of spans by field numbers, without the structs that wrote it.

use crate::http::web::{Answer, Web};
use crate::server::eventually;
use std::collections::BTreeMap;

pub struct Collector(Web);

/// A received span; ids in hexadecimal.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedSpan {
    pub trace: String,
    pub id: String,
    pub parent: String,
    pub state: String,
    pub name: String,
    pub kind: u64,
    pub started_ns: u64,
    pub ended_ns: u64,
    pub attributes: BTreeMap<String, String>,
    pub events: Vec<(String, BTreeMap<String, String>)>,
    /// Traces and spans.
    pub links: Vec<(String, String)>,
    pub error: Option<String>,
    pub resource: BTreeMap<String, String>,
}

impl ReceivedSpan {
    pub fn attribute(&self, key: &str) -> &str {
        self.attributes.get(key).map_or("", String::as_str)
    }
}

impl Collector {
    pub async fn start() -> Self {
        Collector(Web::answering(Answer::status("200 OK", "")).await)
    }

    pub fn url(&self) -> String {
        self.0.url("")
    }

    pub fn web(&self) -> &Web {
        &self.0
    }

    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.0.asked().iter().flat_map(|asked| spans_of(&asked.body)).collect()
    }

    /// The spans of a job by operation, once there are this many of each.
    pub async fn of_job(
        &self,
        job: &str,
        operations: &[(&str, usize)],
    ) -> BTreeMap<String, Vec<ReceivedSpan>> {
        let mut found = BTreeMap::new();
        eventually(&format!("spans of {job}: {operations:?}"), async || {
            found = BTreeMap::<String, Vec<ReceivedSpan>>::new();
            for span in self.spans().into_iter().filter(|span| span.attribute("punctual.job.id") == job) {
                found.entry(span.attribute("messaging.operation.name").to_owned()).or_default().push(span);
            }
            operations.iter().all(|(name, count)| found.get(*name).map_or(0, Vec::len) >= *count)
        })
        .await;
        for spans in found.values_mut() {
            spans.sort_by_key(|span| span.started_ns);
        }
        found
    }
}

/// A field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(&self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Number(number) => panic!("a number, {number}"),
        }
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes().to_vec()).expect("UTF-8")
    }

    fn hex(&self) -> String {
        self.bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn number(&self) -> u64 {
        match self {
            Field::Number(number) => *number,
            Field::Bytes(_) => panic!("not a number"),
        }
    }
}

/// The fields of a message with their numbers.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().expect("8 bytes"))),
            2 => {
                let length = varint(&mut bytes);
                Field::Bytes(take(&mut bytes, length as usize))
            }
            5 => Field::Number(u32::from_le_bytes(take(&mut bytes, 4).try_into().expect("4 bytes")).into()),
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)[0];
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("an endless number")
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

/// The contents of the fields with a number.
fn all<'a>(bytes: &'a [u8], number: u64) -> impl Iterator<Item = Field<'a>> {
    fields(bytes).into_iter().filter(move |(known, _)| *known == number).map(|(_, field)| field)
}

fn attributes(message: &[u8], number: u64) -> BTreeMap<String, String> {
    let mut attributes = BTreeMap::new();
    for pair in all(message, number) {
        let key = all(pair.bytes(), 1).next().expect("a key").text();
        let value = all(pair.bytes(), 2).next().expect("a value");
        let value = match fields(value.bytes()).remove(0) {
            (1, text) => text.text(),
            (3, number) => number.number().to_string(),
            (other, _) => panic!("{key} has a value of type {other}"),
        };
        assert_eq!(attributes.insert(key.clone(), value), None, "{key} came twice");
    }
    attributes
}

fn spans_of(request: &[u8]) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for resource_spans in all(request, 1) {
        let resource = all(resource_spans.bytes(), 1).next().expect("a resource");
        let resource = attributes(resource.bytes(), 1);
        for scope_spans in all(resource_spans.bytes(), 2) {
            spans.extend(all(scope_spans.bytes(), 2).map(|span| span_of(span.bytes(), &resource)));
        }
    }
    spans
}

fn span_of(span: &[u8], resource: &BTreeMap<String, String>) -> ReceivedSpan {
    let hex = |message: &[u8], number| all(message, number).next().map_or_else(String::new, |id| id.hex());
    let text =
        |message: &[u8], number| all(message, number).next().map_or_else(String::new, |text| text.text());
    let number = |number| all(span, number).next().map_or(0, |field| field.number());
    let status = all(span, 15).next();
    ReceivedSpan {
        trace: hex(span, 1),
        id: hex(span, 2),
        state: text(span, 3),
        parent: hex(span, 4),
        name: text(span, 5),
        kind: number(6),
        started_ns: number(7),
        ended_ns: number(8),
        attributes: attributes(span, 9),
        events: all(span, 11).map(|event| (text(event.bytes(), 2), attributes(event.bytes(), 3))).collect(),
        links: all(span, 13).map(|link| (hex(link.bytes(), 1), hex(link.bytes(), 2))).collect(),
        error: status.map(|status| text(status.bytes(), 2)),
        resource: resource.clone(),
    }
}
