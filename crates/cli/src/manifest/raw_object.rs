//! A JSON object whose values stay as written.

use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use std::fmt;

/// Members in the order of the text. No name is there twice.
#[derive(Debug, Clone, Default)]
pub struct RawObject(Vec<(String, Box<RawValue>)>);

impl RawObject {
    pub fn get(&self, name: &str) -> Option<&RawValue> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, value)| &**value)
    }

    /// The value of this type, or `None` if there is none, or one of another type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self, name: &str) -> Option<T> {
        serde_json::from_str(self.get(name)?.get()).ok()
    }

    /// The value for comparisons and display: numbers may lose digits.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.read(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(member, _)| member == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    pub fn set_to(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
        self.set(name, to_raw_value(value)?);
        Ok(())
    }

    pub fn remove(&mut self, name: &str) -> Option<Box<RawValue>> {
        let place = self.0.iter().position(|(member, _)| member == name)?;
        Some(self.0.remove(place).1)
    }

    pub fn retain(&mut self, mut keep: impl FnMut(&str, &RawValue) -> bool) {
        self.0.retain(|(name, value)| keep(name, value));
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut Box<RawValue>)> {
        self.0.iter_mut().map(|(name, value)| (name.as_str(), value))
    }
}

impl Serialize for RawObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for RawObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(RawObjectVisitor)
    }
}

struct RawObjectVisitor;

impl<'de> Visitor<'de> for RawObjectVisitor {
    type Value = RawObject;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RawObject, A::Error> {
        let mut object = RawObject::default();
        while let Some((name, value)) = members.next_entry::<String, Box<RawValue>>()? {
            if object.get(&name).is_some() {
                return Err(A::Error::custom(format!("{name} is there twice")));
            }
            object.0.push((name, value));
        }
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_order_stay_as_written() {
        let mut object: RawObject = serde_json::from_str(r#"{"z": 1.50, "a": [ 1 ], "m": null}"#).unwrap();
        object.set_to("a", "x").unwrap();
        object.remove("m");
        assert_eq!(serde_json::to_string(&object).unwrap(), r#"{"z":1.50,"a":"x"}"#);
        assert!(serde_json::from_str::<RawObject>(r#"{"a": 1, "a": 2}"#).is_err());
    }
}
