//! Python's frozen values as Rust reads them: their attributes, by interned names.

/// Declares what is read of a frozen value of Python, and lists its fields: a struct that is extracted from the value,
/// each field from the attribute of its name. Behind `besides` is what of the value goes another way.
///
/// Whoever calls compares the list with the fields that the value has (`coordinator_server/compiled.py`): a field that is
/// new in Python, and that nothing here knows, would be lost.
macro_rules! frozen {
    (
        $(#[$docs:meta])*
        $name:ident $(<$life:lifetime>)? { $($field:ident: $kind:ty),* $(,)? } $(besides { $($other:ident),* })?
    ) => {
        $(#[$docs])*
        #[derive(pyo3::FromPyObject)]
        pub struct $name $(<$life>)? { $($field: $kind),* }

        impl $(<$life>)? $name $(<$life>)? {
            /// The value's class in Python, and the fields that it must have, and no others.
            pub const KNOWN: (&'static str, &'static [&'static str]) =
                (stringify!($name), &[$(stringify!($field),)* $($(stringify!($other)),*)?]);
        }
    };
}

pub(crate) use frozen;
