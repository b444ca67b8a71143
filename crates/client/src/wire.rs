//! The declaration of wire types: a struct and its JSON schema from one text.

/// Declares structs of the wire, each with the name of its schema. Doc comments are the descriptions of the
/// schema, so users of this crate and of the API read the same text.
///
/// A field's schema follows from its type, or from the expression after `=` where the type does not say
/// everything: bounds, a default, an example. Whether a field is required, and whether it may be null, follows
/// from `Option` and serde's attributes. A struct with `deny_unknown_fields` is a request. `flatten` adds the
/// fields of another wire type, after the others.
macro_rules! wire {
    ($(
        $(#[doc = $about:literal])*
        #[derive($($derive:tt)*)]
        $(#[serde($($container:tt)*)])?
        pub struct $name:ident as $schema_name:literal {
            $(
                $(#[doc = $doc:literal])*
                $(#[serde($($attribute:tt)*)])?
                pub $field:ident: $type:ty $(= $schema:expr)?,
            )*
            $(flatten $inner:ident: $inner_type:ty,)?
        }
    )*) => { $(
        $(#[doc = $about])*
        #[derive($($derive)*)]
        $(#[serde($($container)*)])?
        pub struct $name {
            $(
                $(#[doc = $doc])*
                $(#[serde($($attribute)*)])?
                pub $field: $type,
            )*
            $(#[serde(flatten)] pub $inner: $inner_type,)?
        }

        #[cfg(feature = "schema")]
        impl $crate::schema::WireType for $name {
            fn schema() -> $crate::schema::Schema {
                $crate::schema::the($schema_name)
            }
        }

        #[cfg(feature = "schema")]
        impl $crate::schema::WireObject for $name {
            const NAME: &'static str = $schema_name;
            const DIRECTION: $crate::schema::Direction =
                $crate::schema::Direction::of(concat!($(stringify!($($container)*))?));

            fn about() -> String {
                $crate::schema::joined(&[$($about),*])
            }

            fn fields() -> Vec<$crate::schema::Field> {
                let own = vec![$($crate::schema::Field {
                    name: $crate::schema::wire_name(
                        stringify!($field),
                        concat!($(stringify!($($attribute)*))?),
                    ),
                    type_name: stringify!($type),
                    attributes: concat!($(stringify!($($attribute)*))?),
                    schema: wire!(@schema $type $(= $schema)?).about(&$crate::schema::joined(&[$($doc),*])),
                },)*];
                [own $(, <$inner_type as $crate::schema::WireObject>::fields())?].concat()
            }
        }
    )* };
    (@schema $type:ty = $schema:expr) => {{
        use $crate::schema::*;
        $schema
    }};
    (@schema $type:ty) => { <$type as $crate::schema::WireType>::schema() };
}

pub(crate) use wire;
