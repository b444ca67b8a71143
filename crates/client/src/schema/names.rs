//! The wire names of a struct's fields and an enum's variants, as serde knows them.
//!
//! A type that derives `Deserialize` passes its names to the deserializer.

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

/// The fields of a struct or the variants of an enum; empty for other types.
pub fn names_of<'de, T: Deserialize<'de>>() -> &'static [&'static str] {
    let mut names = &[][..];
    // It aborts as soon as the names are known.
    let _ = T::deserialize(NameListener { names: &mut names });
    names
}

struct NameListener<'a> {
    names: &'a mut &'static [&'static str],
}

impl<'de> Deserializer<'de> for NameListener<'_> {
    type Error = Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.names = fields;
        Err(Error::custom("the names are known"))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.names = variants;
        Err(Error::custom("the names are known"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("it has no names"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClockBody, ClockMode};

    #[test]
    fn names_are_those_of_the_wire() {
        assert_eq!(names_of::<ClockBody>(), ["mode", "now"]);
        assert_eq!(names_of::<ClockMode>(), ["system", "manual"]);
        assert!(names_of::<u32>().is_empty());
    }
}
