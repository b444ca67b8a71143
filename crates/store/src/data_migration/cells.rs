//! Rows as they are copied between two databases: cell by cell, without any meaning except their type.

use crate::cells::{Cell, Cells};
use crate::fault::Fault;
use crate::layout::hex;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

impl Cell<'_> {
    pub fn number(&self, what: &'static str) -> Result<i64, Fault> {
        match self {
            Cell::Number(number) => Ok(*number),
            other => Err(Fault::damaged(what, format!("{other:?}"))),
        }
    }

    pub fn bytes(&self, what: &'static str) -> Result<&[u8], Fault> {
        match self {
            Cell::Id(id) => Ok(id.as_bytes()),
            Cell::Bytes(bytes) => Ok(bytes),
            other => Err(Fault::damaged(what, format!("{other:?}"))),
        }
    }

    /// The approximate size in memory.
    pub fn weight(&self) -> usize {
        match self {
            Cell::Null | Cell::Number(_) => 8,
            Cell::Id(_) => 16,
            Cell::Text(text) => text.len(),
            Cell::Bytes(bytes) => bytes.len(),
        }
    }

    fn to_json(&self) -> Value {
        match self {
            Cell::Null => Value::Null,
            Cell::Number(number) => json!(number),
            Cell::Id(id) => json!({ "hex": hex(id.as_bytes()) }),
            Cell::Text(text) => json!(text),
            Cell::Bytes(bytes) => json!({ "hex": hex(bytes) }),
        }
    }

    fn from_json(value: &Value) -> Result<Cell<'static>, Fault> {
        let damaged = || Fault::damaged("a position in an unfinished copy", value);
        match value {
            Value::Null => Ok(Cell::Null),
            Value::Number(number) => Ok(Cell::Number(number.as_i64().ok_or_else(damaged)?)),
            Value::String(text) => Ok(Cell::Text(text.clone().into())),
            other => {
                let digits = other.get("hex").and_then(Value::as_str).ok_or_else(damaged)?;
                Ok(Cell::Bytes(unhex(digits).ok_or_else(damaged)?.into()))
            }
        }
    }
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// How far one table was copied; stored in the target together with the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CopyPosition {
    /// The key of the last row, as in the source.
    pub key: Cells,
    /// How many rows were copied.
    pub rows: u64,
    /// The number of the last log line in the target.
    pub last_line: i64,
}

impl CopyPosition {
    pub fn to_text(&self) -> String {
        let key: Vec<Value> = self.key.iter().map(Cell::to_json).collect();
        json!({ "key": key, "rows": self.rows, "last_line": self.last_line }).to_string()
    }

    pub fn from_text(text: &str) -> Result<Self, Fault> {
        let damaged = || Fault::damaged("a position in an unfinished copy", text);
        let value: Value = serde_json::from_str(text)?;
        let key = value["key"].as_array().ok_or_else(damaged)?;
        Ok(CopyPosition {
            key: key.iter().map(Cell::from_json).collect::<Result<_, _>>()?,
            rows: value["rows"].as_u64().ok_or_else(damaged)?,
            last_line: value["last_line"].as_i64().ok_or_else(damaged)?,
        })
    }
}

/// A checksum over all rows of a table in any order, because each database sorts texts differently. It is
/// the sum of the rows' hashes, so that a duplicate row counts twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Checksum {
    pub rows: u64,
    sum: [u64; 4],
}

impl Checksum {
    pub fn add(&mut self, row: &[Cell<'_>]) {
        let mut hash = Sha256::new();
        for cell in row {
            match cell {
                Cell::Null => hash.update([0]),
                Cell::Number(number) => {
                    hash.update([1]);
                    hash.update(number.to_be_bytes());
                }
                Cell::Id(id) => feed(&mut hash, 3, id.as_bytes()),
                Cell::Text(text) => feed(&mut hash, 2, text.as_bytes()),
                Cell::Bytes(bytes) => feed(&mut hash, 3, bytes),
            }
        }
        let hash = hash.finalize();
        for (sum, part) in self.sum.iter_mut().zip(hash.chunks_exact(8)) {
            let part = part.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
            *sum = sum.wrapping_add(part);
        }
        self.rows += 1;
    }

    pub fn to_hex(self) -> String {
        self.sum.iter().map(|part| format!("{part:016x}")).collect()
    }
}

/// Prefixed with its length, so that no two different rows have the same encoding.
fn feed(hash: &mut Sha256, kind: u8, bytes: &[u8]) {
    hash.update([kind]);
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_position_is_read_as_it_was_written() {
        let key = vec![
            Cell::Text("a \"b\"".into()),
            Cell::Bytes(vec![0, 255, 7].into()),
            Cell::Number(i64::MIN),
            Cell::Null,
        ];
        let place = CopyPosition { key, rows: 3, last_line: -1 };
        assert_eq!(CopyPosition::from_text(&place.to_text()).unwrap(), place);
        assert!(CopyPosition::from_text("{}").is_err());
        assert!(CopyPosition::from_text(r#"{"key":[{"hex":"0g"}],"rows":1,"last_line":0}"#).is_err());
    }

    #[test]
    fn a_checksum_covers_every_row_in_any_order() {
        let row = |text: &str, number| vec![Cell::Text(text.to_owned().into()), Cell::Number(number)];
        let of = |rows: &[Cells]| {
            let mut sum = Checksum::default();
            rows.iter().for_each(|row| sum.add(row));
            sum
        };
        let all = of(&[row("a", 1), row("b", 2)]);
        assert_eq!(all, of(&[row("b", 2), row("a", 1)]));
        assert_ne!(all, of(&[row("a", 2), row("b", 1)]));
        assert_ne!(of(&[row("a", 1), row("a", 1)]), of(&[row("b", 1), row("b", 1)]));
        assert_ne!(
            of(&[vec![Cell::Text("ab".into()), Cell::Text("c".into())]]),
            of(&[vec![Cell::Text("a".into()), Cell::Text("bc".into())]])
        );
        assert_ne!(of(&[vec![Cell::Null]]), of(&[vec![Cell::Text("".into())]]));
    }
}
