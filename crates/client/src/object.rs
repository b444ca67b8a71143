//! Structs that are read from JSON objects only. By default, serde would also accept an array of the fields
//! in order, which is not part of the API.

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;
use std::marker::PhantomData;

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// An object or null.
pub(crate) fn optional<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Option::<Object<T>>::deserialize(deserializer)?.map(|object| object.0))
}

/// A list of objects.
pub(crate) fn each<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Ok(Vec::<Object<T>>::deserialize(deserializer)?.into_iter().map(|object| object.0).collect())
}

/// A list of objects, or null.
pub(crate) fn optional_each<'de, T, D>(deserializer: D) -> Result<Option<Vec<T>>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let items = Option::<Vec<Object<T>>>::deserialize(deserializer)?;
    Ok(items.map(|items| items.into_iter().map(|object| object.0).collect()))
}

#[cfg(test)]
mod tests {
    use crate::{BatchRequest, SubmitJob};

    #[test]
    fn an_array_is_no_object() {
        assert!(serde_json::from_str::<BatchRequest>(r#"{"jobs": [{"name": "n", "retry": {}}]}"#).is_ok());
        assert!(serde_json::from_str::<BatchRequest>(r#"{"jobs": [["n", "noop"]]}"#).is_err());
        assert!(serde_json::from_str::<SubmitJob>(r#"{"name": "n", "retry": ["fixed"]}"#).is_err());
        assert!(serde_json::from_str::<SubmitJob>(r#"{"name": "n", "retry": null}"#).is_ok());
    }
}
