//! The named schemas of the document.

use punctual_client::schema::{Schema, WireObject};
use serde_json::{Map, Value};

#[derive(Default)]
pub struct Schemas {
    pub named: Map<String, Value>,
}

impl Schemas {
    pub fn add(&mut self, name: &str, schema: Schema) {
        let before = self.named.insert(name.to_owned(), schema.value());
        assert!(before.is_none(), "two schemas are named {name}");
    }

    /// The schema of a wire type.
    pub fn of<T: WireObject>(&mut self) {
        self.add(T::NAME, T::object());
    }
}
